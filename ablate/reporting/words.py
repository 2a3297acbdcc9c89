"""A comparison for readers: captions, tables with few columns, closing sentences. Prints nothing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import POWER, Comparison
from ablate.analysis.contrasts import EQUAL
from ablate.analysis.variants import STEPS_TO, lost_by, name_parts
from ablate.config.overrides import spelled
from ablate.phrases import counted

UNITS = {"val_bpb": "bits per byte"}


def for_reading(comparison: Comparison, family: str, *, marginal: bool = False) -> pd.DataFrame:
    """One family for readers: the columns that distinguish the variants, and the numbers behind the
    verdict."""
    table = comparison.family(family)
    shown = [column for column in comparison.shown if comparison.table[column].nunique() > 1]
    read = table[shown or comparison.shown[:1]].copy()
    diverged = table["diverged"].astype(int)
    lost = lost_by(comparison.metric)
    read["n"] = [f"{n} + {d} {lost}" if d else str(n) for n, d in zip(table["n"], diverged, strict=True)]
    if "match_error" in table:  # the difference in cost that remains after matching
        read["params"] = table["params"]
        read["match_error"] = ["" if error != error else f"{error:+.1%}" for error in table["match_error"]]
    read["mean"] = table["mean"]
    if table["sd"].notna().any():
        read["sd"] = table["sd"]
    if table["diff"].notna().any():
        read["diff"] = ["" if diff != diff else f"{diff:+.4f}" for diff in table["diff"].tolist()]
    if table["diff"].notna().any() and comparison.table["n"].max() > 1:  # one seed decides nothing
        read["[low, high]"] = _intervals(table, "low", "high")
        if marginal:
            level = f"{100 * (1 - comparison.alpha):g} %"
            read[f"marginal {level}"] = _intervals(table, "low_marginal", "high_marginal")
        if table["controlled"].notna().any():
            read[f"with {spelled(comparison.placebo)}"] = [
                _interval(row, "controlled") for row in table.to_dict("records")
            ]
        if table["share"].notna().any():
            read["share"] = ["" if share != share else f"{share:.0%}" for share in table["share"].tolist()]
        read["p_holm"] = [_p(p) for p in table["p_holm"].tolist()]
        read["verdict"] = [_verdict(row) for row in table.to_dict("records")]
    if "step_ms" in table:
        read["step_ms"] = table["step_ms"]
        ranges = zip(table["step_ratio"], table["step_ratio_low"], table["step_ratio_high"], strict=True)
        read["step_ratio"] = ["" if r != r else f"{r:.2f} [{low:.2f}, {high:.2f}]" for r, low, high in ranges]
    if table["best"].any():
        read["best"] = table["best"]
    return read


def effects_for_reading(effects: pd.DataFrame) -> pd.DataFrame:
    read = effects[["effect", "widths", "blocks", "n", "diff"]].copy()
    read["[low, high]"] = _intervals(effects, "low", "high")
    read["p_holm"] = [_p(p) for p in effects["p_holm"].tolist()]
    return read


def caption(comparison: Comparison, family: str) -> str:
    """The caption of a family: what its p-values and intervals are corrected for, in a line or two."""
    table = comparison.family(family)
    tested = table[table["p"].notna()]
    margin = f"margin {comparison.margin:g}{unit(comparison.metric)}"
    if comparison.margin != comparison.margin:
        margin = "without --margin, so none is called equivalent"
    if tested.empty:
        return f"{family} ({comparison.metric}): nothing tested"
    level = f"{100 * (1 - comparison.alpha):g} %"
    named = "named beforehand" if family == "primary" else "a lead to test, not a result"
    each = f"{100 * tested['level'].iloc[0]:.4g} %"
    correlation = tested["correlation"].median()
    seeds = "" if correlation != correlation else f", seed correlation {correlation:.2f} (median)"
    return (
        f"{family} ({comparison.metric}; {named}): {counted(len(tested), 'comparison')},"
        f" p_holm by Holm over them,\nsimultaneous {level} intervals (each at {each}), {margin}{seeds}"
    )


def sentences(comparison: Comparison) -> list[str]:
    """The findings: one sentence per primary contrast or, without any, one about the best variant."""
    primary = comparison.family("primary")
    if len(primary):
        compared = primary[primary["baseline"].notna()]
    else:
        table = comparison.table
        compared = table[table["p"].notna()].head(1)  # the best: families are sorted
    return [
        *(_sentence(row, comparison) for row in compared.to_dict("records")),
        *interactions(comparison),
    ]


def interactions(comparison: Comparison) -> list[str]:
    """Sentences on the interaction of projection and number of heads, if a study asks about it."""
    rows = comparison.interaction.to_dict("records")
    return [_interaction(row, comparison) for row in rows if row["p"] == row["p"]]


def _interaction(row: Mapping[Any, Any], comparison: Comparison) -> str:
    decided = "" if row["low"] > 0 or row["high"] < 0 else "undecided, "
    if lost := row["more_diverged"]:
        decided = f"undecided, since one variant diverged on {counted(lost, 'more seed')} than another, "
    few = row["effect"].rpartition(" − ")[2]
    remains = _interval(row, "controlled")
    under = spelled(comparison.placebo)
    at_few = _interval(row, "at_few")
    assumed = f"; off − on with {few}{f' and {under}' if remains else ''} is {at_few}" if at_few else ""
    if at_few and few == "heads=1":
        assumed += ", which is parametrization, and is taken to be as large with more heads"
    return (
        f"{row['effect']}, without the projection less the same with it: {decided}{signed(row['diff'])}"
        f"{unit(comparison.metric)} [{number(row['low'])}, {number(row['high'])}], n = {row['n']} paired"
        f" seeds, Holm p {_is(row['p_holm'])}{f'; with {under} {remains}' if remains else ''}{assumed}."
    )


def _interval(row: Mapping[Any, Any], name: str) -> str:
    """A difference with its interval; empty if there is none."""
    diff, low, high = (row[column] for column in (name, f"{name}_low", f"{name}_high"))
    interval = f" [{number(low)}, {number(high)}]" if low == low else ""
    return "" if diff != diff else f"{signed(diff)}{interval}"


def share_of_attention(share: float) -> str:
    """The words for a difference as a share of what attention is worth; empty if that is not known."""
    return f", {percent(share)} of what attention is worth" if math.isfinite(share) else ""


def percent(share: float) -> str:
    """A share without its sign: 0.62 %, 3.2 %, 116 %."""
    percent = 100 * abs(share)
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


def parametrization(row: Mapping[Any, Any], comparison: Comparison) -> str:
    """The end of a sentence on a difference: how much of it is parametrization, as far as that is known."""
    remains, words = _interval(row, "controlled"), []
    if row["same_class"]:
        words.append("both can learn the same functions, so all of it is parametrization")
    if remains:
        words.append(f"with {spelled(comparison.placebo)}, {remains} remains of {signed(row['diff'])}")
    return "".join(f"; {part}" for part in words)


def _sentence(row: Mapping[Any, Any], comparison: Comparison) -> str:
    found = _finding(row, comparison)
    return found if row["p"] != row["p"] else f"{found[:-1]}{parametrization(row, comparison)}."


def _finding(row: Mapping[Any, Any], comparison: Comparison) -> str:
    variant, baseline, setting = names(row["variant"], row["baseline"])
    at = f" ({setting})" if setting else ""
    verdict, of, margin = row["verdict"], unit(comparison.metric), f"{comparison.margin:g}"
    if verdict == EQUAL:
        return f"{variant} is {row['why']}: nothing to test."
    if row["p"] != row["p"]:
        return f"{variant} against {baseline}{at}: undecided, {row['why']}."
    interval = f"[{number(row['low'])}, {number(row['high'])}]"
    seeds = f"n = {row['pairs']} paired seeds"
    family = "" if row["family"] == "primary" else " (exploratory)"
    if verdict == stats.EQUIVALENT:
        return (
            f"{variant} and {baseline}{at} are equivalent within {margin}{of}: difference"
            f" {number(row['diff'])} {interval}, {seeds}, Holm TOST p {_is(row['p_tost_holm'])}{family}."
        )
    if verdict == stats.UNDECIDED:
        reason = f"; {row['why']}" if row["why"] else ""
        return (
            f"{variant} against {baseline}{at} is undecided: difference {number(row['diff'])}{of}"
            f" {interval}, {seeds}, Holm p {_is(row['p_holm'])}{reason}{more_seeds(row['more_seeds'])}."
        )
    word = "better" if verdict in (stats.BETTER, stats.BETTER_WITHIN) else "worse"
    size = abs(row["diff"])
    low, high = (row["low"], row["high"]) if row["diff"] > 0 else (-row["high"], -row["low"])
    within = (
        f", but within the margin of {margin}" if verdict in (stats.BETTER_WITHIN, stats.WORSE_WITHIN) else ""
    )
    return (
        f"{variant} is {word} than {baseline}{at} by {number(size)}{of}"
        f" [{number(low)}, {number(high)}]{within}, {seeds}, Holm p {_is(row['p_holm'])}{family}."
    )


def more_seeds(count: Any) -> str:
    """Words on how many more seeds would decide, if the true difference is the one observed."""
    if pd.isna(count):
        return ""
    return f"; about {counted(count, 'more seed')} would decide it (power {100 * POWER:g} %)"


def _verdict(row: Mapping[Any, Any]) -> str:
    if row["verdict"] == stats.UNDECIDED and not pd.isna(row["more_seeds"]):
        return f"undecided: {counted(row['more_seeds'], 'more seed')}"
    if row["verdict"] == stats.UNDECIDED and row["why"]:
        return f"undecided: {row['why']}"
    return row["verdict"] or ""


def _intervals(table: pd.DataFrame, low: str, high: str) -> list[str]:
    ends = zip(table[low].tolist(), table[high].tolist(), strict=True)
    return ["" if a != a else f"[{a:.4f}, {b:.4f}]" for a, b in ends]


def names(variant: str, baseline: str, terms: Mapping[str, str] | None = None) -> tuple[str, str, str]:
    """The differing part of each of two names, and what they share. terms: names of the levels, if the study
    gives any; a fusion is named by itself."""
    ours, theirs = (dict(_split(part) for part in name_parts(name)) for name in (variant, baseline))
    differing = [key for key in ours if ours[key] != theirs.get(key)]
    shared = ", ".join(f"{key}={value}" for key, value in ours.items() if key not in differing)
    return _called(ours, differing, terms or {}), _called(theirs, differing, terms or {}), shared


def _split(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    return key, value


def _called(name: Mapping[str, str], keys: Sequence[str], terms: Mapping[str, str]) -> str:
    given = [(key, name[key]) for key in keys if name.get(key)]
    return " ".join(terms.get(value, value if key == "fusion" else f"{key}={value}") for key, value in given)


def number(value: float) -> str:
    """The number with three digits after the point, or four if it is small, and a true minus sign."""
    text = f"{value:.{3 if abs(value) >= 0.0095 else 4}f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def signed(value: float) -> str:
    """The number with its sign, for a difference that no word tells the direction of."""
    return f"{'+' if value > 0 else ''}{number(value)}"


def _p(value: float) -> str:
    if value != value:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def _is(p: float) -> str:
    return _p(p) if p < 0.001 else f"= {_p(p)}"


def unit(metric: str) -> str:
    if metric.startswith(STEPS_TO):
        return " steps"
    unit = "nats" if metric.endswith("_loss") else UNITS.get(metric, "")
    return f" {unit}" if unit else ""
