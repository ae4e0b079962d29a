"""The torch blocks: each against the plain way of computing the same."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.conv import CausalConv, CausalTransposedConv, ConvBatch
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.moe import _walked, gathered, grouped, moe, route
from engine.worker.nn.rope import Rope, rotate
from engine.worker.nn.sampler import draw, penalised
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams, SamplingParams, uniforms
from engine.worker.nn.slots import Batch, CachePositions, KvSlots
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader, find
from engine.worker.randomness import uniform

CPU = torch.device("cpu")


class Made:
    """A reader of weights that are made up as they are asked for."""

    def __init__(self, seed: int = 0) -> None:
        self._dice = torch.Generator().manual_seed(seed)
        self.device, self.dtype, self.kernels, self.static = CPU, torch.float32, None, False

    def below(self, name: str) -> Made:
        return self

    def __contains__(self, name: str) -> bool:
        return True

    def __call__(self, name: str, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._dice) / shape[-1] ** 0.5

    def joined(self, names: Any, rows: Any, *rest: int) -> Tensor:
        return self("", sum(rows), *rest)

    def linear(self, names: Any, sizes: Any, width: int) -> Tensor:
        return self("", sum(sizes), width)


def reader(seed: int = 0) -> WeightReader:
    return Made(seed)  # type: ignore[return-value]


# --- Randomness


@given(st.integers(0, 2**64 - 1), st.integers(0, 2), st.integers(0, 10_000), st.integers(0, 32))
@settings(max_examples=50, deadline=None)
def test_a_number_depends_on_its_four_counters_alone(seed: int, stage: int, step: int, codebook: int) -> None:
    signed = seed - (2**64 if seed >= 2**63 else 0)
    alone = uniforms(torch.tensor([signed]), stage, torch.tensor([step]), codebook)
    batch = uniforms(torch.tensor([1, signed, 2]), stage, torch.tensor([9, step, 9]), codebook)
    assert 0 <= alone.item() < 1
    assert batch[1] == alone[0]
    steps, books = torch.tensor([9, step]), torch.arange(codebook + 1)
    together = uniforms(torch.tensor([[1], [signed]]), stage, steps[:, None], books)
    assert together[1, codebook] == alone[0]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2), st.integers(0, 10_000), st.integers(0, 32))
@settings(max_examples=50, deadline=None)
def test_a_device_makes_the_numbers_that_everybody_else_makes(seed: int, stage: int, step: int, book: int) -> None:
    signed = seed - (2**64 if seed >= 2**63 else 0)
    assert uniforms(torch.tensor([signed]), stage, torch.tensor([step]), book).item() == uniform(
        seed, stage, step, book
    )


def test_numbers_are_spread_evenly_along_every_counter() -> None:
    n = 4000
    count, still = torch.arange(n), torch.zeros(n, dtype=torch.long)
    books = torch.cat([uniforms(still[:1], 1, still[:1], book) for book in range(n)])
    for numbers in (uniforms(count, 0, still, 0), uniforms(still, 0, count, 0), books):
        histogram = torch.histc(numbers, 20, 0, 1)
        assert (histogram - n / 20).abs().max() < 5 * (n / 20) ** 0.5
        assert torch.corrcoef(torch.stack((numbers[1:], numbers[:-1])))[0, 1].abs() < 0.06
    a, b = uniforms(count, 0, still, 0), uniforms(count, 1, still, 0)
    assert torch.corrcoef(torch.stack((a, b)))[0, 1].abs() < 0.06


def drawn(logits: Tensor, hows: list[SamplingParams], stage: int, steps: Tensor, codebook: int = 0) -> Tensor:
    return draw(logits, BatchSamplingParams.of(hows, CPU), stage, steps, codebook)


def test_draws_follow_the_probabilities_within_top_k_and_top_p() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, -1.0, 1.5]).repeat(20_000, 1)
    steps = torch.arange(len(logits))

    def shares(**how: Any) -> Tensor:
        ids = drawn(logits, [SamplingParams(3, **how)] * len(logits), 0, steps)
        return torch.bincount(ids, minlength=5) / len(ids)

    assert torch.allclose(shares(), logits[0].softmax(-1), atol=0.015)
    assert torch.allclose(shares(temperature=2.0), (logits[0] / 2).softmax(-1), atol=0.015)
    two = torch.tensor([-torch.inf, 2.0, -torch.inf, -torch.inf, 1.5]).softmax(-1)
    assert torch.allclose(shares(top_k=2), two, atol=0.015)
    assert shares(top_k=2).nonzero().flatten().tolist() == [1, 4]
    assert shares(top_p=0.5).nonzero().flatten().tolist() == [1, 4], "0.45 is not yet half, so the second is kept too"
    assert shares(top_p=0.0).nonzero().flatten().tolist() == [1], "the likeliest is always kept"
    assert shares(greedy=True)[1] == 1


def test_a_draw_is_that_of_the_request_alone() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 50)
    hows = [SamplingParams(i, i == 2, 0.5 + i / 5, (0, 5, 10)[i % 3], 1 - i / 20) for i in range(6)]
    together = drawn(logits, hows, 1, torch.arange(6), 4)
    alone = [drawn(logits[i : i + 1], [hows[i]], 1, torch.tensor([i]), 4).item() for i in range(6)]
    assert together.tolist() == alone


def test_two_ids_that_are_as_likely_draw_the_same_whichever_is_before_the_other() -> None:
    """Another batch rounds the last bit otherwise, and what is drawn afterwards would be another answer."""
    rng = np.random.default_rng(2)
    logits = torch.from_numpy(np.repeat(rng.permutation(16), 2).astype(np.float32) / 4).repeat(2000, 1)
    other = torch.nextafter(logits, logits + torch.from_numpy(rng.choice([-1.0, 1.0], logits.shape)).float())
    steps, hows = torch.arange(len(logits)), [SamplingParams(3, top_k=20)] * len(logits)
    assert (drawn(logits, hows, 0, steps) != drawn(other, hows, 0, steps)).sum() <= 2, "points that lie at an end"


def test_logits_that_are_no_numbers_are_told_apart() -> None:
    logits = torch.zeros(3, 4)
    logits[1, 2] = torch.nan
    assert (
        drawn(logits, [SamplingParams(0, greedy=True)] * 3, 0, torch.zeros(3, dtype=torch.long)).tolist()[1] == FAILED
    )
    assert (drawn(logits, [SamplingParams(0)] * 3, 0, torch.zeros(3, dtype=torch.long)) == FAILED).tolist() == [
        False,
        True,
        False,
    ]


def test_the_penalty_makes_what_was_said_less_likely_on_either_side_of_zero() -> None:
    logits, seen = torch.tensor([[2.0, -2.0, 2.0]]), torch.tensor([[True, True, False]])
    assert penalised(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0]]


# --- Positions, experts, attention


def test_three_axes_take_turns_over_the_frequencies() -> None:
    rope = Rope(16, 1e4, CPU, section=(2, 3, 3))
    plain = Rope(16, 1e4, CPU)
    axes = "thwthwth"  # of more frequencies, t would have all that lie beyond the sections of h and w
    positions = torch.tensor([3.0, 5.0, 11.0]).view(3, 1, 1)
    cos, _ = rope(positions, torch.float32)
    for i, axis in enumerate(axes):
        expected, _ = plain(positions["thw".index(axis)], torch.float32)
        assert cos[0, 0, 0, i] == expected[0, 0, 0, i] == cos[0, 0, 0, i + 8]


def test_rotation_keeps_angles_between_places() -> None:
    rope, x, y = Rope(8, 1e4, CPU), torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def product(a: float, b: float) -> float:
        return float(
            (rotate(x, *rope(torch.tensor([[a]]), x.dtype)) * rotate(y, *rope(torch.tensor([[b]]), x.dtype))).sum()
        )

    assert product(7, 3) == pytest.approx(product(104, 100), abs=1e-4)
    assert product(7, 3) != pytest.approx(product(7, 4), abs=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 33])
def test_experts_one_by_one_and_grouped_agree_with_the_definition(rows: int) -> None:
    torch.manual_seed(rows)
    x, router = torch.randn(rows, 16), torch.randn(8, 16)
    gate_up, down = torch.randn(8, 24, 16) / 4, torch.randn(8, 16, 12) / 4
    experts, shares = route(x, router, 3, normalise=True)
    assert torch.allclose(shares.sum(-1), torch.ones(rows))
    plain = torch.zeros_like(x)
    for i in range(rows):
        for n, share in zip(experts[i].tolist(), shares[i], strict=True):
            gate, value = (gate_up[n] @ x[i]).chunk(2)
            plain[i] += share * (down[n] @ (F.silu(gate) * value))
    assert torch.allclose(moe(x, experts, shares, gate_up, down), plain, atol=1e-5)
    order = torch.argsort(experts.flatten(), stable=True)
    given = x[order // 3], experts.flatten()[order], gate_up, down
    assert torch.allclose(grouped(*given), _walked(*given), atol=1e-5)
    each = gathered(x, experts, gate_up, down)
    assert torch.allclose((each * shares[..., None]).sum(1), plain, atol=1e-5)


CONFIG = SimpleNamespace(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=48,
    rms_norm_eps=1e-6, rope_parameters={"rope_theta": 1e4},
)  # fmt: skip


def test_a_batch_of_slots_at_their_own_places_is_each_alone() -> None:
    decoder = TransformerDecoder(reader(), CONFIG)
    lengths, slots = (5, 1, 9), (3, 0, 2)
    rows = {slot: torch.randn(1, n + 1, 32) for slot, n in zip(slots, lengths, strict=True)}

    def run(cache: Any, slot: int, a: int, b: int) -> Tensor:
        positions = torch.arange(a, b, dtype=torch.float32)[None]
        return decoder.forward(
            rows[slot][:, a:b],
            decoder.rope(positions, torch.float32),
            CachePositions.of(cache, [slot], [a], b - a),
            cache,
        )[0][:, -1]

    whole = torch.cat([run(decoder.cache(4, 16), slot, 0, n + 1) for slot, n in zip(slots, lengths, strict=True)])
    cache = decoder.cache(4, 16)
    for slot, n in zip(slots, lengths, strict=True):
        run(cache, slot, 0, n // 2 + 1)  # in two pieces, where there are two
        if n > n // 2 + 1:
            run(cache, slot, n // 2 + 1, n)
    last = torch.cat([rows[slot][:, -1:] for slot in slots])
    positions = torch.tensor(lengths, dtype=torch.float32)[:, None]
    together, _ = decoder.forward(
        last, decoder.rope(positions, torch.float32), CachePositions.of(cache, slots, lengths, 1), cache
    )
    assert torch.allclose(together[:, 0], whole, atol=1e-5)


THREE_AXES = SimpleNamespace(**vars(CONFIG) | {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [2, 1, 1]}})


def rows_of(*spans: tuple[int, int, int]) -> Batch:
    """Rows of slots from a place to another."""
    dice = torch.Generator().manual_seed(1)
    whole = {slot: torch.randn(20, 32, generator=dice) for slot in range(5)}
    batch = Batch()
    for slot, a, b in spans:
        batch.add(slot, a, whole[slot][a:b], np.tile(np.arange(a, b, dtype=np.float32), (3, 1)))
    return batch


@pytest.mark.parametrize("spans", [((3, 0, 5), (0, 0, 1), (3, 5, 9), (1, 0, 7)), ((4, 0, 6), (2, 0, 6)), ((1, 0, 4),)])
def test_rows_of_several_slots_in_one_batch_are_each_alone(spans: Any) -> None:
    """Also where one slot comes twice, and what its later rows see goes in with the same batch."""
    decoder = TransformerDecoder(reader(), THREE_AXES)
    batch = rows_of(*spans)
    hidden, tapped = decoder.append(batch, decoder.cache(5, 20), tap=1)
    assert hidden.shape == tapped.shape == (sum(batch.counts), 32)
    alone, cache = list[Tensor](), decoder.cache(5, 20)
    for slot, a, b in spans:
        for at in range(a, b):
            one, _ = decoder.append(rows_of((slot, at, at + 1)), cache)
            alone.append(one[0])
    assert torch.allclose(hidden, torch.stack(alone), atol=1e-5)
    ends = np.cumsum([b - a for _, a, b in spans]) - 1
    assert batch.lasts == ends.tolist()


def test_in_another_order_rows_of_a_slot_would_not_see_each_other() -> None:
    """The negative control of the test above."""
    decoder = TransformerDecoder(reader(), THREE_AXES)
    right, _ = decoder.append(rows_of((3, 0, 5), (3, 5, 9)), decoder.cache(5, 20))
    wrong, _ = decoder.append(rows_of((3, 5, 9), (3, 0, 5)), decoder.cache(5, 20))
    assert not torch.allclose(right[5:], wrong[:4], atol=1e-3)


def test_neighbouring_slots_are_read_in_place_as_one_and_others_each_for_itself() -> None:
    cache = KvSlots(1, 6, 2, 8, 4, CPU, torch.float32)
    keys = cache.keys[0].normal_()
    (beside,) = CachePositions.of(cache, [2, 3, 4], [1, 2, 3], 1).views
    apart = CachePositions.of(cache, [4, 2, 3], [1, 2, 3], 1).views
    slots = keys.view(2, 6, 8, 4).transpose(0, 1)
    assert torch.equal(beside.past(keys), slots[2:5, :, :4])
    assert beside.past(keys).data_ptr() == slots[2].data_ptr()
    for view, slot, length in zip(apart, (4, 2, 3), (2, 3, 4), strict=True):
        assert torch.equal(view.past(keys)[0], slots[slot, :, :length])
        assert view.past(keys).data_ptr() == slots[slot].data_ptr()


# --- Convolutions


@pytest.mark.seed("A4.2", "A4.3", "A4.7")
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([(7, 1, 1), (7, 3, 1), (7, 1, 4), (1, 1, 1)])
)
@settings(max_examples=30, deadline=None)
def test_a_causal_convolution_in_pieces_is_the_whole(cuts: list[int], shape: tuple[int, int, int]) -> None:
    kernel, dilation, groups = shape
    conv = CausalConv(reader(1), 3, 4, 4, kernel, dilation, groups)
    x = torch.randn(2, 4, sum(cuts))
    padded = F.pad(x, ((kernel - 1) * dilation, 0))
    whole = F.conv1d(padded, conv.weight, conv.bias, dilation=dilation, groups=groups)
    assert torch.allclose(pieces(conv, x, cuts), whole, atol=1e-5)


@pytest.mark.seed("A4.2", "A4.3", "A4.7")
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([(6, 3), (3, 3), (16, 8)]))
@settings(max_examples=30, deadline=None)
def test_a_transposed_convolution_in_pieces_is_the_whole(cuts: list[int], shape: tuple[int, int]) -> None:
    kernel, stride = shape
    conv = CausalTransposedConv(reader(2), 3, 4, 5, kernel, stride)
    x = torch.randn(2, 4, sum(cuts))
    whole = F.conv_transpose1d(x, conv.weight, conv.bias, stride=stride)
    trim = kernel - stride
    assert torch.allclose(pieces(conv, x, cuts), whole[..., trim : whole.shape[-1] - trim], atol=1e-5)


def pieces(conv: Any, x: Tensor, cuts: list[int]) -> Tensor:
    """Two signals in slots 2 and 0, which have had others before, fed cut by cut; a third slot is disturbed
    meanwhile."""
    out = []
    conv(torch.randn(2, x.shape[1], 5), ConvBatch(torch.tensor([2, 0]), True))
    for i, part in enumerate(x.split(cuts, -1)):
        out.append(conv(part, ConvBatch(torch.tensor([2, 0]), i == 0)))
        conv(torch.randn(1, x.shape[1], 3), ConvBatch(torch.tensor([1]), False))
    return torch.cat(out, -1)


# --- Weights


def checkpoint(at: Path) -> Path:
    (at / "config.json").write_text('{"architectures": ["Tiny"]}')
    save_file(
        {"a.weight": torch.arange(6.0).view(2, 3), "b.weight": torch.ones(3), "b.bias": torch.zeros(3)},
        at / "model.safetensors",
    )
    return at


def test_weights_come_in_the_stages_dtype_and_only_as_wanted(tmp_path: Path) -> None:
    found = SafetensorsCheckpoint(checkpoint(tmp_path), "Tiny")
    read = WeightReader(found, "a.", CPU, torch.bfloat16)
    assert read("weight", 2, 3).dtype == torch.bfloat16
    assert sorted(found.names("b.")) == ["b.bias", "b.weight"]
    joined = WeightReader(found, "", CPU, torch.float32).joined(("b.weight", "b.bias"), (3, 3))
    assert joined.tolist() == [1, 1, 1, 0, 0, 0]


def test_every_fault_of_a_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    good = checkpoint(tmp_path)
    found = SafetensorsCheckpoint(good, "Tiny")
    for words, fault in {
        "has the shape \\[2, 3\\], but config.json implies \\[3, 2\\]": lambda: found.tensor("a.weight", (3, 2)),
        "has no tensor c": lambda: found.tensor("c"),
        "the architecture is Tiny, not Huge": lambda: SafetensorsCheckpoint(good, "Huge"),
        "the folder does not exist": lambda: find(tmp_path / "nowhere"),
        "neither a folder nor in the hub cache": lambda: find(Path("someone/something")),
        "Set it to a checkpoint's folder": lambda: find(None),
        "config.json is missing": lambda: SafetensorsCheckpoint(good / "..", "Tiny"),
    }.items():
        with pytest.raises(WeightsError, match=words) as error:
            fault()
        assert "\n" not in str(error.value)
    for text in ("[1, 2", "[" * 100_000):
        (good / "config.json").write_text(text)
        with pytest.raises(WeightsError, match="not valid JSON"):
            SafetensorsCheckpoint(good, "Tiny")
    (good / "config.json").write_text('{"architectures": 7}')
    with pytest.raises(WeightsError, match="the architecture is 7, not Tiny"):
        SafetensorsCheckpoint(good, "Tiny")


@pytest.mark.parametrize(
    ("shards", "said"),
    [
        (["a"], "must map names"),
        ({"a": 1}, "must map names"),
        ({"a": "../secret.safetensors"}, "must be the name of a file"),
        ({"a": "/etc/passwd"}, "must be the name of a file"),
        ({"a": "b\\c"}, "must be the name of a file"),
        ({"a": ".."}, "must be the name of a file"),
        ({"a": ""}, "must be the name of a file"),
    ],
)
def test_an_index_names_files_of_its_folder(tmp_path: Path, shards: Any, said: str) -> None:
    good = checkpoint(tmp_path)
    (good / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(WeightsError, match=said):
        SafetensorsCheckpoint(good, "Tiny")
