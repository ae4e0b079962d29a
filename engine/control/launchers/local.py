"""Workers as processes of this machine, connected by an unnamed socket pair: no address, and no token to leak."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import suppress

from engine.control.replica import RemoteWorker
from engine.deployment.config import ClusterSpec
from engine.ipc import interpreter, links, messages, spawn
from engine.ipc.processor_time import processor_time
from engine.ipc.protocol_version import VERSION

REAPED_S = 1.0  # maximum time from the end of a process's link to its exit status
GRACE_S = 2.0  # time from Stop to SIGKILL: a step takes far less


async def crashed(process: asyncio.subprocess.Process) -> bool:
    """Return whether an ended process crashed (for example, a segmentation fault) and was not killed from outside."""
    try:
        async with asyncio.timeout(REAPED_S):
            return await process.wait() not in (0, -signal.SIGKILL, -signal.SIGTERM)
    except TimeoutError:
        return False


class LocalLauncher:
    """A launcher of local worker processes.

    A worker ends when its socket closes, so a killed server leaves no process behind.
    """

    def __init__(self, cluster: ClusterSpec) -> None:
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, task: messages.Task, worker: RemoteWorker) -> None:
        """Start a process for a task. It sends Hello on its link when it is warm.

        Raises ConfigError if the worker's own interpreter cannot run it.
        """
        python = task.worker.python
        if python is not None:
            await interpreter.check(python)
        ours, theirs = socket.socketpair()
        link = links.SocketLink(worker.receive, worker.lost, near=True)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *spawn.worker(python),
                    "--socket",
                    str(theirs.fileno()),
                    "--wire",
                    VERSION,
                    env=spawn.environment(),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            self._processes[worker.id] = process
            worker.processor_time = lambda: processor_time(process.pid)
            worker.crashed = lambda: crashed(process)
            ours.setblocking(False)
            await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
        except BaseException:
            ours.close()
            raise
        worker.link = link
        link.send(task)

    async def stop(self, worker: RemoteWorker) -> None:
        """Stop a worker and wait until its process has ended."""
        worker.close()
        process = self._processes.pop(worker.id, None)
        if process is None:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if worker.fenced else GRACE_S):
                    await process.wait()
        finally:  # also if this call is cancelled
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


LAUNCHER = LocalLauncher
