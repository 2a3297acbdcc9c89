"""On which kinds of processors rows were made, and what a comparison says of it."""

import platform

import pytest
import torch

from ablate.compute.device import processor
from ablate.config.rules import ConfigError
from ablate.execution.attempt import describe
from ablate.execution.run import prepare
from ablate.phrases import Note
from tests.helpers import compared, make_config
from tests.test_compare import table, variant

LOSSES = [3.1, 3.3, 3.2, 3.5]
INTEL, AMD = "Intel Xeon (AVX512)", "AMD EPYC (AVX2)"


def rows(of_concat: list[str | None], of_sum: list[str | None]):
    return table(
        *(row | {"processor": kind} for row, kind in zip(variant(LOSSES), of_concat, strict=True)),
        *(
            row | {"processor": kind}
            for row, kind in zip(
                variant([x + 0.1 + x / 50 for x in LOSSES], fusion="sum"), of_sum, strict=True
            )
        ),
    )


def lines(of_concat: list[str | None], of_sum: list[str | None], **options) -> list[Note]:
    return [one for one in compared(rows(of_concat, of_sum), **options).notes if "processor" in one.text]


def test_a_run_records_the_processor_and_its_instruction_set():
    row = describe(prepare(make_config("corpus=grammar", "corpus.characters=5000")))
    assert row["processor"] == processor() == processor(torch.device("cpu"))
    assert torch.backends.cpu.get_cpu_capability() in row["processor"]
    if platform.machine() == "x86_64" and platform.system() == "Linux":
        assert not row["processor"].startswith("x86_64")


@pytest.mark.slow
def test_one_kind_needs_no_word_and_rows_without_one_are_of_one():
    assert lines([AMD] * 4, [AMD] * 4) == lines([None] * 4, [None] * 4) == []


@pytest.mark.slow
def test_pairs_over_two_kinds_are_counted():
    (line,) = lines([AMD, AMD, INTEL, AMD], [AMD, INTEL, INTEL, INTEL])
    assert line.text == (
        f"processor ({AMD}, {INTEL}) differs in 2 of 4 pairs between what is compared: a difference may be"
        " its doing"
    )
    assert line.is_doubt and line.brief == "processor differs, too"
    (line,) = lines([AMD, AMD, None, None], [AMD, AMD, None, AMD])
    assert "1 of 4 pairs" in line.text
    assert compared(rows([AMD, AMD, INTEL, AMD], [AMD, INTEL, INTEL, INTEL])).table["pairs"].max() == 4
    assert lines([AMD, INTEL] * 2, [AMD, INTEL] * 2) == []  # each pair is of one kind


@pytest.mark.parametrize("other", [INTEL, None])
def test_a_variant_and_its_baseline_on_different_kinds_are_refused(other):
    with pytest.raises(ConfigError) as refusal:
        compared(rows([AMD] * 4, [other] * 4))
    assert f"under processor {other or 'unknown'}, fusion=concat" in str(refusal.value)
    assert "--mixed" in str(refusal.value) and len(str(refusal.value).splitlines()) == 1
    assert "differs between what is compared" in lines([AMD] * 4, [other] * 4, mixed=True)[0].text
