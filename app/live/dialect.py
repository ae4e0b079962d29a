"""The OpenAI Live protocol as a dialect of one session: its messages both ways, and the state between them.

A dialect translates between one API's messages and the session's events. Live has no turns, items and parts: a session
consists of two audio streams, words with timestamps, and delegations.

Source: openai-python ``types/live``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar, assert_never

from app.ids import new_id
from app.live import from_wire
from app.live.config import DELEGATE, LiveConfig
from app.live.delegation import DelegatedResponse
from app.live.from_wire import Commentary, Instructions, Misread, Plain, Start, Thinking, Update
from app.live.hosted_work import HostedWork
from app.live.sound import CallSound
from app.live.timeline import LiveTranscript, OutputTimeline, TimedText, after
from app.live.to_wire import Wire, answers, delegation, error, text_of, transcript
from app.realtime.protocol import CallOutputItem, Received, ServerEvent
from app.realtime.protocol.client_events import AddContext, ClientEvent, MuteInput, UpdateSession
from app.realtime.protocol.dialect import Ended
from app.realtime.protocol.server_events import (
    AudioAlignmentEvent,
    BackgroundAudioEvent,
    CallCreatedEvent,
    CallDeltaEvent,
    CallDoneEvent,
    CallEvent,
    DtmfReceivedEvent,
    ErrorEvent,
    HostedToolEvent,
    MessageDoneEvent,
    ObeyedEvent,
    OutputItemRef,
    ResponseCreatedEvent,
    ResponseDoneEvent,
    ResponseEvent,
    ResponseView,
    SessionCreatedEvent,
    SessionEndedEvent,
    SessionEvent,
    SessionPausedEvent,
    SessionResumedEvent,
    SessionUpdatedEvent,
    SessionView,
    SoundPlayedEvent,
    SpeechStartedEvent,
    SpeechStoppedEvent,
    TextDeltaEvent,
    TranscriptionCompletedEvent,
)
from app.refusal import Refusal
from engine import Text, ToolCall, ToolCallDelta

T = TypeVar("T")
Reason = Literal["close_requested", "expired", "remote_hangup", "connection_lost"]

ENDS: dict[str, Reason] = {
    "session_expired": "expired",
    "server_shutting_down": "connection_lost",
    "key_withdrawn": "connection_lost",
}
"""The reason that clients receive, by the error code with which the server ends the session."""

LEFT: dict[Ended, Reason] = {"closed": "close_requested", "left": "remote_hangup", "lost": "connection_lost"}
"""The reason that listeners of a call receive if neither a command nor an error ended its session."""

MOST_REMEMBERED = 64
"""Maximum number of remembered turns, answers and delegations: the active ones, and those whose end is still to
come.
"""


class LiveDialect:
    """The dialect of one session.

    ``timeline`` is the timeline of its output. ``start_id`` is the client's id of its ``session.start``. ``id`` is the
    session's id, if something else has named it.
    """

    def __init__(
        self, config: LiveConfig, timeline: OutputTimeline, start_id: str | None = None, id: str | None = None
    ) -> None:
        self._id = id
        self._paused_s = 0.0  # seconds of the pauses that have ended
        self._paused_from_s: float | None = None
        self.config = config
        self.muted = False
        """Whether the client's last mute event muted its microphone."""
        # pending updates: the client's event id, the outcome
        self._updates: dict[str, tuple[str | None, LiveConfig]] = {}
        self.timeline = timeline
        self._start_id = start_id
        sound = CallSound(timeline)
        self.reflect_input = sound.reflect_input
        self.reflect_output = sound.reflect_output
        self._view: SessionView | None = None
        self._turns: dict[str, list[int]] = {}  # start and end of each turn in ms
        self._spoken: dict[str, LiveTranscript] = {}  # by item
        self._has_heard = self._has_spoken = False
        self._responses: dict[str, DelegatedResponse] = {}  # active delegated responses, by id
        self._created: dict[str, ResponseView] = {}  # active responses that are not delegated, or not yet
        self._hosted = HostedWork()
        self._chain: str | None = None  # the delegation that a continuation belongs to
        self._calls: dict[str, str] = {}  # call ids of delegations to the client, by the delegation's id

    def decode(self, text: str) -> Received:
        try:
            event_id, said = from_wire.parse(text)
        except Misread as misread:
            return Received(misread.refusal, misread.event_id)
        try:
            return self._updated(said, event_id) if isinstance(said, Update) else Received(self._event(said), event_id)
        except Refusal as refusal:
            return Received(refusal, event_id)

    def _updated(self, said: Update, event_id: str | None) -> Received:
        """Apply new settings. They take effect only once the session accepts them, since it may refuse them."""
        _, before = next(reversed(self._updates.values()), (None, self.config))
        config, patch = before.updated(said.session)
        name = new_id("event")
        _remember(self._updates, name, (event_id, config))
        return Received(UpdateSession(patch), name)

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        return [text_of(wire) for wire in self._wire_events(event)]

    def farewell(self, ended: Ended) -> list[str]:
        if self._view is None or self.timeline.over:
            return []
        return [text_of(self._closed(LEFT[ended]))]

    def _event(self, said: Plain | Start | Commentary | Thinking | Instructions) -> ClientEvent:
        match said:
            case Start():
                raise Refusal("session_already_started", "The session has already started.", "type")
            case Commentary() | Thinking() | Instructions():
                return self._context(said)
            case from_wire.LiveCreateItem() | from_wire.LiveCreateResponse():
                if self.config.target != "responses":
                    message = "This session delegates to its client: reply with session.commentary.append."
                    raise Refusal("invalid_event", message, "type")
                return from_wire.plain(said)
            case from_wire.Mute() | from_wire.Unmute():
                self.muted = isinstance(said, from_wire.Mute)
                return from_wire.plain(said)
            case _:
                return from_wire.plain(said)

    def _context(self, said: Commentary | Thinking | Instructions) -> AddContext:
        id = said.delegation_id
        if id is not None and id not in self._calls:
            raise Refusal("delegation_not_found", f"This session has no delegation {id[:64]!r}.", "delegation_id")
        if isinstance(said, Commentary):
            return AddContext(self._commentary(said.content, id), answer=True, purpose="commentary")
        purpose = "thinking" if isinstance(said, Thinking) else "instructions"
        return AddContext(from_wire.message("system", said.content), answer=False, purpose=purpose)

    def _commentary(self, content: str, delegation_id: str | None) -> Any:
        """Return commentary as an item: the delegated call's result, or else a message."""
        call_id = self._calls.get(delegation_id or "", "")
        if call_id:
            self._calls[delegation_id or ""] = ""  # the call has its result; further commentary is a message
            return CallOutputItem(id=new_id("item"), call_id=call_id, output=content)
        return from_wire.message("user", content)

    def _wire_events(self, event: ServerEvent) -> list[Wire]:
        if isinstance(event, SessionEvent):
            return self._session_events(event)
        if isinstance(event, SoundPlayedEvent):
            return self._played(event)
        if isinstance(event, BackgroundAudioEvent):
            self.timeline.add(len(event.pcm) // 2)
            return []
        if isinstance(event, ResponseEvent):
            return self._response_events(event)
        if isinstance(event, CallEvent):
            return self._call_events(event)
        if isinstance(event, HostedToolEvent):
            return self._hosted.events(event, self._work_of) if self.config.target == "responses" else []
        match event:
            case SpeechStartedEvent(item_id, at_ms):
                _remember(self._turns, item_id, [at_ms, at_ms])
            case SpeechStoppedEvent(item_id, at_ms) if item_id in self._turns:
                self._turns[item_id][1] = at_ms
            case TranscriptionCompletedEvent():
                return self._heard(event)
            case SessionPausedEvent():
                self._paused_from_s = self.timeline.now_s
                return [{"type": "session.paused"}]
            case SessionResumedEvent():
                self._paused_s = self._paused
                self._paused_from_s = None
                return [{"type": "session.resumed"}]
            case DtmfReceivedEvent(key):
                return [{"type": "transport.dtmf.received", "event": key}]
            case _:  # Live has no events for turns, items and playout
                pass
        return []

    def _session_events(self, event: SessionEvent) -> list[Wire]:
        match event:
            case SessionCreatedEvent(view):
                return [{"type": "session.started", "session": self._session(view), **answers(self._start_id)}]
            case SessionUpdatedEvent(view):
                if self._updates:
                    _, self.config = self._updates.pop(next(iter(self._updates)))
                return [{"type": "session.updated", "session": self._session(view)}]
            case SessionEndedEvent(view, event_id):
                self._view = view
                return [{**self._closed("close_requested"), **answers(event_id)}]
            case ObeyedEvent(obeyed, event_id):
                return [{**one, **answers(event_id)} for one in self._acknowledged(obeyed)]
            case ErrorEvent(refusal, event_id):
                return self._errors(refusal, event_id)
            case _:
                return []

    def _errors(self, refusal: Refusal, event_id: str | None) -> list[Wire]:
        if event_id in self._updates:
            event_id, _ = self._updates.pop(event_id)
        told = [error(refusal, event_id)]
        if refusal.code not in ENDS or self._view is None:
            return told
        return [*(told if ENDS[refusal.code] != "expired" else []), self._closed(ENDS[refusal.code])]

    def _acknowledged(self, event: MuteInput | AddContext) -> list[Wire]:
        match event:
            case MuteInput(muted):
                return [{"type": f"session.input_audio.{'muted' if muted else 'unmuted'}"}]
            case AddContext(purpose="commentary" | "thinking" | "instructions" as purpose):
                now_ms = self.timeline.now_ms
                return [{"type": f"session.{purpose}.appended", "start_ms": now_ms, "end_ms": now_ms}]
            case AddContext():
                return []
            case _:
                assert_never(event)

    def _heard(self, event: TranscriptionCompletedEvent) -> list[Wire]:
        """Report the user's words, a complete turn at once, since earlier hypotheses may have been revised."""
        now_ms = self.timeline.now_ms
        start_ms, end_ms = self._turns.pop(event.item_id, None) or [now_ms - round(event.seconds * 1000), now_ms]
        if not event.transcript:
            return []
        begun = self._has_heard
        self._has_heard = True
        fragment = TimedText(after(event.transcript, begun), max(0, start_ms), max(0, start_ms, end_ms))
        return [transcript("input", fragment)]

    def _played(self, event: SoundPlayedEvent) -> list[Wire]:
        span = self.timeline.add(event.samples)
        return self._fragments(self._spoken_text(event.ref).played(*span))

    def _response_events(self, event: ResponseEvent) -> list[Wire]:
        match event:
            case ResponseCreatedEvent(view):
                return self._begun(view)
            case TextDeltaEvent(ref, text):
                self._spoken_text(ref).text += text
                told = [] if ref.spoken else self._fragments(self._spoken_text(ref).end())
                delegated = self._responses.get(ref.response_id)
                return [*told, *(delegated.take(Text(text, 0)) if delegated else [])]
            case AudioAlignmentEvent(ref, marks):
                self._spoken_text(ref).marks += marks
                return []
            case MessageDoneEvent(ref, item):
                spoken = self._spoken.pop(ref.item_id, LiveTranscript())
                return self._fragments(spoken.end()) if item.status == "completed" else []
            case ResponseDoneEvent(view):
                return self._ended(view)
            case _:
                return []

    def _begun(self, view: ResponseView) -> list[Wire]:
        """Return the messages that begin a response which the client requested; none for other responses.

        With the backend ``responses``, it is reported as delegated work. It continues the previous delegation if that
        one ended with a function call.
        """
        if not (view.asked or self._hosted.continues) or self.config.target != "responses":
            _remember(self._created, view.id, view)
            return []
        return self._begin_delegated(view, self._chain)

    def _begin_delegated(self, view: ResponseView, id: str | None) -> list[Wire]:
        delegated = DelegatedResponse(view, self.config.model, id)
        _remember(self._responses, view.id, delegated)
        return [*delegated.begin(), *self._hosted.unseen(delegated)]

    def _ended(self, view: ResponseView) -> list[Wire]:
        self._created.pop(view.id, None)
        delegated = self._responses.pop(view.id, None)
        used = {"type": "session.usage.updated", "usage": self._usage()}
        if delegated is None:
            return [used]
        self._chain = delegated.delegation_id if delegated.called else None
        return [*delegated.end(view), used]

    def _call_events(self, event: CallEvent) -> list[Wire]:
        if self.config.target == "client":
            return self._delegated_to_client(event)
        delegated, told = self._work_of(event.ref)
        match event:
            case CallCreatedEvent(_, item):
                return [*told, *delegated.take(ToolCallDelta(item.call_id, item.name, ""))]
            case CallDeltaEvent(_, call_id, text):
                return [*told, *delegated.take(ToolCallDelta(call_id, "", text))]
            case CallDoneEvent(_, item) if item.status == "completed":
                return [*told, *delegated.take(ToolCall(item.call_id, item.name, item.arguments))]
            case CallDoneEvent(_, item):
                return [*told, *delegated.cut(item.call_id)]

    def _work_of(self, ref: OutputItemRef) -> tuple[DelegatedResponse, list[Wire]]:
        """Return the delegated response of a call, and the events that precede the call.

        An answer turns into delegated work at its first call.
        """
        told: list[Wire] = []
        if ref.response_id not in self._responses:
            id, created = self._delegation("responses", ref.response_id)
            told = [created, *self._begin_delegated(self._created.pop(ref.response_id), id)]
        delegated = self._responses[ref.response_id]
        if delegated.delegation_id is None:  # part of a response that the client requested
            delegated.delegation_id, created = self._delegation("responses", ref.response_id)
            told = [*told, created]
        return delegated, told

    def _delegated_to_client(self, event: CallEvent) -> list[Wire]:
        if not isinstance(event, CallDoneEvent) or event.item.name != DELEGATE or event.item.status != "completed":
            return []
        id, created = self._delegation("client", None)
        _remember(self._calls, id, event.item.call_id)
        return [created]

    def _delegation(self, target: str, response_id: str | None) -> tuple[str, Wire]:
        id = new_id("dlg")
        return id, delegation(id, target, response_id, self.timeline.now_ms)

    def _spoken_text(self, ref: OutputItemRef) -> LiveTranscript:
        if ref.item_id not in self._spoken:
            _remember(self._spoken, ref.item_id, LiveTranscript(begun=self._has_spoken))
            self._has_spoken = True
        return self._spoken[ref.item_id]

    def _fragments(self, fragments: list[TimedText]) -> list[Wire]:
        return [transcript("output", one) for one in fragments]

    def _session(self, view: SessionView) -> Wire:
        self._view = view
        return {"id": self._id or view.id, "expires_at": view.expires_at_s, **self.config.shown()}

    def _closed(self, reason: Reason) -> Wire:
        assert self._view is not None
        self.timeline.over = True
        return {
            "type": "session.closed",
            "reason": reason,
            "session": self._session(self._view),
            "usage": self._usage(),
        }

    def _usage(self) -> Wire:
        """Return the session's duration; for one that may pause, whole seconds and their parts."""
        if self.config.idle is None:
            return {"seconds": round(self.timeline.now_s, 3)}
        total, paused = int(self.timeline.now_s), int(self._paused)
        return {"seconds": float(total), "active_seconds": total - paused, "paused_seconds": paused}

    @property
    def _paused(self) -> float:
        """The seconds in which the session was paused."""
        since_s = self._paused_from_s
        return self._paused_s + (0.0 if since_s is None else self.timeline.now_s - since_s)


def _remember(known: dict[str, T], key: str, value: T) -> None:
    known[key] = value
    while len(known) > MOST_REMEMBERED:
        del known[next(iter(known))]
