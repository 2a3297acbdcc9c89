"""Train a single run, outside of any sweep."""

from collections.abc import Callable

import torch

from ablate.compose.asked import Single
from ablate.compute.cores import threads_each
from ablate.execution.execute import require_its_plugins
from ablate.execution.prepare import prepare
from ablate.execution.run import step_flops
from ablate.launch.worker import make
from ablate.live.progress import listener
from ablate.store.store import Store
from ablate.study import precision
from ablate.study.estimate import estimate
from ablate.study.growth import grown, record_of_run
from ablate.study.outcome import Outcome, keeping_results


def run_single(asked: Single, *, dry_run: bool, begun: Callable[[], None]) -> Outcome:
    """Record the run in its study, then train it in this process. Raises ConfigError if it can't begin."""
    store, run = Store(), prepare(asked.config)
    record = record_of_run(asked.config, run.run_id, asked.config_dir)
    threads = threads_each(1, step_flops(run))
    if dry_run:
        expected = estimate(record, [run], at_once=1, threads=threads)
        return Outcome(record.name, remarks=precision.remarks([run]), estimate=expected)
    require_its_plugins(run, store)
    known = store.run(run.name).stamp()
    store.change_study(record.name, lambda before: grown(before, record))
    begun()
    torch.set_num_threads(threads)
    with keeping_results(store, record.name):
        make(run, listener(None), known=known)
    return Outcome(record.name, [run.run_id], remarks=precision.remarks([run]))
