"""Queueing and ordering rules that thinker, talker and code2wav stages share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from engine.worker.stage_request import StageRequest

MAX_PENDING = 4096  # rows are small (a token id or a frame), and a talker consumes only 12 per second
AT_FIRST = 4  # prompt pieces per step on a GPU while no request has audio


def replay_of(dtype: torch.dtype, device: torch.device) -> Literal["exact", "continue"]:
    """Return how an answer resumes on another replica.

    "exact" recomputes it. In a smaller dtype or on a GPU, results depend on the other requests of a batch, so the
    answer can only continue from its output ("continue").
    """
    return "exact" if dtype == torch.float32 and device.type == "cpu" else "continue"


def by_slot(req: StageRequest) -> int:
    """Return the sort key of a batch: adjacent slots are read without a copy."""
    return req.slot


def to_keep(reqs: Sequence[StageRequest]) -> list[StageRequest]:
    """Return the requests whose computed state is stored for later requests in this step.

    It is at most one, to avoid delaying the others' audio.
    """
    return [req for req in reqs if req.state.unkept][:1]


def room_of(reqs: Sequence[StageRequest], piece: int, device: torch.device) -> int:
    """Return the maximum prompt rows per step.

    While a request has audio, this is one piece, so that playback does not wait. Otherwise a GPU computes several
    pieces in little more time.
    """
    return piece if device.type == "cpu" or any(req.has_sound for req in reqs) else AT_FIRST * piece
