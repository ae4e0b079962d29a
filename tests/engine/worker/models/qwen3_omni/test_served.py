"""A server under load, over HTTP: every answer is the sound that the reference makes of the question."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from app.bench import subject
from app.commands.server import Address
from app.media.videos import decode_video
from engine.worker.omni.thinker import CAMERA
from tests.app.media.test_videos import url, video
from tests.engine.worker.models.qwen3_omni.cases import Folder, Reference
from tests.engine.worker.models.served import questions, sounds
from tests.oracles.qwen3_omni import Video

ASKED = ("Hello, how are you today?", "Count: one two three", "What do you see?")
FRAMES, TOKENS = 12, 8
CLIP = video(1.6, size=(96, 64))
CHANGES = {"server.limits.answer_s": FRAMES * 0.08, "server.limits.answers_share": 1.0}


async def watched(root: str, data: bytes) -> str:
    """The server's answer to a video, in writing."""
    part = {"type": "video_url", "video_url": {"url": url(data)}}
    body = {"model": "any", "temperature": 0, "max_completion_tokens": TOKENS}
    async with httpx.AsyncClient(base_url=root, timeout=60) as http:
        answer = await http.post(
            "/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": [part]}]}
        )
    return answer.json()["choices"][0]["message"]["content"]


@pytest.mark.timeout(300)  # a server is started, on whatever machine
async def test_every_answer_under_load_is_the_references(checkpoint: Folder, oracle: Reference) -> None:
    folder, reference = checkpoint("plain"), oracle("plain")
    with subject.running("qwen3_omni_tiny", changes={"weights": str(folder), **CHANGES}) as server:
        waves = await sounds(server.url, questions(ASKED, TOKENS), at_once=(6,), rate=20.0, count=12)
        seen = await watched(Address(server.url).root, CLIP)
    for text, wave in zip(ASKED, waves, strict=True):
        said = reference.answer([("user", [text])], TOKENS, FRAMES)
        assert np.abs(wave - reference.sound(said.codes)).max() < 1e-3, "16 bits on the wire"

    shown = decode_video(CLIP, 10, CAMERA)
    answer = reference.answer([("user", [Video(shown.frames, shown.fps, shown.pcm)])], TOKENS, 1)
    assert seen == reference.tokenizer.decode(answer.ids, skip_special_tokens=True), "a video with its sound, by HTTP"
