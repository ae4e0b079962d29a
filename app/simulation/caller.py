"""A caller in a session: speaks, types, stays silent and interrupts in real time. The microphone is always on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np

from app.client import Client, ClientError, Events, connect
from app.simulation.listener import CallListener, TurnRecord
from app.simulation.scenario import CallerTurn, Scenario
from app.simulation.speech import CallerSpeech
from engine import SPEAKER_RATE_HZ

LISTEN_S = 3.0
"""Seconds for which the caller listens to find out that there is no answer."""

SILENCE = np.zeros(SPEAKER_RATE_HZ // 50, np.int16)
"""20 ms, so that speech can begin at any time."""


class Caller:
    """A caller in an open session. ``now`` returns monotonic seconds."""

    def __init__(
        self, client: Client, listener: CallListener, speech: CallerSpeech, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._listener = listener
        self._speech = speech
        self._now = now
        self._changed = asyncio.Event()
        self._is_lost = False

    async def take(self, turn: CallerTurn, following: CallerTurn | None = None) -> TurnRecord:
        """Take a turn, and listen until its answer is over or ``following`` must interrupt it. Raises ClientError.

        A turn that exceeds its ``limit_s`` ends with a failure.
        """
        over = self._listener.playing(self._now()) if turn.barge_in_ms is not None else None
        if turn.barge_in_ms is None:
            await asyncio.sleep(turn.wait_s)
        record = self._listener.begin(str(turn), self._now(), over)
        try:
            async with asyncio.timeout(turn.limit_s):
                await self._express(turn, record)
                await self._listen(turn, following)
        except TimeoutError:
            record.failure = f"the turn with its answer was not over after {turn.limit_s:g} s"
        self._check_connection()
        record.ended_s = self._now()
        return record

    async def _express(self, turn: CallerTurn, record: TurnRecord) -> None:
        if turn.say or turn.audio is not None:
            pcm = await self._speech.of(turn)
            record.begun_s = self._now()
            await self._client.speak(pcm)
        elif turn.type is not None:
            await self._client.say(turn.type)
            record.turn_over_s = self._now()
            await self._client.send("response.create")
        record.turn_over_s = self._now()

    async def _listen(self, turn: CallerTurn, following: CallerTurn | None) -> None:
        if following is not None and following.barge_in_ms is not None:
            await self._hear_until(following.barge_in_ms / 1000)
        elif turn.silence_s is not None:
            await asyncio.sleep(turn.silence_s)
            await self._hear_out()
        elif turn.needs_answer:
            await self._until(self._is_answered)
            await self._hear_out()
        else:
            await self._hear_out()
            await asyncio.sleep(LISTEN_S)
            await self._hear_out()

    def _is_answered(self) -> bool:
        turn = self._listener.turns[-1]
        return bool(turn.answers or turn.errors)

    async def _hear_until(self, after_s: float) -> None:
        """Wait until an answer has been audible for ``after_s``, or is over."""
        await self._until(lambda: self._is_answered() and (self._is_playing() or self._is_over()))
        answer = self._listener.playing(self._now())
        if answer is not None and (audible_s := answer.player.audible_s) is not None:
            await asyncio.sleep(audible_s + after_s - self._now())

    def _is_playing(self) -> bool:
        return self._listener.playing(self._now()) is not None

    def _is_over(self) -> bool:
        return self._listener.left_s(self._now()) is not None

    async def _hear_out(self) -> None:
        """Wait until all answers of the turn have been heard."""
        while (left_s := self._listener.left_s(self._now())) != 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._news()

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self._news()

    async def _news(self) -> None:
        """Wait for the next event. Raises ClientError if the connection is lost."""
        self._check_connection()
        self._changed.clear()
        await self._changed.wait()

    def _check_connection(self) -> None:
        if self._is_lost:
            raise ClientError("the server closed the connection during the call", "connection_lost")

    async def follow(self, events: Events) -> None:
        """Take all events until the connection ends."""
        with suppress(ClientError):
            async for event in events:
                for reply in self._listener.take(event, self._now()):
                    await self._client.send(**reply)
                self._changed.set()
        self._is_lost = True
        self._changed.set()

    async def stay_silent(self) -> None:
        """Send silence whenever the caller does not speak, until the connection ends."""
        with suppress(ClientError):
            while True:
                await self._client.speak(SILENCE)


@asynccontextmanager
async def calling(
    url: str, key: str | None, scenario: Scenario, listener: CallListener, speech: CallerSpeech
) -> AsyncGenerator[Caller]:
    """Open a session for a scenario while the block lasts. Raises ClientError if the server refuses it."""
    async with connect(url, model="simulation", key=key, eagerness=None) as client:
        if settings := _settings(scenario):
            await client.configure(**settings)
        caller = Caller(client, listener, speech)
        tasks = [
            asyncio.create_task(caller.follow(client.events()), name="simulation:follow"),
            asyncio.create_task(caller.stay_silent(), name="simulation:microphone"),
        ]
        try:
            yield caller
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def _settings(scenario: Scenario) -> dict[str, Any]:
    settings = dict(scenario.session)
    if scenario.instructions is not None:
        settings["instructions"] = scenario.instructions
    if scenario.tools:
        described = [
            {"type": "function", "name": one.name, "description": one.description, "parameters": dict(one.parameters)}
            for one in scenario.tools
        ]
        settings["tools"] = described
    return settings
