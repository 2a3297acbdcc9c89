"""Ray: helpers as detached actors of a cluster."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ablate.clusters import Cluster, Cores, JobStatus, State
from ablate.config.extras import require
from ablate.config.rules import ConfigError

CALLS = Path(__file__).with_name("_ray_calls.py")
REACHED_WITHIN_S = 5
ANSWER_WITHIN_S = 60

# Ray reads these when it is imported. No statistics are sent, nothing is uploaded under `uv run`. After some
# seconds it gives up an address where no Ray answers, and a machine that is no node of the cluster. A Python
# that differs in the last number will do.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "5",
    "RAY_gcs_server_request_timeout_seconds": "10",
    "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
}


@dataclass(frozen=True, kw_only=True)
class Ray(Cluster):
    """A Ray cluster, one of whose nodes is this one. A helper is a detached actor, which outlives the process
    that starts it, and which Ray starts again when its node dies. See: _ray_calls.py. address: HOST:PORT of
    its head, or auto on one of its nodes."""

    name: ClassVar[str] = "ray_cluster"
    address: str
    gpus_per_task: Cores | None

    def require(self) -> None:
        self._call("check")

    def start(self, array: str, count: int, command: Sequence[str], directory: Path, log: str) -> str:
        where = str(directory.absolute())
        return self._call("start", array=array, count=count, command=[*command], directory=where, log=log)

    def look(self, arrays: Sequence[str]) -> dict[str, list[JobStatus]]:
        answer = self._call("look", arrays=[*arrays])
        return {
            array: [JobStatus(number, State(state), node, reason) for number, state, node, reason in helpers]
            for array, helpers in answer.items()
        }

    def cancel(self, arrays: Sequence[str]) -> None:
        self._call("cancel", arrays=[*arrays])

    def _call(self, call: str, **what: Any) -> Any:
        require("hydra/launcher=ray_cluster", "ray", extra="ray")
        address = self._reach()
        resources = {"cpus": self.cpus_per_task, "gpus": self.gpus_per_task}
        request = {"call": call, "address": address, **resources, **what}
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(CALLS)],
                input=json.dumps(request),
                capture_output=True,
                encoding="utf-8",
                env=os.environ | ENVIRONMENT,
                timeout=ANSWER_WITHIN_S,
                start_new_session=True,  # Ctrl-C is for this process
            )
        except subprocess.TimeoutExpired:
            raise self._refused(f"no answer within {ANSWER_WITHIN_S} s") from None
        answer: dict[str, Any] = {}
        with contextlib.suppress(ValueError):  # Ray has ended the process
            answer = json.loads(done.stdout)
        if "answer" in answer:
            return answer["answer"]
        reason = (
            answer.get("refused") or done.stderr.strip().rpartition("\n")[2] or "Ray ended without an answer"
        )
        if "InvalidAuthToken" in done.stderr or reason.startswith("Token authentication"):
            reason = "it does not accept the token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        elif reason.startswith("No node info"):
            reason = "this machine is not a node of the cluster; run the command on one, such as its head"
        raise self._refused(reason)

    def _reach(self) -> str:
        """The address, for Ray. Raises ConfigError if nothing listens there; Ray would try for longer."""
        address = self.address
        if address == "auto":
            address = os.environ.get("RAY_ADDRESS") or address
        if address == "auto":
            return address
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise self._refused(f"{address} is not HOST:PORT")
        try:
            socket.create_connection((host, int(port)), REACHED_WITHIN_S).close()
        except OSError as error:
            raise self._refused(str(error)) from None
        return address

    def _refused(self, reason: str) -> ConfigError:
        return ConfigError(f"hydra.launcher.address={self.address}: {reason}")
