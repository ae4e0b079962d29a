"""Why a session begins no further answer, or ends none: its conversation has one at a time, its listener hears one."""

from __future__ import annotations

from app.refusal import Refusal

_ACTIVE = "conversation_already_has_active_response"


def second_answer(id: str) -> Refusal:
    """The conversation has that answer under way."""
    message = f"Conversation already has an active response in progress: {id}. Wait until it is finished."
    return Refusal(_ACTIVE, message)


def second_voice() -> Refusal:
    """Where the server plays, two voices would be mixed."""
    return Refusal(_ACTIVE, "An answer is being played: ask for text beside it, or wait for its end.")


def too_many(count: int) -> Refusal:
    """Beside the conversation there are as many as there may be."""
    return Refusal("too_many_responses", f"{count} responses are under way; wait for one to end.")


def none_active(id: str | None) -> Refusal:
    """There is nothing to be stopped: not that one, or none at all."""
    message = "Cancellation failed: no active response found"
    return Refusal("response_cancel_not_active", message, None if id is None else "response_id")
