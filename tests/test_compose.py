"""From arguments to what was asked for: what is refused, in one line with a way out."""

import pytest

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
        ("fusion=日本", "fusion=日本: name one of configs/fusion: concat, grouped"),
        ("日本=3", "日本: no such key"),
        ("=日本", "=日本: the key is missing"),
        ("+=3", "+=3: the key is missing"),
        ("corpus.path=日本", """quotes: 'corpus.path="日本"'"""),
    ],
)
def test_quotes_are_advised_only_where_they_help(argument, reason):
    assert reason in refusal(argument)


@pytest.mark.parametrize(
    "key, method", [("groups", "grouped"), ("weights", "weighted_sum"), ("per", "weighted_sum")]
)
def test_an_option_of_another_method_names_that_method(key, method):
    for chosen in ((), ("fusion=sum",)):
        assert f"fusion.{key}: a key of fusion={method} alone" in refusal(*chosen, f"fusion.{key}=2")


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


def test_package_goes_with_cfg():
    assert refusal("--package", "model") == "--package: it goes with --cfg, as in --cfg job --package"
