"""Measure the thinker on held-out dialogues, greedy: ``python -m engine.training.nano.eval_dialogues``.

Plays ``eval/dialogues.jsonl`` and ``eval/scenes.jsonl`` through the production stage; each turn follows the model's own
earlier answers, and tool results come from the set. Prints the correct turns by kind. ``--wrong`` shows the others.
``--control`` answers every turn as if it were the first, so turns that depend on earlier ones must fail. Scenes are
given as text, so that only the thinker is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.chunk import Chunk, Text, ToolCall
from engine.core import (
    ImagePart,
    Message,
    Part,
    Request,
    Sampling,
    TextPart,
    TokenIds,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
)
from engine.training.nano.eval_thinker import serve, written
from engine.training.nano.judge import answers_rightly
from engine.training.nano.scenery import parsed
from engine.training.nano.turns import EVAL, read_dialogues
from engine.worker.models.nano.scene import Scene
from engine.worker.models.nano.thinker import WEIGHTS, Thinker
from engine.worker.models.nano.tokens import TOKENIZER
from engine.worker.stage import StageConfig

BAR = 0.95


@dataclass(frozen=True, slots=True)
class Played:
    """Result of one turn."""

    kind: str
    text: str
    said: str
    right: bool


class Scenes:
    """Replaces the eyes: returns the text of the set for the picture that stands for it."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def picture(self, text: str) -> ImagePart:
        """Return a picture of one pixel, whose colour encodes the index of its text."""
        self._texts.append(text)
        number = len(self._texts) - 1
        return ImagePart(np.array([[[number >> 16, number >> 8 & 255, number & 255]]], np.uint8))

    def scenes(self, session: str, messages: Sequence[Message]) -> tuple[Scene | None, ...]:
        return tuple(self._scene(message) for message in messages)

    def _scene(self, message: Message) -> Scene | None:
        pictures = [part for part in message.parts if isinstance(part, ImagePart)]
        if not pictures:
            return None
        high, middle, low = (int(x) for x in pictures[-1].pixels[0, 0])
        return parsed(self._texts[high << 16 | middle << 8 | low])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder with thinker.onnx")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th dialogue, from the i-th")
    parser.add_argument("--chained", action="store_true", help="as the first model of a chain: declining is a refusal")
    args = parser.parse_args()
    scenes = Scenes()
    stage = Thinker(StageConfig(weights=args.weights, slots=1, may_decline=args.chained), sight=scenes)
    first, every = map(int, args.part.split("/"))
    reached = []
    for name in ("dialogues.jsonl", "scenes.jsonl"):
        dialogues = read_dialogues(EVAL / name)[first - 1 :: every]
        played = [turn for dialogue in dialogues for turn in play(stage, scenes, dialogue, args.control)]
        reached.append(report(name, played, args.wrong))
    sys.exit(min(reached) < BAR)


def report(name: str, played: Sequence[Played], wrong: bool = False) -> float:
    """Print the results of a set, and return the share of correct turns."""
    kinds: dict[str, list[bool]] = defaultdict(list)
    for turn in played:
        kinds[turn.kind].append(turn.right)
    for kind, right in kinds.items():
        print(f"    {kind:16} {sum(right):4} of {len(right):4}")
    for turn in played:
        if wrong and not turn.right:
            print(f"    {turn.kind}: {turn.text!r} -> {turn.said!r}")
    share = sum(turn.right for turn in played) / len(played)
    print(f"{name:20} {sum(turn.right for turn in played):4} of {len(played):4} turns right: {share:.1%}", flush=True)
    return share


def play(stage: Thinker, scenes: Scenes, dialogue: dict[str, Any], control: bool = False) -> list[Played]:
    """Play one dialogue turn by turn."""
    tools = tuple(ToolDefinition(**tool) for tool in dialogue["tools"])
    messages: tuple[Message, ...] = ()
    played: list[Played] = []
    for turn in dialogue["turns"]:
        parts: tuple[Part, ...] = (TextPart(turn["text"]),)
        if "scene" in turn:
            parts = (scenes.picture(turn["scene"]), *parts)
        messages = (*(() if control else messages), Message("user", parts))
        said, messages = _answered(stage, messages, tools)
        right = answers_rightly(turn["expect"], said)
        if right and "result" in turn:
            told = Message("tool", (ToolResultPart("c", turn["result"]),))
            said, messages = _answered(stage, (*messages, told), tools)
            right = answers_rightly({"kind": "says", "text": turn["told"]}, said)
        played.append(Played(dialogue["kind"], turn["text"], said, right))
    return played


def _answered(
    stage: Thinker, messages: tuple[Message, ...], tools: tuple[ToolDefinition, ...]
) -> tuple[str, tuple[Message, ...]]:
    """Return the answer, or the call as JSON, and the conversation including it."""
    request = Request(id="e", session="e", messages=messages, tools=tools, sampling=Sampling(greedy=True))
    chunks = asyncio.run(serve(stage, [request]))[0]
    for chunk in chunks:
        if isinstance(chunk, ToolCall):
            call = ToolCallPart(chunk.name, chunk.arguments, "c")
            return written(chunk), (*messages, Message("assistant", (call,)))
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))
    return text, (*messages, Message("assistant", (TextPart(text),), token_ids=_ids(chunks)))


def _ids(chunks: Sequence[Chunk]) -> TokenIds:
    return TokenIds(TOKENIZER, tuple(i for chunk in chunks if isinstance(chunk, Text) for i in chunk.token_ids))


if __name__ == "__main__":
    main()
