"""`ablate verify`: every equation holds at many sizes, and none does where a method is off by a hundredth."""

import itertools
import json
import re
from typing import Any

import pytest
import torch

from ablate.config.rules import ConfigError
from ablate.model import fusion, scores
from ablate.model.attention import Attention
from ablate.model.layers import Linear
from ablate.verify.attentions import Bench
from ablate.verify.classes import inclusion, same_class
from ablate.verify.identities import IDENTITIES
from ablate.verify.results import DIFFERENT, EQUAL, FAIL, PASS, verify
from tests.helpers import call_cli


@pytest.mark.slow
def test_all_hold():
    assert {verdict.verdict for verdict in verify()} == {PASS}


@pytest.mark.parametrize(
    "sizes", [{"T": 33, "H": 6, "V": 3, "C": 12}, {"B": 1, "T": 5, "H": 7, "K": 2, "V": 3, "C": 10}], ids=str
)
def test_all_hold_at_other_sizes(sizes):
    for verdict in verify(bench=Bench(**sizes)):
        assert verdict.error is not None, verdict
        assert verdict.error >= DIFFERENT if " not" in verdict.name else verdict.error <= EQUAL, verdict


def names_of_failed(*only: str) -> set[str]:
    return {verdict.name for verdict in verify(only) if verdict.verdict == FAIL}


def broken_ways() -> list[tuple[type, str, Any]]:
    """Changes to our own modules, by which an equation that is checked on them has to fail."""

    def changed(change):
        return lambda old: lambda self, *given: change(old(self, *given))

    known = {name: m for kind in (fusion, scores) for name, m in kind.methods().items()}
    softmax, zero, louder = known["softmax"], changed(torch.zeros_like), changed(lambda y: 1.01 * y)
    return [
        *(
            (known[name], "forward", louder)
            for name in ("concat", "sum", "mean", "weighted_sum", "head_scale")
        ),
        *((known[name], "forward", zero) for name in ("concat", "sum", "softmax")),
        (softmax, "forward", lambda old: lambda self, q, k, v, *more: old(self, q, k, v.flip(1), *more)),
        (softmax, "probabilities", changed(lambda A: A**1.01)),
        (softmax, "probabilities", changed(torch.ones_like)),
        (Linear, "forward", louder),
        (Attention, "_read", changed(lambda r: (r[0].flip(1), *r[1:]))),
    ]


@pytest.mark.slow
def test_every_equation_fails_where_the_code_under_it_is_broken(monkeypatch):
    left = [identity.name for identity in IDENTITIES]
    for owner, name, change in broken_ways():
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, change(getattr(owner, name)))
            failed = names_of_failed(*left)
            assert failed, (owner, name)
        left = [one for one in left if one not in failed]
    assert not left


def test_no_two_identities_share_a_number():
    """An equation and its counterpart (18, 18 not) stand together under one number; names are unique."""
    names = [identity.name for identity in IDENTITIES]
    numbers = [number for number, _ in itertools.groupby(names, lambda name: name.partition(" ")[0])]
    assert len({*names}) == len(names) and len({*numbers}) == len(numbers)


@pytest.mark.parametrize("name", ["18", "18 not", "9 not"])
def test_a_check_that_crashes_fails_with_its_error(monkeypatch, name):
    def forward(self, z_BTHV, x_BTC):
        raise RuntimeError("by its own fault")

    monkeypatch.setattr(fusion.methods()["concat"], "forward", forward)
    (verdict,) = [verdict for verdict in verify([name]) if verdict.name == name]
    assert (verdict.verdict, verdict.error) == (FAIL, None)
    assert verdict.crash == "RuntimeError: by its own fault"


@pytest.mark.slow
def test_a_method_that_returns_nonsense_fails_and_does_not_crash(monkeypatch):
    method = fusion.methods()["sum"]
    monkeypatch.setattr(method, "forward", lambda self, z_BTHV, x_BTC: z_BTHV.flatten(-2))
    failed = names_of_failed()
    assert {"2", "18"} <= failed and "1" not in failed
    monkeypatch.setattr(method, "forward", lambda self, z_BTHV, x_BTC: z_BTHV.sum(-2) * torch.nan)
    failed = names_of_failed()
    assert {"2", "9 not", "18 not"} <= failed  # not a number is neither equal nor different


def test_only_some():
    assert [verdict.name for verdict in verify(["6", "alt"])] == ["6", "6 not", "alt"]
    assert {verdict.question for verdict in verify(["Q1"])} == {"Q1"}
    numbers, questions = "choices: 1, 2, 2 mean, 3", "did you mean Q4? choices: Q0, Q1, Q2, Q3, Q4"
    for wrong, way_out in (("18not", "did you mean 18 not?"), ("?", numbers), ("Q9", questions)):
        with pytest.raises(ConfigError, match=re.escape(f"--only {wrong}: no such identity; {way_out}")):
            verify([wrong])


def test_the_command(tmp_path):
    shown = call_cli("verify", "--only", "7,9", cwd=tmp_path)
    assert shown.returncode == 0 and all(
        words in shown.stdout for words in ("A_single ∝ Π A_i^(1/√h)", "W_V^i := W_V^i W_O^i")
    )
    assert re.search(r"7 not .* > 1e-02  pass\n9 .* ≤ 1e-10  pass", shown.stdout)
    plain = json.loads(call_cli("verify", "--format", "json", cwd=tmp_path).stdout)
    assert {*plain} == {"schema", "identities"} and len(plain["identities"]) > 20
    assert not [*tmp_path.iterdir()]


def test_the_command_fails_where_an_equation_does(tmp_path, monkeypatch):
    method = fusion.methods()["mean"]
    forward = method.forward
    monkeypatch.setattr(method, "forward", lambda self, *given: 1.01 * forward(self, *given))
    failed = call_cli("verify", "--only", "1,2", cwd=tmp_path)
    assert failed.returncode == 1 and failed.stderr.endswith("1 equation failed: 2 mean\n")


# --- classes of functions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "one, other",
    [
        ("fusion=sum", "fusion=mean"),
        ("fusion=head_scale heads=8", "heads=8 fusion=exclusive fusion.drop=0"),
        ("heads=1 fusion=hadamard out_proj=false", "heads=1 value_width=wide"),
        ("key_width=64", "key_width=65 train.lr=0.1"),
        ("model=pair at=cross fusion=sum", "model=pair at=cross fusion=concat out_rank=16"),
        ("key_heads=2 model=modern", "scale=none key_heads=2 model=modern"),
    ],
)
def test_two_of_one_class_are_proved_both_ways(one, other):
    ours, theirs, errors = same_class(one, other)
    assert ours == theirs and [*errors] == [f"{one} into {other}", f"{other} into {one}"]
    assert max(errors.values()) < EQUAL


@pytest.mark.parametrize(
    "one, other, apart",
    [
        ("fusion=concat heads=8", "fusion=sum heads=8", {"decoder"}),
        ("fusion=gated match=none", "fusion=sum", {"decoder"}),
        ("fusion=sum seed=1", "seed=2 model.norm=rms fusion=mean", {"norm"}),
        ("fusion=hadamard", "fusion=concat", {"decoder"}),
        ("", "model=pair", {"context", "encoder_layers", "encoder", "cross"}),
        ("model.bias=true", "model.bias=false", {"bias"}),
        ("", "model.layers=3", {"layers"}),
        (
            "scores=windows 'scores.windows=[4,8,16,32]'",
            "scores=windows 'scores.windows=[4, 8, 16, 33]'",
            {"decoder"},
        ),
    ],
)
def test_of_two_classes_it_is_shown_what_differs(one, other, apart):
    ours, theirs, errors = same_class(one, other)
    assert {*ours} == {*theirs} == apart and all(ours[name] != theirs[name] for name in apart)
    assert bool(errors) == (one == "fusion=concat heads=8")  # where both are static, of equal patterns


@pytest.mark.parametrize(
    "one, other, found",
    [
        ("", "fusion=sum", "every function of fusion=sum is one of the defaults, not conversely"),
        ("out_rank=8", "fusion=sum", "every function of out_rank=8 is one of fusion=sum, not conversely"),
        ("fusion=sum", "out_proj=false", "each has functions that the other has not"),
        ("fusion=gated", "", "whether one has all functions of the other is not tried: more differs"),
    ],
)
def test_of_two_classes_it_is_said_which_has_more_functions(one, other, found):
    assert inclusion(one, other, same_class(one, other)[2]).startswith(found)


@pytest.mark.slow
def test_the_command_on_classes(tmp_path):
    shown = call_cli("verify", "--class", "fusion=sum", "fusion=mean", cwd=tmp_path)
    assert shown.returncode == 0 and "fusion=mean into fusion=sum" in shown.stdout
    assert "one class (scores=softmax heads=4" in shown.stderr
    other = call_cli("verify", "--class", "fusion=sum", "fusion=concat", cwd=tmp_path)
    assert other.returncode == 1 and "two classes" in other.stderr and "shared rank=16" in other.stdout
    assert "every function of fusion=sum is one of fusion=concat" in other.stdout
    plain = call_cli("verify", "--class", "fusion=sum", "fusion=gated", "--format", "json", cwd=tmp_path)
    assert json.loads(plain.stdout)["same"] is False
    for words in (
        ("fusion=sum,mean", "heads=1"),
        ("fusion", "heads=1"),
        ("heads=3", "heads=1"),
        ("heads=2", "heads=1", "--only", "3"),
        ("-m", "heads=1"),
    ):
        refused = call_cli("verify", "--class", *words, cwd=tmp_path)
        assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert not [*tmp_path.iterdir()]
