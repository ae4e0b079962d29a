"""One response from start to end: converts the engine's chunks to events in the protocol's order.

Sans-I/O. However it ends (completed, cancelled, failed, incomplete), every open item is closed, and one ResponseDone is
emitted as the last event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from app.ids import new_id
from app.realtime.conversation import Conversation
from app.realtime.output.hosted_tools import Hosting
from app.realtime.output.playout import Packet
from app.realtime.output.timing import Timing
from app.realtime.ports import SOCKET, PlayoutProfile
from app.realtime.protocol import (
    ApprovalRequestItem,
    AssistantAudio,
    CallItem,
    HostedCallError,
    HostedCallItem,
    Item,
    MessageItem,
    MessageText,
    OutputEncoder,
    ResponseOptions,
    ServerEvent,
    SpeakerFormat,
    Status,
    server_events,
)
from engine import SPEAKER_RATE_HZ, Ledger, ModelInfo, StageTime, TokenIds, Usage


class ResponseEmitter:
    """One response. ``emit`` receives the events at once and in order. Items are stored in ``conversation``, if set."""

    def __init__(
        self,
        options: ResponseOptions,
        conversation: Conversation | None,
        model: ModelInfo,
        emit: Callable[[ServerEvent], None],
        profile: PlayoutProfile = SOCKET,
        hosting: Hosting | None = None,
    ) -> None:
        self.id = new_id("resp")
        self._hosting = hosting
        self._conversation = conversation
        self._model = model
        self._emit = emit
        self.profile = profile
        self.opened = False
        """Whether the client has seen the response. A response prepared during the user's turn is not visible."""
        self.stage_times: Callable[[], tuple[StageTime, ...]] = tuple
        """Return when each stage worked on the current request."""
        self._playing = False
        self._encoder = OutputEncoder(SpeakerFormat() if profile.plays else options.audio.output.format)
        self.frame_samples = model.frame_s * SPEAKER_RATE_HZ
        self._output: list[Item] = []
        self._message: _Message | None = None
        self._call: _Call | None = None
        self._sent_samples = self._unsent = 0
        self._marks: list[tuple[int, int]] = []
        self._usage = server_events.ResponseUsage()
        self.view = server_events.ResponseView(self.id, None if conversation is None else conversation.id, options)

    @property
    def closed(self) -> bool:
        return self.view.outcome != "in_progress"

    @property
    def options(self) -> ResponseOptions:
        return self.view.options

    @options.setter
    def options(self, options: ResponseOptions) -> None:
        """Set the client's final settings; only before ``open``."""
        self.view = replace(self.view, options=options)

    @property
    def written(self) -> tuple[Item, ...]:
        """Return the items so far, with everything that the model has written."""
        return tuple(map(self._with_text, self._output))

    def open(self, asked: bool = False) -> None:
        self.opened = True
        self.view = replace(self.view, asked=asked)
        self._emit(server_events.ResponseCreatedEvent(self.view))

    def text(self, piece: str, ids: tuple[int, ...]) -> None:
        """Add the next words and their token ids."""
        if not self.closed and piece:
            message = self._message_open()
            message.text += piece
            message.ids += ids
            self._emit(server_events.TextDeltaEvent(message.ref, piece))

    def audio(self, packet: Packet) -> None:
        """Add samples that are sent to the listener now."""
        if (not self.closed or self._unsent) and len(packet.samples):
            message = self._message_open()
            self._play()
            self._unsent = max(0, self._unsent - len(packet.samples))
            self._sent_samples += len(packet.samples)
            self._emit(server_events.AudioDeltaEvent(message.ref, self._encoder.push(packet.samples), packet.seconds))

    def unsent(self, samples: int) -> None:
        """Take back the last ``samples``, which did not reach the listener and will be sent again, even after the
        end.
        """
        self._sent_samples -= samples
        self._unsent = samples

    def reached(self, marks: Iterable[tuple[int, int]]) -> None:
        """Add marks: the number of characters that are spoken once a number of samples was played."""
        known = len(self._marks)
        for samples, text_end in marks:
            if text_end > (self._marks[-1][1] if self._marks else 0):
                self._marks.append((max(0, samples), text_end))
        if self.options.parley.alignment and not self.closed and (news := self._marks[known:]):
            aligned = tuple((round(samples / SPEAKER_RATE_HZ * 1000, 3), text_end) for samples, text_end in news)
            self._emit(server_events.AudioAlignmentEvent(self._message_open().ref, aligned))

    def call_piece(self, name: str, call_id: str, piece: str) -> None:
        """Add the next piece of a function call's arguments."""
        if not self.closed and piece:
            call = self._call_open(name, call_id)
            call.arguments += piece
            match call.item:
                case CallItem():
                    self._emit(server_events.CallDeltaEvent(call.ref, call.call_id, piece))
                case HostedCallItem():
                    self._emit(server_events.HostedCallDeltaEvent(call.ref, piece))
                case ApprovalRequestItem():
                    pass  # the client sees it once it is complete

    def call(self, name: str, arguments: str, call_id: str) -> None:
        """Complete a function call. ``arguments`` includes the pieces reported before."""
        if not self.closed:
            received = self._call_open(name, call_id).arguments
            self.call_piece(name, call_id, arguments.removeprefix(received))
            self._close_call("completed", arguments)

    def used(self, counted: Usage) -> None:
        """Set the token counts from the engine; audio tokens are counted from the sent audio."""
        self._usage = server_events.ResponseUsage(
            input_tokens=counted.input_tokens,
            text_tokens=counted.output_tokens,
            audio_input_tokens=counted.audio_tokens,
            image_tokens=counted.image_tokens,
            cached_tokens=counted.cached_tokens,
        )

    def timed(self, ledger: Ledger | None, ahead_ms: float, timing: Timing) -> None:
        """Set the parts of the time to first audio, and what is known about the end of the turn."""
        if ledger is not None and not self.closed:
            terms = dict(ledger.terms)
            self.view = replace(
                self.view,
                ledger=terms,
                ttfa_ms=ledger.ttfa_ms,
                ahead_ms=ahead_ms,
                turn_ms=timing.turn_ms,
                over_probability=timing.over_probability,
                turn_counts=timing.turn_counts,
            )

    def close(
        self,
        outcome: server_events.Outcome,
        reason: server_events.Reason | None = None,
        error: tuple[str, str] | None = None,
        played_samples: int | None = None,
    ) -> None:
        """End the response, once; later calls do nothing.

        ``played_samples`` is how much an interrupted listener heard.
        """
        if self.closed:
            return
        whole = outcome == "completed"
        self._unsent = 0
        if outcome in ("cancelled", "failed"):
            self._fall_silent()
        if self._call is not None:
            self._close_call("incomplete", self._call.arguments)
        if self._message is not None:
            self._close_message(self._message, "completed" if whole else "incomplete", played_samples)
            self._truncate(self._message, played_samples)
        usage = replace(self._usage, audio_tokens=round(self._sent_samples / self.frame_samples))
        output, stages = tuple(self._output), self.stage_times()
        self.stage_times = tuple  # frees the request
        self.view = replace(
            self.view, outcome=outcome, reason=reason, error=error, output=output, usage=usage, stages=stages
        )
        if self.opened:
            self._emit(server_events.ResponseDoneEvent(self.view))

    def store_progress(self, item_id: str) -> None:
        """Store the answer so far if it is this item, so that the client can truncate it before its end."""
        message = self._message
        if self.closed or message is None or message.ref.item_id != item_id or not message.ref.spoken:
            return
        spoken = AssistantAudio(message.text, tuple(self._marks), self._sent_samples)
        self._store(MessageItem(id=item_id, role="assistant", content=(spoken,), status="in_progress"))

    def played(self) -> None:
        """Report that the listener has heard the whole response, after its end."""
        if self._playing:
            self._playing = False
            self._emit(server_events.OutputAudioStoppedEvent(self.id))

    def interrupted_after(self, samples: int) -> None:
        """Report that the listener interrupted the playback after the response's end, having heard ``samples``."""
        self._fall_silent()
        message = self._message
        if message is None or self._conversation is None or samples >= self._sent_samples:
            return
        item = self._conversation.find(message.ref.item_id)
        spoken = item.content[0] if isinstance(item, MessageItem) else None
        if not isinstance(item, MessageItem) or not isinstance(spoken, AssistantAudio) or spoken.truncated:
            return
        if spoken.played_samples is None or samples < spoken.played_samples:  # else it ended at an earlier interruption
            content = (replace(spoken, played_samples=samples),)
            self._conversation.put(replace(item, content=content, token_ids=None))
            self._truncate(message, samples)

    def _play(self) -> None:
        if self.profile.plays and not self._playing:
            self._playing = True
            self._emit(server_events.OutputAudioStartedEvent(self.id))

    def _fall_silent(self) -> None:
        if self._playing:
            self._playing = False
            self._emit(server_events.OutputAudioClearedEvent(self.id))

    def _truncate(self, message: _Message, played_samples: int | None) -> None:
        """Truncate the item to what was heard, if the server plays and the item still exists.

        Even if all sent audio was heard, words without audio so far are removed.
        """
        if self._conversation is None or not self.profile.plays or played_samples is None:
            return
        item = self._conversation.find(message.ref.item_id)
        spoken = item.content[0] if isinstance(item, MessageItem) else None
        if not isinstance(spoken, AssistantAudio):
            return
        if played_samples < self._sent_samples or spoken.played_text != spoken.text.rstrip():
            end_ms = played_samples * 1000 // SPEAKER_RATE_HZ
            played = self._conversation.truncate(message.ref.item_id, 0, end_ms)
            self._emit(server_events.ItemTruncatedEvent(message.ref.item_id, 0, end_ms, played))

    def _with_text(self, item: Item) -> Item:
        message = self._message
        if isinstance(item, MessageItem) and message is not None and item.id == message.ref.item_id:
            return replace(item, content=(MessageText(message.text),), token_ids=self._ids_of(message))
        return item

    def _ids_of(self, message: _Message) -> TokenIds | None:
        return TokenIds(self._model.tokenizer, message.ids) if message.ids and self._model.tokenizer else None

    def _message_open(self) -> _Message:
        if self._message is None:
            item = MessageItem(id=new_id("item"), role="assistant", content=(), status="in_progress")
            previous = None if self._conversation is None else self._conversation.add(item)
            self._output.append(item)
            self._message = _Message(self._ref(item.id), previous)
            self._emit(server_events.MessageCreatedEvent(self._message.ref, item, previous))
        return self._message

    def _call_open(self, name: str, call_id: str) -> _Call:
        """Return the open call with this id, closing another one: calls come one after the other."""
        if self._call is not None and call_id in ("", self._call.call_id):
            return self._call
        if self._call is not None:
            self._close_call("completed", self._call.arguments)
        call_id = call_id or new_id("call")
        item = _call_item(name, call_id, self._hosting)
        if isinstance(item, ApprovalRequestItem):
            self._call = _Call(self._ref(item.id), call_id, item, None)
            return self._call
        previous = self._added(item)
        self._call = _Call(self._ref(item.id), call_id, item, previous)
        created = server_events.CallCreatedEvent if isinstance(item, CallItem) else server_events.HostedCallCreatedEvent
        self._emit(created(self._call.ref, item, previous))  # pyright: ignore[reportArgumentType]
        return self._call

    def _added(self, item: Item) -> str | None:
        """Add an item to the response and the conversation. Returns the id before it in the conversation."""
        previous = None if self._conversation is None else self._conversation.add(item)
        self._output.append(item)
        return previous

    def _close_call(self, status: Status, arguments: str) -> None:
        call = self._call
        self._call = None
        if call is None:
            return
        item = replace(call.item, arguments=arguments, status=status)
        if isinstance(item, ApprovalRequestItem):
            if status == "completed":
                previous = self._added(item)
                self._emit(server_events.ApprovalRequestedEvent(self._ref(item.id), item, previous))
            return
        self._output[call.ref.index] = item
        if self._conversation is not None:
            self._conversation.put(item)
        if isinstance(item, CallItem):
            if status == "completed" and self._hosting is not None and self._conversation is not None:
                self._hosting.began(item, self.options, self._has_spoken)
            self._emit(server_events.CallDoneEvent(call.ref, item, call.previous_id))
        else:
            self._close_hosted_call(call, item)

    def _close_hosted_call(self, call: _Call, item: HostedCallItem) -> None:
        """Run a complete call. A call that was cut off has failed."""
        self._emit(server_events.HostedCallWrittenEvent(call.ref, item))
        if item.status == "completed" and self._hosting is not None:
            self._hosting.run(item, call.ref, call.previous_id, self._has_spoken)
            return
        failed = replace(item, error=HostedCallError("protocol_error", -32603, "The response was cut off."))
        self._output[call.ref.index] = failed
        if self._conversation is not None:
            self._conversation.put(failed)
        self._emit(server_events.HostedCallDoneEvent(call.ref, failed, call.previous_id))

    @property
    def _has_spoken(self) -> bool:
        return self._message is not None and bool(self._message.text.strip())

    def _close_message(self, message: _Message, status: Status, played_samples: int | None) -> None:
        if status == "completed" and (rest := self._encoder.flush()):
            self._emit(server_events.AudioDeltaEvent(message.ref, rest, 0.0))
        if played_samples is None:
            self._marks = [(min(samples, self._sent_samples), end) for samples, end in self._marks]
        spoken = AssistantAudio(message.text, tuple(self._marks), self._sent_samples, played_samples)
        content = spoken if message.ref.spoken else MessageText(message.text)
        whole = status == "completed" and played_samples is None
        ids = self._ids_of(message) if whole else None
        item = MessageItem(id=message.ref.item_id, role="assistant", content=(content,), status=status, token_ids=ids)
        self._output[message.ref.index] = item
        self._store(item)
        self._emit(server_events.MessageDoneEvent(message.ref, item, message.text, message.previous_id))

    def _store(self, item: MessageItem) -> None:
        """Put a message into the conversation. A truncation by the client stays."""
        if self._conversation is None:
            return
        stored = self._conversation.find(item.id)
        cut = next(iter(stored.content), None) if isinstance(stored, MessageItem) else None
        if isinstance(cut, AssistantAudio) and cut.truncated:
            content = (replace(item.content[0], played_samples=cut.played_samples, truncated=True),)
            item = replace(item, content=content, token_ids=None)
        self._conversation.put(item)

    def _ref(self, item_id: str) -> server_events.OutputItemRef:
        kept = self._conversation is not None
        return server_events.OutputItemRef(self.id, item_id, len(self._output) - 1, kept, self.options.speaks)


@dataclass(slots=True)
class _Message:
    """The open message."""

    ref: server_events.OutputItemRef
    previous_id: str | None
    text: str = ""
    ids: tuple[int, ...] = ()


@dataclass(slots=True)
class _Call:
    """The open function call, with its arguments so far."""

    ref: server_events.OutputItemRef
    call_id: str
    item: _CallItem
    previous_id: str | None
    arguments: str = ""


_CallItem = CallItem | HostedCallItem | ApprovalRequestItem


def _call_item(name: str, call_id: str, hosting: Hosting | None) -> _CallItem:
    """Return the item of a call: for the client, for the server, or awaiting approval."""
    tool = None if hosting is None else hosting.functions.get(name)
    if tool is None:
        return CallItem(id=new_id("item"), call_id=call_id, name=name, arguments="", status="in_progress")
    kind, prefix = (ApprovalRequestItem, "mcpr") if tool.needs_approval else (HostedCallItem, "mcp")
    label = tool.server.entry.server_label
    return kind(id=new_id(prefix), server_label=label, name=tool.name, function=name, arguments="")
