"""LiveKit's agent session with its GPT-Live model and that model's defaults, between client.py's ends of a line.

The stream is cut into utterances by LiveKit itself; functions run on the backend that it delegates to.
"""

from __future__ import annotations

import asyncio
from typing import Any

import part
from client import Assistant, Loudspeaker, Microphone
from livekit import rtc
from livekit.agents import AgentSession
from livekit.plugins import openai


class LiveLoudspeaker(Loudspeaker):
    """Keeps what it played."""

    def __init__(self) -> None:
        super().__init__()
        self.sound = bytearray()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        self.sound += bytes(frame.data)
        await super().capture_frame(frame)


class User:
    def __init__(self, session: Any) -> None:
        self.session = session
        self.microphone, self.loudspeaker, self.agent = Microphone(), LiveLoudspeaker(), Assistant()
        self.report = part.Report()
        self._answers: asyncio.Queue[str] = asyncio.Queue()
        session.input.audio, session.output.audio = self.microphone, self.loudspeaker
        session.on("conversation_item_added", self._on_item)
        session.on("user_input_transcribed", self._on_heard)
        session.on("error", lambda event: self.report.errors.append(str(event.error)))

    async def answer(self) -> None:
        """The next answer to its end, as the conversation keeps it."""
        self.report.transcript = (await self._answers.get()).strip()
        self.report.audio_s = part.audible_s(self.loudspeaker.sound)

    def _on_item(self, event: Any) -> None:
        if event.item.type == "message" and event.item.role == "assistant" and event.item.text_content:
            self._answers.put_nowait(event.item.text_content)

    def _on_heard(self, event: Any) -> None:
        self.report.heard = event.transcript.strip()


async def play(task: part.Task) -> part.Report:
    model = openai.realtime.GPTLiveModel(base_url=f"http://{task.base}/v1", api_key="sk-none")
    async with AgentSession(llm=model, aec_warmup_duration=None) as session:
        user = User(session)
        await session.start(user.agent, record=False)
        await SCENARIOS[task.scenario](user, task)
        return user.report


async def text(user: User, task: part.Task) -> None:
    await user.session.generate_reply(user_input=part.PHRASE)
    await user.answer()


async def speak(user: User, task: part.Task) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(user.microphone.speak(task))
        await user.answer()


async def tool(user: User, task: part.Task) -> None:
    user.session.generate_reply(user_input=part.TOOL_CALL)
    await user.answer()
    (user.report.call,) = user.agent.calls


async def barge_in(user: User, task: part.Task) -> None:
    user.session.generate_reply(user_input=part.LONG)
    await user.loudspeaker.enough.wait()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(user.microphone.speak(task))
        await user.answer()
        spoken = user.report.transcript.split()
        assert spoken == [f"word{i}" for i in range(len(spoken))], spoken
        user.report.interrupted, user.report.interrupted_audio_s = len(spoken) < 200, user.report.audio_s
        user.loudspeaker.sound.clear()
        await user.answer()


SCENARIOS = {"live_text": text, "live_voice": speak, "live_tool": tool, "live_barge_in": barge_in}

part.run(play)
