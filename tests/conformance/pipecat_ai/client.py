"""Pipecat's OpenAI realtime service in a pipeline, between a microphone and a loudspeaker that this program plays."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import part
from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
    OutputAudioRawFrame,
    StartFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner


class Microphone(BaseInputTransport):
    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def speak(self, task: part.Task) -> None:
        async for piece in part.voice(task):
            await self.push_audio_frame(InputAudioRawFrame(audio=piece, sample_rate=part.RATE_HZ, num_channels=1))


class Loudspeaker(BaseOutputTransport):
    """Plays in real time, as a sound card would."""

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        await asyncio.sleep(part.seconds(frame.audio))
        return True


class Service(OpenAIRealtimeLLMService):
    """The service itself, and a look at what it sends."""

    cut_ms: int | None = None

    async def send_client_event(self, event: events.ClientEvent) -> None:
        if isinstance(event, events.ConversationItemTruncateEvent):
            self.cut_ms = event.audio_end_ms
        await super().send_client_event(event)


class User(BaseObserver):
    """What the user gets: the frames that the service pushes, and the answers that it says are complete."""

    def __init__(self, llm: Service) -> None:
        super().__init__(observe_every_push=False)
        self.report = part.Report()
        self.audio_s = 0.0
        self.news = asyncio.Condition()
        self._answers: dict[str, str] = {}
        self._taken = 0
        llm.add_event_handler("on_conversation_item_updated", self._on_item)

    async def on_push_frame(self, data: FramePushed) -> None:
        frame: Frame = data.frame
        match frame:
            case TTSAudioRawFrame() if isinstance(data.source, Service):
                self.audio_s += part.seconds(frame.audio)
            case TranscriptionFrame():
                self.report.heard = frame.text
            case InterruptionFrame():
                self.report.interrupted = True
            case ErrorFrame():
                self.report.errors.append(frame.error)
            case _:
                return
        async with self.news:
            self.news.notify_all()

    async def _on_item(self, _service: Any, item_id: str, item: Any) -> None:
        if item is not None and item.role == "assistant" and item.status == "completed":
            self._answers[item_id] = item.content[0].transcript
            async with self.news:
                self.news.notify_all()

    async def until(self, true: Any) -> None:
        async with self.news:
            await self.news.wait_for(true)

    async def answer(self) -> None:
        """The next complete answer."""
        before_s = self.audio_s
        self._taken += 1
        await self.until(lambda: len(self._answers) >= self._taken)
        self.report.transcript = list(self._answers.values())[-1]
        self.report.audio_s = self.audio_s - before_s


WEATHER = FunctionSchema("get_weather", "The weather in a city.", {"city": {"type": "string"}}, ["city"])
OPENINGS = {"text": part.PHRASE, "tool": part.TOOL_CALL, "barge_in": part.LONG, "truncate": part.LONG}


async def play(task: part.Task) -> part.Report:
    properties = events.SessionProperties(
        audio=events.AudioConfiguration(
            input=events.AudioInput(
                transcription=events.InputAudioTranscription(), turn_detection=events.TurnDetection()
            )
        )
    )
    settings = Service.Settings(system_instruction="Be brief.", session_properties=properties)
    llm = Service(api_key="sk-none", base_url=task.realtime, settings=settings)
    user = User(llm)
    llm.register_function("get_weather", lambda call: weather(call, user))
    params = TransportParams(
        audio_in_enabled=True, audio_out_enabled=True, audio_in_sample_rate=part.RATE_HZ, audio_out_end_silence_secs=0
    )
    microphone, loudspeaker = Microphone(params), Loudspeaker(params)
    opening = OPENINGS.get(task.scenario)
    messages: Any = [{"role": "user", "content": opening}] if opening else []
    context = LLMContext(messages, tools=ToolsSchema(standard_tools=[WEATHER]))
    aggregators = LLMContextAggregatorPair(context)
    pipeline = Pipeline([microphone, aggregators.user(), llm, loudspeaker, aggregators.assistant()])
    rates = PipelineParams(audio_in_sample_rate=part.RATE_HZ, audio_out_sample_rate=part.RATE_HZ)
    worker = PipelineWorker(pipeline, params=rates, observers=[user])
    started = asyncio.Event()
    worker.add_event_handler("on_pipeline_started", lambda *_: started.set())
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(runner.run())
        await started.wait()
        if opening:
            await worker.queue_frames([LLMRunFrame()])
        await SCENARIOS[task.scenario](user, microphone, llm, task)
        await worker.cancel()
        await running
    user.report.cut_ms = llm.cut_ms
    return user.report


async def weather(call: FunctionCallParams, user: User) -> None:
    user.report.call = {"name": call.function_name, "arguments": json.dumps(dict(call.arguments))}
    await call.result_callback(f"sunny in {call.arguments['city']}")


async def text(user: User, microphone: Microphone, llm: Service, task: part.Task) -> None:
    await user.answer()


async def speak(user: User, microphone: Microphone, llm: Service, task: part.Task) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone.speak(task))
        await user.answer()


async def barge_in(user: User, microphone: Microphone, llm: Service, task: part.Task) -> None:
    await user.until(lambda: user.audio_s >= part.ENOUGH_S)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone.speak(task))
        await user.until(lambda: user.report.interrupted)
        user.report.interrupted_audio_s = user.audio_s
        await user.answer()


async def truncation(user: User, microphone: Microphone, llm: Service, task: part.Task) -> None:
    """The service itself says how much was played; the user then asks what that was."""
    await barge_in(user, microphone, llm, task)
    content = [events.ItemContent(type="input_text", text=part.RECALL)]
    item = events.ConversationItem(type="message", role="user", content=content)
    await llm.send_client_event(events.ConversationItemCreateEvent(item=item))
    await llm.send_client_event(events.ResponseCreateEvent())
    await user.answer()


SCENARIOS = {"text": text, "voice": speak, "tool": text, "barge_in": barge_in, "truncate": truncation}

logger.remove()
logger.add(sys.stderr, level="INFO")
if __name__ == "__main__":
    part.run(play)
