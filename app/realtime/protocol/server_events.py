"""Events that a session sends to its client, independent of the wire protocol; a dialect encodes them.

Dialects keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from app.realtime.protocol.client_events import AddContext, MuteInput
from app.realtime.protocol.items import ApprovalRequestItem, CallItem, HostedCallItem, Item, MessageItem, ToolListItem
from app.realtime.protocol.options import ResponseOptions, SessionOptions
from app.refusal import Refusal
from engine import StageTime

Outcome = Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
Reason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


class ResponseUsage(Struct, frozen=True):
    """Tokens of one answer; an audio token is one codec frame."""

    input_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0
    audio_input_tokens: int = 0
    """Audio tokens in the input; 0, like the next two fields, if the model does not count them."""
    image_tokens: int = 0
    """Image tokens in the input."""
    cached_tokens: int = 0
    """Input tokens read from the prefix cache."""


class SessionView(Struct, frozen=True):
    id: str
    expires_at_s: int
    options: SessionOptions
    loaded: Mapping[str, Any]
    """The model and voice that serve the session, whatever names the client requested."""
    tool_servers: tuple[Mapping[str, Any], ...] = ()
    """The MCP servers among the tools, as shown to the client."""


class SessionPausedEvent(Struct, frozen=True):
    """The session pauses, because nothing has happened for its idle timeout (``IdlePolicy``)."""


class SessionResumedEvent(Struct, frozen=True):
    """Speech or a response has ended the pause."""


class QueueUpdatedEvent(Struct, frozen=True):
    """The server is full, and the client waits at ``position`` in the admission queue."""

    position: int


class SessionCreatedEvent(Struct, frozen=True):
    session: SessionView


class SessionUpdatedEvent(Struct, frozen=True):
    session: SessionView


class SessionEndedEvent(Struct, frozen=True):
    """The client closed the session: its last event."""

    session: SessionView
    event_id: str | None


class ObeyedEvent(Struct, frozen=True):
    """A client event without other visible effects was handled; ``event_id`` is the client's id."""

    event: MuteInput | AddContext
    event_id: str | None


class SpeechStartedEvent(Struct, frozen=True):
    """The user started to speak.

    ``audio_start_ms`` counts from the session's first sample. It is earlier than the speech by the prefix padding.
    """

    item_id: str
    audio_start_ms: int


class SpeechStoppedEvent(Struct, frozen=True):
    item_id: str
    audio_end_ms: int
    over_probability: float | None = None
    """Ours: the end-of-turn model's probability that the turn was over; None where no such model ended it."""
    turn_ms: float | None = None
    """Ours: the silence that ended the turn; None if no silence ended it."""


class TimeoutTriggeredEvent(Struct, frozen=True):
    """A turn of silence: nobody spoke for ``idle_timeout_ms`` after an answer."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class AudioCommittedEvent(Struct, frozen=True):
    item_id: str
    previous_item_id: str | None


class AudioClearedEvent(Struct, frozen=True):
    pass


class DtmfReceivedEvent(Struct, frozen=True):
    """A DTMF key of the caller, at a Unix time in seconds."""

    key: str
    at_s: int


class ItemAddedEvent(Struct, frozen=True):
    """An item that is complete when added."""

    item: Item
    previous_id: str | None


class ToolListBegunEvent(Struct, frozen=True):
    """The server requests the tools of an MCP server."""

    item: ToolListItem
    previous_id: str | None


class ToolListDoneEvent(Struct, frozen=True):
    """The MCP server has listed its tools, or ``failed``."""

    item: ToolListItem
    previous_id: str | None
    failed: bool


class ItemRetrievedEvent(Struct, frozen=True):
    item: Item
    sounds: tuple[bytes, ...] = ()
    """The user's audio, part by part: int16 little-endian at SPEAKER_RATE_HZ."""


class ItemDeletedEvent(Struct, frozen=True):
    item_id: str


class ItemTruncatedEvent(Struct, frozen=True):
    """An answer was truncated at ``audio_end_ms``; ``played_text`` are the remaining words."""

    item_id: str
    content_index: int
    audio_end_ms: int
    played_text: str


class SummarizedEvent(Struct, frozen=True):
    """From now on, a summary stands in prompts for the items before ``first_item_id``. Clients request these events."""

    first_item_id: str | None
    summary: str
    source: Literal["model", "extract"]
    """``extract``: it has only sentences of the user."""


class OutputAudioPausedEvent(Struct, frozen=True):
    """The user speaks over a response: playback pauses until it is clear whether this is a turn."""


class OutputAudioResumedEvent(Struct, frozen=True):
    """It was no turn: playback goes on where it paused."""


class TranscriptionPartialEvent(Struct, frozen=True):
    """Interim transcript of an item; the next one may revise it unless it is ``final``."""

    item_id: str
    transcript: str
    final: bool


class SpeakerFoundEvent(Struct, frozen=True):
    """Which of the session's voices spoke an item: ``speaker_1``, ``speaker_2`` and so on."""

    item_id: str
    speaker: str


class TranscriptionDeltaEvent(Struct, frozen=True):
    """The next stable words of an item's transcript."""

    item_id: str
    content_index: int
    delta: str


class TranscriptionCompletedEvent(Struct, frozen=True):
    """The complete transcript of an item whose audio lasts ``seconds``."""

    item_id: str
    transcript: str
    seconds: float


class TranscriptionFailedEvent(Struct, frozen=True):
    item_id: str
    code: str
    message: str


class ResponseView(Struct, frozen=True):
    """The state of one response. ``conversation_id`` is None for an out-of-band response."""

    id: str
    conversation_id: str | None
    options: ResponseOptions
    asked: bool = False
    """Whether the client requested it, instead of a turn."""
    outcome: Outcome = "in_progress"
    reason: Reason | None = None
    error: tuple[str, str] | None = None
    """Error code and message."""
    output: tuple[Item, ...] = ()
    usage: ResponseUsage | None = None
    ledger: Mapping[str, float] | None = None
    """The parts of the time to first audio in ms."""
    ttfa_ms: float | None = None
    """The sum of the ledger."""
    ahead_ms: float = 0.0
    """Milliseconds of it that had passed before the end of the user's turn."""
    turn_ms: float | None = None
    """Silence in ms between the user's last word and the end of the turn; None if the user did not speak."""
    over_probability: float | None = None
    """The end-of-turn model's probability that the turn was over; None if no such model ended it."""
    turn_counts: Mapping[str, float] | None = None
    """How the session's turns have ended so far; None if no silence ended this one."""
    stages: tuple[StageTime, ...] = ()
    """When each stage worked on it, once it has ended."""


class ResponseCreatedEvent(Struct, frozen=True):
    response: ResponseView


class RateLimitsEvent(Struct, frozen=True):
    """How many responses the session may have at a time, and how many more it may start now."""

    limit: int
    remaining: int


class OutputItemRef(Struct, frozen=True):
    """The position of an item in a response."""

    response_id: str
    item_id: str
    index: int
    kept: bool
    """Whether the conversation contains the item too."""
    spoken: bool


class MessageCreatedEvent(Struct, frozen=True):
    ref: OutputItemRef
    item: MessageItem
    previous_id: str | None


class TextDeltaEvent(Struct, frozen=True):
    """The next words: written, or the transcript of the speech."""

    ref: OutputItemRef
    text: str


class AudioDeltaEvent(Struct, frozen=True):
    """The next audio in the response's format; int16 little-endian at SPEAKER_RATE_HZ if the server plays."""

    ref: OutputItemRef
    pcm: bytes
    seconds: float


class BackgroundAudioEvent(Struct, frozen=True):
    """Audio of a duplex model between its responses, if the server plays: int16 little-endian at SPEAKER_RATE_HZ."""

    pcm: bytes


class SoundPlayedEvent(Struct, frozen=True):
    """The transport sent the next audio itself, without an event: ``samples`` at SPEAKER_RATE_HZ."""

    ref: OutputItemRef
    samples: int


class AudioAlignmentEvent(Struct, frozen=True):
    """The position of the speech in its text: rising pairs of ms of the item's audio, and characters spoken by then.

    Times count from the item's first played sample; a character is a Unicode code point. It is sent before the audio,
    to clients that enabled it.
    """

    ref: OutputItemRef
    marks: tuple[tuple[float, int], ...]


class OutputAudioStartedEvent(Struct, frozen=True):
    """The server started to play an answer; only on transports on which the server plays (``PlayoutProfile.plays``)."""

    response_id: str


class OutputAudioStoppedEvent(Struct, frozen=True):
    """The server has played the whole answer."""

    response_id: str


class OutputAudioClearedEvent(Struct, frozen=True):
    """The server stopped playing the answer before its end."""

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
    """The LLM starts to call a tool that the server runs."""

    ref: OutputItemRef
    item: HostedCallItem
    previous_id: str | None


class HostedCallDeltaEvent(Struct, frozen=True):
    """The next characters of such a call's arguments."""

    ref: OutputItemRef
    text: str


class HostedCallWrittenEvent(Struct, frozen=True):
    """The arguments of such a call have ended, complete or not."""

    ref: OutputItemRef
    item: HostedCallItem


class HostedCallBegunEvent(Struct, frozen=True):
    """The server runs the call."""

    ref: OutputItemRef


class HostedCallDoneEvent(Struct, frozen=True):
    """The call has a result."""

    ref: OutputItemRef
    item: HostedCallItem
    previous_id: str | None


class HostedCallApprovedEvent(Struct, frozen=True):
    """An approved call is in the conversation and runs next."""

    item: HostedCallItem
    previous_id: str | None


class ApprovalRequestedEvent(Struct, frozen=True):
    """The LLM wants to call a tool that the client must approve."""

    ref: OutputItemRef
    item: ApprovalRequestItem
    previous_id: str | None


class ResponseDoneEvent(Struct, frozen=True):
    response: ResponseView


class ErrorEvent(Struct, frozen=True):
    """A client event was refused or failed; ``event_id`` is the client's id."""

    refusal: Refusal
    event_id: str | None


PlainEvent = (
    QueueUpdatedEvent
    | SpeechStartedEvent
    | TimeoutTriggeredEvent
    | AudioCommittedEvent
    | AudioClearedEvent
    | SummarizedEvent
    | TranscriptionPartialEvent
    | SpeakerFoundEvent
    | TranscriptionDeltaEvent
    | ItemDeletedEvent
    | OutputAudioStartedEvent
    | OutputAudioStoppedEvent
    | OutputAudioClearedEvent
    | OutputAudioPausedEvent
    | OutputAudioResumedEvent
)
"""Events whose fields have the same names as in the Realtime protocol."""
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
LiveEvent = SessionPausedEvent | SessionResumedEvent | SoundPlayedEvent | BackgroundAudioEvent
"""Events that the Realtime protocol does not have."""
ServerEvent = (
    PlainEvent | SessionEvent | InputEvent | ItemEvent | ResponseEvent | CallEvent | HostedToolEvent | LiveEvent
)
