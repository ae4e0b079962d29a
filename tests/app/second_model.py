"""Stages of a second model, for servers with several: it says who it is, and has other voices."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec

from engine import EngineSpec, Voice, WeightsError, parse_config
from engine.chunk import Chunk
from engine.core import StageInfo
from engine.worker.models.script import ScriptTalker, ScriptThinker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.app.scripted import script_spec

WORDS = "I am the second."


class Second(ScriptThinker):
    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for _ in super().adapt(req, inputs):
            yield f"say: {WORDS}"


class OtherVoices(ScriptTalker):
    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        info = super().describe(config)
        facets = msgspec.structs.replace(info.facets, voices=(Voice("alto", "Alto"), Voice("bass", "Bass")))
        return msgspec.structs.replace(info, facets=facets)


class Damaged(ScriptThinker):
    def __init__(self, config: StageConfig) -> None:
        raise WeightsError("the weights of /srv/models/third are damaged: pull them again")


def model_of(name: str, thinker: str = "Second", **fields: Any) -> EngineSpec:
    """A deployment of these stages. Its ears and its last stage are those of ``script_model``."""
    spec = parse_config(
        f"""
name: {name}
stages:
  - {{use: script.ears, options: {{frames_per_word: 2}}}}
  - {{use: "{__file__}:{thinker}", name: thinker}}
  - {{use: "{__file__}:OtherVoices", name: talker, options: {{frames_per_word: 2}}}}
  - {{use: script.code2wav, options: {{frames_per_word: 2}}}}
workers: [{{stages: [ears]}}, {{stages: [thinker]}}, {{stages: [talker, code2wav]}}]
"""
    )
    return _as_served(spec, **fields)


def script_model(**server: Any) -> EngineSpec:
    """The scripted family, with the workers of ``model_of``."""
    spec = script_spec(**server)
    return _as_served(replace(spec, workers=model_of("x").workers))


def _as_served(spec: EngineSpec, **fields: Any) -> EngineSpec:
    like = script_spec()
    return replace(spec, launcher="inline", heartbeat=like.heartbeat, chunks=like.chunks, empty_s=0.2, **fields)
