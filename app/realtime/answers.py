"""The output side of a session: which answers are under way, what each is asked with, and what stops it.

One answer at a time belongs to the conversation; others may go on beside it. While the user speaks, a request is open
that listens along, so that its ears and its prefix are ready when he stops. Knows no wire format and no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from msgspec.structs import replace

from app.realtime import notices
from app.realtime.answer import Answer
from app.realtime.asking import Asking, last_unheard
from app.realtime.basis import Basis
from app.realtime.commands import Reference, Respond
from app.realtime.context import check_settings
from app.realtime.conversation import Conversation
from app.realtime.drafts import finished
from app.realtime.guesses import Guesses
from app.realtime.hearing import Turn
from app.realtime.house import House
from app.realtime.items import Item
from app.realtime.line import SOCKET, Line
from app.realtime.options import AnswerOptions, Options, answer_options, listed
from app.realtime.playout import Packet
from app.realtime.reply import Reply
from app.realtime.tools import functions_only, tell_unreached
from app.realtime.transcripts import Transcripts
from app.realtime.trouble import Refusal
from app.realtime.weights import size_of
from app.telemetry import log, log_failure
from engine import ContextOverflow, EngineError


class Ear(Protocol):
    """The microphone, as far as what is being played concerns it."""

    def playing(self, packet: Packet) -> None: ...

    def hushed(self) -> None: ...

    def answered(self, left_s: float) -> None:
        """An answer has ended; its listener hears the rest of it for ``left_s`` seconds."""
        ...


class Answers:
    """One session's replies. ``ear`` is set before the first command, ``line`` if it is no socket."""

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
        self._options = options
        self.has_spoken = False
        """Whether the client has had any audio, after which its voice stays."""
        self._session_id, self._house, self._conversation, self._tell = session_id, house, conversation, tell
        self._current: Reply | None = None  # the conversation's latest, under way or over
        self._aside: set[Reply] = set()  # responses that the conversation does not keep
        self._listening: Reply | None = None
        self._after: asyncio.Task[None] | None = None  # waits to answer a turn behind the answer that is under way
        self._changed = asyncio.Event()
        self._away = False
        self._asking = Asking(session_id, house)
        self.transcripts = Transcripts(session_id, house, conversation, options, tell)
        self.guesses = Guesses(house.turns.guess_ms)

    @property
    def options(self) -> Options:
        return self._options

    def configure(self, options: Options) -> None:
        """Take the session's new settings; answers under way keep theirs."""
        self._options = self.transcripts.options = options

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Whatever is under way runs in ``tasks``; before the first command."""
        self._tasks = self.transcripts.tasks = tasks

    @property
    def busy(self) -> bool:
        """Whether the conversation has an answer under way."""
        return self._current is not None and self._current.active

    async def respond(self, word: Respond) -> None:
        """The client asks for an answer."""
        if not self._options.answers:
            raise Refusal("invalid_request", "A transcription session gives no responses.", "type")
        offer = functions_only(word.patch, "response")
        options, unknown = answer_options(self.options, offer.patch)
        check_settings(options, self._house.engine.model, "response")
        if unknown:
            log("response.unknown_fields", session=self._session_id, fields=listed(unknown))
        if word.kept and self._current is not None and self._current.active:
            self._refuse_second(self._current)
        reply = self._taken_over(options) if word.kept and word.inputs is None else None
        if reply is None:
            self._check_number()
            items = await self._inputs(word)
            reply = self._reply(options, items, None, word.kept)
            reply.size = 0 if word.inputs is None else sum(map(size_of, items))
        tell_unreached(offer.servers, self._conversation, self._tell, self._session_id)
        self._begin(reply, kept=word.kept)
        if offer.refusal is not None:
            raise offer.refusal

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
        if self._after is not None:
            self._after.cancel()
        if self._current is None:
            return
        if self._current.active:
            self._stop(self._current, reason)
        else:
            self._current.interrupted()
            self.ear.hushed()

    def listen(self, turn: Turn, preemptible: bool = False) -> None:
        """Open the request that will answer a turn which is still being spoken.

        A ``preemptible`` one is given up where others wait for the engine: nobody knows when such a turn will end.
        """
        self._forget_committed()
        if not self._house.turns.ahead:
            return
        items = (*self._conversation.items, *turn.shown)
        try:
            reply = self._listening = self._reply(self._usual, items, turn, preemptible=preemptible)
        except Refusal:  # the turn may still change what is asked; if not, its end tells
            return
        if turn.paused:
            reply.hold()
        reply.start(self._tasks, self._root, self._ended)

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
            self.listen(reply.turn, reply.request.preemptible)

    def stop_listening(self) -> None:
        """Forget the turn that was being spoken."""
        if self._listening is not None:
            self._listening.leave()
            self._listening = None

    def refresh(self) -> None:
        """Listen anew if what the open turn's prompt was made of has changed, as by a truncation."""
        reply = self._listening
        if reply is None or reply.turn is None or reply.basis == self._basis(reply.turn):
            return
        if reply.turn.closed:
            self._forget_committed()
        else:
            self.stop_listening()
            self.listen(reply.turn, reply.request.preemptible)

    def committed(self, turn: Turn) -> None:
        """The turn is in the conversation, and nobody has asked for an answer yet: the client does so itself.

        The request that listened along stays open for that.
        """
        reply = self._listening
        if reply is not None and self._still_right(reply, turn):
            reply.basis = self._basis(turn)
            return
        self.stop_listening()
        self.transcripts.hear(turn)

    def answer_turn(self, turn: Turn) -> None:
        """The turn is over and in the conversation: its answer begins."""
        reply, self._listening = self._listening, None
        if turn.paused:
            self._judge(right=True)
        if self._current is not None and self._current.active:
            if reply is not None:
                reply.leave()
                reply = None
            if not self._interrupts:
                self.transcripts.hear(turn)
                self._after = self._tasks.create_task(self._answer_after(self._current), name="answer_after")
                return
            self.interrupt()  # what was asked for while the user spoke
        if reply is not None and not self._still_right(reply, turn):
            reply.leave()
            reply = None
        if reply is None:  # ask again, with the whole turn
            reply = self._reply(self._usual, self._conversation.items, None)
        reply.timing.turn_ms = turn.silence_ms
        self._begin(reply, kept=True)

    def _taken_over(self, options: AnswerOptions) -> Reply | None:
        """The request that listened along, if what it answers is what the client asks for."""
        reply = self._listening
        if reply is None or reply.turn is None or not reply.turn.closed:
            return None
        same = replace(reply.answer.options, metadata=options.metadata) == options  # which changes no answer
        if reply.answer.closed or not same or reply.basis != self._basis(reply.turn):
            self._forget_committed()
            return None
        self._listening, reply.answer.options = None, options
        if reply.turn.paused:
            self._judge(right=True)
        return reply

    def _check_number(self) -> None:
        if len(self._aside) >= self._house.limits.responses:
            raise Refusal("too_many_responses", f"{len(self._aside)} responses are under way; wait for one to end.")

    def _still_right(self, reply: Reply, turn: Turn) -> bool:
        """Whether a request that listened can answer the turn, which is in the conversation since this moment.

        It cannot if it failed, did not see all that was shown, or does not know what else was said meanwhile.
        """
        grown = reply.basis._replace(revision=reply.basis.revision + 1)
        return reply.turn is turn and not reply.answer.closed and grown == self._basis(turn)

    def _forget_committed(self) -> None:
        """Give up the answer to a committed turn that nobody asked for; its words are still wanted."""
        reply = self._listening
        if reply is not None and reply.turn is not None and reply.turn.closed:
            self.stop_listening()
            self.transcripts.hear(reply.turn)

    async def _answer_after(self, before: Reply) -> None:
        """Answer what was said last once ``before`` is over."""
        while before.active:
            self._changed.clear()
            await self._changed.wait()
        if self._current is before:
            try:
                self._begin(self._reply(self._usual, self._conversation.items, None), kept=True)
            except Refusal as refusal:
                self._tell(notices.Trouble(refusal, None))

    @property
    def _usual(self) -> AnswerOptions:
        """What an answer is made with that nobody asked anything special of."""
        return answer_options(self.options, {})[0]

    @property
    def _interrupts(self) -> bool:
        detection = self.options.audio.input.turn_detection
        return detection is None or detection.interrupt_response

    def present(self, present: bool) -> None:
        """Whether the client is there: what is being said waits for one that may come back."""
        self._away = not present
        self._changed.set()
        for reply in self._replies():
            reply.listen(present)

    def replay(self, since_s: float) -> None:
        """What was played after that moment was not heard: it is played again, even if its answer is over."""
        for reply in self._replies():
            if reply.rewind(since_s) and not reply.active:
                self._tasks.create_task(reply.play_again(self), name=f"again:{reply.answer.id}")

    def leave(self) -> None:
        """The client is gone: drop everything without a word."""
        for reply in self._replies():
            reply.leave()
        if self._after is not None:
            self._after.cancel()
        self.transcripts.leave()

    def forget(self) -> None:
        """The session is over, and so is all that was under way."""
        for reply in self._replies():
            reply.forget()
            reply.turn = None
        self._current = self._listening = None

    def fail_all(self, code: str, message: str) -> None:
        """End every answer under way as failed."""
        for reply in (self._current, *self._aside):
            if reply is not None:
                reply.fail(code, message)

    async def quiet(self) -> None:
        """Wait until no answer is under way, or nobody is there to hear it."""
        while not self._away and (self._aside or (self._current is not None and self._current.active)):
            self._changed.clear()
            await self._changed.wait()

    def on_hearing(self, item_id: str, transcript: str) -> None:
        self.transcripts.hearing(item_id, transcript)

    def on_heard(self, item_id: str, transcript: str) -> None:
        self.transcripts.heard(item_id, transcript)

    def on_sent(self, packet: Packet) -> None:
        self.has_spoken = True
        self.ear.playing(packet)

    def _replies(self) -> list[Reply]:
        return [reply for reply in (self._current, self._listening, *self._aside) if reply is not None]

    def _basis(self, turn: Turn | None) -> Basis:
        return Basis(self._conversation.revision, self.options, () if turn is None else turn.seen)

    def _begin(self, reply: Reply, kept: bool) -> None:
        self._check_line(reply)
        if kept:
            if self._current is not None:
                self._current.playout.flush()  # what was played again of an answer that is over
            self._current = reply
        else:
            self._aside.add(reply)
        log("response.created", session=self._session_id, response=reply.answer.id)
        reply.open()
        self._house.room.count(reply.size)
        limit = self._house.limits.responses + 1  # those aside, and the conversation's
        self._tell(notices.Allowance(limit, limit - len(self._aside) - self.busy))
        reply.start(self._tasks, self._root, self._ended)

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
            if error.code == ContextOverflow.code:
                self._asking.truncation.overflowed()
            reply.fail(error.code, str(error))
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("response.bug", session=self._session_id, response=reply.answer.id)
            reply.fail("server_error", "The server failed to answer; the session goes on.")

    def _ended(self, reply: Reply) -> None:
        self._aside.discard(reply)
        self._changed.set()
        self._house.room.count(-reply.size if reply.answer.opened else 0)
        reply.forget()
        if reply.answer.opened:
            reply.report(self._house.metrics, self._session_id)
        if reply.turn is not None and (took_ms := reply.answer.view.ttfa_ms) is not None:
            self.guesses.took(took_ms)
        if reply is self._listening and reply.answer.closed and reply.turn is not None and reply.turn.closed:
            self._forget_committed()  # it was preempted, or failed: it is asked anew when the client wants an answer
        if reply.answer.opened and reply.heard_id is not None:
            self.transcripts.unheard(reply.heard_id)
        if reply is self._current:
            self.ear.answered(reply.unplayed_s())
        if reply is not self._listening:
            reply.forget_turn()

    def _refuse_second(self, reply: Reply) -> None:
        message = f"Conversation already has an active response in progress: {reply.answer.id}."
        raise Refusal("conversation_already_has_active_response", f"{message} Wait until it is finished.")

    async def _inputs(self, word: Respond) -> tuple[Item, ...]:
        """The items that an answer is about: the conversation's, or those that the client named."""
        if word.inputs is None:
            return self._conversation.items
        format, limit_s = self.options.audio.input.format, self._house.limits.audio_s
        named = [self._conversation.get(x.id) if isinstance(x, Reference) else x for x in word.inputs]
        return await finished(named, format, limit_s, self._reserve_inputs, self._house.slices)

    @contextmanager
    def _reserve_inputs(self, size: int) -> Generator[None]:
        self._check_inputs(size)
        with self._conversation.hold(size):
            yield

    def _check_inputs(self, size: int) -> None:
        """An answer is about no more than a conversation may hold. Raises Refusal."""
        most_mb = self._house.limits.conversation_mb
        if size > most_mb * 1e6:
            message = f"The items of response.input take more than {most_mb:g} MB once they are decoded."
            raise Refusal("invalid_value", message, "response.input")
        self._conversation.check_server(size, "response.input")

    def _reply(
        self,
        options: AnswerOptions,
        items: tuple[Item, ...],
        turn: Turn | None,
        kept: bool = True,
        preemptible: bool = False,
    ) -> Reply:
        """An answer about ``items``, or about ``turn`` after them. Raises Refusal."""
        conversation = self._conversation if kept else None
        answer = Answer(options, conversation, self._house.engine.model, self._tell, self.line)
        request = self._asking.request(answer.id, options, self.options, items, turn is not None, preemptible)
        heard_id = last_unheard(items) if turn is None else turn.item_id
        return Reply(answer, request, turn, heard_id, self._basis(turn), self._house.now)
