"""The conversation of a session whose model is duplex: it listens while it speaks, and decides itself when to speak.

The microphone goes to one engine request that lasts as long as the session, and responses are derived from its output.
The request is opened with the first audio, so that it has the client's settings. After a failure the next audio opens
another one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from app.ids import new_id
from app.realtime.conversation import Conversation, prompt
from app.realtime.input.microphone_stream import MicrophoneStream
from app.realtime.output.duplex_responses import DuplexResponses
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol import MessageItem, ServerEvent, SessionOptions, client_events, name_of, server_events
from app.realtime.refusals import not_in_duplex
from app.realtime.session_context import SessionContext
from app.refusal import Refusal, ServerFault
from app.telemetry import ASKED, log_failure
from engine import Audio, Duplex, EngineError, Message, Request, Text

RETRY_S = 2.0
"""Seconds after a failed request in which no other one is opened."""


class DuplexConversation:
    """The conversation of one session. ``emit`` takes events, ``report`` refusals; neither waits."""

    def __init__(
        self,
        session_id: str,
        context: SessionContext,
        duplex: Duplex,
        conversation: Conversation,
        options: SessionOptions,
        profile: PlayoutProfile,
        emit: Callable[[ServerEvent], None],
        report: Callable[[Refusal], None],
    ) -> None:
        self.responses = DuplexResponses(session_id, context, conversation, options, profile, emit)
        self._microphone = MicrophoneStream(
            context, options, duplex.rate_hz, context.metrics.duplex_dropped_s.labels("input").inc
        )
        self._session_id = session_id
        self._context = context
        self._conversation = conversation
        self._options = options
        self._profile = profile
        self._emit = emit
        self._report = report
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._unfinished: set[asyncio.Task[None]] = set()  # the current task, and cancelled ones that hold a slot
        self._opens_at_s = -math.inf  # when the next request may be opened

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run the engine's request in ``tasks``; call this before the first event."""
        self._tasks = tasks

    def configure(self, options: SessionOptions) -> None:
        """Take new settings. With other instructions or another voice the model starts anew."""
        before = self._asks_for
        self._options = options
        self.responses.options = options
        self._microphone.configure(options)
        if self._task is not None and before != self._asks_for:
            self.responses.finish()
            self._open()

    async def takes(self, event: client_events.ClientEvent | Refusal) -> bool:
        """Handle an event that means something else in a duplex conversation; return False for all others.

        Raises Refusal, MediaError.
        """
        match event:
            case client_events.AppendAudio(data) if not self._profile.streams_input:
                await self._microphone.append(data)
                self._listen()
            case client_events.InputSamples(pcm):
                self._microphone.add_samples(pcm)
                self._listen()
            case client_events.MuteInput(muted):
                self._microphone.muted = muted
            case client_events.ClearAudio():
                self._microphone.clear()
                self._emit(server_events.AudioClearedEvent())
            case client_events.CancelResponse(response_id):
                self.responses.cancel(response_id)
            case client_events.ClearOutputAudio() if self._profile.plays:
                self.responses.silence()
            case client_events.CameraFrame() | client_events.EncodedCameraFrame():
                pass
            case (
                client_events.CreateItem(item=client_events.RawMessage(role="system"))
                | client_events.AddContext(item=client_events.RawMessage(role="system"), answer=False)
            ) if self._task is None:
                return False  # part of the prompt
            case (
                client_events.CommitAudio()
                | client_events.CreateItem()
                | client_events.CreateResponse()
                | client_events.AddContext()
            ):
                raise not_in_duplex(event, self._context.engine.model.name)
            case _:
                return False
        return True

    def end(self, code: str, message: str) -> None:
        """End the conversation, and its response as failed."""
        self.responses.fail(code, message)
        self.leave()

    def leave(self) -> None:
        """Abort the request without events. May be called twice."""
        self._tasks = None
        if self._task is not None:
            self._task.cancel()

    def _listen(self) -> None:
        """Open the request if none is open. Audio that comes too early for that is dropped: it would only be late."""
        if self._task is not None:
            return
        if self._context.now() >= self._opens_at_s:
            self._open()
        else:
            self._microphone.clear()

    def _open(self) -> None:
        if self._tasks is None:
            return
        if self._task is not None:
            self._task.cancel()
        work = self._run(tuple(self._unfinished))
        self._task = self._tasks.create_task(work, name=f"duplex:{self._session_id}")
        self._unfinished.add(self._task)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget a task that has ended: the frames of a cancelled one are kept, with references to the session."""
        self._unfinished.discard(task)
        if self._task is task:
            self._task = None

    async def _run(self, before: tuple[asyncio.Task[None], ...]) -> None:
        """Run one request, once those before it have freed their slots. Any error ends only this request."""
        if before:
            await asyncio.wait(before)
        before = ()
        try:
            await self._converse()
            self.responses.finish()
        except EngineError as error:
            self._fail(error.code, error.public)
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("duplex.bug", session=self._session_id)
            self._fail("server_error", "The server failed to process the model's output; the model starts anew.")
        self._opens_at_s = self._context.now() + RETRY_S

    async def _converse(self) -> None:
        async with self._context.engine.open(self._request(), self._microphone.follow()) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Audio | Text):
                    self.responses.take(chunk)

    def _fail(self, code: str, message: str) -> None:
        self.responses.fail(code, message)
        self._report(ServerFault(code, message))

    @property
    def _asks_for(self) -> tuple[tuple[Message, ...], str]:
        """The part of the settings that a request is made from."""
        voice = self._context.voice(name_of(self._options.audio.output.voice))
        items = tuple(one for one in self._conversation.items if isinstance(one, MessageItem) and one.role == "system")
        return prompt(self._options.instructions, items), voice

    def _request(self) -> Request:
        messages, voice = self._asks_for
        return Request(
            id=new_id("duplex"),
            session=self._session_id,
            owner=ASKED.get().owner,
            messages=messages,
            live=True,
            wants=frozenset({"text", "audio"}),
            voice=voice,
            max_audio_s=math.inf,
        )
