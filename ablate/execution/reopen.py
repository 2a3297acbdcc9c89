"""The door to a stored run. Whoever opens one again uses what is here now: its methods, the tokenizer, the
text, this program. Each is held against the row that the run began with; what is not the same is refused."""

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.data import tokenizers
from ablate.data.corpus import Corpus, open_corpus
from ablate.data.tokenizers import Tokenizer
from ablate.execution.run import PlacedRun, Run, prepare
from ablate.store import lease, provenance
from ablate.store.columns import Row
from ablate.store.run_files import (
    Damaged,
    checkpoints,
    read_config,
    read_finished,
    read_started,
    unreadable,
)
from ablate.store.store import Store


@dataclass(frozen=True)
class Stored:
    """A finished run, opened again: it gives what the run was made with. Methods raise ConfigError."""

    directory: Path
    row: Row
    config: RunConfig
    tokenizer: Tokenizer

    def corpus(self) -> Corpus:
        try:
            corpus = open_corpus(self.config.corpus, self.config.model.two_texts, self.row["corpus_sha256"])
        except ConfigError as error:
            raise ConfigError(f"{self.directory.name}: {error}") from error
        require_same(self.directory, self.row, self.directory.name, tokenizer=corpus.tokenizer)
        return corpus

    def prepared(self, device: str) -> PlacedRun:
        self.corpus()  # first, as another text may not suit the config at all
        return prepare(replace(self.config, device=device))


def reopened(directory: Path, *, code: bool = False) -> Stored:
    """The finished run in this directory, whose text is not opened yet. code: whether what it computed is
    computed again, for which this program has to be the one that made it. Raises ConfigError."""
    row, tokenizer = read_finished(directory, thorough=True), tokenizers.load(directory / "tokenizer.json")
    changed = provenance.changes(row) if code else ()
    require_same(directory, row, directory.name, tokenizer=tokenizer, changed=changed)
    config = read_config(directory)
    try:
        return Stored(directory, row, read(RunConfig, config), tokenizer)
    except (ValueError, TypeError, AttributeError) as error:
        raise unreadable(directory, error) from error


def require_as_begun(run: Run, store: Store) -> None:
    """Raises ConfigError if the run was begun with other methods or, where it would go on from a checkpoint,
    by another program or with another tokenizer; unless force asks to train it again."""
    if run.config.force is not False:
        return
    stored = store.run(run.name)
    for directory in filter(None, (stored.directory, stored.latest())):
        goes_on = bool(checkpoints(directory)) and not lease.is_live(directory)
        tokenizer = run.corpus.tokenizer if goes_on else None
        with contextlib.suppress(Damaged, FileNotFoundError):
            row = read_started(directory)
            changed = provenance.changes_in_code(row) if goes_on else ()
            require_same(directory, row, run.name, tokenizer=tokenizer, changed=changed)


def require_same(
    directory: Path,
    row: Row,
    run: str,
    *,
    tokenizer: Tokenizer | None = None,
    changed: Sequence[str] = (),
) -> None:
    """Hold what is used of a run against its row: its methods and, where it is given, the tokenizer. run: its
    name. changed: what of the program is another now. Raises ConfigError, which names what was and what
    is."""
    for name, was in (row.get("part_files") or {}).items():
        if not provenance.is_of_plugin(name):
            continue
        file, now = Path(name.removeprefix(provenance.PLUGIN)).name, provenance.tree_digest(name)
        copy = shlex.quote(str(directory / file if (directory / file).exists() else file))
        if now is None:
            raise ConfigError(
                f"{run}: was made with the plugin {file}; add --plugin {copy}, or make it anew with"
                " force=stale"
            )
        if now != was:
            raise ConfigError(
                f"--plugin {file}: not the file that {run} was made with: its code was {was[:8]} and is"
                f" {now[:8]}; give --plugin {copy}; ablate run also takes force=stale, or another name of it"
            )
    if tokenizer and (now := tokenizer.sha256) != (was := row.get("tokenizer_sha256", now)):
        raise ConfigError(
            f"{run}: made with another tokenizer, whose tokenizer.json had the SHA-256 {was[:12]}, and it is"
            f" {now[:12]}; put that back (it may be another version of tokenizers), or train anew with"
            " force=true"
        )
    if changed:
        raise ConfigError(
            f"{run}: made by another program, which may compute something else"
            f" ({'; '.join(changed)}); train it anew with force=stale, or take another"
        )
