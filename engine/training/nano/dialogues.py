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
  ``sample_dialogue(rng)`` -> Dialogue of one to many turns, typed and spoken forms mixed, refusals included. What the
                           thinker writes is a saying, the user's words or a call (``answers.Reply``).
For evaluations:
  ``answers_rightly(expect, answer) -> bool`` the judge; ``read_requests(path)`` the committed sets;
  ``evaluation_texts()`` what no sampler here may return (compared by ``plain_words``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from engine.training.nano.acting import acting_dialogue, clock_dialogue, declared
from engine.training.nano.answers import SAID, Reply
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
from engine.training.nano.templates import REQUESTS
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

SHARES = {"looking": 28, "remembering": 24, "acting": 16, "drill": 12, "single": 18, "clock": 2}
"""Percentage of dialogues of each kind."""
DECLARED = 0.15
"""Share of conversations about something else that have tools declared."""
LONGEST = 12
"""Maximum turns of a conversation."""


def sample_dialogue(rng: random.Random) -> Dialogue:
    """Return a conversation of one or several dialogues, whose later turns refer to its own earlier ones."""
    tools = declared(rng) if rng.random() < DECLARED else ()
    turns: Dialogue = ()
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        kind = rng.choices(list(SHARES), list(SHARES.values()))[0]
        if kind == "acting" and not turns:
            turns = acting_dialogue(rng, lambda: _aside(rng))
            tools = turns[0].tools
        elif kind == "acting":
            turns += acting_dialogue(rng, lambda: _aside(rng), tools)
        else:
            turns += tuple(replace(turn, tools=tools) for turn in _dialogue(rng, kind))
        if len(turns) >= LONGEST or _open(turns[-1]):
            break
    return turns[:LONGEST]


def _open(turn: Turn) -> bool:
    """Return whether the turn ends with a call of a client's tool, after which nothing can follow."""
    return turn.request.expect["kind"] == "call" and not turn.called


def _dialogue(rng: random.Random, kind: str) -> Dialogue:
    match kind:
        case "looking":
            return looking_dialogue(rng, lambda: _aside(rng))
        case "remembering":
            return remembering_dialogue(rng, lambda: _aside_or_look(rng))
        case "drill":
            return _drill(rng)
        case "clock":
            return clock_dialogue(rng)
        case _:
            return (_turn(rng),)


def _drill(rng: random.Random) -> Dialogue:
    """Return several exercises in a row: requests of all kinds and refusals alternately."""
    return tuple(answered(rng, _mixed_request(rng)) for _ in range(rng.randint(3, 6)))


def _mixed_request(rng: random.Random) -> Request:
    if rng.random() < 0.25:
        return refused(rng)
    return as_typed(rng, addressed(rng, sample_request(rng, rng.choice(list(REQUESTS)))))


def _aside(rng: random.Random) -> Turn:
    """Return an exchange that does not refer to anything said or shown before."""
    while True:
        turn = _turn(rng)
        if turn.request.expect["kind"] not in ("see", "unheard", "user_name", "name_unknown"):
            return turn


def _aside_or_look(rng: random.Random) -> Turn:
    """Return the same, or a picture with a question about it."""
    if rng.random() > 0.3:
        return _aside(rng)
    while (looked := looking_dialogue(rng, lambda: _aside(rng))[0]).scene is None:
        pass
    return looked


def _turn(rng: random.Random) -> Turn:
    roll = rng.random()
    if roll < 0.03:
        return Turn(Request("", {"kind": "unheard"}), Reply(rng.choice(SAID["unheard"])))
    if roll < 0.33:
        return answered(rng, refused(rng))
    if roll < 0.65:
        return answered(rng, addressed(rng, sample_request(rng)))
    return answered(rng, typed_request(rng))


def stream(seed: int) -> Iterator[Dialogue]:
    """Yield dialogues endlessly, deterministic by seed."""
    rng = random.Random(seed)
    while True:
        try:
            yield sample_dialogue(rng)
        except ValueError:  # normalization changed a word to point at ("one hundred one"); rare
            continue
