"""The talker of nano, as a stage: how it ends an answer that it cannot say."""

from __future__ import annotations

from engine.chunk import Text
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from tests.engine.fakes import opened, working

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
