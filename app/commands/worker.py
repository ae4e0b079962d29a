"""`parley worker`: runs processes that host stages for a server elsewhere.

A process that has lost its server is restarted and waits for the server to return, unless it was told to end.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from dataclasses import dataclass

from app.commands import terminal
from engine import ConfigError
from engine.aio.event_loop import run
from engine.ipc import spawn

GONE = 3
"""Exit code of a worker whose server is gone: see engine/worker/__main__.py."""


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """The stages and replicas that this machine offers, and the server that uses them."""

    join: str
    token_file: str
    stages: str
    devices: tuple[str, ...]
    replicas: int
    address: str
    wait_s: float

    def command(self, replica: int, key: str) -> list[str]:
        options = {
            "--join": self.join,
            "--token-file": self.token_file,
            "--stages": self.stages,
            "--device": self.devices[replica % len(self.devices)],
            "--key": key,
            "--address": self.address,
            "--wait": str(self.wait_s),
        }
        return [*spawn.worker(), *(word for pair in options.items() for word in pair), "--tied"]


def run_workers(offer: WorkerOffer) -> bool:
    """Run the workers until the server releases them or a signal arrives.

    Returns whether all ended without an error.
    """
    if offer.replicas > len(offer.devices) and set(offer.devices) != {"cpu"}:
        raise ConfigError(f"--devices: {offer.replicas} replicas need as many devices (got {len(offer.devices)})")
    return run(_Workers(offer).run())


class _Workers:
    def __init__(self, offer: WorkerOffer) -> None:
        self._offer = offer
        self._leaving = False
        self._running: set[asyncio.subprocess.Process] = set()

    async def run(self) -> bool:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._leave)
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(self._keep(i), name=f"worker{i}") for i in range(self._offer.replicas)]
        return all(end.result() for end in ends)

    async def _keep(self, replica: int) -> bool:
        key = secrets.token_hex(16)  # by which the server recognises the replica
        while not self._leaving:
            process = await asyncio.create_subprocess_exec(
                *self._offer.command(replica, key),
                stdin=asyncio.subprocess.PIPE,
                env=spawn.environment(),
                start_new_session=True,  # we pass Ctrl-C on ourselves
            )
            self._running.add(process)
            if self._leaving and process.returncode is None:  # the signal arrived during the start
                process.send_signal(signal.SIGTERM)
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                self._running.discard(process)
            if code in (0, 1):
                return code == 0
            if not self._leaving:
                terminal.say(f"worker {replica} lost its server; reconnecting")
        return True

    def _leave(self) -> None:
        """Ask the workers to end after their current work at the first signal; kill them at the second."""
        for process in self._running:
            process.send_signal(signal.SIGKILL if self._leaving else signal.SIGTERM)
        self._leaving = True
