"""Dialogues from templates: what people say to nano and what it answers. All text that the thinker learns from.

For the ears (grammar or language model):
  ``user_templates()``     kind -> templates. Syntax: ``(a|b|)`` one of the alternatives, the empty one makes it
                           optional (nesting allowed); ``{slot}`` is a slot. Lowercase words only.
  ``SLOTS``                slot -> the values it takes by voice. ``{words}`` is one to four of ``{word}``.
  ``heard_templates()``    the same and IN_CONVERSATION: what needs a picture, a tool or an earlier turn.
  ``sample_heard(rng)``    something that those can say.
  ``sample_request(rng)``  -> Request(text, expect): an in-domain utterance as plain lowercase words.
  ``spoken_vocabulary()``  every word that such an utterance can contain.
For the thinker:
  ``sample_dialogue(rng)`` -> Dialogue of one to three turns, typed and spoken forms mixed, refusals included; or a
                           drill. What is no text in an answer stands as private-use characters (``answers``).
For evaluations:
  ``answers_rightly(expect, answer) -> bool`` the judge; ``read_requests(path)`` the committed sets;
  ``evaluation_texts()`` what no sampler here may return (compared by ``plain_words``).

It knows no token, no tensor and no audio.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from engine.training.nano.acting import acting_dialogue, declared
from engine.training.nano.answers import answer_to
from engine.training.nano.judge import answers_rightly
from engine.training.nano.looking import looking_dialogue
from engine.training.nano.remembering import remembering_dialogue
from engine.training.nano.requests import (
    SLOTS,
    addressed,
    answered,
    expect_of,
    heard_templates,
    refused,
    sample_heard,
    sample_request,
    spoken_vocabulary,
    typed_request,
    user_templates,
)
from engine.training.nano.templates import REQUESTS, TYPED_ONLY
from engine.training.nano.turns import (
    EVAL,
    Dialogue,
    Request,
    Turn,
    allowed,
    as_typed,
    evaluation_texts,
    expand,
    read_requests,
)

__all__ = [
    "EVAL", "SLOTS", "Dialogue", "Request", "Turn", "allowed", "answers_rightly", "evaluation_texts", "expand",
    "expect_of", "heard_templates", "read_requests", "sample_dialogue", "sample_heard", "sample_request",
    "spoken_vocabulary", "stream", "user_templates",
]  # fmt: skip

SHARES = {"looking": 34, "remembering": 20, "acting": 16, "drill": 12, "single": 10, "mixed": 8}
"""How many of a hundred dialogues are of each kind."""
DECLARED = 0.15
"""How many of the dialogues about something else have tools declared."""


def sample_dialogue(rng: random.Random) -> Dialogue:
    """One to six turns as the thinker will see them; later turns can refer to earlier ones. Or a drill."""
    kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
    if kind == "acting":
        return acting_dialogue(rng, lambda: _aside(rng))
    dialogue = _dialogue(rng, kind)
    if rng.random() > DECLARED:
        return dialogue
    tools = declared(rng)
    return tuple(replace(turn, tools=tools) for turn in dialogue)


def _dialogue(rng: random.Random, kind: str) -> Dialogue:
    match kind:
        case "looking":
            return looking_dialogue(rng, lambda: _aside(rng))
        case "remembering":
            return remembering_dialogue(rng, lambda: _aside_or_look(rng))
        case "drill":
            return _drill(rng)
        case "single":
            return (_turn(rng, ()),)
        case _:
            turns: Dialogue = ()
            for _ in range(rng.choice((2, 2, 3))):
                turns = (*turns, _turn(rng, turns))
            return turns


def _drill(rng: random.Random) -> Dialogue:
    """Several exercises in a row: one hard ability, or requests of every kind and refusals in turn."""
    if rng.random() < 0.5:
        turns = tuple(answered(rng, _mixed_request(rng)) for _ in range(rng.randint(3, 6)))
        return tuple(turn for turn in turns if turn.request.expect["kind"] != "name_unknown") or turns
    kinds = rng.choices((("sum", "minus"), ("sum",), ("minus",), ("spell", "repeat")), weights=(4, 2, 2, 2))[0]
    return tuple(answered(rng, typed_request(rng, rng.choice(kinds))) for _ in range(rng.randint(3, 6)))


def _mixed_request(rng: random.Random) -> Request:
    if rng.random() < 0.25:
        return refused(rng)
    return as_typed(rng, addressed(rng, sample_request(rng, rng.choice(list(REQUESTS)))))


def _aside(rng: random.Random) -> Turn:
    """An exchange about nothing that was said or shown before."""
    while True:
        turn = _turn(rng, ())
        if turn.request.expect["kind"] not in ("see", "unheard", "user_name", "name_unknown"):
            return turn


def _aside_or_look(rng: random.Random) -> Turn:
    """The same, or a picture with a question about it."""
    if rng.random() > 0.3:
        return _aside(rng)
    while (looked := looking_dialogue(rng, lambda: _aside(rng))[0]).scene is None:
        pass
    return looked


def _turn(rng: random.Random, before: Dialogue) -> Turn:
    """The next exchange after those ``before``."""
    roll = rng.random()
    if roll < 0.03:
        return Turn(Request("", {"kind": "unheard"}), answer_to(rng, {"kind": "unheard"}), unheard=True)
    if before and roll < 0.10:
        return _again_turn(rng, before)
    if before and roll < 0.15:
        return _name_turn(rng, before)
    if roll < 0.30:
        request = refused(rng)
    elif roll < 0.60:
        request = addressed(rng, sample_request(rng))
    else:
        request = typed_request(rng)
    if before and request.expect["kind"] == "name_unknown":
        return _name_turn(rng, before)
    return answered(rng, request)


def _again_turn(rng: random.Random, before: Dialogue) -> Turn:
    text = expand(rng, rng.choice(TYPED_ONLY["again"]))
    shown = before[-1].answer
    if not shown.isascii():
        return _turn(rng, before)
    request = Request(text, {"kind": "repeat", "words": shown})
    return Turn(request, shown) if allowed(request) else _turn(rng, before)


def _name_turn(rng: random.Random, before: Dialogue) -> Turn:
    """The user asks for the name that an earlier turn gave, or that none did."""
    request = sample_request(rng, "ask_name")
    names = [t.request.expect["name"] for t in before if t.request.expect["kind"] == "user_name"]
    if names:
        return Turn(request, f"Your name is {str(names[-1]).title()}.")
    return Turn(request, answer_to(rng, request.expect))


def stream(seed: int) -> Iterator[Dialogue]:
    """Dialogues without end, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        yield sample_dialogue(rng)
