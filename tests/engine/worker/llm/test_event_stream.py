"""The reader of event streams: the same events however the text is cut, at a cost that grows with its length."""

from __future__ import annotations

import random
import re

import pytest

from engine.worker.llm import event_stream
from engine.worker.llm.event_stream import EventStreamReader

STREAM = (
    "\ufeffevent: message\r\ndata: one\r\n\r\n: a comment\ndata:two\ndata: three\n\n"
    'data\rdata:  four\r\r{"a": 1}\n\n\r\n\rid: 7\ndata: five\r\n\ndata: ["six"]'
)
EVENTS = ["one", "two\nthree", "\n four", '{"a": 1}', "five"]


@pytest.mark.parametrize("seed", range(50))
def test_events_are_the_same_however_the_text_is_cut(seed: int) -> None:
    draw, reader, found, at = random.Random(seed), EventStreamReader(), list[str](), 0
    while at < len(STREAM):
        size = draw.randrange(6)
        found += reader.feed(STREAM[at : at + size])
        at += size
    assert found == EVENTS
    assert reader.held == len('data: ["six"]')
    assert reader.flush() == ['["six"]']
    assert reader.held == 0


class Counting:
    """The pattern of line ends, which counts the characters that it searches."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.searched = 0

    def split(self, text: str) -> list[str]:
        self.searched += len(text)
        return self._pattern.split(text)


@pytest.mark.parametrize("piece", ["x" * 100, "x" * 99 + "\r", "\r", "data: x\n"])
def test_an_event_of_many_pieces_is_searched_once(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(event_stream._LINE_END)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(event_stream, "_LINE_END", counting)
    reader = EventStreamReader()
    for _ in range(2000):
        reader.feed(piece)
    assert counting.searched <= 2001 * (len(piece) + 1)
