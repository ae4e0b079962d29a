"""The output side of a session: which answers are under way, what each is asked with, and what stops it.

One answer at a time belongs to the conversation; others may go on beside it. While the user speaks, a request is open
that listens along, so that its ears and its prefix are ready when he stops. Knows no wire format and no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace

from app.realtime import notices
from app.realtime.answer import Answer
from app.realtime.commands import Reference, Respond
from app.realtime.conversation import Conversation, prompt
from app.realtime.drafts import finished
from app.realtime.guesses import Guesses
from app.realtime.hearing import Turn
from app.realtime.house import House
from app.realtime.ids import new_id
from app.realtime.items import Heard, Item, MessageItem
from app.realtime.line import SOCKET, Line
from app.realtime.options import AnswerOptions, Options, answer_options
from app.realtime.playout import Packet
from app.realtime.reply import Reply
from app.realtime.trouble import Refusal
from app.telemetry import log, log_failure
from engine import MIC_RATE_HZ, EngineError, Message, Request, Tool


class Ear(Protocol):
    """The microphone, as far as what is being played concerns it."""

    def playing(self, packet: Packet) -> None: ...

    def hushed(self) -> None: ...


class Answers:
    """One session's replies. ``tasks`` and ``ear`` are set before the first command, ``line`` if it is no socket."""

    tasks: asyncio.TaskGroup
    ear: Ear
    line: Line = SOCKET

    def __init__(
        self,
        session_id: str,
        house: House,
        conversation: Conversation,
        options: Options,
        tell: Callable[[notices.Notice], None],
    ) -> None:
        self.options = options
        self.has_spoken = False
        """Whether the client has had any audio, after which its voice stays."""
        self._session_id, self._house, self._conversation, self._tell = session_id, house, conversation, tell
        self._current: Reply | None = None  # the conversation's latest, under way or over
        self._aside: set[Reply] = set()  # responses that the conversation does not keep
        self._listening: Reply | None = None
        self._transcribing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.guesses = Guesses(house.turns.guess_ms)

    async def respond(self, word: Respond) -> None:
        """The client asks for an answer."""
        options, unknown = answer_options(self.options, word.patch)
        if unknown:
            log("response.unknown_fields", session=self._session_id, fields=",".join(unknown))
        if word.kept and self._current is not None and self._current.active:
            self._refuse_second(self._current)
        if len(self._aside) >= self._house.limits.responses:
            raise Refusal("too_many_responses", f"{len(self._aside)} responses are under way; wait for one to end.")
        items = await self._inputs(word)
        conversation = self._conversation if word.kept else None
        reply = self._reply(options, prompt(options.instructions, items), conversation, None, _last_unheard(items))
        self._begin(reply, kept=word.kept)

    def cancel(self, response_id: str | None) -> None:
        """The client wants no more of a response: the one it names, or the conversation's."""
        under_way = [self._current, *self._aside] if response_id is not None else [self._current]
        for reply in under_way:
            if reply is not None and reply.active and response_id in (None, reply.answer.id):
                self._stop(reply, "client_cancelled")
                return
        message = "Cancellation failed: no active response found"
        raise Refusal("response_cancel_not_active", message, None if response_id is None else "response_id")

    def interrupt(self, reason: notices.Reason = "turn_detected") -> None:
        """The user speaks over the answer, or over what is still playing of it; or the client wants silence."""
        if self._current is None:
            return
        if self._current.active:
            self._stop(self._current, reason)
        else:
            self._current.interrupted()
            self.ear.hushed()

    def listen(self, turn: Turn) -> None:
        """Open the request that will answer a turn which is still being spoken."""
        options, _ = answer_options(self.options, {})
        history = self._conversation.messages(options.instructions)
        reply = self._listening = self._reply(options, history, self._conversation, turn, turn.item_id)
        if turn.paused:
            reply.hold()
        reply.start(self.tasks, self._root, self._ended)

    def guess(self) -> None:
        """The user may have finished: answer what he said so far, and keep the answer back."""
        if self._listening is not None and self._listening.turn is not None:
            self._listening.turn.pause()
            self._listening.hold()

    def listen_on(self) -> None:
        """He had not: forget that answer, and listen to the turn as it goes on."""
        reply = self._listening
        if reply is not None and reply.turn is not None:
            self._judge(right=False)
            reply.turn.resume()
            self.stop_listening()
            self.listen(reply.turn)

    def stop_listening(self) -> None:
        """Forget the turn that was being spoken."""
        if self._listening is not None:
            self._listening.leave()
            self._listening = None

    def refresh(self) -> None:
        """Listen anew if what the open turn's prompt was made of has changed, as by a truncation."""
        reply = self._listening
        if reply is not None and reply.turn is not None and reply.basis != self._basis:
            self.stop_listening()
            self.listen(reply.turn)

    def answer_turn(self, turn: Turn, seen: bool = False) -> None:
        """The turn is over and in the conversation: its answer begins. ``seen``: its item holds a picture too."""
        reply, self._listening = self._listening, None
        if turn.paused:
            self._judge(right=True)
        if self._current is not None and self._current.active:
            if reply is not None:
                reply.leave()
            self.transcribe(turn)
            self._refuse_second(self._current)
        if reply is not None and seen:
            reply.leave()  # it heard the turn, but not of the picture
        if seen or reply is None or reply.answer.closed:  # it failed while it listened: ask again, with the whole turn
            options, _ = answer_options(self.options, {})
            history = self._conversation.messages(options.instructions)
            reply = self._reply(options, history, self._conversation, None, turn.item_id)
        self._begin(reply, kept=True)

    def transcribe(self, turn: Turn) -> None:
        """Hear what was said in a turn that gets no answer yet, if the client wants transcripts."""
        if self.options.audio.input.transcription is not None:
            task = self.tasks.create_task(self._hear(turn), name=f"transcribe:{turn.item_id}")
            self._transcribing.add(task)
            task.add_done_callback(self._transcribing.discard)

    def leave(self) -> None:
        """The client is gone: drop everything without a word."""
        for reply in (self._current, self._listening, *self._aside):
            if reply is not None:
                reply.leave()
        for task in self._transcribing:
            task.cancel()

    def fail_all(self, code: str, message: str) -> None:
        """End every answer under way as failed."""
        for reply in (self._current, *self._aside):
            if reply is not None:
                reply.fail(code, message)

    async def quiet(self) -> None:
        """Wait until no answer is under way."""
        while self._aside or (self._current is not None and self._current.active):
            self._changed.clear()
            await self._changed.wait()

    def on_heard(self, item_id: str, transcript: str) -> None:
        """A reply or a transcription has heard all of an item; the first one counts."""
        heard = self._conversation.heard(item_id)
        if heard is None or heard.transcript is not None:
            return
        self._conversation.transcribe(item_id, transcript)
        if self.options.audio.input.transcription is not None:
            self._tell(notices.Transcribed(item_id, transcript, len(heard.pcm) / MIC_RATE_HZ))

    def on_sent(self, packet: Packet) -> None:
        self.has_spoken = True
        self.ear.playing(packet)

    @property
    def _basis(self) -> object:
        return self._conversation.revision, self.options

    def _begin(self, reply: Reply, kept: bool) -> None:
        self._check_line(reply)
        if kept:
            self._current = reply
        else:
            self._aside.add(reply)
        log("response.created", session=self._session_id, response=reply.answer.id)
        reply.open()
        reply.start(self.tasks, self._root, self._ended)

    def _judge(self, right: bool) -> None:
        self.guesses.judged(right)
        self._house.metrics.guesses.labels("used" if right else "forgotten").inc()

    def _check_line(self, reply: Reply) -> None:
        """What the server plays has one voice: a second one at a time would be mixed into it."""
        speaking = (one for one in (self._current, *self._aside) if one is not None and one.active)
        if self.line.plays and reply.answer.options.speaks and any(one.answer.options.speaks for one in speaking):
            message = "An answer is being played: ask for text beside it, or wait for its end."
            raise Refusal("conversation_already_has_active_response", message)

    def _stop(self, reply: Reply, reason: notices.Reason) -> None:
        reply.stop(reason)
        self.ear.hushed()

    async def _root(self, reply: Reply) -> None:
        """The root of every answer: whatever goes wrong in it becomes its one end, and goes no further."""
        try:
            await reply.run(self._house.engine, self)
        except (EngineError, Refusal) as error:
            reply.fail(error.code, str(error))
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("response.bug", session=self._session_id, response=reply.answer.id)
            reply.fail("server_error", "The server failed to answer; the session goes on.")

    def _ended(self, reply: Reply) -> None:
        self._aside.discard(reply)
        self._changed.set()
        if reply.answer.opened:
            reply.report(self._house.metrics, self._session_id)
        if reply.answer.opened and reply.heard_id is not None:
            self._unheard(reply.heard_id)

    def _unheard(self, item_id: str) -> None:
        """An answer ended before its ears did: the client waits for a transcript that will not come."""
        heard = self._conversation.heard(item_id)
        if heard is not None and heard.transcript is None and self.options.audio.input.transcription is not None:
            self._tell(notices.TranscriptionFailed(item_id, "no_transcript", "The audio was not transcribed."))

    async def _hear(self, turn: Turn) -> None:
        """Ask the engine for nothing but the transcript."""
        request = Request(
            id=new_id("heard"),
            session=self._session_id,
            messages=(),
            live=True,
            modalities=("text",),
            max_text_tokens=1,
        )
        try:
            async with self._house.engine.open(request, turn.follow()) as chunks:
                async for chunk in chunks:
                    if chunk.kind == "heard" and chunk.meta.get("final"):
                        self.on_heard(turn.item_id, chunk.data)
                        return
            self._unheard(turn.item_id)
        except EngineError as error:
            self._tell(notices.TranscriptionFailed(turn.item_id, error.code, str(error)))

    def _refuse_second(self, reply: Reply) -> None:
        message = (
            f"Conversation already has an active response in progress: {reply.answer.id}. Wait until it is finished."
        )
        raise Refusal("conversation_already_has_active_response", message)

    async def _inputs(self, word: Respond) -> tuple[Item, ...]:
        """The items that an answer is about: the conversation's, or those that the client named."""
        if word.inputs is None:
            return self._conversation.items
        rate_hz, limit_s = self.options.audio.input.format.rate, self._house.limits.audio_s
        return tuple(
            [
                self._conversation.get(one.id) if isinstance(one, Reference) else await finished(one, rate_hz, limit_s)
                for one in word.inputs
            ]
        )

    def _reply(
        self,
        options: AnswerOptions,
        messages: tuple[Message, ...],
        conversation: Conversation | None,
        turn: Turn | None,
        heard_id: str | None,
    ) -> Reply:
        answer = Answer(options, conversation, self._house.engine.model.frame_s, self._tell, self.line)
        request = Request(
            id=answer.id,
            session=self._session_id,
            messages=messages,
            live=turn is not None,
            modalities=("text", "audio") if options.speaks else ("text",),
            voice=self._house.voice(options.voice),
            speed=options.audio.output.speed,
            tools=tuple(Tool(tool.name, tool.description or "", tool.parameters or {}) for tool in options.tools),
            tool_choice=_choice(options.tool_choice),
        )
        if options.max_output_tokens != "inf":
            request = replace(request, max_text_tokens=options.max_output_tokens)
        return Reply(answer, request, turn, heard_id, self._basis, self._house.now)


def _choice(choice: str | dict[str, Any]) -> str:
    """``auto``, ``none``, ``required``, or the name of the one function to call."""
    return choice if isinstance(choice, str) else str(choice.get("name", "auto"))


def _last_unheard(items: tuple[Item, ...]) -> str | None:
    """The item whose speech the answer's ears will transcribe: the last one, if no one has yet."""
    last = items[-1] if items else None
    if isinstance(last, MessageItem) and any(
        isinstance(part, Heard) and part.transcript is None for part in last.content
    ):
        return last.id
    return None
