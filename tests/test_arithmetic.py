"""Matrix products and attention: the fast way computes what the plain one does, and a rule chooses it."""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.compute import arithmetic, device
from ablate.compute.arithmetic import EMULATED, NATIVE, PLAIN, in_float32, onednn
from ablate.data.splits import Batch
from ablate.execution.networks import build, build_group
from ablate.execution.run import prepare
from ablate.model.attend import CAUSAL, EVERYTHING, FORMULATIONS, fused
from ablate.model.scores.windows import Near
from tests.helpers import QUICK, make_config

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.03}  # of formulations, relative to the largest entry
CPU = torch.device("cpu")


def agrees(
    function: Callable[..., Tensor],
    exact: Callable[..., Tensor],
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    most: float,
) -> bool:
    """Whether `function` in `dtype` agrees with `exact` in float64 on the same numbers, in value and in every
    gradient, within `most` of the largest entry. shapes: of the inputs, and last of the output."""
    *inputs, grad = (torch.randn(shape).to(dtype) for shape in shapes)
    computed = with_gradients(function, inputs, grad)
    in_float64 = with_gradients(exact, [t.double() for t in inputs], grad.double())
    return all((a - b).abs().max() < most * b.abs().max() for a, b in zip(computed, in_float64, strict=True))


def with_gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
    inputs = [t.clone().requires_grad_() for t in inputs]
    y = function(*inputs)
    return [y.detach(), *torch.autograd.grad(y, inputs, grad)]


@pytest.mark.parametrize("bias", [[(11,)], []])
@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (1, 5)])
def test_onednn_is_linear_in_value_and_gradients(shape, bias):
    product = onednn if bias else lambda x, weight: onednn(x, weight, None)
    assert agrees(product, F.linear, [shape, (11, 5), *bias, (*shape[:-1], 11)], torch.float32, 1e-5)


def test_bfloat16_is_multiplied_in_float32_and_rounded_once():
    shapes = ((3, 400, 29), (41, 29), (41,), (3, 400, 41))
    half = 2.0**-8  # of a number in bfloat16, what rounding it changes at most
    assert agrees(in_float32, F.linear, shapes, torch.bfloat16, half)
    x, weight, bias = (torch.randn(shape).bfloat16() for shape in shapes[:3])
    exact = F.linear(x.double(), weight.double(), bias.double())
    assert in_float32(x, weight, bias).dtype == torch.bfloat16
    assert in_float32(x, weight, bias).ne(exact.bfloat16()).float().mean() < 0.001  # sums in the middle


# --- the rule ---------------------------------------------------------------------------------------


@pytest.fixture
def on(monkeypatch):
    """Let this machine's processor be of a kind."""

    def pretend(maker: str, instructions: str) -> None:
        monkeypatch.setattr(arithmetic, "maker", lambda: maker)
        monkeypatch.setattr(arithmetic, "instruction_set", lambda: instructions)

    return pretend


@pytest.mark.parametrize(
    ("maker", "instructions", "in_float32", "in_bfloat16"),
    [
        ("AMD", "AVX512_BF16", (onednn, "fused"), NATIVE),
        ("Intel", "AVX512_BF16", PLAIN, NATIVE),
        ("Intel", "AVX512", PLAIN, EMULATED),
        ("AMD", "AVX2", PLAIN, EMULATED),
        ("Intel", "AVX2", PLAIN, EMULATED),
        ("", "DEFAULT", PLAIN, PLAIN),  # nobody has measured these
        ("AMD", "AVX512", PLAIN, PLAIN),
        ("AMD", "DEFAULT", PLAIN, PLAIN),
    ],
)
def test_the_kind_of_processor_and_the_precision_decide(on, maker, instructions, in_float32, in_bfloat16):
    on(maker, instructions)
    assert arithmetic.arithmetic("float32", CPU, 64) == in_float32
    assert arithmetic.arithmetic("bfloat16", CPU, 64) == in_bfloat16
    cuda = torch.device("cuda")
    assert arithmetic.arithmetic("bfloat16", cuda, 64) == PLAIN


def test_a_group_takes_the_batched_product_in_place_of_onednn(on):
    on("AMD", "AVX512_BF16")
    run = prepare(make_config(*QUICK))
    groups = build_group([run]), build_group([run, run])  # which compute alike (test_group)
    assert [group.model.product for group in groups] == [onednn, F.linear]


CPUINFO = (
    "processor\t: 0\nvendor_id\t: {}\nmodel name\t: Some CPU\nflags\t\t: sse avx2 {}\n\nprocessor\t: 1\n"
)


@pytest.mark.parametrize(
    ("vendor", "flags", "capability", "kind"),
    [
        ("AuthenticAMD", "avx512f avx512_bf16", "AVX512", ("AMD", "AVX512_BF16")),
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16", "AVX512", ("Intel", "AVX512_BF16")),
        ("GenuineIntel", "avx512f", "AVX512", ("Intel", "AVX512")),
        ("AuthenticAMD", "avx512f avx512_bf16", "AVX2", ("AMD", "AVX2")),  # as ATEN_CPU_CAPABILITY says
        ("HygonGenuine", "", "AVX2", ("", "AVX2")),
    ],
)
def test_kinds_are_read_from_what_linux_says(vendor, flags, capability, kind, monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(vendor, flags))
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    device._cpu.cache_clear()
    try:
        assert (device.maker(), device.instruction_set()) == kind
        assert device.processor() == f"Some CPU ({kind[1]})"
        monkeypatch.setattr(device, "CPUINFO", tmp_path / "none")  # as on macOS
        device._cpu.cache_clear()
        assert device.maker() == "" and device.processor().endswith(f" ({capability})")
    finally:
        device._cpu.cache_clear()


@pytest.mark.parametrize("has_products", [True, False])
def test_a_processor_without_bfloat16_products_multiplies_in_float32(has_products, on, monkeypatch):
    on("Intel", "AVX512_BF16" if has_products else "AVX512")
    run = prepare(make_config(*QUICK, "train.precision=bfloat16"))
    types, linear = set(), F.linear
    monkeypatch.setattr(F, "linear", lambda x, w, b=None: types.add(w.dtype) or linear(x, w, b))
    for group in (build_group([run]), build_group([run, run])):
        tokens = torch.zeros(len(group.models), 1, run.spec.context, dtype=torch.long)
        loss_M, grads_MP = group.losses_and_gradients(Batch(tokens, tokens))
        assert (
            group.computed.dtype == torch.bfloat16 and loss_M.isfinite().all() and grads_MP.isfinite().all()
        )
    assert (torch.float32 in types) == (not has_products)


@pytest.mark.parametrize(("context", "formulation"), [(64, "unfused"), (512, "unfused"), (1024, "fused")])
def test_native_bfloat16_stores_patterns_in_short_contexts_alone(context, formulation, on):
    on("AMD", "AVX512_BF16")
    config = make_config(
        *QUICK, "corpus.characters=60000", "train.precision=bfloat16", f"model.context={context}"
    )
    assert build(prepare(config)).sites()[0].attention.scores.attend is FORMULATIONS[formulation]


# --- formulations of attention ----------------------------------------------------------------------


def is_exact(attend, dtype: torch.dtype) -> bool:
    shapes = ((2, 3, 17, 8), (2, 3, 17, 8), (2, 3, 17, 5), (2, 3, 17, 5))
    return agrees(causal(attend), causal(fused), shapes, dtype, TOLERANCE[dtype])


def causal(attend):
    return lambda q, k, v: attend(q, k, v, CAUSAL, 0.0, 0.3)


@pytest.mark.parametrize("name", FORMULATIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_formulations_of_attention_agree_with_float64(name, dtype):
    assert is_exact(FORMULATIONS[name], dtype)
    assert not is_exact(lambda q, *rest: FORMULATIONS[name](1.1 * q, *rest), dtype)


@pytest.mark.parametrize("mask", [CAUSAL, EVERYTHING, Near(CAUSAL, (2, 5, 40))])
def test_formulations_mask_alike(mask):
    q, k, v = (torch.randn(2, 3, 13, width, dtype=torch.float64) for width in (4, 4, 6))
    read = {name: attend(q, k, v, mask, 0.0, 0.7) for name, attend in FORMULATIONS.items()}
    torch.testing.assert_close(read["fused"], read["unfused"])
    torch.testing.assert_close(read["float32"].float(), read["fused"].float())


def test_formulations_drop_the_same_entries():
    q, k, v = (torch.randn(2, 3, 13, width) for width in (4, 4, 6))
    outputs = []
    for attend in FORMULATIONS.values():
        torch.manual_seed(3)
        outputs.append(attend(q, k, v, CAUSAL, 0.4, 0.7))
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0])
