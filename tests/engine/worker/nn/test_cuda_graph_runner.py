"""Steps as graphs: their tables, their sizes, and what is done where they cannot be captured."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from engine.worker.nn.captured import Captured
from engine.worker.nn.cuda_graph_runner import CudaGraphRunner, doubled
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput, packed
from engine.worker.nn.sampling_params import BatchSamplingParams, SamplingParams
from engine.worker.nn.slots import CachePositions, KvSlots, VarlenBatch, attended
from tests.engine.worker.nn.test_blocks import CPU

HOWS = [SamplingParams(2**64 - 1, True, 0.7, 20, 0.95), SamplingParams(2**63, False, 0.0, 0, 0.1), SamplingParams(3)]


def test_a_table_holds_every_column_to_the_bit() -> None:
    inputs = [DecodeInput(i, 8000 + i, 151_000, 7 * i, 4097.3, how) for i, how in enumerate(HOWS)]
    found, draws = DecodeBatch.of(torch.from_numpy(packed(inputs)), 20), BatchSamplingParams.of(HOWS, CPU)
    assert found.slots.tolist() == [0, 1, 2]
    assert found.starts.tolist() == [8000, 8001, 8002]
    assert found.tokens.tolist() == [151_000] * 3
    assert found.steps.tolist() == [0, 7, 14]
    assert found.positions.equal(torch.tensor([4097.3] * 3))
    assert found.params.seeds.tolist() == draws.seeds.tolist() == [-1, -(2**63), 3]
    assert draws.greedy.tolist() == [True, False, False]
    assert draws.temperature.equal(torch.tensor([[0.7], [1.0], [1.0]]))
    assert draws.top_k.tolist() == [[20], [2**31], [2**31]]
    assert draws.top_p.equal(torch.tensor([[0.95], [0.1], [1.0]]))
    assert (draws.max_top_k, draws.all_greedy, found.params.max_top_k, found.params.all_greedy) == (0, False, 20, False)


def test_sizes_double_and_end_with_the_last() -> None:
    assert doubled(1, 1) == [1]
    assert doubled(1, 12) == [1, 2, 4, 8, 12]
    assert doubled(512, 12288) == [512, 1024, 2048, 4096, 8192, 12288]
    assert doubled(512, 100) == [100]


def runner(**more: Any) -> tuple[CudaGraphRunner, list[tuple[list[int], int]]]:
    """One that gives back slots and starts, and what it computed."""
    given: list[tuple[list[int], int]] = []

    def compute(batch: DecodeBatch, bucket: int) -> torch.Tensor:
        given.append((batch.slots.tolist(), bucket))
        return torch.stack((batch.slots, batch.starts), 1)

    return CudaGraphRunner("it", compute, slots=5, length=2000, max_top_k=0, device=CPU, **more), given


def test_a_batch_is_filled_up_and_looks_back_no_further_than_it_must() -> None:
    steps, given = runner()
    inputs = [DecodeInput(slot, start, 0, 0, 0.0, SamplingParams(1)) for slot, start in ((4, 511), (0, 3), (2, 9))]
    assert steps(inputs).tolist() == [[4, 511], [0, 3], [2, 9]]
    assert steps([DecodeInput(1, 512, 0, 0, 0.0, SamplingParams(1))]).tolist() == [[1, 512]]
    assert steps([DecodeInput(1, 1999, 0, 0, 0.0, SamplingParams(1))] * 5).shape == (5, 2)
    assert given == [([4, 0, 2, 5], 512), ([1], 1024), ([1] * 5, 2000)]


def test_what_cannot_be_captured_is_computed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[tuple[int, int]] = []

    def captured(self: Captured, key: tuple[int, int]) -> Any:
        tried.append(key)
        raise RuntimeError("operation not permitted when stream is capturing\nand what else it says")

    monkeypatch.setattr(Captured, "_capture", captured)
    steps, _ = runner()
    steps.captured.captures = True
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert steps([DecodeInput(1, 5, 0, 0, 0.0, SamplingParams(1))]).tolist() == [[1, 5]]
    assert tried == [(1, 512)], "once for all"
    assert [record.message for record in caplog.records] == [
        "it: cannot capture a CUDA graph for (1, 512): operation not permitted when stream is capturing"
    ]


def test_a_step_for_whose_graph_memory_is_short_is_tried_again_and_ends_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[tuple[int, int]] = []

    def captured(self: Captured, key: tuple[int, int]) -> Any:
        tried.append(key)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Captured, "_capture", captured)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    steps, _ = runner()
    steps.captured.captures = True
    for now_s in (0.0, 1.0, 11.0):
        steps.captured._clock = lambda now_s=now_s: now_s
        assert steps([DecodeInput(1, 5, 0, 0, 0.0, SamplingParams(1))]).tolist() == [[1, 5]]
    assert tried == [(1, 512)] * 2
    with pytest.raises(torch.OutOfMemoryError):
        steps.warm()


def test_a_start_captures_the_shortest_reaches_first_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[tuple[int, int]] = []
    monkeypatch.setattr(Captured, "_capture", lambda self, key: tried.append(key))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    steps, _ = runner()
    steps.captured.captures = True
    with caplog.at_level(logging.INFO):
        steps.warm()
    assert tried == [(size, bucket) for bucket in (512, 1024, 2000) for size in (1, 2, 4, 5)]
    tried.clear()
    steps, _ = runner()
    steps.captured.captures = True
    steps.warm(most_s=0.0)
    assert not tried
    assert "of 12 CUDA graphs in" in caplog.text


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (8, 1)])
def test_queries_that_share_a_head_are_its_rows(heads: tuple[int, int]) -> None:
    dice = torch.Generator().manual_seed(3)
    many, few = heads
    query = torch.randn(3, many, 5, 8, generator=dice)
    keys, values = torch.randn(2, 3, few, 9, 8, generator=dice)
    mask = torch.rand(3, 1, 5, 9, generator=dice) > 0.5
    mask[..., 0] = True
    plain = torch.nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
    assert torch.allclose(attended(query, keys, values, mask), plain, atol=1e-6)
    plain = torch.nn.functional.scaled_dot_product_attention(query[:, :, :1], keys, values, enable_gqa=True)
    assert torch.allclose(attended(query[:, :, :1], keys, values, None), plain, atol=1e-6)


def test_pieces_of_one_size_are_one_attention_elsewhere_than_on_a_cpu() -> None:
    """A slot may come twice: what comes later sees what came before."""
    slots, starts, counts = [2, 0, 2, 3, 3], [4, 0, 9, 1, 4], [5, 5, 5, 3, 3]
    caches = [KvSlots(1, 5, 2, 20, 8, CPU, torch.float32) for _ in range(2)]
    apart, together = (VarlenBatch(cache, slots, starts, counts) for cache in caches)
    groups = [
        CachePositions.of(caches[1], [2, 0, 2], [4, 0, 9], 5),
        CachePositions.of(caches[1], [3, 3], [1, 4], 3),
    ]
    together.__dict__["parts"] = groups
    meta = KvSlots(1, 5, 2, 20, 8, torch.device("meta"), torch.float32)
    elsewhere = VarlenBatch(meta, slots, starts, counts).parts
    assert [part.at.shape for part in elsewhere] == [part.at.shape for part in groups]
    dice = torch.Generator().manual_seed(4)
    query = torch.randn(1, 4, sum(counts), 8, generator=dice)
    key, value = torch.randn(2, 1, 2, sum(counts), 8, generator=dice)
    one, other = (
        rows.mix(query, key, value, cache.keys[0], cache.values[0])
        for rows, cache in zip((apart, together), caches, strict=True)
    )
    assert torch.allclose(one, other, atol=1e-6)
    assert torch.equal(caches[0].keys, caches[1].keys)
    assert torch.equal(caches[0].values, caches[1].values)
    assert len(apart.parts) == 5
