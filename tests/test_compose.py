"""From arguments to what was asked for: what is refused, in one line with a way out."""

from pathlib import Path
from typing import get_args

import pytest

from ablate.compose.keys import DESCRIPTIONS
from ablate.compose.sweep import Sweep, compose
from ablate.compose.texts import as_written
from ablate.config.read import hints
from ablate.config.rules import ConfigError
from ablate.config.schema import TEXTS_OF_CORPORA
from ablate.data.corpora import registry
from ablate.study.run import run


def refusal(*arguments: str) -> str:
    """The one line with which `ablate run …` is refused."""
    with pytest.raises(ConfigError) as refused:
        sweep = compose(arguments)
        assert sweep is not None
        run(sweep, dry_run=True)
    assert "\n" not in str(refused.value)
    return str(refused.value)


OF_ANOTHER = [("groups", "grouped"), ("weights", "head_scale or fusion=weighted_sum")]
REFUSED = [
    # Quotes are advised only where they help.
    (["name=日本語"], "name=日本語: it names a directory; use up to 100 of A-Z, a-z"),
    (["heads=4 5"], "heads=4 5: expected a whole number"),
    (["日本=3"], "日本: no such key"),
    (
        ["corpus.path=日本"],
        """corpus.path=日本: a value with spaces or special characters needs quotes: 'corpus.path="日本"'""",
    ),
    *(
        ([*chosen, f"fusion.{key}=2"], f"fusion.{key}=2: a key of fusion={method}; choose")
        for key, method in OF_ANOTHER
        for chosen in ([], ["fusion=sum"])
    ),
    # An option of a swept choice.
    (
        ["-m", "fusion=gated,sum", "fusion.per=head", "corpus=grammar"],
        "fusion.per: no key of fusion=sum; leave it out",
    ),
    (
        ["-m", "fusion=concat,sum", "fusion.per=head"],
        "fusion.per=head: a key of fusion=gated or fusion=weighted_sum; choose that alone",
    ),
    # A mistake in a study leaves nothing out.
    (["study=fusion", "corpus=grammar", "heads=1,x"], "heads=x: expected a whole number"),
    # A key that is given twice, as a shell makes of seed={0..2}.
    (
        ["seed=0", "seed=1", "seed=2"],
        "seed: given as 0, 1, 2, and only the last counts; give one, or all by -m seed=0,1,2",
    ),
    # What is Hydra's and has no effect.
    *(
        ([f"hydra.{key}"], f"hydra.{key}: it has no effect here; --runs DIR says where results lie")
        for key in ("sweep.dir=x", "job.chdir=true")
    ),
    # Keys that other programs have.
    (["+train=nanogpt"], "+train=nanogpt: keys can't be added; to set one that exists, write train=nanogpt"),
    (["n_embd=4"], "n_embd: no such key; did you mean model.d_model?"),
    # What makes no variants.
    (["-m", "name=x,y"], "name=x,y: it makes no variants; give one value"),
    # What Hydra asserts.
    (["hydra.verbose=3"], ""),
    (["--package", "model"], "--package: it goes with --cfg, as in --cfg job --package"),
]


@pytest.mark.parametrize("arguments, line", REFUSED)
def test_what_is_refused_is_one_line_with_a_way_out(arguments, line):
    assert refusal(*arguments).startswith(line)


def test_an_option_holds_for_every_swept_choice_that_has_it():
    sweep = compose(["-m", "fusion=gated,weighted_sum", "fusion.per=channel", "heads=2"])
    assert sweep is not None
    for fusion in ("gated", "weighted_sum"):
        variant = sweep.configs((*sweep.arguments[1:], f"fusion={fusion}"))
        assert (variant.fusion.options["per"], variant.heads) == ("channel", 2)


TYPED = ("1_1_1", "2024_01", "1e3", "1.50", "+1", ".5", "010", "0x10", "true", "nan", "12:30", "2024-01-01")


def test_text_stays_as_it_is_typed():
    swept = compose(["-m", "corpus=file", f"corpus.path={', '.join(TYPED)}", "name=1_1_1", "seed=1_0"])
    assert swept is not None
    levels = swept.configs.settings(swept.arguments)["corpus.path"].values
    configs = [swept.configs(("corpus=file", f"corpus.path={level}", 'name="1_1_1"')) for level in levels]
    assert [config.corpus.options["path"] for config in configs] == [*TYPED]
    single = compose(["corpus=file", "corpus.path=2024_01", "name=1_1_1", "seed=1_0", "corpus.encoding=0437"])
    assert single is not None and single.typed[1:3] == ("corpus.path=2024_01", "name=1_1_1")
    config = single.configs(())
    assert (config.name, config.seed) == ("1_1_1", 10)
    assert (config.corpus.options["path"], config.corpus.options["encoding"]) == ("2024_01", "0437")


def test_what_is_quoted_or_takes_numbers_is_left_alone():
    for word in ('name="a,1_1"', "name='1_1'", "name=null", "train.lr=1e-3", "corpus.examples=1_000"):
        assert as_written(word) == word
    assert as_written("name=range(0,3)") == "name=range(0,3)"
    assert as_written("name=choice(1_1, a)") == 'name=choice("1_1", a)'


def test_text_stays_as_a_file_has_it(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.yaml").write_text("defaults: [file]\npath: 2024_01\nencoding: 0437\n")
    whole = "defaults: [config, _self_]\nname: 1_1_1\nseed: 1_0\ndevice: ${key_heads}\n"
    (tmp_path / "whole.yaml").write_text(whole)
    sweep = compose(["-cd", str(tmp_path), "-cn", "whole", "corpus=mine"])
    assert sweep is not None
    config = sweep.configs(())
    assert (config.name, config.seed, sweep.name, config.device) == ("1_1_1", 10, "1_1_1", "auto")
    assert (config.corpus.options["path"], config.corpus.options["encoding"]) == ("2024_01", "0437")


def test_the_texts_among_the_options_of_corpora_are_those_of_their_recipes():
    types = [each for recipe in registry.methods().values() for each in hints(recipe).items()]
    texts = {key for key, hint in types if str in (hint, *get_args(hint))} - {*DESCRIPTIONS}
    assert {f"corpus.{key}" for key in texts} == {*TEXTS_OF_CORPORA}


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
    sweep = compose(with_study(tmp_path, mark + STUDY))
    assert isinstance(sweep, Sweep) and sweep.study is not None and sweep.study["question"] == "Whose?"
    widths = [sweep.configs(("study=mine", f"heads={heads}")).key_width for heads in (1, 2)]
    assert widths == [1, 2]  # an interpolation follows what is swept


ODD = "mine.yaml: no config can be read from it"


@pytest.mark.parametrize(
    "content, reason",
    [
        ("3", "mine.yaml: no config can be read from it (Invalid loaded object type: int)"),
        ("a: &a [*a]", f"{ODD} (a config is nested too deeply | {ODD} (YAML recursive aliases"),
        ("- a\n- b", "it is a list; write KEY: VALUE"),
        ("# @package _global_\ndefaults: [mine]", "a config is nested too deeply, or in itself"),
        (f"{STUDY}\ndevice: ${{device}}", "device: Recursive interpolation detected"),
        (f"{STUDY}\nhydra: {{sweeper: {{params: 3}}}}", "hydra.sweeper.params=3: write keys with values"),
    ],
)
def test_an_odd_file_is_refused_in_one_line(tmp_path, content, reason):
    line = refusal(*with_study(tmp_path, content), "seed=0")
    assert any(words in line for words in reason.split(" | "))  # the second from Hydra 1.4 on
