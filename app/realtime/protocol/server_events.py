"""Events that a session sends to its client, in our own words: a dialect's encoder turns each into its own.

Their order is the order of a dialect's events. Knows no wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from app.realtime.protocol.client_events import AddContext, MuteInput
from app.realtime.protocol.items import ApprovalRequestItem, CallItem, HostedCallItem, Item, MessageItem, ToolListItem
from app.realtime.protocol.options import ResponseOptions, SessionOptions
from app.refusal import Refusal

Outcome = Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
Reason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


class ResponseUsage(Struct, frozen=True):
    """Tokens of one answer; an audio token is one codec frame."""

    input_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0
    audio_input_tokens: int = 0
    """Tokens of sound among the input; like the next two only where the model's family counts them."""
    image_tokens: int = 0
    """Tokens of pictures among the input."""
    cached_tokens: int = 0
    """Tokens of the input that were not computed again."""


class SessionView(Struct, frozen=True):
    id: str
    expires_at_s: int
    options: SessionOptions
    loaded: Mapping[str, Any]
    """The model and voice that really serve, whatever names the client asked for."""
    tool_servers: tuple[Mapping[str, Any], ...] = ()
    """The MCP servers among its tools, as the client sees them again."""


class QueueUpdatedEvent(Struct, frozen=True):
    """The server is full: the client waits for a session at ``position`` in the queue."""

    position: int


class SessionCreatedEvent(Struct, frozen=True):
    session: SessionView


class SessionUpdatedEvent(Struct, frozen=True):
    session: SessionView


class SessionEndedEvent(Struct, frozen=True):
    """The client closed the session: this is its last event."""

    session: SessionView
    event_id: str | None


class ObeyedEvent(Struct, frozen=True):
    """A command whose only effect is inside was obeyed; ``event_id`` is the client's name for it."""

    event: MuteInput | AddContext
    event_id: str | None


class SpeechStartedEvent(Struct, frozen=True):
    """The user speaks; ``audio_start_ms`` counts from the session's first sample, prefix included."""

    item_id: str
    audio_start_ms: int


class SpeechStoppedEvent(Struct, frozen=True):
    item_id: str
    audio_end_ms: int
    over_probability: float | None = None
    """Ours: the end-of-turn model's probability that the turn was over; None where no such model ended it."""


class TimeoutTriggeredEvent(Struct, frozen=True):
    """A turn made of silence: nobody spoke for so long after an answer that the sound since is taken for a turn."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class AudioCommittedEvent(Struct, frozen=True):
    item_id: str
    previous_item_id: str | None


class AudioClearedEvent(Struct, frozen=True):
    pass


class DtmfReceivedEvent(Struct, frozen=True):
    """A key of the caller's telephone, at a time in seconds since 1970."""

    key: str
    at_s: int


class ItemAddedEvent(Struct, frozen=True):
    """An item that is complete as it comes."""

    item: Item
    previous_id: str | None


class ToolListBegunEvent(Struct, frozen=True):
    """An MCP server is asked for its tools."""

    item: ToolListItem
    previous_id: str | None


class ToolListDoneEvent(Struct, frozen=True):
    """The server has listed its tools, or ``failed`` to."""

    item: ToolListItem
    previous_id: str | None
    failed: bool


class ItemRetrievedEvent(Struct, frozen=True):
    item: Item
    sounds: tuple[bytes, ...] = ()
    """The sound that was heard in it, part by part: int16 little-endian at SPEAKER_RATE_HZ."""


class ItemDeletedEvent(Struct, frozen=True):
    item_id: str


class ItemTruncatedEvent(Struct, frozen=True):
    """An answer ends at ``audio_end_ms`` for the conversation; ``played_text`` are its words up to there."""

    item_id: str
    content_index: int
    audio_end_ms: int
    played_text: str


class TranscriptionPartialEvent(Struct, frozen=True):
    """All that the user seems to have said so far in an item; the next may revise it, unless this is the last word."""

    item_id: str
    transcript: str
    final: bool


class TranscriptionCompletedEvent(Struct, frozen=True):
    """All that the user said in an item whose audio lasts ``seconds``."""

    item_id: str
    transcript: str
    seconds: float


class TranscriptionFailedEvent(Struct, frozen=True):
    item_id: str
    code: str
    message: str


class ResponseView(Struct, frozen=True):
    """One response at some moment. ``conversation_id`` is None for one that the conversation does not keep."""

    id: str
    conversation_id: str | None
    options: ResponseOptions
    asked: bool = False
    """Whether the client asked for it, and not a turn."""
    outcome: Outcome = "in_progress"
    reason: Reason | None = None
    error: tuple[str, str] | None = None
    """Code and message of what broke."""
    output: tuple[Item, ...] = ()
    usage: ResponseUsage | None = None
    ledger: Mapping[str, float] | None = None
    """The parts of the time to first audio, in ms."""
    ttfa_ms: float | None = None
    """The sum of the ledger's terms."""
    ahead_ms: float = 0.0
    """Milliseconds of that which had passed when the user's turn was over."""
    turn_ms: float | None = None
    """The silence between the user's last word and the end of their turn; None where they did not speak."""
    over_probability: float | None = None
    """The end-of-turn model's probability that the turn was over; None where no such model ended it."""


class ResponseCreatedEvent(Struct, frozen=True):
    response: ResponseView


class RateLimitsEvent(Struct, frozen=True):
    """The number of responses that the session may have at a time, and how many more it may ask for now."""

    limit: int
    remaining: int


class OutputItemRef(Struct, frozen=True):
    """The place in a response where something belongs."""

    response_id: str
    item_id: str
    index: int
    kept: bool
    """Whether the item is in the conversation too."""
    spoken: bool


class MessageCreatedEvent(Struct, frozen=True):
    ref: OutputItemRef
    item: MessageItem
    previous_id: str | None


class TextDeltaEvent(Struct, frozen=True):
    """The next words: typed, or the transcript of what is said."""

    ref: OutputItemRef
    text: str


class AudioDeltaEvent(Struct, frozen=True):
    """The next sound, in the response's format; where the server plays, int16 little-endian at SPEAKER_RATE_HZ."""

    ref: OutputItemRef
    pcm: bytes
    seconds: float


class SoundPlayedEvent(Struct, frozen=True):
    """The next sound left for the listener by the transport itself, as no event: ``samples`` at SPEAKER_RATE_HZ."""

    ref: OutputItemRef
    samples: int


class AudioAlignmentEvent(Struct, frozen=True):
    """The voice's place in its text: (ms of the item's sound, characters that are spoken by then), both rising.

    The sound is counted from the item's first sample that is played; a character is a Unicode code point. It comes
    before the sound, to clients that asked for it.
    """

    ref: OutputItemRef
    marks: tuple[tuple[float, int], ...]


class OutputAudioStartedEvent(Struct, frozen=True):
    """The server plays the answer's first sound; told only where the server plays (``Line.plays``)."""

    response_id: str


class OutputAudioStoppedEvent(Struct, frozen=True):
    """All of the answer was played."""

    response_id: str


class OutputAudioClearedEvent(Struct, frozen=True):
    """The answer fell silent before its end: nothing of it is heard from now on."""

    response_id: str


class MessageDoneEvent(Struct, frozen=True):
    ref: OutputItemRef
    item: MessageItem
    text: str
    previous_id: str | None


class CallCreatedEvent(Struct, frozen=True):
    ref: OutputItemRef
    item: CallItem
    previous_id: str | None


class CallDeltaEvent(Struct, frozen=True):
    """The next characters of a call's arguments."""

    ref: OutputItemRef
    call_id: str
    text: str


class CallDoneEvent(Struct, frozen=True):
    ref: OutputItemRef
    item: CallItem
    previous_id: str | None


class HostedCallCreatedEvent(Struct, frozen=True):
    """The thinker begins to call a tool that the server runs."""

    ref: OutputItemRef
    item: HostedCallItem
    previous_id: str | None


class HostedCallDeltaEvent(Struct, frozen=True):
    """The next characters of such a call's arguments."""

    ref: OutputItemRef
    text: str


class HostedCallWrittenEvent(Struct, frozen=True):
    """The thinker has written all of the call, as far as it will."""

    ref: OutputItemRef
    item: HostedCallItem


class HostedCallBegunEvent(Struct, frozen=True):
    """The server runs the call."""

    ref: OutputItemRef


class HostedCallDoneEvent(Struct, frozen=True):
    """The call has its result."""

    ref: OutputItemRef
    item: HostedCallItem
    previous_id: str | None


class HostedCallApprovedEvent(Struct, frozen=True):
    """A call that the client approved is in the conversation, and is run next."""

    item: HostedCallItem
    previous_id: str | None


class ApprovalRequestedEvent(Struct, frozen=True):
    """The thinker asks for a call that the client has to approve."""

    ref: OutputItemRef
    item: ApprovalRequestItem
    previous_id: str | None


class ResponseDoneEvent(Struct, frozen=True):
    response: ResponseView


class ErrorEvent(Struct, frozen=True):
    """A command was refused, or broke; ``event_id`` is the client's name for it."""

    refusal: Refusal
    event_id: str | None


PlainEvent = (
    QueueUpdatedEvent
    | SpeechStartedEvent
    | TimeoutTriggeredEvent
    | AudioCommittedEvent
    | AudioClearedEvent
    | TranscriptionPartialEvent
    | ItemDeletedEvent
    | OutputAudioStartedEvent
    | OutputAudioStoppedEvent
    | OutputAudioClearedEvent
)
"""Events whose fields are named as in the Realtime protocol."""
SessionEvent = (
    SessionCreatedEvent | SessionUpdatedEvent | SessionEndedEvent | ObeyedEvent | RateLimitsEvent | ErrorEvent
)
InputEvent = SpeechStoppedEvent | DtmfReceivedEvent | TranscriptionCompletedEvent | TranscriptionFailedEvent
ItemEvent = ItemAddedEvent | ItemRetrievedEvent | ItemTruncatedEvent
ResponseEvent = (
    ResponseCreatedEvent
    | MessageCreatedEvent
    | TextDeltaEvent
    | AudioDeltaEvent
    | AudioAlignmentEvent
    | MessageDoneEvent
    | ResponseDoneEvent
)
CallEvent = CallCreatedEvent | CallDeltaEvent | CallDoneEvent
HostedToolEvent = (
    ToolListBegunEvent
    | ToolListDoneEvent
    | HostedCallCreatedEvent
    | HostedCallDeltaEvent
    | HostedCallWrittenEvent
    | HostedCallBegunEvent
    | HostedCallDoneEvent
    | HostedCallApprovedEvent
    | ApprovalRequestedEvent
)
ServerEvent = (
    PlainEvent | SessionEvent | InputEvent | ItemEvent | ResponseEvent | CallEvent | HostedToolEvent | SoundPlayedEvent
)
