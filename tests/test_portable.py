"""Names of other systems, and other encodings than UTF-8."""

import json
import os
import subprocess
import sys

import pytest

from ablate.store.store import Store
from tests.helpers import QUICK

# --- encodings -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_are_utf_8(tmp_path):
    """In the C locale, with every encoding that is left open an error."""
    text = "ἄνδρα μοι ἔννεπε, μοῦσα, πολύτροπον — naïve Σ √ 😀\n" * 120
    (tmp_path / "odyssey.txt").write_text(text, encoding="utf-8", newline="\r\n")
    texts = ("corpus=file", "corpus.path=odyssey.txt", "corpus.unique=none", "corpus.tokenizer=char")
    sweep = ("run", "-m", "fusion=concat,sum", "seed=0,1", *texts, *QUICK[2:4], "hydra.launcher.workers=1")
    strict = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
    own = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "cp1252"}
    argv = [sys.executable, *strict, "-m", "ablate", *sweep]
    done = subprocess.run(argv, cwd=tmp_path, env=os.environ | own, capture_output=True, timeout=100)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr.decode()
    runs = Store(tmp_path / "runs").finished()
    assert len(runs) == 4
    for run in runs:
        at = tmp_path / "runs" / "store" / run
        tokenizer = json.loads((at / "tokenizer.json").read_text(encoding="utf-8"))
        assert {"ἔ", "😀", "\r"} <= {*"".join(map(str, tokenizer.values()))}
        assert b"\r" not in (at / "metrics.csv").read_bytes()
