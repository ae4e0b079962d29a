"""The items that a response is based on, if they are not the conversation: decoded and measured."""

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
    """Return the items of a response, and their bytes in addition to the conversation.

    These are the conversation's items (0 bytes), or those that the client named; audio is in ``format``. Raises
    Refusal, MediaError.
    """
    if event.inputs is None:
        return conversation.items, 0
    named = [conversation.get(one.id) if isinstance(one, ItemReference) else one for one in event.inputs]
    reserve = partial(_reserved, conversation, context.limits.conversation_mb)
    items = await finished(named, format, reserve, context)
    return items, sum(map(size_of, items))


@contextmanager
def _reserved(conversation: Conversation, most_mb: float, size: int) -> Generator[None]:
    """Reserve bytes for the items of one response, at most as many as a conversation may hold. Raises Refusal."""
    if size > most_mb * 1e6:
        message = f"The items of response.input exceed {most_mb:g} MB after decoding."
        raise Refusal("invalid_value", message, "response.input")
    conversation.check_server(size, "response.input")
    with conversation.hold(size):
        yield
