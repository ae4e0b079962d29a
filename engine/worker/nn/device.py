"""A device that torch computes on: whether it answers, its settings, and the way of small values from the host to it.

Knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ConfigError
from engine.worker.out_of_memory import out_of_memory


def to_device(values: Sequence[Any] | NDArray[Any], device: torch.device) -> Tensor:
    """Numbers as a tensor on a device. Nobody waits; ``torch.tensor`` would, for all that is still to be computed."""
    found = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    return found.to(device, non_blocking=True)


def to_host(values: Tensor) -> NDArray[Any]:
    """Copy a tensor to the host, and wait for this copy alone."""
    if values.device.type != "cuda" or not torch.cuda.is_available():
        return values.cpu().numpy()
    found = torch.empty_like(values, device="cpu", pin_memory=True)
    found.copy_(values, non_blocking=True)
    torch.cuda.current_stream(values.device).record_event().synchronize()
    return found.numpy()


def float_bits(values: Sequence[float] | Sequence[tuple[float, float]]) -> NDArray[np.int64]:
    """Numbers as the bits of float32, in a column of whole numbers: one copy brings both. No device needs doubles."""
    return np.array(values, np.float32).view(np.int32).astype(np.int64)


def from_bits(column: Tensor) -> Tensor:
    """Return float32 numbers of such bits, on their device."""
    return column.to(torch.int32).view(torch.float32)


def has_graphs(device: torch.device) -> bool:
    """Whether computations are graphs by themselves: on NVIDIA's GPUs. AMD's, which go by the same name, were never
    tried."""
    return device.type == "cuda" and torch.version.hip is None


def check(device: str) -> None:
    """Have the device compute something. Raises ConfigError where it cannot be used: busy, lost, or none of torch's."""
    try:
        torch.ones(1, device=device).add_(1).item()
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        if out_of_memory(error):
            return  # how little memory is there is told with what is needed
        why = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"The device {device} cannot be used: {why}. Another process may hold it, or its driver may not fit torch "
            f"{torch.__version__}; choose another device, or say cpu."
        ) from error


def answers(device: str) -> bool:
    """Whether the device still computes. Behind an illegal access, and once it fell off its bus, a process gets no
    answer from it ever again."""
    try:
        check(device)
    except ConfigError:
        return False
    return True


def nvidia_capability(device: torch.device) -> int:
    """Return the major number of an NVIDIA GPU's capability, 9 for Hopper; 0 for all others, AMD's among them, which
    torch calls by the same name and numbers in its own way."""
    if device.type != "cuda" or torch.version.hip is not None:
        return 0
    return torch.cuda.get_device_capability(device)[0]


def settle(device: torch.device) -> None:
    """Settings of a process that computes on such a device."""
    if device.type != "cuda":
        return
    torch.backends.cudnn.allow_tf32 = False  # ten bits of mantissa are too few for sound
    torch.backends.cuda.enable_cudnn_sdp(False)  # it makes a plan for every shape, and prompts have all shapes
