"""A stored run, opened again with what is here now: its plugins, its text, this program. What is no longer as
it was is refused in one line."""

import contextlib
import shlex
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
from ablate.store import provenance
from ablate.store.columns import Row
from ablate.store.run_files import Damaged, read_config, read_finished, read_started
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
    _require_plugins(directory, row)
    if code and (changed := provenance.changes(row)):
        raise ConfigError(
            f"{directory.name}: made by another program, which may compute something else"
            f" ({'; '.join(changed)}); train it anew with force=stale, or take another"
        )
    config, tokenizer = read_config(directory), tokenizers.load(directory / "tokenizer.json")
    try:
        return Stored(directory, row, read(RunConfig, config), tokenizer)
    except (ValueError, TypeError, AttributeError) as error:
        raise out_of_reach(directory, error) from error


def require_as_begun(run: Run, store: Store) -> None:
    """Raises ConfigError if the run has a result that was made with other plugins; unless force asks to train
    it again."""
    if run.config.force is False:
        directory = store.run(run.name).directory
        with contextlib.suppress(Damaged, FileNotFoundError):
            _require_plugins(directory, read_started(directory))


def _require_plugins(directory: Path, row: Row) -> None:
    """Raises ConfigError if the run's plugins are not loaded, or others."""
    for name, was in (row.get("part_files") or {}).items():
        if not name.startswith(provenance.PLUGIN) or (now := provenance.part_digest(name)) == was:
            continue
        file = Path(name).name
        here = (path for path in (Path(file), directory / file) if path.is_file())
        same = (str(path) for path in here if provenance.hashed(path.read_bytes()) == was)
        copy = shlex.quote(next(same, file))
        if now is None:
            raise ConfigError(
                f"{directory.name}: was made with the plugin {file}; add --plugin {copy}; ablate run also"
                " takes force=stale, which makes it anew"
            )
        raise ConfigError(
            f"--plugin {file}: not the file that {directory.name} was made with: its code was {was[:8]} and"
            f" is {now[:8]}; give --plugin {copy}; ablate run also takes force=stale, or a new file"
        )
