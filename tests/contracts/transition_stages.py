"""Two stages in a user's own file that exchange the payloads of a transition, which the request's text names.

The first one gives the steps of the family's first stage, one a step; the second runs the family's transition on them
and gives the client each payload as text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from engine.chunk import Chunk, Tensors, Text, Usage, kinds
from engine.core import Request, StageInfo, TextPart
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Streamed
from engine.worker.transitions import (
    cosyvoice3,
    covo_audio,
    dynin_omni,
    mimo_audio,
    ming_flash_omni,
    qwen2_5_omni,
    qwen3_tts,
)
from engine.worker.transitions.transition import Transition, adapted

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Exchange:
    """Steps of a first stage, and the transition that the second one runs on them."""

    steps: Sequence[msgspec.Struct]
    make: Callable[[], Transition[Any]]


def _ids(n: int, low: int, high: int, *shape: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    return [RNG.integers(low, high, (size, *shape)) for size in RNG.integers(0, 4, n)]


_COVO = tuple(covo_audio.CovoTokens(ids) for ids in _ids(40, 151_600, 152_000))
_MIMO = tuple(mimo_audio.Groups(codes) for codes in _ids(60, 0, 2, 1, 8, 4))
_VOICE = cosyvoice3.CosyVoiceVoice(
    RNG.integers(0, 6_561, (1, 40)), RNG.random((1, 80, 80), np.float32), RNG.random((1, 192), np.float32)
)
_COSYVOICE = (
    cosyvoice3.CosyVoiceTokens(voice=_VOICE, prompt_ids=np.arange(3)),
    *(cosyvoice3.CosyVoiceTokens(ids) for ids in _ids(90, 0, 6_570)),
)
_DYNIN = (
    dynin_omni.Output(np.arange(9), detok_id=1, prompt=dynin_omni.Runtime(speaker="Ann", language="en")),
    dynin_omni.Output(np.arange(7), runtime=dynin_omni.Runtime(speaker="Bob")),
)
_THOUGHTS = (
    qwen2_5_omni.ThinkerStep(RNG.random((5, 8), np.float32), prompt_ids=np.arange(5)),
    *(qwen2_5_omni.ThinkerStep(RNG.random((1, 8), np.float32), np.array([n])) for n in range(9)),
    Usage(finish="stop"),
)
_DRAWN = tuple(qwen2_5_omni.TalkerStep(ids) for ids in _ids(40, 8_200, 8_295))
_TTS = (
    qwen3_tts.Frames(reference=RNG.integers(0, 2_048, (9, 16))),
    *(qwen3_tts.Frames(codes) for codes in _ids(60, 0, 2_048, 16)),
)

EXCHANGES: Mapping[str, Exchange] = {
    "qwen2_5_omni to the talker": Exchange(_THOUGHTS, qwen2_5_omni.TalkerConditioning),
    "qwen2_5_omni to the sound": Exchange(_DRAWN, qwen2_5_omni.codes),
    "qwen3_tts": Exchange(_TTS, qwen3_tts.whole),
    "qwen3_tts in windows": Exchange(_TTS, lambda: qwen3_tts.Qwen3TtsStream(1, 25)),
    "covo_audio": Exchange(_COVO, covo_audio.whole),
    "mimo_audio": Exchange(_MIMO, mimo_audio.whole),
    "mimo_audio in windows": Exchange(_MIMO, lambda: mimo_audio.MimoStream(5, 40)),
    "cosyvoice3": Exchange(_COSYVOICE, cosyvoice3.whole),
    "cosyvoice3 in windows": Exchange(_COSYVOICE, lambda: cosyvoice3.CosyVoiceStream(15, 60)),
    "dynin_omni to the image": Exchange(_DYNIN, dynin_omni.whole),
    "dynin_omni to the sound": Exchange(
        [dynin_omni.Output(np.arange(7), detok_id=1, prompt=dynin_omni.Runtime(speaker="Bob"))], dynin_omni.whole
    ),
    "ming_flash_omni": Exchange((Text("Hello ", 0), Text("there.", 6)), ming_flash_omni.MingText),
    "nothing": Exchange((), covo_audio.whole),
}

STEPS = kinds(
    qwen2_5_omni.ThinkerStep, qwen2_5_omni.TalkerStep, qwen3_tts.Frames, covo_audio.CovoTokens, mimo_audio.Groups,
    cosyvoice3.CosyVoiceTokens, dynin_omni.Output, Text, Usage,
)  # fmt: skip


def chunk_of(step: msgspec.Struct) -> Chunk:
    return step if isinstance(step, Text | Usage) else Tensors.of(step)


def written(payload: msgspec.Struct) -> str:
    """A payload as JSON, in which an array is its dtype, its shape and its values."""
    return msgspec.json.encode(payload, enc_hook=_array).decode() + "\n"


def _array(array: Any) -> Any:
    return [str(array.dtype), array.shape, array.tolist()]


def asked(request: Request) -> Exchange:
    (text,) = (part.text for part in request.messages[-1].parts if isinstance(part, TextPart))
    return EXCHANGES[text]


class Producer(Streamed):
    """The steps of a first stage, one after the other."""

    info = StageInfo(feeds=STEPS, answers=True)

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        for step in asked(request).steps:
            yield chunk_of(step)


class Consumer:
    """The payloads of a transition, as its second stage takes them."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(takes=STEPS, emits=kinds(Text), slots=config.slots)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)

    def open(self, req: StageRequest) -> None:
        req.state = 0

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[msgspec.Struct]:
        return adapted(asked(req.request).make(), inputs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk]]:
        return [self._give(req) for req in reqs]

    def _give(self, req: StageRequest) -> Sequence[Chunk]:
        if not req.pending:
            req.done = True
            return []
        text = Text(written(req.pending.popleft()), req.state)
        req.state = text.end
        return [text]
