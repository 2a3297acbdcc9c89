"""Which seam an idea fits, with the examples of docs/plugins.md; how a method becomes built in."""

import re
from pathlib import Path

import pytest

from tests.helpers import QUICK, ROOT, but, call_cli, refusal

PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
EXAMPLES = dict(
    zip(
        ("gate", "exclusive", "differential"),
        re.findall("```python\nclass Mine.*?\n(.*?)```", PAGE, re.S),
        strict=True,
    )
)
KINDS = {"gate": "fusion", "exclusive": "fusion", "differential": "scores"}


def write(kind: str, example: str, cwd: Path) -> None:
    """mine.py as `ablate new` writes it, with the definitions of an example in place of its own."""
    assert call_cli("new", kind, "mine", cwd=cwd).returncode == 0
    text = (cwd / "mine.py").read_text().replace("HeadShape, Options", "HeadShape, Linear, Options")
    for function in re.findall(r"    def (\w+)", example):
        own = rf"(    @classmethod\n)?    def {function}\(.*?(?=\n    (?:@|def |# )|\Z)"
        text = re.sub(own, "", text, flags=re.S)
    (cwd / "mine.py").write_text(f"{text.rstrip()}\n\n{example}")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_smallest_example_of_each_seam_passes(name, tmp_path):
    write(KINDS[name], EXAMPLES[name], tmp_path)
    done = call_cli("check", "mine.py", cwd=tmp_path)
    assert done.returncode == 0 and "hold" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("name", ["a-b", "3d", "Ä", "taken"])
def test_what_is_no_name_or_is_there_is_refused(name, tmp_path):
    (tmp_path / "taken.py").touch()
    assert f"{name}" in refusal("new", "fusion", name, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.py"]


MORE = """
    reads_more = True

    def forward(self, q_BHTK, k_BHSK, v_BHSV, mask, dropout):
        return self.probabilities(q_BHTK, k_BHSK, mask) @ v_BHSV + v_BHSV
"""


@pytest.mark.slow
def test_probes_abstain_where_patterns_do_not_say_all(tmp_path):
    """A rule that adds the token's own value: its losses count, and its patterns are not what it reads."""
    write("scores", MORE, tmp_path)
    assert call_cli("check", "mine.py", cwd=tmp_path).returncode == 0
    words = ("--plugin", "mine.py", "scores=mine", *but(QUICK[:4], "corpus.characters=20000"), "name=m")
    done = call_cli("run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    probed = call_cli("probe", "m", "--plugin", "mine.py", cwd=tmp_path)
    assert probed.returncode == 0, probed.stderr
    assert "scores=mine reads more than its patterns, so probes of these abstain" in probed.stderr
    values = (tmp_path / "runs/studies/m/probes.csv").read_text()
    assert "loss_added" in values and not re.search("entropy|distance|previous|jsd|induction", values)
