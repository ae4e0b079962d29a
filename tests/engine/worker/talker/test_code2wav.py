"""Batches that are filled up, windows that are cut, and steps that take no more than they may: the sound stays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine import ConfigError, Request
from engine.worker.codec import Window
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.nn.memory import plan
from engine.worker.pace import OneFrame
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker import code2wav
from tests.engine.worker.models.conftest import checkpoint
from tests.engine.worker.models.qwen3_omni.cases import Folder

__all__ = ["checkpoint"]

ONE = Request(id="", session="", messages=())
LENGTHS = [[1, 7, 25], [1, 4, 25], [1, 7], [13]]
"""Windows of answers that are decoded side by side: three at most of one length."""


def stage(checkpoint: Folder, planned: bool, **options: Any) -> Code2Wav:
    made = Code2Wav(StageConfig(checkpoint("plain"), slots=5, options=options))
    made.planned = planned
    return made


def requests(made: Code2Wav, lengths: Sequence[Sequence[int]] = LENGTHS) -> list[StageRequest]:
    dice, found = np.random.default_rng(1), list[StageRequest]()
    for slot, windows in enumerate(lengths):
        req = StageRequest(ONE, slot, OneFrame())
        made.open(req)
        shape = made.net.front.groups
        req.pending.extend(Window(dice.integers(0, made.net.front.book, (n, shape)).astype(np.int16)) for n in windows)
        req.ended = True
        found.append(req)
    return found


def sound(made: Code2Wav, reqs: Sequence[StageRequest]) -> tuple[list[NDArray[np.float32]], list[int]]:
    """Each request's samples, and the frames that each step decoded."""
    waves: list[list[NDArray[np.float32]]] = [[] for _ in reqs]
    steps: list[int] = []
    while ready := [req for req in reqs if req.ready]:
        before = sum(req.state.frames for req in reqs)
        for req, chunks in zip(ready, made.step(ready), strict=True):
            waves[req.slot] += [chunk.wave for chunk in chunks]  # type: ignore[union-attr]
        steps.append(sum(req.state.frames for req in reqs) - before)
    return [np.concatenate(own) for own in waves], [frames for frames in steps if frames]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("cuts", [False, True], ids=["filled", "filled and cut"])
def test_filled_batches_and_cut_windows_sound_the_same(
    cuts: bool, dtype: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for rounding: float32 adds up otherwise in a batch of another size, and in a convolution over fewer columns,
    as it does with other company and at another listener's pace. float64 tells that from a fault."""
    monkeypatch.setitem(code2wav.DTYPES, "float64", torch.float64)
    bar = {"float64": 1e-6, "float32": 1e-4}[dtype]
    plain, ours = (stage(checkpoint, planned, sound_dtype=dtype) for planned in (False, True))
    if not cuts:
        monkeypatch.setattr(ours, "cuts", lambda frames: [frames])
    shapes: set[tuple[int, int]] = set()
    decode = ours.net.decode
    monkeypatch.setattr(ours.net, "decode", lambda codes, *more: shapes.add(codes.shape[:2]) or decode(codes, *more))
    expected, _ = sound(plain, requests(plain))
    found, _ = sound(ours, requests(ours))
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= bar
        assert np.abs(other).max() > 1e-3
    assert {size for size, _ in shapes} == {1, 2, 4}
    assert {count for _, count in shapes} == (set(code2wav.RAMP) if cuts else {1, 4, 7, 13, 25})


def test_all_shapes_that_there_are_are_warm_and_a_warm_slot_is_nobodys(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = stage(checkpoint, planned=True)
    shapes: set[tuple[Any, ...]] = set()
    decode, others = ours.net.decode, set[int]()

    def noted(codes: torch.Tensor, starts: torch.Tensor, piece: Any) -> torch.Tensor:
        shapes.add((*codes.shape[:2], piece.fresh))
        others.update(piece.index.tolist())
        return decode(codes, starts, piece)

    monkeypatch.setattr(ours.net, "decode", noted)
    ours.warm(time.monotonic() + 100)
    assert others == {5}
    assert shapes == {
        (size, count, fresh) for size in (1, 2, 4, 5) for count in code2wav.RAMP for fresh in (True, False)
    }
    warm = set(shapes)
    sound(ours, requests(ours))
    assert shapes == warm, "what is asked for later is among them"
    ours.warm(time.monotonic() - 1)


def test_a_step_takes_no_more_frames_than_it_may_and_beginnings_come_first(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(checkpoint, planned=False)
    expected, steps = sound(made, requests(made, [[1, 20]] * 4))
    assert steps == [4, 80]
    monkeypatch.setattr(code2wav, "MOST_FRAMES", 45)
    found, steps = sound(made, requests(made, [[1, 20]] * 4))
    assert steps == [4, 40, 40]
    assert all(np.abs(one - other).max() <= 1e-4 for one, other in zip(found, expected, strict=True))
    monkeypatch.setattr(code2wav, "MOST_FRAMES", 5)
    reqs = requests(made, [[1, 20], [1]])
    made.step(reqs[:1])
    made.step(reqs)
    assert [req.state.frames for req in reqs] == [1, 1], "a beginning goes first"
    assert sound(made, reqs[:1])[1] == [20], "a window that is larger than all that is not held up for ever"


@pytest.mark.parametrize(("dtype", "bar"), [("float16", 0.08), ("bfloat16", 0.25)])
def test_a_smaller_dtype_stays_near_float32(dtype: str, bar: float, checkpoint: Folder) -> None:
    """RMS of the error over that of the sound, of a tiny checkpoint with random weights."""
    plain, small = stage(checkpoint, planned=False), stage(checkpoint, planned=False, sound_dtype=dtype)
    for one, other in zip(sound(small, requests(small))[0], sound(plain, requests(plain))[0], strict=True):
        error = float(np.sqrt(np.mean((one - other) ** 2) / np.mean(other**2)))
        assert 1e-3 < error <= bar


def test_another_dtype_is_refused(checkpoint: Folder) -> None:
    with pytest.raises(
        ConfigError, match=r"options\.sound_dtype: 'int8' is not one of float32, tfloat32, bfloat16, float16"
    ):
        stage(checkpoint, planned=False, sound_dtype="int8")


def test_the_work_space_that_is_planned_is_that_of_the_frames_that_a_step_may_have(checkpoint: Folder) -> None:
    whole = Code2Wav.most_work_bytes
    sizes = {slots: work_of(checkpoint, slots) for slots in (1, 4, 25, 64)}
    assert sizes == {1: whole * 16 // 400, 4: whole * 64 // 400, 25: whole, 64: whole}


def work_of(checkpoint: Folder, slots: int) -> int:
    return plan(Code2Wav, StageConfig(weights=checkpoint("plain"), slots=slots)).work
