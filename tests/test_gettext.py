"""corpus=gettext: sentences and their translations from the catalogues on a machine, here written by hand."""

import logging
import struct
from pathlib import Path

import pytest

from ablate.data.corpora import gettext
from ablate.data.corpora.gettext import Gettext, entries, sentence
from ablate.data.corpus import open_corpus
from ablate.data.paired import Paired
from ablate.data.text import CorpusError
from tests.helpers import call_cli, catalogue, forget, make_config, refusal

FILE = {"Open a file": "Eine Datei öffnen"}


@pytest.fixture(autouse=True)
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Those that are searched, of which the last does not exist."""
    paths = [tmp_path / "share/locale", tmp_path / "locale-langpack", tmp_path / "none"]
    monkeypatch.setattr(gettext, "DIRECTORIES", paths)
    return paths


@pytest.fixture
def install(directories: list[Path]):
    """Writes a catalogue: its texts or its bytes."""

    def install(program: str, content: dict[str, str] | bytes, language: str = "de", place: int = 0) -> None:
        path = directories[place] / language / "LC_MESSAGES" / f"{program}.mo"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else catalogue(content))

    return install


def pairs(direction: str = "en-de") -> list[tuple[str, str]]:
    return Gettext(direction=direction, long="drop").pairs()


# --- the format -----------------------------------------------------------------------------------


def test_a_catalogue_by_hand():
    """One text, "a b", and its translation, "c", behind the head and two tables of a length and a start."""
    numbers = (0x950412DE, 0, 1, 28, 36, 0, 0, *(3, 44), *(1, 48))
    for order in "<>":
        assert entries(struct.pack(f"{order}11I", *numbers) + b"a b\0c\0") == [("a b", "c")]


@pytest.mark.parametrize("order", "<>")
def test_catalogues_of_either_byte_order(order):
    (_, header), pair = entries(catalogue(FILE, order=order))
    assert "charset=UTF-8" in header and pair == ("Open a file", "Eine Datei öffnen")


WHOLE = catalogue(FILE)
DAMAGED = {
    "empty": b"",
    "magic": b"\0" + WHOLE[1:],
    "head": WHOLE[:19],
    "table": WHOLE[:40],
    "text": WHOLE[:-7],
    "count": WHOLE[:8] + b"\xff\xff\xff\xff" + WHOLE[12:],
    "start": WHOLE[:40] + b"\xff\xff\xff\xff" + WHOLE[44:],
    "bytes": WHOLE.replace("ö".encode(), b"\xff\xfe"),
    "latin-1": catalogue(FILE, "latin-1"),
    "7 bits": catalogue({"Open a file": "Eine Datei auf"}, "iso-2022-jp"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_what_is_damaged_or_in_another_charset_is_refused(kind):
    with pytest.raises(ValueError):
        entries(DAMAGED[kind])


def test_it_is_skipped_and_counted(install, caplog):
    for kind, content in DAMAGED.items():
        install(kind, content)
    install("whole", FILE)
    with caplog.at_level(logging.WARNING):
        assert pairs() == [*FILE.items()]
    (record,) = caplog.records
    assert "damaged or not in UTF-8: 10 of 11 catalogues in de (" in record.getMessage()


def test_nothing_is_said_where_none_is_skipped(install, caplog):
    install("whole", FILE)
    assert pairs() and not caplog.records


@pytest.mark.parametrize("charset", ["utf-8", "UTF8", "us-ascii", "ASCII"])
def test_names_of_utf_8(charset):
    assert len(entries(catalogue({"a b": "c d"}, charset))) == 2


# --- which texts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("Open <b>this</b> file", "Cut &amp; paste", "no such <file> here"),
        *("read %s of it", "read %(name)s of it", "read %1$s of it", "read %1 of it"),
        *("read {0} of it", "read {name} of it", "read $name of it", "read ${name} of it"),
        *("Save _As", "Save &As", "~Save as"),
        *("menu\x04Open a file", "one file\0many files", "Menu|Open a file"),
        *("one line\nand another", "a column\tof two", "-h, --help   print this help"),
        *("", "File", "File…", "File 7", "12 34", "— …"),
    ],
)
def test_no_sentence(install, text):
    install("a", {text: "Ein guter Satz", "A good sentence": text, **FILE})
    assert sentence(text) is None and pairs() == [*FILE.items()]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  Open a file: \n", "Open a file:"),
        ("Terminé.  Quitter\u00a0?", "Terminé. Quitter ?"),
        ("Help & support, 7 files", "Help & support, 7 files"),
        ("ファイルを開く", "ファイルを開く"),  # no spaces, and more than a word
        ("เปิดแฟ้ม", "เปิดแฟ้ม"),
    ],
)
def test_a_sentence(text, plain):
    assert sentence(text) == plain


def test_untranslated_texts_and_names_of_countries_are_left_out(install):
    install("a", {"Mozilla Firefox": "Mozilla Firefox", **FILE})
    install("iso_3166-1", {"United Kingdom": "Vereinigtes Königreich"})
    assert pairs() == [*FILE.items()]


def test_of_several_translations_the_most_frequent_then_the_smallest(install):
    """Whichever catalogue is read first."""
    install("a", {"Close the window": "Zu damit", "Open a file": "Datei öffnen"})
    install("b", {"Close the window": "Fenster zu", "Open a file": "Auf damit"})
    install("c", {"Close  the window": "Zu damit"}, place=1)
    assert pairs() == [("Close the window", "Zu damit"), ("Open a file", "Auf damit")]


def test_both_directions(install):
    install("a", {"Open a file": "Datei öffnen", "Open this file": "Datei öffnen"})
    install("a", {"Open a file": "Abrir um arquivo"}, "pt_BR")
    assert pairs("en-de") == [("Open a file", "Datei öffnen"), ("Open this file", "Datei öffnen")]
    assert pairs("de-en") == [("Datei öffnen", "Open a file")]
    assert pairs("pt_BR-en") == [("Abrir um arquivo", "Open a file")]


# --- splits ---------------------------------------------------------------------------------------


def test_no_source_is_in_two_splits_whatever_its_case_spaces_and_end(install):
    ends = ("", ":", "…", "...", " !")
    sources = [f"{word} file {i}{end}" for i in range(60) for word in ("Open a", "open A") for end in ends]
    install("a", {source: f"Eine Datei Nummer {i}" for i, source in enumerate(sources)})
    forget()
    config = make_config("model=pair", "corpus=gettext", "corpus.splits=[0.5,0.25,0.25]")
    corpus = open_corpus(config.corpus, config.model)
    numbers = []
    for split in corpus.splits.values():
        assert isinstance(split, Paired)
        texts = [corpus.tokenizer.decode(pair.source) for pair in split.pairs.held_out]
        numbers.append({text.split()[3].strip(":…. !") for text in texts})
        assert len(texts) == len({*texts}) == 10 * len(numbers[-1]) > 0  # all spellings of each
    assert sum(map(len, numbers)) == len(set.union(*numbers)) == 60


# --- from the command line ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "words"),
    [
        ("en-xx", ("corpus.direction=en-xx", "no catalogue in xx", "choices: de, pt_BR")),
        ("de-pt_BR", ("corpus.direction=de-pt_BR", "English", "en-LANGUAGE", "choices: de, pt_BR")),
        ("en-", ("corpus.direction=en-", "English", "choices: de, pt_BR")),
        ("de", ("corpus.direction=de", "English", "choices: de, pt_BR")),
        ("en-../de", ("no catalogue in ../de",)),
        ("pt_BR-en", ("no pairs in the 1 catalogue of pt_BR", "another language")),
    ],
)
def test_bad_input_is_one_line(install, tmp_path, direction, words):
    install("a", FILE)
    install("a", {"File": "Arquivo"}, "pt_BR")
    install("iso_639", FILE, "fr")  # a language of names only is no choice
    line = refusal("run", "model=pair", "corpus=gettext", f"corpus.direction={direction}", cwd=tmp_path)
    assert all(word in line for word in words), line


def test_without_catalogues_a_line_names_a_package():
    with pytest.raises(CorpusError, match=r"corpus=gettext: no catalogues.*vlc-l10n, or take corpus=numbers"):
        pairs()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["pair", "prefix"])
def test_a_run(install, tmp_path, caplog, model):
    install("a", {f"The number {i} of many": f"Die Nummer {i} von vielen" for i in range(200)})
    install("broken", b"")
    small = ("train.steps=3", "train.eval_every=3", "train.batch=4", "model.d_model=16", "model.layers=1")
    done = call_cli("run", f"model={model}", "corpus=gettext", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert caplog.text.count("skipped as damaged or not in UTF-8: 1 of 2 catalogues in de") == 1
