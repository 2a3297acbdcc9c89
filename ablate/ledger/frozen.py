"""The freeze: claims/frozen.json, which says for each entry its digest and the date when it was frozen."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

from ablate.config.rules import ConfigError
from ablate.files.atomic import write_atomically
from ablate.ledger.entry import CLAIMS, Filed

FILE = "frozen.json"
Frozen = Mapping[str, Mapping[str, str]]


def read_frozen(directory: Path = CLAIMS) -> dict[str, Mapping[str, str]]:
    """By name of the entry, its digest and date. Raises ConfigError."""
    path = directory / FILE
    try:
        frozen = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return {str(name): {"digest": of["digest"], "date": of["date"]} for name, of in frozen.items()}
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ConfigError(f"{path}: not readable ({error}); restore it from the repository") from error


def freeze(filed: Filed, directory: Path = CLAIMS) -> bool:
    """Write the digest and today's date; returns whether this is new. Raises ConfigError if the entry was
    edited since it was frozen."""
    frozen = read_frozen(directory)
    if filed.name in frozen:
        require_frozen(filed, frozen)
        return False
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    frozen[filed.name] = {"digest": filed.entry.digest, "date": today}
    write_atomically(directory / FILE, json.dumps(frozen, indent=2, sort_keys=True) + "\n")
    return True


def require_frozen(filed: Filed, frozen: Frozen) -> None:
    """Raises ConfigError unless the entry is frozen as it is now."""
    name, now = filed.name, filed.entry.digest
    if name not in frozen:
        raise ConfigError(f"{name}: not frozen, so it can't be run; ablate claims freeze {filed.number}")
    if (then := frozen[name]["digest"]) != now:
        raise ConfigError(
            f"{name}: edited after it was frozen (digest {now[:12]}, frozen {then[:12]}); undo the edit, or"
            " make it a new entry with the next number"
        )
