"""Measurements over the WebSocket as a client sees them: typed and concurrent turns, voice sessions and full load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack

import numpy as np

from app.bench.client import BenchClient, Turn, open_client, outcome
from app.bench.figures import Figure, percentile
from app.bench.target import BenchError, Target, voiced
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm

PROMPTS = (
    "Hello there.",
    "What can you do?",
    "What is twelve plus thirty?",
    "Repeat after me: the blue car is late.",
    "Who are you?",
    "Spell house.",
    "What is ninety minus forty five?",
    "What time is it?",
)
SPOKEN = "Repeat after me: what can you do."
"""A text that the server speaks, and the bench then says to it."""

AT_ONCE = 8
SPEAKERS = 2


class Clients:
    """CPU usage of this process, which contains all clients."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, busy: Callable[[], float] = time.process_time
    ) -> None:
        self._now = now
        self._busy = busy
        self._begun_s = now()
        self._before_s = busy()

    @property
    def cores(self) -> float:
        """Return the average number of busy cores since the start."""
        return (self._busy() - self._before_s) / max(self._now() - self._begun_s, 1e-9)


async def typed(target: Target, count: int) -> list[Figure]:
    """Measure the time from response.create to the first audible sound, for typed turns, one after another."""
    async with open_client(target) as client:
        await client.typed(PROMPTS[0])
        turns = [await client.typed(PROMPTS[i % len(PROMPTS)]) for i in range(count)]
    return _first_audio("TTFA(commit), typed", turns, bar=120)


async def typed_at_once(target: Target, rounds: int) -> list[Figure]:
    """Measure underruns while eight clients request answers at the same time."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(target)) for _ in range(AT_ONCE)]
        took = Clients()
        turns = [
            turn
            for i in range(rounds)
            for turn in await asyncio.gather(
                *(client.typed(PROMPTS[(i + j) % len(PROMPTS)]) for j, client in enumerate(clients))
            )
        ]
    return [*underruns(f"{AT_ONCE} typed answers at once", turns, took), *_first_audio("TTFA of those", turns)]


async def voices(target: Target, rounds: int) -> list[Figure]:
    """Measure eight open microphones; two users speak at a time, the others are silent."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(target)) for _ in range(AT_ONCE)]
        words = await speech(target, clients[0])
        took = Clients()
        turns = [turn for i in range(rounds) for turn in await _voice_round(clients, words, i)]
    return [
        *underruns(f"{AT_ONCE} voice sessions, {SPEAKERS} speaking", turns, took),
        *_first_audio("last word → first sound", turns),
    ]


async def full_load(target: Target, listeners: int, seconds: float) -> list[Figure]:
    """Measure underruns of ``listeners`` that request answers continuously, each after hearing the previous one."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(target)) for _ in range(listeners)]
        took, until_s = Clients(), time.monotonic() + seconds
        talks = await asyncio.gather(*(_listener(client, i, until_s) for i, client in enumerate(clients)))
    turns = [turn for turns in talks for turn in turns]
    return underruns(f"{listeners} listeners for {seconds:.0f} s", turns, took)


async def _listener(client: BenchClient, number: int, until_s: float) -> list[Turn]:
    """Start at a different time than the other listeners, so that not all requests arrive at once."""
    await asyncio.sleep(number * 0.1)
    return await talk(client, number, until_s)


async def talk(client: BenchClient, number: int, until_s: float) -> list[Turn]:
    """Return one listener's turns; each question follows the end of the last answer."""
    turns: list[Turn] = []
    while time.monotonic() < until_s:
        turn = await client.typed(PROMPTS[(number + len(turns)) % len(PROMPTS)])
        turns.append(turn)
        await asyncio.sleep(max(0.0, turn.player.ends_s - time.monotonic()))
    return turns


async def speech(target: Target, client: BenchClient, asked: str = SPOKEN) -> Pcm:
    """Return speech for a microphone without silence at its ends: int16 [samples] at SPEAKER_RATE_HZ."""
    if target.speech is not None:
        return target.speech
    turn = await client.typed(asked)
    if not turn.complete:
        raise BenchError("the server returned no audio, so the bench has no speech to send: use --speech FILE")
    return voiced((turn.player.wave * 32767).astype("<i2"))


async def _voice_round(clients: Sequence[BenchClient], speech: Pcm, number: int) -> list[Turn]:
    """Run all microphones until both answers are complete. Two of the microphones contain speech."""
    speakers = [clients[(number * SPEAKERS + i) % len(clients)] for i in range(SPEAKERS)]
    others = [client for client in clients if client not in speakers]
    silent = [asyncio.create_task(silence(client)) for client in others]
    try:
        return list(await asyncio.gather(*(speak(client, speech) for client in speakers)))
    finally:
        for task in silent:
            task.cancel()
        await asyncio.wait(silent)


async def speak(client: BenchClient, speech: Pcm) -> Turn:
    """Speak, and then send silence until the answer is complete."""
    await client.microphone(speech)
    client.speech_ended()
    quiet = asyncio.create_task(silence(client))
    try:
        return await client.answer()
    finally:
        quiet.cancel()
        await asyncio.wait([quiet])


async def hear_out(client: BenchClient, speech: Pcm) -> Turn:
    """Speak, and wait until the answer has been heard."""
    turn = await speak(client, speech)
    await asyncio.sleep(max(0.0, turn.player.ends_s - time.monotonic()))
    return turn


async def silence(client: BenchClient) -> None:
    """Send silence until cancelled."""
    while True:
        await client.microphone(np.zeros(SPEAKER_RATE_HZ, "<i2"))


def _first_audio(name: str, turns: Sequence[Turn], bar: float | None = None) -> list[Figure]:
    """Return p50 and p95. A missing answer makes both figures missing."""
    times_ms = [turn.ttfa_s * 1000 for turn in turns if turn.ttfa_s is not None]
    missing = len(turns) - len(times_ms)
    note = f"{len(turns)} turns" + (f", {missing} without sound: {counted(map(outcome, turns))}" if missing else "")
    values = (None, None) if missing else (percentile(times_ms, 50), percentile(times_ms, 95))
    return [
        Figure(name=f"{name}, p50", value=values[0], unit="ms", bar=bar, note=note),
        Figure(name=f"{name}, p95", value=values[1], unit="ms"),
    ]


def underruns(name: str, turns: Sequence[Turn], took: Clients) -> list[Figure]:
    """Count the underruns of a player without a buffer. An incomplete answer makes the figure missing."""
    whole = all(turn.complete for turn in turns)
    count = sum(turn.player.underruns for turn in turns)
    dry_ms = sum(turn.player.dry_s for turn in turns) * 1000
    played_s = sum(turn.player.seconds for turn in turns)
    note = f"{dry_ms:.0f} ms dry in {played_s:.0f} s" if whole else counted(map(outcome, turns))
    note += f"; the clients took {took.cores:.2f} of a core"
    return [Figure(name=f"{name}: underruns", value=float(count) if whole else None, unit="", bar=0, note=note)]


def counted(outcomes: Iterable[str]) -> str:
    """Count outcomes, most frequent first: ``12 completed; 4 failed: …``."""
    return "; ".join(f"{count} {one}" for one, count in Counter(outcomes).most_common())
