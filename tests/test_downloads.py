"""Texts from the network, which is a server on this machine: one clear line for each failure."""

import hashlib
import io
import logging
import socket
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.compose.configs import configs_dir
from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig
from ablate.data.corpora.download import RemoteFile
from ablate.data.corpus import Corpus, open_corpus
from ablate.data.text import CorpusError
from tests.helpers import DOWNLOAD, Server, forget, remote

pytestmark = pytest.mark.usefixtures("root")

TEXT = "To be, or not to be: that is the question.\n" * 50
COMMON = {"tokenizer": "char", "bpe_vocab": 300, "splits": (0.8, 0.1, 0.1)}


def opened(*files: dict[str, Any], **changes: Any) -> Corpus:
    forget()  # as another process would open it
    options = {**DOWNLOAD, "files": [*files], **changes}
    return open_corpus(CorpusConfig(name="play", options=options, **COMMON))


def refusal(*files: dict[str, Any], **changes: Any) -> str:
    """The message with which the text is refused: one line."""
    with pytest.raises(CorpusError) as caught:
        opened(*files, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def whole(corpus: Corpus) -> str:
    return "".join(corpus.tokenizer.decode(corpus.tokens(split)) for split in corpus.splits)


def kept(root: Path) -> list[str]:
    """The files below the cache, but for the entries of tokenized texts."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return sorted(path.relative_to(root).as_posix() for path in files if path.parent.parent != root)


def zipped(**members: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(f"folder/{name}", text)
    return packed.getvalue()


def closed() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/play.txt"


# --- downloaded ---------------------------------------------------------------------------------------


def test_a_text_is_downloaded_once_and_its_tokens_need_no_file(server: Server, root: Path, caplog):
    server.content["/play.txt"] = TEXT.encode()
    file = remote(TEXT.encode(), f"{server.address}/play.txt")
    with caplog.at_level(logging.WARNING):
        corpus = opened(file)
    assert whole(corpus) == TEXT and corpus.sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
    assert corpus.config.called == corpus.config.name == "play"
    (record,) = caplog.records
    assert record.getMessage() == f"play/play.txt: downloading 2,150 bytes from {server.address}/play.txt"
    assert kept(root) == ["downloads/play/play.txt"] and server.requests == ["/play.txt"]
    assert whole(opened(file, errors="replace")) == TEXT and server.requests == ["/play.txt"]
    (root / "downloads/play/play.txt").unlink()
    assert whole(opened(file)) == TEXT and server.requests == ["/play.txt"]


def test_a_text_with_splits_of_its_own_keeps_them(server: Server):
    content = zipped(te="test\n" * 99, tr="train\n" * 99)
    server.content |= {"/play": content, "/va": b"validation\n" * 99}
    files = [
        remote(content, f"{server.address}/play", test="folder/te", train="folder/tr"),
        remote(b"validation\n" * 99, f"{server.address}/va", file="play/va", validation=None),
    ]
    corpus = opened(*files)
    for split in corpus.splits:
        assert corpus.tokenizer.decode(corpus.tokens(split)) == f"{split}\n" * 99
    assert opened(*files).sha256 != opened(files[1] | {"holds": {"all": None}}).sha256
    for split in ("valid", "all"):
        line = refusal(files[1], files[1] | {"holds": {split: None}})
        assert line.startswith(f"corpus.files: they hold {split}, validation; give all, or train, ")


def test_what_is_no_archive_is_told_in_a_line(server: Server):
    whole_, cut = zipped(te=TEXT), zipped(te=TEXT).replace(b"PK\x01\x02", b"PK\x00\x00")
    for name, content in {"none": TEXT.encode(), "cut": cut, "half": whole_[:99]}.items():
        server.content[f"/{name}"] = content
        line = refusal(remote(content, f"{server.address}/{name}", all="folder/te"))
        assert "can't be read (" in line and line.endswith("mend that, or give other text")


def test_the_first_address_that_has_it(server: Server, root: Path):
    server.content["/play.txt"] = TEXT.encode()
    addresses = [f"{server.address}/gone.txt", closed(), f"{server.address}/play.txt"]
    assert whole(opened(remote(TEXT.encode(), *addresses))) == TEXT
    assert server.requests == ["/gone.txt", "/play.txt"]


def test_failures_name_each_address_and_the_place_to_put_it_by_hand(server: Server, root: Path):
    server.content |= {"/cut.txt": TEXT.encode(), "/other.txt": TEXT.upper().encode()}
    server.cut.add("/cut.txt")
    addresses = [*(f"{server.address}/{name}.txt" for name in ("cut", "other", "gone")), closed()]
    line = refusal(remote(TEXT.encode(), *addresses))
    assert line.startswith("play/play.txt: can't be downloaded (")
    assert line.endswith(f"); get it elsewhere and put it by hand at {root}/downloads/play/play.txt")
    for address, reason in zip(addresses, ("", "SHA256 hash", "404", "Max retries"), strict=True):
        assert f"{address}: " in line and reason in line
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_a_file_put_there_by_hand(root: Path):
    file = remote(TEXT.encode(), closed())
    place = root / "downloads/play/play.txt"
    place.parent.mkdir(parents=True)
    place.write_text(TEXT.upper(), encoding="utf-8")
    assert "can't be downloaded" in refusal(file)
    place.write_text(TEXT, encoding="utf-8")
    assert whole(opened(file)) == TEXT


def test_every_published_text_names_its_source_and_a_file_of_its_own():
    texts = [
        path for path in (configs_dir() / "corpus").glob("*.yaml") if "recipe: download" in path.read_text()
    ]
    assert len(texts) == 6
    for path in texts:
        written = path.read_text(encoding="utf-8")
        assert "# SHA-256" in written and yaml.safe_load(written)["name"] == path.stem
        for file in yaml.safe_load(written)["files"]:
            assert file["file"].startswith(f"{path.stem}/") and len(file["sha256"]) == 64
            assert file["addresses"][0].startswith("https://")


@pytest.mark.parametrize("path", ["../x", "a/../x", "/x", "~/x", ".hidden", ""])
def test_a_download_is_kept_below_its_folder(path):
    with pytest.raises(ConfigError, match=r"file=.*write a path below downloads/"):
        read(RemoteFile, {"file": path, "sha256": "0" * 64, "size": 1, "addresses": [], "holds": {}})
