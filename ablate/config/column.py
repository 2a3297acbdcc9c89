"""What is known of a column of results.csv. That of a key is declared on its field in schema.py, any other
in store/columns.py."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

Role = Literal["identity", "config", "seed", "derived", "metric", "resource", "provenance"]
Kind = Literal["text", "word", "json", "boolean", "choice", "whole", "number"]

SPLITS = {"train": "training", "val": "validation", "test": "test"}  # by what their metrics begin with
OF_TEST = {"mix_loss": "val_loss"}  # of the test split by another name, with the metric of validation


@dataclass(frozen=True)
class Column:
    """A column of results.csv. name: empty for that of a key, which is named by it.

    role: identity (which run, of which study), config (defines a variant), seed (differs between the
    replicates of a variant), derived (follows from the config), metric (what was learned), resource (time and
    memory, which differ between two executions of a run), provenance (program and machine). kind: of its
    values; text is never a number, although a hash of digits looks like one; words may stand beside numbers
    (auto, 4); a choice is true or false, and rows of before may have a name. label: what it is, in words.
    group: that of the key of a config column. unit: of its numbers. higher_is_better: of a metric; None if
    that is not known. brings: other columns and options that may change with it. by_auto: whether it may
    change with any other, by `auto` and `match`.
    """

    name: str
    role: Role
    kind: Kind
    label: str = ""
    group: str = ""
    unit: str = ""
    higher_is_better: bool | None = False
    brings: tuple[str, ...] = ()
    by_auto: bool = False

    @property
    def words(self) -> str:
        return self.label or self.name

    @property
    def split(self) -> str:
        """The split that a metric is of; empty for any other column."""
        prefix = "test" if self.name in OF_TEST else self.name.partition("_")[0]
        return SPLITS.get(prefix, "") if self.role == "metric" else ""


config_column, seed_column = (partial(Column, "", role) for role in ("config", "seed"))


def declared(hint: Any) -> list[Column]:
    """The columns that the type of a key declares."""
    return [one for one in get_args(hint)[1:] if isinstance(one, Column)]
