"""`ablate corpus`: what can be trained on, and what is known of it beforehand."""

import hashlib
import json
import math
import random
import re
import string

import pytest

from ablate.compose.configs import configs_dir
from tests.helpers import forget

pytestmark = pytest.mark.usefixtures("root")

SMALL = ("corpus.tokenizer=char", "model.context=16", "train.steps=50", "train.batch=8")


@pytest.fixture
def shown(command):
    """`ablate corpus show …`: the lines of its output, and the cells of its table by split."""

    def shown(*arguments: str) -> tuple[list[str], dict[str, list[str]]]:
        forget()
        code, out, err = command("corpus", "show", *arguments)
        assert code == 0 and (not err or err.startswith("a text that repeats itself: 20.0 %"))
        _, table, *_ = out.split("\n\n")
        rows = [re.split(r"\s{2,}", line) for line in table.splitlines()[1:]]
        return out.splitlines(), {name: cells for name, *cells in rows}

    return shown


# --- list -----------------------------------------------------------------------------------------


def test_every_corpus_is_listed_with_how_it_is_read(command):
    code, out, _ = command("corpus", "list", "--format", "json")
    rows = {row["name"]: row for row in json.loads(out)["rows"]}
    assert code == 0 and [*rows] == sorted(path.stem for path in (configs_dir() / "corpus").glob("*.yaml"))
    assert all(row["consists of"] for row in rows.values())
    kinds = [rows[name]["kind"] for name in ("copy", "mqar", "pairs", "docs")]
    assert kinds == ["task, pairs", "task", "pairs", "text"]
    assert rows["docs"]["consists of"] == "Help topics and docstrings of Python's standard library"
    assert rows["text8"]["consists of"].startswith("100 million characters of Wikipedia")


# --- show -----------------------------------------------------------------------------------------


def test_a_text_by_hand(shown, tmp_path):
    """8,000 characters of training, 1,000 of validation with 200 of them, and 1,000 of test with 100 others
    and 50 of validation."""
    letters = random.Random(0)

    def drawn(count: int) -> str:
        return "".join(letters.choices(string.ascii_letters, k=count))

    train = "one\tline\n\n\x1b two\n" + drawn(8000 - 16)
    validation = f"<{train[100:300]}>{drawn(798)}"
    test = f"<{train[1000:1100]}>({validation[500:550]}){drawn(846)}"
    assert [*map(len, (train, validation, test))] == [8000, 1000, 1000]
    text = train + validation + test
    (tmp_path / "my text.txt").write_text(text, newline="")
    lines, table = shown("my text.txt", *SMALL)
    vocabulary = len({*text})
    assert re.fullmatch(r"counting    n-grams of \d+ tokens?", lines.pop(4))
    assert lines[:5] == [
        "corpus      my text.txt",
        f"vocabulary  {vocabulary} tokens, ln {vocabulary} = {math.log(vocabulary):.4f}",
        "epochs      0.80, 50 steps of 128 tokens",  # 6,400 of 7,999
        "documents   1",
        f"sha256      {hashlib.sha256(text.encode()).hexdigest()}",
    ]
    sizes = {name: cells[:2] for name, cells in table.items()}
    assert sizes == {"train": ["8,000"] * 2, "validation": ["1,000"] * 2, "test": ["1,000"] * 2}
    assert table["validation"][2] == "20.00 %" and table["test"][2:4] == ["10.00 %", "5.00 %"]
    for split, new in (("validation", 0.8), ("test", 0.9)):  # the share that training does not have
        loss, bits = map(float, table[split][-2:])
        assert new * math.log(52) < loss < math.log(vocabulary)
        assert bits == pytest.approx(loss / math.log(2), abs=2e-4)  # a letter is a byte
    assert lines[lines.index("train") + 1 : lines.index("validation") - 1] == [
        "  one\\u0009line",
        "  \\u001b two",
        f"  {train[16 : 16 + 80]}",
    ]


@pytest.mark.slow
def test_rows_of_a_task_and_pairs(shown):
    lines, table = shown("copy", *SMALL[1:])
    assert lines[2] == "epochs      nothing is repeated, 50 steps of 128 tokens"
    assert table == {
        "train": ["endless", "endless"],
        "validation": ["1,000", "16,000"],
        "test": ["1,000", "16,000"],
    }
    row, answer = lines[-2:]
    words = row.split()
    assert answer == f"  → {' '.join(words[:8])}" and words[8:] == ["0", *words[:7]]
    lines, table = shown("copy", "model=pair")
    assert table["train"] == ["endless", "endless"] and table["test"][0] == "1,000"
    first = lines.index("train") + 1
    assert [line.startswith("  → ") for line in lines[first : first + 6]] == [False, True] * 3
