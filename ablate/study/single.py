"""One run, asked for by itself."""

import torch

from ablate.compose.hydra_app import Request
from ablate.compute.cores import threads_each
from ablate.config.schema import RunConfig
from ablate.execution.execute import Listener, execute, prepare, step_flops
from ablate.store.store import Store
from ablate.study.estimate import estimate
from ablate.study.growth import grown, record_of_run


def run_single(config: RunConfig, request: Request, listener: Listener) -> None:
    """Note the run in its study, then train it here. Raises ConfigError if it can't begin."""
    store, run = Store(), prepare(config)
    record = record_of_run(config, run.run_id, request.config_dir)
    threads = threads_each(1, step_flops(run))
    if request.dry_run:
        request.estimate = estimate(record, [run], workers=1, threads=threads)
        return
    with store.locked():
        store.write_study(grown(store.read_study(record.name), record))
    request.study, request.run_ids = record.name, [run.run_id]
    torch.set_num_threads(threads)
    execute(run, listener)
