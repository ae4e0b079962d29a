"""Requests of mixed lengths in one cache that they share (``options.cache_tokens``), beside a full context for each.

    python -m benchmarks.shared_cache [--slots 64] [--full 16] [--context 2048] [--rounds 15] [--threads 1]

The cache has the positions of ``--full`` contexts. Requests are drawn once: prompts of 60 to 1,500 tokens, most of them
short, and at most 64 to 256 tokens of an answer, which takes a third to all of that.

- *at once*: how many of them have room at the same time, of ``--slots``.
- *unused*: the share of the cache's positions in which nothing is written, the mean over the steps of all answers while
  others wait: room that a request may still use, room that its answer will not use, and what nobody has. Also the share
  of what requests had that they never used.
- *a step*: one decode step of so many requests at their mean lengths in two layers of Qwen3-0.6B's shape, in float32 on
  this CPU, where they share the cache and where each has a full context: medians of rounds taken in turn, and of
  their ratios. So, too, of one of 32,000 beside 63 of 200, in one narrow layer, of which 64 contexts of 32,768 fit into
  memory. The last line is the best case for full contexts: requests that all have as many, which are one attention
  there, and here each their own.

It ends with 1 where fewer than ``--slots`` are there at once, a ratio of mixed lengths is above 1.05, or more than 30 %
is unused.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.steps import QWEN3, RandomReader
from engine.core import Request
from engine.worker.nn.decoder import Decoder
from engine.worker.nn.slots import CachePositions, KvSlots
from engine.worker.omni.room import Room
from engine.worker.pace import OneFrame
from engine.worker.stage_request import StageRequest

NARROW: dict[str, Any] = QWEN3 | {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64}
LONG, SHORT = 32_000, 200
MOST_RATIO, MOST_UNUSED = 1.05, 0.30


@dataclass(slots=True)
class Asked:
    """A request: its prompt, what its answer may have, and what it takes of that; ``written`` rows so far."""

    prompt: int
    limit: int
    answer: int
    written: int = 0

    @property
    def need(self) -> int:
        return self.prompt + self.limit


@dataclass(frozen=True, slots=True)
class Traffic:
    """The way in which requests that come one after the other shared a cache."""

    at_once: int
    unused: float
    never_used: float


def drawn(count: int) -> list[Asked]:
    dice = random.Random(5)
    found: list[Asked] = []
    for _ in range(count):
        limit = dice.choice((64, 128, 128, 256))
        prompt = round(60 * (1500 / 60) ** dice.betavariate(1.6, 1.9))
        found.append(Asked(prompt, limit, round(limit * dice.uniform(1 / 3, 1))))
    return found


def traffic(asked: Sequence[Asked], slots: int, positions: int, context: int) -> Traffic:
    """Have requests come as there is a slot for them, and go at their end; a step writes a row of each."""
    cache = KvSlots(1, slots, 1, context, 1, torch.device("meta"), torch.float32, positions)
    room, free, coming = Room(cache, lambda req: None), deque(range(slots)), deque(asked)
    inside: dict[StageRequest, Asked] = {}
    at_once, unused, had = 0, list[float](), 0
    while coming or inside:
        while coming and free:
            req = StageRequest(Request(id="", session="", messages=()), free.popleft(), OneFrame())
            inside[req] = coming.popleft()
        for req, one in inside.items():
            if not one.written and room.take(req, one.need, whole=True):
                one.written = one.prompt
                had = had + one.need
        running = [(req, one) for req, one in inside.items() if one.written]
        at_once = max(at_once, len(running))
        if coming:
            unused.append(1 - sum(one.written for _, one in running) / positions)
        for req, one in running:
            one.written += 1
            if one.written == one.prompt + one.answer:
                req.done = True
                free.append(req.slot)
                del inside[req]
    return Traffic(at_once, statistics.mean(unused), 1 - sum(one.prompt + one.answer for one in asked) / had)


@torch.inference_mode()
def steps_s(
    shape: dict[str, Any], lengths: Sequence[int], needs: Sequence[int], positions: int, context: int, rounds: int
) -> tuple[float, float, float]:
    """Return the seconds of a decode step where requests share a cache, and where each has a context; their ratio."""
    decoder = Decoder(RandomReader(torch.float32), SimpleNamespace(**shape))  # type: ignore[arg-type]
    slots = range(len(lengths))
    shared, full = decoder.cache(len(slots), context, positions), decoder.cache(len(slots), context)
    for slot, need in zip(slots, needs, strict=True):
        assert shared.resize(slot, need)
    x = torch.randn(len(slots), 1, shape["hidden_size"])
    angles = decoder.rope(torch.tensor(lengths, dtype=torch.float32)[:, None], torch.float32)
    times_s: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds + 1):  # the first one warms up
        for cache in (shared, full):
            begun_s = time.perf_counter()
            decoder.forward(x, angles, CachePositions.of(cache, slots, lengths, 1), cache)
            if turn:
                times_s[cache.shared].append(time.perf_counter() - begun_s)
    ours_s, full_s = times_s[True], times_s[False]
    ratios = [one / other for one, other in zip(ours_s, full_s, strict=True)]
    return statistics.median(ours_s), statistics.median(full_s), statistics.median(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("slots", 64), ("full", 16), ("context", 2048), ("rounds", 15), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    positions = asked.full * asked.context
    found = traffic(drawn(40 * asked.slots), asked.slots, positions, asked.context)
    say = sys.stdout.write
    say(f"at once, in the memory of {asked.full} contexts of {asked.context}: {found.at_once} of {asked.slots}\n")
    say(f"unused while others wait: {found.unused:.1%}; of what requests had, never used: {found.never_used:.1%}\n")
    first = drawn(asked.slots)
    mixed = [one.prompt + one.answer // 2 for one in first]
    needs = [one.need for one in first]
    cases = {
        f"{asked.slots} of {min(mixed)} to {max(mixed)} positions": (
            QWEN3 | {"num_hidden_layers": 2},
            mixed,
            needs,
            max(positions, sum(needs)),
            asked.context,
        ),
        f"one of {LONG} beside {asked.slots - 1} of {SHORT}": (
            NARROW | {"num_hidden_layers": 1},
            [LONG, *[SHORT] * (asked.slots - 1)],
            [LONG + 1, *[SHORT + 1] * (asked.slots - 1)],
            LONG + (SHORT + 2) * asked.slots,
            LONG + 768,
        ),
        f"{asked.slots} of 400 positions each, a control": (
            QWEN3 | {"num_hidden_layers": 2},
            [400] * asked.slots,
            [500 + one.limit for one in first],
            max(positions, asked.slots * 800),
            asked.context,
        ),
    }
    missed = found.at_once < asked.slots or found.unused > MOST_UNUSED
    for title, case in cases.items():
        ours_s, full_s, ratio = steps_s(*case, asked.rounds)
        missed |= ratio > MOST_RATIO and "control" not in title
        say(
            f"a step of {title}: {1000 * ours_s:.1f} ms shared, {1000 * full_s:.1f} ms in full contexts, "
            f"ratio {ratio:.2f}\n"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
