"""Ids are those of Google's sentencepiece, for models that it trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import WeightsError
from engine.worker.text.sentencepiece_file import read_sentencepiece

sentencepiece: Any = pytest.importorskip("sentencepiece")
TEXTS = [
    "Hello there, how are you doing today? I am well, and the weather is fine.",
    "You enjoy having a good conversation. Your name is Jane.",
    "Count with me: one two three four five six seven eight nine ten.",
]


def train(folder: Path, **options: Any) -> Path:
    (folder / "texts.txt").write_text("\n".join(TEXTS * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "texts.txt"), model_prefix=str(folder / "text"), vocab_size=310, minloglevel=2,
        byte_fallback=True, num_threads=1, **options,
    )  # fmt: skip
    return folder / "text.model"


@pytest.mark.parametrize(
    "options",
    [{}, {"user_defined_symbols": ["<system>"]}, {"remove_extra_whitespaces": False}, {"add_dummy_prefix": False}],
    ids=str,
)
def test_ids_are_those_of_sentencepiece(tmp_path: Path, options: dict[str, Any]) -> None:
    file = train(tmp_path, **options)
    theirs, ours = sentencepiece.SentencePieceProcessor(model_file=str(file)), read_sentencepiece(file)
    for text in [*TEXTS, "<system> You are Jane.  Two spaces <system>", " Ünïcode: 今天 \u2460 ", ""]:
        assert list(ours.encode(text).ids) == theirs.encode(text), text
    for id in range(theirs.get_piece_size()):
        assert ours.id_to_token(id) == theirs.id_to_piece(id)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    other, absent = tmp_path / "other.model", tmp_path / "absent.model"
    other.write_bytes(b"\x0fno model")
    with pytest.raises(WeightsError, match=r"other\.model is not a SentencePiece model"):
        read_sentencepiece(other)
    with pytest.raises(WeightsError, match=r"absent\.model is missing"):
        read_sentencepiece(absent)
    with pytest.raises(WeightsError, match=r"only unigram models of SentencePiece are supported"):
        read_sentencepiece(train(tmp_path, model_type="bpe"))
