"""Every conversation through the chat templates of published models: none refuses, and no text is lost."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.core import ImagePart, Message, Request, TextPart, ToolCallPart, ToolDefinition, ToolResultPart
from engine.worker.llm.messages import body_of
from engine.worker.llm.options import ChatServerOptions, options_of
from engine.worker.llm.prompted_tools import prompted
from engine.worker.text.chat_template import Template
from engine.worker.text.template_check import check_template
from tests.cases.chat_templates import TEMPLATES, missing, template
from tests.cases.conversations import SHAPES, assistant, system, user

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

OPTIONS: ChatServerOptions = options_of(
    {"url": "http://127.0.0.1", "model": "m", "instructions_suffix": "", "images": True}
)
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
MINUTES = {"type": "object", "properties": {"minutes": {"type": "integer", "description": "How long."}}}
TIMER = ToolDefinition("timer", "Set a timer.", MINUTES)
PICTURE = ImagePart(np.zeros((8, 8, 3), np.uint8))
SEEING = ("gemma3", "gemma3n", "gemma4", "gemma4_v5", "llama4", "pixtral", "qwen2_5_vl", "qwen3_vl", "smolvlm")
PICTURES = {
    "a picture": (system("Be brief."), user("What is this?", PICTURE), assistant("A cat."), user("And this?", PICTURE)),
    "a picture alone": (user(PICTURE),),
    "pictures in a row": (user(PICTURE), user("Compare them.", PICTURE)),
}
MISTRAL_IDS = {"c1": "000000001", "c2": "000000002"}
"""Mistral's templates accept only call ids of nine letters and digits, and its servers make such ids."""
PARTS_ONLY = ("smolvlm",)
"""Templates that accept only lists of content parts; servers convert texts for them."""
BEFORE_A_CALL = ("words before a call", "One moment.")
AFTER_A_RESULT = ("a call of the first answer", "Look up the caller.")
LOST = {
    **dict.fromkeys(("gptoss", "llama3_1", "llama3_2", "llama3_2_vision"), frozenset({BEFORE_A_CALL})),
    **dict.fromkeys(("mistral_v2v3", "mistral_v3_tekken"), frozenset({BEFORE_A_CALL, AFTER_A_RESULT})),
}
"""What templates leave out by design: text in the message of a call, and instructions if a result is last."""


def rendered(name: str, messages: tuple[Message, ...]) -> str:
    """Return the prompt as a server makes it, with tools as text if the template does not support them."""
    text = template(name)
    asked = body_of(Request(id="r", session="s", messages=messages, tools=(TIMER,)), OPTIONS)
    asked = asked if "tools" in text else prompted(asked)
    served = [as_served(one, name in PARTS_ONLY) for one in asked["messages"]]
    return compiled(name).render(served, asked.get("tools"))


@cache
def compiled(name: str) -> Template:
    return Template(template(name), NAMES)


def as_served(message: dict[str, Any], listed: bool) -> dict[str, Any]:
    """Convert a message as servers do before they render it: arguments as objects, and images as placeholders."""
    content = message["content"] or ""
    if not isinstance(content, str):
        content = [one if one["type"] == "text" else {"type": "image"} for one in content]
    elif listed:
        content = [{"type": "text", "text": content}]
    calls = [
        {
            "id": MISTRAL_IDS[call["id"]],
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"]),
            },
        }
        for call in message.get("tool_calls", ())
    ]
    ids = {"tool_call_id": MISTRAL_IDS[message["tool_call_id"]]} if message["role"] == "tool" else {}
    return {**message, **ids, "content": content, **({"tool_calls": calls} if calls else {})}


def texts(messages: tuple[Message, ...]) -> list[str]:
    """Return what the prompt must contain: texts, and calls with their results. Calls without one are left out."""
    parts = [part for message in messages for part in message.parts]
    calls = {part.call_id for part in parts if isinstance(part, ToolCallPart)}
    results = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    spoken = [part.text.strip() for part in parts if isinstance(part, TextPart)]
    called = [part.name for part in parts if isinstance(part, ToolCallPart) and part.call_id in results]
    returned = [part.output for part in parts if isinstance(part, ToolResultPart) and part.call_id in calls]
    return [*filter(None, spoken), *called, *returned]


@pytest.mark.parametrize("name", [name for names in TEMPLATES.values() for name in names])
def test_no_template_refuses_a_conversation_or_loses_a_part_of_it(name: str) -> None:
    lost: set[tuple[str, str]] = set()
    for shape, messages in (SHAPES | (PICTURES if name in SEEING else {})).items():
        prompt = rendered(name, messages)
        lost |= {(shape, text) for text in texts(messages) if text not in prompt}
    assert lost == LOST.get(name, frozenset())


@pytest.mark.parametrize("name", [name for names in TEMPLATES.values() for name in names])
def test_no_template_takes_too_much_time_or_memory(name: str) -> None:
    check_template(template(name), Path(name))


@pytest.mark.parametrize("name", SEEING)
def test_each_picture_has_its_place_in_the_prompt(name: str) -> None:
    shown, alone = rendered(name, PICTURES["a picture"]), rendered(name, PICTURES["a picture alone"])
    assert alone != rendered(name, (user("."),))
    assert len(shown) > len(
        rendered(name, (system("Be brief."), user("What is this?"), assistant("A cat."), user("And this?")))
    )
