"""The output side of a session: begins responses to turns and to the client's requests.

``active`` holds the responses under way; ``preparation`` prepares the next one while the user speaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.facts import SessionMemory
from app.limits.held_size import held_size
from app.realtime.conversation import Conversation, Utterance, check_settings, functions_only, report_tool_servers
from app.realtime.output.active_responses import ActiveResponses
from app.realtime.output.hosted_tools import HostedTools
from app.realtime.output.output_events import OutputEvent
from app.realtime.output.pending_calls import PendingCalls
from app.realtime.output.preparation import Preparation
from app.realtime.output.response_factory import ResponseFactory
from app.realtime.output.response_inputs import inputs_of
from app.realtime.output.response_runner import ResponseRunner
from app.realtime.output.response_spec import ResponseSpec
from app.realtime.output.response_task import ResponseTask
from app.realtime.output.summarizer import Summarizer
from app.realtime.output.tool_speech import ToolSpeech
from app.realtime.output.transcripts import Transcripts
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol import CreateResponse, ServerEvent, SessionOptions, listed, response_options
from app.realtime.refusals import response_active, too_many_responses
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.telemetry import log
from engine.aio.task_group import weak_method


class Responses:
    """The responses of one session. ``emit`` takes client events, ``notify`` session events; neither waits."""

    def __init__(
        self,
        session_id: str,
        context: SessionContext,
        conversation: Conversation,
        options: SessionOptions,
        profile: PlayoutProfile,
        emit: Callable[[ServerEvent], None],
        notify: Callable[[OutputEvent], None],
    ) -> None:
        self._session_id = session_id
        self._context = context
        self._conversation = conversation
        self._emit = emit
        self.calls = PendingCalls(context.now, weak_method(self._calls_changed))
        """The tool calls without a result."""
        self.memory = SessionMemory(context.memory, context.engine.model)
        """The facts of earlier sessions that the model knows."""
        self.hosted = HostedTools(session_id, context.tool_servers, conversation, self.calls, self.memory, emit)
        """The tools that the server runs."""
        self.hosted.tool_options = options.parley.tools
        self.transcripts = Transcripts(session_id, context, conversation, options, emit)
        self._factory = ResponseFactory(
            session_id, context, conversation, options, profile, emit, self.hosted, self.memory
        )
        self._summarizer = Summarizer(session_id, context, conversation, self._factory, emit)
        self.runner = ResponseRunner(context, self._factory, self.transcripts, self._summarizer, notify)
        self.active = ActiveResponses(context, self._factory, self.runner, self.calls, emit, notify)
        self._tool_speech = ToolSpeech(context, self.calls, self._factory, self.active, self.runner, emit)
        self.preparation = Preparation(self._factory, self.runner, notify, context.turns.ahead)

    def configure(self, options: SessionOptions) -> None:
        """Apply the session's new settings."""
        self._factory.options = options
        self.transcripts.options = options
        self.hosted.tool_options = options.parley.tools

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run all responses in ``tasks``; call this before the first command."""
        self.runner.tasks = tasks
        self.transcripts.tasks = tasks
        self._summarizer.tasks = tasks
        self.hosted.start(tasks)

    async def create(self, event: CreateResponse) -> None:
        """Start the response that the client requests. Raises Refusal, MediaError."""
        session = self._factory.options
        if not session.can_respond:
            raise Refusal("invalid_request", "A transcription session can't create responses.", "type")
        offer = functions_only(event.patch, "response")
        options, unknown = response_options(session, offer.patch)
        check_settings(options, self._context.engine.model, "response")
        if unknown:
            log("response.unknown_fields", session=self._session_id, fields=listed(unknown))
        self._check_free(event)
        whole, own_tools = event.kept and event.inputs is None, "tools" in event.patch  # instead of the session's tools
        task = self.preparation.take_committed(options) if whole and not own_tools else None
        if task is None:
            out_of_band = len(self.active.out_of_band)
            if out_of_band >= self._context.limits.responses:
                raise too_many_responses(out_of_band)
            own_size = held_size(offer.patch)
            self._conversation.check_server(own_size, "response")
            items, size = await inputs_of(event, self._conversation, session.audio.input.format, self._context)
            self._check_free(event)  # the session may have begun a response meanwhile
            servers = offer.servers if own_tools else None
            spec = ResponseSpec(
                options,
                items,
                kept=event.kept,
                whole_conversation=whole,
                tool_servers=servers,
                size=size + own_size,
            )
            task = self._factory.task(spec)
        self._report_unserved(offer.servers)
        self.active.begin(task, event.kept)
        if offer.refusal is not None:
            raise offer.refusal

    def answer(self, utterance: Utterance, interrupt: bool) -> None:
        """Start the response to a turn that has just been committed. Raises Refusal.

        ``interrupt``: whether to stop the current response; otherwise the new one waits for its end.
        """
        task, busy = self.preparation.take(utterance), self.active.busy
        if busy and interrupt:
            self.active.interrupt()  # a response that was requested while the user spoke
        before = self.active.blocking
        if task is not None and (busy or before is not None):
            task.leave()
            task = None
        if before is not None:
            self.transcripts.transcribe(utterance)
            self.active.answer_after(before)
            return
        if task is None:
            task = self._anew(utterance)
        task.timing.turn_ms = utterance.silence_ms
        task.timing.over_probability = utterance.over_probability
        task.timing.turn_counts = utterance.turn_counts
        self.active.begin(task)

    def pause_for(self, utterance: Utterance) -> bool:
        """Pause the conversation's response until it is clear whether this is a turn, and prepare a response to it.

        Returns whether the listener will hear more of a response.
        """
        if not self.active.pause():
            return False
        self.preparation.begin(utterance)
        return True

    def set_present(self, present: bool) -> None:
        """Set whether the client is connected: responses wait for a client that may resume."""
        self.active.set_present(present)
        for task in self._all:
            task.set_present(present)

    def replay(self, since_s: float) -> None:
        """Play again what was played after ``since_s`` and not heard, even if its response has ended."""
        for task in self._all:
            if task.rewind(since_s) and not task.active:
                self.runner.replay(task)

    def leave(self) -> None:
        """Cancel everything without events when the client has left."""
        for task in self._all:
            task.leave()
        self.active.leave()
        self._tool_speech.leave()
        self.runner.leave()
        self.transcripts.leave()
        self.hosted.leave()

    def forget(self) -> None:
        """Free all responses at the end of the session."""
        for task in self._all:
            task.forget()
            task.forget_turn()
        self.active.current = None
        self.preparation.task = None

    def _anew(self, utterance: Utterance) -> ResponseTask:
        """Make a new request with the complete turn. If it is refused, the turn is only transcribed."""
        try:
            return self._factory.default_task()
        except Refusal:
            self.transcripts.transcribe(utterance)
            raise

    def _check_free(self, event: CreateResponse) -> None:
        """Raise Refusal if the response would be the conversation's second one at a time."""
        current = self.active.current
        if event.kept and current is not None and current.active:
            raise response_active(current.response.id)

    def _calls_changed(self) -> None:
        self._tool_speech.follow()

    @property
    def _all(self) -> list[ResponseTask]:
        prepared = self.preparation.task
        return self.active.all if prepared is None else [*self.active.all, prepared]

    def _report_unserved(self, servers: tuple[str, ...]) -> None:
        """Report the MCP servers that the session does not have as failed."""
        known = {tool.server.entry.server_label for tool in self.hosted.listed()}
        others = tuple(label for label in servers if label not in known)
        report_tool_servers(others, self._conversation, self._emit, self._session_id)
