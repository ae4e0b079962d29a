"""The rules by which stages queue and order their requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from engine.worker.talker.pending import replay_of, room_of


@pytest.mark.parametrize(
    ("device", "sounds", "rows"),
    [("cuda", [False, False], 2048), ("cuda", [False, True], 512), ("cpu", [False, False], 512), ("cuda", [], 2048)],
)
def test_a_step_of_a_gpu_takes_in_more_where_nobody_speaks(device: str, sounds: list[bool], rows: int) -> None:
    reqs = cast("Any", [SimpleNamespace(has_sound=one) for one in sounds])
    assert room_of(reqs, 512, torch.device(device)) == rows


@pytest.mark.parametrize(
    ("dtype", "device", "replay"),
    [
        (torch.float32, "cpu", "exact"), (torch.bfloat16, "cpu", "continue"), (torch.float32, "cuda:0", "continue"),
        (torch.float32, "mps", "continue"), (torch.bfloat16, "cuda:0", "continue"),
    ],
)  # fmt: skip
def test_only_a_processor_computes_the_same_again_and_that_in_float32(
    dtype: torch.dtype, device: str, replay: str
) -> None:
    assert replay_of(dtype, torch.device(device)) == replay
