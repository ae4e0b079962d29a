"""The kernels, compiled, on a CUDA device: the tests that a CPU interprets, whose tensors travel there and back.

The device's numbers are held against what torch says of them on a CPU.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.worker.nn.kernel_loading import Kernels
from tests.engine.worker.kernels.conftest import figures
from tests.engine.worker.kernels.test_decode_attention import (
    test_a_decode_step_in_place_is_the_one_that_gathers,
    test_a_position_too_few_or_too_many_would_show,
    test_a_row_is_the_same_to_the_bit_whoever_is_beside_it_and_whatever_is_the_longest,
    test_a_row_sees_its_own_positions_and_no_others,
    test_eight_thousand_positions_beside_one,
)
from tests.engine.worker.kernels.test_decode_attention import test_sizes as test_sizes_of_decode_attention
from tests.engine.worker.kernels.test_drawing import (
    test_a_row_that_is_no_number_has_no_id,
    test_another_seed_step_codebook_or_stage_draws_another,
    test_ids_come_as_often_as_they_are_likely,
    test_of_ids_that_are_as_likely_the_first_are_kept_and_no_more_than_top_k,
    test_the_ids_are_torchs,
)
from tests.engine.worker.kernels.test_fused import (
    test_a_frame_of_the_code_predictor,
    test_a_gate_that_is_far_off_overflows_nowhere,
    test_a_gated_product,
    test_a_row_goes_to_its_largest_experts,
    test_a_snake_comes_behind_what_its_slot_remembers,
    test_a_step_of_a_stack,
    test_a_sum_and_its_norm,
    test_an_epsilon_that_is_left_out_would_show,
    test_heads_are_normalised_turned_and_written,
    test_of_two_that_are_as_large_the_first_is_chosen_and_nobody_who_is_not_there,
)
from tests.engine.worker.kernels.test_quantized_experts import (
    test_blocks_of_rows_belong_to_one_expert_each,
    test_every_layout_is_what_it_would_be_written_out,
    test_halves_that_are_swapped_would_show,
    test_more_inputs_than_one_product_takes,
    test_weights_are_those_that_are_written_out_to_the_bit,
    test_weights_that_are_written_out,
)
from tests.engine.worker.kernels.test_quantized_experts import test_sizes as test_sizes_of_experts
from tests.engine.worker.kernels.test_varlen_attention import (
    test_a_prefill_of_a_stack,
    test_each_piece_sees_its_own_slot_up_to_each_row,
    test_pieces_of_a_batch_are_those_that_attend_apart,
)
from tests.engine.worker.kernels.test_varlen_attention import test_sizes as test_sizes_of_varlen_attention

__all__ = [
    "figures",
    "test_a_decode_step_in_place_is_the_one_that_gathers",
    "test_a_frame_of_the_code_predictor",
    "test_a_gate_that_is_far_off_overflows_nowhere",
    "test_a_gated_product",
    "test_a_position_too_few_or_too_many_would_show",
    "test_a_prefill_of_a_stack",
    "test_a_row_goes_to_its_largest_experts",
    "test_a_row_is_the_same_to_the_bit_whoever_is_beside_it_and_whatever_is_the_longest",
    "test_a_row_sees_its_own_positions_and_no_others",
    "test_a_row_that_is_no_number_has_no_id",
    "test_a_snake_comes_behind_what_its_slot_remembers",
    "test_a_step_of_a_stack",
    "test_a_sum_and_its_norm",
    "test_an_epsilon_that_is_left_out_would_show",
    "test_another_seed_step_codebook_or_stage_draws_another",
    "test_blocks_of_rows_belong_to_one_expert_each",
    "test_each_piece_sees_its_own_slot_up_to_each_row",
    "test_eight_thousand_positions_beside_one",
    "test_every_layout_is_what_it_would_be_written_out",
    "test_halves_that_are_swapped_would_show",
    "test_heads_are_normalised_turned_and_written",
    "test_ids_come_as_often_as_they_are_likely",
    "test_more_inputs_than_one_product_takes",
    "test_of_ids_that_are_as_likely_the_first_are_kept_and_no_more_than_top_k",
    "test_of_two_that_are_as_large_the_first_is_chosen_and_nobody_who_is_not_there",
    "test_pieces_of_a_batch_are_those_that_attend_apart",
    "test_sizes_of_decode_attention",
    "test_sizes_of_experts",
    "test_sizes_of_varlen_attention",
    "test_the_ids_are_torchs",
    "test_weights_are_those_that_are_written_out_to_the_bit",
    "test_weights_that_are_written_out",
]

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

DEVICE = torch.device("cuda:0")
CALLS = ("attend", "draw", "experts", "add_norm", "place", "route", "snake", "swiglu", "varlen")


def carried(given: Any, device: torch.device) -> Any:
    """The same with all tensors in it on that device."""
    if isinstance(given, Tensor):
        return given.to(device)
    if isinstance(given, tuple):
        return tuple(carried(one, device) for one in given)
    if is_dataclass(given) and not isinstance(given, type):
        return replace(given, **{one.name: carried(getattr(given, one.name), device) for one in fields(given)})
    return given


def away(compute: Any) -> Any:
    """What computes there; what it writes into the tensors it is given is written here, too. Those that are there stay
    there."""

    def computed(*given: Any) -> Any:
        there = carried(given, DEVICE)
        if next(one for one in given if isinstance(one, Tensor)).device == DEVICE:
            return compute(*given)
        found = compute(*there)
        for ours, theirs in zip(given, there, strict=True):
            if isinstance(ours, Tensor):
                ours.copy_(theirs)
        return carried(found, torch.device("cpu"))

    return computed


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """As a stage gets them, but for the way there and back."""
    launched, products = (import_module(f"engine.worker.kernels.{name}") for name in ("launched", "quantized_experts"))
    own = {name: getattr(launched.Launched(), name) for name in CALLS}
    there = type("There", (launched.Launched,), {name: staticmethod(away(compute)) for name, compute in own.items()})
    monkeypatch.setattr(products, "multiplied", away(products.multiplied))
    by_expert = import_module("engine.worker.kernels.by_expert").ByExpert
    monkeypatch.setattr(by_expert, "of", away(by_expert.of))
    made: Kernels = there()
    return made
