"""The part of ray_cluster that calls Ray: a script, which reads a request and writes the answer.

It is a process of its own because Ray takes over the process that calls it: its core prints, handles signals,
waits for minutes, and ends the process if the cluster goes away. It imports nothing of ablate, and what it
sends to the nodes is sent by value, so another version there does not matter.
"""

import inspect
import json
import logging
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
import ray.exceptions  # pyright: ignore[reportMissingImports]
from ray.exceptions import (  # pyright: ignore[reportMissingImports]
    ActorDiedError,
    GetTimeoutError,
    RayActorError,
)

NAMESPACE = "ablate"
NAME = re.compile(r"(?P<array>.*):(?P<number>\d+)/(?P<count>\d+)")  # of a helper's actor
ANSWER_WITHIN_S = 2  # a helper that runs answers at once
SENT_WITHIN_S = 1
LOOK_EVERY_S = 1  # whether the node is still one of the cluster
WELL = "exit status 0"
STAY_S = 60  # a helper that failed keeps its place for so long, to say how it ended


class Helper:
    """A detached actor that runs one helper. If its node dies, Ray starts it again elsewhere."""

    def __init__(self, watch: str, command: list[str], directory: str, log: str) -> None:
        # Ray sets OMP_NUM_THREADS to the CPUs of the actor, but ablate divides them among its runs.
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.ended: str | None = None
        self.watcher: subprocess.Popen[str] | None = None
        try:
            self.watcher = subprocess.Popen(
                [sys.executable, "-ISc", watch, log, *command],
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            self.ended = str(error)
        me = ray.get_runtime_context().current_actor
        threading.Thread(target=self._leave, args=[me], daemon=True).start()

    def look(self) -> tuple[str, str | None]:
        """The node, and how the helper ended; None while it runs."""
        return socket.gethostname(), self.ended

    def _leave(self, me: Any) -> None:
        if self.watcher and self.watcher.stdout:
            raylet = os.getppid()
            while not select.select([self.watcher.stdout], [], [], LOOK_EVERY_S)[0]:
                if os.getppid() != raylet:  # Ray gave up the node, but a worker that waits does not notice
                    os._exit(1)
            output = self.watcher.stdout.read()
            self.ended = output.strip().rpartition("\n")[2]
            self.watcher.wait()
        if self.ended != WELL:
            time.sleep(STAY_S)
        ray.kill(me, no_restart=True)


def watch() -> None:
    """Run a command (log, words) until it ends or standard input does; print how it ended.

    Standard input ends with the Ray worker that holds its other end, however that ends. Then the command's
    process group gets SIGTERM, and SIGKILL after 10 s. A script of its own: it needs all its imports.
    """
    import contextlib
    import os
    import select
    import signal
    import subprocess
    import sys

    if os.fork():  # Ray kills the children of a worker that it ends, but not their children
        os._exit(0)
    log, *command = sys.argv[1:]
    with open(log, "ab") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    while process.poll() is None and not select.select([0], [], [], 0.2)[0]:
        pass
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    print(f"exit status {status}" if status >= 0 else signal.Signals(-status).name)


def check(request: dict[str, Any]) -> None:
    """Raises ValueError for a request that can't be met; connecting has checked the rest."""
    _resources(request)


def start(request: dict[str, Any]) -> str:
    """Start the actors of an array; returns Ray's own name for what started them."""
    options: dict[str, Any] = {
        "lifetime": "detached",
        "max_restarts": -1,
        "scheduling_strategy": "SPREAD",
        **_resources(request),
    }
    helper = ray.remote(Helper)
    script = inspect.getsource(watch) + "\nwatch()"
    array, count = request["array"], request["count"]
    actors = []
    try:
        for number in range(count):
            log = request["log"].format(number=number)
            named = helper.options(name=f"{array}:{number}/{count}", **options)
            actors.append(named.remote(script, [*request["command"], str(number)], request["directory"], log))
    except BaseException:
        for each in actors:
            ray.kill(each)
        raise
    # An actor outlives this process once the cluster has it, which takes an instant longer.
    ray.wait([each.look.remote() for each in actors], num_returns=count, timeout=SENT_WITHIN_S)
    return str(ray.get_runtime_context().get_job_id())


def look(request: dict[str, Any]) -> dict[str, list[tuple[int, str, str, str]]]:
    """The helpers of each array: number, state, node, reason."""
    calls = {}
    arrays: dict[str, list[tuple[int, str, str, str]]] = {}
    for array, number, count, actor in _actors(request):
        arrays.setdefault(array, [(each, "ended", "", "") for each in range(count)])
        calls[actor.look.remote()] = array, number
    if calls:
        ray.wait([*calls], num_returns=len(calls), timeout=ANSWER_WITHIN_S)
    for call, (array, number) in calls.items():
        arrays[array][number] = number, *_answer(call)
    return arrays


def cancel(request: dict[str, Any]) -> None:
    """End the actors of arrays; their helpers then get SIGTERM. See: watch."""
    for _, _, _, actor in _actors(request):
        ray.kill(actor, no_restart=True)


def _answer(call: Any) -> tuple[str, str, str]:
    try:
        node, ended = ray.get(call, timeout=0)
    except ActorDiedError:
        return "ended", "", ""
    except (GetTimeoutError, RayActorError):
        return "queued", "", "waits for a node"
    return ("running", node, "") if ended is None else ("ended", node, ended)


def _actors(request: dict[str, Any]):
    for name in ray.util.list_named_actors():
        match = NAME.fullmatch(name)
        if match and match["array"] in request["arrays"]:
            try:
                actor = ray.get_actor(name)
            except ValueError:  # it ended meanwhile
                continue
            yield match["array"], int(match["number"]), int(match["count"]), actor


def _resources(request: dict[str, Any]) -> dict[str, int]:
    cpus = request["cpus"]
    if cpus is None:
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        sizes = sorted({int(size) for size in nodes} - {0})
        if len(sizes) != 1:
            has = " or ".join(map(str, sizes)) or "no"
            raise ValueError(f"cpus_per_task=null: the nodes have {has} CPUs; say how many a helper gets")
        cpus = sizes[0]
    return {"num_cpus": cpus, "num_gpus": request["gpus"] or 0}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Ray prints
    request = json.load(sys.stdin)
    try:
        ray.init(request["address"], namespace=NAMESPACE, log_to_driver=False, logging_level=logging.CRITICAL)
        call = {"check": check, "start": start, "look": look, "cancel": cancel}[request["call"]]
        answer = {"answer": call(request)}
    except Exception as error:
        answer = {"refused": _one_line(error)}
    json.dump(answer, answers)
    answers.close()


def _one_line(error: Exception) -> str:
    """What is wrong, in Ray's own words; of two versions only the versions."""
    words = " ".join(str(error.__cause__ or error).split())
    versions = re.findall(r"Ray: (\S+) Python: (\S+)", words)
    if words.startswith("Version mismatch") and len(versions) == 2:
        cluster, here = (f"Ray {ray} with Python {python}" for ray, python in versions)
        return f"the cluster has {cluster}, but here is {here}: they must be the same"
    return words.split(". ")[0]


if __name__ == "__main__":
    main()
