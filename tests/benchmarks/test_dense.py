"""The bench of dense layers of few bits: its ways compute the same layer, and a missing package is one sentence."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from benchmarks import dense
from engine.worker.nn.quantized import QuantizedWeight

OUT, WIDTH, ROWS = 64, 256, 3
BAR = 1e-2  # bfloat16 keeps eight bits


def made(precision: str, seed: int = 0) -> tuple[Tensor, QuantizedWeight]:
    dice = torch.Generator().manual_seed(seed)
    weight = torch.randn(OUT, WIDTH, generator=dice).to(torch.bfloat16)
    return torch.randn(ROWS, WIDTH, generator=dice).to(torch.bfloat16), dense.quantized(
        weight, *dense.PRECISIONS[precision]
    )


def off(found: Tensor, x: Tensor, weight: QuantizedWeight) -> float:
    right = x.float() @ weight.dense().float().T
    return float((found.float() - right).abs().max() / right.abs().max())


@pytest.mark.parametrize("way", [name for name in dense.WAYS if name != "torchao" or find_spec("torchao")])
@pytest.mark.parametrize("precision", dense.PRECISIONS)
def test_each_way_multiplies_with_the_same_numbers(way: str, precision: str) -> None:
    x, weight = made(precision)
    product = dense.WAYS[way](weight)
    if product is None:
        assert (way, precision) == ("torch", "8"), "torch has no product of that precision"
        return
    assert off(product(x), x, weight) < BAR
    assert off(product(x), x, made(precision, 1)[1]) > 10 * BAR, "of another weight it is another layer: the control"


def test_a_rounded_weight_is_near_the_one_it_was_made_of() -> None:
    weight = torch.randn(OUT, WIDTH, generator=torch.Generator().manual_seed(0))
    errors = {
        name: float((dense.quantized(weight, *how).dense() - weight).abs().mean())
        for name, how in dense.PRECISIONS.items()
    }
    assert 0 < errors["8"] < errors["8 by rows"] < errors["4"] < 0.1


def test_it_prints_a_line_for_each_precision_and_number_of_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dense, "LAYERS", {"small": (OUT, WIDTH), "other": (OUT, WIDTH)})
    monkeypatch.setattr(dense, "find_spec", lambda name: None)
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", ["dense", "small", "--rows", "1,5", "--rounds", "1"])
    try:
        dense.main()
    finally:
        torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert said.count(f"small, {OUT} × {WIDTH}") == 2 * len(dense.PRECISIONS)
    assert "other" not in said
    assert dense.MISSING in said, "its column is empty, and one sentence says why"
