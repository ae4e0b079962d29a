"""Checkpoints that differ: other numbers of codebooks, PersonaPlex's weights, and what is refused with one error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import ConfigError, WeightsError
from engine.worker.models.moshi.sizes import KYUTAI, kyutai_sizes, transformers_sizes
from tests.engine.worker.models.moshi.driven import alone, network, sound
from tests.oracles.tiny_moshi import Sizes, make_kyutai

SIZES = Sizes()


@pytest.fixture
def kyutai(checkpoint: Callable[[Sizes], Path], tmp_path: Path) -> Path:
    """A checkpoint in Kyutai's format, which a test may change."""
    return make_kyutai(tmp_path / "kyutai", checkpoint(SIZES))


def configured(folder: Path, **fields: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


def test_weights_that_predict_the_users_codes_too_are_personaplexs(kyutai: Path) -> None:
    """PersonaPlex has the depth transformer's weights of both speakers' codebooks. Only its own ones draw codes."""
    heard = sound(12)
    expected = alone(network(kyutai), heard).tokens.tolist()
    weights = load_file(kyutai / "model.safetensors")
    for name, value in list(weights.items()):
        if name.startswith("depformer") and "self_attn" in name:
            weights[name] = torch.cat((value, torch.randn_like(value)))
        elif name.startswith(("linears", "depformer_in")):
            kind, book, rest = name.split(".")
            weights[f"{kind}.{int(book) + SIZES.books}.{rest}"] = torch.randn_like(value)
    save_file(weights, kyutai / "model.safetensors")
    found = alone(network(configured(kyutai, model_type="personaplex", dep_q=2 * SIZES.books)), heard)
    assert found.tokens.tolist() == expected


def test_fields_that_a_file_leaves_out_are_those_of_moshi_7b() -> None:
    sizes = kyutai_sizes({}, "config.json")
    assert (sizes.own, sizes.user, sizes.codes, sizes.text_ids, sizes.window) == (8, 8, 2048, 32_000, 3000)
    assert sizes.delays == KYUTAI["delays"]
    assert (sizes.temporal.hidden_size, sizes.temporal.intermediate_size) == (4096, 11_264)
    assert (sizes.depth.hidden_size, sizes.depth.intermediate_size) == (1024, 2816)
    theirs = transformers_sizes({}, "config.json")
    assert theirs.delays == sizes.delays
    assert (theirs.temporal.intermediate_size, theirs.depth.intermediate_size) == (11_264, 2816)
    assert kyutai_sizes({"dep_q": 16}, "config.json") == sizes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dep_q": 0}, "dep_q=0, so the model cannot speak"),
        ({"n_q": 10}, r"delays must have 11 values, one per stream \(got 9\)"),
        ({"conditioners": {"description": {}}}, "conditioners="),
        ({"depformer_pos_emb": "sin"}, "depformer_pos_emb='sin' is not supported"),
        ({"model_type": "hibiki"}, "the model_type is 'hibiki'"),
        ({"mimi_name": "../mimi.safetensors"}, "mimi_name must be the name of a file"),
        ({"mimi_name": "absent.safetensors"}, "absent.safetensors is missing"),
        ({"dim": 48}, "does not fit config.json|implies"),
        ({"card": 32}, "does not fit config.json|implies"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_does_not_fit_is_refused_in_one_sentence(kyutai: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        network(configured(kyutai, **fields))


def test_more_codebooks_than_the_codec_has_are_refused(checkpoint: Callable[[Sizes], Path], tmp_path: Path) -> None:
    folder = make_kyutai(tmp_path / "kyutai", checkpoint(SIZES))
    mimi = json.loads((folder / "mimi.json").read_text())
    mimi["quantizer"]["n_q"] = 3
    (folder / "mimi.json").write_text(json.dumps(mimi))
    with pytest.raises(WeightsError, match="the codec has 3 codebooks, but the model needs 4"):
        network(folder)


def test_options_are_checked(kyutai: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"context": 4000}, "options.context must be at most 3000"),
        ({"context": -1}, "options.context must be at least 0"),
        ({"voice": "NATF1"}, "options.voice: there is no voice 'NATF1'"),
        ({"kontext": 3}, "options.kontext: unknown key"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigError, match=message):
            network(kyutai, **options)
