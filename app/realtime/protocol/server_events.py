"""Events that a session sends to its client, in our own words: a dialect's encoder turns each into its own.

Their order is the order of a dialect's events. Knows no wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.realtime.protocol.client_events import AddContext, MuteInput
from app.realtime.protocol.items import ApprovalRequestItem, CallItem, HostedCallItem, Item, MessageItem, ToolListItem
from app.realtime.protocol.options import Options, ResponseOptions
from app.refusal import Refusal

Outcome = Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
Reason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class Usage:
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


@dataclass(frozen=True, slots=True)
class SessionView:
    id: str
    expires_at_s: int
    options: Options
    loaded: Mapping[str, Any]
    """The model and voice that really serve, whatever names the client asked for."""
    tool_servers: tuple[Mapping[str, Any], ...] = ()
    """The MCP servers among its tools, as the client sees them again."""


@dataclass(frozen=True, slots=True)
class QueueUpdated:
    """The server is full: the client waits for a session, as the ``place``-th in line."""

    ref: int


@dataclass(frozen=True, slots=True)
class SessionCreated:
    session: SessionView


@dataclass(frozen=True, slots=True)
class SessionUpdated:
    session: SessionView


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The client closed the session: this is its last event."""

    session: SessionView
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Obeyed:
    """A command whose only effect is inside was obeyed; ``event_id`` is the client's name for it."""

    event: MuteInput | AddContext
    event_id: str | None


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user speaks; ``at_ms`` counts from the session's first sample, prefix included."""

    item_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    item_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class TimeoutTriggered:
    """A turn made of silence: nobody spoke for so long after an answer that the sound since is taken for a turn."""

    item_id: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class AudioCommitted:
    item_id: str
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class AudioCleared:
    pass


@dataclass(frozen=True, slots=True)
class DtmfReceived:
    """A key of the caller's telephone, at a time in seconds since 1970."""

    key: str
    at_s: int


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """An item that is complete as it comes."""

    item: Item
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class ToolListBegun:
    """An MCP server is asked for its tools."""

    item: ToolListItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class ToolListDone:
    """The server has listed its tools, or ``failed`` to."""

    item: ToolListItem
    previous_id: str | None
    failed: bool


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    item: Item
    sounds: tuple[bytes, ...] = ()
    """The sound that was heard in it, part by part: int16 little-endian at SPEAKER_RATE_HZ."""


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    """An answer ends at ``audio_end_ms`` for the conversation; ``played_text`` are its words up to there."""

    item_id: str
    content_index: int
    audio_end_ms: int
    played_text: str


@dataclass(frozen=True, slots=True)
class TranscriptionPartial:
    """All that the user seems to have said so far in an item; the next may revise it, unless this is the last word."""

    item_id: str
    transcript: str
    final: bool


@dataclass(frozen=True, slots=True)
class TranscriptionCompleted:
    """All that the user said in an item whose audio lasts ``seconds``."""

    item_id: str
    transcript: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TranscriptionFailed:
    item_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ResponseView:
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
    usage: Usage | None = None
    ledger: Mapping[str, float] | None = None
    """The parts of the time to first audio, in ms."""
    ttfa_ms: float | None = None
    """The sum of the ledger's terms."""
    ahead_ms: float = 0.0
    """Milliseconds of that which had passed when the user's turn was over."""
    turn_ms: float | None = None
    """The silence between the user's last word and the end of their turn; None where they did not speak."""


@dataclass(frozen=True, slots=True)
class ResponseCreated:
    response: ResponseView


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The number of responses that the session may have at a time, and how many more it may ask for now."""

    limit: int
    remaining: int


@dataclass(frozen=True, slots=True)
class OutputItemRef:
    """The place in a response where something belongs."""

    response_id: str
    item_id: str
    index: int
    kept: bool
    """Whether the item is in the conversation too."""
    spoken: bool


@dataclass(frozen=True, slots=True)
class MessageCreated:
    ref: OutputItemRef
    item: MessageItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next words: typed, or the transcript of what is said."""

    ref: OutputItemRef
    text: str


@dataclass(frozen=True, slots=True)
class AudioDelta:
    """The next sound, in the response's format; where the server plays, int16 little-endian at SPEAKER_RATE_HZ."""

    ref: OutputItemRef
    pcm: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class SoundPlayed:
    """The next sound left for the listener by the transport itself, as no event: ``samples`` at SPEAKER_RATE_HZ."""

    ref: OutputItemRef
    samples: int


@dataclass(frozen=True, slots=True)
class AudioAlignment:
    """The voice's place in its text: (ms of the item's sound, characters that are spoken by then), both rising.

    The sound is counted from the item's first sample that is played; a character is a Unicode code point. It comes
    before the sound, to clients that asked for it.
    """

    ref: OutputItemRef
    marks: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class OutputAudioStarted:
    """The server plays the answer's first sound; told only where the server plays (``Line.plays``)."""

    response_id: str


@dataclass(frozen=True, slots=True)
class OutputAudioStopped:
    """All of the answer was played."""

    response_id: str


@dataclass(frozen=True, slots=True)
class OutputAudioCleared:
    """The answer fell silent before its end: nothing of it is heard from now on."""

    response_id: str


@dataclass(frozen=True, slots=True)
class MessageDone:
    ref: OutputItemRef
    item: MessageItem
    text: str
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class CallCreated:
    ref: OutputItemRef
    item: CallItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The next characters of a call's arguments."""

    ref: OutputItemRef
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallDone:
    ref: OutputItemRef
    item: CallItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class HostedCallCreated:
    """The thinker begins to call a tool that the server runs."""

    ref: OutputItemRef
    item: HostedCallItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class HostedCallDelta:
    """The next characters of such a call's arguments."""

    ref: OutputItemRef
    text: str


@dataclass(frozen=True, slots=True)
class HostedCallWritten:
    """The thinker has written all of the call, as far as it will."""

    ref: OutputItemRef
    item: HostedCallItem


@dataclass(frozen=True, slots=True)
class HostedCallBegun:
    """The server runs the call."""

    ref: OutputItemRef


@dataclass(frozen=True, slots=True)
class HostedCallDone:
    """The call has its result."""

    ref: OutputItemRef
    item: HostedCallItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class HostedCallApproved:
    """A call that the client approved is in the conversation, and is run next."""

    item: HostedCallItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """The thinker asks for a call that the client has to approve."""

    ref: OutputItemRef
    item: ApprovalRequestItem
    previous_id: str | None


@dataclass(frozen=True, slots=True)
class ResponseDone:
    response: ResponseView


@dataclass(frozen=True, slots=True)
class Error:
    """A command was refused, or broke; ``event_id`` is the client's name for it."""

    refusal: Refusal
    event_id: str | None


SessionEvent = SessionCreated | SessionUpdated | SessionEnded | Obeyed | QueueUpdated | RateLimits | Error
InputEvent = (
    SpeechStarted
    | SpeechStopped
    | TimeoutTriggered
    | AudioCommitted
    | AudioCleared
    | DtmfReceived
    | TranscriptionPartial
    | TranscriptionCompleted
    | TranscriptionFailed
)
ItemEvent = ItemAdded | ItemRetrieved | ItemDeleted | ItemTruncated
ResponseEvent = ResponseCreated | MessageCreated | TextDelta | AudioDelta | AudioAlignment | MessageDone | ResponseDone
CallEvent = CallCreated | CallDelta | CallDone
HostedToolEvent = (
    ToolListBegun
    | ToolListDone
    | HostedCallCreated
    | HostedCallDelta
    | HostedCallWritten
    | HostedCallBegun
    | HostedCallDone
    | HostedCallApproved
    | ApprovalRequested
)
PlaybackEvent = SoundPlayed | OutputAudioStarted | OutputAudioStopped | OutputAudioCleared
ServerEvent = SessionEvent | InputEvent | ItemEvent | ResponseEvent | CallEvent | HostedToolEvent | PlaybackEvent
