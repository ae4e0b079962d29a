"""A conversation with a Realtime server from Python: ask, speak, listen, interrupt.

One task reads the channel from ``__aenter__`` on, so timestamps are arrival times. The transport is a
``ClientChannel``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, Self
from weakref import WeakSet

import orjson
import pybase64

from app.client.channel import ClientChannel, ClientError
from app.client.events import (
    AudioDelta,
    CallDone,
    Error,
    Event,
    PlaybackPaused,
    PlaybackResumed,
    ResponseCreated,
    ResponseDone,
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    TextDelta,
)
from app.client.microphone import Microphone
from app.client.reader import Events
from app.client.response import Response
from app.client.tool import Tool
from app.ids import new_id
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm

log = logging.getLogger(__name__)

Eagerness = Literal["low", "medium", "high", "auto"]
"""How soon a turn that may be over is answered: ``low`` gives the user time to think, ``high`` takes each pause for the
end.
"""

UNASKED = 100
"""Maximum number of responses to spoken turns that wait for ``answer``; the oldest is dropped first."""

PATIENCE_S = 15.0
"""Seconds of silence after which a spoken turn counts as unanswered. The slowest turn detection waits 8 s."""


class Client:
    """A session: ``async with Client(channel) as client:``. ``now`` returns monotonic seconds.

    With an ``eagerness``, spoken turns end by semantic turn detection; otherwise by the server's default.
    """

    def __init__(
        self,
        channel: ClientChannel,
        tools: Iterable[Tool] = (),
        eagerness: Eagerness | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session: dict[str, Any] = {}
        """The effective settings."""
        self._channel = channel
        self._eagerness = eagerness
        self._now = now
        self._microphone = Microphone(channel, now)
        self._tools = {tool.name: tool for tool in tools}
        self._asked: dict[str, Response] = {}  # by the event id of the request, until the server has assigned an id
        self._said: dict[str, Response] = {}  # by the event ids of the items that the response answers
        self._answers: dict[str, Response] = {}  # in progress, by the server's id
        self._unasked: deque[Response] = deque(maxlen=UNASKED)
        self._readers: WeakSet[Events] = WeakSet()  # readers that are no longer referenced disappear
        self._changed = asyncio.Event()
        self._cancellable: set[asyncio.Timeout] = set()  # of functions that the user's speech cancels
        self._lost: ClientError | None = None
        self._spoken_s = 0.0

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read(), name="client:read")
        try:
            await self._until(lambda: bool(self.session))
            if asked := self._asked_for():
                await self.configure(**asked)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close()

    async def configure(self, **session: Any) -> dict[str, Any]:
        """Change settings and return the effective ones. Raises ClientError if the server refuses."""
        events = self.events()
        event_id = await self.send("session.update", session={"type": "realtime", **session})
        async for event in events:
            if isinstance(event, SessionUpdated):
                return event.session
            if isinstance(event, Error) and event.event_id == event_id:
                raise ClientError(event.message, event.code)
        raise self._gone()

    def _asked_for(self) -> dict[str, Any]:
        """Return the settings to send at the start."""
        asked: dict[str, Any] = {}
        if self._tools:
            asked["tools"] = [tool.schema() for tool in self._tools.values()]
        if self._eagerness is not None:
            detection = {"type": "semantic_vad", "eagerness": self._eagerness}
            asked["audio"] = {"input": {"turn_detection": detection}}
        if "parley" in self.session and not self._channel.plays:
            asked["parley"] = {"pauses": True}
        return asked

    async def say(self, text: str, *pictures: bytes) -> None:
        """Add a user message: PNG or JPEG images, then text. It is not answered yet."""
        await self.send("conversation.item.create", item=_message(text, pictures))

    async def ask(self, text: str, *pictures: bytes, **response: Any) -> Response:
        """Send a message and wait for the answer, after the results of tools.

        Raises ClientError if the server refuses, or is lost. An answer that fails midway is returned, with ``error``.
        """
        return await self._with_tools(await self._answered(response, _message(text, pictures)), response)

    async def respond(self, **response: Any) -> Response:
        """Request an answer to the conversation, and wait until it is complete. Raises ClientError.

        A function required by ``tool_choice`` is called once; the answer to its result may be anything.
        """
        return await self._with_tools(await self._answered(response), response)

    async def speak(self, pcm: Pcm | bytes | bytearray | memoryview) -> None:
        """Send mono audio at SPEAKER_RATE_HZ in real time: 20 ms every 20 ms.

        ``pcm`` is int16 [samples], or the same samples as little-endian bytes. Raises ClientError for other samples.
        """
        await self._microphone.speak(pcm)

    def speech_ended(self) -> None:
        """Mark the end of speech: the time to the first audio of the answer counts from now."""
        self._spoken_s = self._now()

    async def answer(self, patience_s: float = PATIENCE_S) -> Response:
        """Wait for the next answer to a spoken turn, until it is complete.

        Until it starts, the client sends silence whenever nothing is spoken: a turn ends with silence, which a
        recording may lack. Raises ClientError, also if no answer starts within ``patience_s`` of silence.
        """
        if not self._unasked:
            await self._be_silent(patience_s)
        return await self._with_tools(await self._unasked.popleft().done(), {})

    @property
    def audible(self) -> bool:
        """Whether audible sound of an active answer has arrived."""
        return any(answer.ttfa_s is not None for answer in self._answers.values() if not answer.ended)

    async def interrupt(self) -> None:
        """Stop the active answers. The conversation keeps the part of each answer that was played."""
        for answer in [one for one in self._answers.values() if not one.ended]:
            await self.send("response.cancel", response_id=answer.id)
            if self._channel.plays:
                await self.send("output_audio_buffer.clear")
            elif answer.item_id is not None and answer.kept:
                played_ms = answer.player.played_samples(self._now()) * 1000 // SPEAKER_RATE_HZ
                where = {"item_id": answer.item_id, "content_index": 0, "audio_end_ms": played_ms}
                await self.send("conversation.item.truncate", **where)

    def events(self) -> Events:
        """Return an iterator over all events from now on."""
        events = Events()
        self._readers.add(events)
        if self._lost is not None:
            events.put(None)
        return events

    async def send(self, type: str, **fields: Any) -> str:
        """Send any event of the protocol and return its ``event_id``. Raises ClientError if the connection is lost."""
        fields.setdefault("event_id", new_id("event"))
        await self._channel.send({"type": type, **fields})
        return fields["event_id"]

    async def _answered(self, response: dict[str, Any], *items: dict[str, Any]) -> Response:
        """Request a response, after adding these items. The server echoes the request's id in the response's metadata.

        If the server refuses an item, the response is cancelled.
        """
        event_id, said = new_id("event"), {new_id("event"): item for item in items}
        answer = self._asked[event_id] = Response(self._now())
        self._said |= dict.fromkeys(said, answer)
        metadata = {**response.get("metadata", {}), "client_event_id": event_id}
        try:
            for name, item in said.items():
                await self.send("conversation.item.create", event_id=name, item=item)
            answer.begun_s = self._now()
            await self.send("response.create", event_id=event_id, response={**response, "metadata": metadata})
            await self._until(lambda: bool(answer.id) or answer.ended)
            if answer.failure is not None and not answer.ended:
                await self.send("response.cancel", response_id=answer.id)
            return await answer.done()
        finally:
            self._asked.pop(event_id, None)
            for name in said:
                self._said.pop(name, None)

    async def _with_tools(self, answer: Response, response: dict[str, Any]) -> Response:
        """Run the called functions in parallel, and return the answer to their results; stops if one of the functions
        is not ours.
        """
        while answer.calls and all(call.name in self._tools for call in answer.calls):
            calls = [(call, _arguments(call)) for call in answer.calls]
            results = await asyncio.gather(*(self._result(*call) for call in calls))
            answer = await self._answered(self._behind_calls(response), *results)
        return answer

    def _behind_calls(self, response: dict[str, Any]) -> dict[str, Any]:
        """Return the options of the response to tool results.

        The results are in the conversation, so ``input`` is dropped, and another tool call is optional.
        """
        again = {name: value for name, value in response.items() if name != "input"}
        if response.get("tool_choice", self.session.get("tool_choice")) != "none":
            again["tool_choice"] = "auto"
        return again

    async def _result(self, call: CallDone, arguments: dict[str, Any]) -> dict[str, Any]:
        output = await self._run(self._tools[call.name], arguments)
        return {"type": "function_call_output", "call_id": call.call_id, "output": output}

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """Return a function's result as JSON. The model receives its errors, so that the conversation continues."""
        deadline = asyncio.timeout(None)
        try:
            async with deadline:
                if tool.parley.get("on_interrupt") == "cancel":
                    self._cancellable.add(deadline)
                try:
                    return orjson.dumps(await tool.call(arguments)).decode()
                finally:
                    self._cancellable.discard(deadline)
        except Exception as error:
            log.warning("the tool %s failed", tool.name, exc_info=error)
            text = "cancelled, because the user spoke" if deadline.expired() else str(error)
            return orjson.dumps({"error": text or type(error).__name__}).decode()

    async def _read(self) -> None:
        """Receive events until the connection ends. Then fail the pending answers, and end all readers."""
        try:
            while True:
                self._take(await self._channel.receive(), self._now())
        except ClientError as error:
            self._lost = error
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # a field is missing or has another type
            self._lost = ClientError(f"the server sent an invalid event: {error!r}")
        finally:
            for answer in [*self._asked.values(), *self._answers.values()]:
                answer.fail(self._gone())
            for reader in self._readers:
                reader.put(None)
            self._changed.set()

    def _take(self, event: Event, now_s: float) -> None:
        match event:
            case SessionCreated(session=session) | SessionUpdated(session=session):
                self.session = session
            case ResponseCreated():
                self._begin(event, now_s)
            case TextDelta(response_id=id) | AudioDelta(response_id=id) | CallDone(response_id=id) if (
                id in self._answers
            ):
                self._answers[id].take(event, now_s)
            case ResponseDone() if event.id in self._answers:
                self._answers.pop(event.id).take(event, now_s)
            case PlaybackPaused():
                for answer in self._answers.values():
                    answer.player.pause(now_s)
            case PlaybackResumed():
                for answer in self._answers.values():
                    answer.player.resume(now_s)
            case SpeechStarted():
                for deadline in self._cancellable:
                    if not deadline.expired():  # a cancelled function may still clean up
                        deadline.reschedule(0.0)
            case Error() if event.event_id in self._asked:
                self._asked[event.event_id].fail(ClientError(event.message, event.code))
            case Error() if event.event_id in self._said:
                self._said[event.event_id].failure = ClientError(event.message, event.code)
            case _:
                pass
        for reader in self._readers:
            reader.put(event)
        self._changed.set()

    def _begin(self, event: ResponseCreated, now_s: float) -> None:
        name = (event.response.get("metadata") or {}).get("client_event_id", "")
        answer = self._asked.get(name)
        if answer is None:
            kept = event.response.get("conversation_id", "") is not None
            answer = Response(self._spoken_s or now_s, kept=kept)
            if kept:  # others are lines that the server speaks while tools run
                self._unasked.append(answer)
        answer.id = event.id
        answer.status = "in_progress"
        self._answers[event.id] = answer

    async def _be_silent(self, longest_s: float) -> None:
        """Send silence until a spoken turn is answered. Raises ClientError."""
        silent = asyncio.create_task(self._microphone.be_silent(longest_s), name="client:silent")
        silent.add_done_callback(lambda _: self._changed.set())
        try:
            await self._until(lambda: bool(self._unasked) or silent.done())
        finally:
            silent.cancel()
            lost = (await asyncio.gather(silent, return_exceptions=True))[0]
        if not self._unasked:
            if isinstance(lost, ClientError):
                raise lost
            raise ClientError(f"the server started no answer within {longest_s:g} s of silence", "no_answer")

    async def _until(self, true: Callable[[], bool]) -> None:
        """Wait until a condition holds, checking after each event. Raises ClientError if the connection ends first."""
        while not true():
            if self._lost is not None:
                raise self._gone()
            self._changed.clear()
            await self._changed.wait()

    def _gone(self) -> ClientError:
        return self._lost or ClientError("the session was closed", "connection_lost")

    async def _close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        if not self._reading.cancelled():
            self._reading.result()


def _arguments(call: CallDone) -> dict[str, Any]:
    """Return a call's arguments. Raises ClientError."""
    try:
        return orjson.loads(call.arguments or "{}")
    except ValueError:
        wrong = f"arguments that are not JSON: {call.arguments[:100]!r}"
        raise ClientError(f"the model called the tool {call.name} with {wrong}. Repeat the request") from None


def _message(text: str, pictures: Iterable[bytes]) -> dict[str, Any]:
    content = [{"type": "input_image", "image_url": _data_uri(picture)} for picture in pictures]
    content.append({"type": "input_text", "text": text})
    return {"type": "message", "role": "user", "content": content}


def _data_uri(picture: bytes) -> str:
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{pybase64.b64encode(picture).decode()}"
