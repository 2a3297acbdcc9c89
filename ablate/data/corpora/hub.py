import itertools
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from ablate.config.extras import require
from ablate.config.rules import ConfigError, did_you_mean
from ablate.data.corpora.base import SPLITS, OfDocuments, TextRecipe, register
from ablate.data.text import CorpusError, Document, Text

CONVERTED = "refs/convert/parquet"  # the branch in which the Hub keeps datasets of other formats
ROWS = 1024  # read at a time
SEPARATOR = "\n\n"  # after each row
SPLIT_WORDS = {"train": "train", "test": "test"} | dict.fromkeys(
    ("validation", "valid", "val", "dev"), "validation"
)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """The parquet files of a dataset in a revision (a branch, a tag or a commit), and the commit it stands
    for."""

    revision: str | None
    commit: str
    files: list[str]


@register("hub")
@dataclass(frozen=True, kw_only=True)
class Hub(OfDocuments, TextRecipe):
    """A column of the parquet files of a dataset on huggingface.co, its rows separated by blank lines.

    path: OWNER/NAME, or OWNER/NAME/FOLDER. The files stay in the cache of huggingface_hub, which heeds
    HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE.
    """

    path: str | None
    column: str | None
    revision: str | None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^/]+/[^/]+(/.+)?", self.path or ""):
            raise CorpusError(
                f"corpus.path={self.path or 'null'}: which dataset? give corpus.path=OWNER/NAME, as in"
                " corpus.path=roneneldan/TinyStories corpus.column=text"
            )

    def text(self) -> Text:
        try:
            require("corpus=hub", "pyarrow", extra="hub")
        except ConfigError as error:  # no run of this text can begin, so no study leaves out the one or other
            raise CorpusError(str(error)) from None
        listing = self._chosen()
        documents = [
            Document(name, partial(self._chunks, listing, name), "" if split == "all" else split)
            for split, name in by_split(listing.files)
        ]
        stamp = [self.dataset, listing.commit, listing.files, self.column]
        return self.divided(Text(lambda: documents, stamp))

    @property
    def dataset(self) -> str:
        return "/".join(str(self.path).split("/")[:2])

    def _chosen(self) -> Listing:
        """The set of files in the folder that `path` names, or the only one below it. A dataset may have
        several sets, each with splits of its own. Raises CorpusError."""
        listing = self._listed(self.revision)
        if not listing.files and self.revision is None:
            listing = self._listed(CONVERTED)
        if not listing.files:
            raise CorpusError(
                f"corpus.path={self.path}: {self.dataset} has no parquet files; take another dataset, or"
                " download its text and give it with corpus=file"
            )
        folder = str(self.path).removeprefix(self.dataset).strip("/") or "."
        sets = {of: [*files] for of, files in itertools.groupby(sorted(listing.files, key=_set_of), _set_of)}
        below = [of for of in sets if folder == "." or of.startswith(f"{folder}/")]
        if folder in sets:
            return replace(listing, files=sets[folder])
        if not below:
            raise CorpusError(
                f"corpus.path={self.path}: no folder with parquet files{did_you_mean(folder, sets)}"
            )
        if len(below) > 1:
            more = f" and {len(below) - 10} more" if len(below) > 10 else ""
            raise CorpusError(
                f"corpus.path={self.path}: {len(below)} sets of parquet files; choose one, as"
                f" corpus.path={self.dataset}/{below[0]}; choices: {', '.join(below[:10])}{more}"
            )
        return replace(listing, files=sets[below[0]])

    def _listed(self, revision: str | None) -> Listing:
        """All parquet files; without a network, those in the cache, which may be a part of them."""
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.utils import RepositoryNotFoundError, RevisionNotFoundError

        with self._explained():
            try:
                info = HfApi().dataset_info(self.dataset, revision=revision)
                commit, names = str(info.sha), [file.rfilename for file in info.siblings or ()]
            except (RepositoryNotFoundError, RevisionNotFoundError):
                if revision != CONVERTED:
                    raise
                commit, names = "", []
            except Exception as unreachable:  # of the HTTP client, of which huggingface_hub had several
                try:
                    cached = snapshot_download(
                        self.dataset, repo_type="dataset", revision=revision, local_files_only=True
                    )
                except Exception:
                    raise unreachable from None
                commit = Path(cached).name
                names = [file.relative_to(cached).as_posix() for file in Path(cached).rglob("*.parquet")]
                log.warning(
                    "%s: no answer; reading the %d parquet files in %s", self.path, len(names), cached
                )
        return Listing(revision, commit, sorted(name for name in names if name.endswith(".parquet")))

    def _chunks(self, listing: Listing, name: str) -> Iterator[str]:
        from huggingface_hub import hf_hub_download

        # One by its revision: then the cache says which commit that is when there is no network.
        revision = listing.commit if name != listing.files[0] else listing.revision
        with self._explained():
            path = hf_hub_download(self.dataset, name, repo_type="dataset", revision=revision)
        if listing.commit not in Path(path).parts:
            raise CorpusError(f"corpus.path={self.path}: it changed while it was being read; run again")
        for rows in self._batches(path):
            yield "".join(f"{row}{SEPARATOR}" for row in rows)

    def _batches(self, path: str) -> Iterator[list[str]]:
        """The values of the column, some at a time, none of them empty."""
        import pyarrow
        from pyarrow import parquet, types

        try:
            with parquet.ParquetFile(path) as file:
                fields = [*file.schema_arrow]
                texts = [f.name for f in fields if types.is_string(f.type) or types.is_large_string(f.type)]
                if self.column not in texts:
                    reason = (
                        "no column with text of that name" if self.column else "name the column with the text"
                    )
                    known = did_you_mean(self.column or "", texts)
                    raise CorpusError(f"corpus.column={self.column or 'null'}: {reason}{known}")
                for batch in file.iter_batches(ROWS, columns=[self.column]):
                    if rows := [row for row in batch.column(0).to_pylist() if row]:
                        yield rows
        except (OSError, pyarrow.ArrowException) as error:
            raise CorpusError(
                f"{path}: can't be read ({_line(error)}); mend that, or move it away and run again"
            ) from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what huggingface_hub raises inside the block into a CorpusError."""
        from huggingface_hub import constants, utils

        try:
            yield
        except utils.RevisionNotFoundError:
            raise CorpusError(
                f"corpus.revision={self.revision}: {self.dataset} has no such branch, tag or commit;"
                " correct it, or leave it out for main"
            ) from None
        except utils.RepositoryNotFoundError as error:
            reason = (
                "access has to be granted" if isinstance(error, utils.GatedRepoError) else "no such dataset"
            )
            raise CorpusError(
                f"corpus.path={self.path}: {reason} at {constants.ENDPOINT}; correct the name or, if it is"
                " private or gated, log in with hf auth login"
            ) from None
        except Exception as error:  # see above
            raise CorpusError(
                f"corpus.path={self.path}: can't be had from {constants.ENDPOINT} ({_line(error)}); name a"
                f" mirror in HF_ENDPOINT, or copy datasets--{self.dataset.replace('/', '--')} into"
                f" {constants.HF_HUB_CACHE} from a machine that has it"
            ) from None


def by_split(names: list[str]) -> list[tuple[str, str]]:
    """Each file with its split, in the order of the splits. It is the last word of its path that names one;
    `all` for every file unless each has a split, and some are for training and some for validation."""
    words = [_split_words(name) for name in names]
    splits = [SPLIT_WORDS[of[-1]] if of else "all" for of in words]
    if "all" in splits or not {"train", "validation"} <= {*splits}:
        splits = ["all"] * len(names)
    return sorted(
        zip(splits, names, strict=True), key=lambda pair: (("all", *SPLITS).index(pair[0]), pair[1])
    )


def _split_words(path: str) -> list[str]:
    return re.findall(rf"(?<![A-Za-z])({'|'.join(SPLIT_WORDS)})(?![A-Za-z])", path)


def _set_of(name: str) -> str:
    """The folder of a file, above that of its split."""
    folder = PurePosixPath(name).parent
    return str(folder.parent if _split_words(folder.name) else folder)


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
