"""Workers on the nodes of a Ray cluster. Ray only places them; messages use Parley's own connection.

Each worker has a named actor that requests the worker's ``resources`` and starts its process. When the actor or its
node is gone, the process ends and its connection closes. A restarted worker is placed again, as soon as a node has
room. Parley must be installed on every node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import subprocess
import sys
from typing import Any, cast

from engine.control.join_listener import JoiningWorker, JoinListener
from engine.control.replica import RemoteWorker
from engine.deployment.config import ClusterSpec
from engine.errors import StageUnavailable
from engine.ipc import messages, spawn

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when ray is imported: no usage reports

import ray
from ray.exceptions import RayError
from ray.util import get_node_ip_address

NAMESPACE = "parley"


class RayLauncher:
    """A launcher of workers on the Ray cluster at ``cluster.address``."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._address = cluster.address or "auto"
        self._run = secrets.token_hex(4)  # two servers may share a cluster, where actor names are global
        self._connecting = asyncio.Lock()
        self._actors: dict[str, Any] = {}

    async def start(self, task: messages.Task, worker: RemoteWorker) -> None:
        """Place and start a worker. Raises StageUnavailable if Ray cannot."""
        came: asyncio.Future[JoiningWorker] = asyncio.get_running_loop().create_future()
        token = secrets.token_hex(32).encode()
        listener = JoinListener(token, lambda joining: joining.drop() if came.done() else came.set_result(joining))
        try:
            async with self._connecting:
                await asyncio.to_thread(self._connect)
            await listener.open(get_node_ip_address(), 0)
            await self._place(task, worker, listener.address, token)
            joining = await came
        except (RayError, ConnectionError, ValueError) as error:
            raise StageUnavailable(f"Ray could not start {worker.id}: {' '.join(str(error).split())}") from None
        finally:
            listener.close()
        await joining.start(task, worker)

    async def stop(self, worker: RemoteWorker) -> None:
        """Stop a worker and release its cluster resources."""
        worker.close()
        actor = self._actors.pop(worker.id, None)
        if actor is not None:
            await asyncio.to_thread(ray.kill, actor)

    def _connect(self) -> None:
        if not ray.is_initialized():
            ray.init(self._address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)

    async def _place(self, task: messages.Task, worker: RemoteWorker, address: tuple[str, int], token: bytes) -> None:
        """Wait until an actor has started the process: forever if no node has the resources."""
        wanted = dict(task.worker.resources)
        options: dict[str, Any] = {
            "name": f"{self._run}.{worker.id}",
            "namespace": NAMESPACE,
            "max_restarts": 0,
            "num_cpus": wanted.pop("num_cpus", 0),
            "num_gpus": wanted.pop("num_gpus", 0),
            "resources": wanted,
        }
        actor = cast("Any", ray.remote(_place())).options(**options).remote()
        self._actors[worker.id] = actor
        offer = [
            *spawn.WORKER,
            "--join",
            "{}:{}".format(*address),
            "--stages",
            ",".join(task.worker.stages),
            "--device",
            task.device,
            "--tied",
        ]
        started = actor.start.remote(task.worker.python, offer, spawn.DEFAULTS, token)
        await asyncio.wrap_future(started.future())


def _place() -> type:
    """Return the actor's class. It owns one process, which ends with it.

    A class that is defined in a function is sent to the node by value. A class of this module would be imported there,
    and Ray's process might find another module: it searches the folder it was started in first.
    """

    class Place:
        def start(self, python: str | None, offer: list[str], defaults: dict[str, str], token: bytes) -> int:
            """Start the process and return its id. A pipe keeps the token out of files and the command line."""
            read, write = os.pipe()
            os.write(write, token)
            os.close(write)
            self._process = subprocess.Popen(
                [python or sys.executable, "-P", *offer, "--token-file", f"/dev/fd/{read}"],
                stdin=subprocess.PIPE,
                pass_fds=(read,),
                env=defaults | os.environ,
            )
            os.close(read)
            return self._process.pid

    return Place


LAUNCHER = RayLauncher
