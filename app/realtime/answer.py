"""One response, from its opening to its one end: what comes out of the engine, as notices in the protocol's order.

Sans-I/O. However it ends (completed, cancelled, failed, incomplete) every item that was opened is closed, one
AnswerClosed is told, and nothing after it. Knows no socket, no engine and no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from app.realtime.conversation import Conversation
from app.realtime.ids import new_id
from app.realtime.items import CallItem, Item, MessageItem, Spoken, Status, Text
from app.realtime.line import SOCKET, Line
from app.realtime.notices import (
    AnswerClosed,
    AnswerOpened,
    AnswerView,
    AudioPiece,
    CallMade,
    ItemCut,
    MessageClosed,
    MessageOpened,
    Notice,
    Outcome,
    Place,
    PlaybackBegan,
    PlaybackCut,
    PlaybackEnded,
    Reason,
    TextPiece,
    Usage,
)
from app.realtime.options import AnswerOptions
from app.realtime.playout import Packet
from engine import SPEAKER_RATE_HZ, Ledger


class Answer:
    """``tell`` gets the notices, in order and at once. Its items are kept in ``conversation``, if there is one."""

    def __init__(
        self,
        options: AnswerOptions,
        conversation: Conversation | None,
        frame_s: float,
        tell: Callable[[Notice], None],
        line: Line = SOCKET,
    ) -> None:
        self.id = new_id("resp")
        self._conversation, self._tell, self.line = conversation, tell, line
        self._playing = False
        self._frame_s = frame_s
        self._output: list[Item] = []
        self._message: _Message | None = None
        self._input_tokens = self._text_tokens = self._sent_samples = 0
        self.view = AnswerView(self.id, None if conversation is None else conversation.id, options)

    @property
    def opened(self) -> bool:
        """Whether the client knows of it: a turn that is still being spoken has an answer which he does not."""
        return self._opened

    _opened = False

    @property
    def closed(self) -> bool:
        return self.view.outcome != "in_progress"

    @property
    def options(self) -> AnswerOptions:
        return self.view.options

    def open(self) -> None:
        self._opened = True
        self._tell(AnswerOpened(self.view))

    def text(self, piece: str, ids: tuple[int, ...]) -> None:
        """The next words, and their token ids."""
        if not self.closed and piece:
            message = self._message_open()
            message.text += piece
            message.ids += ids
            self._tell(TextPiece(message.place, piece))

    def audio(self, packet: Packet) -> None:
        """Samples that leave for the listener now."""
        if not self.closed and len(packet.samples):
            message = self._message_open()
            self._play()
            self._sent_samples += len(packet.samples)
            message.marks.append((self._sent_samples, packet.text_end))
            pcm = (np.clip(packet.samples, -1, 1) * 32767).astype("<i2").tobytes()
            self._tell(AudioPiece(message.place, pcm, packet.seconds))

    def call(self, name: str, arguments: str, call_id: str) -> None:
        """The model asks for a function."""
        if not self.closed:
            item = CallItem(id=new_id("item"), call_id=call_id or new_id("call"), name=name, arguments=arguments)
            previous = None if self._conversation is None else self._conversation.add(item)
            self._output.append(item)
            self._tell(CallMade(self._place(item.id), item, previous))

    def used(self, input_tokens: int, output_tokens: int) -> None:
        self._input_tokens, self._text_tokens = input_tokens, output_tokens

    def timed(self, ledger: Ledger | None, ahead_ms: float) -> None:
        """Note where the time to first audio went."""
        if ledger is not None and not self.closed:
            self.view = replace(self.view, ledger=dict(ledger.terms), ttfa_ms=ledger.ttfa_ms, ahead_ms=ahead_ms)

    def close(
        self,
        outcome: Outcome,
        reason: Reason | None = None,
        error: tuple[str, str] | None = None,
        heard_samples: int | None = None,
    ) -> None:
        """End it, once; later calls do nothing. ``heard_samples`` is how much an interrupted listener heard."""
        if self.closed:
            return
        whole = outcome == "completed"
        if outcome in ("cancelled", "failed"):
            self._fall_silent()
        if self._message is not None:
            self._close_message(self._message, "completed" if whole else "incomplete", heard_samples)
            self._cut(self._message, heard_samples)
        usage = Usage(
            self._input_tokens, self._text_tokens, round(self._sent_samples / SPEAKER_RATE_HZ / self._frame_s)
        )
        output = tuple(self._output)
        self.view = replace(self.view, outcome=outcome, reason=reason, error=error, output=output, usage=usage)
        if self._opened:
            self._tell(AnswerClosed(self.view))

    def played(self) -> None:
        """After the end: its listener has heard all of it."""
        if self._playing:
            self._playing = False
            self._tell(PlaybackEnded(self.id))

    def heard(self, samples: int) -> None:
        """After the end: the listener interrupted what was still playing, and heard no more than ``samples``."""
        self._fall_silent()
        message = self._message
        if message is None or self._conversation is None or samples >= self._sent_samples:
            return
        item = next((one for one in self._conversation.items if one.id == message.place.item_id), None)
        if isinstance(item, MessageItem) and isinstance(item.content[0], Spoken) and not item.content[0].cut:
            content = (replace(item.content[0], heard_samples=samples),)
            self._conversation.put(replace(item, content=content, token_ids=()))
            self._cut(message, samples)

    def _play(self) -> None:
        if self.line.plays and not self._sent_samples:
            self._playing = True
            self._tell(PlaybackBegan(self.id))

    def _fall_silent(self) -> None:
        if self._playing:
            self._playing = False
            self._tell(PlaybackCut(self.id))

    def _cut(self, message: _Message, heard_samples: int | None) -> None:
        """Where the server plays, it knows what was heard: it truncates the item itself, if it is still there."""
        if self._conversation is None or not self.line.plays:
            return
        if heard_samples is None or heard_samples >= self._sent_samples:
            return
        if any(one.id == message.place.item_id for one in self._conversation.items):
            end_ms = heard_samples * 1000 // SPEAKER_RATE_HZ
            self._conversation.cut(message.place.item_id, 0, end_ms)
            self._tell(ItemCut(message.place.item_id, 0, end_ms))

    def _message_open(self) -> _Message:
        if self._message is None:
            item = MessageItem(id=new_id("item"), role="assistant", content=(), status="in_progress")
            previous = None if self._conversation is None else self._conversation.add(item)
            self._output.append(item)
            self._message = _Message(self._place(item.id), previous)
            self._tell(MessageOpened(self._message.place, item, previous))
        return self._message

    def _close_message(self, message: _Message, status: Status, heard_samples: int | None) -> None:
        spoken = Spoken(message.text, tuple(message.marks), heard_samples)
        content = spoken if message.place.spoken else Text(message.text)
        ids = tuple(message.ids) if status == "completed" and heard_samples is None else ()
        item = MessageItem(id=message.place.item_id, role="assistant", content=(content,), status=status, token_ids=ids)
        self._output[message.place.index] = item
        if self._conversation is not None:
            self._conversation.put(item)
        self._tell(MessageClosed(message.place, item, message.text, message.previous_id))

    def _place(self, item_id: str) -> Place:
        kept = self._conversation is not None
        return Place(self.id, item_id, len(self._output) - 1, kept, self.options.speaks)


class _Message:
    """The message that is being said."""

    def __init__(self, place: Place, previous_id: str | None) -> None:
        self.place, self.previous_id = place, previous_id
        self.text = ""
        self.ids: tuple[int, ...] = ()
        self.marks: list[tuple[int, int]] = []
