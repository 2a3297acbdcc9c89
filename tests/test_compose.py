"""From arguments to what was asked for: what is refused, in one line with a way out."""

from pathlib import Path

import pytest

from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.study.run import run


def refusal(*arguments: str) -> str:
    """The one line with which `ablate run …` is refused."""
    with pytest.raises(ConfigError) as refused:
        run(compose(arguments), dry_run=True)
    assert "\n" not in str(refused.value)
    return str(refused.value)


OF_ANOTHER = [("groups", "grouped"), ("weights", "head_scale or fusion=weighted_sum")]
REFUSED = [
    (["heads=4 5"], "heads=4 5: expected a whole number"),
    (["日本=3"], "日本=3: not an override; write KEY=VALUE"),
    (
        ["corpus.path=日本"],
        "corpus.path=日本: Hydra can't read it; quote a value with spaces or other signs: 'corpus.path=",
    ),
    *(
        ([word], f"{word}: Hydra can't read it; check its brackets and commas, or quote")
        for word in ("seed=range(6", "seed=range(6))", "heads=[1,2", "heads=1,2,", "heads=1,,2")
    ),
    (["model.heads=3"], "model.heads: no such key; did you mean heads?"),
    (["train.seed=3"], "train.seed: no such key; did you mean seed? choices: corpus.seed, seed"),
    *(
        ([*chosen, f"fusion.{key}=2"], f"fusion.{key}: a key of fusion={method}; choose")
        for key, method in OF_ANOTHER
        for chosen in ([], ["fusion=sum"])
    ),
    # An option of a swept choice.
    *(
        (
            ["-m", f"fusion={chosen},sum", "fusion.per=head", "corpus=grammar"],
            "fusion.per: a key of fusion=gated or",
        )
        for chosen in ("gated", "concat")
    ),
    # A mistake in a study leaves nothing out.
    (["study=fusion", "corpus=grammar", "heads=1,x"], "heads=x: expected a whole number"),
    # A key that is given twice, as a shell makes of seed={0..2}.
    (["seed=0", "seed=1", "seed=2"], "seed=0: given as 0, 1, 2; give one, or all by -m seed=0,1,2"),
    (["study=fusion", "study=tuned"], "study=fusion: given as fusion, tuned; give one"),
    (["model=null"], "model=null: name a model, or leave it out"),
    # What is Hydra's and has no effect, or what Hydra asserts.
    *(
        ([f"hydra.{key}"], f"hydra.{key}: of Hydra's keys, type hydra.launcher's alone")
        for key in ("sweep.dir=x", "verbose=3")
    ),
    # Keys that other programs have.
    (["+train=nanogpt"], "+train=nanogpt: no key is added or removed; type train=nanogpt"),
    (["n_embd=4"], "n_embd is a name of another program; type model.d_model"),
    # What makes no variants, and sweeps that Hydra makes otherwise than one thinks.
    (["-m", "name=x,y"], "name=x,y: it makes no variants; give one value"),
    *(
        (["-m", f"seed={word}"], f"seed={word}: list the values, as 1,2,4, or write range(START,STOP,STEP)")
        for word in ("sort(range(7,0,-3))", "choice(1,2)", "interval(0,1)", "tag(a,range(3))")
    ),
    (["-m", "seed=range(6,2)"], "seed=range(6,2): an empty range; list the values"),
    (["-m", "seed=0-5"], "seed=0-5: a seed is a whole number; -m 'seed=range(6)' is 0 to 5"),
]


@pytest.mark.parametrize("arguments, line", REFUSED)
def test_what_is_refused_is_one_line_with_a_way_out(arguments, line):
    assert refusal(*arguments).startswith(line)


def test_an_option_holds_for_every_swept_choice_that_has_it():
    sweep = compose(["-m", "fusion=gated,weighted_sum", "fusion.per=channel", "heads=2"])
    for fusion in ("gated", "weighted_sum"):
        variant = sweep.configs((*sweep.arguments[1:], f"fusion={fusion}"))
        assert (variant.fusion.options["per"], variant.heads) == ("channel", 2)


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


def test_a_study_of_ones_own(tmp_path):
    sweep = compose(with_study(tmp_path, STUDY))
    assert sweep.study is not None and sweep.study["question"] == "Whose?"
    widths = [sweep.configs(("study=mine", f"heads={heads}")).key_width for heads in (1, 2)]
    assert widths == [1, 2]  # an interpolation follows what is swept


@pytest.mark.parametrize(
    "content, reason",
    [
        ("3", "Invalid loaded object type: int"),
        ("a: &a [*a]", "(RecursionError: | YAML recursive aliases"),
        ("- a\n- b", "its file declares no study"),
        ("# @package _global_\ndefaults: [mine]", "(RecursionError: "),
        (f"{STUDY}\ndevice: ${{device}}", "device: Recursive interpolation detected"),
    ],
)
def test_an_odd_file_is_refused_in_one_line(tmp_path, content, reason):
    line = refusal(*with_study(tmp_path, content), "seed=0")
    assert any(words in line for words in reason.split(" | "))  # the second from Hydra 1.4 on
