"""One attention of all pieces of a prefill by a kernel, against torch's own, piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn import prefills
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.slots import Batch, KvSlots, PiecesInPlace, VarlenBatch
from tests.engine.worker.kernels.figures import differing
from tests.engine.worker.kernels.test_decode_attention import CLOSE
from tests.engine.worker.kernels.test_fused import SPARSE, heavy, made, noise
from tests.engine.worker.nn.test_blocks import CPU

ROPE: dict[str, Any] = {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [4, 2, 2]}}
Pieces = Sequence[tuple[int, int]]
"""Of each piece, how many positions were there before, and how many rows it has."""


def filled(pieces: Pieces, heads: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, list[int]]:
    """Keys and values [heads, positions, dim], where each piece begins; what nobody may see is no number."""
    begins = [5 + sum(sum(one) + 3 for one in pieces[:i]) for i in range(len(pieces))]
    cache = torch.full((2, heads, begins[-1] + sum(pieces[-1]) + 80, dim), torch.nan, dtype=dtype)
    for i, (begin, (start, count)) in enumerate(zip(begins, pieces, strict=True)):
        cache[:, :, begin : begin + start + count] = noise(2, heads, start + count, dim, dtype=dtype, seed=i)
    keys, values = cache
    return keys, values, begins


def expected(query: Tensor, keys: Tensor, values: Tensor, begins: list[int], pieces: Pieces) -> Tensor:
    """float32, of the numbers that lie in the cache."""
    found, first = list[Tensor](), 0
    for begin, (start, count) in zip(begins, pieces, strict=True):
        own, seen = slice(first, first + count), slice(begin, begin + start + count)
        mask = torch.ones(count, start + count, dtype=torch.bool).tril(start)
        given = (query[:, :, own], keys[None, :, seen], values[None, :, seen])
        given = (one.float() for one in given)
        found.append(F.scaled_dot_product_attention(*given, attn_mask=mask, enable_gqa=True))
        first += count
    return torch.cat(found, 2)


def check(pieces: Pieces, heads: tuple[int, int], dim: int, dtype: torch.dtype, kernels: Kernels) -> None:
    keys, values, begins = filled(pieces, heads[1], dim, dtype)
    query = noise(1, sum(count for _, count in pieces), heads[0], dim, dtype=dtype).transpose(1, 2)
    starts, counts = [start for start, _ in pieces], [count for _, count in pieces]
    found = kernels.varlen(query, keys, values, torch.from_numpy(kernels.cut(begins, starts, counts)))
    assert found.dtype == dtype
    assert differing("varlen", found, expected(query, keys, values, begins, pieces)) <= CLOSE[dtype]


@pytest.mark.triton
@pytest.mark.parametrize("dtype", heavy(*CLOSE))
def test_each_piece_sees_its_own_slot_up_to_each_row(dtype: torch.dtype, kernels: Kernels) -> None:
    check([(0, 3), (70, 9), (2, 1)], (4, 2), 16, dtype, kernels)


@pytest.mark.triton
@pytest.mark.kernels
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("dim", [16, 24, 128])
@pytest.mark.parametrize("heads", [(1, 1), (6, 2), (32, 4)], ids=str)
@pytest.mark.parametrize("pieces", [[(0, 1)], [(0, 64), (0, 65)], [(63, 1), (500, 130), (1, 63)]], ids=str)
def test_sizes(pieces: Pieces, heads: tuple[int, int], dim: int, dtype: torch.dtype, kernels: Kernels) -> None:
    check(pieces, heads, dim, dtype, kernels)


@pytest.mark.triton
@pytest.mark.parametrize("positions", heavy(70, None))
def test_pieces_of_a_batch_are_those_that_attend_apart(positions: int | None, kernels: Kernels) -> None:
    """Also in a shared cache whose slots have moved; one comes twice, and its later rows see the earlier ones."""
    found = list[Tensor]()
    for one in (None, kernels):
        cache = KvSlots(1, 4, 2, 24, 16, CPU, torch.float32, positions)
        if positions is not None:
            for slot, count in ((0, 10), (1, 20), (2, 15), (0, 0), (3, 24)):
                assert cache.resize(slot, count)
        cache.keys[:], cache.values[:] = noise(*cache.keys.shape), noise(*cache.keys.shape, seed=1)
        pieces = [2, 1, 3, 1], [3, 0, 7, 4], [5, 4, 1, 6]
        query, key, value = (noise(1, n, 16, 16, seed=i) for i, n in enumerate((4, 2, 2)))
        keys, values = cache.keys[0], cache.values[0]
        if one is None:
            mixed = VarlenBatch(cache, *pieces).mix(query, key, value, keys, values)
        else:
            where = PiecesInPlace.of(cache, *pieces, one)
            keys[:, where.at[0]], values[:, where.at[0]] = key[0], value[0]
            mixed = where.look(query, keys, values)
        found += [mixed, cache.keys, cache.values]
    assert differing("varlen", found[3], found[0]) <= 1e-5
    assert torch.equal(found[4], found[1])
    assert torch.equal(found[5], found[2])


@pytest.mark.triton
def test_a_prefill_of_a_stack(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of several lengths through whole layers, and one attention a layer."""
    calls = list[Any]()
    launch: Any = type(kernels).varlen
    counted = staticmethod(lambda *given: (calls.append(given), launch(*given))[1])
    monkeypatch.setattr(type(kernels), "varlen", counted)
    found = list[Tensor]()
    for one in (None, kernels):
        decoder = TransformerDecoder(made(one), SimpleNamespace(**SPARSE | ROPE))
        cache, batch = decoder.cache(3, 20), Batch()
        for slot, start, count in ((2, 0, 3), (0, 0, 5)):
            positions = np.tile(np.arange(start, start + count, dtype=np.float32), (3, 1))
            batch.add(slot, start, noise(count, 48, seed=slot), positions)
        found += [decoder.append(batch, cache)[0], cache.keys, cache.values]
        assert len(calls) == (2 if one else 0)
    for ours, plain in zip(found[3:], found[:3], strict=True):
        assert differing("prefill", ours, plain) <= 1e-5 * max(1.0, float(plain.abs().max()))


@pytest.mark.triton
@pytest.mark.parametrize("positions", heavy(None, 40))
def test_prompts_that_are_filled_up_to_a_graphs_size_are_those_that_are_not(
    positions: int | None, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that are several graphs; those of which one is too long for any; those to which something is added."""
    monkeypatch.setattr(prefills, "FEWEST", 8)
    monkeypatch.setattr(prefills, "MOST", 16)
    found = list[Tensor]()
    for static in (False, True):
        decoder = TransformerDecoder(made(kernels), SimpleNamespace(**SPARSE | ROPE))
        cache = decoder.cache(4, 20, positions)
        for slot in range(3 if positions else 0):
            assert cache.resize(slot, 12)
        append, calls = prefills.Prefills("it", decoder, cache, 1, static), Counter[int]()
        compute = append._compute
        append._captured._compute = lambda size, *more: calls.update([size]) or compute(size, *more)  # noqa: B023
        for number, counts in enumerate(([3, 2], [4, 5, 1], [1], [6, 6, 6], [6] if positions else [17])):
            batch = Batch()
            for slot, count in enumerate(counts):
                at = np.tile(np.arange(number, number + count, dtype=np.float32), (3, 1))
                batch.add(slot, 2 * number if count < 6 else 0, noise(count, 48, seed=slot), at)
            added = [noise(1, 48)] if counts == [1] else []
            found += [one.clone() for one in append(batch, added)]
        assert calls == ({8: 2 + bool(positions), 16: 2} if static else {})
        found += [cache.keys[:, :, :60].clone(), cache.values[:, :, :60].clone()]
    half = len(found) // 2
    for ours, plain in zip(found[half:], found[:half], strict=True):
        own = slice(0, 36) if positions else slice(0, 60)
        ours, plain = (one if one.dim() == 2 else one[:, :, own] for one in (ours, plain))
        assert differing("prefill", ours, plain) <= 1e-5 * max(1.0, float(plain.abs().max()))
