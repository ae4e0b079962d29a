"""Steps and frames as native calls: the same as the torch blocks compute, and only where they are of that kind."""

from __future__ import annotations

import statistics
import timeit
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.worker.nn import native
from engine.worker.nn.decoder import Decoder
from engine.worker.nn.predictor import Predictor
from engine.worker.nn.sampler import FAILED, BatchSamplingParams, SamplingParams
from engine.worker.nn.slots import Batch, CachePositions, KvSlots, VarlenBatch
from tests.worker.nn.test_blocks import CPU, reader

built = pytest.mark.skipif(
    native.library() is None, reason="native.c is not built: no compiler when this was installed"
)

DENSE: dict[str, Any] = {
    "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
    "rms_norm_eps": 1e-6, "intermediate_size": 52, "rope_parameters": {"rope_theta": 1e4},
}  # fmt: skip
EXPERTS = DENSE | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True}
KINDS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "one head for all": DENSE | {"num_key_value_heads": 1, "attention_bias": True},
    "experts": EXPERTS,
    "shares as they are": EXPERTS | {"norm_topk_prob": False, "num_experts_per_tok": 1},
    "a shared expert": EXPERTS | {"shared_expert_intermediate_size": 36},
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def filled(decoder: Decoder) -> KvSlots:
    cache = decoder.cache(5, 32)
    dice = torch.Generator().manual_seed(1)
    cache.keys.normal_(generator=dice)
    cache.values.normal_(generator=dice)
    return cache


def stepped(decoder: Decoder, cache: KvSlots, x: torch.Tensor, slots: list[int], starts: list[int]) -> torch.Tensor:
    positions = torch.tensor(starts, dtype=torch.float32)[:, None] + 3
    return decoder.forward(x, decoder.rope(positions, torch.float32), CachePositions.of(slots, starts, 1, CPU), cache)[
        0
    ]


@built
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_what_torch_computes(kind: str) -> None:
    decoder = Decoder(reader(3), SimpleNamespace(**KINDS[kind]))
    ours, theirs = filled(decoder), filled(decoder)
    assert ours.native is not None
    theirs.native = None
    slots, starts = [3, 0, 4], [7, 0, 31]
    x = torch.randn(3, 1, 40, generator=torch.Generator().manual_seed(2))
    one, other = (stepped(decoder, cache, x, slots, starts) for cache in (ours, theirs))
    assert torch.allclose(one, other, atol=1e-5)
    assert torch.allclose(ours.keys, theirs.keys, atol=1e-5)
    assert torch.allclose(ours.values, theirs.values, atol=1e-5)


@built
def test_another_slot_would_show() -> None:
    """The negative control of the test above."""
    decoder = Decoder(reader(3), SimpleNamespace(**DENSE))
    ours, theirs = filled(decoder), filled(decoder)
    theirs.native = None
    x = torch.ones(1, 1, 40)
    assert not torch.allclose(stepped(decoder, ours, x, [1], [7]), stepped(decoder, theirs, x, [2], [7]), atol=1e-3)


PREDICTOR = SimpleNamespace(**DENSE, num_code_groups=6, vocab_size=90)


def predictors(monkeypatch: pytest.MonkeyPatch, config: Any = PREDICTOR) -> tuple[Predictor, Predictor]:
    """The native one, and the same in torch."""
    ours = Predictor(reader(4), config, 16, stream=2)
    monkeypatch.setattr(native, "library", lambda: None)
    return ours, Predictor(reader(4), config, 16, stream=2)


@built
@pytest.mark.parametrize("greedy", [True, False, None])
def test_a_frame_draws_what_torch_draws(greedy: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """None: some rows are greedy and some are not. Rounding may tip a draw; so far as it did not, all is alike."""
    dice, drawn, same = torch.Generator().manual_seed(5), 0, 0
    ours, theirs = predictors(monkeypatch)
    for step in range(20):
        rows = 1 + step % 7
        hidden, first = torch.randn(2, rows, 40, generator=dice)
        hows = [SamplingParams(2**64 - 1 - 77 * i, bool(i % 2) if greedy is None else greedy) for i in range(rows)]
        steps = torch.arange(rows) + step
        codes, total = ours.frame(hidden, first, BatchSamplingParams.of(hows, CPU), steps)
        expected, sums = theirs.frame(hidden, first, BatchSamplingParams.of(hows, CPU), steps)
        alike = (codes == expected).all(1)
        drawn, same = drawn + rows, same + int(alike.sum())
        assert torch.allclose(total[alike], sums[alike], atol=1e-4)
    assert same >= drawn - 1


@built
def test_another_seed_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above."""
    ours, theirs = predictors(monkeypatch)
    hidden, first = torch.randn(2, 4, 40, generator=torch.Generator().manual_seed(6))
    codes, _ = ours.frame(hidden, first, BatchSamplingParams.of([SamplingParams(1)] * 4, CPU), torch.arange(4))
    other, _ = theirs.frame(hidden, first, BatchSamplingParams.of([SamplingParams(2)] * 4, CPU), torch.arange(4))
    assert not codes.equal(other)


@built
def test_what_is_no_number_is_told_and_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = predictors(monkeypatch)
    hidden, first = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(7))
    hidden[1] = torch.nan
    draws, steps = BatchSamplingParams.of([SamplingParams(3)] * 3, CPU), torch.arange(3)
    codes, _ = ours.frame(hidden, first, draws, steps)
    assert (codes[1] == FAILED).all()
    expected, _ = theirs.frame(hidden, first, draws, steps)
    assert codes.equal(expected)


@built
@pytest.mark.bench
def test_a_frame_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    ours, theirs = predictors(monkeypatch, SimpleNamespace(**DENSE, num_code_groups=16, vocab_size=90))
    hidden, first = torch.randn(2, 1, 40, generator=torch.Generator().manual_seed(8))
    draws, steps = BatchSamplingParams.of([SamplingParams(4)], CPU), torch.arange(1)
    native_ms, torch_ms = (
        1000 * statistics.median(timeit.repeat(lambda: one.frame(hidden, first, draws, steps), number=1, repeat=60))  # noqa: B023
        for one in (ours, theirs)
    )
    print(f"one frame of {ours.groups} codes: {native_ms:.2f} ms, in torch {torch_ms:.1f} ms")
    assert native_ms <= 2


def test_where_it_was_not_built_or_is_not_of_its_kind_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        Decoder(reader(), SimpleNamespace(**DENSE | {"mlp_only_layers": [0]} | EXPERTS)).cache(1, 4).native is None
    ), "layers that differ"
    torch.set_num_threads(2)
    assert Decoder(reader(), SimpleNamespace(**DENSE)).cache(1, 4).native is None, "more threads than it has"
    torch.set_num_threads(1)
    monkeypatch.setattr(native, "library", lambda: None)
    assert Decoder(reader(), SimpleNamespace(**DENSE)).cache(1, 4).native is None


@built
def test_a_library_of_other_sources_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "VERSION", native.VERSION + 1)
    assert native.library.__wrapped__() is None
    assert "install Parley again" in caplog.text


@built
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_several_slots_are_what_torch_computes(kind: str) -> None:
    settings = KINDS[kind] | {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    decoder = Decoder(reader(3), SimpleNamespace(**settings))
    ours, theirs = filled(decoder), filled(decoder)
    assert ours.native is not None
    theirs.native = None
    batch = Batch()
    for slot, start, count in ((3, 7, 5), (0, 0, 1), (3, 12, 9), (4, 30, 2)):
        positions = np.tile(np.arange(start, start + count, dtype=np.float32), (3, 1))
        batch.add(slot, start, torch.randn(count, decoder.config.hidden_size), positions)
    for one, other in zip(decoder.append(batch, ours, 1), decoder.append(batch, theirs, 1), strict=True):
        assert torch.allclose(one, other, atol=1e-4)
    assert torch.allclose(ours.keys, theirs.keys, atol=1e-4)
    assert torch.allclose(ours.values, theirs.values, atol=1e-4)


@built
def test_rows_that_look_far_back_together_are_torchs_and_a_row_alone_never_is() -> None:
    decoder = Decoder(reader(3), SimpleNamespace(**DENSE))
    cache = filled(decoder)
    assert cache.native is not None
    near, far = [CachePositions.of([1], [start], 90, CPU) for start in (0, 60_000)]
    assert cache.native.suits(90, near)
    assert not cache.native.suits(90, far)
    assert cache.native.suits(4, CachePositions.of([0, 1, 2, 3], [60_000] * 4, 1, CPU))
    both = VarlenBatch([0, 1], [60_000, 0], [90, 1], CPU)
    assert not cache.native.suits(91, both)
    assert both.shared == far.shared
    assert cache.native.suits(2, VarlenBatch([0, 1], [60_000, 0], [1, 1], CPU))
