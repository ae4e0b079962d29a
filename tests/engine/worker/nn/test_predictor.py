"""A frame of the code predictor: each row's is its own, whatever else is in the batch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.worker.nn.predictor import Predictor
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams, SamplingParams
from tests.engine.worker.nn.test_blocks import CPU, reader

CONFIG = SimpleNamespace(
    hidden_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=10, rms_norm_eps=1e-6,
    intermediate_size=52, rope_parameters={"rope_theta": 1e4}, num_code_groups=6, vocab_size=90,
)  # fmt: skip


@pytest.fixture
def predictor() -> Predictor:
    return Predictor(reader(4), CONFIG, 16, stream=2)


def frame(
    predictor: Predictor, hidden: torch.Tensor, first: torch.Tensor, seeds: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every second request is greedy, and each is one step further than the one before."""
    params = BatchSamplingParams.of([SamplingParams(seed, seed % 2 == 0) for seed in seeds], CPU)
    return predictor.frame(hidden, first, params, torch.tensor(seeds) + 3)


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, first = torch.randn(2, count, CONFIG.hidden_size, generator=torch.Generator().manual_seed(5))
    return hidden, first


def test_a_row_of_a_batch_is_what_it_is_alone(predictor: Predictor) -> None:
    hidden, first = rows(7)
    codes, total = frame(predictor, hidden, first, list(range(7)))
    for i in range(7):
        alone, its_total = frame(predictor, hidden[i : i + 1], first[i : i + 1], [i])
        assert codes[i : i + 1].equal(alone)
        assert torch.allclose(total[i : i + 1], its_total, atol=1e-4)
    embedded = torch.stack([book[code] for book, code in zip(predictor.codes, codes[0], strict=True)])
    assert torch.allclose(total[0], embedded.sum(0), atol=1e-4)


def test_another_seed_and_another_row_of_the_talker_would_show(predictor: Predictor) -> None:
    """The negative controls of the test above."""
    hidden, first = rows(4)
    codes, _ = frame(predictor, hidden, first, [1, 3, 5, 7])
    reseeded, _ = frame(predictor, hidden, first, [9, 11, 13, 15])
    turned, _ = frame(predictor, hidden.flip(0), first, [1, 3, 5, 7])
    assert not codes.equal(reseeded)
    assert not codes.equal(turned)


def test_what_is_no_number_is_told_and_harms_nobody(predictor: Predictor) -> None:
    hidden, first = rows(3)
    sane, _ = frame(predictor, hidden, first, [1, 2, 3])
    hidden[1] = torch.nan
    codes, _ = frame(predictor, hidden, first, [1, 2, 3])
    assert (codes[1] == FAILED).all()
    assert codes[[0, 2]].equal(sane[[0, 2]])
