"""The number of duplex sessions that a device can serve in time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.chunk import Audio, Chunk, Speech, Text, kinds
from engine.core import Duplex, Facets, StageInfo
from engine.errors import ConfigError, EngineError
from engine.worker.models.script_duplex import ScriptDuplex
from engine.worker.process import duplex_capacity
from engine.worker.process.duplex_capacity import fitting, sessions_held
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


class Timed(ScriptDuplex):
    """Steps take ``fixed_s`` and ``each_s`` for each request, on a clock of their own."""

    def __init__(self, slots: int, fixed_s: float, each_s: float) -> None:
        super().__init__(StageConfig(slots=slots))
        self.info = StageInfo(
            name="duplex", takes=kinds(Speech), emits=kinds(Audio, Text), slots=slots, facets=Facets(duplex=Duplex())
        )
        self.now_s = 0.0
        self.sizes: list[int] = []
        self._times = fixed_s, each_s

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        self.now_s += self._times[0] + self._times[1] * len(reqs)
        self.sizes.append(len(reqs))
        return super().step(reqs)

    def clock(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("slots", "fixed_s", "each_s", "held"),
    [
        (8, 0.001, 0.0, 8),
        (64, 0.0203, 0.001, 25),  # 21.3 ms for one, 45.3 ms for 25, and 5 ms for the loop are at most 72 ms
        (1000, 0.0, 0.0, 360),  # the loop's own time
        (64, 0.030, 0.010, 1),  # 40 ms for one, 50 ms for two
        (1, 0.070, 0.0, 1),  # needs no room for another one
        (5, 0.001, 0.0, 5),
    ],
)
def test_the_steps_of_one_and_of_all_sessions_fit_in_a_frame(
    slots: int, fixed_s: float, each_s: float, held: int
) -> None:
    stage = Timed(slots, fixed_s, each_s)
    assert sessions_held(stage, stage.clock) == held


def test_no_larger_batch_is_measured_than_fits() -> None:
    stage = Timed(64, 0.03, 0.01)
    sessions_held(stage, stage.clock)
    assert sorted(set(stage.sizes)) == [1, 2, 4, 8]


def test_a_device_that_is_too_slow_is_refused_with_its_step_time() -> None:
    stage = Timed(4, 0.1, 0.005)
    with pytest.raises(ConfigError, match="a step takes 105 ms, and may take at most 72 ms") as refused:
        sessions_held(stage, stage.clock)
    assert str(refused.value).count(". ") == 1  # what is wrong, and what to do


def test_the_times_between_two_measured_sizes_are_interpolated() -> None:
    assert fitting({1: 0.01, 2: 0.02, 4: 0.04, 8: 0.12}, 0.072) == 5


def test_a_stage_is_loaded_with_the_sessions_that_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex_capacity, "_step_s", lambda stage, duplex, size, clock: 0.01 * size)
    stage = make("script_duplex.duplex", "duplex", 0, StageConfig(slots=16))
    assert stage.info.slots == 6


def test_the_start_is_refused_if_it_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex_capacity, "_step_s", lambda stage, duplex, size, clock: 0.09)
    with pytest.raises(ConfigError, match="duplex is too slow on this device"):
        make("script_duplex.duplex", "duplex", 0, StageConfig(slots=16))
