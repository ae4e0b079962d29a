"""What the engine is asked for an answer."""

from __future__ import annotations

import numpy as np

from app.realtime.asking import last_unheard
from app.realtime.items import Heard, Item, MessageItem, Text, ToolListItem

PCM = np.zeros(1_600, np.int16)
LIST = ToolListItem(id="list", server_label="files")


def item(*content: Heard | Text) -> Item:
    return MessageItem(id="said", role="user", content=content)


def test_the_last_speech_that_nobody_has_heard_is_whose_words_an_answer_will_tell() -> None:
    assert last_unheard((item(Heard(PCM)),)) == "said"
    assert last_unheard((item(Heard(PCM)), LIST)) == "said"
    assert last_unheard((item(Heard(PCM, "hello")),)) is None
    assert last_unheard((item(Heard(PCM)), item(Text("hello")))) is None
    assert last_unheard((LIST,)) is None
    assert last_unheard(()) is None
