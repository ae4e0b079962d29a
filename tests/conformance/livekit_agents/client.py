"""LiveKit's agent session with its OpenAI realtime plugin, between a microphone and a loudspeaker of this program.

No room and no LiveKit server: an agent session takes any audio input and output.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import part
from livekit import rtc
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.voice import io
from livekit.plugins import openai

PAUSE_S = 2.0
"""Silence after the user's words: semantic_vad, LiveKit's default, waits up to 1.5 s after such words."""


class Microphone(io.AudioInput):
    """Silent until its user speaks."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self._frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()

    async def speak(self, task: part.Task) -> None:
        async for piece in part.voice(task, PAUSE_S):
            self._frames.put_nowait(rtc.AudioFrame(piece, part.RATE_HZ, 1, len(piece) // 2))

    async def __anext__(self) -> rtc.AudioFrame:
        return await self._frames.get()


class Loudspeaker(io.AudioOutput):
    """Plays in real time, as a sound card would."""

    def __init__(self) -> None:
        super().__init__(label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False))
        self.audio_s = 0.0
        self.enough = asyncio.Event()
        self.interrupted = False
        self._began_s: float | None = None
        self._pushed_s = 0.0
        self._playing: asyncio.Task[None] | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if self._began_s is None:
            self._began_s = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self._pushed_s += frame.duration
        self.audio_s += frame.duration
        if self.audio_s >= part.ENOUGH_S:
            self.enough.set()

    def flush(self) -> None:
        super().flush()
        if self._began_s is not None:
            self._playing = asyncio.create_task(self._play_out(self._began_s))

    async def _play_out(self, began_s: float) -> None:
        await asyncio.sleep(max(0.0, began_s + self._pushed_s - time.monotonic()))
        self._finish(interrupted=False)

    def clear_buffer(self) -> None:
        if self._playing is not None:
            self._playing.cancel()
        if self._began_s is not None:
            self.interrupted = True
            self._finish(interrupted=True)

    def _finish(self, interrupted: bool) -> None:
        assert self._began_s is not None
        played_s = min(self._pushed_s, time.monotonic() - self._began_s)
        self._began_s, self._pushed_s, self._playing = None, 0.0, None
        self.on_playback_finished(playback_position=played_s, interrupted=interrupted)


class Assistant(Agent):
    def __init__(self) -> None:
        super().__init__(instructions="Be brief.")
        self.calls: list[dict[str, str]] = []

    @function_tool
    async def get_weather(self, city: str) -> str:
        """The weather in a city."""
        self.calls.append({"name": "get_weather", "arguments": json.dumps({"city": city})})
        return f"sunny in {city}"


class User:
    """Whoever talks to the agent, and what he got of its answers."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.microphone, self.loudspeaker, self.agent = Microphone(), Loudspeaker(), Assistant()
        self.report = part.Report()
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        session.input.audio, session.output.audio = self.microphone, self.loudspeaker
        session.on("conversation_item_added", self._on_item)
        session.on("user_input_transcribed", self._on_heard)
        session.on("error", self._on_error)

    async def start(self) -> None:
        await self.session.start(self.agent, record=False)
        self.agent.realtime_llm_session.on("openai_server_event_received", self._on_wire)

    async def answer(self) -> None:
        """The next answer to its end, as the conversation keeps it."""
        self.report.transcript = await self._answers.get()

    def _on_item(self, event: Any) -> None:
        if event.item.type == "message" and event.item.role == "assistant" and event.item.text_content:
            self._answers.put_nowait(event.item.text_content)

    def _on_heard(self, event: Any) -> None:
        if event.is_final:
            self.report.heard = event.transcript

    def _on_wire(self, event: Any) -> None:
        if event["type"] == "conversation.item.truncated":
            self.report.cut_ms = event["audio_end_ms"]

    def _on_error(self, event: Any) -> None:
        self.report.errors.append(str(event.error))


async def play(task: part.Task) -> part.Report:
    model = openai.realtime.RealtimeModel(base_url=f"http://{task.base}/v1", api_key="sk-none", voice="marin")
    # This loudspeaker has no echo that would have to be learnt before the user may interrupt.
    async with AgentSession(llm=model, aec_warmup_duration=None) as session:
        user = User(session)
        await user.start()
        await SCENARIOS[task.scenario](user, task)
        user.report.audio_s = user.report.audio_s or user.loudspeaker.audio_s
        return user.report


async def text(user: User, task: part.Task) -> None:
    await user.session.generate_reply(user_input=part.PHRASE)
    await user.answer()


async def speak(user: User, task: part.Task) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(user.microphone.speak(task))
        await user.answer()


async def tool(user: User, task: part.Task) -> None:
    await user.session.generate_reply(user_input=part.TOOL_CALL)
    await user.answer()
    (user.report.call,) = user.agent.calls


async def barge_in(user: User, task: part.Task) -> None:
    user.session.generate_reply(user_input=part.LONG)
    await user.loudspeaker.enough.wait()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(user.microphone.speak(task))
        await user.answer()
        user.report.interrupted = user.loudspeaker.interrupted
        user.report.interrupted_audio_s = user.loudspeaker.audio_s
        await user.answer()
        user.report.audio_s = user.loudspeaker.audio_s - user.report.interrupted_audio_s


async def truncation(user: User, task: part.Task) -> None:
    """The plugin itself says how much was played; the user then asks what that was."""
    await barge_in(user, task)
    await user.session.generate_reply(user_input=part.RECALL)
    await user.answer()


SCENARIOS = {"text": text, "voice": speak, "tool": tool, "barge_in": barge_in, "truncate": truncation}

if __name__ == "__main__":
    part.run(play)
