"""Measure users' audio while other clients flood the server, compared with the same without a flood.

    python -m benchmarks.floods [--seconds 60] [--connections 0 1 10 50] [--users 4]

Users speak into open microphones, listen to each answer, and speak again. The flooding clients are a separate process:
each sends tiny events, pings and empty frames as fast as possible, reads all replies, and reconnects after a
disconnect. The bar: all answers complete, no underruns, and a first sound (p95) of at most 1.5 times the value without
a flood. Exits with 1 if the bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from app.bench.client import BenchClient, Turn, open_client
from app.bench.figures import percentile
from app.bench.sessions import hear_out, speech
from app.bench.target import Target
from engine.aio.event_loop import run
from tests.attacks.raw import PING, TEXT, frame, upgraded
from tests.attacks.target import target

FLOOD = (frame(TEXT, b"{}") * 100 + frame(PING) * 100 + frame(TEXT) * 100) * 20
LATER = 1.5
"""Maximum ratio of the first sound with a flood to the one without."""
AGAIN_S = 0.5
"""Seconds before a disconnected client reconnects."""


async def flood(port: int, connections: int) -> None:
    """Flood the server until this process is ended."""
    await asyncio.gather(*(_flood_for_ever(port) for _ in range(connections)))


async def _flood_for_ever(port: int) -> None:
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await upgraded(port)
            reading = asyncio.create_task(_read(reader), name="read")
            try:
                while True:
                    writer.write(FLOOD)
                    await writer.drain()
            finally:
                reading.cancel()
                writer.transport.abort()
        await asyncio.sleep(AGAIN_S)


async def _read(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1 << 16):
            pass


@asynccontextmanager
async def flooding(port: int, connections: int) -> AsyncGenerator[None]:
    """Run the flooding clients in a separate process."""
    if not connections:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.floods", "--flood", str(port), str(connections)]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def spoken_turns(aim: Target, users: int, seconds: float) -> list[Turn]:
    """Let ``users`` users speak for ``seconds``, and return the turns they heard."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(aim)) for _ in range(users)]
        words = await speech(aim, clients[0])
        turns = list[Turn]()
        end_s = time.monotonic() + seconds

        async def speak(client: BenchClient) -> None:
            while time.monotonic() < end_s:
                turns.append(await hear_out(client, words))

        await asyncio.gather(*(speak(client) for client in clients))
    return turns


async def main(seconds: float, connections: list[int], users: int) -> int:
    missed, alone_ms = 0, float("nan")
    with tempfile.TemporaryDirectory() as folder:
        async with target(Path(folder), config="nano") as server:
            aim = Target(server.http)
            for count in connections:
                async with flooding(server.port, count):
                    before_s = server.cpu_s()
                    turns = await spoken_turns(aim, users, seconds)
                times_ms = [turn.ttfa_s * 1000 for turn in turns if turn.ttfa_s is not None]
                dry = sum(turn.player.underruns for turn in turns)
                whole = sum(turn.complete for turn in turns)
                p95_ms = percentile(times_ms, 95) or float("nan")
                alone_ms = p95_ms if not count else alone_ms
                kept = bool(turns) and whole == len(turns) and not dry and not p95_ms > LATER * alone_ms
                missed += not kept
                sys.stdout.write(
                    f"{count:3} flood: {whole} of {len(turns)} answers complete, {dry} underruns, "
                    f"last word → first sound p95 {p95_ms:.0f} ms ({p95_ms / alone_ms:.2f} ×; bar {LATER} ×), "
                    f"the server's process {server.cpu_s() - before_s:.1f} s of CPU: {'kept' if kept else 'MISSED'}\n"
                )
                sys.stdout.flush()
    return min(missed, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--connections", type=int, nargs="+", default=[0, 1, 10, 50])
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--flood", type=int, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sys.exit(run(flood(*asked.flood) if asked.flood else main(asked.seconds, asked.connections, asked.users)))
