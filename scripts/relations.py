"""How methods are related: the equations of `ablate verify` between two levels of a setting, in words for
docs/methods.md."""

from typing import NamedTuple

SAME = "so both can learn the same functions."


class Relation(NamedTuple):
    """column: of the setting. pair: its two levels. name: of the identity of `ablate verify`."""

    column: str
    pair: tuple[str, str]
    name: str
    words: str


RELATIONS = [
    Relation(
        *("fusion", ("concat", "sum"), "2"),
        "A sum is concat with the same rows of W_O for every head: all heads write into the same directions.",
    ),
    Relation(
        *("fusion", ("concat", "mean"), "2 mean"),
        "A mean is concat with the same rows of W_O for every head, divided by their number.",
    ),
    Relation(
        *("fusion", ("concat", "weighted_sum"), "3"),
        "A weighted sum is concat with rows of W_O that differ between heads by a factor only.",
    ),
    Relation("fusion", ("concat", "head_scale"), "3 side", f"Weights of heads fold into W_O, {SAME}"),
    Relation("fusion", ("sum", "weighted_sum"), "19", f"Weights of heads fold into the values, {SAME}"),
    Relation(
        *("fusion", ("sum", "mean"), "13"),
        "A mean trains as a sum would with another scale of W_O and another rate for it.",
    ),
    Relation(
        *("heads", ("1", "several"), "7"),
        "With the same weights, one head of full width is the product of the patterns of many: one pattern"
        " in place of several.",
    ),
    Relation(
        *("out_proj", ("true", "false"), "10"),
        "Without the output projection a head writes into its own slice of the channels only; with a single"
        " head the projection folds into W_V.",
    ),
    Relation(
        *("out_rank", ("full", "d_v"), "18"),
        "A projection of rank d_v can write what a sum of heads can; a higher rank can write more.",
    ),
    Relation(
        *("tie_qk", ("true", "false"), "22"),
        "With one matrix for queries and keys, the scores of two tokens are the same both ways.",
    ),
    *(
        Relation(
            *("scale", ("inside", place), f"25 {place}"),
            f"The place of 1/√d_k folds into W_Q and W_O, {SAME}",
        )
        for place in ("outside", "both", "none")
    ),
]
