"""Questions to a server of a tiny checkpoint, under load. Knows no family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.commands.server import Address, RemoteServer
from benchmarks.loads import Kind, Plan, loads
from benchmarks.serve import Report
from engine import Message, Request, Sampling, TextPart


def questions(texts: Sequence[str], tokens: int, seed: int = 0) -> tuple[Request, ...]:
    """Typed questions, answered greedily in so many tokens at most."""
    return tuple(
        Request(
            id="", session="", messages=(Message("user", (TextPart(text),)),), voice="ethan",
            sampling=Sampling(greedy=True, seed=seed), max_text_tokens=tokens,
        )
        for text in texts
    )  # fmt: skip


async def sounds(url: str, requests: tuple[Request, ...], **plan: Any) -> Sequence[np.ndarray]:
    """The sound of each answer, float32 at 24 kHz; under load each has to be that one, whole, and nobody else's."""
    report = Report()
    async with RemoteServer(Address(url)) as asked:
        report.loads = await loads(asked, Plan(**plan), Kind("answers", requests))
    assert [figure.value for figure in report.figures(exact=True)] == [0.0] * 4
    return report.loads[0].alone
