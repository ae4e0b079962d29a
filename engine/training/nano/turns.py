"""Requests and turns, the parts of a dialogue, and the texts that training must exclude."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from engine.training.nano.answers import Reply
from engine.training.nano.judge import Expect, plain_words
from engine.training.nano.lexicon import is_held_out_pair
from engine.worker.models.nano.scene import Scene

EVAL = Path(__file__).parent / "eval"
COMMON = 4
"""Turns of held-out dialogues with fewer words ("and blue", "no, twenty") are too common to exclude from training."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a user says or types, and the right answer."""

    text: str
    expect: Expect


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange.

    ``reply`` is the thinker's output. ``scene`` is the recognized content of a picture that came with the request
    (None: no picture). ``tools`` names the skills that the client declared, the same in every turn of a dialogue.
    ``called`` is the call of a client's tool before the reply, ``result`` what the tool returned. ``topic`` is the
    object of a question about a picture, for later turns.
    """

    request: Request
    reply: Reply
    scene: Scene | None = None
    tools: tuple[str, ...] = ()
    called: str = ""
    result: str = ""
    topic: str = ""


Dialogue = tuple[Turn, ...]


def saying(text: str, answer: str) -> Turn:
    """Return a turn whose only right answer is exactly this text."""
    return Turn(Request(text, {"kind": "says", "text": answer}), Reply(answer))


def calling(text: str, call: str, topic: str = "") -> Turn:
    """Return a turn that one of nano's own tools answers."""
    return Turn(Request(text, {"kind": "called"}), Reply(call=call), topic=topic)


def expand(rng: random.Random, template: str) -> str:
    """Choose among a template's alternatives at random; slots stay."""
    while match := re.search(r"\(([^()]*)\)", template):
        choice = rng.choice(match[1].split("|"))
        template = template[: match.start()] + choice + template[match.end() :]
    return " ".join(template.split())


def dressed(rng: random.Random, text: str) -> str:
    """Sometimes add words of address; sometimes ask a question indirectly."""
    words = text.split()
    if len(words) < 3 or rng.random() > 0.3:
        return text
    if words[0] in ASKING and rng.random() < 0.4:
        return f"{rng.choice(INDIRECT)} {text}"
    first, last = (rng.choice(some) if rng.random() < 0.6 else "" for some in (BEFORE, AFTER))
    return f"{first} {text} {last}".strip()


ASKING = frozenset(["what", "which", "where", "how", "who", "is"])
INDIRECT = (
    "can you tell me", "please tell me", "tell me", "do you know", "could you tell me", "i want to know", "so tell me",
    "would you tell me", "i would like to know", "now tell me",
)  # fmt: skip
BEFORE = (
    "please", "nano", "so", "okay", "now", "well", "hey", "hey nano", "and", "then", "just", "so nano", "okay now",
    "would you", "i want you to",
)  # fmt: skip
AFTER = ("please", "now", "nano", "for me", "then", "right now", "please nano", "for me please", "now please")


def as_typed(rng: random.Random, request: Request) -> Request:
    """Return the request in typed form: capital letter, closing mark, sometimes contractions."""
    text = request.text
    if rng.random() < 0.5:
        text = text[:1].upper() + text[1:]
    if rng.random() < 0.3 and not text.endswith(("}", ".")):
        text += rng.choice("?.!")
    return replace(request, text=text)


def allowed(request: Request) -> bool:
    """Whether training may use this request: no evaluation prompt, no held-out pair of numbers."""
    a, b = request.expect.get("a"), request.expect.get("b")
    if isinstance(a, int) and isinstance(b, int) and request.expect.get("op") != "times" and is_held_out_pair(a, b):
        return False
    return " ".join(plain_words(request.text)) not in evaluation_texts()


def read_requests(path: Path) -> list[Request]:
    """Read an evaluation set: JSON lines with ``text`` and ``expect``, or plain lines to refuse."""
    lines = path.read_text().splitlines()
    if path.suffix == ".jsonl":
        return [Request(**json.loads(line)) for line in lines]
    return [Request(line, {"kind": "refuse"}) for line in lines]


def read_dialogues(path: Path) -> list[dict[str, Any]]:
    """Read held-out dialogues: JSON lines with ``kind``, ``tools`` and ``turns`` (see eval_dialogues)."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@cache
def evaluation_texts() -> frozenset[str]:
    """Return every prompt of the evaluation sets as plain words; of dialogues, the turns of at least COMMON words."""
    paths = sorted([*EVAL.glob("typed_*"), *EVAL.glob("spoken_*")])
    single = {" ".join(plain_words(r.text)) for path in paths for r in read_requests(path)}
    dialogues = [d for path in sorted(EVAL.glob("dialogues*.jsonl")) for d in read_dialogues(path)]
    said = [plain_words(turn["text"]) for dialogue in dialogues for turn in dialogue["turns"]]
    return frozenset(single | {" ".join(words) for words in said if len(words) >= COMMON})
