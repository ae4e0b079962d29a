"""Steps that are held up by what a device has not computed before: the part ``stalls`` of benchmarks.gpu."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu_steps import Bench

Crowd = Callable[[int, str, Sequence[float]], Awaitable[Any]]
"""So many users who come after so many seconds each, by a title."""
MANY = 3  # times the median of its kind that a step takes at most
KNOWN = 5  # steps of a kind from which on it has a median


class Kinds:
    """The milliseconds of steps by their kind: the stage, how many requests, and what they had it compute."""

    def __init__(self, stages: dict[str, Any]) -> None:
        self.took: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._began_s = time.perf_counter()
        self.when: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for name, stage in stages.items():
            self._watch(name, stage)

    def _watch(self, name: str, stage: Any) -> None:
        work, step = list[Any](), stage.step

        def noting(owner: Any, what: str, size: Callable[..., Any]) -> None:
            compute = getattr(owner, what)

            def computing(*given: Any, **named: Any) -> Any:
                work.append((what, size(*given)))
                return compute(*given, **named)

            setattr(owner, what, computing)

        if name == "code2wav":
            noting(stage, "decoded", lambda slots, _, codes, fresh: (bucket(len(slots)), codes.shape[1], fresh))
        else:
            noting(stage.net, "prefills", lambda batch, *_: (bucket(sum(batch.counts)), bucket(len(batch))))
            noting(stage.net, "write" if name == "thinker" else "speak", lambda inputs: bucket(len(inputs)))
        if name == "thinker":
            noting(stage.encoders, "ears", lambda _, lengths: bucket(len(lengths)))

        def timing(requests: Any) -> Any:
            work.clear()
            began_s = time.perf_counter()
            found = step(requests)
            kind = name, bucket(len(requests)), *work
            self.took[kind].append((time.perf_counter() - began_s) * 1e3)
            self.when[kind].append(began_s - self._began_s)
            return found

        stage.step = timing


def bucket(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()


async def stalls(bench: Bench, crowd: Crowd, kinds: Kinds, seconds: float) -> None:
    """Have 1 to 64 users come again and again; tell the steps that took more than three times their kind's median."""
    dice, until_s, answers = np.random.default_rng(1), time.monotonic() + seconds, 0
    most = min(64, bench.asked.slots)
    while time.monotonic() < until_s:
        count = int(min(most, 2 ** dice.uniform(0, 6.01)))
        await crowd(count, f"stalls-{answers}", dice.uniform(0, 1.5, count).tolist())
        answers += count
        await asyncio.sleep(0)
    for name in ("thinker", "talker", "code2wav"):
        own = {kind: times for kind, times in kinds.took.items() if kind[0] == name}
        medians = {kind: statistics.median(times) for kind, times in own.items() if len(times) >= KNOWN}
        late = sorted(
            (
                (one / median, one, kind, round(kinds.when[kind][i], 1))
                for kind, median in medians.items()
                for i, one in enumerate(own[kind])
                if one > MANY * median
            ),
            reverse=True,
            key=lambda found: found[0],
        )
        firsts = [own[kind][0] / median for kind, median in medians.items()]
        rare = max((max(times) for kind, times in own.items() if kind not in medians), default=0.0)
        row: dict[str, Any] = {"stage": name, "seconds": seconds, "answers": answers}
        row |= {"steps": sum(map(len, own.values())), "kinds": len(own), "above 3 x median": len(late)}
        row |= {"a kind's first, at most x median": max(firsts, default=0.0)}
        row |= {"longest ms": max((max(times) for times in own.values()), default=0.0), "of a rare kind ms": rare}
        bench.note("stalls", row | ({"worst": str(late[:4])} if late else {}))
