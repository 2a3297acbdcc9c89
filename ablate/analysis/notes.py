"""What weakens a result, one line each, and what was taken for what: remarks that go with findings.

A model that a table of n-grams beats has not learned what attention is for; a text that repeats itself, or is
read often, rewards memory. A difference between two such models is about that.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import Weighed, equal_forms
from ablate.analysis.findings import Finding
from ablate.analysis.variants import COUNTING, FACTORS, OWN_CODE, PROGRAM, USABLE, Settings, Variants, names
from ablate.config.conditions import Condition
from ablate.config.contrast import FEWEST
from ablate.config.rules import as_text
from ablate.config.schema import PARTS
from ablate.data.matches import repeats
from ablate.phrases import Note, counted, doubt, first_few, joined, lines_if, option
from ablate.store.columns import RESULTS, SEED_COLUMNS, Status, is_empty, of_role
from ablate.store.frames import as_texts, is_foreign, row_in_words
from ablate.store.record import StudyRecord

UNTRAINED = 1.02  # the loss of a model before training, at most, as a multiple of that of guessing
MOST_EPOCHS = 4


def foreseen(
    variants: Settings, compared: Sequence[int], seeds: int, records: Sequence[StudyRecord]
) -> Iterator[Note]:
    """Doubts about these variants, of which those at the indices `compared` are, over so many seeds each."""
    if variants.is_foreign:
        return
    table = variants.table.iloc[[*compared]]
    if len(table) > 1:
        few = f"only {counted(seeds, 'seed')}"
        if seeds < FEWEST:
            yield doubt(f"{few}, and a verdict takes {FEWEST}: add 'seed=range({FEWEST})'", few)
        names, forms = variants.labels, equal_forms(variants)
        first = {forms[at]: names[at] for at in reversed(compared)}  # of those that are one function
        again = [f"{names[at]} = {first[forms[at]]}" for at in compared if names[at] != first[forms[at]]]
        if again:
            count = f"{len(again)} of {len(compared)} variants ({first_few(again)})"
            line = f"{count} are the same function from the same start as another: one of each is enough"
            yield doubt(line, "copies among the variants")
        if rate := shared_rate(table, records):
            tuned = "`ablate run study=tuned` or `ablate duel` tunes each"
            line = f"all variants share one learning rate, {rate}, which was tuned for none of them"
            yield doubt(f"{line}: a difference may be how well it suits each; {tuned}", "one learning rate")
    if "overlap" in variants.table:
        yield from repeats(pd.to_numeric(variants.table["overlap"], errors="coerce").max())


def shared_rate(rows: pd.DataFrame, records: Sequence[StudyRecord] = ()) -> str:
    """The learning rate that all of these share, which was tuned for none; empty without one."""
    if is_foreign(rows) or as_texts(rows["tuned"]).any() or any(record.tuned_key for record in records):
        return ""
    rates = {*as_texts(rows["lr"])} - {""}
    return rates.pop() if len(rates) == 1 else ""


def weak_models(variants: Variants, bases: Collection[int], compared: Sequence[int]) -> Iterator[Note]:
    """Doubts about what is compared, if it is about a baseline, given by their indices, and about the text;
    none of another program, whose words for these columns mean something else."""
    if variants.is_foreign:
        return
    columns = ["epochs", "ngram_order", *COUNTING.values()]
    figures = variants.table.reindex(columns=columns).apply(pd.to_numeric, errors="coerce").astype(float)
    loss = figures[COUNTING[variants.metric]].to_numpy() if variants.metric in COUNTING else np.nan
    above = variants.mean - loss
    if any(above[at] > 0 for at in bases):
        worse = [at for at in compared if above[at] > 0]
        names = first_few([variants.titles[at] for at in worse])
        text = (
            f"worse than counting {counted(int(figures['ngram_order'].max()), 'token')} by up to"
            f" {above[worse].max():.3g} of {variants.metric}: {names}; a difference may be in what a table of"
            " n-grams fills in: --metric mix_loss says what remains; more train.steps or a larger model help"
        )
        yield doubt(text, "losses above an n-gram table's")
    if (epochs := figures["epochs"].max()) > MOST_EPOCHS:
        text = (
            f"a run reads its text {epochs:.1f} times, so differences may be of memory: fewer train.steps or"
            " a longer text (corpus) mend that"
        )
        yield doubt(text, f"a text read {epochs:.0f} times")


def chosen_rows(where: Sequence[str], rows: pd.DataFrame, metric: str) -> list[Note]:
    """A line on the rows that were asked for: a doubt if they were chosen by their seed or their result."""
    columns = [*map(str, rows.columns)]
    keys = {key for one in where for key in Condition(one, "--where").keys_in(columns)}
    by = sorted(keys & {metric, "run_id", *SEED_COLUMNS, *of_role("metric")})
    line = f"only rows where {' and '.join(where)}"
    brief = f"runs chosen by {joined(by)}" if by else ""
    return lines_if(where, Note(line, "doubt" if by else "remark", brief))


def of_studies(records: Sequence[StudyRecord], missing: list[str], done: dict[str, str]) -> Iterator[Note]:
    """What the studies lack, or did. missing: planned contrasts. done: of unfinished ones, how many runs."""
    yield from (doubt(f"no results of {name}", f"{name} without results") for name in missing)
    for record in records:
        name, key = record.name, record.tuned_key
        if few := done.get(name):
            yield doubt(f"{name}: {few} have a result", f"only {few}")
        for variant, reason in record.left_out.items():
            yield doubt(f"can't be built: {variant}: {reason}", f"{variant} can't be built")
        for arm, choice in record.chosen.items():
            value = f" {key}={choice.value}:" if choice.value else ""
            if choice.doubt:
                yield doubt(f"{arm}:{value} {choice.doubt}", f"a poorly tuned {key}")
        if record.grew:
            grew = f"{name}: grew from {' to '.join(map(str, record.grew))} seeds although there were results"
            why = "so its intervals no longer hold together; study.looks names numbers beforehand"
            yield doubt(f"{grew}, {why}", f"{name} grew after results")
        if record.looks and len(records) > 1:
            why = "what compares it with another study is judged as if its numbers of seeds had been fixed"
            yield doubt(f"{name} stops arms at its looks: {why}", "looks of several studies")


def mixed_marks(variants: Variants, contrasts: Sequence[Sequence[int]]) -> Iterator[Note]:
    """Doubts about marks that differ between the sides of contrasts, each given by its variants. Words count
    wherever the two runs of a pair differ, numbers only if each side has one of its own, and the code of
    methods where it differs between the runs of one variant, or of two with the same methods."""
    methods = [*variants.table.reindex(columns=PARTS).itertuples(index=False, name=None)]
    for column, kinds_CS in variants.marks.items():
        if column == OWN_CODE:
            versions = [len({*kinds[ran]}) for kinds, ran in zip(kinds_CS, variants.ran, strict=True)]
            of = [name for name, count in zip(variants.names, versions, strict=True) if count > 1]
            line = f"a mean of several versions of the code of {first_few(of)} ({OWN_CODE})"
            yield from lines_if(of, doubt(f"{line}: force=stale runs the older again", "versions of code"))
        is_apart, there = False, pd.Series(np.unique(kinds_CS[variants.ran]))
        of_numbers = pd.to_numeric(there, errors="coerce").notna().all()
        for one, other in ((first, b) for first, *rest in contrasts for b in rest):
            if column == OWN_CODE and methods[one] != methods[other]:
                continue
            sides = [{*kinds_CS[at][variants.ran[at]]} for at in (one, other)]
            disjoint = not sides[0] & sides[1]
            both = variants.ran[one] & variants.ran[other]
            differ = disjoint if not variants.paired else (both & (kinds_CS[one] != kinds_CS[other])).any()
            if column in PROGRAM or not of_numbers or (disjoint and max(map(len, sides)) == 1):
                is_apart |= bool(differ)
        if is_apart:
            every = first_few(sorted({*there} - {""}))
            differs = f"{column} ({every}) differs between what is compared"
            yield doubt(f"{differs}: a difference may be its doing", f"{column} differs, too")


def of_units(
    variants: Variants, contrasts: Sequence[Weighed], findings: Sequence[Finding], nothing: str, baseline: str
) -> Iterator[Note]:
    """What was taken for what: baselines, pairs, the unit, the direction of the metric. baseline: what is to
    be said of it."""
    metric, lines = variants.metric, lines_if(baseline, baseline)
    if nothing:
        yield Note(f"no verdicts: {nothing}")
    compared = {c for one in contrasts for _, c in one.sides}
    bases = [one.baseline for one in contrasts if not one.is_crossed]
    texts_C, every = variants.texts, range(len(variants.titles))
    several = [len({texts_C[c] for _, c in one.sides}) > 1 for one in contrasts if not one.is_crossed]
    if any(several):
        line = f"{counted(sum(several), 'contrast')} of runs on different texts, whose losses do not compare"
        yield doubt(f"{line}: --where takes those on one", "different texts")
    if bases and (alone := [c for c in every if c not in compared]):
        near = [c for c in bases if texts_C[c] in {texts_C[other] for other in alone}] or alone
        way_out = option("--baseline", variants.titles[max(near, key=near.count)])
        names = first_few([variants.titles[c] for c in alone], 8)
        lines.append(f"no baseline for {names}; {way_out} compares them")
    if apart := [one.variant.name for one in findings if one.pairs is None]:
        why = "there is no seed and no --pair-by" if not variants.paired else "no two seeds are in both"
        lines.append(
            f"not paired, as {why} ({first_few([*dict.fromkeys(apart)])}): the interval is Welch's, of two"
            " groups; --pair-by COL pairs runs by a column"
        )
    lines += lines_if(variants.scope, f"each variant is one run, and a unit one {variants.sampled}")
    lines += lines_if(variants.items, f"a value is the mean over {variants.items} of one run")
    if variants.higher_is_better is None:
        lines.append(f"{metric}: --higher-is-better or --lower-is-better says what is better")
    yield from (Note(line, "taken") for line in lines)


def of_values(variants: Variants) -> Iterator[Note]:
    """Doubts about losses that are exactly 0, as where a crash was logged, and, not of resources, about seeds
    of two kinds."""
    values, metric = variants.values[np.isfinite(variants.values)], variants.metric
    zeros = int((values == 0).sum())
    if zeros and not variants.higher_is_better and (values % 1).any():  # not one that counts
        crash = f"{metric} is exactly 0 in {counted(zeros, 'run')}, as where a crash is logged so"
        yield doubt(f"{crash}; --where '{metric} != 0' leaves it out", f"{metric} of exactly 0")
    minor = variants.minor(variants.values, len(variants.values))
    each = zip(variants.titles, variants.values, variants.run_ids, minor, strict=True)
    for name, values, ids, apart in each:
        groups = (values[np.isfinite(values) & ~apart], values[apart])
        if apart.any() and not abs(groups[0].mean() - groups[1].mean()) < variants.margin:
            which = ", and ".join(f"{len(of)} at {of.mean():.4g}" for of in groups)
            which += f" ({first_few(ids[apart].tolist())})" if any(ids[apart]) else ""
            one = apart.sum() == 1
            brief = f"one seed of {name} far from the others" if one else f"seeds of {name} in two groups"
            yield doubt(f"{brief}: {which}; another learning rate may have one kind only", brief)


def of_rows(rows: pd.DataFrame, metric: str = "val_loss", shown: Sequence[str] = ()) -> Iterator[Note]:
    """Doubts about rows that count less or not at all: those of another version; each run that is in no mean,
    with the reason; and runs that end above ln(vocab), the loss of guessing, and so have learned nothing. Of
    a table of another program, how many rows have no result is said where it is read. shown: further columns
    that name a run."""
    if count := int((rows["status"] == Status.STALE).sum()):
        stale = counted(count, "stale row")
        of = "by another version of the numerics or another torch"
        yield doubt(f"{stale}: {of}; force=stale makes new attempts", stale)
    unfinished = {Status.INTERRUPTED: "it was cut off", Status.RUNNING: "it is still going on"}
    lost = rows[~(rows["status"].isin(USABLE) & rows[metric].notna())]
    if foreign := is_foreign(rows):  # how many runs each variant lost that have not ended well
        gone, lost = rows[~rows["status"].isin(RESULTS)], lost[lost["status"].isin(RESULTS)]
        of = gone["error"].astype(str).groupby(names(gone, shown).to_numpy(), sort=False) if len(gone) else ()
        for name, words in of:
            counts = ", ".join(f"{count} {word}" for word, count in words.value_counts(sort=False).items())
            yield Note(f"{counts} of {name}", "left out")
    of_status = lost["status"].value_counts()
    for row in lost.to_dict("records") if len(lost) else ():
        why = unfinished.get(row["status"], f"no {metric}")
        reason = row["error"] if isinstance(row["error"], str) else why
        what = row_in_words(row, dict.fromkeys([*FACTORS, *shown, "seed"]))
        run = as_text(row["run_id"])
        which = run if is_empty(row["seed"]) and run else f"{what} ({run})" if run else what
        runs = counted(int(of_status[row["status"]]), "run")
        brief = f"{runs} {row['status']}" if row["status"] not in USABLE else f"{runs} without {metric}"
        yield doubt(f"{row['status']}: {which}: {reason}", brief)
    usable = rows[rows["status"].isin(USABLE) & (not foreign)]
    cells = usable.reindex(columns=["val_loss", "vocab", "lr"]).apply(pd.to_numeric, errors="coerce")
    cells = cells.astype(float).assign(guessing=lambda numbers: np.log(numbers["vocab"]))
    lost = cells[cells["val_loss"] > UNTRAINED * cells["guessing"]]
    if len(lost):
        worst, brief = lost.sort_values("val_loss").iloc[-1], f"{counted(len(lost), 'run')} learned nothing"
        line = (
            f"{brief}: val_loss up to {worst['val_loss']:.4g} is above ln(vocab) = {worst['guessing']:.4g},"
            f" what guessing gives; usually train.lr is too high (here {worst['lr']:g})"
        )
        yield doubt(line, brief)


def missing_units(variants: Variants) -> list[Note]:
    """A line on the variants without a unit that another variant has."""
    if not variants.paired or (len(variants.ran) > 1 and variants.ran.sum(0).max() < 2):
        return []
    columns = ["seed"] if "seed" in variants.seeds else [*map(str, variants.seeds)]
    units = np.array([", ".join(one) for one in variants.seeds[columns].itertuples(index=False)])
    there = variants.run_ids != ""
    there = there if there.any() else variants.ran | variants.copied | ~np.isnan(variants.fixed)[:, None]
    each = [
        f"{name} has no run of {', '.join(columns)} {', '.join(units[~has])}"
        for name, has in zip(variants.titles, there, strict=True)
        if not has.all()
    ]
    return lines_if(each, doubt(f"missing: {'; '.join(each)}", "missing seeds"))
