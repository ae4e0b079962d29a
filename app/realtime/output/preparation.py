"""The answer to the turn that is being spoken, made ready before anybody asks for it.

A request listens along, so that its ears and its prefix are ready when the user stops; in a pause its answer is begun,
and nothing of it leaves. Knows no wire format and no socket.
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
        """The answer that is prepared, if there is one; its turn may be committed by now."""

    def begin(self, utterance: Utterance, preemptible: bool = False) -> None:
        """Open the request that will answer a turn which is still being spoken.

        A ``preemptible`` one is given up where others wait for the engine: nobody knows when such a turn will end.
        Where one listens to the turn already, it goes on.
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
        """The user may have finished: answer the words so far, and keep the answer back."""
        if self.task is not None and self.task.utterance is not None:
            self.task.utterance.pause()
            self.task.speculate()

    def discard_speculation(self) -> None:
        """The user had not finished: forget that answer, and listen to the turn as it goes on."""
        task = self.task
        if task is not None and task.utterance is not None:
            self._emit(output_events.SpeculationSettled(right=False))
            task.utterance.resume()
            self.drop()
            self.begin(task.utterance, task.request.preemptible)

    def refresh(self) -> None:
        """Listen anew if the open turn's prompt would be another one by now, as after a truncation."""
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
        """Give up what is prepared."""
        if self.task is not None:
            self.task.leave()
            self.task = None

    def drop_open(self) -> None:
        """Forget the turn that was being spoken; one that was committed before it is still wanted."""
        if self.task is not None and (self.task.utterance is None or not self.task.utterance.closed):
            self.drop()

    def drop_committed(self) -> None:
        """Give up the answer to a committed turn that nobody asked for; its words are still wanted."""
        task = self.task
        if task is not None and task.utterance is not None and task.utterance.closed:
            self.drop()
            self._runner.transcripts.transcribe(task.utterance)

    def keep(self, utterance: Utterance) -> None:
        """The turn is in the conversation, and its client will ask for an answer itself: stay ready for that."""
        task = self.task
        if task is not None and self._is_right(task, utterance):
            task.prompt_version = self._factory.prompt_version(utterance)
            return
        self.drop()
        self._runner.transcripts.transcribe(utterance)

    def take(self, utterance: Utterance) -> ResponseTask | None:
        """The answer to a turn that is in the conversation since this moment, if it still holds. It is settled."""
        task = self.task
        self.task = None
        if utterance.paused:
            self._emit(output_events.SpeculationSettled(right=True))
        if task is not None and not self._is_right(task, utterance):
            task.leave()
            return None
        return task

    def take_committed(self, options: ResponseOptions) -> ResponseTask | None:
        """The answer to the turn committed last, if it is the one that the client asks for."""
        task = self.task
        if task is None or task.utterance is None or not task.utterance.closed:
            return None
        same = replace(task.response.options, metadata=options.metadata) == options  # which changes no answer
        if task.response.closed or not same or task.prompt_version != self._factory.prompt_version(task.utterance):
            self.drop_committed()
            return None
        self.task = None
        task.response.options = options
        if task.utterance.paused:
            self._emit(output_events.SpeculationSettled(right=True))
        return task

    def _ended(self, task: ResponseTask) -> None:
        """The prepared request was preempted or has failed: a new one is made when the client asks for an answer."""
        if task is self.task and task.response.closed:
            self.drop_committed()

    def _is_right(self, task: ResponseTask, utterance: Utterance) -> bool:
        """Whether a request that listened can answer the turn, which is in the conversation since this moment.

        It cannot if it failed, was not shown the turn as it is, or does not know what else was said meanwhile.
        """
        grown = task.prompt_version._replace(revision=task.prompt_version.revision + 1)
        now = self._factory.prompt_version(utterance)
        return task.utterance is utterance and not task.response.closed and grown == now
