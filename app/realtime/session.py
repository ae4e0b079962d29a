"""One conversation with one client: commands in, requests to the engine, notices out.

Commands are obeyed one after the other, in the order they came; answers go on meanwhile, each a task of the session's
own group. Errors become notices here and nowhere else: a refused command or a failed answer never ends the session.
Knows no wire dialect and no socket; whoever runs it cancels ``run`` to end it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from app.media import MediaError
from app.realtime import commands, notices
from app.realtime.answers import Answers
from app.realtime.commands import Command, Told
from app.realtime.context import check_items, check_settings
from app.realtime.conversation import Conversation
from app.realtime.drafts import finished
from app.realtime.formats import is_long, sounds_of
from app.realtime.house import House
from app.realtime.ids import new_id
from app.realtime.items import Item
from app.realtime.line import SOCKET, Line
from app.realtime.microphone import Microphone
from app.realtime.notices import Notice, SessionView
from app.realtime.options import Options, Transcription, listed, name_of, session_options
from app.realtime.tools import functions_only, tell_unreached
from app.realtime.trouble import Broken, Refusal
from app.slices import Counted
from app.telemetry import log, log_failure
from engine import EngineError, ModelInfo


class Session:
    """``tell`` takes each notice at once and never waits. ``asked_model`` is the name that the client asked for.

    ``start`` are the settings that it begins with, where they are not the defaults. Raises Refusal if they can't be.
    """

    def __init__(
        self,
        house: House,
        tell: Callable[[Notice], None],
        asked_model: str = "",
        start: dict[str, Any] | None = None,
        line: Line = SOCKET,
    ) -> None:
        self.id = new_id("sess")
        self._house, self._tell = house, tell
        limits, model = house.limits, house.engine.model
        self._conversation = Conversation(new_id("conv"), limits.items, int(limits.conversation_mb * 1e6), house.room)
        self._options = opening_options(model, start or {}, asked_model)
        self._servers = functions_only(start or {}, "session").servers
        self._expires_at_s = int(house.wall() + limits.session_s)
        self._answers = Answers(self.id, house, self._conversation, self._options, tell)
        self._loop_time = house.loop_time()
        self._microphone = Microphone(self._answers, self._conversation, house, self._options, tell, self._loop_time)
        self._answers.ear, self._answers.line, self._line = self._microphone, line, line
        self._ticket: str | None = None
        self._over = False
        if self._options.model != model.name:
            log("session.model_mapped", session=self.id, asked=self._options.model, loaded=model.name)

    async def run(self, told: AsyncIterator[Told]) -> None:
        """Serve the client until ``told`` ends. Everything that the session holds is gone when this returns."""
        self._tell(self.greeting())
        tell_unreached(self._servers, self._conversation, self._tell, self.id)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._answers.start(tasks)
                async for one in told:
                    if not self._over:
                        await Counted(self._hear(one), self._loop_time)
                    await self._loop_time.pause()
                self._answers.leave()
        finally:
            self._forget()

    def greeting(self) -> Notice:
        """What a client is told first."""
        return notices.SessionOpened(self._view())

    def away(self) -> None:
        """Nobody is connected, but somebody may come back: no sound is made for him meanwhile."""
        log("session.away", session=self.id)
        self._answers.present(False)

    def back(self, heard_s: float | None = None) -> None:
        """The client is connected again: tell him how things stand, and go on.

        What was played since ``heard_s`` is played again: it reached nobody. None where he is told what he missed.
        """
        log("session.back", session=self.id)
        self._ticket = self._new_ticket()
        self._tell(notices.SessionChanged(self._view()))
        if heard_s is not None:
            self._answers.replay(heard_s)
        self._answers.present(True)

    def _new_ticket(self) -> str | None:
        return None if self._line.ticket is None else self._line.ticket()

    async def quiet(self) -> None:
        """Wait until no answer is under way."""
        await self._answers.quiet()

    def end(self, code: str, message: str) -> None:
        """Announce that the server ends the session, and fail what is under way; then cancel ``run``."""
        self._over = True  # what was asked meanwhile would never be answered to its end
        self._answers.fail_all(code, message)
        self._refuse(Broken(code, message), None)

    async def _hear(self, told: Told) -> None:
        """The root of every command: whatever goes wrong below becomes one notice."""
        try:
            await self._obey(told.word)
        except Refusal as refusal:
            self._refuse(refusal, told.event_id)
        except MediaError as error:
            self._refuse(Refusal("invalid_value", f"The media can't be taken: {error}."), told.event_id)
        except EngineError as error:
            self._refuse(Broken(error.code, str(error)), told.event_id)
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("session.bug", session=self.id)
            self._refuse(Broken("server_error", "The server failed to do this; the session goes on."), told.event_id)
        self._answers.refresh()

    def _forget(self) -> None:
        """Let go of what was said and shown: the session itself lives until the collector finds it."""
        self._answers.forget()
        self._microphone.forget()
        self._conversation.clear()

    def _refuse(self, refusal: Refusal, event_id: str | None) -> None:
        self._house.metrics.errors.labels(refusal.code).inc()
        log("session.refused", session=self.id, code=refusal.code, param=refusal.param)
        self._tell(notices.Trouble(refusal, event_id))

    async def _obey(self, word: Command | Refusal) -> None:
        match word:
            case commands.AppendAudio() | commands.FlushOutput() | commands.PlayoutDelay():
                await self._obey_where_played(word)
            case commands.Hear(pcm):
                await self._microphone.hear(pcm)
            case commands.See():
                self._microphone.see(word)
            case commands.Look(url):
                await self._microphone.look(url)
            case commands.CommitAudio():
                self._microphone.commit()
            case commands.ClearAudio():
                self._microphone.clear()
            case commands.Configure(patch):
                self._configure(patch)
            case commands.AddItem(item, after):
                format, limit_s = self._options.audio.input.format, self._house.limits.audio_s
                reserve, slices = self._conversation.reserve, self._house.slices
                (whole,) = await finished((item,), format, limit_s, reserve, slices)
                check_items((whole,), self._house.engine.model, "item")
                self._add(whole, after)
            case commands.Respond():
                await self._answers.respond(word)
            case commands.Cancel(response_id):
                self._answers.cancel(response_id)
            case commands.DropItem() | commands.CutItem():
                self._edit(word)
            case commands.ShowItem(id):
                await self._show(self._conversation.get(id))
            case Refusal():
                raise word
            case _:
                assert_never(word)

    async def _obey_where_played(
        self, word: commands.AppendAudio | commands.FlushOutput | commands.PlayoutDelay
    ) -> None:
        """Sound either comes and goes as messages, or the transport carries it itself."""
        match word:
            case commands.AppendAudio(data) if not self._line.plays:
                await self._microphone.append(data)
            case commands.FlushOutput() if self._line.plays:
                self._answers.interrupt("client_cancelled")
            case commands.PlayoutDelay(delay_s) if self._line.plays:
                self._line.told_delay(delay_s)
            case commands.AppendAudio():
                message = "The microphone's track is heard on this transport; audio can't be appended as well."
                raise Refusal("invalid_event_for_transport", message, "type")
            case commands.PlayoutDelay():
                message = "Here the client plays, and knows what was heard: truncate the item."
                raise Refusal("invalid_event_for_transport", message, "type")
            case commands.FlushOutput():
                message = "output_audio_buffer.clear is for transports on which the server plays: cancel the response."
                raise Refusal("invalid_event_for_transport", message, "type")

    async def _show(self, item: Item) -> None:
        """Its sound is megabytes, perhaps: those are made ready in a thread."""
        sounds = await self._house.slices.aside(lambda: sounds_of(item)) if is_long(item) else sounds_of(item)
        self._tell(notices.ItemShown(item, sounds))

    def _edit(self, word: commands.DropItem | commands.CutItem) -> None:
        match word:
            case commands.DropItem(id):
                self._conversation.drop(id)
                self._tell(notices.ItemDropped(id))
            case commands.CutItem(id, content_index, audio_end_ms):
                heard = self._conversation.cut(id, content_index, audio_end_ms)
                self._tell(notices.ItemCut(id, content_index, audio_end_ms, heard))

    def _add(self, item: Item, after: str | None) -> None:
        self._tell(notices.ItemAdded(item, self._conversation.add(item, after)))

    def _configure(self, patch: dict[str, object]) -> None:
        """Merge the change; on a Refusal nothing has changed, unless it is of a tool that is not served."""
        offer = functions_only(patch, "session")
        options, unknown = session_options(self._options, offer.patch)
        check_settings(options, self._house.engine.model, "session")
        before, after = name_of(self._options.audio.output.voice), name_of(options.audio.output.voice)
        if self._answers.has_spoken and before != after:
            path = "session.audio.output.voice"
            raise Refusal("cannot_update_voice", "The voice can't change once the session has spoken.", path)
        if unknown:
            log("session.unknown_fields", session=self.id, fields=listed(unknown))
        hears = options.audio.input.transcription
        if hears is not None and hears.model not in (None, self._house.engine.model.name):
            log(
                "session.transcription_mapped",
                session=self.id,
                asked=hears.model[:200],
                loaded=self._house.engine.model.name,
            )
        if after not in self._house.engine.model.voice_ids:
            log("session.voice_mapped", session=self.id, asked=after[:200], loaded=self._house.voice(after))
        self._options = options
        self._answers.configure(options)
        self._microphone.configure(options)
        if options.parley.resume and self._ticket is None:
            self._ticket = self._new_ticket()
        self._tell(notices.SessionChanged(self._view()))
        tell_unreached(offer.servers, self._conversation, self._tell, self.id)
        if offer.refusal is not None:
            raise offer.refusal

    def _view(self) -> SessionView:
        view = session_view(self._house, self.id, self._expires_at_s, self._options)
        ticket = {} if self._ticket is None else {"resume_token": self._ticket}
        return dataclasses.replace(view, loaded={**view.loaded, **ticket})


def session_view(house: House, id: str, expires_at_s: int, options: Options) -> SessionView:
    """A session as its client sees it."""
    model, voice = house.engine.model, house.voice(name_of(options.audio.output.voice))
    loaded = {
        "model": model.name,
        "voice": voice,
        "voices": list(model.voice_ids),
        "voice_details": [msgspec.to_builtins(one) for one in model.voices],
        "examples": list(model.examples),
        "notes": list(model.notes),
    }
    return SessionView(id, expires_at_s, options, loaded)


def opening_options(model: ModelInfo, start: dict[str, Any], asked_model: str = "") -> Options:
    """What a session begins with: the defaults, as far as they depend on the model, and ``start`` merged in.

    Raises Refusal.
    """
    asked = asked_model or str(start.get("model") or "")[:200] or model.name
    kind = "transcription" if start.get("type") == "transcription" else "realtime"
    options = Options(type=kind, model=asked, output_modalities=["audio" if "speech" in model.abilities else "text"])
    audio, voice = options.audio, model.voices[0].id if model.voices else ""
    heard = replace(audio.input, transcription=Transcription()) if kind == "transcription" else audio.input
    options = replace(options, audio=replace(audio, input=heard, output=replace(audio.output, voice=voice)))
    offer = functions_only(start, "session")
    if offer.refusal is not None:
        raise offer.refusal
    opened = session_options(options, offer.patch)[0]
    check_settings(opened, model, "session")
    return opened
