"""Computations that are captured where they can be: what is not given is idle; what cannot be captured is computed."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch

from engine.worker.nn.captured import RETRY_S, Captured
from tests.engine.worker.nn.test_blocks import CPU


def doubled(key: int, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return 2 * x, rows + key


def idle(key: int) -> tuple[torch.Tensor, Any]:
    return torch.full((key, 2), 7.0), np.full(key, 9)


def test_rows_that_nobody_gives_are_idle() -> None:
    captured = Captured("it", doubled, idle, CPU)
    captured.warm([4])
    x, rows = captured(4, torch.ones(3, 2), np.array([1]))
    assert x[:, 0].tolist() == [2.0, 2.0, 2.0, 14.0]
    assert rows.tolist() == [5, 13, 13, 13]
    assert captured(1, torch.ones(1, 2), np.array([1]))[1].tolist() == [2]


def test_what_cannot_be_captured_is_said_once_and_computed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fails(self: Captured, key: int) -> Any:
        tried.append(key)
        raise RuntimeError("operation not permitted when stream is capturing\nand what else it says")

    monkeypatch.setattr(Captured, "_capture", fails)
    captured = Captured("it", doubled, idle, CPU)
    captured.captures = True
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert captured(2, torch.ones(2, 2), np.array([1, 2]))[1].tolist() == [3, 4]
    assert tried == [2]
    assert [record.message for record in caplog.records] == [
        "it: cannot capture a CUDA graph for 2: operation not permitted when stream is capturing"
    ]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def short(kind: str) -> None:
    """Run out of memory: before a graph is begun, or within, where the end of the capture raises an error of its own
    over it."""
    try:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nSee documentation")
    finally:
        if kind == "within":
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


@pytest.mark.parametrize("kind", ["before", "within"])
def test_a_graph_for_which_memory_is_short_is_tried_again_and_ends_a_start(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []
    monkeypatch.setattr(Captured, "_capture", lambda self, key: (tried.append(key), short(kind)))
    captured = Captured("it", doubled, idle, CPU)
    captured.captures, captured._clock = True, (clock := Clock())
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        captured.warm([2])
    for clock.now_s, tries in ((1.0, 2), (RETRY_S, 2), (1.0 + RETRY_S, 3)):
        assert captured(2, torch.ones(2, 2), np.array([1, 2]))[1].tolist() == [3, 4]
        assert len(tried) == tries
    assert caplog.messages[0] == "it: cannot capture a CUDA graph for 2: CUDA out of memory. Tried to allocate 2.00 GiB"
    monkeypatch.setattr(Captured, "_capture", lambda self, key: "a graph")
    clock.now_s += RETRY_S
    assert captured._graph(2) == "a graph"


def test_a_replay_takes_what_is_given_and_leaves_the_rest_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a call that gave more. The graph is a pretended one, which computes when it is replayed."""
    from engine.worker.nn import captured as module

    class Done:
        def record(self) -> None: ...

        def synchronize(self) -> None: ...

    def made(self: Captured, key: int) -> Any:
        given = [module.on_device(one, CPU) for one in idle(key)]
        inputs, found = [one.clone() for one in given], [torch.zeros(key, 2), torch.zeros(key, dtype=torch.long)]

        class Graph:
            def replay(self) -> None:
                for target, one in zip(found, doubled(key, *inputs), strict=True):
                    target.copy_(one)

        return module._Graph(Graph(), inputs, given, [torch.empty_like(one) for one in given], found, Done())

    monkeypatch.setattr(Captured, "_capture", made)
    captured = Captured("it", doubled, idle, CPU)
    captured.captures = True
    assert captured(3, torch.ones(3, 2), np.array([1, 2, 3]))[1].tolist() == [4, 5, 6]
    x, rows = captured(3, torch.ones(1, 2), np.array([5]))
    assert x[:, 0].tolist() == [2.0, 14.0, 14.0]
    assert rows.tolist() == [8, 12, 12]
