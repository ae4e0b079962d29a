"""What the engine is asked for an answer."""

from __future__ import annotations

import numpy as np

from app.realtime.output.request_builder import last_untranscribed
from app.realtime.protocol.items import Item, MessageItem, MessageText, ToolListItem, UserAudio

PCM = np.zeros(1_600, np.int16)
LIST = ToolListItem(id="list", server_label="files")


def item(*content: UserAudio | MessageText) -> Item:
    return MessageItem(id="said", role="user", content=content)


def test_the_last_speech_that_nobody_has_heard_is_whose_words_an_answer_will_tell() -> None:
    assert last_untranscribed((item(UserAudio(PCM)),)) == "said"
    assert last_untranscribed((item(UserAudio(PCM)), LIST)) == "said"
    assert last_untranscribed((item(UserAudio(PCM, "hello")),)) is None
    assert last_untranscribed((item(UserAudio(PCM)), item(MessageText("hello")))) is None
    assert last_untranscribed((LIST,)) is None
    assert last_untranscribed(()) is None
