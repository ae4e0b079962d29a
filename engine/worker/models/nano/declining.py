"""Decides when nano leaves a request to the next model of a chain.

That is the case if nano does not know the answer, is not sure, or if another model may know better.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.core import Message, Request, ToolCallPart, ToolResultPart
from engine.worker.models.nano.messages import shows, text_of
from engine.worker.models.nano.own import FACTS, NO_DAY, NO_NUMBER, NO_WORD, NOTHING_SAID, TOOLS
from engine.worker.models.nano.sayings import BIGGER, HAND_OVER, NO_TOOL, SAYINGS, UNHEARD
from engine.worker.models.nano.seeing import NO_PICTURE
from engine.worker.models.nano.skills import CANNOT_TELL, SKILLS, skill_of
from engine.worker.models.nano.tokens import SAYING, TOKENIZER

SURE = 0.8
"""Minimum probability of each token of nano's answers. With it, nano answers correctly or declines 480 of 483 requests
of the typed evaluation sets, and 614 of 645 turns of the dialogues and scenes. Follow-up questions to another model's
answers mostly fall below it.
"""
VERY_SURE = 0.95
"""Minimum probability for the answer that there is no picture. Questions about the world often mention looks as
well.
"""
RATHER_SURE = 0.5
"""Minimum probability where the next model is unlikely to know better: for client tool calls, which are checked, and
for questions about pictures.
"""
CALLABLE = frozenset({*TOOLS, *(skill.name for skill in SKILLS)})
"""Names of tools that nano can call."""


def _group(*patterns: str) -> NDArray[np.intp]:
    """Return the token ids of the sayings that match a pattern."""
    found = [n for n, saying in enumerate(SAYINGS) if any(re.match(pattern, saying) for pattern in patterns)]
    return np.array(found) + SAYING


SYNONYMS = (
    _group("Hello!"), _group("Why did the robot", "What do you call a bear", "Why was six"), _group("Heads", "Tails"),
    _group("You rolled"), _group("You are welcome", "No problem", "Okay", "Thank you", "I am glad"),
    _group(*map(re.escape, UNHEARD)), _group("My name is nano", "I am nano, a tiny"),
)  # fmt: skip
"""Groups of equally good answers to one request. Their token probabilities are added."""
IGNORANT = frozenset(saying for saying in SAYINGS if saying.endswith(BIGGER) or "load a bigger model" in saying)
"""Answers that say that nano does not know."""
WITHOUT_TOOL = frozenset({NO_TOOL, CANNOT_TELL})
UNKNOWN_FACTS = frozenset(unknown for _, _, unknown in FACTS.values())
REACTIONS = frozenset(
    saying for saying in SAYINGS if re.match("Okay|No problem|I am glad|Thank you|I am sorry. I am only", saying)
)
"""Answers to "yes", "no" or "that is wrong". Only the model that spoke last knows their context."""
LOST = UNKNOWN_FACTS | {NO_NUMBER, NO_DAY, NO_WORD, NOTHING_SAID, NO_PICTURE}
"""Answers for a reference that the conversation does not resolve."""


def certainty_of(logits: NDArray[np.float32], drawn: int) -> float:
    """Return the probability of a token and its synonyms; ``logits`` are [vocabulary]."""
    weights = np.exp((logits - logits.max()).astype(np.float64))
    group = next((group for group in SYNONYMS if drawn in group), np.array([drawn]))
    return float(weights[group].sum() / weights.sum())


def doubt_of(request: Request, said: str, certainty: float) -> str:
    """Return the reason why another model should answer, as a sentence; "" if nano should give its answer.

    Args:
        request: The request.
        said: The text of nano's answer; "" for a client tool call.
        certainty: The lowest token probability of the answer.
    """
    if said in IGNORANT or said == HAND_OVER:
        return "nano does not know the answer."
    if certainty < _least_certainty(request, said):
        return "nano is not sure what the request means."
    if said in WITHOUT_TOOL and request.tools:
        return "nano cannot call the tool that this request needs."
    if said in LOST and any(message.role == "assistant" for message in request.messages):
        return "nano cannot find what this refers to in the conversation."
    if said in REACTIONS and not _spoke_last(request.messages):
        return "nano does not know what this is a reaction to."
    if said in SAYINGS and any(message.role == "system" and text_of(message).strip() for message in request.messages):
        return "nano cannot follow the instructions."
    return ""


def _least_certainty(request: Request, said: str) -> float:
    if said == NO_PICTURE:
        return VERY_SURE
    return SURE if said and not shows(request.messages[-1:]) else RATHER_SURE


def _spoke_last(messages: Sequence[Message]) -> bool:
    """Return whether nano gave the last answer, or there is none."""
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    return last is None or bool(last.ids_of(TOKENIZER))


def answers_strange_tool(request: Request) -> bool:
    """Return whether the request continues after the result of a tool that nano has no skill for."""
    last = request.messages[-1].parts if request.messages else ()
    if not any(isinstance(part, ToolResultPart) for part in last):
        return False
    calls = [part.name for message in request.messages for part in message.parts if isinstance(part, ToolCallPart)]
    return bool(calls) and skill_of(calls[-1]) not in CALLABLE
