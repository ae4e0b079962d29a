"""Answers of a running server, in the place of an engine's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.commands.server import Address, RemoteServer, _lines
from engine import Message, Request, TextPart, ToolCall
from tests.app.rig import Running

SEPARATORS = "one\u2028two\u2029three\x85four"
"""What ends a line for Python, and for nobody who reads events."""


async def test_a_separator_of_lines_in_an_answer_is_text(server: Running) -> None:
    arguments = f'{{"words": "{SEPARATORS}"}}'
    asked = Request(id="r", session="s", messages=(Message("user", (TextPart(f"tool look {arguments}"),)),))
    async with RemoteServer(Address(server.http)) as remote, remote.open(asked) as answer:
        assert [chunk.arguments async for chunk in answer if isinstance(chunk, ToolCall)] == [arguments]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_lines_are_whole_however_they_come(size: int) -> None:
    sent = f"data: {SEPARATORS}\r\n\ndata: [DONE]\n\n".encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(sent), size):
            yield sent[at : at + size]

    assert [line.decode() async for line in _lines(pieces())] == [f"data: {SEPARATORS}", "", "data: [DONE]", ""]
