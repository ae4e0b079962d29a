"""What goes from Qwen3-Omni's thinker to its talker and on to code2wav: a row a token, none misaligned, no end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from engine import Engine, StageFailed
from engine.chunk import Chunk, Codes, Tensors, Text
from engine.stream import of
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.models.qwen3_omni.speakable import TextToken, UserTurns
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.omni.talker_feed import read
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.oracles.qwen3_omni import Turn
from tests.oracles.talk import Said, ask, request, spec

Folder = Callable[[str], Path]
TURNS: list[Turn] = [("user", ["Hello, how are you today?"])]


class Always:
    """A chunk policy: four frames."""

    def size(self, count: int) -> int:
        return 4

    def hurry(self) -> bool:
        return False


async def asked(folder: Path, ends: frozenset[int], patch: pytest.MonkeyPatch) -> tuple[Said, list[int]]:
    """An answer of at most eight tokens, and the tokens that reached the talker."""
    adapt, make = Talker.adapt, Thinker.__init__
    rows: list[int] = []

    def ending(self: Any, place: StageConfig) -> None:
        make(self, place)
        self.ends = self.writer.ends = ends or self.ends

    async def noting(self: Any, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async with aclosing(adapt(self, req, inputs)) as chunks:
            async for chunk in chunks:
                rows.extend([chunk.id] if isinstance(chunk, TextToken) else [])
                yield chunk

    with patch.context() as patched:
        patched.setattr(Thinker, "__init__", ending)
        patched.setattr(Talker, "adapt", noting)
        async with Engine(spec(folder)) as engine:
            return await ask(engine, request("t", TURNS, frames=4)), rows


@pytest.mark.seed("A2.11")
async def test_a_row_goes_to_the_talker_for_every_token_but_the_last(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By length the last token is told and not spoken, as the reference does it; by a stop it is the stop itself."""
    full, rows = await asked(checkpoint("plain"), frozenset(), monkeypatch)
    assert len(full.ids) == 8
    assert rows == full.ids[:-1]
    fresh = next(i for i in range(2, 8) if full.ids[i] not in full.ids[:i])
    stopped, rows = await asked(checkpoint("plain"), frozenset({full.ids[fresh]}), monkeypatch)
    assert stopped.ids == full.ids[:fresh]
    assert rows == stopped.ids


def turn(ids: list[int], media: int = 0, names: int | None = None, positions: int | None = None) -> UserTurns:
    count = len(ids)
    return UserTurns(
        at=0,
        ids=np.array(ids),
        positions=np.zeros((3, count if positions is None else positions), np.float32),
        media=np.zeros((media, 64), np.float32),
        names=np.zeros(count if names is None else names, np.int64),
    )


@pytest.mark.seed("A2.12")
async def test_rows_that_do_not_belong_together_are_refused_and_one_row_is_enough(checkpoint: Folder) -> None:
    stage = Talker(StageConfig(checkpoint("plain"), slots=1))
    media = next(iter(stage.source.marks.media))
    req = StageRequest(request("t", TURNS), 0, Always())
    stage.open(req)
    for good in (turn([7]), turn([media], media=1), turn([media, 7, media], media=2)):
        (read,) = [said async for said in stage.adapt(req, of([Tensors.of(good)]))]
        assert all(np.array_equal(*both) for both in zip(structs.astuple(read), structs.astuple(good), strict=True))
    for bad in (turn([7], media=1), turn([media, media], media=1), turn([7, 8], names=1), turn([7, 8], positions=1)):
        with pytest.raises(StageFailed, match="do not match"):
            _ = [chunk async for chunk in stage.adapt(req, of([Tensors.of(bad)]))]


@pytest.mark.seed("A2.13")
@pytest.mark.parametrize("code", [-1, 128, 2150])
async def test_a_code_beyond_the_book_never_reaches_the_decoder(code: int, checkpoint: Folder) -> None:
    stage = Code2Wav(StageConfig(checkpoint("plain"), slots=1))
    assert stage.net.front.book == 128
    req = StageRequest(request("t", TURNS), 0, Always())
    stage.open(req)
    frames = np.zeros((3, 1, stage.net.front.groups), np.int16)
    frames[2, 0, 5] = code
    with pytest.raises(StageFailed, match="must be from 0 to 127"):
        _ = [row async for row in stage.adapt(req, of(Codes(frame) for frame in frames))]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Text("words", 0), "takes only messages of its own thinker, but received text"),
        (Tensors("other.lead", {}), "takes only messages of its own thinker, but received other.lead"),
        (Tensors("qwen3_omni.lead", {"ids": (1,), "palce": 0.0}), "unknown field `palce`"),
        (Tensors("qwen3_omni.text_token", {"id": "7", "text_end": 1}), "Expected `int`, got `str`"),
        (
            Tensors("qwen3_omni.user_turns", structs.asdict(turn([7])) | {"ids": np.zeros(1)}),
            "expected a NumPy array of int64",
        ),
    ],
)
def test_what_the_thinker_does_not_say_is_refused(said: Chunk, why: str) -> None:
    with pytest.raises(StageFailed, match=why):
        read(said, Talker.structs())
