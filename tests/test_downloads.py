"""Texts from the network, which is a server on this machine: one clear line for each failure."""

import csv
import errno
import gzip
import hashlib
import io
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from ablate.compose.configs import configs_dir
from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig
from ablate.data.corpora.hub import by_split
from ablate.data.corpus import Corpus, open_corpus
from ablate.data.downloads import RemoteFile
from ablate.data.text import CorpusError
from ablate.files import cache
from tests.helpers import COMMIT, DOWNLOAD, ROOT, Server, call_cli, forget, remote

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
    assert corpus.config.called == corpus.name == "play"
    (record,) = caplog.records
    assert record.getMessage() == f"play/play.txt: downloading 2,150 bytes from {server.address}/play.txt"
    assert kept(root) == ["downloads/play/play.txt"] and server.requests == ["/play.txt"]
    assert whole(opened(file, errors="replace")) == TEXT and server.requests == ["/play.txt"]
    (root / "downloads/play/play.txt").unlink()
    assert whole(opened(file)) == TEXT and server.requests == ["/play.txt"]


@pytest.mark.parametrize("packed", ["gzip", "zip"])
def test_packed_texts(server: Server, packed: str):
    if packed == "gzip":
        content, member = gzip.compress(TEXT.encode()), None
    else:
        content, member = zipped(other="no", play=TEXT), "folder/play"
    server.content["/play"] = content
    assert whole(opened(remote(content, f"{server.address}/play", all=member))) == TEXT


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
    with pytest.raises(ConfigError, match=r"corpus\.files: they hold test, train; give all, or train and"):
        opened(files[0])


def test_the_first_address_that_has_it(server: Server, root: Path):
    server.content["/play.txt"] = TEXT.encode()
    addresses = [f"{server.address}/gone.txt", closed(), f"{server.address}/play.txt"]
    assert whole(opened(remote(TEXT.encode(), *addresses))) == TEXT
    assert server.requests == ["/gone.txt", "/play.txt"]


def test_failures_name_each_address_and_the_place_to_put_it_by_hand(server: Server, root: Path):
    server.content |= {"/cut.txt": TEXT.encode(), "/other.txt": TEXT.upper().encode()}
    server.cut.add("/cut.txt")
    addresses = [f"{server.address}/{name}.txt" for name in ("cut", "other", "gone")]
    nobody = closed()
    assert refusal(remote(TEXT.encode(), *addresses, nobody)) == (
        f"play/play.txt: can't be downloaded ({addresses[0]}: the connection broke off;"
        f" {addresses[1]}: the file there has another SHA-256; {addresses[2]}: HTTP 404;"
        f" {nobody}: no connection); get it elsewhere and put it by hand at {root}/downloads/play/play.txt"
    )
    assert kept(root) == [] and not list(root.glob("part-*"))


def test_a_download_stops_at_its_size(server: Server, root: Path):
    """At the first byte that is too much, though the server sends on."""
    server.content |= {"/play.txt": TEXT.encode() + b"x", "/long.txt": b"x" * (1 << 24)}
    addresses = [f"{server.address}/{name}.txt" for name in ("play", "long")]
    line = refusal(remote(TEXT.encode(), *addresses))
    for address in addresses:
        assert f"{address}: it sends more than 2,150 bytes" in line
    assert kept(root) == [] and not list(root.glob("part-*"))


def test_a_text_that_unpacks_without_end_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ablate.data.corpora.download.UNPACKED", 1 << 20)
    text = "a b " * (1 << 20)
    for content, member in ((gzip.compress(text.encode()), None), (zipped(bomb=text), "folder/bomb")):
        server.content["/play"] = content
        said = refusal(remote(content, f"{server.address}/play", file=f"{len(content)}", all=member))
        assert re.search(r"unpacks to over 100 times its \d,\d+ bytes, as no text does$", said)


def test_a_file_put_there_by_hand(root: Path):
    file = remote(TEXT.encode(), nobody := closed())
    place = root / "downloads/play/play.txt"
    place.parent.mkdir(parents=True)
    place.write_text(TEXT.upper(), encoding="utf-8")
    assert refusal(file) == (
        f"{place}: another file, its SHA-256 is {hashlib.sha256(TEXT.upper().encode()).hexdigest()}, not"
        f" {file['sha256']}; move it away, and it is downloaded from {nobody}"
    )
    place.write_text(TEXT, encoding="utf-8")
    assert whole(opened(file)) == TEXT


def test_no_space(server: Server, root: Path, monkeypatch: pytest.MonkeyPatch):
    """None before the download, and none in the middle of it."""
    server.content["/play.txt"] = TEXT.encode()
    file = remote(TEXT.encode(), f"{server.address}/play.txt")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
        assert "(too little space is left); make room for 2,150 bytes" in refusal(file)
    assert server.requests == []

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("requests.get", full)
    assert refusal(file) == (
        f"{root}/downloads/play/play.txt: can't be written (No space left on device); make room for 2,150"
        " bytes, or set ABLATE_CACHE to a directory with room"
    )
    assert kept(root) == [] and not list(root.glob("part-*"))


def test_a_cache_that_cannot_be_written(server: Server, root: Path, monkeypatch: pytest.MonkeyPatch):
    """A file in it is used, and another is kept in the temporary one of this process."""
    server.content["/play.txt"] = TEXT.encode()
    root.write_text("no directory")
    file = remote(TEXT.encode(), f"{server.address}/play.txt")
    assert whole(opened(file)) == TEXT and kept(cache.writable()) == ["downloads/play/play.txt"]
    place = root.with_name("shared") / "downloads/play/play.txt"
    place.parent.mkdir(parents=True)
    place.write_text(TEXT, encoding="utf-8")
    monkeypatch.setenv("ABLATE_CACHE", str(place.parents[2]))
    monkeypatch.setattr(cache, "writable", lambda: root.with_name("temporary"))
    assert whole(opened(file)) == TEXT and server.requests == ["/play.txt"]


@pytest.mark.slow
def test_two_at_once(server: Server, root: Path):
    content = TEXT.encode() * 1000
    server.content["/play.txt"] = content
    file = remote(content, f"{server.address}/play.txt")
    code = (
        "import sys, json; from ablate.data.downloads import RemoteFile, fetch;"
        "print(fetch(RemoteFile(**json.loads(sys.argv[1]))).stat().st_size)"
    )
    program = [sys.executable, "-c", code, json.dumps(file)]
    processes = [subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in processes] == [f"{len(content)}\n"] * 2
    assert kept(root) == ["downloads/play/play.txt"] and not list(root.glob("part-*"))


def test_a_text_by_a_yaml_of_ones_own(server: Server, tmp_path: Path):
    server.content["/play.txt"] = TEXT.encode() * 9
    about = {"name": "mine", **DOWNLOAD, "files": [remote(TEXT.encode() * 9, f"{server.address}/play.txt")]}
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/mine.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    steps = ("train.steps=2", "train.batch=2", "train.eval_every=1", "model.context=16", "model.d_model=16")
    done = call_cli("run", "-cd", ".", "corpus=mine", *steps, "name=own", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "runs/studies/own/results.csv").read_text(encoding="utf-8")
    (row,) = csv.DictReader(table.splitlines())
    assert row["corpus"] == "mine" and row["status"] == "done"


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


# --- of the Hub ---------------------------------------------------------------------------------------

HUB = """
import json, logging, sys
from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.data.corpora.hub import Hub
logging.basicConfig(stream=sys.stdout, format="%(message)s")
for options in json.loads(sys.stdin.read()):
    try:
        print(json.dumps("".join(read(Hub, options, "corpus").text().chunks())))
    except ConfigError as error:
        print(error)
"""


def ask_hub(endpoint: str, home: Path, *options: dict[str, Any], **environment: str) -> list[str]:
    """A line for each corpus, its text as JSON or the refusal, and one for each warning. In a process of its
    own, as huggingface_hub reads its variables once."""
    defaults = {"path": "owner/plays", "column": "text", "revision": None, "split": "auto", "unique": "none"}
    own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    program = [sys.executable, "-W", "ignore", "-c", HUB]
    given = json.dumps([defaults | of for of in options])
    done = subprocess.run(
        program, env={**os.environ, **own}, cwd=ROOT, input=given, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def parquet(rows: list[str | None]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    written = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": rows, "year": [*range(len(rows))]}), written)
    return written.getvalue()


def offer(server: Server, dataset: str, files: dict[str, bytes], revision: str = "main") -> None:
    """Let the server have a dataset as huggingface.co has it."""
    about = json.dumps({"id": dataset, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]})
    of_main = [f"/api/datasets/{dataset}"] if revision == "main" else []
    for path in (*of_main, f"/api/datasets/{dataset}/revision/{quote(revision, safe='')}"):
        server.content[path] = about.encode()
    for name, content in files.items():
        for at in (COMMIT, quote(revision, safe="")):
            server.content[f"/datasets/{dataset}/resolve/{at}/{name}"] = content


@pytest.mark.slow
def test_a_column_of_the_hub(server: Server, tmp_path: Path):
    train = parquet(["one", None, "two"])
    files = {"data/train-0.parquet": train, "data/validation-0.parquet": parquet(["", "three"])}
    offer(server, "owner/plays", {**files, "README.md": b"# Plays"})
    offer(server, "owner/sets", {f"{name}/train.parquet": parquet([name]) for name in ("old", "new")})
    offer(server, "owner/both", {"old/0.parquet": parquet(["old"]), "0.parquet": parquet(["new"])})
    offer(server, "owner/none", {"plays.txt": b"text"})
    offer(server, "owner/csv", {"plays.csv": b"text"})
    offer(server, "owner/csv", {"default/train/0000.parquet": train}, revision="refs/convert/parquet")
    offer(server, "owner/broken", {"train.parquet": b"PAR1, or so it says"})
    text = '"one\\n\\ntwo\\n\\nthree\\n\\n"'
    place = f"{tmp_path}/hf/hub"
    expected = {
        ("owner/plays", "text", None): text,
        ("owner/plays", "text", "v2"): (
            "corpus.revision=v2: owner/plays has no such branch, tag or commit; correct it, or leave it out"
            " for main"
        ),
        ("owner/plays", None, None): "corpus.column=null: name the column with the text; choices: text",
        ("owner/plays", "txt", None): (
            "corpus.column=txt: no column with text of that name; did you mean text? choices: text"
        ),
        ("owner/plays", "year", None): "corpus.column=year: no column with text of that name; choices: text",
        ("owner/sets/new", "text", None): '"new\\n\\n"',
        ("owner/sets", "text", None): (
            "corpus.path=owner/sets: 2 sets of parquet files; choose one, as corpus.path=owner/sets/new;"
            " choices: new, old"
        ),
        ("owner/sets/ne", "text", None): (
            "corpus.path=owner/sets/ne: no folder with parquet files; did you mean new? choices: new, old"
        ),
        ("owner/both", "text", None): '"new\\n\\n"',
        ("owner/csv", "text", None): '"one\\n\\ntwo\\n\\n"',
        ("owner/none", "text", None): (
            "corpus.path=owner/none: owner/none has no parquet files; take another dataset, or download its"
            " text and give it with corpus=file"
        ),
        ("owner/play", "text", None): (
            f"corpus.path=owner/play: no such dataset at {server.address}; correct the name or, if it is"
            " private or gated, log in with hf auth login"
        ),
        ("plays", "text", None): (
            "corpus.path=plays: which dataset? give corpus.path=OWNER/NAME, as in"
            " corpus.path=roneneldan/TinyStories corpus.column=text"
        ),
    }
    options = [{"path": path, "column": column, "revision": at} for path, column, at in expected]
    lines = ask_hub(server.address, tmp_path / "hf", *options, {"path": "owner/broken"})
    assert lines[:-1] == [*expected.values()]
    assert lines[-1].startswith(place) and "can't be read (" in lines[-1]
    # Without a network what is in the cache is used.
    commit = f"{place}/datasets--owner--plays/snapshots/{COMMIT}"
    warning = f"owner/plays: no answer; reading the 2 parquet files in {commit}"
    nobody = closed().removesuffix("/play.txt")
    other = {"path": "owner/other"}
    *cached, unknown = ask_hub(nobody, tmp_path / "hf", {}, other)
    assert cached == [warning, text] and unknown.startswith(
        f"corpus.path=owner/other: can't be had from {nobody} ("
    )
    advice = (
        f"); name a mirror in HF_ENDPOINT, or copy datasets--owner--other into {place} from a machine"
        " that has it"
    )
    assert unknown.endswith(advice)
    *cached, unknown = ask_hub(server.address, tmp_path / "hf", {}, other, HF_HUB_OFFLINE="1")
    assert cached == [warning, text] and "HF_HUB_OFFLINE" in unknown and unknown.endswith(advice)


def test_splits_by_the_names_of_files():
    names = ["test/0.parquet", "val-1.parquet", "val-0.parquet", "old/dev-train-0.parquet"]
    assert by_split(names) == [
        ("train", "old/dev-train-0.parquet"),
        *[("validation", "val-0.parquet"), ("validation", "val-1.parquet")],
        ("test", "test/0.parquet"),
    ]
    for others in (
        ["train.parquet", "test.parquet"],
        ["train.parquet", "validation.parquet", "rest.parquet"],
    ):
        assert by_split(others) == [("all", name) for name in sorted(others)]
    assert by_split(["trainer.parquet"]) == [("all", "trainer.parquet")]


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    options = {"path": "a/b", "column": "c", "revision": None, "split": "auto", "unique": "none"}
    config = CorpusConfig(name="hub", options=options, **COMMON)
    with pytest.raises(CorpusError, match=r"pip install 'ablate-heads\[hub\]'$"):
        open_corpus(config)


@pytest.mark.parametrize(
    "path", ["../x", "a/../x", "/x", "~/x", ".hidden", "a\\x", "c:x", "C:/x", "a:b", "a//x", ""]
)
def test_a_download_is_kept_below_its_folder(path):
    with pytest.raises(ConfigError, match=r"file=.*write a path below downloads/"):
        read(RemoteFile, {"file": path, "sha256": "0" * 64, "size": 1, "addresses": [], "holds": {}})
