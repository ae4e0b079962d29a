"""What an attack is made on: a server in processes of its own, and a healthy client beside it that is timed.

``attacked`` gives both; its caller, who attacks, then gives way to them. The healthy client says every 20 ms what costs
nothing, and the longest wait for its answer is what everybody else waited. ``before`` runs in the server before it
serves: a control takes a guard away with it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import yaml

from tests.soak import memory

ROOT = Path(__file__).parents[2]
START_S = 90.0
STOP_S = 20.0
MB = 1_000_000

DECODES_HERE = (
    "from app.media import decoding\n"
    "from tests.app import local_decoder\n"
    "decoding.Decoder = local_decoder.LocalDecoder\n"
)
"""Decode media in the server's own process, for controls that take a guard of the decoder away."""

SERVE = """
import sys
from app.cli import cli
{before}
sys.argv = ["parley", "serve", {config!r}, "--port", "0"]
cli()
"""


class Spoken(msgspec.Struct, frozen=True):
    """A spoken answer that the healthy client heard whole. ``asked_s`` is monotonic."""

    asked_s: float
    first_sound_s: float
    underruns: int


class Waits(msgspec.Struct, frozen=True):
    """What the healthy client saw: its round trips in ms, and why it stopped early if it did."""

    rounds: int
    median_ms: float
    longest_ms: float
    answers: int
    broken: str | None = None
    spoken: list[Spoken] = []


class Target:
    """A server that is up. ``pid`` is its main process; the workers are its children."""

    def __init__(self, process: Process, port: int, log: Path) -> None:
        self.port, self.pid, self._log, self._process = port, process.pid, log, process
        self._own = self.own_mb()

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def log(self) -> str:
        return _text(self._log)

    @property
    def tracebacks(self) -> int:
        return self.log.count("Traceback (most recent call last)")

    def processes(self) -> list[psutil.Process]:
        """The server, and its workers behind it."""
        with suppress(psutil.NoSuchProcess):
            main = psutil.Process(self.pid)
            return [main, *main.children(recursive=True)]
        return []

    def own_mb(self) -> float:
        """Of the server, its workers and helpers together, without the files' pages, which they share."""
        total = 0.0
        for process in self.processes():
            with suppress(OSError):  # it has just ended
                total += memory.own_mb(process.pid)
        return total

    def grown_mb(self) -> float:
        """Since it was up."""
        return self.own_mb() - self._own

    def descriptors(self) -> int:
        return psutil.Process(self.pid).num_fds()

    def cpu_s(self) -> float:
        """Of the main process."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


class Peak:
    """The most memory that a target took while this was open, in MB more than when it was up."""

    grown_mb = 0.0

    async def watch(self, target: Target) -> None:
        while True:
            self.grown_mb = max(self.grown_mb, target.grown_mb())
            await asyncio.sleep(0.05)


class Bystander:
    """The healthy client, in a process of its own. ``waits`` stands once its ``async with`` is over."""

    waits: Waits

    def __init__(self, target: Target, key: str = "", asks: bool = False, listens: bool = False) -> None:
        self._arguments = [target.ws, key, "listens" if listens else "asks" if asks else ""]

    async def __aenter__(self) -> Bystander:
        command = [sys.executable, "-m", "tests.attacks.bystander", *self._arguments]
        self._process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n"
        return self

    async def __aexit__(self, *error: object) -> None:
        out, _ = await self._process.communicate(b"stop\n")
        self.waits = msgspec.json.decode(out, type=Waits)


@asynccontextmanager
async def target(
    folder: Path,
    server: dict[str, Any] | None = None,
    *,
    config: str = "nano",
    before: str = "",
    descriptors: int | None = None,
    **top: Any,
) -> AsyncGenerator[Target]:
    """A server from ready to gone, with this ``server:`` section; ``descriptors`` is its ``ulimit -n``."""
    spec: dict[str, Any] = yaml.safe_load((ROOT / "configs" / f"{config}.yaml").read_text(encoding="utf-8"))
    spec["server"] = {**spec.get("server", {}), **(server or {})}
    spec.update(top)
    path, log = folder / "target.yaml", folder / "target.log"
    path.write_text(yaml.safe_dump(spec), encoding="utf-8")
    code = SERVE.format(before=before, config=str(path))
    limit = f"ulimit -n {descriptors}; " if descriptors else ""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", f'{limit}exec "$0" -P -c "$1"', sys.executable, code,
            cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        yield Target(process, await _ready(process, log), log)
    finally:
        await _stopped(process)


@contextmanager
def elsewhere() -> Iterator[None]:
    """Attackers have processors of their own: here this process is to take none that the server asks for."""
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    try:
        yield
    finally:
        with suppress(OSError):  # only root may take it back; without that the rest of the tests is slower
            os.setpriority(os.PRIO_PROCESS, 0, 0)


@asynccontextmanager
async def attacked(
    folder: Path,
    server: dict[str, Any] | None = None,
    *,
    key: str = "",
    asks: bool = False,
    listens: bool = False,
    **more: Any,
) -> AsyncGenerator[tuple[Target, Bystander, Peak]]:
    """A target with a healthy client beside it; what it saw is read once this is left."""
    async with target(folder, server, **more) as aim:
        bystander, peak = Bystander(aim, key, asks, listens), Peak()
        watching = asyncio.create_task(peak.watch(aim), name="peak")
        try:
            async with bystander:
                with elsewhere():
                    yield aim, bystander, peak
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


async def _ready(process: Process, log: Path) -> int:
    """The port, once the server says that it answers."""
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and process.returncode is None:
        if found := re.search(r"talk to it at https?://\S+:(\d+)", _text(log)):
            return int(found[1])
        await asyncio.sleep(0.1)
    raise AssertionError(f"the server did not come up:\n{_text(log)[-3000:]}")


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


async def _stopped(process: Process) -> None:
    """End it and its workers, gently first."""
    family = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
