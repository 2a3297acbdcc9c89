"""docs/ledger.md, made from the entries, their freeze and their results; and what in these does not fit."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ablate.analysis.compare import ALPHA
from ablate.config.overrides import as_line
from ablate.config.rules import ConfigError
from ablate.ledger.entry import (
    Claim,
    Entry,
    Frozen,
    Prediction,
    find_entry,
    read_claims,
    read_entries,
    read_frozen,
)
from ablate.ledger.freeze import batch_of, require_frozen
from ablate.ledger.judge import RESULTS, Judged, Outcome, Verdict, judge, judged, read_kept
from ablate.phrases import counted, lines_if

PAGE = Path("docs/ledger.md")
TABLE = "| | claim | verdict | seeds |\n| --- | --- | --- | --- |"
OUTCOMES = {Verdict.REPLICATED: "holds", Verdict.NOT: "fails", Verdict.UNDECIDED: "undecided"}


def page() -> str:
    """The text of the page: the head that it has, which a person writes, and what follows from the entries;
    empty until one is frozen. Raises ConfigError."""
    entries, frozen = read_entries(), read_frozen()
    if not any(entry.name in frozen for entry in entries):
        return ""
    head = PAGE.read_text("utf-8").partition(TABLE)[0] if PAGE.exists() else "# The ledger\n\n"
    verdicts = {entry.name: judged(entry) for entry in entries}
    lines, sections = [], list[str]()
    for entry in entries:
        found = verdicts[entry.name]
        seeds, verdict = found.n if found else "", state(entry, found, frozen)
        lines.append(f"| [{entry.number}](#{entry.name}) | {entry.sentence} | {verdict} | {seeds} |")
        sections += ["", *_section(entry, found, frozen)]
    batches = [part for line in _batches(verdicts, frozen) for part in ("", line)]
    return head + "\n".join([TABLE, *lines, *batches, *sections]) + "\n"


def state(claim: Claim, found: Judged | None, frozen: Mapping[str, Frozen]) -> str:
    """The verdict in words, or why there is none. frozen: all of frozen.json."""
    if claim.name not in frozen:
        return "not frozen"
    if frozen[claim.name].digest != claim.digest:
        return "edited after it was frozen"
    if frozen[claim.name].withdrawn:
        return f"withdrawn: {frozen[claim.name].withdrawn}"
    return str(found.verdict) if found else "frozen, not run yet"


def expectation(one: Prediction, margin: float) -> str:
    """A prediction in words. margin: of its entry."""
    bound = f"{one.bound or margin:g} nats"
    words = {
        "below": f"is below 0: its whole interval is, and not all of it above −{margin:g} nats",
        "above": f"is above 0: its whole interval is, and not all of it below {margin:g} nats",
        "within": f"is within ± {bound}",
        "at_most": f"is at most {bound}",
        "at_least": f"is at least −{bound}",
    }[one.expect]
    if one.published is not None:
        words += f"; its middle is at least {100 * one.share:g} % of the published {one.published:+.3f}"
    return f"`{one.contrast}` {words}"


def faults() -> list[str]:
    """A line for each thing in the ledger that does not fit. Raises ConfigError if an entry can't be read."""
    claims, frozen = read_claims(), read_frozen()
    names = {claim.name for claim in claims}
    wrong = [f"{name}: frozen, but its file is gone; restore it" for name in sorted(frozen.keys() - names)]
    wrong += [line for claim in claims for line in _of_claim(claim, frozen)]
    text = "" if wrong else page()
    if text and (not PAGE.exists() or PAGE.read_text("utf-8") != text):
        wrong.append(f"{PAGE}: not what the files give; ablate claims page writes it")
    return wrong


def faults_of_runs() -> list[str]:
    """A line for each entry whose rows are not of the runs that it asks for, as composed anew. The ledger has
    to be without other faults."""
    from ablate.ledger.testing import run_ids  # it loads torch

    wrong = []
    for entry in read_entries():
        if not (RESULTS / entry.name).exists():
            continue
        try:
            rows, record = read_kept(RESULTS / entry.name)
            if other := run_ids(entry, rows) ^ {*record.runs}:
                wrong.append(f"{entry.name}: {len(other)} of its runs are not those that it asks for")
        except ConfigError as error:
            wrong.append(f"{entry.name}: {error}")
    return wrong


def _section(entry: Entry, found: Judged | None, frozen: Mapping[str, Frozen]) -> list[str]:
    source = entry.source
    arms = ", ".join(f"{arm} (`{as_line(keys)}`)" for arm, keys in entry.arms.items())
    lines = [
        *(f"## {entry.name}", "", f"> {entry.sentence}", ""),
        f"Source: [{source.cite}]({source.url}); {source.read}. Published: {entry.published}.",
        "",
        *(f"- {expectation(one, entry.margin)}" for one in entry.predictions),
        "",
        f"Arms, at `{as_line(entry.settings)}`: {arms}.",
        "",
    ]
    lines += [entry.note, ""] if entry.note else []
    if found:
        lines += [
            "| contrast | difference in nats | paired seeds | prediction |",
            "| --- | --- | --- | --- |",
        ]
        lines += [*map(_outcome, found.predictions), "", _closing(found), ""]
    else:
        lines += [f"{state(entry, None, frozen).capitalize()}.", ""]
    if of := frozen.get(entry.name):
        older = counted(of.developed, "development row")
        lines.append(
            f"Frozen {of.date} in batch `{of.batch[:16]}`, digest `{of.digest[:16]}`."
            f" `ablate claims run {entry.number}`"
            + "".join(lines_if(of.developed, f" Older than the freeze: {older} of its arms."))
        )
    return lines


def _outcome(one: Outcome) -> str:
    interval = f"{one.diff:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"
    return f"| `{one.contrast}` | {interval} | {one.n} | {OUTCOMES[one.verdict]} |"


def _closing(found: Judged) -> str:
    words = f"**{str(found.verdict).capitalize()}.** Its intervals hold together with {100 * (1 - ALPHA):g} %"
    if found.diverged:
        words += f"; runs of {', '.join(found.diverged)} diverged, which leaves it undecided"
    return f"{words}."


def _batches(verdicts: Mapping[str, Judged | None], frozen: Mapping[str, Frozen]) -> Iterator[str]:
    """A line for each batch with verdicts: how many of them also hold if all of the batch hold together.
    verdicts: by name."""
    for batch in dict.fromkeys(one.batch for one in frozen.values() if one.batch):
        names = batch_of(frozen, batch)
        decided = {
            name: found.verdict
            for name in names
            if (found := verdicts.get(name)) and found.verdict != Verdict.UNDECIDED
        }
        together = 0
        for name, verdict in decided.items():
            kept = read_kept(RESULTS / name)
            together += judge(find_entry(name), *kept, alpha=ALPHA / len(names)).verdict == verdict
        if decided:
            yield (
                f"Batch `{batch[:16]}`, {counted(len(names), 'claim')}: of"
                f" {counted(len(decided), 'verdict')}, each of which holds with 95 %, {together} would hold"
                " at 95 % over the whole batch."
            )


def _of_claim(claim: Claim, frozen: Mapping[str, Frozen]) -> Iterator[str]:
    try:
        if claim.name in frozen or (RESULTS / claim.name).exists():
            require_frozen(claim, frozen)
        if isinstance(claim, Entry):
            judged(claim)
    except ConfigError as error:
        yield str(error)
