"""Figures over the WebSocket that take their time to measure: hesitant users, long conversations, minutes of full
load."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from statistics import median

import numpy as np

from app.bench.client import END_MS, Client, Turn, open_client
from app.bench.figures import Figure, interval, percentile
from app.bench.sessions import PROMPTS, Clients, hear_out, speech, underruns
from app.bench.target import Target
from engine import SPEAKER_RATE_HZ

HESITATION_S = 0.35
"""Longer than the silence after which an answer is begun, shorter than the one that ends a turn."""

TURNS = 20
LATE = 4  # so many of them count as late ones
ASKED = ("Repeat after me: the red house.", "Repeat after me: the big train.", "Repeat after me: the old river.")
"""Turns of one length, whose answers are of one length too."""


async def hesitant(target: Target, count: int) -> list[Figure]:
    """Last word → first sound beyond the silence that ends a turn, of users who pause in mid-sentence.

    Nothing may be heard before the turn is over: an answer to half a sentence would come ``HESITATION_S`` early.
    """
    async with open_client(target, END_MS) as client:
        words = await speech(target, client)
        half = np.zeros(round(HESITATION_S * SPEAKER_RATE_HZ), "<i2")
        turns = [await hear_out(client, np.concatenate([words, half, words])) for _ in range(count)]
    beyond = [turn.ttfa_s * 1000 - END_MS for turn in turns if turn.ttfa_s is not None]
    whole = len(beyond) == len(turns)
    early = sum(ms < 0 for ms in beyond)
    note = f"{count} turns with a pause of {HESITATION_S * 1000:.0f} ms, {early} answered too early"
    held = whole and not early
    name, p50, p95 = "last word → first sound − end silence", *(percentile(beyond, percent) for percent in (50, 95))
    return [
        Figure(name=f"{name}, p50", value=p50 if held else None, unit="ms"),
        Figure(name=f"{name}, p95", value=p95 if held else None, unit="ms", bar=20, note=note),
    ]


async def long_conversations(target: Target, count: int) -> Figure:
    """TTFA of the last turns of long conversations over that of the first turn of new ones.

    A pair is the same question at both ends, one right after the other and in the order ABBA: between the first turn of
    a conversation and its own last a minute passes, in which the machine may have become slower.
    """
    name, pairs = f"TTFA of turn {TURNS} over turn 1", [await _both_ends(target) for _ in range(count)]
    ratios = [ratio for conversation in pairs for ratio in conversation if ratio is not None]
    if len(ratios) < count * LATE:
        return Figure(name=name, value=None, unit="", note="answers are missing")
    low, high = interval(ratios)
    note = f"median of {len(ratios)} pairs in {count} conversations; 95 %: {low:.3g} to {high:.3g}"
    return Figure(name=name, value=median(ratios), unit="", bar=1.10, note=note)


async def _both_ends(target: Target) -> list[float | None]:
    """The ratios of one long conversation; None where an answer had no sound."""
    ratios: list[float | None] = []
    async with open_client(target) as client:
        for i in range(TURNS):
            asked, late = ASKED[i % len(ASKED)], i >= TURNS - LATE
            before = await _first(target, asked) if late and i % 2 else None
            turn = await client.typed(asked)
            if late:
                first = before or await _first(target, asked)
                ratios.append(turn.ttfa_s / first.ttfa_s if turn.ttfa_s and first.ttfa_s else None)
    return ratios


async def _first(target: Target, asked: str) -> Turn:
    """The first turn of a conversation."""
    async with open_client(target) as client:
        return await client.typed(asked)


async def full_load(target: Target, listeners: int, seconds: float) -> list[Figure]:
    """Speak to so many listeners all the time; each asks again as soon as they have heard the answer."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_client(target)) for _ in range(listeners)]
        took, until_s = Clients(), time.monotonic() + seconds
        talks = await asyncio.gather(*(_listener(client, i, until_s) for i, client in enumerate(clients)))
    turns = [turn for turns in talks for turn in turns]
    return underruns(f"{listeners} listeners for {seconds:.0f} s", turns, took)


async def _listener(client: Client, number: int, until_s: float) -> list[Turn]:
    """Begin at a moment of one's own, so that not all ask at once for ever."""
    await asyncio.sleep(number * 0.1)
    return await talk(client, number, until_s)


async def talk(client: Client, number: int, until_s: float) -> list[Turn]:
    """One listener's turns: they ask again when they have heard the answer."""
    turns: list[Turn] = []
    while time.monotonic() < until_s:
        turn = await client.typed(PROMPTS[(number + len(turns)) % len(PROMPTS)])
        turns.append(turn)
        await asyncio.sleep(max(0.0, turn.player.ends_s - time.monotonic()))
    return turns
