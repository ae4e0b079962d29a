"""The released payload builders as an oracle: random payloads of each transition, and what they are to be equal to.

A case is a call of the released builder, and a check of its result against ours. The check returns the cause where the
two differ on purpose, and what is left to be equal then has been asserted.
"""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk, Tensors, Text, Usage
from engine.worker.transitions.transition import Transition
from tests.conformance.environments import ORACLES, Environment

RELEASE = Environment("vllm_omni", ORACLES)
MINUTES = 10.0
"""The time after which the process of the builders is given up."""
REFUSED = "refused"
Rng = np.random.Generator
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """A payload: the call of the released builder, and the check of its result."""

    call: tuple[Any, ...]
    check: Callable[[Any], str]


def results(calls: Sequence[tuple[Any, ...]]) -> tuple[list[Any], dict[str, list[str]]]:
    """What the builders made of every call, and the code of theirs that was not reached, by function."""
    command = [RELEASE.tool, str(RELEASE.recipe / "program.py"), str(RELEASE.folder)]
    asked = pickle.dumps([(name, arguments) for name, *arguments in calls])
    done = subprocess.run(command, input=asked, capture_output=True, timeout=60 * MINUTES)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return pickle.loads(done.stdout)


def given(transition: Transition[Any], steps: Iterable[msgspec.Struct]) -> list[Any]:
    """The payloads of a request."""
    chunks: list[Chunk] = [step if isinstance(step, Text | Usage) else Tensors.of(step) for step in steps]
    return [*(payload for chunk in chunks for payload in transition.add(chunk)), transition.end()]


def pieces(rng: Rng, rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Rows in random pieces; some are empty."""
    cuts = np.sort(rng.integers(0, len(rows) + 1, rng.integers(0, 6)))
    return [*np.split(rows, cuts), *([rows[:0]] * int(rng.integers(0, 2)))]


def chosen(rng: Rng, *words: Any) -> Any:
    return words[int(rng.integers(len(words)))]


def one_in(rng: Rng, n: int) -> bool:
    return bool(rng.integers(n) == 0)


def equal(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


REPEATED = "a call without a frame behind a full window: nothing, or the end, here; that window once more there"


def once(windows: list[Any]) -> list[Any]:
    """The windows without those that repeat the one before."""
    pairs = zip([(np.zeros(0), -1, False), *windows[:-1]], windows, strict=True) if windows else []
    return [one for before, one in pairs if before[1] != one[1] or not np.array_equal(before[0], one[0])]


def same_windows(ours: list[Any], theirs: list[Any]) -> None:
    """Compare windows; the end may come with the last of them, or by itself."""
    one, other = ([*windows[: len(windows) - (len(windows[-1][0]) == 0)]] for windows in (ours, theirs))
    assert [context for _, context, _ in one] == [context for _, context, _ in other]
    assert ours[-1][2]
    for (ids, _, _), (wanted, _, _) in zip(one, other, strict=True):
        equal(ids, wanted)
