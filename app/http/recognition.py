"""Speech recognition over HTTP: the words of a recording, and of the speech in earlier messages."""

from __future__ import annotations

from collections.abc import Sequence

from app.http.answering import answer
from app.http.messages import with_turn_last
from app.http_errors import HttpRefusal
from app.ids import new_id
from app.service import Service
from app.telemetry import ASKED
from engine import AudioPart, Message, Output, Request, Transcript


async def recognized(service: Service, model: str, speech: Sequence[AudioPart]) -> Transcript:
    """Return the transcript of recordings. Raises HttpRefusal if the model answers speech without transcribing it."""
    found: list[Transcript] = []

    async def take(chunk: Output) -> None:
        if isinstance(chunk, Transcript) and chunk.final:
            found.append(chunk)

    asked = Request(
        id=new_id("heard"),
        session=new_id("sess"),
        owner=ASKED.get().owner,
        messages=(Message("user", tuple(speech)),),
        wants=frozenset({"transcript"}),
    )
    await answer(service, model, asked, take)
    if not found:
        raise HttpRefusal(400, "unsupported_value", "The loaded model answers speech without transcribing it.", "model")
    return found[-1]


async def with_earlier_transcripts(
    service: Service, model: str, before: Sequence[Message], new: tuple[Message, ...]
) -> tuple[Message, ...]:
    """Return the ``new`` messages of a conversation with the transcripts of their speech.

    The last message stays, because the request that answers it transcribes it.
    """
    last = with_turn_last((*before, *new))[-1:]
    messages: list[Message] = []
    for message in new:
        speech = [part for part in message.parts if isinstance(part, AudioPart) and part.transcript is None]
        if speech and message is not last[0]:
            message = heard(message, (await recognized(service, model, speech)).text)
        messages.append(message)
    return tuple(messages)


def heard(message: Message, transcript: str) -> Message:
    """Return a message whose speech has this transcript. Of several recordings, the first one has all words."""
    words = iter((transcript,))
    parts = (AudioPart(part.pcm, next(words, "")) if isinstance(part, AudioPart) else part for part in message.parts)
    return Message(message.role, tuple(parts))
