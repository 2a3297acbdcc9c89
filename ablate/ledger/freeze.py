"""Freeze entries as a batch before they are tested, and refuse those that are not as they were frozen."""

import dataclasses
import datetime
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.files.atomic import write_atomically
from ablate.ledger.entry import CLAIMS, FROZEN, Claim, Entry, Frozen, read_claim, read_frozen


def freeze(entries: Sequence[Entry], developed: Mapping[str, int]) -> str:
    """Freeze entries as one batch: write their digests, that of the batch, and today's date. Returns the
    digest of the batch. developed: how many development rows of its arms there were before, by name. Raises
    ConfigError if one was frozen before, or if its file is not committed."""
    frozen = read_frozen()
    for entry in entries:
        if entry.name in frozen:
            require_frozen(entry, frozen)
            date = frozen[entry.name].date
            raise ConfigError(f"{entry.name}: frozen already, on {date}; run it, or leave it out")
        _require_committed(CLAIMS / f"{entry.name}.yaml")
    batch = digest(sorted(entry.digest for entry in entries))
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    frozen |= {one.name: Frozen(one.digest, today, batch, developed.get(one.name, 0)) for one in entries}
    plain = {name: dataclasses.asdict(one) for name, one in frozen.items()}
    plain = {name: {key: value for key, value in one.items() if value} for name, one in plain.items()}
    write_atomically(FROZEN, json.dumps(plain, indent=2, sort_keys=True) + "\n")
    return batch


def require_frozen(claim: Claim, frozen: Mapping[str, Frozen]) -> None:
    """Raises ConfigError unless the claim, and all others of its batch, are frozen as they are now."""
    if claim.name not in frozen:
        raise ConfigError(
            f"{claim.name}: not frozen, so it can't be run; ablate claims freeze {claim.number}"
        )
    _require_as_frozen(claim, frozen[claim.name])
    for name in batch_of(frozen, frozen[claim.name].batch):
        path = CLAIMS / f"{name}.yaml"
        if name != claim.name and not path.exists():
            raise ConfigError(f"{name}: frozen with {claim.name}, but its file is gone; restore it")
        if name != claim.name:
            _require_as_frozen(read_claim(path), frozen[name])


def batch_of(frozen: Mapping[str, Frozen], batch: str) -> list[str]:
    """The names of the entries of a batch."""
    return sorted(name for name, one in frozen.items() if batch and one.batch == batch)


def _require_as_frozen(claim: Claim, frozen: Frozen) -> None:
    if frozen.digest != claim.digest:
        raise ConfigError(
            f"{claim.name}: edited after it was frozen (digest {claim.digest[:12]}, frozen"
            f" {frozen.digest[:12]}); undo the edit, or make it a new entry with the next number"
        )


def _require_committed(path: Path) -> None:
    """Raises ConfigError unless git has the file as it is: a freeze is of what others can see."""
    command = ["git", "status", "--porcelain", "--ignored", "--untracked-files=all", "--", path.name]
    try:
        done = subprocess.run(
            command, cwd=path.parent, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        why = done.stderr.strip().splitlines()[:1] or (["not committed"] if done.stdout else [])
    except OSError as error:
        why = [f"git can't be run ({error})"]
    if why:
        raise ConfigError(f"{path}: {why[0]}; commit the entry, then freeze it")
