"""Writes the held-out dialogues, once, before any training on them: ``python -m engine.training.nano.make_dialogues``.

``eval/dialogues.jsonl``: 200 dialogues from the frames of ``held_out``; training sees no scene and no turn of four or
more words of it. ``eval/scenes.jsonl``: 240 questions as in training, about held-out scenes. Each line is ``{"kind",
"tools", "turns"}``; each turn is ``{"text", "expect"}`` and, where it has them, ``scene``, ``result`` (returned by the
called tool) and ``told`` (nano's answer to the result). Values are drawn with a separate seed.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from engine.training.nano.held_out import KINDS, Dialogue, scene_question
from engine.training.nano.looking import QUESTIONS
from engine.training.nano.turns import EVAL

_AMOUNT = {"type": "integer", "minimum": 0, "maximum": 100}
TOOLS: dict[str, dict[str, Any]] = {
    "set_timer": {"minutes": {"type": "number"}},
    "startTimer": {"seconds": {"type": "integer", "description": "How long"}},
    "create_timer": {"duration": {"type": "string"}, "label": {"type": "string"}},
    "set_light": {"on": {"type": "boolean"}, "color": {"type": "string"}},
    "control_lights": {"state": {"type": "string", "enum": ["ON", "OFF"]}, "room": {"type": "string"}},
    "get_weather": {"city": {"type": "string"}, "day": {"type": "string"}},
    "weather_forecast": {"location": {"type": "string"}},
    "set_volume": {"level": _AMOUNT, "direction": {"type": "string", "enum": ["up", "down"]}},
    "open_valve": {"pressure": {"type": "number"}},
    "set_light_scene": {"scene_id": {"type": "string"}},
}
"""Tools as clients declare them: name -> properties of the JSON schema. nano has not learned the last two."""
REQUIRED = {
    "set_light_scene": ["scene_id"],
    "open_valve": ["pressure"],
    "get_weather": ["city"],
    "set_timer": ["minutes"],
}


SEED = 77


def main() -> None:
    for name, lines in drawn_sets(random.Random(SEED)):
        write(name, lines)


def drawn_sets(rng: random.Random) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "dialogues.jsonl", [line for kind, count, make in KINDS for line in drawn(rng, kind, count, make)]
    questions = (drawn(rng, kind, 15, lambda r, k=kind: scene_question(r, k)) for kind in QUESTIONS)
    yield "scenes.jsonl", [line for lines in questions for line in lines]


def drawn(
    rng: random.Random, kind: str, count: int, make: Callable[[random.Random], Dialogue]
) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    while len(seen) < count:
        tools, turns = make(rng)
        key = json.dumps(turns)
        if key not in seen:
            seen.add(key)
            yield {"kind": kind, "tools": [schema(name) for name in tools], "turns": turns}


def schema(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": TOOLS[name], "required": REQUIRED.get(name, [])}
    return {"name": name, "parameters": parameters}


def write(name: str, lines: list[dict[str, Any]]) -> None:
    path = EVAL / name
    if path.exists():
        sys.exit(f"{path} exists and is not overwritten: evaluation sets must not change after training")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
