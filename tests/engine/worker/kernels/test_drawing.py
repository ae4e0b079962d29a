"""Ids that a kernel draws, against those that torch draws."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.sampler import draw, number_line
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams, SamplingParams

ROWS = 12
CPU = torch.device("cpu")


def logits_of(ids: int, spread: float = 3.0) -> Tensor:
    return torch.randn(ROWS, ids, generator=torch.Generator().manual_seed(ids)) * spread


def drawn_both_ways(
    logits: Tensor, params: BatchSamplingParams, kernels: Kernels, step: int = 0
) -> tuple[list[int], list[int]]:
    steps = torch.arange(len(logits)) + step
    ours, theirs = (draw(logits, params, 5, steps, 3, with_).tolist() for with_ in (kernels, None))
    return ours, theirs


@pytest.mark.triton
@pytest.mark.parametrize("ids", [20, 2048])
@pytest.mark.parametrize(("top_k", "top_p"), [(50, 0.8), (0, 1.0), (7, 1.0), (0, 0.6), (1, 1.0), (9, 0.01)])
def test_the_ids_are_torchs(ids: int, top_k: int, top_p: float, kernels: Kernels) -> None:
    """Of seeds, steps, temperatures of their own; some of them greedy."""
    each = [SamplingParams(-i * 2**40 + i, i % 5 == 4, 0.3 + 0.1 * i, top_k, top_p) for i in range(ROWS)]
    ours, theirs = drawn_both_ways(logits_of(ids), BatchSamplingParams.of(each, CPU), kernels)
    assert ours == theirs
    assert top_k == 1 or top_p == 0.01 or len(set(ours)) > 5, "they are not always the likeliest"


@pytest.mark.triton
def test_another_seed_step_codebook_or_stage_draws_another(kernels: Kernels) -> None:
    """The control."""
    logits, params = logits_of(300), [BatchSamplingParams.of([SamplingParams(one)] * ROWS, CPU) for one in (1, 2)]
    steps = torch.arange(ROWS)
    found = [
        kernels.draw(logits, own, stage, steps + step, codebook).tolist()
        for own, stage, step, codebook in ((params[0], 1, 0, 0), (params[1], 1, 0, 0), (params[0], 2, 0, 0),
                                           (params[0], 1, 1, 0), (params[0], 1, 0, 1))
    ]  # fmt: skip
    assert len({str(one) for one in found}) == 5
    assert found[0] == kernels.draw(logits, params[0], 1, steps, 0).tolist()


@pytest.mark.triton
def test_of_ids_that_are_as_likely_the_first_are_kept_and_no_more_than_top_k(kernels: Kernels) -> None:
    """As rounded logits are, of which many are alike."""
    logits = torch.zeros(ROWS, 40)
    logits[:, 10:20], logits[:, 30] = 2.0, 4.0
    each = [SamplingParams(i, temperature=9.0, top_k=6) for i in range(ROWS)]
    ours = [
        id for step in range(12) for id in kernels.draw(
            logits, BatchSamplingParams.of(each, CPU), 1, torch.full((ROWS,), step), 0
        ).tolist()
    ]  # fmt: skip
    assert set(ours) == {10, 11, 12, 13, 14, 30}


@pytest.mark.triton
def test_a_row_that_is_no_number_has_no_id(kernels: Kernels) -> None:
    logits = logits_of(33)
    logits[3, 7] = torch.nan
    logits[5] = -torch.inf
    logits[5, 9] = 1.0
    params = BatchSamplingParams.of([SamplingParams(i, top_k=50) for i in range(ROWS)], CPU)
    ours, theirs = drawn_both_ways(logits, params, kernels)
    assert ours == theirs
    assert (ours[3], ours[5]) == (FAILED, 9)


@pytest.mark.triton
@pytest.mark.kernels
def test_ids_come_as_often_as_they_are_likely(kernels: Kernels) -> None:
    logits = logits_of(64)[:1].expand(300, 64).contiguous()
    params = BatchSamplingParams.of([SamplingParams(i, top_k=9, top_p=0.9) for i in range(300)], CPU)
    found = kernels.draw(logits, params, 1, torch.zeros(300, dtype=torch.int64), 0)
    ids, ends = (one[0] for one in number_line(logits, params))
    shares = torch.diff(ends, prepend=torch.zeros(1)) / ends[-1]
    often = torch.bincount(found, minlength=64)[ids] / 300
    assert (often - shares).abs().max() < 0.1
