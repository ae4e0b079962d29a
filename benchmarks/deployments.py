"""Measure the memory of three pipelines in one process over one, and how the loss of one affects the others.

    python -m benchmarks.deployments

Each pipeline has nano's stages, and a thinker of its own. Ears and voice are equal in all of them. It prints:

memory   of all worker processes (PSS), for one pipeline and for three; the bar is twice one thinker's worker in
         addition, since the other workers are shared
loss     answers of the other pipelines while one pipeline's thinker is killed and restarted, and the time until that
         pipeline answers again
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import psutil

from benchmarks.program import check_bar, parser
from engine import (
    IN_WRITING,
    Deployments,
    Engine,
    EngineError,
    EngineSpec,
    Message,
    Request,
    StageSpec,
    TextPart,
    Usage,
    WorkerSpec,
)

NAMES = ("first", "second", "third")
NOISE = 1.1
"""Allowed ratio of the measured memory to the expected one."""


def spec(name: str) -> EngineSpec:
    """Return a pipeline. Its thinker's worker is unlike the others, so that it is not shared."""
    stages = tuple(StageSpec(use=f"nano.{one}", name=one) for one in ("ears", "thinker", "talker", "code2wav"))
    own = WorkerSpec(stages=("thinker",), max_batch=8 + NAMES.index(name))
    workers = (WorkerSpec(stages=("ears",)), own, WorkerSpec(stages=("talker", "code2wav")))
    return EngineSpec(name=name, stages=stages, workers=workers)


def workers() -> list[psutil.Process]:
    """Return the worker processes, the newest last."""
    found = [one for one in psutil.Process().children() if any("engine.worker" in part for part in one.cmdline())]
    return sorted(found, key=lambda one: one.create_time())


def memory_mb() -> list[float]:
    """Return the memory of each worker process."""
    return [one.memory_full_info().pss / 1e6 for one in workers()]


async def started(stack: AsyncExitStack, names: Sequence[str]) -> list[Engine]:
    specs = [spec(name) for name in names]
    deployments = Deployments(specs)
    return [await stack.enter_async_context(deployments.engine(one)) for one in specs]


async def answered(engine: Engine, id: str) -> bool:
    """Return whether a pipeline gives a whole answer."""
    question = Message("user", (TextPart("What is two plus three?"),))
    try:
        async with engine.open(Request(id=id, session=id, messages=(question,), wants=IN_WRITING)) as chunks:
            return any([isinstance(chunk, Usage) async for chunk in chunks])
    except EngineError:
        return False


async def measure() -> bool:
    async with AsyncExitStack() as stack:
        (only,) = await started(stack, NAMES[:1])
        await answered(only, "warm")
        one = memory_mb()
    async with AsyncExitStack() as stack:
        engines = await started(stack, NAMES)
        for engine in engines:
            await answered(engine, "warm")
        three = memory_mb()
        others, back_s = await _lost(engines)
    print(f"one pipeline   {sum(one):6.0f} MB in {len(one)} workers")
    print(f"three          {sum(three):6.0f} MB in {len(three)} workers")
    print(f"one is lost    {sum(others)} of {len(others)} answers of the others complete; back after {back_s:.1f} s")
    expected_mb = sum(one) + 2 * max(one)
    return all([check_bar("memory", sum(three), "<=", NOISE * expected_mb, "MB"), all(others)])


async def _lost(engines: Sequence[Engine]) -> tuple[list[bool], float]:
    """Kill the last pipeline's thinker, and let the others answer until it answers again."""
    *others, lost = engines
    began_s = time.monotonic()
    workers()[-1].kill()  # the last pipeline has started no other one
    answers: list[bool] = []
    while True:
        answers += await asyncio.gather(*(answered(one, f"o{len(answers)}") for one in others))
        if await answered(lost, f"l{len(answers)}"):
            return answers, time.monotonic() - began_s


def main() -> int:
    parser(__doc__).parse_args()
    return int(not asyncio.run(measure()))


if __name__ == "__main__":
    sys.exit(main())
