"""Measure the gap before a chain's second model answers, if its first one fails.

    python -m benchmarks.chains [--rounds 50]

Both models are servers in this program that answer at once. Requests to the chain alternate with requests to the second
model alone. Each request has an engine of its own, because a chain skips a model that has failed.

killed    the first model's server closes the connection without an answer, twice
refuses   its server is busy, and names a wait of one second
stalled   its server sends no token; the limit `first_token_s` is 0.3 s
gap       time to the first token, without the median of the second model alone, and without the limit
ratio     median time to the first token over the median of the second model alone, both with the limit
repeated  answers that are not exactly the words of the second model

Exits with 1 if a gap exceeds 150 ms, or a word is repeated.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.program import parser
from engine import IN_WRITING, Engine, EngineSpec, Message, Request, StageSpec, Text, TextPart, WorkerSpec
from engine.deployment.config import ModelSpec
from tests.engine.worker.llm.scripted import Reply, answer, broken, scripted, stalled, stream, words

WORDS = ("The ", "second ", "model ", "answers.")
LIMIT_S = 0.3
BAR_MS = 150.0
WARM_UP = 3
"""Requests whose times do not count."""
FAILURES: dict[str, Reply] = {
    "killed": broken(head=False),
    "refuses": answer(429, {"error": {"message": "Rate limit"}}, retry_after="1"),
    "stalled": stalled(),
}


def alone(url: str) -> StageSpec:
    return StageSpec(use="llm.openai", name="thinker", options={"url": url, "model": "m"})


def chain(first: str, second: str) -> StageSpec:
    models = (
        ModelSpec(use="llm.openai", options={"url": first, "model": "m", "first_token_s": LIMIT_S}),
        ModelSpec(use="llm.openai", options={"url": second, "model": "m"}),
    )
    return StageSpec(use="llm.chain", name="thinker", models=models)


async def asked(stage: StageSpec) -> tuple[float, str]:
    """Return the milliseconds to the first token, and the answer."""
    spec = EngineSpec(stages=(stage,), workers=(WorkerSpec(stages=("thinker",)),), launcher="inline")
    request = Request(id="r", session="s", messages=(Message("user", (TextPart("Hello"),)),), wants=IN_WRITING)
    text = ""
    first_ms = 0.0
    async with Engine(spec) as engine:
        begun_s = time.monotonic()
        async with engine.open(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Text):
                    first_ms = first_ms or (time.monotonic() - begun_s) * 1000
                    text += chunk.text
    return first_ms, text


async def measure(failure: Reply, rounds: int) -> tuple[list[float], list[float], int]:
    """Return the times of the chain and of its second model alone in milliseconds, and the repeated answers."""
    chained: list[float] = []
    direct: list[float] = []
    repeated = 0
    listed = answer(404)
    good = stream(*words(*WORDS))
    async with scripted(failure, models=listed) as first, scripted(good, models=listed) as second:
        for _ in range(rounds + WARM_UP):
            first_ms, text = await asked(chain(first.url, second.url))
            repeated += text != "".join(WORDS)
            chained.append(first_ms)
            direct.append((await asked(alone(second.url)))[0])
    return chained[WARM_UP:], direct[WARM_UP:], repeated


async def run(rounds: int) -> bool:
    table = Table("first model", "n", "alone, p50, ms", "gap, p50, ms", "gap, most, ms", "ratio", "repeated")
    good = True
    for name, failure in FAILURES.items():
        chained, direct, repeated = await measure(failure, rounds)
        limit_ms = LIMIT_S * 1000 if name == "stalled" else 0.0
        own_ms = median(direct) + limit_ms
        gaps = [first_ms - own_ms for first_ms in chained]
        row = (f"{value:.1f}" for value in (median(direct), median(gaps), max(gaps), median(chained) / own_ms))
        table.add_row(name, str(len(gaps)), *row, str(repeated))
        good = good and max(gaps) <= BAR_MS and not repeated
    Console(width=120).print(table)
    return good


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=50)
    sys.exit(0 if asyncio.run(run(made.parse_args().rounds)) else 1)


if __name__ == "__main__":
    main()
