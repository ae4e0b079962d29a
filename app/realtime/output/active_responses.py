"""The active responses: the conversation's current one, out-of-band ones, lines about tools, and a queued one.

At most one response at a time belongs to the conversation. If the server plays, at most one speaks.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from app.realtime.output import output_events
from app.realtime.output.output_events import OutputEvent
from app.realtime.output.pending_calls import PendingCalls, results_in
from app.realtime.output.response_factory import ResponseFactory
from app.realtime.output.response_runner import ResponseRunner
from app.realtime.output.response_task import ResponseTask
from app.realtime.protocol import ResponseOptions, ServerEvent, server_events
from app.realtime.refusals import no_active_response, voice_active
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.telemetry import log


class ActiveResponses:
    """The active responses of one session. ``emit`` takes client events, ``notify`` session events; neither waits."""

    def __init__(
        self,
        context: SessionContext,
        factory: ResponseFactory,
        runner: ResponseRunner,
        calls: PendingCalls,
        emit: Callable[[ServerEvent], None],
        notify: Callable[[OutputEvent], None],
    ) -> None:
        self.current: ResponseTask | None = None
        """The conversation's latest response, active or ended."""
        self.out_of_band: set[ResponseTask] = set()
        """Responses that the conversation does not store."""
        self.lines: ResponseTask | None = None
        """The response that is spoken while tools run. It gives way to all others."""
        self.away = False
        """Whether the client is disconnected."""
        self.changed = asyncio.Event()
        """Set when a response has ended."""
        self._context = context
        self._factory = factory
        self._runner = runner
        self._calls = calls
        self._emit = emit
        self._notify = notify
        self._queued: asyncio.Task[None] | None = None  # waits until the next response can begin
        self._asked = False  # whether the client requested the next response, even if a turn then begins it
        self._paused = False  # whether the client has paused its playback
        self._sound_ended_s = -math.inf  # when the listener has heard the responses that are no longer kept

    @property
    def all(self) -> list[ResponseTask]:
        return [task for task in (self.current, *self.out_of_band, self.lines) if task is not None]

    @property
    def sound_ends_s(self) -> float:
        """When the listener has heard all audio sent so far; -inf if nothing was sent."""
        return max([self._sound_ended_s, *(task.playout.ends_s for task in self.all)])

    @property
    def occupied(self) -> bool:
        """Whether a response is active or queued, apart from the lines and from written out-of-band responses."""
        queued = self._queued is not None and not self._queued.done()
        return self.busy or queued or any(task.response.options.speaks for task in self.out_of_band)

    @property
    def busy(self) -> bool:
        """Whether the conversation has an active response."""
        return self.current is not None and self.current.active

    @property
    def blocking(self) -> ResponseTask | None:
        """The response that must end before the conversation's next one starts."""
        return self.current if self.busy else self._speaking(self._factory.default_options)

    def begin(self, task: ResponseTask, kept: bool = True) -> None:
        """Announce and run a response. Raises Refusal if another one speaks and both voices would be mixed."""
        if kept or task.response.options.speaks:
            self._stop_lines("client_cancelled")
        if self._speaking(task.response.options) is not None:
            self._refuse_second_voice(task)
        asked = kept and self._asked
        over = [one for one in self.all if not one.active]
        if kept:
            self._asked = False
            self.current = task
            self._calls.answered(results_in(task.history))
            self._notify(output_events.ResponseStarted())
        else:
            self.out_of_band.add(task)
        log("response.created", session=task.request.session, response=task.response.id)
        task.open(asked)
        for before in over if kept or task.response.options.speaks else ():
            task.follow(before)
        self._context.room.count(task.size)
        limit = self._context.limits.responses + 1  # those out of band, and the conversation's
        self._emit(server_events.RateLimitsEvent(limit, limit - len(self.out_of_band) - self.busy))
        self._runner.run(task, self._ended)

    def begin_lines(self, task: ResponseTask) -> None:
        """Run a response that is spoken while tools run."""
        self.lines = task
        task.open()
        for before in [one for one in self.all if not one.active]:
            task.follow(before)
        self._runner.run(task, self._lines_ended)

    def answer_soon(self, asked: bool) -> None:
        """Answer the conversation now, or after the active response. Raises Refusal.

        ``asked``: whether the response reports that the client requested it.
        """
        self._asked = self._asked or asked
        before = self.blocking
        self._begin_default() if before is None else self.answer_after(before)

    def answer_after(self, before: ResponseTask) -> None:
        """Queue one response to everything said until ``before`` ends; it replaces a queued one."""
        if self._queued is not None:
            self._queued.cancel()
        self._queued = self._runner.tasks.create_task(self._wait(before, self.current), name="answer_after")

    def cancel(self, response_id: str | None) -> None:
        """Stop the response with this id, or the conversation's. Raises Refusal if it is not active."""
        for task in (self.current, *(self.out_of_band if response_id is not None else ()), self.lines):
            if task is not None and task.active and response_id in (None, task.response.id):
                if task is self.lines:
                    self._calls.hush()
                self._stop(task, "client_cancelled")
                return
        raise no_active_response(response_id)

    def store_progress(self, item_id: str) -> None:
        """Store the part of an item that its response has sent so far."""
        for task in self.all:
            task.response.store_progress(item_id)

    def interrupt(self, reason: server_events.Reason = "turn_detected") -> None:
        """Stop the conversation's response, or the rest of its playback.

        A barge-in also cancels the queued response, since the new turn gets its own. If the client asks for silence,
        the queued response stays, and out-of-band responses stop speaking too.
        """
        self._stop_lines(reason)
        if reason == "turn_detected" and self._queued is not None:
            self._queued.cancel()
        if reason == "turn_detected" and self._paused:
            self._paused = False
            self._notify(output_events.PlaybackStopped())
        if reason == "client_cancelled":
            self._calls.hush()
            for task in [one for one in self.out_of_band if one.active and one.response.options.speaks]:
                self._stop(task, reason)
        if self.current is None:
            return
        if self.current.active:
            self._stop(self.current, reason)
        else:
            self.current.interrupted()
            self._notify(output_events.PlaybackStopped())

    def pause(self) -> bool:
        """Pause the conversation's response. Returns whether the listener will hear more of it."""
        task = self.current
        if task is None or not task.pause():
            return False
        if task.client_pauses:
            self._paused = True
            self._emit(server_events.OutputAudioPausedEvent())
            self._notify(output_events.PlayerPaused())
        return True

    def resume(self) -> None:
        """Resume a paused response."""
        if self.current is not None:
            self.current.resume()
        if self._paused:
            self._emit(server_events.OutputAudioResumedEvent())
            self._notify(output_events.PlayerResumed())
            self._paused = False

    def set_present(self, present: bool) -> None:
        """Set whether the client is connected."""
        self.away = not present
        self.changed.set()

    def leave(self) -> None:
        """Drop the queued response when the client has left."""
        if self._queued is not None:
            self._queued.cancel()

    def fail_all(self, code: str, message: str) -> None:
        """End all active responses as failed."""
        for task in self.all:
            task.fail(code, message)

    async def quiet(self) -> None:
        """Wait until no response is active, or the client is disconnected."""
        while not self.away and (self.out_of_band or self.busy):
            self.changed.clear()
            await self.changed.wait()

    async def _wait(self, before: ResponseTask, current: ResponseTask | None) -> None:
        """Answer the conversation after ``before``, unless another response than ``current`` has started meanwhile."""
        while before.active or self._speaking(self._factory.default_options) is not None:
            self.changed.clear()
            await self.changed.wait()
        if self.current is current:
            try:
                self._begin_default()
            except Refusal as refusal:
                self._emit(server_events.ErrorEvent(refusal, None))

    def _begin_default(self) -> None:
        """Answer the conversation. Raises Refusal."""
        try:
            self.begin(self._factory.default_task())
        except Refusal:
            self._asked = False
            raise

    def _speaking(self, options: ResponseOptions) -> ResponseTask | None:
        """Return the response whose voice would be mixed with one of these settings, if the server plays."""
        if not self._factory.profile.plays or not options.speaks:
            return None
        return next((one for one in self.all if one.active and one.response.options.speaks), None)

    def _refuse_second_voice(self, task: ResponseTask) -> None:
        """Drop the response, but still transcribe its turn. Raises Refusal."""
        task.leave()
        if task.utterance is not None:
            self._runner.transcripts.transcribe(task.utterance)
        raise voice_active()

    def _stop_lines(self, reason: server_events.Reason) -> None:
        if self.lines is not None and self.lines.active:
            self._stop(self.lines, reason)

    def _stop(self, task: ResponseTask, reason: server_events.Reason) -> None:
        task.stop(reason)
        if task.response.options.speaks:
            self._notify(output_events.PlaybackStopped())

    def _ended(self, task: ResponseTask) -> None:
        self.out_of_band.discard(task)
        self._sound_ended_s = max(self._sound_ended_s, task.playout.ends_s)
        self.changed.set()
        self._context.room.count(-task.size)
        task.report(self._context.metrics, task.request.session)
        if task.utterance is not None and (took_ms := task.response.view.ttfa_ms) is not None:
            self._notify(output_events.FirstSoundTook(took_ms))
        if task.input_item_id is not None:
            self._runner.transcripts.response_ended(task.input_item_id)
        if task is self.current or (task.response.options.speaks and not self.busy):
            left_s = max(one.unplayed_s() for one in (task, self.current) if one is not None)
            self._notify(output_events.ResponseEnded(left_s))
        task.forget_turn()

    def _lines_ended(self, task: ResponseTask) -> None:
        self._sound_ended_s = max(self._sound_ended_s, task.playout.ends_s)
        if self.lines is task:
            self.lines = None
            self._notify(output_events.ResponseEnded(task.unplayed_s()))
        self.changed.set()
