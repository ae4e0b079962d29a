"""Rules by which stages of a thinker, a talker and a code2wav queue and order their requests. Computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from engine.worker.stage_request import StageRequest

MAX_PENDING = 4096  # a row is one id, or one frame: nothing need wait for who eats twelve a second
AT_FIRST = 4  # pieces of prompts that a step on a GPU takes in where nobody speaks


def replay_of(dtype: torch.dtype, device: torch.device) -> Literal["exact", "continue"]:
    """Return what comes where a stage begins anew: in a smaller dtype, and on any GPU, the other requests of a batch
    change the result."""
    return "exact" if dtype == torch.float32 and device.type == "cpu" else "continue"


def by_slot(req: StageRequest) -> int:
    """Return the key that a batch is sorted by: slots side by side are read without being copied."""
    return req.slot


def to_keep(reqs: Sequence[StageRequest]) -> list[StageRequest]:
    """Choose whose computed state a step keeps first: one request's, since copies for a crowd would hold up its second
    sound."""
    return [req for req in reqs if req.state.unkept][:1]


def room_of(reqs: Sequence[StageRequest], piece: int, device: torch.device) -> int:
    """Return how many rows of prompts a step takes in: a piece, since the voices that speak wait for no more; where
    nobody speaks yet, what a GPU computes in little more time."""
    return piece if device.type == "cpu" or any(req.has_sound for req in reqs) else AT_FIRST * piece
