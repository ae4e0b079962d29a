"""Compare the starter, its language model alone, and nano alone, on the first questions of new users.

    python -m benchmarks.first_questions [--config starter] [--only starter,model,nano] [--json FILE]

Asks the forty questions of ``first_questions.yaml``, each in a new conversation, and prints every answer with its
verdict: right, wrong, or open if only a reader can tell. The configuration's models must be installed (`parley pull
--config starter`). An answer that is cut off, or that says it does not know, is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from app.commands.deployment import deployment
from engine import Engine, EngineError, EngineSpec, Message, Request, StageSpec, Text, TextPart
from engine.chunk import Usage
from engine.core import IN_WRITING
from engine.worker.models.nano.sayings import BIGGER

QUESTIONS = Path(__file__).with_name("first_questions.yaml")
print_ = Console(width=160, highlight=False).print


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a first question, with its verdict."""

    question: str
    text: str
    verdict: str
    """right, wrong or open."""
    first_word_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="starter")
    parser.add_argument("--only", default="starter,model,nano")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    try:
        rated = {
            name: asyncio.run(answers(spec))
            for name, spec in subjects(deployment(given.config))
            if name in given.only.split(",")
        }
    except EngineError as error:
        sys.exit(f"error: {error}")
    for name, found in rated.items():
        report(name, found)
    if given.json:
        given.json.write_text(
            json.dumps({name: [asdict(one) for one in found] for name, found in rated.items()}, indent=1)
        )


def subjects(spec: EngineSpec) -> Iterator[tuple[str, EngineSpec]]:
    """Yield the configuration's thinker, the last model of its chain alone, and nano alone."""
    [thinker] = [stage for stage in spec.stages if stage.name == "thinker"]
    last = thinker.models[-1]
    model = StageSpec(name="thinker", use=last.use, weights=last.weights, options=last.options)
    for name, stage in (
        ("starter", thinker),
        ("model", model),
        ("nano", StageSpec(name="thinker", use="nano.thinker")),
    ):
        yield name, replace(spec, stages=(stage,), workers=())


async def answers(spec: EngineSpec) -> list[Answer]:
    """Ask all questions, one after the other."""
    async with Engine(spec) as engine:
        return [await answered(engine, f"q{n}", question) for n, question in enumerate(questions())]


def questions() -> list[dict[str, Any]]:
    return yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))


async def answered(engine: Engine, id: str, question: dict[str, Any]) -> Answer:
    message = Message("user", (TextPart(question["text"]),))
    request = Request(id=id, session=id, messages=(message,), wants=IN_WRITING)
    text, finish, first_word_ms = "", "", 0.0
    begun_s = time.monotonic()
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Text):
                first_word_ms = first_word_ms or 1000 * (time.monotonic() - begun_s)
                text += chunk.text
            elif isinstance(chunk, Usage):
                finish = chunk.finish
    return Answer(question["text"], text, verdict(question, text, finish), first_word_ms)


def verdict(question: dict[str, Any], text: str, finish: str) -> str:
    """Rate an answer against the expected pattern."""
    if finish == "length" or not text.strip() or text.endswith(BIGGER):
        return "wrong"
    if "right" not in question:
        return "open"
    now = datetime.now()
    key = question["right"].replace("{time}", f"{now.hour}:{now.minute:02}").replace("{weekday}", f"{now:%A}")
    return "right" if re.search(key, text, re.IGNORECASE | re.DOTALL) else "wrong"


def report(name: str, found: list[Answer]) -> None:
    for one in found:
        print_(f"{name:8} {one.verdict:6} {one.question} -> {' '.join(one.text.split())}", markup=False)
    counts = Counter(one.verdict for one in found)
    times = sorted(one.first_word_ms for one in found)
    print_(f"{name:8} {dict(counts)} of {len(found)}; first word p50 {times[len(times) // 2]:.0f} ms")


if __name__ == "__main__":
    main()
