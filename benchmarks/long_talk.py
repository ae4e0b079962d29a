"""Measure a long talk with a real language model: the facts that it remembers, and the cost of its summaries.

    python -m benchmarks.long_talk WEIGHTS.gguf [--turns 200] [--context 4096] [--summarize-at 0.75]

One user states twenty facts in turns 3 to 12, chats, and asks for the facts in the last twenty turns. The ears and the
voice are nano's. Between two turns the user is silent for ``--pause`` seconds.

failed turns         turns without an answer
summaries            by source: the model's, extracts of the user's sentences, and those dropped because a turn began
in the path          summaries that replaced older turns while a turn waited for its first word
facts in the prompt  of twenty, 10 turns before the end: in the summary, or in a message that the prompt contains
facts used           answers of the last twenty turns that name the fact
first sound          median of eleven spoken turns: 3 to 13, and the last ones
first word           median of the turns right after a new summary, whose prompts begin differently, and of the others
took                 minutes for the whole talk
"""

from __future__ import annotations

import asyncio
import math
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import yaml
from rich.console import Console

from app.bench.subject import running
from app.client import Client, Other, Response, ResponseCreated, TextDelta, connect
from benchmarks.program import parser

print_ = Console(width=160, highlight=False).print

FACTS = (
    ("My name is Anna.", "What is my name?", "anna"),
    ("I live in Hamburg.", "In which city do I live?", "hamburg"),
    ("My sister is called Carla.", "What is my sister called?", "carla"),
    ("My dog Rex is 7 years old.", "How old is my dog Rex?", "7|seven"),
    ("I was born in 1984.", "In which year was I born?", "1984"),
    ("My train leaves at 17:45.", "When does my train leave?", "17:45|5:45"),
    ("My doctor is called Okafor.", "What is my doctor called?", "okafor"),
    ("I work at Siemens.", "Where do I work?", "siemens"),
    ("My flat has the number 23.", "What number does my flat have?", "23"),
    ("I am allergic to penicillin.", "What am I allergic to?", "penicillin"),
    ("My favourite city is Lisbon.", "What is my favourite city?", "lisbon"),
    ("My son Ben is 4 years old.", "How old is my son Ben?", "4|four"),
    ("I drive a Volvo.", "Which car do I drive?", "volvo"),
    ("My garden has 12 apple trees.", "How many apple trees are in my garden?", "12|twelve"),
    ("My boss is called Maria.", "What is my boss called?", "maria"),
    ("I play the cello.", "Which instrument do I play?", "cello"),
    ("My wedding day is the 3rd of May.", "When is my wedding day?", "may"),
    ("My teacher was called Frank.", "What was my teacher called?", "frank"),
    ("I speak Portuguese.", "Which language do I speak?", "portuguese"),
    ("My locker has the code 4711.", "What is the code of my locker?", "4711"),
)
"""What the user says, the question for it, and a pattern of the right answer."""
CHAT = (
    "Tell me something about cats.", "Why is the sky blue?", "I think that is interesting.", "What is a volcano?",
    "How do I boil an egg?", "Tell me a joke.", "I would like to hear more about it.", "What is the capital of Spain?",
    "Name 3 animals that live in the sea.", "What should I cook tonight?", "That sounds good.",
)  # fmt: skip
EARLY = range(3, 14)
"""The first turns whose answers are spoken; the same number is spoken at the end."""
SPOKEN = {"max_output_tokens": 24}
WRITTEN = {**SPOKEN, "output_modalities": ["text"]}


@dataclass(slots=True)
class Talk:
    """What the talk has shown so far."""

    answers: list[Response] = field(default_factory=list[Response])
    said: list[str] = field(default_factory=list[str])
    summary: str = ""
    kept_from: int = 0
    """The first turn that prompts still contain."""
    sources: Counter[str] = field(default_factory=Counter[str])
    summarized: set[int] = field(default_factory=set[int])
    """The turns whose prompt is the first with a new summary, from 0."""
    word_ms: dict[int, float] = field(default_factory=dict[int, float])
    """From the start of a response to its first word, by turn from 0."""
    in_path: int = 0
    took_s: float = 0.0

    @property
    def failed(self) -> list[Response]:
        return [one for one in self.answers if one.status not in ("completed", "incomplete") or not one.text]

    @property
    def known(self) -> int:
        prompt = "\n".join((self.summary, *self.said[self.kept_from :]))
        return sum(fact in prompt for fact, _, _ in FACTS)


async def talk(url: str, turns: int, pause_s: float) -> tuple[Talk, int]:
    """Talk for ``turns`` turns. Returns the talk, and the facts in the prompt ten turns before its end."""
    found = Talk()
    known = 0
    begun_s = time.monotonic()
    spoken = {*EARLY, *range(turns - len(EARLY) + 1, turns + 1)}
    async with connect(url) as client:
        await client.configure(parley={"summaries": True})
        items = asyncio.create_task(_follow(client, found), name="follow")
        for turn in range(1, turns + 1):
            found.said.append(_line(turn, turns))
            asked = dict(SPOKEN if turn in spoken else WRITTEN)
            found.answers.append(await client.ask(found.said[-1], **asked))
            await asyncio.sleep(pause_s)
            if turn == turns - 10:
                known = found.known
            if turn % 20 == 0:
                minutes = (time.monotonic() - begun_s) / 60
                failed = len(found.failed)
                print_(f"turn {turn}: {found.known} facts in the prompt, {failed} failed turns, {minutes:.1f} minutes")
        items.cancel()
    found.took_s = time.monotonic() - begun_s
    return found, known


def _line(turn: int, turns: int) -> str:
    """Return what the user says in a turn, from 1."""
    chat = CHAT[turn % len(CHAT)]
    if 3 <= turn <= 12:
        return " ".join((*(fact for fact, _, _ in FACTS[2 * (turn - 3) : 2 * (turn - 2)]), chat))
    return FACTS[turn - turns - 1][1] if turn > turns - len(FACTS) else chat


async def _follow(client: Client, found: Talk) -> None:
    """Note each summary, and the turns that it replaces."""
    turn_of: dict[str, int] = {}
    waiting = False
    created_s = 0.0
    async for event in client.events():
        match event:
            case ResponseCreated():
                waiting = True
                created_s = time.monotonic()
            case TextDelta():
                if waiting:
                    found.word_ms[len(found.said) - 1] = 1000 * (time.monotonic() - created_s)
                waiting = False
            case Other("conversation.item.added", {"item": {"id": id, "role": "user"}}):
                turn_of[id] = len(found.said) - 1
            case Other("parley.conversation.summarized", tree):
                found.summary = tree["summary"]
                found.kept_from = turn_of[tree["first_item_id"]]
                found.sources[tree["source"]] += 1
                found.in_path += waiting
                found.summarized.add(len(found.said) - waiting)
            case _:
                pass


def report(found: Talk, known: int, dropped: int) -> None:
    answers = found.answers
    failed = found.failed
    used = sum(
        re.search(rf"\b({pattern})\b", answer.text, re.IGNORECASE) is not None
        for (_, _, pattern), answer in zip(FACTS, answers[-len(FACTS) :], strict=True)
    )
    early = _first_sound_ms(answers[EARLY.start - 1 : EARLY.stop - 1])
    late = _first_sound_ms(answers[-len(EARLY) :])
    print_(f"failed turns         {len(failed)} of {len(answers)}")
    for answer in failed:
        print_(f"                     {answer.status}: {answer.response.get('status_details')}", markup=False)
    print_(f"summaries            {dict(found.sources)}, dropped: {dropped}")
    print_(f"in the path          {found.in_path}")
    print_(f"facts in the prompt  {known} of {len(FACTS)}")
    print_(f"facts used           {used} of {len(FACTS)}")
    print_(f"first sound          {early:.0f} ms early, {late:.0f} ms late: {late / early:.2f}")
    after = [ms for turn, ms in found.word_ms.items() if turn in found.summarized]
    others = [ms for turn, ms in found.word_ms.items() if turn not in found.summarized]
    print_(f"first word           {_median(after):.0f} ms after {len(after)} summaries, else {_median(others):.0f} ms")
    print_(f"took                 {found.took_s / 60:.1f} minutes")


def _first_sound_ms(answers: list[Response]) -> float:
    return _median([1000 * answer.ttfa_s for answer in answers if answer.ttfa_s is not None])


def _median(values: list[float]) -> float:
    return median(values) if values else math.nan


def _dropped(url: str) -> int:
    with urlopen(f"{url.replace('ws', 'http', 1)}/metrics", timeout=5) as page:
        found = re.search(r'parley_summaries_total\{source="dropped"\} (\S+)', page.read().decode())
    return int(float(found[1])) if found else 0


def config(weights: Path, context: int, summarize_at: float) -> dict[str, Any]:
    """Return the deployment: the language model between nano's ears and nano's voice."""
    thinker = {"name": "thinker", "use": "llm.llamacpp", "weights": str(weights), "max_batch": 2}
    voice = [{"name": "talker", "use": "nano.talker"}, {"name": "code2wav", "use": "nano.code2wav"}]
    return {
        "stages": [{"name": "ears", "use": "nano.ears"}, {**thinker, "options": {"context": context}}, *voice],
        "server": {"summarize_at": summarize_at},
    }


def main() -> None:
    made = parser(__doc__)
    made.add_argument("weights", type=Path)
    made.add_argument("--turns", type=int, default=200)
    made.add_argument("--context", type=int, default=4096)
    made.add_argument("--summarize-at", type=float, default=0.75)
    made.add_argument("--pause", type=float, default=0.5)
    made.add_argument("--log", type=Path, metavar="FILE", help="append the server's output here")
    given = made.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long_talk.yaml"
        path.write_text(yaml.safe_dump(config(given.weights, given.context, given.summarize_at)), encoding="utf-8")
        with running(str(path), log=given.log) as server:
            found, known = asyncio.run(talk(server.url, given.turns, given.pause))
            report(found, known, _dropped(server.url))


if __name__ == "__main__":
    main()
