"""The way of small values from the host to a device. Knows no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(values: Sequence[Any] | NDArray[Any], device: torch.device) -> Tensor:
    """Numbers as a tensor on a device. Nobody waits; ``torch.tensor`` would, for all that is still to be computed."""
    found = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    return found.to(device, non_blocking=True)


def settle(device: torch.device) -> None:
    """Settings of a process that computes on such a device."""
    if device.type != "cuda":
        return
    torch.backends.cudnn.allow_tf32 = False  # ten bits of mantissa are too few for sound
    torch.backends.cuda.enable_cudnn_sdp(False)  # it makes a plan for every shape, and prompts have all shapes
