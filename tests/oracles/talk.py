"""Ask the engine what the oracle was asked: turns in, everything that came back out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engine import (
    AudioPart,
    Engine,
    EngineSpec,
    ImagePart,
    Message,
    Request,
    Sampling,
    TextPart,
    TokenIds,
    VideoPart,
    parse_config,
)
from engine.chunk import Audio, Chunk, Codes, Text, ToolCall, Usage
from engine.worker.text.chat_encoder import tokenizer_of
from tests.oracles.qwen3_omni import Turn, Video
from tests.oracles.tiny_qwen3_omni import make_tokenizer

CONFIG = """
model: {model}
weights: {folder}
launcher: inline
workers:
  - {{stages: [thinker, talker, code2wav], max_batch: {slots}}}
heartbeat: {{interval_s: 1.0, timeout_s: 60.0}}  # the reference computes in the same event loop
chunks: {{first: 1, growth: 1.5, steady: 4}}
options: {{context: 1024, piece: {piece}}}
"""


@dataclass(slots=True)
class Said:
    """All that an answer brought, by kind."""

    ids: list[int] = field(default_factory=list[int])
    text: str = ""
    codes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int16))
    wave: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    prompt: list[int] = field(default_factory=list[int])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    finish: str = ""
    order: list[str] = field(default_factory=list[str])


def spec(folder: Path, slots: int = 4, piece: int = 256, model: str = "qwen3_omni", **options: Any) -> EngineSpec:
    """One worker in this process, with short pieces if wanted, and other options of the family."""
    found = parse_config(CONFIG.format(folder=folder, slots=slots, piece=piece, model=model))
    return replace(found, options={**found.options, **options})


def request(id: str, turns: Sequence[Turn], tokens: int = 8, frames: int = 12, **more: Any) -> Request:
    """A greedy request; an assistant's turn of ints are its raw ids."""
    given: dict[str, Any] = {"sampling": Sampling(greedy=True), "voice": "ethan", "dump": True, "session": id}
    given["max_audio_s"] = 0.08 * frames
    messages = tuple(_message(role, parts) for role, parts in turns)
    return Request(id=id, messages=messages, max_text_tokens=tokens, **(given | more))


def _message(role: Any, parts: Sequence[Any]) -> Message:
    if role == "assistant" and parts and isinstance(parts[0], int):
        return Message(role, (TextPart("(shown otherwise)"),), token_ids=TokenIds(tokenizer(), tuple(parts)))
    return Message(role, tuple(_part(part) for part in parts))


@cache
def tokenizer() -> str:
    """The name of the tiny checkpoints' tokenizer, which all of them have."""
    with TemporaryDirectory() as folder:
        make_tokenizer().save_pretrained(folder)
        return tokenizer_of(Path(folder))


def _part(part: Any) -> TextPart | AudioPart | ImagePart | VideoPart:
    if isinstance(part, str):
        return TextPart(part)
    if isinstance(part, Video):
        return VideoPart(part.frames, part.fps, part.pcm)
    return AudioPart(part) if part.ndim == 1 else ImagePart(part)


async def ask(engine: Engine, request: Request, inputs: Any = None) -> Said:
    """The whole answer."""
    said = Said()
    codes, waves = [], []
    async with engine.open(request, inputs) as chunks:
        async for chunk in chunks:
            said.order.append(chunk.kind)
            _note(said, chunk, codes, waves)
    said.codes = np.concatenate(codes) if codes else said.codes
    said.wave = np.concatenate(waves) if waves else said.wave
    return said


def _note(said: Said, chunk: Chunk, codes: list[np.ndarray], waves: list[np.ndarray]) -> None:
    match chunk:
        case Text(text, _, token_ids):
            said.text += text
            said.ids += token_ids
        case Codes(frames):
            codes.append(frames)
        case Audio(wave):
            waves.append(wave)
        case ToolCall():
            said.calls.append({"name": chunk.name, "arguments": chunk.arguments})
        case Usage():
            said.finish = chunk.finish
            said.prompt += chunk.prompt_ids
        case _:
            pass
