"""From arguments to what was asked for: what is refused, in one line with a way out."""

from pathlib import Path

import pytest

from ablate.compose.asked import Sweep
from ablate.compose.hydra_app import compose
from ablate.config.rules import ConfigError
from ablate.study.run import run


def refusal(*arguments: str) -> str:
    """The one line with which `ablate run …` is refused."""
    with pytest.raises(ConfigError) as refused:
        asked = compose(arguments)
        assert asked is not None
        run(asked, dry_run=True)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    "argument, reason",
    [
        ("name=日本語", "name=日本語: it names a directory; use up to 100 of A-Z, a-z"),
        ("name=a b", "name=a b: it names a directory"),
        ("heads=4 5", "heads=4 5: expected a whole number"),
        ("corpus.splits=[1", "corpus.splits=[1: expected a list of 3 numbers"),
        ("device=日本", "device=日本: use auto, cpu"),
        ("fusion=日本", "fusion=日本: name one of configs/fusion: concat, gated"),
        ("日本=3", "日本: no such key"),
        ("=日本", "=日本: the key is missing"),
        ("+=3", "+=3: the key is missing"),
        ("corpus.path=日本", """quotes: 'corpus.path="日本"'"""),
    ],
)
def test_quotes_are_advised_only_where_they_help(argument, reason):
    assert reason in refusal(argument)


@pytest.mark.parametrize(
    "key, method",
    [("groups", "grouped"), ("weights", "head_scale or fusion=weighted_sum"), ("input", "gated")],
)
def test_an_option_of_another_method_names_that_method(key, method):
    for chosen in ((), ("fusion=sum",)):
        assert f"fusion.{key}: a key of fusion={method}; choose" in refusal(*chosen, f"fusion.{key}=2")


def test_many_values_are_no_path():
    """A path of 289 characters is refused by the system, a list of seeds by nobody."""
    assert compose(["-m", f"seed={','.join(map(str, range(100)))}"]) is not None


@pytest.mark.parametrize(
    "mistake, line",
    [
        (("name=../x",), "name=../x: it names a directory"),
        (("heads=1,x",), "heads=x: expected a whole number"),
        (("corpus=file", "corpus.path=nowhere.txt"), "corpus.path=nowhere.txt: no such file"),
    ],
)
def test_a_mistake_in_a_study_leaves_nothing_out(mistake, line):
    assert refusal("study=heads", *mistake).startswith(line)


@pytest.mark.parametrize(
    "mistake", [("haeds=1,2",), ("train.clip=${nope}",), ("-m", "corpus=1,2"), ("corpus/x=1,2",)]
)
def test_what_no_run_of_a_study_can_be_is_refused_quickly(mistake, monkeypatch):
    """Hydra is asked once, not for each of 64 runs: it needs 50 ms."""
    asked = compose(["study=heads", *mistake])
    assert isinstance(asked, Sweep)
    composed, loader = [], asked.configs._loader
    original = loader.load_sweep_config
    monkeypatch.setattr(
        loader, "load_sweep_config", lambda *given: composed.append(given) or original(*given)
    )
    with pytest.raises(ConfigError, match=r"nothing to run|'nope' not found"):
        run(asked, dry_run=True)
    assert len(composed) < 10


STUDY = """# @package _global_
study:
  kind: grid
  question: Whose?
  factors: {heads: [1, 2]}
  seeds: [0]
  primary: []
  metric: val_loss
key_width: ${heads}
"""


def with_study(directory: Path, content: str | bytes) -> tuple[str, ...]:
    """The arguments of a study in a file of one's own."""
    path = directory / "study" / "mine.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ("-cd", str(directory), "study=mine")


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_study_of_ones_own(tmp_path, mark):
    asked = compose(with_study(tmp_path, mark + STUDY))
    assert isinstance(asked, Sweep) and asked.study is not None and asked.study["question"] == "Whose?"
    widths = [asked.configs(("study=mine", f"heads={heads}")).key_width for heads in (1, 2)]
    assert widths == [1, 2]  # an interpolation follows what is swept


@pytest.mark.parametrize(
    "content, reason",
    [
        (STUDY.encode("utf-16"), "mine.yaml: no config can be read from it ('utf-8' codec"),
        ("3", "mine.yaml: no config can be read from it (Invalid loaded object type: int)"),
        ("a: &a [*a]", "mine.yaml: no config can be read from it (a config is nested too deeply"),
        ("[" * 3000, "mine.yaml: no config can be read from it (a config is nested too deeply"),
        ("a: ${", "mine.yaml: no config can be read from it (a: no viable alternative"),
        ("{null: [1]}", "mine.yaml: no config can be read from it (Incompatible key type"),
        ("# @package\n", "mine.yaml: no config can be read from it (Expected header format"),
        ("- a\n- b", "it is a list; write KEY: VALUE"),
        (f"{STUDY}\ndefaults: 3", "Invalid defaults list in 'study/mine'"),
        ("# @package _global_\ndefaults: [mine]", "a config is nested too deeply, or in itself"),
        (f"{STUDY}\ndevice: ${{device}}", "device: Recursive interpolation detected"),
        (f"{STUDY}\nhydra: {{sweeper: {{params: 3}}}}", "hydra.sweeper.params=3: write keys with values"),
        (f"{STUDY}\nhydra: {{launcher: null}}", "Hydra launcher is not configured"),
    ],
)
def test_an_odd_file_is_refused_in_one_line(tmp_path, content, reason):
    assert reason in refusal(*with_study(tmp_path, content), "seed=0")


@pytest.mark.parametrize("value", ["3", "[1,2]"])
def test_what_hydra_asserts_is_one_line(value):
    assert refusal(f"hydra.verbose={value}")


def test_package_goes_with_cfg():
    assert refusal("--package", "model") == "--package: it goes with --cfg, as in --cfg job --package"
