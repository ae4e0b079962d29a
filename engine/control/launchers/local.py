"""Workers as processes of this machine, each on one end of an unnamed socket pair: no address, no token to leak."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from engine.control.replica import RemoteWorker
from engine.control.replica_info import ProcessorTime
from engine.deployment.config import ClusterSpec
from engine.ipc import interpreter, links, messages, spawn
from engine.ipc.protocol_version import VERSION

REAPED_S = 1.0  # from the end of a process's link to its exit status
GRACE_S = 2.0  # from Stop to SIGKILL: a step takes far less


def processor_time(pid: int) -> ProcessorTime | None:
    """Return what a process's first thread has had, by Linux's own count; time that the machine's host took is waited
    for."""
    try:
        computed_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
        on_disk = uninterruptible(Path(f"/proc/{pid}/stat").read_text())
        return ProcessorTime(int(computed_ns) / 1e9, int(waited_ns) / 1e9 + stolen_s(), on_disk)
    except (OSError, ValueError, IndexError):
        return None


def uninterruptible(stat: str) -> bool:
    """Whether Linux's line about a process says so: it waits for a disk, or a page. Its name may hold anything."""
    return stat.rpartition(")")[2].split()[0] == "D"


def stolen_s(file: Path = Path("/proc/stat")) -> float:
    """Return how long this virtual machine wanted processors that its host gave to others: Linux's steal time.

    It counts as waiting, of all processors together: nobody tells which process it was taken from.
    """
    try:
        _, *jiffies = file.read_text().partition("\n")[0].split()
        return int(jiffies[7]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


async def crashed(process: asyncio.subprocess.Process) -> bool:
    """Whether a process that is gone ended by itself, as by an invalid access to memory; not if somebody killed it."""
    try:
        async with asyncio.timeout(REAPED_S):
            return await process.wait() not in (0, -signal.SIGKILL, -signal.SIGTERM)
    except TimeoutError:
        return False


class LocalLauncher:
    """A launcher of worker processes. They die with the socket, so a killed server leaves none behind."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, task: messages.Task, worker: RemoteWorker) -> None:
        """Start a process for a task; it says hello on the worker's link when it is warm.

        Raises ConfigError where it is to have an interpreter that can run none.
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
        """End a worker and wait until its process is gone."""
        worker.close()
        process = self._processes.pop(worker.id, None)
        if process is None:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if worker.fenced else GRACE_S):
                    await process.wait()
        finally:  # cancelled meanwhile, it is killed as well
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


LAUNCHER = LocalLauncher
