"""What looks like an attack and is none: heavy use of a server, each beside a user who is answered meanwhile."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import ClientConnection, connect

from tests.attacks.target import Target, attacked
from tests.attacks.test_sizes import picture
from tests.attacks.test_small_items import until

pytestmark = pytest.mark.attacks

RATE_HZ = 24_000
QUESTION = "What is two plus three?"


async def send(socket: ClientConnection, type: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": type, **fields}))


async def say(socket: ClientConnection, *content: dict[str, Any]) -> None:
    await send(socket, "conversation.item.create", item={"type": "message", "role": "user", "content": content})
    await until(socket, "conversation.item.done")


async def answered(socket: ClientConnection) -> str:
    """The answer's words, once it is complete."""
    end = (await until(socket, "response.done"))["response"]
    assert end["status"] == "completed", end
    (part,) = end["output"][0]["content"]
    return part.get("transcript") or part["text"]


async def question(aim: Target) -> np.ndarray[Any, np.dtype[np.int16]]:
    """The question, spoken by the server's own voice: int16 [samples] at RATE_HZ."""
    body = {"model": "nano", "voice": "alloy", "input": QUESTION, "response_format": "pcm"}
    async with httpx.AsyncClient(base_url=aim.http, timeout=60) as http:
        return np.frombuffer((await http.post("/v1/audio/speech", json=body)).content, "<i2")


def schema(depth: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema(depth - 1)}} if depth else {"type": "string"}


async def test_long_instructions_deep_tools_and_thirty_pictures(tmp_path: Path) -> None:
    tools = [
        {"type": "function", "name": f"tool_{n}", "description": "Does it.", "parameters": schema(12)}
        for n in range(20)
    ]
    async with attacked(tmp_path, asks=True) as (aim, bystander, _), connect(aim.ws, max_size=None) as socket:
        await send(
            socket, "session.update",
            session={"type": "realtime", "instructions": "Be kind. " * 11_111, "tools": tools, "tool_choice": "none"},
        )  # fmt: skip
        await until(socket, "session.updated")
        for _ in range(30):
            await say(socket, {"type": "input_image", "image_url": picture(640, 480)})
        await say(socket, {"type": "input_text", "text": QUESTION})
        await send(socket, "response.create", response={"output_modalities": ["text"]})
        assert "5" in await answered(socket)
    print(bystander.waits)
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= 100


async def test_a_recording_of_five_minutes_and_a_minute_that_waited(tmp_path: Path) -> None:
    """One is uploaded, with the question at its end; the other comes at once over a socket, as after a sleep."""
    async with attacked(tmp_path) as (aim, bystander, _):
        asked = await question(aim)
        long = np.concatenate([np.zeros(299 * RATE_HZ - len(asked), np.int16), asked])
        file = io.BytesIO()
        soundfile.write(file, long, RATE_HZ, format="WAV")
        async with httpx.AsyncClient(base_url=aim.http, timeout=300) as http:
            upload = {"file": ("long.wav", file.getvalue(), "audio/wav")}
            heard = await http.post("/v1/audio/transcriptions", files=upload, data={"model": "nano"})
        assert "two plus three" in heard.json()["text"].lower(), heard.text
        async with connect(aim.ws, max_size=None) as socket:
            minute = np.concatenate([np.zeros(58 * RATE_HZ, np.int16), asked, np.zeros(2 * RATE_HZ, np.int16)])
            for at in range(0, len(minute), RATE_HZ // 50):
                piece = base64.b64encode(minute[at : at + RATE_HZ // 50].tobytes()).decode()
                await send(socket, "input_audio_buffer.append", audio=piece)
            assert "5" in await answered(socket)
    print(bystander.waits)
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= 100
