"""The number of duplex sessions that a device can serve in time, from the measured duration of a step."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from engine.core import Duplex, Request, StageInfo
from engine.errors import ConfigError
from engine.worker.pace import OneFrame
from engine.worker.stage import Stage
from engine.worker.stage_request import StageRequest

log = logging.getLogger(__name__)

USABLE = 0.9  # the part of a frame that may be used; the rest is a reserve
LOOP_S = 0.0002  # the step loop's time for a frame of one session; benchmarks.duplex measures half of it
STEPS = 7  # measured steps of each batch size


def sessions_held(stage: Stage, clock: Callable[[], float] = time.perf_counter) -> int:
    """Measure a duplex stage's steps, and return how many sessions it can serve; at most its slots.

    Raises:
        ConfigError: The device is too slow for one session.
    """
    info = stage.info
    duplex = info.facets.duplex or Duplex()
    limit_s = USABLE * duplex.frame_s
    took_s: dict[int, float] = {}
    for size in _sizes(info):
        took_s[size] = _step_s(stage, duplex, size, clock)
        if took_s[size] > limit_s:
            break
    count = fitting(took_s, limit_s)
    if not count:
        raise ConfigError(
            f"{info.name} is too slow on this device: a step takes {took_s[1] * 1000:.0f} ms, and may take at most "
            f"{limit_s * 1000:.0f} ms. Use a faster device or a smaller model."
        )
    steps = ", ".join(f"{size}: {step_s * 1000:.1f} ms" for size, step_s in took_s.items())
    log.info("%s can hold %d sessions (step time by sessions: %s)", info.name, count, steps)
    return count


def fitting(took_s: Mapping[int, float], limit_s: float) -> int:
    """Return the number of sessions whose frames are in time.

    When a frame is due, a step with another session may just have begun. So the steps of one session and of all
    sessions must fit into the limit, with the step loop's own time. A single session needs only its own step.

    Args:
        took_s: The duration of a step for some batch sizes, in ascending order, from 1.
        limit_s: The maximum duration.
    """
    if took_s[1] > limit_s:
        return 0
    sizes = range(1, max(took_s) + 1)
    times_s = np.interp(sizes, list(took_s), list(took_s.values()))
    frames_s = times_s + took_s[1] + LOOP_S * np.array(sizes)
    return max([1, *(size for size, frame_s in zip(sizes, frames_s, strict=True) if frame_s <= limit_s)])


def _sizes(info: StageInfo) -> list[int]:
    """Return 1, 2, 4 … and the number of slots."""
    return [*(2**n for n in range((info.slots - 1).bit_length())), info.slots]


def _step_s(stage: Stage, duplex: Duplex, size: int, clock: Callable[[], float]) -> float:
    """Return the median duration of a step with this many sessions, after a first step that is not counted."""
    request = Request(id="", session="", messages=(), live=True)
    reqs = [StageRequest(request, slot, OneFrame(), info=stage.info) for slot in range(size)]
    for req in reqs:
        stage.open(req)
    took_s: list[float] = []
    for _ in range(1 + STEPS):
        for req in reqs:
            req.pending.append(np.zeros(duplex.frame_samples, np.float32))
        began_s = clock()
        stage.step(reqs)
        took_s.append(clock() - began_s)
    return statistics.median(took_s[1:])
