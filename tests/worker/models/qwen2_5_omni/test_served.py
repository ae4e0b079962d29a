"""A server under load, over HTTP: every answer is the sound of the reference's codes."""

from __future__ import annotations

import numpy as np
import pytest

from app.bench import subject
from app.bench.loads import Kind, Plan, loads
from app.bench.serve import Report
from app.commands.server import Address, Server
from engine import Message, Request, Sampling, TextPart
from engine.worker.models.qwen2_5_omni.code2wav import Code2Wav
from engine.worker.stage import StageConfig
from tests.worker.models.qwen2_5_omni.cases import Folder, Reference
from tests.worker.models.qwen2_5_omni.test_sound import SEED, streamed

ASKED = ("Hello, how are you today?", "Count: one two three", "What do you see?")
CODES, TOKENS = 40, 6
CHANGES = {"server.limits.answer_s": CODES * 0.02, "server.limits.answers_share": 1.0}


@pytest.mark.timeout(300)  # a server is started, on whatever machine
async def test_every_answer_under_load_is_the_references(checkpoint: Folder, oracle: Reference) -> None:
    requests = tuple(
        Request(
            id="", session="", messages=(Message("user", (TextPart(text),)),), voice="ethan",
            sampling=Sampling(greedy=True, seed=SEED), max_text_tokens=TOKENS,
        )
        for text in ASKED
    )  # fmt: skip
    folder, reference, report = checkpoint("plain"), oracle("plain"), Report()
    with subject.running("qwen2_5_omni_tiny", changes={"weights": str(folder), **CHANGES}) as server:
        async with Server(Address(server.url)) as asked:
            report.loads = await loads(asked, Plan(at_once=(4,), rate=20.0, count=6), Kind("answers", requests))
    assert [figure.value for figure in report.figures(exact=True)] == [0.0] * 4
    stage, compared = Code2Wav(StageConfig(folder, slots=1)), 0
    for text, wave in zip(ASKED, report.loads[0].alone, strict=True):
        said = reference.answer([("user", [text])], TOKENS, CODES)
        codes = said.codes[:, 0].astype(np.int64)
        compared += len(codes)
        sound = streamed(stage, [[len(codes)]], codes)[0]
        assert wave.shape == sound.shape
        assert np.abs(wave - sound).max() < 1e-3, "16 bits on the wire"
    assert compared > 40, "it would prove nothing"
