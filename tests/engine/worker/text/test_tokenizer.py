"""The ids of a folder's tokenizer, held against transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, Qwen2Tokenizer

from engine.errors import WeightsError
from engine.worker.text.tokenizer import QWEN2_ROLES, plain_of, read_tokenizer, role_tokens
from tests.oracles import tiny_qwen3_omni, tiny_qwen3_tts

TEXTS = st.text() | st.lists(
    st.sampled_from(
        [*tiny_qwen3_omni.SPECIAL, *tiny_qwen3_omni.PLAIN, "Hello", " you're", "\n\n", "  ", "12", "e\u0301"]
    )
).map("".join)


@pytest.fixture(scope="module", params=["whole", "pairs"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all in one file, and one with byte pairs and a list of added tokens, as the vendors have them."""
    made = tmp_path_factory.mktemp(request.param)
    if request.param == "whole":
        tiny_qwen3_omni.make_tokenizer().save_pretrained(made)
    else:
        tiny_qwen3_tts.write_tokenizer(made)
    return made


def reference(folder: Path) -> Any:
    kind: Any = AutoTokenizer if (folder / "tokenizer.json").exists() else Qwen2Tokenizer
    return kind.from_pretrained(folder)


def test_every_text_has_the_ids_of_the_reference(folder: Path) -> None:
    theirs, ours = reference(folder), read_tokenizer(folder)

    @given(TEXTS)
    def check(text: str) -> None:
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs.encode(text, add_special_tokens=False)
        words: Any = ours.pre_tokenizer
        assert words.pre_tokenize_str(text) == theirs.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    check()


def test_added_tokens_and_roles_are_those_of_the_reference(folder: Path) -> None:
    theirs, ours = reference(folder), read_tokenizer(folder)
    added = {id: repr(token) for id, token in ours.get_added_tokens_decoder().items()}
    assert added == {id: repr(token) for id, token in theirs.added_tokens_decoder.items()}
    assert role_tokens(folder) == theirs.special_tokens_map


def test_a_plain_tokenizer_knows_no_added_token(folder: Path) -> None:
    whole = read_tokenizer(folder)
    theirs = json.loads(reference(folder).backend_tokenizer.to_str()) | {"added_tokens": [], "post_processor": None}
    expected, plain = type(whole).from_str(json.dumps(theirs)), plain_of(whole)

    @given(TEXTS)
    def check(text: str) -> None:
        found = plain.encode(text)
        assert found.ids == expected.encode(text, add_special_tokens=False).ids
        assert found.offsets == expected.encode(text, add_special_tokens=False).offsets

    check()
    assert whole.encode("<|im_end|>").ids != plain.encode("<|im_end|>").ids


@pytest.mark.parametrize(
    ("config", "roles"),
    [
        ({}, {}),
        ({"tokenizer_class": "Qwen2TokenizerFast"}, QWEN2_ROLES),
        ({"tokenizer_class": "Qwen2Tokenizer", "unk_token": None, "pad_token": {"content": "x"}, "add_bos_token": True},
         {"eos_token": "<|endoftext|>", "pad_token": "x"}),
        ({"extra_special_tokens": {"image_token": "<i>"}}, {"image_token": "<i>"}),
        ({"extra_special_tokens": ["<i>"]}, {}),
    ],
)  # fmt: skip
def test_roles_come_from_wherever_a_folder_has_them(
    tmp_path: Path, config: dict[str, Any], roles: dict[str, str]
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert role_tokens(tmp_path) == roles


def test_older_lists_of_added_tokens_are_read(tmp_path: Path) -> None:
    tiny_qwen3_tts.write_tokenizer(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    added = {one["content"]: int(id) for id, one in config.pop("added_tokens_decoder").items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "added_tokens.json").write_text(json.dumps(dict(reversed(added.items()))))
    found = read_tokenizer(tmp_path).get_added_tokens_decoder()
    assert {token.content: id for id, token in found.items()} == added
    assert added == reference(tmp_path).added_tokens_encoder


def test_flags_of_added_tokens_may_be_left_out(tmp_path: Path) -> None:
    tiny_qwen3_tts.write_tokenizer(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    for token in config["added_tokens_decoder"].values():
        del token["normalized"], token["lstrip"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = {id: repr(token) for id, token in read_tokenizer(tmp_path).get_added_tokens_decoder().items()}
    assert found == {id: repr(token) for id, token in reference(tmp_path).added_tokens_decoder.items()}


@pytest.mark.parametrize("damage", ["nothing", "no json", "no tokenizer"])
def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path, damage: str) -> None:
    if damage != "nothing":
        (tmp_path / "tokenizer.json").write_text("{}" if damage == "no tokenizer" else "hello")
    with pytest.raises(WeightsError, match=f"{tmp_path}: has no tokenizer that can be read"):
        read_tokenizer(tmp_path)
