"""A config.json as attributes, held against transformers' configuration classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import Qwen2_5OmniConfig, Qwen3OmniMoeConfig

from engine.worker.models.qwen2_5_omni.defaults import DEFAULTS as QWEN2_5
from engine.worker.models.qwen3_omni.defaults import DEFAULTS as QWEN3
from engine.worker.nn.settings import settings_of
from tests.oracles import tiny_qwen2_5_omni, tiny_qwen3_omni

Pair = tuple[Any, dict[str, Any]]
KINDS: dict[str, Pair] = {"qwen3_omni": (Qwen3OmniMoeConfig, QWEN3), "qwen2_5_omni": (Qwen2_5OmniConfig, QWEN2_5)}
SOURCES: dict[str, Any] = {"qwen3_omni": tiny_qwen3_omni, "qwen2_5_omni": tiny_qwen2_5_omni}
UNREAD = ("transformers_version", "rope_theta", "rope_scaling")
"""Fields of a file that the reference keeps elsewhere, and no stage asks for."""


@pytest.fixture(params=[*KINDS])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def different(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Yield the fields of ours that are others than theirs; a kind of rope is no matter of ours."""
    read = {name: value for name, value in vars(ours).items() if name not in UNREAD}
    for name, value in read.items():
        other, there = getattr(theirs, name), f"{where}{name}"
        if isinstance(value, SimpleNamespace):
            yield from different(value, other, f"{there}.")
        elif name == "rope_parameters":
            both = ({key: found for key, found in one.items() if "type" not in key} for one in (value, other))
            yield from [there] if next(both) != next(both) else []
        elif json.dumps(value) != json.dumps(other):
            yield f"{there}: {value}, not {other}"


def test_fields_that_a_file_leaves_out_have_the_defaults_of_the_reference(family: str) -> None:
    kind, defaults = KINDS[family]
    assert list(different(settings_of({}, defaults), kind())) == []


def test_fields_of_a_file_are_read_as_the_reference_reads_them(family: str) -> None:
    kind, defaults = KINDS[family]
    made = SOURCES[family].make_config(tiny_qwen3_omni.make_tokenizer(), SOURCES[family].Sizes())
    found = settings_of(json.loads(made.to_json_string()), defaults)
    assert list(different(found, kind(**json.loads(made.to_json_string())))) == []
    assert found.thinker_config.text_config.num_hidden_layers != 28


@pytest.mark.parametrize(
    "text",
    [
        {"rope_theta": 5.0, "rope_scaling": {"mrope_section": [1, 2, 3], "type": "default", "rope_type": "default"}},
        {"rope_theta": 5.0, "rope_scaling": None},
        {"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}},
        {"rope_scaling": {"mrope_section": [1, 2, 3], "rope_type": "default"}},
        {"num_hidden_layers": 3},
    ],
)
def test_older_forms_of_rope_are_read(family: str, text: dict[str, Any]) -> None:
    kind, defaults = KINDS[family]
    config = {"thinker_config": {"text_config": text, "audio_config": None}}
    assert list(different(settings_of(json.loads(json.dumps(config)), defaults), kind(**config))) == []


def test_fields_are_read_by_their_second_names() -> None:
    found = settings_of({"talker_config": {"text_config": {"num_local_experts": 5}}}, QWEN3)
    assert found.talker_config.text_config.num_experts == 5
    found = settings_of({"thinker_config": {"audio_token_id": 6}}, QWEN2_5)
    assert found.thinker_config.audio_token_index == 6
