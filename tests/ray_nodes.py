"""Two real Ray nodes on this machine, for tests: n1, the head, and n2."""

import secrets
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from tests.machines import NODES, Cluster

HEAD = "n1"
PORT = 6379
STORE_BYTES = 80_000_000  # about the least that Ray accepts
STARTED = "Ray runtime started."  # says `ray start` when the cluster has the node


class RayNodes(Cluster):
    """To Ray, a command runs on n1."""

    address = f"{NODES[HEAD]}:{PORT}"

    def __init__(self, directory: Path) -> None:
        environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_prestart_worker_first_driver": "0",  # each would load Ray and wait
        }
        super().__init__(directory, environment)
        # The path of a Unix socket has at most 107 characters, of which Ray needs most.
        self._sockets = tempfile.mkdtemp(prefix="ray")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        shutil.rmtree(self._sockets)

    def _start_daemons(self) -> None:
        # Ray asks the kernel for the route to a public address to learn its own. Nothing is sent along it.
        self.ask("ip", "route", "add", "default", "dev", "lo", "src", NODES[HEAD])
        for name in NODES:
            self._start_node(name)

    def _start_node(self, name: str) -> None:
        head = ["--head", f"--port={PORT}", "--include-dashboard=false", "--no-monitor"]
        place = head if name == HEAD else [f"--address={self.address}"]
        options = [
            f"--node-ip-address={NODES[name]}",
            "--num-cpus=2",
            f"--object-store-memory={STORE_BYTES}",
            f"--temp-dir={self._sockets}/{name}",
            f"--plasma-directory={self._sockets}",
            "--include-log-monitor=false",
            "--disable-usage-stats",
            "--block",
        ]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *place, *options]
        self._start(name, shlex.join(ray))
        self.until(lambda: STARTED in self._log(name).read_text(encoding="utf-8"), f"no Ray on {name}")
