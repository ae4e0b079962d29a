"""Bad requests, broken numbers, damaged files: one clear error each, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError, ContextOverflow, Engine, RequestError, StageFailed, WeightsError, parse_config
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from tests.engine.worker.models.qwen3_omni.cases import CLIP, PROMPTS, Folder
from tests.oracles.qwen3_omni import Turn, Video
from tests.oracles.talk import Said, ask, request, spec

FAULTS: dict[str, tuple[dict[str, Any], list[Turn], type[Exception], str]] = {
    "an unknown voice": ({"voice": "darth"}, PROMPTS["text"], RequestError, "voice: 'darth' is not one of"),
    "a call that must be made": ({"tool_choice": "required"}, PROMPTS["text"], RequestError, "tool_choice: 'required'"),
    "too long a prompt": ({}, [("user", ["word " * 1500])], ContextOverflow, "the context is 1024"),
    "a text that is not even tokenized": ({}, [("user", [" " * 70_000])], ContextOverflow, "can read 65536"),
    "no sound": ({}, [("user", [np.zeros(0, np.int16)])], RequestError, "audio: must be 0.02"),
    "too much sound": ({}, [("user", [np.zeros(16_000 * 301, np.int16)])], RequestError, "audio: must be 0.02"),
    "a picture that is a line": ({}, [("user", [np.zeros((1, 4000, 3), np.uint8)])], RequestError, "image: "),
    "a huge picture": (
        {},
        [("user", [np.broadcast_to(np.zeros(3, np.uint8), (40_000, 25_000, 3))])],
        RequestError,
        "image: ",
    ),
}


FAULTS |= {
    "a video of no frames": ({}, [("user", [Video(CLIP[:0], 2.0)])], RequestError, "video: frames of shape"),
    "a video that does not move": ({}, [("user", [Video(CLIP, 0.0)])], RequestError, "at 0 a second"),
}


async def test_a_bad_request_is_one_clear_error_and_harms_nobody(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"))) as engine:
        before = await ask(engine, request("before", PROMPTS["text"]))
        for title, (more, turns, kind, words) in FAULTS.items():
            with pytest.raises(kind, match=words):
                await ask(engine, request(title, turns, **more))
        dot = await ask(engine, request("dot", [("user", [np.zeros((1, 1, 3), np.uint8)])]))
        after = await ask(engine, request("after", PROMPTS["text"]))
    assert len(dot.ids) == 8, "a picture of one pixel is small, not wrong"
    assert (after.ids, after.codes.tolist()) == (before.ids, before.codes.tolist())


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("stage", ["thinker", "talker"])
async def test_logits_that_are_no_numbers_fail_their_own_request(
    stage: str, graphs: bool, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Thinker if stage == "thinker" else Talker
    name = "_write" if stage == "thinker" else "_replay" if graphs else "_compute"
    sane = getattr(family, name)

    def poisoned(self: Any, batch: Any, *more: Any) -> Any:
        reqs = batch if stage == "thinker" else [req for req, _ in more[0]]
        for req in reqs:
            if req.request.id == "ill" and req.state.num_computed_tokens > 5:
                begin = self.net.cache.begin(req.slot)
                self.net.cache.values[:, :, begin : begin + 3] = float("nan")
        return sane(self, batch, *more)

    turns = PROMPTS["text"]
    async with Engine(spec(checkpoint("plain"), slots=3, graphs=graphs)) as engine:
        alone = await ask(engine, request("alone", turns))
        monkeypatch.setattr(family, name, poisoned)
        ill, well, other = await asyncio.gather(
            ask(engine, request("ill", turns)),
            ask(engine, request("well", turns)),
            ask(engine, request("other", turns)),
            return_exceptions=True,
        )
        later = [await ask(engine, request(f"later{i}", turns)) for i in range(3)]
    assert isinstance(ill, StageFailed)
    assert f"the {stage}'s logits are not numbers" in str(ill)
    for one in (well, other, *later):
        assert isinstance(one, Said)
        assert (one.ids, one.codes.tolist()) == (alone.ids, alone.codes.tolist())


def damage(folder: Path, at: Path, fault: str) -> Path:
    shutil.copytree(folder, at)
    shard = sorted(at.glob("*.safetensors"))[-1]
    match fault:
        case "a missing shard":
            shard.unlink()
        case "a truncated file":
            shard.write_bytes(shard.read_bytes()[:-1000])
        case "another architecture":
            (at / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
        case "shapes that don't fit":
            config = json.loads((at / "config.json").read_text())
            config["thinker_config"]["text_config"]["moe_intermediate_size"] = 40
            (at / "config.json").write_text(json.dumps(config))
        case "no folder":
            shutil.rmtree(at)
        case _:
            raise ValueError(fault)
    return at


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("a missing shard", "model-0000.-of-0000..safetensors is missing"),
        ("a truncated file", "damaged or truncated"),
        ("another architecture", "the architecture is LlamaForCausalLM"),
        ("shapes that don't fit", r"has the shape \[32, 64\], but config.json implies \[40, 64\]"),
        ("no folder", "the folder does not exist"),
    ],
)
async def test_damaged_weights_are_refused_before_serving(
    fault: str, words: str, checkpoint: Folder, tmp_path: Path
) -> None:
    folder = damage(checkpoint("wide"), tmp_path / "bad", fault)
    with pytest.raises(WeightsError, match=words) as found:
        async with Engine(spec(folder)):
            pass
    assert "\n" not in str(found.value)


async def test_a_worker_reads_only_the_stages_it_hosts(checkpoint: Folder, tmp_path: Path) -> None:
    folder = damage(checkpoint("wide"), tmp_path / "half", "a missing shard")  # the thinker's
    half = parse_config(
        f"model: qwen3_omni\nweights: {folder}\nlauncher: inline\nworkers: [{{stages: [code2wav]}}]\noptions: {{}}"
    )
    with pytest.raises(ConfigError, match='no worker hosts "thinker", which qwen3_omni needs'):
        await Engine(half).__aenter__()
