"""One response under way: the engine's request behind an answer, its chunks paced out to the listener.

Leaving ``run`` is the abort, whatever the reason: the request ends with it. Knows no socket and no wire format.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Protocol, assert_never

from msgspec.structs import replace

from app.realtime.answer import Answer
from app.realtime.basis import Basis
from app.realtime.hearing import Turn
from app.realtime.notices import Reason
from app.realtime.playout import Packet, Playout
from app.realtime.timing import Timing
from app.realtime.trouble import Refusal
from app.realtime.usage import Usage
from app.telemetry import Metrics, audit
from engine import (
    SPEAKER_RATE_HZ,
    Audio,
    Chunks,
    Codes,
    EngineError,
    ModelInfo,
    Output,
    Request,
    Text,
    ToolCall,
    ToolCallDelta,
    Transcript,
)
from engine import Usage as EngineUsage


class Answering(Protocol):
    """The engine, as far as a session sees it."""

    @property
    def model(self) -> ModelInfo: ...

    def open(self, request: Request, inputs: Any = None) -> AbstractAsyncContextManager[Chunks]: ...


KEPT_S = 30.0
"""How much of what was played can be played again: a lost connection is found within 27 s."""

Root = Callable[["Reply"], Coroutine[Any, Any, None]]


class Listener(Protocol):
    """What a session wants to know of a reply as it goes on."""

    def on_hearing(self, item_id: str, transcript: str) -> None:
        """The user's words in ``item_id``, as far as they are understood; they may still change."""
        ...

    def on_heard(self, item_id: str, transcript: str) -> None:
        """The user's words in ``item_id``, all of them."""
        ...

    def on_sent(self, packet: Packet) -> None:
        """These samples leave for the listener now."""
        ...


class Reply:
    """An answer, the request that makes it, and its playout. ``heard_id`` is the item whose words it will hear."""

    def __init__(
        self,
        answer: Answer,
        request: Request,
        turn: Turn | None,
        heard_id: str | None,
        basis: Basis,
        now: Callable[[], float],
    ) -> None:
        self.answer, self.request, self.turn, self.heard_id = answer, request, turn, heard_id
        self.basis = basis
        self.size = 0
        """Bytes of what it is about, where that is nothing of the conversation's."""
        self.playout = Playout(answer.line.lead_s, answer.line.packet_s, KEPT_S if answer.line.plays else 0.0)
        self.timing = Timing(now())
        self._now = now
        self._chunks: Chunks | None = None
        self._news = asyncio.Event()
        self._present = asyncio.Event()
        self._present.set()
        self._opened = asyncio.Event()
        self._finish = "stop"
        self._held_s: float | None = None  # since when the answer is made although the turn may go on
        self._started = False
        self._task: asyncio.Task[None] | None = None

    @property
    def active(self) -> bool:
        return self.answer.opened and not self.answer.closed

    def start(self, group: asyncio.TaskGroup, root: Root, ended: Callable[[Reply], None]) -> None:
        """Run in ``group``, once: ``root`` awaits ``run`` and meets its errors; ``ended`` is called in any case."""
        if self._started:
            return

        def done(task: asyncio.Task[None]) -> None:
            self._task = None  # of one that was cancelled the frames are kept, and what they know of the request
            ended(self)

        self._started = True
        self._task = group.create_task(root(self), name=f"reply:{self.answer.id}")
        self._task.add_done_callback(done)  # a task that is cancelled before it ran has no finally

    def hold(self) -> None:
        """The answer is made, but nobody is to know of it before ``open``: the turn may go on."""
        self._held_s = self._now()
        if self._chunks is not None:
            self._chunks.held()

    def open(self) -> None:
        """The answer begins, as far as the client is concerned."""
        self.timing.asked_s = self._now()
        if self._chunks is not None:
            self._chunks.claim()
            if self._held_s is not None:
                self._chunks.due()
        self.answer.open()
        self._opened.set()

    async def run(self, engine: Answering, listener: Listener) -> None:
        """To the end of the answer. Raises one EngineError, or a Refusal."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pace(listener), name=f"pace:{self.answer.id}")
            failure = await self._pull(engine, listener)
        if failure is not None:
            raise failure
        if self._finish == "length":
            self.answer.close("incomplete", "max_output_tokens")
        else:
            self.answer.close("completed")
        await self._play_out()

    def stop(self, reason: Reason) -> int:
        """End it now, if it is not over: one last notice, nothing more is sent. Returns the samples heard by now."""
        heard = self._heard_samples()
        self.playout.flush()
        self.answer.close("cancelled", reason, heard_samples=heard)
        self.leave()
        return heard

    def listen(self, present: bool) -> None:
        """Whether somebody listens: while nobody does nothing is sent, and nothing more is taken from the engine."""
        if present:
            self._present.set()
        else:
            self._present.clear()
        self._news.set()

    def rewind(self, since_s: float) -> bool:
        """What would have been heard after that moment is to be sent again; whether there is any of it."""
        line = self.answer.line
        if self.answer.closed and self.answer.view.outcome != "completed":
            return False
        samples = self.playout.rewind(since_s, line.lag_s())
        self.answer.unsent(samples)
        self._news.set()
        return samples > 0

    async def play_again(self, listener: Listener) -> None:
        """Send what was put back of an answer that is over."""
        await self._pace(listener)
        await self._play_out()

    def fail(self, code: str, message: str) -> None:
        """End it as failed, with what had been sent."""
        self.answer.close("failed", error=(code, message), heard_samples=self.playout.sent_samples)

    def leave(self) -> None:
        """Drop the request without a word."""
        if self._task is not None:
            self._task.cancel()

    def forget(self) -> None:
        """The request is over: what it was about is not needed any more. May be called twice."""
        self.request = replace(self.request, messages=())

    def forget_turn(self) -> None:
        """The same for the turn that it answered: the conversation has what was said and shown. May be called twice."""
        self.turn, self.basis = None, self.basis._replace(seen=())

    def report(self, metrics: Metrics, session_id: str) -> None:
        """Count how it went, and log one line."""
        timing, playout = self.timing, self.playout
        outcome = self.answer.view.outcome if self.answer.closed else "abandoned"  # its client has left
        metrics.responses.labels(outcome).inc()
        metrics.underruns.inc(playout.underruns)
        metrics.underrun_s.inc(playout.underrun_s)
        figures: dict[str, object] = {"audio_s": playout.sent_samples / SPEAKER_RATE_HZ, "underruns": playout.underruns}
        if (ttfa_s := timing.ttfa_s()) is not None:
            metrics.ttfa_s.observe(ttfa_s)
            figures["ttfa_ms"] = ttfa_s * 1000
        if (rtf := timing.rtf(playout.produced_samples)) is not None:
            metrics.rtf.observe(rtf)
        error = {"error": self.answer.view.error[0]} if self.answer.view.error else {}
        audit("response.done", session=session_id, response=self.answer.id, status=outcome, **figures, **error)

    def interrupted(self) -> None:
        """The answer is over, but its listener may still have been playing it when he began to speak."""
        heard = self._heard_samples()
        self.playout.flush()
        self._news.set()
        self.answer.heard(heard)

    def unplayed_s(self) -> float:
        """Seconds until the listener has heard all that was sent."""
        return self.playout.unplayed_s(self._now(), self.answer.line.lag_s())

    def _heard_samples(self) -> int:
        return self.playout.heard_samples(self._now(), self.answer.line.lag_s())

    async def _play_out(self) -> None:
        """Where the server plays, it knows when the listener has heard the end."""
        line = self.answer.line
        if line.plays:
            await asyncio.sleep(self.unplayed_s())
            self.answer.played()

    async def _pull(self, engine: Answering, listener: Listener) -> EngineError | Refusal | None:
        """Read the engine as fast as it makes things: what has to wait for the listener waits here, not on a slot."""
        inputs = self.turn.follow() if self.turn is not None else None
        try:
            async with engine.open(self.request, inputs) as chunks:
                with self._reading(chunks):
                    async for chunk in chunks:
                        await self._present.wait()
                        if isinstance(chunk, Transcript):
                            self._hear(chunk, listener)
                        if isinstance(chunk, Transcript) and chunk.final and self.turn is not None:
                            await self.turn.over()  # nothing is told of a turn before it is committed
                        elif _tells(chunk):
                            await self._opened.wait()
                        self._take(chunk, listener)
        except (EngineError, Refusal) as error:  # a Refusal: the conversation has no room for the answer
            self.playout.flush()
            return error
        finally:
            self._news.set()
        self.playout.end()
        return None

    @contextmanager
    def _reading(self, chunks: Chunks) -> Generator[None]:
        self._chunks = chunks
        if self.answer.opened:
            chunks.claim()
        elif self._held_s is not None:
            chunks.held()
        try:
            yield
        finally:
            self._chunks = None

    def _hear(self, transcript: Transcript, listener: Listener) -> None:
        """What the user says is known before the answer begins, and while they speak."""
        if self.turn is not None:
            self.turn.understand(transcript.text, transcript.final, transcript.complete)
        if self.heard_id is not None:
            listener.on_hearing(self.heard_id, transcript.text)

    def _take(self, chunk: Output, listener: Listener) -> None:
        answer = self.answer
        match chunk:
            case Text(text, _, token_ids):
                answer.text(text, token_ids)
            case Audio(wave, marks):
                self._made(len(wave))
                self.playout.push(wave)
                answer.reached((sample - self.playout.skipped_samples, characters) for sample, characters in marks)
                self._send_due(listener)
                self._news.set()
            case ToolCallDelta(call_id, name, arguments):
                answer.call_piece(name, call_id, arguments)
            case ToolCall(call_id, name, arguments):
                answer.call(name, arguments, call_id)
            case Transcript(text, final):
                if final and self.heard_id is not None:
                    listener.on_heard(self.heard_id, text)
            case EngineUsage():
                self._finish = chunk.finish
                answer.used(_usage(chunk))
            case Codes():
                pass  # it is asked for none
            case _:
                assert_never(chunk)

    def _made(self, samples: int) -> None:
        self.timing.last_made_s = self._now()
        if self.timing.first_made_s is None:
            self.timing.first_made_s, self.timing.first_made_samples = self.timing.last_made_s, samples

    async def _pace(self, listener: Listener) -> None:
        """Send each packet when it is due; the first ones were sent as they came."""
        loop = asyncio.get_running_loop()
        while not self.playout.drained:
            self._send_due(listener)
            self._news.clear()
            if self.playout.drained:
                return
            due_in_s = self.playout.due_in_s(self._now()) if self._present.is_set() else None
            alarm = None if due_in_s is None else loop.call_later(due_in_s, self._news.set)
            try:
                await self._news.wait()
            finally:
                if alarm is not None:
                    alarm.cancel()

    def _send_due(self, listener: Listener) -> None:
        while self._present.is_set() and (packet := self.playout.take(self._now())) is not None:
            if self.timing.first_sent_s is None:
                self.timing.first_sent_s = self._now()
                if self._chunks is not None:
                    ahead_ms = self.timing.ahead_ms(self._held_s)
                    self.answer.timed(self._chunks.ledger, ahead_ms, self.timing.turn_ms)
                    self._chunks.played(self.playout.skipped_samples / SPEAKER_RATE_HZ)
            self.answer.audio(packet)
            listener.on_sent(packet)


def _tells(chunk: Output) -> bool:
    """Whether a client learns of it; guesses at what the user is saying stay here."""
    return not isinstance(chunk, Transcript) or chunk.final


def _usage(counted: EngineUsage) -> Usage:
    return Usage(
        input_tokens=counted.input_tokens,
        text_tokens=counted.output_tokens,
        heard_tokens=counted.audio_tokens,
        seen_tokens=counted.image_tokens,
        cached_tokens=counted.cached_tokens,
    )
