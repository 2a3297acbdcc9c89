"""The command line, as a shell starts it."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from hydra.errors import MissingConfigException

from ablate.cli.app import COMMANDS, GROUPS
from ablate.compose.refusals import OPTIONS, explain
from ablate.store.columns import COLUMNS, METRICS_COLUMNS
from ablate.store.store import Store
from tests.helpers import HANGING_S, LONG, ROOT, SIMULATED, but, call_cli, fork_cli

QUICK = ("corpus=grammar", "corpus.characters=20000", "train.steps=6", "train.batch=2", "train.eval_every=3")


def one_line(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1 and "Traceback" not in text, text
    return lines[0]


# --- wrong input: one clear line, exit code 2, nothing trained, nothing left behind ---------------------

WRONG = [
    (["fusion=cat"], ["fusion=cat", "did you mean concat?", "weighted_sum"]),
    (["train.lrr=3"], ["train.lrr", "did you mean train.lr?"]),
    (["+foo=1"], ["+foo=1: no key is added or removed; type foo=1"]),
    (["--dryrun"], ["--dryrun: no such option; did you mean --dry-run?"]),
    (["--track", "mlflow", "--track=trackio"], ["--track --track=trackio: it takes one value; give it once"]),
    (["--steps", "60"], ["--steps: a key has no dashes; write train.steps=VALUE"]),
    (["train.lr=0,003"], ["several values make a sweep, so add -m"]),
    (["-m", "heads=4,5", "corpus=grammar"], ["heads=5", "heads=4 or heads=8"]),
    (["corpus=file", "corpus.path=x(1).txt"], ["""'corpus.path="x(1).txt"'"""]),
    (["corpus=file", "corpus.path=latin.txt"], ["latin.txt: no utf-8 text", "corpus.encoding"]),
    (["device=cuda:99"], ["device=cuda:99", "device=auto"]),
    (["hydra/launcher=slum"], ["hydra/launcher=slum"]),
    (["study=fusion", "heads=1,2", "--cfg", "job"], ["heads=1,2", "give one value"]),
    (["heads=???"], ["Missing mandatory value: heads"]),
    (["-m", "model.d_model=64,1000000", "corpus=grammar"], ["d_model=1000000", "GB to train", "a smaller"]),
    (["-cd", ".", "train=few"], ["train.batch: this key is missing; a config of your own has to begin"]),
    (["-m", "fusion=concat,lowrank", *QUICK[:1]], ["lowrank.py is here; add --plugin lowrank.py"]),
    (["-m", "seed=0,1", "name=x_${seed}"], ["x_${seed}: a name is of all runs of a command; write it out"]),
]
FILES = {"latin.txt": b"plain\xe9", "train/few.yaml": b"steps: 20", "lowrank.py": b""}


@pytest.mark.slow
@pytest.mark.parametrize("arguments, parts", WRONG, ids=lambda case: " ".join(case)[:40])
def test_wrong_input_is_one_line_and_exit_code_2(arguments, parts, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    done = call_cli("run", *arguments, cwd=tmp_path)
    line = one_line(done.stderr)
    assert done.returncode == 2 and line.startswith("ablate: ")
    assert all(part in line for part in parts), line
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert done.stdout == "" and left == FILES.keys()


def test_options_that_are_proposed_are_those_of_the_command(command):
    there = {*re.findall(r"(--[a-z-]+)", command("run", "--help-all")[1])}
    assert there | {"--help-all"} == {*OPTIONS, "--cfg"}


@pytest.mark.slow
def test_a_sweep_whose_progress_nobody_reads_goes_on(tmp_path):
    words = ("run", "-m", *SIMULATED, "fusion=concat,sum", "seed=0,1", "name=unread", "hydra/launcher=basic")
    command = shlex.join([sys.executable, "-m", "ablate", *words])
    first = subprocess.run(
        ["bash", "-c", f"{command} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        timeout=HANGING_S,
    )
    assert first.returncode == 0 and first.stdout.count(b"\n") == 1
    assert [row["status"] for row in Store(tmp_path / "runs").rows("unread")] == ["done"] * 4


@pytest.mark.parametrize(
    "name, package", [("joblib", "hydra-joblib-launcher"), ("submitit_slurm", "'ablate-heads[slurm]'")]
)
def test_a_launcher_to_install_is_named(name, package):
    error = MissingConfigException("", f"hydra/launcher/{name}", ["basic"])
    assert explain(error) == f"hydra/launcher={name} is not installed; pip install {package}"


def commands_of_help(text: str) -> list[str]:
    """The commands that a help lists."""
    titles = "|".join(["Commands", *GROUPS])
    listed = re.findall(rf"(?m)^(?:{titles}):\n((?:  .*\n)+)", text)
    return re.findall(r"(?m)^  (\w+)", "".join(listed))


def test_every_help_is_whole_at_80_columns_and_shows_an_example(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    paths = [[], *([name] for name in COMMANDS)]
    for path in paths:  # which grows
        code, shown, _ = command(*path, "--help")
        assert code == 0 and max(map(len, shown.splitlines())) <= 80 and shown.count("\n") <= 40
        assert "…" not in shown and not re.search(r"\w\.\.\.$", shown, re.MULTILINE)
        assert re.search(rf"(?m)^ +(?:Example: )?ablate {' '.join(path)}", shown), shown
        paths += [[*path, name] for name in commands_of_help(shown) if path]
    assert ["corpus", "list"] in paths
    assert {*commands_of_help(command("--help")[1])} == {*COMMANDS}
    assert "docs/tour.md" in command("--help")[1]


@pytest.mark.parametrize("path", ["", *COMMANDS, "corpus show"])
def test_help_says_how_many_options_it_leaves_out_and_help_all_shows_them(path, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (_, few, _), (code, every, _) = (command(*path.split(), word) for word in ("--help", "--help-all"))
    options = [{*re.findall(r"(?m)^  (-[-\w]+)", shown)} for shown in (few, every)]
    told = re.search(rf"(\d+) more options?: {f'ablate {path}'.strip()} --help-all", few)
    assert code == 0 and "--help-all" not in every
    assert options[0] <= options[1] and len(options[1] - options[0]) == int(told[1] if told else 0)


@pytest.mark.parametrize(
    "arguments, parts",
    [
        ("rnus", ["rnus", "'runs'"]),
        ("comapre t.csv", ["no such command 'comapre'; did you mean 'compare'? see ablate --help"]),
        ("corpus copy", ["'copy'; did you mean ablate corpus show copy? see ablate corpus --help"]),
        ("sample r --tokens 0", ["--tokens 0: out of range; give 1 or more; see ablate sample --help"]),
        ("sample r --temperature 1e4", ["--temperature 1e4: out of range; give 1,000 or less; see ablate"]),
        ("duel sum mean --seeds 5", ["--seeds 5: out of range; give 6 or more; see ablate duel --help"]),
        (f"duel sum mean --seeds {10**20}", ["000: out of range; give 100,000 or less; see ablate duel"]),
        ("report", ["target", "see ablate report --help"]),
        ("compare a\rb", ["a b: no such study"]),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, parts, command):
    code, out, err = command(*arguments.split(" "))
    assert code == 2 and out == "" and one_line(err).startswith("ablate: ")
    assert all(part.lower() in err.lower() for part in parts), err


@pytest.mark.slow
def test_a_forked_command_does_what_a_started_one_does(tmp_path, start_python):
    """Nor does one in this process, on which most tests rely, differ."""
    words = ("run", "heads=5")
    process = start_python(*words, cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    for other in (fork_cli, call_cli):
        done = other(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (process.returncode, out, err)


# --- what works --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    cwd = tmp_path_factory.mktemp("swept")
    sweep = ("-m", "fusion=concat,sum", "out_proj=true,false", "seed=0,1", *QUICK)
    return cwd, call_cli("run", *sweep, cwd=cwd)


@pytest.mark.slow
def test_a_sweep_ends_with_a_table_and_a_csv_and_its_runs_are_not_run_again(swept):
    cwd, done = swept
    assert done.returncode == 0, done.stderr
    table, _, path = done.stdout.rpartition("\n\n")
    assert len(table.splitlines()) == 1 + 4  # a row a variant
    assert path.startswith("8 runs in runs/studies/sweep-")
    rows = pd.read_csv(cwd / path.split()[-1])
    assert list(rows.columns) == list(COLUMNS) and len(rows) == 8
    assert rows["status"].eq("done").all() and rows["run_id"].is_monotonic_increasing
    assert rows.groupby(["fusion", "out_proj"]).size().tolist() == [2, 2, 2, 2]
    widths = rows.set_index(["fusion", "out_proj"])["value_width"].to_dict()
    assert widths == {("concat", True): 16, ("concat", False): 16, ("sum", True): 16, ("sum", False): 64}
    assert rows.groupby("fusion")["form"].unique().map(list).to_dict() == {
        "concat": ["concat"],
        "sum": ["sum normalize=none"],
    }
    assert sum(line.startswith("[") for line in done.stderr.splitlines()) == 8  # a quiet line a run
    assert sorted(path.name for path in cwd.iterdir()) == ["runs"]  # Hydra leaves nothing of its own
    assert sorted(path.name for path in (cwd / "runs").iterdir()) == ["results.csv", "store", "studies"]
    before = {path: path.stat().st_mtime_ns for path in (cwd / "runs" / "store").rglob("*")}
    again = call_cli("run", "-m", "fusion=concat,sum", "seed=1", *QUICK, cwd=cwd)
    assert again.returncode == 0 and "2 of 2 runs had finished before" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in (cwd / "runs" / "store").rglob("*")} == before


@pytest.mark.slow
def test_runs_and_sample(swept):
    cwd, _ = swept
    listed = json.loads(call_cli("runs", "--format", "json", cwd=cwd).stdout)["rows"]
    assert {row["status"] for row in listed} == {"done"} and len(listed) == 8
    run = listed[0]["run_id"]
    texts = [
        call_cli("sample", run, "--prompt", "the ", "--tokens", "23", "--seed", seed, cwd=cwd).stdout
        for seed in ("1", "1", "2")
    ]
    assert texts[0] == texts[1] != texts[2] and all(text.startswith("the ") for text in texts)
    assert len(texts[0]) == len("the ") + 23 + 1
    greedy = [
        call_cli("sample", run, "--temperature", "0", "--seed", seed, cwd=cwd).stdout for seed in ("1", "2")
    ]
    assert greedy[0] == greedy[1]
    unknown = call_cli("sample", run, "--prompt", "Ω", cwd=cwd)
    assert unknown.returncode == 2 and "U+03A9" in one_line(unknown.stderr)
    missing = call_cli("sample", "zzz", cwd=cwd)
    assert missing.returncode == 2 and "ablate runs" in one_line(missing.stderr)


@pytest.mark.slow
def test_a_single_run_keeps_its_files_and_its_weights(tmp_path):
    (tmp_path / "my text.txt").write_text("to be, or not to be; " * 500)
    overrides = ("corpus=file", 'corpus.path="my text.txt"', "fusion=weighted_sum", *QUICK[2:], "name=mine")
    overrides += ("corpus.tokenizer=char",)
    done = call_cli("run", *overrides, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs" / "store").glob("[!.]*")
    assert {path.name for path in run.iterdir()} == {
        *("config.yaml", "metrics.csv", "result.json", "model.safetensors", "environment.json"),
        *("log.txt", "tokenizer.json"),
    }
    metrics = pd.read_csv(run / "metrics.csv")
    assert tuple(metrics.columns) == METRICS_COLUMNS and metrics["step"].tolist() == [0, 3, 6]
    (row,) = pd.read_csv(tmp_path / "runs" / "studies" / "mine" / "results.csv").to_dict("records")
    weights = json.loads(row["fusion_weights"])
    assert len(weights) == 2 and all(len(layer) == 4 and layer != [1, 1, 1, 1] for layer in weights)
    assert row["val_loss"] == metrics["val_loss"].iloc[-1] and row["corpus"] == "my text.txt"
    assert row["val_bpb"] == pytest.approx(row["val_loss"] / 0.6931471805599453)  # a byte a token here


@pytest.mark.slow
def test_a_run_that_learned_nothing_says_so(tmp_path):
    run = ("run", "corpus=grammar", "corpus.characters=20000", "model.context=16", "name=high")
    done = call_cli(*run, "train.lr=10", "train.steps=30", "train.warmup=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    line = r"1 run learned nothing: val_loss up to ([\d.]+) is above ln\(vocab\) = ([\d.]+)"
    found = re.search(line, done.stderr)
    assert found and float(found[1]) > float(found[2]) and "train.lr is too high (here 10)" in done.stderr
    assert "Doubts: 1 run learned nothing" in call_cli("compare", "high", cwd=tmp_path).stdout
    assert found[0] in call_cli("compare", "high", "--why", cwd=tmp_path).stderr


@pytest.mark.slow
def test_a_diverged_run_keeps_its_row(tmp_path):
    command = ("run", "train.lr=1e30", "train.warmup=0", "train.clip=null", *QUICK)
    for _ in range(2):  # made, and found
        done = call_cli(*command, cwd=tmp_path)
        assert done.returncode == 0
        assert re.search(r"(?m)^diverged: fusion=concat heads=4.*not finite", done.stderr)
    (row,) = pd.read_csv(tmp_path / "runs" / "results.csv").to_dict("records")
    assert row["status"] == "diverged" and "not finite at step" in row["error"] and pd.isna(row["val_loss"])
    assert row["wall_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_so_and_is_listed(tmp_path, start_python, number, code):
    long = but(LONG, "train.eval_every=3")
    process = start_python("run", *long, cwd=tmp_path)
    while "step 3" not in process.stderr.readline():
        assert process.poll() is None
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode == code and "Traceback" not in errors
    (row,) = json.loads(call_cli("runs", "--format", "json", cwd=tmp_path).stdout)["rows"]
    assert row["status"] == "interrupted"
    assert pd.read_csv(tmp_path / "runs" / "results.csv")["status"].tolist() == ["interrupted"]
    again = call_cli("run", *long, "train.lr=0", cwd=tmp_path)
    assert again.returncode == 2  # the store is whole: the next command is read and answered


def completed(*words: str) -> list[str]:
    """What bash is offered after these words."""
    typed, last = "\n".join(["ablate", *words]), str(len(words))
    done = call_cli(cwd=Path(), _ABLATE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=last)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    "words, offered", [("samp", "sample"), ("runs --format j", "json"), ("compare --whe", "--where")]
)
def test_the_shell_is_offered_what_goes_on(words, offered):
    assert completed(*words.split(" ")) == offered.split()


def test_import_loads_nothing_heavy():
    heavy = "{'torch', 'hydra', 'pandas', 'altair', 'requests', 'pooch', 'pyarrow'}"
    code = "import ablate, ablate.cli.app\nimport sys\n"
    code += f"print({heavy} & {{*sys.modules}}, 'numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "set() False\n"


@pytest.mark.slow
def test_a_cell_that_cannot_begin_is_named_with_its_reason(tmp_path):
    """As on a disk that is full or a store that is broken: no silence, and no table of nothing."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "store").write_text("a file")
    for sweep in (("-m", "seed=0,1"), ("seed=0",)):
        done = call_cli("run", *sweep, *QUICK, cwd=tmp_path)
        assert done.returncode == 2 and "can't be written" in one_line(done.stderr) and done.stdout == ""
    nothing = call_cli("runs", "--format", "json", cwd=tmp_path)
    assert nothing.returncode == 0 and json.loads(nothing.stdout)["rows"] == []


# --- errors: one line, below the traceback of a real fault -----------------------------------------------


@pytest.fixture
def refused(command, monkeypatch):
    """Ends `ablate runs` with an error; returns what it said."""

    def refused(error: Exception) -> str:
        def broken(self: Store, study: str | None = None) -> None:
            raise error

        monkeypatch.setattr(Store, "by_name", broken)
        code, _, said = command("runs")
        assert code == 2
        return said

    return refused


def test_a_fault_is_a_line_below_its_traceback(refused):
    *trace, line = refused(KeyError("a\nb\x1b")).splitlines()
    assert line == r"ablate: KeyError: 'a\nb\x1b'; this is a bug in ablate"
    assert trace[0].startswith("Traceback") and any("in broken" in one for one in trace)


def test_what_the_system_refuses_is_a_line(refused):
    assert refused(OSError(28, "No space left", "x.csv")) == "ablate: x.csv: No space left\n"
