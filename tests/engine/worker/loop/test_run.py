"""A request's run: what a stage yields is checked before it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.chunk import Audio, Codes, kinds
from engine.ipc import messages
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, Result, echo, fed, opened, working

INVALID: dict[str, tuple[Any, str]] = {
    "int16": (
        Audio(np.zeros(240, np.int16)),  # type: ignore[arg-type]
        "stage v: Audio.wave must be float32 samples, not int16; convert with pcm.astype(np.float32) / 32768",
    ),
    "float64": (
        Audio(np.zeros(240)),  # type: ignore[arg-type]
        "stage v: Audio.wave must be float32 samples, not float64; convert with wave.astype(np.float32)",
    ),
    "two axes": (
        Audio(np.zeros((1, 240), np.float32)),
        "stage v: Audio.wave must have the shape [samples], not [1, 240]; reshape the array",
    ),
    "a list": (Audio([0.0]), "stage v: Audio.wave must be a NumPy array of float32 samples, not a list"),  # type: ignore[arg-type]
    "unscaled": (
        Audio(np.full(240, -12_000, np.float32)),
        "stage v: Audio.wave must be between -1 and 1, not up to 12000; divide 16-bit samples by 32768",
    ),
    "NaN": (
        Audio(np.array([0.1, np.nan], np.float32)),
        "stage v: Audio.wave contains NaN or infinite values; check the model's output",
    ),
    "codes": (
        Codes(np.zeros((1, 8), np.int64)),  # type: ignore[arg-type]
        "stage v: Codes.frames must be int16 frames, not int64; convert with frames.astype(np.int16)",
    ),
}


@pytest.mark.parametrize("name", INVALID)
async def test_a_chunk_with_an_invalid_array_fails_only_its_request(name: str) -> None:
    chunk, message = INVALID[name]

    def act(req: StageRequest) -> Result:
        if req.request.id == "bad" and req.pending:
            req.pending.clear()
            return [chunk]
        return echo(req)

    stage = FakeStage("v", act=act, emits=kinds(Audio, Codes) | {"x"})
    async with working(stage, through=lambda sent: messages.decode(messages.encode(sent)[4:])) as desk:
        desk.put(opened("bad", "v"), opened("good", "v"), *fed("bad", 1), *fed("good", 1, 2), messages.End("good"))
        await desk.ended("bad", "good")
        assert stage.batches[0] == ["bad", "good"]
        assert [(failed.code, failed.message) for failed in desk.of(messages.Failed, "bad")] == [
            ("stage_failed", message)
        ]
        assert desk.of(messages.Emit, "bad") == []
        assert desk.data("good") == [1, 2]
