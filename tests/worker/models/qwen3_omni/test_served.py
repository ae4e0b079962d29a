"""A server under load, over HTTP: every answer is the sound that the reference makes of the question."""

from __future__ import annotations

import numpy as np
import pytest

from app.bench import subject
from app.bench.loads import Kind, Plan, loads
from app.bench.serve import Report
from app.commands.server import Address, Server
from engine import Message, Request, Sampling, TextPart
from tests.worker.models.qwen3_omni.cases import Folder, Reference

ASKED = ("Hello, how are you today?", "Count: one two three", "What do you see?")
FRAMES, TOKENS = 12, 8
CHANGES = {"server.limits.answer_s": FRAMES * 0.08, "server.limits.answers_share": 1.0}


@pytest.mark.timeout(300)  # a server is started, on whatever machine
async def test_every_answer_under_load_is_the_references(checkpoint: Folder, oracle: Reference) -> None:
    greedy = Sampling(greedy=True)
    requests = tuple(
        Request(
            id="", session="", messages=(Message("user", (TextPart(text),)),), sampling=greedy, voice="ethan",
            max_text_tokens=TOKENS,
        )
        for text in ASKED
    )  # fmt: skip
    folder, reference, report = checkpoint("plain"), oracle("plain"), Report()
    with subject.running("qwen3_omni_tiny", changes={"weights": str(folder), **CHANGES}) as server:
        async with Server(Address(server.url)) as asked:
            report.loads = await loads(asked, Plan(at_once=(6,), rate=20.0, count=12), Kind("answers", requests))
    assert [figure.value for figure in report.figures(exact=True)] == [0.0] * 4
    for text, wave in zip(ASKED, report.loads[0].alone, strict=True):
        said = reference.answer([("user", [text])], TOKENS, FRAMES)
        assert np.abs(wave - reference.sound(said.codes)).max() < 1e-3, "16 bits on the wire"
