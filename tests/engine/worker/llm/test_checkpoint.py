"""What a checkpoint's folder says of its language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import WeightsError
from engine.worker.llm.checkpoint import read_checkpoint
from tests.engine.worker.llm.fake_vllm import write_checkpoint


def test_a_model_that_sees_has_its_language_models_fields_one_level_below(tmp_path: Path) -> None:
    text = {"max_position_embeddings": 512, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 8}
    found = read_checkpoint(
        write_checkpoint(tmp_path, text_config={**text, "dtype": "bfloat16"}, vision_config={}, hidden_size=64)
    )
    assert (found.context, found.value_bytes, found.size) == (512, 2, 100)
    assert found.cache_bytes(10, 2) == 2 * 3 * 4 * 8 * 2 * 10
    assert found.reads("vision")
    assert not found.reads("audio")


def test_a_head_is_as_wide_as_its_share_of_the_model_where_nothing_else_is_said(tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 64,
    }
    assert read_checkpoint(write_checkpoint(tmp_path, **shape)).cache_bytes(1, 4) == 2 * 2 * 16 * 4


def test_a_folder_that_says_nothing_of_its_shape_takes_nothing_that_is_known(tmp_path: Path) -> None:
    found = read_checkpoint(write_checkpoint(tmp_path))
    assert (found.cache_bytes(1000, 4), found.value_bytes) == (0, 0)


@pytest.mark.parametrize("value", ["abc", [], -1, 1.5, True, 1 << 40])
def test_a_number_of_another_type_or_range_is_one_sentence(tmp_path: Path, value: Any) -> None:
    found = read_checkpoint(write_checkpoint(tmp_path, max_position_embeddings=value, hidden_size=value))
    with pytest.raises(WeightsError, match="max_position_embeddings must be a whole number from 0"):
        _ = found.context
    with pytest.raises(WeightsError, match="hidden_size must be a whole number"):
        found.cache_bytes(10, 2)


@pytest.mark.parametrize("file", ["chat_template.json", "tokenizer_config.json"])
def test_a_template_is_found_wherever_it_lies(tmp_path: Path, file: str) -> None:
    write_checkpoint(tmp_path, template="")
    (tmp_path / file).write_text(json.dumps({"chat_template": "one"}))
    assert read_checkpoint(tmp_path).template == "one"
    several = [{"name": "tool_use", "template": "other"}, {"name": "default", "template": "this"}]
    (tmp_path / file).write_text(json.dumps({"chat_template": several}))
    assert read_checkpoint(tmp_path).template == "this"
    write_checkpoint(tmp_path, template="newest")
    assert read_checkpoint(tmp_path).template == "newest"


def test_mistrals_tokenizer_needs_no_template(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, template="")
    (tmp_path / "tekken.json").write_text("{}")
    assert read_checkpoint(tmp_path).template == ""


def test_what_is_no_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m", template="")
    with pytest.raises(WeightsError, match="has no chat template"):
        read_checkpoint(folder)
    assert read_checkpoint(folder, template=False).template == ""
    (folder / "tokenizer_config.json").write_text("{no json")
    with pytest.raises(WeightsError, match=r"tokenizer_config\.json: cannot be read"):
        read_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="has no weights"):
        read_checkpoint(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(WeightsError, match=r"config\.json: cannot be read"):
        read_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"has no config\.json"):
        read_checkpoint(folder)
    with pytest.raises(WeightsError, match="the folder does not exist"):
        read_checkpoint(tmp_path / "none")
    (tmp_path / "file.gguf").touch()
    with pytest.raises(WeightsError, match="must be a checkpoint folder, not a file"):
        read_checkpoint(tmp_path / "file.gguf")
