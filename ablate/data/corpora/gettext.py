"""corpus=gettext: translations from English that programs bring with them, in the catalogues (.mo) of GNU
gettext on this machine."""

import logging
import multiprocessing
import re
import struct
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from ablate.data.corpora.base import PairsRecipe, register
from ablate.data.text import CorpusError
from ablate.phrases import counted, first_few

log = logging.getLogger(__name__)

# Where catalogues lie, as LANGUAGE/LC_MESSAGES/PROGRAM.mo: beside this Python, as conda's do, where its own
# gettext looks; those installed by hand; the system's; those of Ubuntu's packages of languages.
PREFIXES = dict.fromkeys((sys.base_prefix, "/opt/homebrew", "/usr/local", "/usr"))
DIRECTORIES = [*(f"{prefix}/share/locale" for prefix in PREFIXES), "/usr/share/locale-langpack"]

BYTE_ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}  # by the first bytes of a catalogue
CHARSET = re.compile(r"charset=(?!utf-?8\b|(us-)?ascii\b)", re.IGNORECASE)  # another one than UTF-8

# What makes a text no sentence:
UNWANTED = re.compile(
    r"""
    [\x00-\x1f]    # \0 separates plurals, \4 ends a context; line breaks and tabs are layout
    | [ ]{3}       # columns, as in help texts
    | [<>] | &\S   # markup and entities: <b>, &amp;; places to fill in: <file>; a mnemonic: &File
    | [_~]         # mnemonics: _File, ~File; names of variables and files
    | [%{}$]       # format strings: %s, %(name)s, %1, {name}, $name
    | [|\\@]       # a context as older programs write it: Menu|File; an escape: \n; an address
    """,
    re.VERBOSE,
)
# The letters of scripts without spaces between words (Thai, Lao, Burmese, Khmer, Japanese, Chinese), each of
# which counts as a word.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


@register("gettext")
@dataclass(frozen=True, kw_only=True)
class Gettext(PairsRecipe):
    """Texts of programs in English and another language, each source once.

    direction: en-LANGUAGE or LANGUAGE-en; LANGUAGE is the name of a directory, as in en-pt_BR. Of several
    translations of a source the most frequent is taken, and of equally frequent ones the first by alphabet.
    The pairs differ by machine, with what is installed; the column corpus_sha256 tells.
    """

    direction: str

    def pairs(self) -> list[tuple[str, str]]:
        language, files = self._catalogues()
        counts: Counter[tuple[str, str]] = Counter()
        skipped = []
        for file in files:
            try:
                translations = entries(file.read_bytes())
            except (OSError, ValueError):
                skipped.append(file)
                continue
            for pair in translations:
                english, other = map(sentence, pair)
                if english and other and english != other:  # those that are equal were left untranslated
                    counts[(english, other) if self.direction.startswith("en-") else (other, english)] += 1
        if skipped and multiprocessing.parent_process() is None:  # else each worker would say it again
            log.warning(
                "corpus=gettext: skipped as damaged or not in UTF-8: %d of %s in %s (%s)",
                *(len(skipped), counted(len(files), "catalogue"), language, first_few(skipped)),
            )
        if not counts:
            raise CorpusError(
                f"corpus.direction={self.direction}: no pairs in the {counted(len(files), 'catalogue')} of"
                f" {language} on this machine; take another language"
            )
        target_of: dict[str, str] = {}
        for source, target in sorted(counts, key=lambda pair: (pair[0], -counts[pair], pair[1])):
            target_of.setdefault(source, target)
        return [*target_of.items()]

    def split_by(self, pair: tuple[str, str]) -> tuple[str, ...]:
        """The letters and digits of the source: "Open file" and "open  File…" are in the same split."""
        return ("".join(filter(str.isalnum, pair[0].casefold())),)

    def _catalogues(self) -> tuple[str, list[Path]]:
        """The other language and its catalogues. Raises CorpusError if there are none."""
        catalogues = installed()
        if not catalogues:
            raise CorpusError(
                "corpus=gettext: no catalogues of translations (.mo) on this machine; install a package with"
                " some, as Debian's vlc-l10n, or take corpus=numbers, or corpus=pairs with your own"
            )
        match = re.fullmatch("en-(.+)|(.+)-en", self.direction)
        language = match and (match[1] or match[2])
        if language not in catalogues:
            reason = (
                f"no catalogue in {language} on this machine" if language else "one side has to be English"
            )
            raise CorpusError(
                f"corpus.direction={self.direction}: {reason}; take en-LANGUAGE or LANGUAGE-en, choices:"
                f" {', '.join(sorted(catalogues))}"
            )
        return language, catalogues[language]


def installed() -> dict[str, list[Path]]:
    """The catalogues on this machine, by language; without those of iso-codes, which are names of countries,
    languages and currencies."""
    files = defaultdict(list)
    for directory in DIRECTORIES:
        for file in sorted(Path(directory).glob("*/LC_MESSAGES/*.mo")):
            if not file.name.startswith("iso_"):
                files[file.parts[-3]].append(file)
    return files


def entries(catalogue: bytes) -> list[tuple[str, str]]:
    """Each text of a catalogue with its translation; that of the empty text is the header. Raises ValueError
    if the catalogue is damaged or not in UTF-8.

    Python's gettext looks texts up, and gives no list of them. See: the GNU gettext manual, "MO Files".
    """
    order = BYTE_ORDERS.get(catalogue[:4])
    if order is None:
        raise ValueError("no catalogue")
    try:
        count, *tables = struct.unpack_from(f"{order}3I", catalogue, 8)
        places = [struct.unpack_from(f"{order}{2 * count}I", catalogue, table) for table in tables]
    except struct.error as error:
        raise ValueError("a table is outside the file") from error
    texts = []
    for lengths_and_starts in places:
        spans = zip(lengths_and_starts[::2], lengths_and_starts[1::2], strict=True)
        texts.append([_text(catalogue, start, start + length) for length, start in spans])
    pairs = [*zip(*texts, strict=True)]
    if any(CHARSET.search(header) for text, header in pairs if not text):
        raise ValueError("another charset")
    return pairs


def _text(catalogue: bytes, start: int, end: int) -> str:
    if end > len(catalogue):
        raise ValueError("a text is outside the file")
    return catalogue[start:end].decode()


def sentence(text: str) -> str | None:
    """The text with single spaces; None if it is no sentence, or of a single word with letters."""
    text = text.strip()
    words = UNSPACED.sub(r"\g<0> ", text).split()
    if UNWANTED.search(text) or sum(any(map(str.isalpha, word)) for word in words) < 2:
        return None
    return " ".join(text.split())
