"""A server under load, over HTTP: what it speaks is what the stages say of the same text, stepped by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.bench import subject
from app.bench.loads import Kind, Plan, loads
from app.bench.serve import Report
from app.commands.server import Address, Server
from engine import Request, Sampling
from tests.oracles.qwen3_tts import BIG
from tests.oracles.tiny_qwen3_tts import Sizes
from tests.worker.models.qwen3_tts.driven import asked, say, stages, whole

TEXTS = ("Hello there, how are you?", "One two three.", "The rest of it is silence.")
CONTEXT = 64
"""Rows of an answer: random weights seldom stop by themselves."""
CHANGES = {"options.context": CONTEXT, "server.limits.answers_share": 1.0}


@pytest.mark.timeout(300)  # a server is started, on whatever machine
async def test_every_answer_under_load_is_what_the_stages_say(checkpoint: Callable[[Sizes], Path]) -> None:
    """Which the vendor's package says, too: test_reference."""
    folder, report = checkpoint(BIG), Report()
    requests = tuple(Request(id="", session="", messages=(), say=text, voice="ryan") for text in TEXTS)
    with subject.running("qwen3_tts_tiny", changes={"weights": str(folder), **CHANGES}) as server:
        async with Server(Address(server.url)) as asking:
            report.loads = await loads(asking, Plan(at_once=(6,), rate=20.0, count=12), Kind("ryan", requests))
    assert [figure.value for figure in report.figures(exact=True)] == [0.0] * 4
    line = stages(folder, slots=1, context=CONTEXT)
    for text, wave in zip(TEXTS, report.loads[0].alone, strict=True):
        (said,) = await say(line, (asked(frames=CONTEXT, voice="ryan", sampling=Sampling()), whole(text)))
        assert said.error == ""
        assert wave.shape == said.wave.shape
        assert np.abs(said.wave).max() > 0.01, "it would prove nothing"
        assert np.abs(wave - said.wave).max() < 1e-3, "16 bits on the wire"
