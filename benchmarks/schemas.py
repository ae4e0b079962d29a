"""Measure answers in JSON of a real language model in llama.cpp, and the delay of other users by costly schemas.

    python -m benchmarks.schemas valid [--weights FILE]
    python -m benchmarks.schemas others [--weights FILE] [--attackers 5] [--rounds 15]

valid   answers to each schema of the tests that a grammar can express: valid, cut off at the limit of tokens (finish
        reason "length"), or wrong
others  time of one user's answer of 24 tokens, p50: alone, and while clients send costly schemas one after another;
        the ratio of both. The rounds of all rows alternate.

The rows of `others`, by the requests of the other clients:

alone     none
refused   schemas that are refused after a long compilation, each different
accepted  schemas with almost as many alternatives as permitted, which make each token costly
plain     the same questions, without a schema

FILE is a GGUF file. The default is SmolLM2 135M, which `python -m tests.real.weights` downloads. `llm.vllm` is not
measured: vLLM compiles schemas itself. Exits with 1 if an answer is wrong, or a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from rich.console import Console

from benchmarks.program import check_bar, parser
from engine import (
    IN_WRITING,
    Engine,
    EngineSpec,
    JsonFormat,
    Message,
    Request,
    StageSpec,
    Text,
    TextPart,
    Usage,
    WorkerSpec,
)
from engine.core import Sampling
from engine.errors import RequestError
from engine.worker.llm.grammar.schema import MOST_OPTIONS
from tests.engine.worker.llm.grammar.schemas import DIGIT, ENFORCED, obj, optional
from tests.real.weights import CACHE

WEIGHTS = CACHE / "smollm2-135m"
QUESTION = "Give a short example."
MOST_TOKENS = 2500
TOKENS = 24
RATIO = 1.5
"""Maximum ratio of a user's time beside costly schemas to the time alone, or beside as many plain requests."""
print_ = Console(width=120, highlight=False).print


def spec(weights: Path, slots: int) -> EngineSpec:
    """Return a deployment that writes only."""
    options = {"context": 4096, "first_token_s": 300.0, "stall_s": 300.0}
    stages = (StageSpec(use="llm.llamacpp", name="thinker", weights=str(weights), max_batch=slots, options=options),)
    return EngineSpec(stages=stages, workers=(WorkerSpec(stages=("thinker",)),), stall_s=300.0)


def asked(id: str, most: int, schema: Any = None) -> Request:
    return Request(
        id=id,
        session=id,
        messages=(Message("user", (TextPart(QUESTION),)),),
        wants=IN_WRITING,
        format=None if schema is None else JsonFormat(schema=schema),
        max_text_tokens=most,
        sampling=Sampling(greedy=True),
    )


async def answer(engine: Engine, request: Request) -> tuple[str, str]:
    """Return an answer and its finish reason."""
    text, finish = "", ""
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            match chunk:
                case Text(piece):
                    text += piece
                case Usage():
                    finish = chunk.finish
                case _:
                    pass
    return text, finish


async def valid(weights: Path) -> bool:
    results: dict[str, list[str]] = {"valid": [], "cut off": [], "wrong": []}
    async with Engine(spec(weights, 1)) as engine:
        for n, (name, schema) in enumerate(ENFORCED.items()):
            text, finish = await answer(engine, asked(f"v{n}", MOST_TOKENS, schema))
            results[_judged(text, finish, schema)].append(name)
    for result, names in results.items():
        listed = "" if result == "valid" else f": {', '.join(names)}" if names else ""
        print_(f"{result:8} {len(names):3} of {len(ENFORCED)}{listed}")
    return not results["wrong"]


def _judged(text: str, finish: str, schema: Any) -> str:
    if finish == "length":
        return "cut off"
    try:
        Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))
    except (ValueError, ValidationError):
        return "wrong"
    return "valid"


def refused(n: int) -> Any:
    """Return a schema that is refused at the limit of steps."""
    return obj(**{f"p{k}": {"type": "string", "pattern": f"^(a|b|{n})*a(a|b){{8}}{k}$"} for k in range(200)})


def accepted(_: int) -> Any:
    """Return a schema whose grammar has almost as many alternatives at one place as permitted."""
    return optional(**{f"p{k}": DIGIT for k in range(MOST_OPTIONS - 1)})


Schema = Callable[[int], Any]
OTHERS: Mapping[str, Schema | None] = {"refused": refused, "accepted": accepted, "plain": lambda n: None, "alone": None}


async def others(weights: Path, attackers: int, rounds: int) -> bool:
    times: dict[str, list[float]] = {name: [] for name in OTHERS}
    numbers = count()
    async with Engine(spec(weights, attackers + 1)) as engine:
        await answer(engine, asked("warm", TOKENS))
        for _ in range(rounds):
            for name, schema in OTHERS.items():
                async with attacked(engine, attackers, schema, numbers):
                    began_s = time.monotonic()
                    await answer(engine, asked(f"u{next(numbers)}", TOKENS))
                    times[name].append(time.monotonic() - began_s)
    medians = {name: statistics.median(all_of) for name, all_of in times.items()}
    for name, median_s in medians.items():
        print_(f"{name:9} p50 {median_s * 1000:6.0f} ms   max {max(times[name]) * 1000:6.0f} ms")
    results = [
        check_bar("refused schemas, over alone", medians["refused"] / medians["alone"], "<=", RATIO, "x"),
        check_bar("accepted schemas, over plain requests", medians["accepted"] / medians["plain"], "<=", RATIO, "x"),
    ]
    return all(results)


@asynccontextmanager
async def attacked(engine: Engine, attackers: int, schema: Schema | None, numbers: count[int]) -> AsyncGenerator[None]:
    """Let clients send one request after another during the block, each of them one before it."""
    begun = [asyncio.Event() for _ in range(attackers if schema is not None else 0)]

    async def attack(first: asyncio.Event) -> None:
        while schema is not None:
            n = next(numbers)
            try:
                first.set()
                await answer(engine, asked(f"a{n}", TOKENS, schema(n)))
            except RequestError:
                pass

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attack(one), name="attack") for one in begun]
        for one in begun:
            await one.wait()
        yield
        for task in tasks:
            task.cancel()


def main() -> int:
    made = parser(__doc__)
    made.add_argument("what", choices=("valid", "others"))
    made.add_argument("--weights", type=Path, default=WEIGHTS, metavar="FILE", help="a GGUF file (SmolLM2 135M)")
    made.add_argument("--attackers", type=int, default=5, help="clients that send costly schemas")
    made.add_argument("--rounds", type=int, default=15, help="answers of each row")
    given: argparse.Namespace = made.parse_args()
    if given.what == "valid":
        return int(not asyncio.run(valid(given.weights)))
    return int(not asyncio.run(others(given.weights, given.attackers, given.rounds)))


if __name__ == "__main__":
    sys.exit(main())
