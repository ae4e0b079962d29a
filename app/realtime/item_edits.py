"""A client's edits of the conversation: create, retrieve, truncate and delete items."""

from __future__ import annotations

from collections.abc import Callable

from app.realtime.conversation import Conversation, check_items, finished
from app.realtime.output import HostedTools
from app.realtime.protocol import (
    ApprovalResponseItem,
    Format,
    ServerEvent,
    client_events,
    is_long,
    server_events,
    sounds_of,
)
from app.realtime.session_context import SessionContext

Edit = client_events.CreateItem | client_events.RetrieveItem | client_events.TruncateItem | client_events.DeleteItem


async def edit(
    event: Edit,
    format: Format,
    conversation: Conversation,
    context: SessionContext,
    emit: Callable[[ServerEvent], None],
    hosted: HostedTools,
) -> None:
    """Carry out an edit. Audio is in ``format``. Raises Refusal, MediaError."""
    match event:
        case client_events.CreateItem(ApprovalResponseItem() as given, after):
            response = hosted.checked(given)
            check_items((response,), context.engine.model, "item")
            emit(server_events.ItemAddedEvent(response, conversation.add(response, after)))
            hosted.answered(response)
        case client_events.CreateItem(item, after):
            (whole,) = await finished((item,), format, conversation.reserve, context)
            check_items((whole,), context.engine.model, "item")
            emit(server_events.ItemAddedEvent(whole, conversation.add(whole, after)))
        case client_events.RetrieveItem(id):  # audio may be megabytes, so it is encoded in a thread
            found = conversation.get(id)
            sounds = await context.in_thread(lambda: sounds_of(found)) if is_long(found) else sounds_of(found)
            emit(server_events.ItemRetrievedEvent(found, sounds))
        case client_events.DeleteItem(id):
            conversation.delete(id)
            emit(server_events.ItemDeletedEvent(id))
        case client_events.TruncateItem(id, content_index, audio_end_ms):
            played = conversation.truncate(id, content_index, audio_end_ms)
            emit(server_events.ItemTruncatedEvent(id, content_index, audio_end_ms, played))
