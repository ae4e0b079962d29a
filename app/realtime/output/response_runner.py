"""Runs responses in the session's task group and receives what they report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.realtime.conversation import is_untranscribed
from app.realtime.output import output_events
from app.realtime.output.output_events import OutputEvent
from app.realtime.output.playout import Packet
from app.realtime.output.response_factory import ResponseFactory
from app.realtime.output.response_task import Ended, ResponseTask
from app.realtime.output.summarizer import Summarizer
from app.realtime.output.transcripts import Transcripts
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.telemetry import log_failure
from engine import EngineError, Usage


class ResponseRunner:
    """The runner of one session's responses. ``tasks`` is set before the first command."""

    tasks: asyncio.TaskGroup

    def __init__(
        self,
        context: SessionContext,
        factory: ResponseFactory,
        transcripts: Transcripts,
        summarizer: Summarizer,
        notify: Callable[[OutputEvent], None],
    ) -> None:
        self.transcripts = transcripts
        self._summarizer = summarizer
        self.has_spoken = False
        """Whether the client has received any audio. From then on the voice can't change."""
        self._context = context
        self._factory = factory
        self._notify = notify
        self._replays = set[asyncio.Task[None]]()

    def run(self, task: ResponseTask, ended: Ended) -> None:
        """Start the request, unless it runs already, and call ``ended`` when it is over."""
        self._summarizer.drop()
        task.start(self.tasks, self._root, ended)

    def replay(self, task: ResponseTask) -> None:
        """Play audio of an ended response again."""
        replay = self.tasks.create_task(task.play_again(self), name=f"again:{task.response.id}")
        self._replays.add(replay)
        replay.add_done_callback(self._replays.discard)

    def leave(self) -> None:
        """Cancel replays and the summary when the client has left."""
        self._summarizer.drop()
        for replay in self._replays:
            replay.cancel()

    async def before_request(self, task: ResponseTask) -> None:
        """Transcribe earlier speech in the prompt that has no transcript yet, if the model reads transcripts.

        The request itself transcribes only the turn that it answers.
        """
        if not self._context.engine.model.reads_transcripts:
            return
        silent = [item for item in task.history if item.id != task.input_item_id and is_untranscribed(item)]
        if silent:
            heard = {item.id: item for item in await self.transcripts.of(silent)}
            self._factory.set_history(task, tuple(heard.get(item.id, item) for item in task.history))

    def on_partial_transcript(self, item_id: str, transcript: str, committed: bool) -> None:
        self.transcripts.show_partial(item_id, transcript, committed)

    def on_transcript(self, item_id: str, transcript: str, language: str) -> None:
        self.transcripts.complete(item_id, transcript, language)

    def on_packet(self, packet: Packet) -> None:
        self.has_spoken = True
        self._notify(output_events.PacketSent(packet))

    def on_overflow(self, task: ResponseTask) -> bool:
        return self._factory.shorten(task)

    def on_usage(self, task: ResponseTask, usage: Usage) -> None:
        self._factory.count(task, usage)

    def on_complete(self, task: ResponseTask) -> None:
        self._summarizer.begin()

    async def _root(self, task: ResponseTask) -> None:
        """Run one response. Any error ends only this response."""
        try:
            await task.run(task.source or self._context.engine, self)
        except (EngineError, Refusal) as error:
            task.fail(error.code, error.public if isinstance(error, EngineError) else str(error))
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("response.bug", session=task.request.session, response=task.response.id)
            task.fail("server_error", "The server failed to answer; the session continues.")
