"""LiteLLM's SDK, which translates for many providers: this server is OpenAI at another address."""

from __future__ import annotations

import base64
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it downloads prices when it is imported

import litellm
import part

litellm.telemetry = False


async def play(task: part.Task) -> part.Report:
    where = {"api_base": f"http://{task.base}/v1", "api_key": "sk-none"}
    return await SCENARIOS[task.scenario](task, where)


async def chat(task: part.Task, where: dict[str, str]) -> part.Report:
    messages = [{"role": "user", "content": part.PHRASE}]
    whole = await litellm.acompletion(model="openai/gpt-4o", messages=messages, **where)
    stream = await litellm.acompletion(model="openai/gpt-4o", messages=messages, stream=True, **where)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == whole.choices[0].message.content, pieces
    assert whole.usage.total_tokens > 0
    return part.Report(transcript=whole.choices[0].message.content)


async def speech(task: part.Task, where: dict[str, str]) -> part.Report:
    sound = await litellm.aspeech(model="openai/tts-1", voice="alloy", input=part.WORDS, **where)
    return part.Report(sound=base64.b64encode(sound.content).decode())


async def transcription(task: part.Task, where: dict[str, str]) -> part.Report:
    heard = await litellm.atranscription(model="openai/whisper-1", file=("speech.wav", part.wav(task)), **where)
    return part.Report(heard=heard.text)


SCENARIOS = {"chat": chat, "speech": speech, "transcription": transcription}

part.run(play)
