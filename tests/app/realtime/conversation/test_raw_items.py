"""What a client puts into a conversation is weighed, all of a command together, before anything of it is decoded."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

from app.media.audio import MediaError
from app.media.images import Image
from app.realtime.conversation.conversation import Conversation
from app.realtime.conversation.raw_items import finished
from app.realtime.conversation.sizes import size_of
from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.protocol.client_events import RawAudio, RawImage, RawMessage
from app.realtime.protocol.items import Item, MessageImage, MessageItem, MessageText, UserAudio
from app.realtime.protocol.options import PcmFormat, PcmuFormat
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from tests.app.media.test_images import png
from tests.app.realtime.test_session import FakeEngine
from tests.app.rig import LoudnessVad


def picture(width: int, height: int) -> RawImage:
    """Of one colour: some kilobytes, however large."""
    return RawImage("data:image/png;base64," + base64.b64encode(png(width, height)).decode())


def shown(*pictures: RawImage, id: str = "a") -> RawMessage:
    return RawMessage(id, "user", pictures)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each picture that was decoded."""
    sizes: list[int] = []
    whole = Image.decode

    def decode(self: Image) -> Any:
        sizes.append(self.size)
        return whole(self)

    monkeypatch.setattr(Image, "decode", decode)
    return sizes


def context() -> SessionContext:
    return SessionContext(
        FakeEngine(), Metrics(), Limits(audio_s=300.0), TurnSettings(), LoudnessVad, SentenceEndOfTurn()
    )


async def taken(*items: Any, room: int = 64_000_000) -> tuple[int, Sequence[Item]]:
    """What they were found to weigh, and they themselves. Raises Refusal if that is more than ``room``."""
    told: list[int] = []

    def reserve(size: int) -> AbstractContextManager[None]:
        told.append(size)
        return Conversation("c", 10, room).reserve(size)

    whole = await finished(items, PcmFormat(), reserve, context())
    assert len(told) == 1
    return told[0], whole


@pytest.mark.fault("I6.1")
async def test_pictures_of_one_command_are_weighed_together_before_the_first_is_decoded(decoded: list[int]) -> None:
    """64 of 16 megapixels are 180 kB of message, and were 3 GB."""
    large = picture(4000, 4000)
    for items in ([shown(*[large] * 64)], [shown(large, id=f"i{n}") for n in range(40)], [shown(large, large)]):
        with pytest.raises(Refusal):
            await taken(*items)
    assert decoded == []
    await taken(shown(large))
    assert decoded == [48_000_000]


async def test_an_item_that_is_named_again_and_again_counts_each_time(decoded: list[int]) -> None:
    """A request to the engine would carry it so often."""
    there = MessageItem(id="a", role="user", content=(MessageImage(np.zeros((1000, 1000, 3), np.uint8), "data:"),))
    assert (await taken(*[there] * 21))[1] == (there,) * 21
    with pytest.raises(Refusal):
        await taken(*[there] * 22)


async def test_an_item_weighs_what_was_foretold() -> None:
    for draft in (
        shown(picture(64, 48)),
        RawMessage("a", "user", (RawAudio(bytes(48_000), "hello"), MessageText("hello"), picture(4, 8))),
        RawMessage("a", "system", (MessageText("hello"),)),
    ):
        foretold, (whole,) = await taken(draft)
        assert abs(foretold - size_of(whole)) < 100  # the resampler holds back a sample or two


async def test_thirty_pictures_and_a_long_recording_go_through(decoded: list[int]) -> None:
    _, (whole,) = await taken(shown(*[picture(640, 480)] * 30))
    assert isinstance(whole, MessageItem)
    assert len(whole.content) == len(decoded) == 30
    ticks = RawAudio(b"\xff" * 300 * 8000)
    message = RawMessage("a", "user", (ticks,))
    (whole,) = await finished([message], PcmuFormat(), lambda size: nullcontext(), context())
    assert isinstance(whole, MessageItem)
    assert isinstance(whole.content[0], UserAudio)
    assert len(whole.content[0].pcm) == 300 * 16_000


async def test_the_sounds_of_an_item_are_as_long_together_as_one_may_be() -> None:
    """Four of five minutes are 77 MB of base64 for whoever retrieves them."""
    minute = RawAudio(bytes(60 * 48_000))
    await taken(RawMessage("a", "user", (minute,) * 5))
    with pytest.raises(MediaError, match="300 s in all"):
        await taken(RawMessage("a", "user", (minute,) * 6))
