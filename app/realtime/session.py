"""One conversation with one client: client events in, requests to the engine, server events out.

The session connects input and output: the input buffer detects turns, the responses answer them, and neither knows the
other. ``_on_turn`` decides what a turn event means for the answers, and ``_on_output`` what an answer means for the
input.

Client events are handled one at a time in the order of arrival. Answers run in parallel, each as a task of the
session's task group. Errors become events only here: a refused event or a failed answer never ends the session. Knows
no wire dialect and no socket; cancel ``run`` to end the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, assert_never

from msgspec.structs import replace

from app.ids import new_id
from app.limits.fair_scheduler import metered
from app.limits.held_size import held_size
from app.media.audio import MediaError
from app.realtime.conversation import (
    Conversation,
    Utterance,
    check_settings,
    functions_only,
)
from app.realtime.input import InputAudioBuffer, TurnEvent, turn_events
from app.realtime.item_edits import Edit, edit
from app.realtime.output import OutputEvent, Responses, output_events
from app.realtime.ports import SOCKET, PlayoutProfile
from app.realtime.protocol import (
    CallOutputItem,
    MessageItem,
    Received,
    ServerEvent,
    SessionOptions,
    client_events,
    name_of,
    server_events,
)
from app.realtime.refusals import wrong_transport
from app.realtime.session_context import SessionContext
from app.realtime.session_settings import log_mapped, log_opening, merged_options, opening_options, session_view
from app.refusal import Refusal, ServerFault
from app.telemetry import log, log_failure
from engine import EngineError
from engine.aio.task_group import CycleFreeTaskGroup, weak_method


class Session:
    """One session. ``emit`` accepts each server event without waiting. ``asked_model`` is the model that the client
    requested.

    ``start`` contains initial settings that differ from the defaults. Raises Refusal if they are invalid.
    """

    def __init__(
        self,
        context: SessionContext,
        emit: Callable[[ServerEvent], None],
        asked_model: str = "",
        start: dict[str, Any] | None = None,
        profile: PlayoutProfile = SOCKET,
    ) -> None:
        self.id = new_id("sess")
        self._context = context
        self._emit = emit
        self._profile = profile
        limits = context.limits
        self._conversation = Conversation(new_id("conv"), limits.items, int(limits.conversation_mb * 1e6), context.room)
        self._options = opening_options(context, start or {}, asked_model)
        self._settings_size = 0
        self._hold_settings(self._options)
        self._expires_at_s = int(context.wall() + limits.session_s)
        self._responses = Responses(
            self.id, context, self._conversation, self._options, profile, emit, notify=weak_method(self._on_output)
        )
        self._responses.hosted.configure(*self._responses.hosted.read(functions_only(start or {}, "session")))
        self._input = InputAudioBuffer(context, self._options, weak_method(self._on_turn))
        self._resume_token: str | None = None
        self._over = False
        self.closed = False
        """Whether the client has closed the session."""
        log_opening(context, self.id, self._options)

    async def run(self, received: AsyncIterator[Received]) -> None:
        """Serve the client until ``received`` ends. Everything that the session holds is freed when this returns."""
        try:
            failure = await self._open_memory()
            self._emit(self.greeting())
            if failure is not None:
                self._refuse(failure, None)
            async with CycleFreeTaskGroup() as tasks:
                self._start(tasks)
                async for one in received:
                    if not self._over:
                        await metered(self._take(one), self._context.loop_time)
                    if self.closed:
                        break
                    await self._context.loop_time.turn()
                self._leave()
        finally:
            self._forget()

    def greeting(self) -> ServerEvent:
        """Return the first event of a session."""
        return server_events.SessionCreatedEvent(self._view())

    def away(self) -> None:
        """Mark the client as disconnected: no audio is sent until it resumes."""
        log("session.away", session=self.id)
        self._set_present(False)

    def back(self, last_seen_s: float | None = None) -> None:
        """Continue with a client that has reconnected, and send it the current settings.

        Audio sent since ``last_seen_s`` is sent again, since nobody received it. With None, the client receives the
        events that it missed instead.
        """
        log("session.back", session=self.id)
        self._resume_token = self._new_resume_token()
        self._emit(server_events.SessionUpdatedEvent(self._view()))
        if last_seen_s is not None:
            self._responses.replay(last_seen_s)
        self._set_present(True)

    async def quiet(self) -> None:
        """Wait until no answer is in progress."""
        await self._responses.active.quiet()

    def end(self, code: str, message: str) -> None:
        """Announce that the server ends the session, and fail the answers in progress. Cancel ``run`` afterwards."""
        self._over = True  # events that arrive from now on would never be completed
        self._fail_all(code, message)
        self._refuse(ServerFault(code, message), None)

    def _start(self, tasks: asyncio.TaskGroup) -> None:
        """Run answers in ``tasks``."""
        self._responses.start(tasks)

    def _leave(self) -> None:
        """Cancel everything without events, since the client has left. May be called twice."""
        self._responses.leave()

    def _set_present(self, present: bool) -> None:
        """Set whether the client is connected."""
        self._responses.set_present(present)

    def _fail_all(self, code: str, message: str) -> None:
        """Fail the answers in progress."""
        self._responses.active.fail_all(code, message)

    def _silence(self) -> None:
        """Stop all answers, since the client wants silence."""
        self._responses.active.interrupt("client_cancelled")

    async def _take(self, received: Received) -> None:
        """Handle one client event. All errors below this become one event."""
        try:
            await self._obey(received.event)
            self._acknowledge(received)
        except Refusal as refusal:
            self._refuse(refusal, received.event_id)
        except MediaError as error:
            self._refuse(Refusal("invalid_value", f"The media can't be used: {error}."), received.event_id)
        except EngineError as error:
            self._refuse(ServerFault(error.code, error.public), received.event_id)
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("session.bug", session=self.id)
            message = "The server failed to process the event; the session continues."
            self._refuse(ServerFault("server_error", message), received.event_id)
        self._responses.preparation.refresh()

    def _acknowledge(self, received: Received) -> None:
        """Confirm events that have no other visible effect."""
        match received.event:
            case client_events.MuteInput() | client_events.AddContext():
                self._emit(server_events.ObeyedEvent(received.event, received.event_id))
            case client_events.CloseSession():
                self._silence()
                self.closed = True
                self._emit(server_events.SessionEndedEvent(self._view(), received.event_id))
            case _:
                pass

    def _forget(self) -> None:
        """Free all audio and images, since the session object itself may live longer."""
        self._responses.forget()
        self._input.forget()
        self._conversation.clear()

    def _refuse(self, refusal: Refusal, event_id: str | None) -> None:
        self._context.metrics.errors.labels(refusal.code).inc()
        log("session.refused", session=self.id, code=refusal.code, param=refusal.param)
        self._emit(server_events.ErrorEvent(refusal, event_id))

    async def _obey(self, event: client_events.ClientEvent | Refusal) -> None:
        match event:
            case client_events.AppendAudio() | client_events.ClearOutputAudio() | client_events.PlayoutDelay():
                await self._obey_where_played(event)
            case client_events.InputSamples(pcm):
                await self._input.add_samples(pcm)
            case client_events.CameraFrame():
                self._input.add_frame(event)
            case client_events.EncodedCameraFrame(url):
                await self._input.add_encoded_frame(url)
            case client_events.KeyPressed(key):
                self._emit(server_events.DtmfReceivedEvent(key, int(self._context.wall())))
            case client_events.CommitAudio():
                self._input.commit()
            case client_events.ClearAudio():
                self._input.clear()
                self._responses.calls.user_speaks(False)
                self._emit(server_events.AudioClearedEvent())
            case client_events.UpdateSession(patch):
                await self._update(patch)
            case (
                client_events.CreateItem()
                | client_events.RetrieveItem()
                | client_events.TruncateItem()
                | client_events.DeleteItem()
            ):
                await self._edit(event)
            case client_events.CreateResponse():
                await self._responses.create(event)
            case client_events.CancelResponse(response_id):
                self._responses.active.cancel(response_id)
            case client_events.MuteInput(muted):
                self._input.pipeline.muted = muted
            case client_events.AddContext():
                await self._add_context(event)
            case client_events.CloseSession():
                pass
            case Refusal():
                raise event
            case _:
                assert_never(event)

    async def _obey_where_played(
        self, event: client_events.AppendAudio | client_events.ClearOutputAudio | client_events.PlayoutDelay
    ) -> None:
        """Handle audio events that some transports carry in another way."""
        match event:
            case client_events.AppendAudio(data) if not self._profile.streams_input:
                await self._input.append(data)
            case client_events.ClearOutputAudio() if self._profile.plays:
                self._responses.active.interrupt("client_cancelled")
            case client_events.PlayoutDelay(delay_s) if self._profile.plays:
                self._profile.set_delay(delay_s)
            case _:
                raise wrong_transport(event)

    async def _edit(self, event: Edit) -> None:
        format, hosted = self._options.audio.input.format, self._responses.hosted
        if isinstance(event, client_events.TruncateItem):
            self._responses.active.store_progress(event.item_id)
        await edit(event, format, self._conversation, self._context, self._emit, hosted)
        match event:
            case client_events.CreateItem(CallOutputItem(call_id=call_id)):
                self._responses.calls.returned(call_id)
            case client_events.CreateItem(client_events.RawMessage(role="user")):
                self._responses.calls.moved_on()
            case _:
                pass

    async def _add_context(self, event: client_events.AddContext) -> None:
        if event.item is not None:
            await self._edit(client_events.CreateItem(event.item))
        if event.answer and not (event.purpose == "response" and self._responses.hosted.will_answer):
            self._responses.active.answer_soon(event.purpose == "response")

    def _on_turn(self, event: TurnEvent) -> None:
        """Handle events of the input buffer: start, hold, release or stop answers as the user speaks, pauses and
        finishes.
        """
        match event:
            case turn_events.TurnStarted(utterance, start_ms):
                self._emit(server_events.SpeechStartedEvent(utterance.item_id, start_ms))
                self._responses.calls.user_speaks(True)
                if self._interrupts:
                    self._responses.active.interrupt()
                else:
                    self._responses.active.resume()
                if self._options.auto_responds:
                    self._responses.preparation.begin(utterance)
                else:
                    self._responses.transcripts.transcribe(utterance)
            case turn_events.OverlapStarted(utterance):
                if not self._responses.pause_for(utterance):
                    self._input.voice.take_turn()
            case turn_events.VoiceBuffered(utterance):
                self._responses.preparation.begin(utterance, preemptible=True)
            case turn_events.TurnPaused():
                self._responses.preparation.speculate()
            case turn_events.TurnResumed():
                self._responses.preparation.discard_speculation()
            case turn_events.TurnStopped(utterance, end_ms):
                over, silence_ms = utterance.over_probability, utterance.silence_ms
                self._emit(server_events.SpeechStoppedEvent(utterance.item_id, end_ms, over, silence_ms))
                self._commit(utterance, self._options.auto_responds)
            case turn_events.IdleTimedOut(utterance, start_ms, end_ms):
                self._emit(server_events.TimeoutTriggeredEvent(utterance.item_id, start_ms, end_ms))
                self._commit(utterance, answer=True)
            case turn_events.TurnCommitted(utterance):
                self._commit(utterance, answer=False)
            case turn_events.TurnDropped():
                self._responses.preparation.drop_open()
                self._responses.active.resume()
                self._responses.calls.user_speaks(False)
            case turn_events.SpeakerFound(item_id, speaker):
                self._emit(server_events.SpeakerFoundEvent(item_id, speaker))
            case turn_events.SessionIdled():
                self._emit(server_events.SessionPausedEvent())
            case turn_events.SessionWoken():
                self._emit(server_events.SessionResumedEvent())
            case _:
                assert_never(event)

    def _on_output(self, event: OutputEvent) -> None:
        """Tell the input what the user hears, and whether a speculative answer was right."""
        match event:
            case output_events.PacketSent(packet):
                self._input.voice.playing(packet.samples)
            case output_events.PlaybackStopped():
                self._input.voice.playback.stopped()
            case output_events.PlayerPaused():
                self._input.voice.playback.paused()
            case output_events.PlayerResumed():
                self._input.voice.playback.resumed()
            case output_events.ResponseStarted():
                self._input.voice.response_started()
            case output_events.ResponseEnded(left_s):
                self._input.voice.response_ended(left_s)
            case output_events.SpeculationSettled(right):
                self._input.speculation.settled(right)
                self._context.metrics.speculations.labels("used" if right else "forgotten").inc()
            case output_events.FirstSoundTook(ms):
                self._input.speculation.took(self._context.measured("first_sound_ms", ms))
            case _:
                assert_never(event)

    @property
    def _interrupts(self) -> bool:
        """Whether speech of the user during an answer stops it."""
        detection = self._options.audio.input.turn_detection
        return detection is None or detection.interrupt_response

    def _commit(self, utterance: Utterance, answer: bool) -> None:
        """Add the turn to the conversation, and answer it. Raises Refusal if the conversation is full."""
        self._responses.calls.moved_on()
        item = MessageItem(id=utterance.item_id, role="user", content=utterance.content)
        try:
            previous = self._conversation.add(item)
        except Refusal:
            self._responses.preparation.drop()
            raise
        finally:
            utterance.close()
        self._emit(server_events.AudioCommittedEvent(item.id, previous))
        self._emit(server_events.ItemAddedEvent(item, previous))
        if answer:
            self._responses.answer(utterance, self._interrupts)
        else:
            self._responses.preparation.keep(utterance)

    async def _open_memory(self) -> Refusal | None:
        """Read the facts that the initial settings ask for. If this fails, the session starts without memory."""
        memory = self._options.parley.memory
        try:
            await self._responses.memory.use(None if memory is None else memory.user)
        except Refusal as refusal:
            extras = replace(self._options.parley, memory=None)
            self._options = replace(self._options, parley=extras)
            self._responses.configure(self._options)
            return refusal
        return None

    async def _update(self, patch: dict[str, object]) -> None:
        """Merge new settings. After a Refusal nothing has changed, except when only an unsupported tool was refused."""
        offer = functions_only(patch, "session")
        servers, unserved = self._responses.hosted.read(offer)
        options, unknown = merged_options(self._context, self._options, offer.patch)
        check_settings(options, self._context.engine.model, "session")
        before, after = name_of(self._options.audio.output.voice), name_of(options.audio.output.voice)
        if self._has_spoken and before != after:
            path = "session.audio.output.voice"
            raise Refusal("cannot_update_voice", "The voice can't change once the session has spoken.", path)
        self._hold_settings(options)
        await self._responses.memory.use(None if options.parley.memory is None else options.parley.memory.user)
        log_mapped(self._context, self.id, options, unknown)
        self._configure(options)
        if options.parley.resume and self._resume_token is None:
            self._resume_token = self._new_resume_token()
        if "tools" in patch:
            self._responses.hosted.configure(servers, unserved)
        self._emit(server_events.SessionUpdatedEvent(self._view()))
        self._responses.hosted.list_new()
        if offer.refusal is not None:
            raise offer.refusal

    def _configure(self, options: SessionOptions) -> None:
        """Apply settings."""
        self._options = options
        self._responses.configure(options)
        self._input.configure(options)

    @property
    def _has_spoken(self) -> bool:
        """Whether the client has received any audio."""
        return self._responses.runner.has_spoken

    def _hold_settings(self, options: SessionOptions) -> None:
        """Count the settings as held. Raises Refusal if the server has no memory for them."""
        more = held_size(options) - self._settings_size
        if more > 0:
            self._conversation.check_server(more, "session")
        self._context.room.count(more, "settings")
        self._settings_size += more

    def _new_resume_token(self) -> str | None:
        return None if self._profile.new_resume_token is None else self._profile.new_resume_token()

    def _view(self) -> server_events.SessionView:
        shown = self._responses.hosted.shown
        return session_view(self._context, self.id, self._expires_at_s, self._options, self._resume_token, shown)
