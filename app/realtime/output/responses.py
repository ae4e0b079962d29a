"""The output side of a session: which answers are under way, what each is asked with, and what stops it.

One answer at a time belongs to the conversation; others may go on beside it. While the user speaks, the next one is
prepared (``preparation``). Knows no wire format, no socket and no microphone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import proxy

from app.realtime.conversation import Conversation, Utterance, check_settings, functions_only, report_tool_servers
from app.realtime.output.hosted_tools import HostedTools
from app.realtime.output.one_at_a_time import none_active, second_answer, second_voice, too_many
from app.realtime.output.output_events import (
    FirstSoundTook,
    OutputEvent,
    PacketSent,
    PlaybackStopped,
    ResponseEnded,
    ResponseStarted,
)
from app.realtime.output.playout import Packet
from app.realtime.output.preparation import Preparation
from app.realtime.output.prompt_version import PromptVersion
from app.realtime.output.request_builder import RequestBuilder, last_untranscribed
from app.realtime.output.response import Response
from app.realtime.output.response_inputs import inputs_of
from app.realtime.output.response_task import ResponseTask
from app.realtime.output.transcripts import Transcripts
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol import (
    CreateResponse,
    Error,
    Item,
    Options,
    RateLimits,
    Reason,
    ResponseOptions,
    ServerEvent,
    listed,
    response_options,
)
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.telemetry import log, log_failure
from engine import ContextOverflow, EngineError


class Responses:
    """The responses of one session. ``emit`` takes events for the client, ``notify`` those for the session; neither
    waits."""

    def __init__(
        self,
        session_id: str,
        context: SessionContext,
        conversation: Conversation,
        options: Options,
        profile: PlayoutProfile,
        emit: Callable[[ServerEvent], None],
        notify: Callable[[OutputEvent], None],
    ) -> None:
        self.options = options
        """The session's settings; answers under way keep those that they were begun with."""
        self.has_spoken = False
        """Whether the client has had any audio, after which its voice stays."""
        self._session_id = session_id
        self._context = context
        self._conversation = conversation
        self._profile = profile
        self._emit = emit
        self._notify = notify
        self._current: ResponseTask | None = None  # the conversation's latest, under way or over
        self._aside: set[ResponseTask] = set()  # responses that the conversation does not keep
        self._after: asyncio.Task[None] | None = None  # waits to answer a turn behind the answer that is under way
        self._asked = False  # whether the client asked for the next answer, be it then a turn's that interrupts
        self._replays = set[asyncio.Task[None]]()  # what plays again the end of answers that are over
        self._changed = asyncio.Event()
        self._away = False
        self._requests = RequestBuilder(session_id, context)
        self.hosted = HostedTools(session_id, context.tool_servers, conversation, emit)
        """The tools that the server runs."""
        self.transcripts = Transcripts(session_id, context, conversation, options, emit)
        self.preparation = Preparation(proxy(self), conversation, self.transcripts, notify, context.turns.ahead)

    def configure(self, options: Options) -> None:
        """Take the session's new settings."""
        self.options = self.transcripts.options = options

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run all answers in ``tasks``; before the first command."""
        self._tasks = self.transcripts.tasks = tasks
        self.hosted.start(tasks)

    @property
    def busy(self) -> bool:
        """Whether the conversation has an answer under way."""
        return self._current is not None and self._current.active

    async def create(self, event: CreateResponse) -> None:
        """Begin the answer that the client asks for. Raises Refusal, MediaError."""
        if not self.options.can_respond:
            raise Refusal("invalid_request", "A transcription session gives no responses.", "type")
        offer = functions_only(event.patch, "response")
        options, unknown = response_options(self.options, offer.patch)
        check_settings(options, self._context.engine.model, "response")
        if unknown:
            log("response.unknown_fields", session=self._session_id, fields=listed(unknown))
        if event.kept and self._current is not None and self._current.active:
            raise second_answer(self._current.response.id)
        whole, own_tools = event.kept and event.inputs is None, "tools" in event.patch  # in the session's place
        task = self.preparation.take_committed(options) if whole and not own_tools else None
        if task is None:
            if len(self._aside) >= self._context.limits.responses:
                raise too_many(len(self._aside))
            items, size = await inputs_of(event, self._conversation, self.options.audio.input.format, self._context)
            servers = offer.servers if own_tools else None
            task = self._task(options, items, None, event.kept, labels=servers, usual=whole)
            task.size = size
        known = {tool.server.entry.server_label for tool in self.hosted.listed()}
        others = tuple(label for label in offer.servers if label not in known)
        report_tool_servers(others, self._conversation, self._emit, self._session_id)
        self._begin(task, kept=event.kept)
        if offer.refusal is not None:
            raise offer.refusal

    def cancel(self, response_id: str | None) -> None:
        """Stop the answer of that id, or the conversation's. Raises Refusal if it is not under way."""
        for task in (self._current, *(self._aside if response_id is not None else ())):
            if task is not None and task.active and response_id in (None, task.response.id):
                self._stop(task, "client_cancelled")
                return
        raise none_active(response_id)

    def interrupt(self, reason: Reason = "turn_detected") -> None:
        """The user speaks over the answer, or over what is still playing of it; or the client wants silence.

        Who speaks will be answered; who wants silence is still to have the answer to a turn that waits for it.
        """
        if reason == "turn_detected" and self._after is not None:
            self._after.cancel()
        if reason == "client_cancelled":
            for aside in [one for one in self._aside if one.active and one.response.options.speaks]:
                self._stop(aside, reason)
        if self._current is None:
            return
        if self._current.active:
            self._stop(self._current, reason)
        else:
            self._current.interrupted()
            self._notify(PlaybackStopped())

    def pause_for(self, utterance: Utterance) -> bool:
        """Send nothing more of the conversation's answer until it is clear whether this is a turn, and listen.

        Returns whether there is such an answer.
        """
        if not self.options.auto_responds or self._current is None or not self._current.pause():
            return False
        self.preparation.begin(utterance)
        return True

    def resume(self) -> None:
        """Let the answer that is paused go on."""
        if self._current is not None:
            self._current.resume()

    def answer(self, utterance: Utterance, interrupt: bool) -> None:
        """Begin the answer to a turn that is over and in the conversation.

        An answer that is still under way is stopped (``interrupt``), or goes on to its end first. Raises Refusal.
        """
        task, busy = self.preparation.take(utterance), self.busy
        if busy and interrupt:
            self.interrupt()  # the answer that was asked for while the user spoke
        before = self._before
        if task is not None and (busy or before is not None):
            task.leave()
            task = None
        if before is not None:
            self.transcripts.transcribe(utterance)
            self._answer_behind(before)
            return
        if task is None:  # ask again, with the whole turn
            task = self._task(self._usual, self._conversation.items, None)
        task.timing.turn_ms = utterance.silence_ms
        self._begin(task, kept=True)

    def answer_soon(self, asked: bool) -> None:
        """Answer what the conversation holds: now, or once the answer that is under way is over. Raises Refusal.

        ``asked`` is what the response says of itself: that the client wanted it.
        """
        self._asked = self._asked or asked
        before = self._before
        self._begin_usual() if before is None else self._answer_behind(before)

    def set_present(self, present: bool) -> None:
        """Whether the client is there: an answer waits for a client that may come back."""
        self._away = not present
        self._changed.set()
        for task in self._all():
            task.set_present(present)

    def replay(self, since_s: float) -> None:
        """Play again what was played after that moment and was not heard, even if its answer is over."""
        for task in self._all():
            if task.rewind(since_s) and not task.active:
                replay = self._tasks.create_task(task.play_again(self), name=f"again:{task.response.id}")
                self._replays.add(replay)
                replay.add_done_callback(self._replays.discard)

    def leave(self) -> None:
        """The client is gone: drop everything without a word."""
        for task in self._all():
            task.leave()
        for waiting in (*self._replays, *([self._after] if self._after is not None else [])):
            waiting.cancel()
        self.transcripts.leave()
        self.hosted.leave()

    def forget(self) -> None:
        """The session is over, and so is all that was under way."""
        for task in self._all():
            task.forget()
            task.utterance = None
        self._current = self.preparation.task = None

    def fail_all(self, code: str, message: str) -> None:
        """End every answer under way as failed."""
        for task in (self._current, *self._aside):
            if task is not None:
                task.fail(code, message)

    async def quiet(self) -> None:
        """Wait until no answer is under way, or nobody is there to hear it."""
        while not self._away and (self._aside or self.busy):
            self._changed.clear()
            await self._changed.wait()

    def on_partial_transcript(self, item_id: str, transcript: str) -> None:
        self.transcripts.show_partial(item_id, transcript)

    def on_transcript(self, item_id: str, transcript: str) -> None:
        self.transcripts.complete(item_id, transcript)

    def on_packet(self, packet: Packet) -> None:
        self.has_spoken = True
        self._notify(PacketSent(packet))

    def usual_task(self, items: tuple[Item, ...], utterance: Utterance, preemptible: bool) -> ResponseTask:
        """An answer about ``items`` and the turn after them, with the session's settings. Raises Refusal."""
        return self._task(self._usual, items, utterance, preemptible=preemptible)

    def run(self, task: ResponseTask) -> None:
        """Start its request."""
        task.start(self._tasks, self._root, self._ended)

    def prompt_version(self, utterance: Utterance | None) -> PromptVersion:
        """Return the version of the prompt that would be made now."""
        watched = utterance is not None and utterance.watched
        tools = tuple(self.hosted.hosting(()).functions)
        return PromptVersion(self._conversation.revision, self.options, watched, tools)

    def _all(self) -> list[ResponseTask]:
        return [task for task in (self._current, self.preparation.task, *self._aside) if task is not None]

    @property
    def _usual(self) -> ResponseOptions:
        """The settings of an answer for which nobody asked anything special."""
        return response_options(self.options, {})[0]

    @property
    def _before(self) -> ResponseTask | None:
        """Return the answer that has to be over before the conversation's next one."""
        return self._current if self.busy else self._speaking(self._usual)

    def _answer_behind(self, before: ResponseTask) -> None:
        """Answer once ``before`` is over, all that was said by then: one wait does for all who want that."""
        if self._after is not None:
            self._after.cancel()
        self._after = self._tasks.create_task(self._answer_after(before, self._current), name="answer_after")

    async def _answer_after(self, before: ResponseTask, current: ResponseTask | None) -> None:
        """Answer what was said last once ``before`` is over, unless ``current`` is not the latest answer any more."""
        while before.active or self._speaking(self._usual) is not None:
            self._changed.clear()
            await self._changed.wait()
        if self._current is current:
            try:
                self._begin_usual()
            except Refusal as refusal:
                self._emit(Error(refusal, None))

    def _begin_usual(self) -> None:
        """Answer what the conversation holds. Raises Refusal."""
        try:
            self._begin(self._task(self._usual, self._conversation.items, None), kept=True)
        except Refusal:
            self._asked = False
            raise

    def _begin(self, task: ResponseTask, kept: bool) -> None:
        if self._speaking(task.response.options) is not None:
            self._refuse_second_voice(task)
        asked = kept and self._asked
        over = [one for one in (self._current, *self._aside) if one is not None and not one.active]
        if kept:
            self._asked = False
            self._current = task
            self._notify(ResponseStarted())
        else:
            self._aside.add(task)
        log("response.created", session=self._session_id, response=task.response.id)
        task.open(asked)
        for before in over if kept or task.response.options.speaks else ():
            task.follow(before)
        self._context.room.count(task.size)
        limit = self._context.limits.responses + 1  # those aside, and the conversation's
        self._emit(RateLimits(limit, limit - len(self._aside) - self.busy))
        self.run(task)

    def _speaking(self, options: ResponseOptions) -> ResponseTask | None:
        """The answer whose voice one with these settings would be mixed into, where the server plays."""
        if not self._profile.plays or not options.speaks:
            return None
        active = (one for one in (self._current, *self._aside) if one is not None and one.active)
        return next((one for one in active if one.response.options.speaks), None)

    def _refuse_second_voice(self, task: ResponseTask) -> None:
        """Give up an answer that would be a second voice; what its turn said is still wanted. Raises Refusal."""
        task.leave()
        if task.utterance is not None:
            self.transcripts.transcribe(task.utterance)
        raise second_voice()

    def _stop(self, task: ResponseTask, reason: Reason) -> None:
        task.stop(reason)
        if task.response.options.speaks:
            self._notify(PlaybackStopped())

    async def _root(self, task: ResponseTask) -> None:
        """The root of every answer: whatever goes wrong in it becomes its one end, and goes no further."""
        try:
            await task.run(self._context.engine, self)
        except (EngineError, Refusal) as error:
            if error.code == ContextOverflow.code and task.usual and task.turns > 1:
                self._requests.truncation.overflowed()
            task.fail(error.code, str(error))
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("response.bug", session=self._session_id, response=task.response.id)
            task.fail("server_error", "The server failed to answer; the session goes on.")

    def _ended(self, task: ResponseTask) -> None:
        self._aside.discard(task)
        self._changed.set()
        self._context.room.count(-task.size if task.response.opened else 0)
        task.forget()
        if task.response.opened:
            task.report(self._context.metrics, self._session_id)
        if task.utterance is not None and (took_ms := task.response.view.ttfa_ms) is not None:
            self._notify(FirstSoundTook(took_ms))
        if task is self.preparation.task and task.response.closed:
            self.preparation.drop_committed()  # preempted, or failed: made anew when the client wants an answer
        if task.response.opened and task.input_item_id is not None:
            self.transcripts.fail(task.input_item_id)
        if task is self._current:
            self._notify(ResponseEnded(task.unplayed_s()))
        if task is not self.preparation.task:
            task.forget_turn()

    def _task(
        self,
        options: ResponseOptions,
        items: tuple[Item, ...],
        utterance: Utterance | None,
        kept: bool = True,
        preemptible: bool = False,
        labels: tuple[str, ...] | None = None,
        usual: bool = True,
    ) -> ResponseTask:
        """An answer about ``items``, or about ``utterance`` after them. Raises Refusal.

        A ``usual`` one is about the conversation as it stands: where its prompt begins, the next ones begin, too.

        It has the session's MCP tools, or of these only those of ``labels``; where the conversation does not keep it
        it has none, since a result would have no place.
        """
        conversation = self._conversation if kept else None
        hosting = self.hosted.hosting([tool.name for tool in options.tools], labels if kept else ())
        tools = tuple(tool.tool for tool in hosting.functions.values())
        response = Response(options, conversation, self._context.engine.model, self._emit, self._profile, hosting)
        build = self._requests.build
        request = build(response.id, options, self.options, items, utterance, preemptible, tools, remember=usual)
        input_item_id = last_untranscribed(items) if utterance is None else utterance.item_id
        version, now = self.prompt_version(utterance), self._context.now
        task = ResponseTask(response, request, utterance, input_item_id, version, now)
        task.usual = usual
        return task
