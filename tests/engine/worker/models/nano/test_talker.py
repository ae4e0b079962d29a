"""The talker of nano, as a stage: how it ends an answer that it cannot say, and its default voice."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from engine.chunk import Codes, Text
from engine.errors import ConfigError
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from tests.engine.fakes import opened, turns, working

FOREIGN = "Это длинный рассказ. "


async def test_an_answer_that_goes_on_in_another_script_ends_soon() -> None:
    """The script is named once, and what follows is silence."""
    async with working(make("nano.talker", "talker", 0, StageConfig(slots=4))) as desk:
        desk.put(opened("a", "talker", credit=10_000), messages.Feed("a", Text("Hello. ", 0)))
        desk.put(*(messages.Feed("a", Text(FOREIGN, 7 + len(FOREIGN) * n)) for n in range(40)))
        await desk.ended("a")
        frames = desk.of(messages.Emit, "a")
        assert 25 < len(frames) < 25 * 6, "hello, and something in cyrillic"
        marks = {name for message in (*frames, *desk.of(messages.Marks, "a")) for name in message.marks}
        assert "talker.cut" in marks


async def spoken(default: str, asked: str | None = None) -> np.ndarray:
    """Return the codec frames of a word, from a talker with this default voice."""
    config = StageConfig(slots=1, options={"voice": default})
    async with working(make("nano.talker", "talker", 0, config)) as desk:
        desk.put(
            opened("a", "talker", credit=10_000, voice=asked), messages.Feed("a", Text("Hello.", 0)), messages.End("a")
        )
        await desk.ended("a")
        chunks = [message.chunk for message in desk.of(messages.Emit, "a")]
    return np.concatenate([chunk.frames for chunk in chunks if isinstance(chunk, Codes)])


async def test_the_option_voice_is_the_voice_of_requests_that_name_none() -> None:
    slt = await spoken("rms", "slt")
    assert np.array_equal(await spoken("slt"), slt)
    assert not np.array_equal(await spoken("rms"), slt)


async def text_ends(pieces: list[str]) -> list[int]:
    """Return the spoken part of the text after each frame. Each piece comes when the talker waits for it."""
    starts = accumulate(map(len, pieces), initial=0)
    async with working(make("nano.talker", "talker", 0, StageConfig(slots=1))) as desk:
        desk.put(opened("a", "talker", credit=10_000))
        for piece, start in zip(pieces, starts, strict=False):
            desk.put(messages.Feed("a", Text(piece, start)))
            await turns()
        desk.put(messages.End("a"))
        await desk.ended("a")
        return [chunk.text_end for m in desk.of(messages.Emit, "a") if isinstance(chunk := m.chunk, Codes)]


async def test_marks_do_not_depend_on_when_the_text_comes() -> None:
    text = "The first is longer than the second. And here it ends, at last."
    assert await text_ends(list(text)) == await text_ends([text])


@pytest.mark.parametrize("stage", ["nano.talker", "nano.code2wav"])
def test_an_unknown_default_voice_is_refused(stage: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no voice 'slx' \(did you mean 'slt'\?\)"):
        make(stage, "talker", 0, StageConfig(options={"voice": "slx"}))
