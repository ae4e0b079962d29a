"""Requests that share a cache say what each says in a full context."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine import Engine, Sampling
from engine.worker.models.qwen2_5_omni.source import Qwen2_5OmniSource
from engine.worker.omni.kv_cache_admission import KvCacheAdmission
from tests.engine.worker.models.qwen2_5_omni.cases import PROMPTS, Folder, request, spec
from tests.oracles.talk import ask


@pytest.mark.parametrize("graphs", [False, True])
async def test_four_say_in_the_room_of_one_context_what_each_says_alone(
    graphs: bool, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(prefix: str) -> list[Any]:
        titles = ("text", "history", "text", "history")
        return [
            request(f"{prefix}{i}", PROMPTS[title], 24, 30, sampling=Sampling(greedy=i < 2, temperature=1.0, seed=i))
            for i, title in enumerate(titles)
        ]

    refused, take = list[str](), KvCacheAdmission.take

    def taking(room: KvCacheAdmission, req: Any, need: int, whole: bool) -> bool:
        found = take(room, req, need, whole)
        refused.extend([] if found else [req.info.name])
        return found

    monkeypatch.setattr(KvCacheAdmission, "take", taking)
    monkeypatch.setattr(Qwen2_5OmniSource, "shared", lambda self, length: self.cache_tokens and 120)  # a talker's
    options: dict[str, Any] = {"slots": 4, "context": 160, "graphs": graphs}
    async with Engine(spec(checkpoint("plain"), **options)) as engine:
        alone = [await ask(engine, one) for one in asked("a")]
    assert not refused
    async with Engine(spec(checkpoint("plain"), cache_tokens=160, **options)) as engine:
        together = await asyncio.gather(*(ask(engine, one) for one in asked("b")))
    for one, other in zip(alone, together, strict=True):
        assert (one.ids, one.codes.tolist(), one.finish) == (other.ids, other.codes.tolist(), other.finish)
    assert {*refused} == {"thinker", "talker"}
