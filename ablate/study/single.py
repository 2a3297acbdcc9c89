"""One run, asked for by itself."""

import torch

from ablate.compose.hydra_app import Request
from ablate.compute.cores import threads_each
from ablate.config.schema import RunConfig
from ablate.execution.execute import execute
from ablate.execution.listener import Listener
from ablate.execution.prepare import prepare
from ablate.execution.run import step_flops
from ablate.store.store import Store
from ablate.study.estimate import estimate
from ablate.study.growth import merge_plans, single_plan


def run_single(config: RunConfig, request: Request, listener: Listener) -> None:
    """Note the run in its study, then train it here. Raises ConfigError if it can't begin."""
    store, run = Store(), prepare(config)
    plan = single_plan(config, run.run_id, request.config_dir)
    threads = threads_each(1, step_flops(run))
    if request.dry_run:
        request.estimate = estimate(plan, [run], workers=1, threads=threads)
        return
    with store.locked():
        store.write_study(merge_plans(store.read_study(plan["name"]), plan))
    request.study, request.run_ids = plan["name"], [run.run_id]
    torch.set_num_threads(threads)
    execute(run, listener)
