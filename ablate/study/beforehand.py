"""What is worth knowing before runs are trained, while other settings can still be chosen: what makes them
slower here than they could be, and what will keep an answer away."""

from collections.abc import Collection

from ablate.analysis.notes import foreseen
from ablate.analysis.variants import settings_of
from ablate.data.text_statistics import text_statistics
from ablate.execution.formulas import before_training
from ablate.execution.run import Run
from ablate.phrases import lines_if, texts
from ablate.store.frames import frame
from ablate.store.record import StudyRecord
from ablate.study.study import one_of_each

SLOWER = (
    "train.precision=bfloat16: slower here than float32, since this processor has no bfloat16 products, which"
    " are computed in float32; add train.precision=float32"
)
DOES_NOT_PAY = "on a CPU, runs that are trained as one take longer than one after the other"


def beforehand(runs: Collection[Run], record: StudyRecord, seeds: int, members: int | None) -> list[str]:
    """Lines on these runs of a study; usually none. seeds: of those that report; members: how many are
    trained as one, if the command says so."""
    on_cpu, each = [run for run in runs if run.device.type == "cpu"], one_of_each(runs)
    variants = settings_of(frame([before_training(run) | {"overlap": _overlap(run)} for run, _ in each]))
    return [
        *lines_if(any(map(_is_slow, on_cpu)), SLOWER),
        *lines_if(bool(on_cpu) and (members or 1) > 1, f"hydra.launcher.members={members}: {DOES_NOT_PAY}"),
        *texts(foreseen(variants, range(len(variants.table)), seeds, [record])),
    ]


def _overlap(run: Run) -> float:
    """The largest share of a held-out split of its text that another split has, too."""
    text = None if run.is_simulated else text_statistics(run.corpus, run.spec.context)
    return max(text.overlap.values()) if text else 0.0


def _is_slow(run: Run) -> bool:
    from ablate.compute.arithmetic import bfloat16_is_slow  # which loads torch

    return run.config.train.precision == "bfloat16" and bfloat16_is_slow(run.device)
