"""What to do next about an answer: at most three reasons, each with the command to type. Loads no torch."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ablate.analysis.notes import shared_rate
from ablate.analysis.variants import FACTORS
from ablate.config.conditions import column_for, unquoted
from ablate.config.contrast import FEWEST
from ablate.config.rules import as_level, as_value
from ablate.phrases import advised, counted, lines_if
from ablate.reporting.words import contrast_in_words
from ablate.store.columns import Status
from ablate.store.record import NO_STUDY, StudyRecord

if TYPE_CHECKING:
    from ablate.analysis.compare import Comparison

MOST = 3
MOST_SEEDS = 1_000  # that anybody would train
DEFAULTS = {"corpus": "docs", "train": "default"}  # of a plain grid, as in configs/config.yaml


@dataclass(frozen=True)
class Next:
    """reason: why, without a full stop. command: empty if not known."""

    reason: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.reason}{f': `{self.command}`' if self.command else ''}."


def next_steps(rows: pd.DataFrame, records: Sequence[StudyRecord], comparison: "Comparison") -> list[Next]:
    """What matters first comes first. rows: those that count. records: of their studies."""
    return [*itertools.islice(_steps(rows, records, comparison), MOST)]


def _steps(rows: pd.DataFrame, records: Sequence[StudyRecord], comparison: "Comparison") -> Iterator[Next]:
    record = records[0] if len(records) == 1 else NO_STUDY
    for one in records:
        if done := comparison.arrays.unfinished.get(one.name):
            command = "" if one.is_copy else advised(one.words)  # which lacks the runs that were cut off
            on = ", and the same command goes on from there" if command else ""
            yield Next(f"{'' if one is record else f'{one.name}: '}{done} have a result{on}", command)
    if len(comparison.variants) > 1 and (rate := shared_rate(rows)):
        why = f"All variants share one learning rate, {rate}, which was tuned for none"
        yield Next(why, as_study(record, comparison, "tuned", "tuned"))
    if not comparison.tested:
        if len(comparison.variants) > 1:
            yield Next(f"A verdict takes {FEWEST} seeds", with_seeds(record, FEWEST))
        return
    tested = comparison.tested
    undecided, open_ = [one for one in tested if one.is_undecided], list[Next]()
    if any((one.look or 0) < (one.last_look or 0) for one in undecided):
        command = "" if record.is_copy else advised(record.words)
        yield Next("The study goes on with what is undecided", command)
    elif undecided and not comparison.arrays.unfinished:
        yield from (open_ := [*_to_decide(rows, record, comparison)])
    params = comparison.summary.set_index("variant")["params"].astype(float)
    pairs = [sorted([params[one.variant.name], params[one.baseline.name]]) for one in tested]
    unequal = [size for small, large in pairs if large > 1.01 * small for size in (small, large)]
    if unequal and (rows["match"] == "none").any():
        sizes = f"Variants differ in size, {min(unequal):,.0f} to {max(unequal):,.0f} parameters"
        yield Next(f"{sizes}: a difference may be one of size", changed(record, "matched", "match=params"))
    is_lead = len(undecided) < len(tested) and not any(one.is_planned for one in comparison.findings)
    if is_lead and record.typed and not any(one.command for one in open_):
        fresh = with_fresh_seeds(record, comparison, len(record.reporting_seeds))
        yield Next("No contrast was named beforehand: ask again, with fresh seeds", fresh)


def _to_decide(rows: pd.DataFrame, record: StudyRecord, comparison: "Comparison") -> Iterator[Next]:
    """What would decide the contrasts that are undecided, though no run is missing; nothing where runs that
    diverged are the reason. What would be blamed afterwards is not advised: a study, and a sweep that had
    enough seeds for a verdict, is asked again with fresh ones, as are runs that can't be added to."""
    tested, unit = comparison.tested, comparison.tested[0].unit
    counts = {one.more_seeds: one for one in tested if one.more_seeds}
    needed = max(counts, key=lambda count: (count <= MOST_SEEDS, count), default=0)
    most = max(one.seeds for one in tested)
    is_fresh = bool(
        record.metric or record.is_copy or most >= FEWEST or (rows["status"] == Status.STALE).any()
    )
    if record.looks:
        why = "Undecided at the last look: ask again, with fresh seeds"
        yield Next(why, with_fresh_seeds(record, comparison, len(record.looks.seeds)))
    elif needed:
        which = contrast_in_words(counts[needed], tested, record.answer)
        if needed > MOST_SEEDS:
            equal = "; --margin, the least difference that matters, may call it equivalent"
            why = f"{MOST_SEEDS:,} {unit}s would not decide {which}, if it is as small as it looks"
            yield Next(why if comparison.margin > 0 else why + equal)
            return
        n = most + int(needed)
        count = counted(n, unit) if is_fresh else counted(n - most, f"more {unit}")
        command = with_fresh_seeds(record, comparison, n) if is_fresh else with_seeds(record, n)
        how = f": ask again with fresh {unit}s" if is_fresh else ""
        yield Next(f"About {count} would decide {which}, if it is as large as it looks{how}", command)


def repeated(record: StudyRecord) -> str:
    """The command of a study, with all levels and seeds that it has grown to; empty if that is not known."""
    if record.command:
        return advised(record.words)
    if not any(word.startswith("seed=") for word in record.typed):  # the study has its own
        return _with_levels(record, "")
    seeds = record.looks.seeds if record.looks else record.reporting_seeds
    return _with_levels(record, f"seed={','.join(map(str, seeds))}")


def changed(record: StudyRecord, end: str, setting: str) -> str:
    """With another setting, under a name that ends so."""
    if not record.typed:
        return ""
    words = _without(record.typed, [setting.partition("=")[0], "name"])
    return advised(["ablate", "run", *words, setting, f"name={as_value(f'{record.name}-{end}')}"])


def with_seeds(record: StudyRecord, count: int) -> str:
    """With `count` seeds."""
    first = min(record.reporting_seeds, default=0)
    return _with_levels(record, f"seed=range({first},{first + count})")


def with_fresh_seeds(record: StudyRecord, comparison: "Comparison", count: int) -> str:
    """Another study, with so many seeds that this one has not seen."""
    if (words := record.words)[1:2] == ["duel"]:  # which has seeds of its own for each number
        return advised([*itertools.takewhile(lambda word: word != "--seeds", words), "--seeds", str(count)])
    first = max(record.seeds, default=0) + 1
    seeds = f"seed=range({first},{first + count})"
    is_planned, study = comparison.tested[0].is_planned, record.study or "fusion"
    named = "" if is_planned else as_study(record, comparison, study, "again", seeds)
    return named or changed(record, "again", seeds)


def as_study(record: StudyRecord, comparison: "Comparison", study: str, end: str, *more: str) -> str:
    """The same grid as a study that names its contrasts beforehand: fusion or, with a learning rate for each
    variant, tuned; also empty if it has named arms, configs of the user's own, or compares nothing but
    texts."""
    asked = _asked(record, comparison)
    if not (record.typed and asked) or record.arms or record.config_dir:
        return ""
    given = {} if record.study else dict(DEFAULTS)  # studies have a text and a training of their own
    given |= {key: as_value(record.fixed[key]) for key in FACTORS if key in record.fixed}
    given |= {key: ",".join(levels) for key, levels in record.factors.items()}
    beside = ["name", "seed", "study", *lines_if(study == "tuned", "train.lr")]
    typed = [word for word in _without(record.typed, beside) if word != "-m"]
    keys = {word.partition("=")[0] for word in typed}
    words = [*(f"{key}={value}" for key, value in given.items() if key not in keys), *typed]
    name = f"name={as_value(f'{record.name}-{end}')}"
    return advised(["ablate", "run", f"study={study}", f"study.primary=[{asked}]", *words, *more, name])


def _asked(record: StudyRecord, comparison: "Comparison") -> str:
    """What is compared, as a study declares it: the factors in which all baselines have one level, with that
    level, and the one between whose levels differences are compared. Empty without a factor but the text."""
    findings, baseline, within = comparison.tested or comparison.findings, dict[str, str](), ""
    for key, levels in record.factors.items():
        bases = set[str]()
        for one in findings:
            if (column := column_for(key)) in (one.variant.difference or one.apart):
                bases.add(one.baseline.levels[column].rpartition(" - ")[2])
            elif column in one.apart:
                within = f",within:{key}"
        if same := [level for level in levels if {as_level(unquoted(level))} == bases]:
            baseline[key] = same[0]
    named = ",".join(f"{key}:{level}" for key, level in baseline.items())
    return f"{{baseline:{{{named}}}{within}}}" if baseline.keys() - {"corpus"} else ""


def _with_levels(record: StudyRecord, seeds: str) -> str:
    """What was typed, with all levels of the factors; seeds: as an override, empty for those of the study."""
    if not record.typed:
        return ""
    levels = {key: f"{key}={','.join(levels)}" for key, levels in record.factors.items()}
    typed = [levels.get(word.partition("=")[0], word) for word in _without(record.typed, ["seed"])]
    return advised(["ablate", "run", *typed, *lines_if(seeds, seeds)])


def _without(words: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The words of a command without those that set these keys, or what is below, or workers of a machine."""
    gone = tuple(f"{key}{end}" for key in ("hydra.launcher.workers", *keys) for end in ("=", "."))
    return [word for word in words if not word.startswith(gone)]
