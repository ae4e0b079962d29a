"""Workers as processes of this machine, connected by an unnamed socket pair: no address, and no token to leak."""

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

REAPED_S = 1.0  # maximum time from the end of a process's link to its exit status
GRACE_S = 2.0  # time from Stop to SIGKILL: a step takes far less


def processor_time(pid: int) -> ProcessorTime | None:
    """Return the processor time of a process's main thread as counted by Linux; None if unknown.

    Steal time of a virtual machine counts as waiting.
    """
    try:
        computed_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
        on_disk = uninterruptible(Path(f"/proc/{pid}/stat").read_text())
        return ProcessorTime(int(computed_ns) / 1e9, int(waited_ns) / 1e9 + stolen_s(), on_disk)
    except (OSError, ValueError, IndexError):
        return None


def uninterruptible(stat: str) -> bool:
    """Whether a process's ``stat`` line says that it waits for a disk or a page. Its name may contain anything."""
    return stat.rpartition(")")[2].split()[0] == "D"


def stolen_s(file: Path = Path("/proc/stat")) -> float:
    """Return the steal time: how long this virtual machine waited for processors that its host gave to others.

    It is the sum of all processors, because Linux does not report it per process.
    """
    try:
        _, *jiffies = file.read_text().partition("\n")[0].split()
        return int(jiffies[7]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


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
