"""Preparation of the answer to the turn that the user is speaking.

An engine request reads along, so that transcription and prefill are ready when the user stops. In a pause the answer is
started speculatively, and nothing of it is sent.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from app.realtime.conversation import Utterance
from app.realtime.output import output_events
from app.realtime.output.output_events import OutputEvent
from app.realtime.output.response_factory import ResponseFactory
from app.realtime.output.response_runner import ResponseRunner
from app.realtime.output.response_task import ResponseTask
from app.realtime.protocol import ResponseOptions
from app.refusal import Refusal


class Preparation:
    """The preparation of one session's answers. ``ahead``: whether the server prepares answers at all."""

    def __init__(
        self, factory: ResponseFactory, runner: ResponseRunner, emit: Callable[[OutputEvent], None], ahead: bool
    ) -> None:
        self._factory = factory
        self._runner = runner
        self._emit = emit
        self._ahead = ahead
        self.task: ResponseTask | None = None
        """The prepared answer, if any. Its turn may already be committed."""

    def begin(self, utterance: Utterance, preemptible: bool = False) -> None:
        """Start the request that will answer a turn in progress.

        A ``preemptible`` request is dropped if others wait for the engine, since such a turn may continue for any time.
        A request that already reads this turn continues.
        """
        if self.task is not None and self.task.utterance is utterance:
            return
        self.drop_committed()
        if not self._ahead:
            return
        try:
            task = self._factory.default_task(utterance, preemptible)
        except Refusal:  # the turn may still change the prompt; if not, its end reports it
            return
        self.task = task
        if utterance.paused:
            task.speculate()
        self._runner.run(task, self._ended)

    def speculate(self) -> None:
        """Answer the words so far, without sending anything, since the user may have finished."""
        if self.task is not None and self.task.utterance is not None:
            self.task.utterance.pause()
            self.task.speculate()

    def discard_speculation(self) -> None:
        """Drop the speculative answer and read the turn again, since the user continues."""
        task = self.task
        if task is not None and task.utterance is not None:
            self._emit(output_events.SpeculationSettled(right=False))
            task.utterance.resume()
            self.drop()
            self.begin(task.utterance, task.request.preemptible)

    def refresh(self) -> None:
        """Restart the request if the prompt has changed meanwhile, for example by a truncation."""
        task = self.task
        if (
            task is None
            or task.utterance is None
            or task.prompt_version == self._factory.prompt_version(task.utterance)
        ):
            return
        if task.utterance.closed:
            self.drop_committed()
        else:
            self.drop()
            self.begin(task.utterance, task.request.preemptible)

    def drop(self) -> None:
        """Drop the prepared answer."""
        if self.task is not None:
            self.task.leave()
            self.task = None

    def drop_open(self) -> None:
        """Drop the answer to the turn in progress. An answer to a committed turn stays."""
        if self.task is not None and (self.task.utterance is None or not self.task.utterance.closed):
            self.drop()

    def drop_committed(self) -> None:
        """Drop the answer to a committed turn that nobody requested. The turn is still transcribed."""
        task = self.task
        if task is not None and task.utterance is not None and task.utterance.closed:
            self.drop()
            self._runner.transcripts.transcribe(task.utterance)

    def keep(self, utterance: Utterance) -> None:
        """Keep the answer to a committed turn ready, since the client will request it."""
        task = self.task
        if task is not None and self._is_right(task, utterance):
            task.prompt_version = self._factory.prompt_version(utterance)
            return
        self.drop_committed()  # it may be about the turn before
        self.drop()
        self._runner.transcripts.transcribe(utterance)

    def take(self, utterance: Utterance) -> ResponseTask | None:
        """Return the answer to the turn just committed, if it is still valid. The speculation is settled."""
        task = self.task
        self.task = None
        if utterance.paused:
            self._emit(output_events.SpeculationSettled(right=True))
        if task is not None and not self._is_right(task, utterance):
            task.leave()
            return None
        return task

    def take_committed(self, options: ResponseOptions) -> ResponseTask | None:
        """Return the answer to the last committed turn, if it matches the client's request."""
        task = self.task
        if task is None or task.utterance is None or not task.utterance.closed:
            return None
        # metadata does not change an answer
        same = replace(task.response.options, metadata=options.metadata) == options
        if task.response.closed or not same or task.prompt_version != self._factory.prompt_version(task.utterance):
            self.drop_committed()
            return None
        self.task = None
        task.response.options = options
        if task.utterance.paused:
            self._emit(output_events.SpeculationSettled(right=True))
        return task

    def _ended(self, task: ResponseTask) -> None:
        """Handle a prepared request that was preempted or failed: a new one is made when the client requests an
        answer.
        """
        if task is self.task and task.response.closed:
            self.drop_committed()

    def _is_right(self, task: ResponseTask, utterance: Utterance) -> bool:
        """Return whether a request can answer the turn that was just committed.

        It can't if it failed, read another turn, or does not know other changes of the conversation.
        """
        grown = task.prompt_version._replace(revision=task.prompt_version.revision + 1)
        now = self._factory.prompt_version(utterance)
        return task.utterance is utterance and not task.response.closed and grown == now
