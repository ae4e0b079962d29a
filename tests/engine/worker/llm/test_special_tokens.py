"""What clients write never becomes a special token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import WeightsError
from engine.worker.llm.special_tokens import (
    SEPARATOR,
    breaker,
    broken_up,
    is_control,
    tokens_of_checkpoint,
    tokens_of_gguf,
)
from tests.engine.worker.llm.gguf_files import ASSISTANT, END, TEMPLATE, USER, saying, write_model

TOKENS = ["<|im_end|>", "<|im_start|>", "</s>", "[INST]", "<", "<|end|><|user|>"]
PIECES = st.lists(st.sampled_from([*TOKENS, "<|im_", "end|>", "<|", "|>", "a", " ", SEPARATOR, "<|im_e<|im_end|>nd|>"]))


@given(PIECES.map("".join))
def test_no_token_is_left_and_no_word_is_lost(text: str) -> None:
    tokens = [token for token in TOKENS if len(token) > 1]
    broken = breaker(tokens)(text)
    assert not [token for token in tokens if token in broken]
    assert broken.replace(SEPARATOR, "") == text.replace(SEPARATOR, "")
    assert breaker(tokens)(broken) == broken


def test_ordinary_text_is_unchanged() -> None:
    text = "if a < b and c | d: print('<b>|</b>')\n"
    assert breaker(["<|im_end|>"])(text) == text
    assert breaker([])(text) == text


def test_all_texts_of_a_request_are_broken_up() -> None:
    image = {"type": "image_url", "image_url": {"url": "<|x|>"}}
    call = {"function": {"name": "f", "arguments": '{"<|x|>": 1}'}}
    body: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": "a<|x|>"},
            {"role": "user", "content": [{"type": "text", "text": "<|x|>"}, image]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "<|x|><|x|>"},
        ],
        "tools": [{"function": {"name": "f", "description": "<|x|>", "parameters": {"properties": {"<|x|>": {}}}}}],
        "temperature": 0,
    }  # fmt: skip
    broken = broken_up(body, breaker(["<|x|>"]))
    assert json.dumps(broken).count("<|x|>") == 1, "of the image's data"
    assert broken["temperature"] == 0
    assert body["messages"][0]["content"] == "a<|x|>"


def test_the_special_tokens_of_a_gguf_file(tmp_path: Path) -> None:
    file = write_model(tmp_path / "model.gguf", saying("Yes."))
    assert tokens_of_gguf(file, TEMPLATE) == [END, USER, ASSISTANT]
    assert is_control(file, USER)
    assert not is_control(file, "Yes.")


@pytest.mark.parametrize("template", ["", "<tool> <|end|>"])
def test_the_special_tokens_of_a_checkpoint(template: str, tmp_path: Path) -> None:
    added = [{"content": "<|end|>", "special": True}, {"content": "<tool>", "special": False}, {"content": "  "}]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    assert tokens_of_checkpoint(tmp_path, template) == ["<|end|>", *(["<tool>"] if template else [])]
    assert tokens_of_checkpoint(tmp_path / "none", template) == []


@pytest.mark.parametrize(
    "text",
    ['{"added_tokens": [{"id": 1}]}', '{"added_tokens": {"a": 1}}', '{"added_tokens": ["a"]}', "[]", "{", "\xff"],
)
def test_a_damaged_tokenizer_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(WeightsError, match=r"tokenizer\.json: cannot be read: .*\. Download it again\.$"):
        tokens_of_checkpoint(tmp_path, "")


def test_a_tokenizer_without_added_tokens_has_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": null, "model": {}}')
    assert tokens_of_checkpoint(tmp_path, "") == []
