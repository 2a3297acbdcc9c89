"""Compare variants with their baselines: families of comparisons with verdicts, as one table.

It reads no files, prints nothing, and loads no torch.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import pandas as pd

from ablate.analysis import at_looks, controls, notes, standing, stats
from ablate.analysis.contrasts import EQUAL, Pair, differing, family_pairs, no_verdicts
from ablate.analysis.effects import projection_and_heads
from ablate.analysis.frames import of_others
from ablate.analysis.ladder import LadderResult, climbed
from ablate.analysis.looks import Decisions
from ablate.analysis.loose import require_equal_settings
from ablate.analysis.processors import kinds_of_pairs
from ablate.analysis.question import Question, direction, margin_of, metric_of, varied
from ablate.analysis.select import as_texts, select, with_options
from ablate.analysis.variants import Variants, collect
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import Doubt, counted, lines_if
from ablate.store.columns import column_named
from ablate.store.record import StudyRecord

ALPHA, POWER = 0.05, 0.8
BASELINE, NO_BASELINE = "baseline", "no baseline"
NO_TEST = ": no test"  # how a reason ends for which a contrast could not be tested
NEVER = "no number of seeds would decide it"
NUMBERS = (
    *("pairs", "n_baseline", "diff", "low", "high", "p", "p_holm", "low_marginal", "high_marginal"),
    *("sd_diff", "p_tost", "p_tost_holm", "p_sign", "p_sign_floor", "d_z", "ratio", "below", "skew"),
    *("correlation", "p_welch"),
    *("more_seeds", "level", "share", *controls.CONTROLLED, "look", "last_look", "overstated"),
)
OF_ROWS = ("n", "mean", "sd", "best", "family", "baseline", "verdict", "why", "differs")
WHOLE = ("pairs", "n_baseline", "more_seeds", "look", "last_look")


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. table: one row per variant and family: variant, the `shown` columns,
    params, n, diverged, mean, sd, best, family, baseline, then the statistics of variant − baseline
    (NUMBERS; without pairs n_baseline is how many values the baseline has), verdict, why, differs,
    same_class (whether both can represent the same functions), metric, margin. share is the difference as
    a share of what attention is worth to the baseline, CONTROLLED what remains of it under the study's
    placebo (controls.py). look, last_look: of a study with looks, the numbers of seeds at which the
    contrast stands, and at most; overstated: by what share such a difference comes out too large.
    placebo: its overrides. runs: for each variant the run_id of one of its runs. notes: remarks about the
    rows, one line each. interaction: effects.projection_and_heads, if a study asks about the output
    projection; else empty. rows: those that were compared. facts: whether their text and their budget can
    carry a verdict. ladder: the results of a ladder, if they are of one. higher_is_better: None if that
    is not known of the metric; margin: NaN if it has none.
    """

    rows: pd.DataFrame
    table: pd.DataFrame
    shown: list[str]
    metric: str
    higher_is_better: bool | None
    margin: float
    alpha: float
    runs: Mapping[str, str]
    notes: list[str]
    interaction: pd.DataFrame
    placebo: Mapping[str, str]
    facts: list[standing.Fact]
    ladder: LadderResult | None

    def family(self, name: str) -> pd.DataFrame:
        return self.table[self.table["family"] == name]

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(self.table["family"]))

    @property
    def identical(self) -> pd.DataFrame:
        """The contrasts of two variants that agree to the last digit, each once."""
        return self.table[self.table["verdict"] == stats.IDENTICAL].drop_duplicates(["variant", "baseline"])

    @property
    def tested(self) -> pd.DataFrame:
        """The contrasts that an answer is about: the primary ones that were tested or, without any, all."""
        tested = self.table[self.table["p"].notna()]
        primary = tested[tested["family"] == "primary"]
        return tested if primary.empty else primary


def compare(
    rows: pd.DataFrame,
    *,
    margin: float | None = None,
    alpha: float = ALPHA,
    records: Sequence[StudyRecord] = (),
    **asked: Unpack[Question],
) -> Comparison:
    """Compare each variant with the one that has the values of `baseline` and is otherwise equal.

    baseline: by default fusion=concat. records: of the studies; their `primary`, `metric` and `margin` are
    used unless the arguments give others. margin: in the metric's unit. The primary contrasts and all others
    are two families, each corrected separately. Raises ConfigError, Incomparable.
    """
    baseline = asked.get("baseline")
    rows, left_out = reported(rows, asked.get("where", ()))
    variants, why = _variants(rows, records, asked, [*(baseline or ())])
    metric = variants.metric
    if clash := [name for name in variants.shown if name in (*NUMBERS, *OF_ROWS)]:
        raise ConfigError(f"--by {clash[0]}: the answer has a column of this name; give yours another")
    margin = margin_of(records, margin, metric)
    contrasts = [contrast for record in records for contrast in record.primary]
    if baseline is not None:  # an argument takes precedence over the study
        contrasts = [contrast for contrast in contrasts if contrast.has_baseline(baseline)]
    if baseline is None and set(variants.table["fusion"]) > {STANDARD_FUSION}:
        baseline = {"fusion": STANDARD_FUSION}
    at_baseline = any(record.reports_at_baseline for record in records)
    pairs, missing = family_pairs(variants, contrasts, baseline, at_baseline=at_baseline)
    if any(record.metric not in (None, metric) for record in records):  # not declared for this metric
        pairs["exploratory"] = [*pairs.pop("primary"), *pairs["exploratory"]]
    placebos = [record.placebo for record in records if record.placebo]
    alike = all(one == placebos[0] for one in placebos)
    placebo = placebos[0] if placebos and alike else {}
    bases = {base for those in pairs.values() for _, base in those}
    every, now = variants, at_looks.decisions(variants, records, pairs, margin, alpha)
    variants = at_looks.that_count(variants, now)
    references = controls.share_references(variants, sorted(bases))
    known = [*standing.facts(variants, sorted(bases))]
    alone = sorted(
        {*range(len(variants.table))} - bases - {one for those in pairs.values() for one, _ in those}
    )
    families = []
    for name, those in pairs.items():
        rest = alone if name == "exploratory" else []
        if those or rest:
            compared = _paired(variants, name, those, margin, alpha, now.get(name))
            remains = controls.controlled(variants, those, placebo, compared["level"].to_numpy())
            compared = compared.join(remains)
            compared["share"] = controls.shares(compared["diff"], those, references)
            families.append(_family(variants, name, those, rest, compared))
    table = pd.concat(families, ignore_index=True).assign(metric=metric, margin=margin)
    is_paired = any(pairs.values())
    if not is_paired and baseline is None:
        table["verdict"] = None
    asks = any("out_proj" in contrast.baseline for contrast in contrasts)
    interaction = projection_and_heads(variants, placebo, alpha=alpha) if asks else pd.DataFrame()
    measured = column_named(metric).role == "measured"
    ladders = [record for record in records if record.rungs]
    lines = [
        *why,
        *left_out,
        *([] if ladders else missing),  # what lies above is not there yet
        *([] if ladders else notes.budgets(variants)),
        *controls.unknown_forms(variants),
        *kinds_of_pairs(every, sorted({*itertools.chain(*pairs.values())}), mixed=asked.get("mixed", False)),
        *notes.foreign_columns(rows, variants),
        *lines_if(
            measured, f"{metric} was measured with whatever else ran then; --cost times variants side by side"
        ),
        *lines_if(not alike, "the placebos of these studies differ: compare them apart to see what remains"),
        *([] if is_paired else [no_verdicts(variants, baseline)]),
        *(line for record in records for line in notes.doubts(record)),
        *notes.unpaired(table, variants),
        *notes.doubtful_values(variants),
        *([] if measured else notes.bimodal_seeds(variants)),
        *notes.stale(rows),
        *notes.weaknesses(table),
        *notes.unusable(rows, metric, variants.shown),
        *notes.worse_than_guessing(rows),
        *([] if now or ladders else notes.missing_seeds(rows, variants.shown)),
        *at_looks.notes(every, variants, now, records),
        *([] if variants.of_others else controls.parametrization(table, placebo)),
        *controls.on_share_references(variants, references),
        *(Doubt(fact.words, fact.brief) for fact in known if fact.is_doubt),
    ]
    runs = dict(zip(variants.names, variants.table["run_id"], strict=True))
    ladder = climbed(rows, table, runs, metric, records[0]) if len(records) == 1 else None
    what = rows, table, variants.shown, metric, variants.higher_is_better, margin, alpha
    return Comparison(*what, runs, lines, interaction, placebo, known, ladder)


def _variants(
    rows: pd.DataFrame, records: Sequence[StudyRecord], asked: Question, compared: Sequence[str] = ()
) -> tuple[Variants, list[str]]:
    """The variants that are asked about, and lines on what was left open. compared: keys beside --by in which
    loose runs may differ."""
    by, pair_by, mixed = asked.get("by", ()), asked.get("pair_by", ()), asked.get("mixed", False)
    if not mixed:
        require_equal_settings(rows, records, [*by, *compared])
    by, lines = varied(rows, by, [*pair_by, asked.get("metric")])
    metric, why = metric_of(rows, records, asked.get("metric"), [*by, *pair_by])
    better = direction(metric, asked.get("higher_is_better"))
    variants = collect(rows, metric, by=by, pair_by=pair_by, mixed=mixed)
    return replace(variants, higher_is_better=better), [*why, *lines]


def reported(rows: pd.DataFrame, where: Sequence[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """The rows to report on that meet `where`, with_options, and lines on those left out: rows of development
    seeds, which were used to choose values, and rows at values that the study has since replaced. Raises
    ConfigError."""
    if "phase" not in rows or rows.empty or of_others(rows):
        return select(with_options(rows), where), []
    kept = rows["phase"].isna() | rows["phase"].isin(["", "report"])
    if not kept.any():
        raise ConfigError("every row is of development seeds (phase); there is nothing to report on yet")
    left = int((~kept).sum())
    lines = lines_if(left, f"left out: {counted(left, 'row')} of development seeds (phase)")
    rows = rows[kept]
    if "role" in rows and "tuned" in rows:
        replaced = as_texts(rows["tuned"]).ne("") & as_texts(rows["role"]).eq("")
        if old := int(replaced.sum()):
            lines.append(f"left out: {counted(old, 'row')} at values that are no longer an arm's own (role)")
        rows = rows[~replaced]
    return select(with_options(rows), where), lines


def _family(
    variants: Variants, name: str, pairs: Sequence[Pair], alone: Sequence[int], compared: pd.DataFrame
) -> pd.DataFrame:
    """The rows of one family, best first: baselines, variants without one (alone), and compared variants.
    compared: a row per pair."""
    bases = sorted({base for _, base in pairs})
    summary = variants.summary()
    table = summary.iloc[[*bases, *alone, *(variant for variant, _ in pairs)]].reset_index(drop=True)
    compared.index += len(bases) + len(alone)
    table = table.join(compared).assign(family=name)
    table["same_class"] = table["same_class"].eq(True)
    for column in ("baseline", "why"):
        table[column] = table[column].astype(object).where(table[column].notna(), None)
    table = table.astype(dict.fromkeys(WHOLE, "Int64"))
    table["verdict"] = [*[BASELINE] * len(bases), *[NO_BASELINE] * len(alone), *compared["verdict"]]
    ascending = not variants.higher_is_better
    table = table.sort_values(["mean", "variant"], ascending=[ascending, True], kind="stable")
    front = [*summary.columns, "family", "baseline", *NUMBERS, "verdict", "why", "differs", "same_class"]
    return table[front]


def counted_variants(variants: Variants, record: StudyRecord) -> Variants:
    """The variants of a study without the results that no look counts."""
    if record.looks is None:
        return variants
    pairs, _ = family_pairs(variants, record.primary, None, at_baseline=record.reports_at_baseline)
    margin = margin_of([record], None, variants.metric)
    return at_looks.that_count(variants, at_looks.decisions(variants, [record], pairs, margin, ALPHA))


def _paired(
    variants: Variants,
    family: str,
    pairs: Sequence[Pair],
    margin: float,
    alpha: float,
    now: Decisions | None,
) -> pd.DataFrame:
    """One row per pair: statistics of NUMBERS, verdict, why, baseline, differs, same_class. now: of a study
    with looks, what these have decided; the first seeds count then, up to the look of each pair."""
    ones, bases = np.array(pairs, int).reshape(-1, 2).T
    equal = controls.equal_variants(variants, pairs)
    same = [None if one is None else variants.names[one] for one in equal]
    is_equal = np.array([one is not None for one in same], bool)
    in_family = ~is_equal & (not variants.crossed)
    counts_KS, share = np.ones((len(pairs), len(variants.seeds)), bool), np.ones(len(pairs))
    contrasts, least_sd = 0, np.zeros(len(pairs))
    if now:
        contrasts = now.looks.contrasts
        counts_KS = at_looks.counted_seeds(variants, now.looks, now.seeds)
        share = np.where(now.seeds, now.share, 1.0)
        least_sd = np.nan_to_num(now.scatter)
    values = [np.where(counts_KS, variants.values[side], np.nan) for side in (ones, bases)]
    more = np.subtract(*((variants.diverged[side] & counts_KS).sum(1) for side in (ones, bases)))
    # Two groups, where there are values but no two pairs.
    n, n_base, pairs_K = (np.isfinite(x).sum(1) for x in (*values, np.subtract(*values)))
    apart = (n >= 2) & (n_base >= 2) & ((pairs_K < 2) | (not variants.paired)) & (now is None)
    is_identical = stats.identical(*(np.where(apart[:, None], np.sort(x), x) for x in values))  # in any order
    unlike_KS = (variants.learned[ones] != variants.learned[bases]) & np.isfinite(np.subtract(*values))
    is_identical &= ~is_equal & (more == 0) & (apart | ~unlike_KS.any(1))
    in_family &= ~is_identical
    result = stats.paired(
        *values,
        margin=margin,
        alpha=alpha,
        higher_is_better=variants.higher_is_better,
        apart=apart,
        in_family=in_family,
        share=share,
        least_sd=least_sd,
        contrasts=contrasts,
    )
    in_family = result.pop("family")
    table = pd.DataFrame(result).rename(columns={"n": "pairs", "sd": "sd_diff"})
    table["n_baseline"] = np.where(apart, n_base, np.nan)
    difference_KS = np.where(apart[:, None], np.nan, np.subtract(*values))
    table["p_sign"], table["p_sign_floor"] = stats.sign_flip(
        np.where(in_family[:, None], difference_KS, np.nan)
    )
    with np.errstate(over="ignore"):  # a difference of hundreds of nats
        table["ratio"] = np.exp(table["diff"]) if column_named(variants.metric).unit == "nats" else np.nan
    table["baseline"] = [variants.names[base] for base in bases]
    table["differs"] = differing(variants, pairs)
    table["same_class"] = controls.same_classes(variants, pairs)
    by_interval = table["verdict"].to_numpy()
    table["verdict"] = np.where(is_equal, EQUAL, stats.withheld(by_interval, more))
    lost = (table["verdict"] != by_interval) & ~is_equal
    table["verdict"] = table["verdict"].mask(is_identical, stats.IDENTICAL)
    open_ = (table["verdict"] == stats.UNDECIDED) & in_family & ~lost & (now is None)
    table[["look", "last_look", "overstated", "more_seeds"]] = np.nan
    if now:
        table["look"], table["last_look"] = now.seeds, now.looks.at[-1]
        early_K = (table["look"] < table["last_look"]) & (family == "primary")
        decides = table["verdict"].isin(stats.CLAIMS) & early_K
        table["overstated"] = [
            now.looks.overstated(row["diff"], row["sd_diff"], row["look"]) if early else np.nan
            for row, early in zip(table.to_dict("records"), decides, strict=True)
        ]
    if open_.any():
        needed = stats.seeds_to_claim(
            table["diff"][open_],
            table["sd_diff"][open_],
            1 - table["level"][open_],
            power=POWER,
            margin=margin,
        )
        has = np.where(apart, np.minimum(n, n_base), table["pairs"])[open_]
        table.loc[open_, "more_seeds"] = np.maximum(needed - has, 1)
    never = np.isinf(table["more_seeds"])
    table["more_seeds"] = table["more_seeds"].mask(never)
    table["why"] = [
        _why(variants, row, more if lost else 0, equal, alpha)
        for row, lost, equal, more in zip(table.to_dict("records"), lost, same, more, strict=True)
    ]
    table["why"] = table["why"].mask(never, NEVER)
    return table


def _why(
    variants: Variants, row: Mapping[Any, Any], more: int, equal: str | None, alpha: float
) -> str | None:
    """Why there is no verdict, in a few words; None if there is one or nothing to add. more: on how many more
    seeds than its baseline the variant diverged; negative the other way round, 0 if that played no part."""
    if row["verdict"] == stats.IDENTICAL:
        return _identical(variants, row)
    if equal is not None:  # at one head a learned weight changes the training, but not the function
        return f"the same function as {equal}"
    if more:
        one, other = ("it", "its baseline") if more > 0 else ("its baseline", "it")
        return f"{one} diverged on {counted(abs(more), 'more seed')} than {other}"
    if row["verdict"] != stats.UNDECIDED:
        return None
    if row["look"] == 0:
        return "its first look is not complete"
    if row["n_baseline"] != row["n_baseline"] and row["pairs"] < 2:
        return "one paired seed" if row["pairs"] else "no paired seed"
    if variants.crossed:
        return f"its seeds are crossed, so they are not independent{NO_TEST}"
    if np.isnan(row["p"]):
        where = "at every seed" if variants.paired else "in every run"
        return f"{'the same' if row['diff'] else 'no'} difference {where}{NO_TEST}"
    if row["p_holm"] < alpha:
        return "Holm's p alone would decide; the simultaneous interval holds 0"
    return None


def _identical(variants: Variants, row: Mapping[Any, Any]) -> str:
    """The words for two variants that agree to the last digit."""
    runs = f"at all {row['pairs']} seeds" if row["pairs"] else "in every run"
    what = " ".join(row["differs"].split())
    perhaps = "; perhaps the option never reached the program" if variants.of_others else ""
    return f"identical {runs}: {what} {'change' if ' ' in what else 'changes'} nothing here{perhaps}"
