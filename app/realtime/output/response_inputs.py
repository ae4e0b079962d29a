"""The items that an answer is about, where they are not the conversation's: what the client named, read and counted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from app.realtime.conversation import Conversation, finished, size_of
from app.realtime.protocol import CreateResponse, Format, Item, ItemReference
from app.realtime.session_context import SessionContext
from app.refusal import Refusal


async def inputs_of(
    event: CreateResponse, conversation: Conversation, format: Format, context: SessionContext
) -> tuple[tuple[Item, ...], int]:
    """The items of an answer, and their bytes beside the conversation: its own items, which have none, or those that
    the client named, whose sound has this format. Raises Refusal, MediaError."""
    if event.inputs is None:
        return conversation.items, 0
    named = [conversation.get(one.id) if isinstance(one, ItemReference) else one for one in event.inputs]
    reserve = partial(_reserved, conversation, context.limits.conversation_mb)
    items = await finished(named, format, reserve, context)
    return items, sum(map(size_of, items))


@contextmanager
def _reserved(conversation: Conversation, most_mb: float, size: int) -> Generator[None]:
    """Room for the items of one answer: no more than a conversation may hold. Raises Refusal."""
    if size > most_mb * 1e6:
        message = f"The items of response.input take more than {most_mb:g} MB once they are decoded."
        raise Refusal("invalid_value", message, "response.input")
    conversation.check_server(size, "response.input")
    with conversation.hold(size):
        yield
