"""A stored run, opened again with what is here now: its plugins, its text, this program. What is no longer as
it was is refused in one line."""

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
from ablate.execution.run import Run, prepare
from ablate.files.atomic import out_of_reach
from ablate.store import lease, provenance
from ablate.store.columns import Row
from ablate.store.run_files import (
    Damaged,
    checkpoints,
    read_config,
    read_finished,
    read_started,
)
from ablate.store.store import Store


@dataclass(frozen=True)
class Stored:
    """A finished run, opened again. Methods raise ConfigError if its text is another now."""

    directory: Path
    row: Row
    config: RunConfig
    tokenizer: Tokenizer

    def corpus(self) -> Corpus:
        name = self.directory.name
        try:
            corpus = open_corpus(self.config.corpus, self.config.model.two_texts, self.row["corpus_sha256"])
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error
        if corpus.tokenizer.sha256 != self.tokenizer.sha256:
            raise ConfigError(f"{name}: its text gives another tokenizer now; train it anew with force=true")
        return corpus

    def prepared(self, device: str) -> Run:
        self.corpus()  # first, as another text may not suit the config at all
        return prepare(replace(self.config, device=device))


def reopened(directory: Path, *, code: bool = False) -> Stored:
    """The finished run in this directory, whose text is not opened yet. code: whether what it computed is
    computed again, for which this program has to be the one that made it. Raises ConfigError."""
    row = read_finished(directory, thorough=True)
    _require_same(directory, row, directory.name, provenance.changes(row) if code else ())
    config, tokenizer = read_config(directory), tokenizers.load(directory / "tokenizer.json")
    try:
        return Stored(directory, row, read(RunConfig, config), tokenizer)
    except (ValueError, TypeError, AttributeError) as error:
        raise out_of_reach(directory, error) from error


def require_as_begun(run: Run, store: Store) -> None:
    """Raises ConfigError if the run was begun with other plugins or, where it would go on from a checkpoint,
    by another program; unless force asks to train it again."""
    if run.config.force is not False:
        return
    stored = store.run(run.name)
    for directory in filter(None, (stored.directory, stored.latest())):
        goes_on = bool(checkpoints(directory)) and not lease.is_live(directory)
        with contextlib.suppress(Damaged, FileNotFoundError):
            row = read_started(directory)
            _require_same(directory, row, run.name, provenance.changes_in_code(row) if goes_on else ())


def _require_same(directory: Path, row: Row, run: str, changed: Sequence[str]) -> None:
    """Raises ConfigError if the run's plugins are not loaded, or others. run: its name. changed: what of the
    program is another now, of which there may be nothing."""
    for name, was in (row.get("part_files") or {}).items():
        if not provenance.is_of_plugin(name) or (now := provenance.part_digest(name)) == was:
            continue
        file = Path(name.removeprefix(provenance.PLUGIN)).name
        copy = shlex.quote(str(directory / file if (directory / file).exists() else file))
        if now is None:
            raise ConfigError(
                f"{run}: was made with the plugin {file}; add --plugin {copy}, or make it anew with"
                " force=stale"
            )
        raise ConfigError(
            f"--plugin {file}: not the file that {run} was made with: its code was {was[:8]} and is"
            f" {now[:8]}; give --plugin {copy}; ablate run also takes force=stale, or another name of it"
        )
    if changed:
        raise ConfigError(
            f"{run}: made by another program, which may compute something else"
            f" ({'; '.join(changed)}); train it anew with force=stale, or take another"
        )
