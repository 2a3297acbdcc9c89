"""Odd files: tables, texts and configs as they come out of other programs, accidents and bad days."""

import bz2
import csv
import gzip
import io
import os
import random
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ablate.store.columns import COLUMNS
from benchmarks.odd.trial import RESULTS, SMALL, STUDY, Case, Maker, holding
from benchmarks.odd.words import ODD, apart

# --- bytes --------------------------------------------------------------------------------------

ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037")


def spoilt(draw: random.Random, data: bytes) -> bytes:
    """The bytes cut, doubled, packed, in another encoding, or with a few of them changed."""
    at = draw.randrange(len(data) + 1)
    few = bytearray(data)
    for _ in range(draw.choice((1, 1, 5, 50))):
        few[draw.randrange(len(few))] = draw.randrange(256)
    text = data.decode(errors="replace")
    others = (text.encode(encoding, errors="replace") for encoding in ENCODINGS)
    return draw.choice(
        (
            *(b"", data[:at], data[:at], data[at:], data + data, data + data[:at], bytes(few)),
            *(data[:at] + b"\0" + data[at:], data[:at] + b"\xff" + data[at:], draw.randbytes(3000)),
            *(text.replace("e", "é").encode("latin-1", errors="replace"), data.replace(b"\n", b"\r\n")),
            *(data.replace(b"\n", b"\r"), data.replace(b"\n", b""), data.replace(b"\n", b"\n\n"), *others),
            *(gzip.compress(data, mtime=0), bz2.compress(data), zlib.compress(data), b"\n" * 500, b" " * 500),
            *(b"<!DOCTYPE html><html>404</html>", b'{"rows": []}', b"%PDF-1.4\n", b"\x7fELF\x02"),
        )
    )


def no_file(draw: random.Random) -> Maker:
    """What is no regular file."""
    targets = ("nowhere", ".", "..", "/dev/zero", "/dev/null")
    links = (partial(Path.symlink_to, target=target) for target in targets)
    return draw.choice((os.mkfifo, Path.mkdir, *links, lambda path: path.symlink_to(path.name)))


# --- tables -------------------------------------------------------------------------------------

Table = list[list[str]]  # of cells, the names of the columns first
LOOKED_AT = {"run_id", "study", "status", "fusion", "heads", "out_proj", "seed", "val_loss"}


def spoilt_table(draw: random.Random) -> str:
    """RESULTS as CSV, with one to four things wrong with it."""
    table: Table = [*csv.reader(io.StringIO(RESULTS))]
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        table = _with_odd_columns(draw, table)
    if draw.random() < 0.5:
        table = _with_odd_rows(draw, table)
    text = io.StringIO(newline="")
    separator = draw.choice((",", ",", ",", ",", ";", "\t", "|", " "))
    ends = draw.choice(("\n", "\n", "\n", "\r\n", "\r"))
    quoting = draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    csv.writer(text, delimiter=separator, lineterminator=ends, quoting=quoting).writerows(table)
    return text.getvalue()


def _with_odd_columns(draw: random.Random, table: Table) -> Table:
    """It stays a rectangle."""
    (names, *rows), at, word = table, _column(draw, table), draw.choice(ODD)
    match draw.choice(("without", "twice", "renamed", "of one value", "cells", "cells", "turned")):
        case "without":
            return [row[:at] + row[at + 1 :] for row in table]
        case "twice":
            return [[*row, row[at]] for row in table]
        case "renamed":
            name = draw.choice((*COLUMNS, *ODD, names[at].upper(), f" {names[at]}"))
            return [[*names[:at], name, *names[at + 1 :]], *rows]
        case "of one value":
            return [names, *([*row[:at], word, *row[at + 1 :]] for row in rows)]
        case "turned":
            return [[*column] for column in zip(*table, strict=True)]
    table = [[*row] for row in table]
    for _ in range(draw.choice((1, 1, 3, 9))):
        draw.choice(table)[_column(draw, table)] = draw.choice(ODD)
    return table


def _with_odd_rows(draw: random.Random, table: Table) -> Table:
    place = draw.randrange(len(table))
    match draw.choice(("of another width", "twice", "pasted together", "few")):
        case "of another width":
            row = table[place]
            other = draw.choice((row[:1], row[:-3], [*row, "x"], [*row, *row], [], [""], ["# a comment"]))
            return [*table[:place], other, *table[place + 1 :]]
        case "twice":
            return [*table, *table[place:]]
        case "pasted together":  # two files, the second perhaps with its columns in another order
            order = [*range(len(table[0]))]
            if draw.random() < 0.5:
                draw.shuffle(order)
            return table + [[row[at] for at in order] for row in table]
    return table[draw.choice((0, 1)) : draw.choice((0, 1, 2, 3))]


def _column(draw: random.Random, table: Table) -> int:
    """Any, but often one that every command looks at."""
    looked_at = [at for at, name in enumerate(table[0]) if name in LOOKED_AT]
    return draw.choice(looked_at) if looked_at and draw.random() < 0.6 else draw.randrange(len(table[0]))


READING_A_TABLE = apart(
    """
    compare table.csv  compare table.csv  compare table.csv whole.csv
    compare table.csv --by fusion,heads --mixed  compare table.csv --where heads=4
    compare table.csv --format csv  plan table.csv  report table.csv
    """
)


def table(draw: random.Random) -> Case:
    content = spoilt_table(draw) if draw.random() < 0.65 else spoilt(draw, RESULTS.encode())
    made = holding(content) if draw.random() < 0.95 else no_file(draw)
    argv = draw.choice(READING_A_TABLE).split()
    return Case(tuple(argv), files={"table.csv": made, "whole.csv": holding(RESULTS)})


# --- texts --------------------------------------------------------------------------------------

SENTENCES = "The cat sat on the mat; the dog did not.\nDer Bär läuft über die Straße. 日本語も。\n" * 30
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "one letter": b"a",
    "one letter again and again": b"a" * 5000,
    "two letters": b"ab" * 3000,
    "line ends": b"\n" * 5000,
    "a byte order mark": b"\xef\xbb\xbf",
    "a long line": b"word " * 250_000,
    "one word": b"x" * 1_200_000,
    "many letters": "".join(map(chr, range(0x4E00, 0x9000))).encode() * 3,
    "a bad byte at the border of a block": b"a\n" * (1 << 19) + b"\xff" + b"a\n" * 5000,
    "a letter over the border of a block": b"a" * ((1 << 20) - 1) + "é".encode() + b"a\n" * 5000,
    "surrogates": "\ud800 and \udfff\n".encode(errors="surrogatepass") * 500,
    "control characters": bytes(range(1, 32)) * 200,
    "escapes": b"\x1b[31mred\x1b[0m\x07\n" * 300,
    "joined letters": "👩‍👩‍👧‍👦 e\u0301 ﬀ \u202e right to left\n".encode() * 200,
    "short": b"To be, or not to be.",
}
NAMES = (
    *apart("""
    text  a b.txt  -.txt  --help  -  '  "  a,b  a=b  [a]  a*  ?  $x  #a  日本語  ~  ~nobody  .hidden  text.gz
    text.zip  a{b}  a\\b  %s
    """),
    *("text", "text", "a\nb", "\udcff.txt", "x" * 200),
)


def text(draw: random.Random) -> Case:
    data = draw.choice([*CONTENTS.values()]) if draw.random() < 0.5 else spoilt(draw, SENTENCES.encode())
    name = draw.choice(NAMES)
    files: dict[str, Maker] = {name: holding(data)}
    path, piped = draw.choice((name, name, name, f'"{name}"', f"'{name}'", f"./{name}", f"{name}*", "*")), b""
    match draw.randrange(6):
        case 0:
            path, piped, files = "-", data, {}
        case 1:
            path, files = "texts", _directory(draw, data)
        case 2 if draw.random() < 0.5:
            path, files = "text", {"text": no_file(draw)}
    words = ["corpus=file", f"corpus.path={path}", f"corpus.tokenizer={draw.choice(('char', 'byte', 'bpe'))}"]
    words += ["corpus.bpe_vocab=300"] * draw.choice((0, 1))
    words += draw.choice(([], [], ["corpus.errors=replace"], ["corpus.errors=ignore"]))
    encodings = apart("latin-1  utf-16  utf-32  cp037  rot13  base64  idna  utf-7  unicode_escape  nix")
    words += [f"corpus.encoding={draw.choice(encodings)}"] * (draw.random() < 0.3)
    return Case(("run", *words, *SMALL, *draw.choice(((), (), ("--dry-run",)))), piped, files)


def _directory(draw: random.Random, data: bytes) -> dict[str, Maker]:
    files: dict[str, Maker] = {"texts": lambda path: path.mkdir(exist_ok=True)}
    names = ("a.txt", "b/c.txt", ".hidden", ".git/x", "a.bin", "b/d/e/f.md")
    for name in draw.sample(names, draw.randrange(4)):
        files[f"texts/{name}"] = holding(draw.choice((data, b"some more of it\n" * 50)))
    for name in draw.sample(("loop", "b/loop", "pipe"), draw.randrange(3)):
        files[f"texts/{name}"] = no_file(draw)
    return files


# --- configs ------------------------------------------------------------------------------------

KEYS = apart("kind  question  factors  seeds  where  primary  metric  margin  tune  develop  arms  nix")
YAML = (
    *apart("""
    null  []  {}  [[]]  3  -1  1.5  .nan  .inf  1e400  true  'a'  [0, 0]  [a, b]  [1, [2]]  {a: b}
    {heads: []}  {heads: 4}  {heads: [4, 4]}  {heads: [4, x]}  {nix: [1]}  {fusion: [concat, nix]}
    {model: [tiny, nano]}  {seed: [0, 1]}  {study: [a]}  {1: [2]}  {'': [2]}  {null: [2]}  {heads: {a: 1}}
    {hydra.mode: [RUN]}  {heads: [null]}  {name: [a, b]}  val_loss  run_id  ${seed}  ${nix}  ${  2020-01-01
    0x10  1_000  !!binary aGk=  !!set {a, b}  &a [*a]  !!python/object/apply:os.system ['touch x']
    [heads <= 4]  ['heads <']  ['1/0']  ['nix == 1']  ['heads.real']  ['__import__(1)']  ['9//heads == 2.0']
    ['heads == heads == 2']  ['"a" < 1']  ['fusion in [1, concat]']  [{}]  [{vary: fusion}]
    [{baseline: concat}]  [{vary: nix, baseline: 1}]  [{vary: fusion, baseline: nix}]
    [{vary: fusion, baseline: concat, where: {heads: 3}}]  [{vary: 1, baseline: 2}]
    [{vary: [a], baseline: b}]  [{baseline: {fusion: concat}}]
    [{vary: fusion, baseline: concat, where: {heads: [2, 4]}}]  [null]  [a]  [a - b]  [b - a]  [a - a]
    [a - b - c]  [' - ']  {a: {fusion: sum}, b: {heads: 2}}  {a: {fusion: sum, fusion.order: nix}, b: {}}
    """),
    *("", "['" + "(" * 300 + "1" + ")" * 300 + "']", "['" + "not " * 3000 + "1']"),
)

OF_A_CONFIG = apart(
    """
    defaults: [config, _self_]  defaults: []  defaults: [nix]  defaults: [mine]  defaults: 3  heads: 2  nix: 1
    defaults: [{fusion: nix}]  defaults: [config, {override fusion: sum}]  hydra: {mode: MULTIRUN}
    hydra: {mode: x}  hydra: 3  study: {kind: grid}  fusion: sum  name: [a]
    """
)


def config(draw: random.Random) -> Case:
    """A study of one's own, or the directory that it lies in."""
    files: dict[str, Maker] = {"own/study/deep.yaml": holding(_study(draw))}
    argv = ["run", "-cd", "own", "study=deep", *SMALL, "--dry-run"]
    match draw.randrange(10):
        case 0:
            files = {"own": draw.choice((no_file(draw), holding(b"x")))}
        case 1:
            files = {"own/study": draw.choice((no_file(draw), holding(b"x")))}
        case 2:
            group = draw.choice(apart("fusion  model  train  corpus  hydra/launcher  hydra/sweeper  study"))
            name = draw.choice(("odd", "concat", "tiny", "a b", "日本語"))
            value = draw.choice(YAML)
            content = draw.choice((f"name: {value}", f"x: {value}", value, STUDY))
            files = {f"own/{group}/{name}.yaml": holding(content)}
            argv[3] = f"{group}={name}"
        case 3:
            lines = draw.sample(OF_A_CONFIG, draw.randrange(1, 4))
            files = {"own/mine.yaml": holding("\n".join(lines))}
            argv[3:4] = ["-cn", "mine"]
    return Case(tuple(argv), files=files)


def _study(draw: random.Random) -> str | bytes:
    if draw.random() < 0.25:
        return spoilt(draw, STUDY.encode())
    if draw.random() < 0.15:
        return draw.choice((*YAML, "study:\n\tkind: grid", "study: {kind: nix}", "- a\n- b", "a: b: c", *ODD))
    lines: list[str] = STUDY.splitlines()
    for _ in range(draw.choice((1, 1, 2))):
        at = draw.randrange(len(lines))
        match draw.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[draw.randrange(len(lines))])
            case _:
                lines.insert(3, f"  {draw.choice(KEYS)}: {draw.choice(YAML)}")
                key = lines[3].partition(":")[0] + ":"
                lines[4:] = [line for line in lines[4:] if not line.startswith(key)]
    return "\n".join(lines) + "\n"


def odd_file(draw: random.Random) -> Case:
    make: Callable[[random.Random], Case] = draw.choices((table, text, config), (5, 4, 3))[0]
    return make(draw)
