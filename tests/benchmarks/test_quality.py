"""The bench of a quantized checkpoint's quality, on tiny random ones: it tells faults from rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality import compared
from engine.quantize import quantize
from tests.engine.worker.models.conftest import checkpoint
from tests.engine.worker.models.qwen3_omni.cases import Folder

__all__ = ["checkpoint"]

TEXT = "How far is it to the next town, and is there a road along the river? " * 4


def test_few_bits_are_nearer_than_other_weights(checkpoint: Folder, tmp_path: Path) -> None:
    full = checkpoint("plain")
    given = [compared(full, folder, TEXT, "qwen3_omni", "cpu", "float32") for folder in (full, checkpoint("wide"))]
    few = []
    for bits in (8, 4):
        quantize(full, tmp_path / str(bits), bits, 16, lambda _: None)
        few.append(compared(full, tmp_path / str(bits), TEXT, "qwen3_omni", "cpu", "float32"))
    same, other = given
    assert (same.divergence, same.agreement) == ((0.0, 0.0), 1.0)
    assert same.perplexity[0] == same.perplexity[1] == other.perplexity[0]
    assert 0 < few[0].divergence[0] < few[1].divergence[0] < other.divergence[0]
    assert few[0].agreement > other.agreement


def test_a_checkpoint_of_other_words_is_refused(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    import benchmarks.quality as module

    given = iter(("One text.", "Another one."))
    real = module.next_tokens
    monkeypatch.setattr(module, "next_tokens", lambda folder, _, *more: real(folder, next(given), *more))
    with pytest.raises(ValueError, match="different tokenizer"):
        compared(checkpoint("plain"), checkpoint("plain"), "", "qwen3_omni", "cpu", "float32")
