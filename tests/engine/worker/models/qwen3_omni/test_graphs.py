"""Steps over static buffers, which a GPU captures as graphs: the same code without a capture, against other steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from engine import Engine, Request, Sampling
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.nn import cuda_graph_runner, predictor
from engine.worker.nn.decode_batch import DecodeInput, packed
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.omni import thinker_net
from engine.worker.stage import StageConfig
from engine.worker.talker import net as talker_net
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, Folder
from tests.oracles.talk import Said, ask, request, spec


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reaches that the prompts of tests go beyond."""
    monkeypatch.setattr(cuda_graph_runner, "SHORTEST", 16)


def requests(count: int) -> list[Request]:
    titles = list(PROMPTS)
    return [
        request(
            f"{i}", PROMPTS[titles[i % len(titles)]], tokens=2 + i % 4, frames=3 + i % 5,
            voice=("ethan", "chelsie", "aiden")[i % 3], sampling=Sampling(greedy=i % 2 == 0, temperature=1.0, seed=i),
        )
        for i in range(count)
    ]  # fmt: skip


async def answers(folder: Any, asked: Sequence[Request], together: bool, **options: Any) -> list[Said]:
    async with Engine(spec(folder, slots=16, piece=32, **options)) as engine:
        if together:
            return await asyncio.gather(*(ask(engine, one) for one in asked))
        return [await ask(engine, one) for one in asked]


def same(one: Said, other: Said) -> None:
    assert one.ids == other.ids
    assert one.codes.tolist() == other.codes.tolist()
    assert np.abs(one.wave - other.wave).max() <= 1e-4


@pytest.mark.parametrize("name", ["deep", "plain"])
async def test_sixteen_interleaved_static_answers_are_those_of_other_steps_alone(name: str, checkpoint: Folder) -> None:
    """Greedy and seeded, of all kinds of prompts; batches are filled up, and slots are taken again."""
    asked = requests(16)
    plain = await answers(checkpoint(name), asked, together=False)
    static = await answers(checkpoint(name), asked, together=True, graphs=True)
    again = [msgspec.structs.replace(one, id=f"{one.id}-again") for one in asked[:3]]
    alone = await answers(checkpoint(name), again, together=False, graphs=True)
    for one, other in zip([*plain, *plain[:3]], [*static, *alone], strict=True):
        same(one, other)


async def drawn_from(folder: Any, patch: pytest.MonkeyPatch, **options: Any) -> list[torch.Tensor]:
    """Logits of every draw of one answer, of all stages."""
    found: list[torch.Tensor] = []
    sane = thinker_net.draw

    def noting(logits: torch.Tensor, *more: Any) -> Any:
        found.append(logits[:1].clone())
        return sane(logits, *more)

    with patch.context() as patched:
        for module in (thinker_net, talker_net, predictor):
            patched.setattr(module, "draw", noting)
        async with Engine(spec(folder, slots=3, piece=32, **options)) as engine:
            await ask(engine, request("r", PROMPTS["audio and image"], 8, 12))
    return found


async def test_static_steps_draw_from_the_same_logits(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint("wide")
    plain = await drawn_from(folder, monkeypatch)
    static = await drawn_from(folder, monkeypatch, graphs="on")
    assert len(plain) == len(static) > 100
    for ours, theirs in zip(static, plain, strict=True):
        finite = theirs.isfinite()
        assert finite.equal(ours.isfinite())
        assert (ours - theirs)[finite].abs().max() <= 1e-5


def thinker(folder: Any, slots: int = 6) -> Any:
    return Thinker(StageConfig(folder, slots=slots, options={"context": 128, "graphs": True})).net


def decode_input(slot: int, start: int, token: int = 7) -> DecodeInput:
    return DecodeInput(slot, start, token, 3, float(start), SamplingParams(5, greedy=True))


@torch.inference_mode()
def test_what_fills_a_batch_up_goes_to_a_slot_of_nobodys(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    net = thinker(checkpoint("plain"))
    net.cache.keys.normal_()
    before = net.cache.keys.clone()
    assert len(net.write([decode_input(5, 3), decode_input(0, 40), decode_input(2, 0)])) == 3
    changed = (net.cache.keys != before).any(-1).any(1).any(0).nonzero().flatten().tolist()
    assert [divmod(at, 128) for at in changed] == [(0, 40), (2, 0), (5, 3), (6, 0)]  # slots and places


@torch.inference_mode()
def test_another_start_would_show(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: what a row sees is what lies before its start in its own slot."""
    net = thinker(checkpoint("plain"))
    found: list[torch.Tensor] = []
    monkeypatch.setattr(thinker_net, "draw", lambda logits, *_: found.append(logits) or torch.zeros(len(logits)))
    torch.manual_seed(1)
    net.cache.keys.normal_()
    net.cache.values.normal_()
    for slot, start in ((2, 9), (2, 9), (2, 8), (3, 9)):
        table = torch.from_numpy(packed([DecodeInput(slot, start, 7, 3, 9.0, SamplingParams(5))]))
        net.graphs.computed(table, 16)
    same, again, earlier, elsewhere = found
    assert same.equal(again)
    assert (same - earlier).abs().max() > 1e-2
    assert (same - elsewhere).abs().max() > 1e-2


def test_there_are_graphs_where_they_are_wanted(checkpoint: Folder) -> None:
    folder = checkpoint("plain")
    for wanted, static in (("auto", False), ("off", False), (False, False), ("on", True), (True, True)):
        stage = Talker(StageConfig(folder, slots=2, options={"context": 128, "graphs": wanted}))
        assert (stage.net.graphs is not None) == static
        assert len(stage.net.last_frame_embed) == 2 + static
