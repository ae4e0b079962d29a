"""One active response: sends its request to the engine, and paces the answer's chunks to the listener.

Leaving ``run`` for any reason aborts the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Protocol, assert_never

from msgspec.structs import replace

from app.realtime.conversation import Utterance
from app.realtime.output.playout import Packet, Playout
from app.realtime.output.prompt_version import PromptVersion
from app.realtime.output.response_emitter import ResponseEmitter
from app.realtime.output.timing import Timing
from app.realtime.ports import AnswerSource
from app.realtime.protocol import Item, server_events
from app.realtime.waits import Waits
from app.refusal import Refusal
from app.telemetry import Metrics, audit
from engine import (
    SPEAKER_RATE_HZ,
    Audio,
    Chunks,
    Codes,
    ContextOverflow,
    EngineError,
    Output,
    Preempted,
    Request,
    Text,
    ToolCall,
    ToolCallDelta,
    Transcript,
    Usage,
)
from engine.aio.task_group import CycleFreeTaskGroup

KEPT_S = 30.0
"""Seconds of played audio that can be played again: a lost connection is detected within 27 s."""

Root = Callable[["ResponseTask"], Coroutine[Any, Any, None]]
Ended = Callable[["ResponseTask"], None]


class ResponseListener(Protocol):
    """Receives events of a response while it runs."""

    async def before_request(self, task: ResponseTask) -> None:
        """Complete the task's prompt. The request is sent afterwards."""
        ...

    def on_partial_transcript(self, item_id: str, transcript: str, committed: bool) -> None:
        """Receive an interim transcript of the user's speech in ``item_id``, which may not be committed yet."""
        ...

    def on_transcript(self, item_id: str, transcript: str, language: str) -> None:
        """Receive the final transcript of the user's speech in ``item_id``."""
        ...

    def on_packet(self, packet: Packet) -> None:
        """Receive samples that are sent to the listener now."""
        ...

    def on_overflow(self, task: ResponseTask) -> bool:
        """Shorten a prompt that exceeds the model's context. Returns whether the task's request is shorter now."""
        ...

    def on_usage(self, task: ResponseTask, usage: Usage) -> None:
        """Receive the model's token counts of the prompt and the complete text."""
        ...

    def on_complete(self, task: ResponseTask) -> None:
        """Note that a response is complete. Its audio may still be playing."""
        ...


class ResponseTask:
    """A response with its engine request and its playout.

    ``input_item_id`` is the item whose speech this response will transcribe.
    """

    def __init__(
        self,
        response: ResponseEmitter,
        request: Request,
        utterance: Utterance | None,
        input_item_id: str | None,
        prompt_version: PromptVersion,
        now: Callable[[], float],
    ) -> None:
        self.response = response
        self.request = request
        self.utterance = utterance
        self.input_item_id = input_item_id
        self.prompt_version = prompt_version
        self.waits = Waits()
        self.whole_conversation = True
        """Whether the prompt is the unchanged conversation, which also stores the response."""
        self.history: tuple[Item, ...] = ()
        """The items in the prompt."""
        self.instructions = ""
        """The instructions in the prompt, with the facts of earlier sessions."""
        self.head_chars = 0
        """Characters of the instructions and tools."""
        self.size = 0
        """Bytes of its own settings, and of items outside the conversation."""
        self.source: AnswerSource | None = None
        """Produces its chunks instead of the engine."""
        profile = response.profile
        kept_s = KEPT_S if profile.plays else 0.0
        lead_s, packet_s, reserve_s, plays = profile.lead_s, profile.packet_s, profile.reserve_s, profile.plays
        self.playout = Playout(lead_s, packet_s, kept_s, profile.lateness, reserve_s, whole=plays)
        self.timing = Timing(now())
        self._now = now
        self._chunks: Chunks | None = None
        self._news = asyncio.Event()
        self._present = asyncio.Event()
        self._present.set()
        self._paused = False  # while the listener speaks: it may only be "mm-hm"
        self._opened = asyncio.Event()
        self._finish = "stop"
        self._speculative_since_s: float | None = None  # since when the answer is made speculatively
        self._ended: Ended | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        return self.response.opened and not self.response.closed

    def start(self, group: asyncio.TaskGroup, root: Root, ended: Ended) -> None:
        """Run in ``group``: ``root`` awaits ``run`` and handles its errors; ``ended`` is called in any case.

        A second call only replaces ``ended``.
        """
        started = self._ended is not None
        self._ended = ended
        if started:
            return

        def done(task: asyncio.Task[None]) -> None:
            self._task = None  # the frames of a cancelled task are kept, with a reference to the request
            self.forget()
            self.waits.ended(self._report_end)

        self._task = group.create_task(root(self), name=f"response:{self.response.id}")
        self._task.add_done_callback(done)  # a task that is cancelled before it starts runs no finally block

    def _report_end(self) -> None:
        if self._ended is not None:
            self._ended(self)

    def speculate(self) -> None:
        """Make the answer, but hide it until ``open``, since the turn may continue."""
        self._speculative_since_s = self._now()
        if self._chunks is not None:
            self._chunks.speculative()

    def open(self, asked: bool = False) -> None:
        """Show the answer to the client, who may have ``asked`` for it."""
        self.timing.asked_s = self._now()
        if self._chunks is not None:
            self._chunks.claim()
            if self._speculative_since_s is not None:
                self._chunks.confirmed()
        self.response.open(asked)
        self._opened.set()

    async def run(self, engine: AnswerSource, listener: ResponseListener) -> None:
        """Run until the answer has ended. Raises one EngineError or Refusal."""
        async with CycleFreeTaskGroup() as group:
            group.create_task(self._pace(listener), name=f"pace:{self.response.id}")
            await self.waits.moment()
            failure = await self._pull(engine, listener)
            if failure is None:
                listener.on_complete(self)
        await self.waits.moment()
        if failure is not None:
            raise failure
        if self._finish == "length":
            self.response.close("incomplete", "max_output_tokens")
        else:
            self.response.close("completed")
        await self._play_out()

    def stop(self, reason: server_events.Reason) -> int:
        """Cancel the response if it is active, and send nothing more. Returns the samples played so far."""
        played = self._played_samples()
        self.playout.flush()
        self.response.close("cancelled", reason, played_samples=played)
        self.leave()
        return played

    def set_present(self, present: bool) -> None:
        """Set whether the client is connected. Otherwise nothing is sent or taken from the engine."""
        if present:
            self._present.set()
        else:
            self._present.clear()
        self._news.set()

    @property
    def client_pauses(self) -> bool:
        """Whether the client plays the audio, and pauses it on request."""
        return not self.response.profile.plays and self.response.options.parley.pauses

    def pause(self) -> bool:
        """Stop sending until ``resume``, if the server or the client can pause the playback.

        Returns whether the listener has not yet heard all of the response.
        """
        plays = self.response.profile.plays
        audible = self.active or (not plays and self.unplayed_s() > 0)
        self._paused = self.active if plays else audible and self.client_pauses
        if self._paused and self.client_pauses:
            self.playout.pause(self._now())
        return audible

    def resume(self) -> None:
        """Continue after a pause."""
        if self._paused:
            self._paused = False
            self.playout.resume(self._now())
            self._news.set()

    def rewind(self, since_s: float) -> bool:
        """Send again the audio that a disconnected client did not hear, from the time ``since_s`` on.

        Returns whether there is any.
        """
        profile = self.response.profile
        if self.response.closed and self.response.view.outcome in ("cancelled", "failed"):
            return False
        samples = self.playout.rewind(since_s, profile.lag_s())
        self.response.unsent(samples)
        self._news.set()
        return samples > 0

    async def play_again(self, listener: ResponseListener) -> None:
        """Send the rewound audio of an ended response."""
        await self._pace(listener)
        await self._play_out()

    def fail(self, code: str, message: str) -> None:
        """End the response as failed, keeping the part that was sent."""
        self.response.close("failed", error=(code, message), played_samples=self.playout.sent_samples)

    def leave(self) -> None:
        """Cancel the request without telling the client."""
        if self._task is not None:
            self._task.cancel()

    def forget(self) -> None:
        """Free the request's messages after its end. May be called twice."""
        self.request = replace(self.request, messages=())
        self.history = ()

    def forget_turn(self) -> None:
        """Free the answered turn, which the conversation has stored. May be called twice."""
        self.utterance = None

    def report(self, metrics: Metrics, session_id: str) -> None:
        """Update the metrics, and log one line."""
        timing, playout = self.timing, self.playout
        outcome = self.response.view.outcome if self.response.closed else "abandoned"  # the client has left
        metrics.responses.labels(outcome).inc()
        metrics.underruns.inc(playout.underruns)
        metrics.underrun_s.inc(playout.underrun_s)
        figures: dict[str, object] = {"audio_s": playout.sent_samples / SPEAKER_RATE_HZ, "underruns": playout.underruns}
        if (ttfa_s := timing.ttfa_s()) is not None:
            metrics.ttfa_s.observe(ttfa_s)
            figures["ttfa_ms"] = ttfa_s * 1000
        if (rtf := timing.rtf(playout.produced_samples)) is not None:
            metrics.rtf.observe(rtf)
        error = {"error": self.response.view.error[0]} if self.response.view.error else {}
        audit("response.done", session=session_id, response=self.response.id, status=outcome, **figures, **error)

    def interrupted(self) -> None:
        """Record that the user spoke over the playback of a response that has already ended."""
        played = self._played_samples()
        self.playout.flush()
        self._news.set()
        self.response.interrupted_after(played)

    def follow(self, before: ResponseTask) -> None:
        """Start after a response that has ended. Its unsent audio is dropped.

        If its playback is still running, its end is reported first.
        """
        before.playout.flush()
        if self.response.profile.plays and self.response.options.speaks:
            before.response.played()
            self.playout.follow(before.playout)

    def unplayed_s(self) -> float:
        """Return the seconds until the listener has heard everything sent."""
        return self.playout.unplayed_s(self._now(), self.response.profile.lag_s())

    def _played_samples(self) -> int:
        return self.playout.played_samples(self._now(), self.response.profile.lag_s())

    async def _play_out(self) -> None:
        """Wait until the listener has heard the end, if the server plays."""
        profile = self.response.profile
        if profile.plays:
            await self.waits.alarm(asyncio.Event(), self.unplayed_s())
            self.response.played()

    async def _pull(self, engine: AnswerSource, listener: ResponseListener) -> EngineError | Refusal | None:
        """Read the answer. Retry if the prompt was too long, or if the request was preempted while it was prepared and
        is awaited now.
        """
        try:
            await listener.before_request(self)
            while True:
                try:
                    await self._read(engine, listener)
                    break
                except ContextOverflow:
                    if self.response.written or not listener.on_overflow(self):
                        raise
                except Preempted:
                    if self.response.written or not self.response.opened:
                        raise
                    self.request = replace(self.request, preemptible=False)
        except (EngineError, Refusal) as error:  # Refusal: the conversation has no room for the answer
            self.playout.flush()
            return error
        finally:
            self._news.set()
        self.playout.end()
        return None

    async def _read(self, engine: AnswerSource, listener: ResponseListener) -> None:
        """Read chunks as fast as the engine makes them: they wait for the listener here, without holding a slot."""
        inputs = self.utterance.follow() if self.utterance is not None else None
        async with engine.open(self.request, inputs) as chunks:
            with self._reading(chunks):
                async for chunk in chunks:
                    await self._present.wait()
                    if isinstance(chunk, Transcript):
                        self._hear(chunk, listener)
                    if isinstance(chunk, Transcript) and chunk.final and self.utterance is not None:
                        await self.utterance.over()  # the end of the turn is known only when it is committed
                    elif _is_shown(chunk):
                        await self._opened.wait()
                    self._take(chunk, listener)

    @contextmanager
    def _reading(self, chunks: Chunks) -> Generator[None]:
        self._chunks = chunks
        self.response.stage_times = chunks.stage_times
        if self.response.opened:
            chunks.claim()
        elif self._speculative_since_s is not None:
            chunks.speculative()
        try:
            yield
        finally:
            self._chunks = None

    def _hear(self, transcript: Transcript, listener: ResponseListener) -> None:
        """Pass on the transcript of the user's speech, which arrives before the answer."""
        if self.utterance is not None:
            so_far = (transcript.text, transcript.final, transcript.complete, transcript.confident)
            self.utterance.understand(*so_far)
            if self.utterance.held:
                return
        if self.input_item_id is not None:
            committed = self.utterance is None or self.utterance.closed
            listener.on_partial_transcript(self.input_item_id, transcript.text, committed)

    def _take(self, chunk: Output, listener: ResponseListener) -> None:
        response = self.response
        match chunk:
            case Text(text, _, token_ids):
                response.text(text, token_ids)
            case Audio(wave, marks):
                self._made(len(wave))
                self.playout.push(wave)
                response.reached((sample - self.playout.skipped_samples, characters) for sample, characters in marks)
                self._send_due(listener)
                self._news.set()
            case ToolCallDelta(call_id, name, arguments):
                response.call_piece(name, call_id, arguments)
            case ToolCall(call_id, name, arguments):
                response.call(name, arguments, call_id)
            case Transcript(text, final):
                if final and self.input_item_id is not None:
                    listener.on_transcript(self.input_item_id, text, chunk.language)
            case Usage():
                self._finish = chunk.finish
                response.used(chunk)
                listener.on_usage(self, chunk)
            case Codes():
                pass  # not requested
            case _:
                assert_never(chunk)

    def _made(self, samples: int) -> None:
        self.timing.last_made_s = self._now()
        if self.timing.first_made_s is None:
            self.timing.first_made_s = self.timing.last_made_s
            self.timing.first_made_samples = samples

    async def _pace(self, listener: ResponseListener) -> None:
        """Send each packet when it is due."""
        while not self.playout.drained:
            self._send_due(listener)
            self._news.clear()
            if self.playout.drained:
                return
            due_in_s = self.playout.due_in_s(self._now()) if self._sends else None
            await self.waits.alarm(self._news, due_in_s)

    @property
    def _sends(self) -> bool:
        return self._present.is_set() and not self._paused

    def _send_due(self, listener: ResponseListener) -> None:
        while self._sends and (packet := self.playout.take(self._now())) is not None:
            if self.timing.first_sent_s is None:
                self.timing.first_sent_s = self._now()
                if self._chunks is not None:
                    ahead_ms = self.timing.ahead_ms(self._speculative_since_s)
                    self.response.timed(self._chunks.ledger, ahead_ms, self.timing)
                    self._chunks.played(self.playout.skipped_samples / SPEAKER_RATE_HZ)
            self.response.audio(packet)
            listener.on_packet(packet)


def _is_shown(chunk: Output) -> bool:
    """Return whether the client sees a chunk. Interim transcripts are not part of a response."""
    return not isinstance(chunk, Transcript) or chunk.final
