"""What is worth knowing before runs are trained, while other settings can still be chosen: what will keep an
answer away."""

from collections.abc import Collection

from ablate.analysis.notes import foreseen
from ablate.analysis.variants import settings_of
from ablate.data.text_statistics import text_statistics
from ablate.execution.formulas import before_training
from ablate.execution.run import Run
from ablate.phrases import texts
from ablate.store.frames import frame
from ablate.store.record import StudyRecord
from ablate.study.study import one_of_each


def beforehand(runs: Collection[Run], record: StudyRecord, seeds: int) -> list[str]:
    """Lines on these runs of a study; usually none. seeds: of those that report."""
    each = [before_training(run) | {"overlap": _overlap(run)} for run, _ in one_of_each(runs)]
    variants = settings_of(frame(each))
    return texts(foreseen(variants, range(len(variants.table)), seeds, [record]))


def _overlap(run: Run) -> float:
    """The largest share of a held-out split of its text that another split has, too."""
    text = None if run.is_simulated else text_statistics(run.corpus, run.spec.context)
    return max(text.overlap.values()) if text else 0.0
