"""Torch devices: availability check, settings, and copies of small values."""

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
    """Copy numbers to a device without synchronizing. ``torch.tensor(…, device=…)`` would wait for pending work."""
    found = torch.from_numpy(values) if isinstance(values, np.ndarray) else torch.tensor(values)
    return found.to(device, non_blocking=True)


def to_host(values: Tensor) -> NDArray[Any]:
    """Copy a tensor to the host, waiting only for this copy."""
    if values.device.type != "cuda" or not torch.cuda.is_available():
        return values.cpu().numpy()
    found = torch.empty_like(values, device="cpu", pin_memory=True)
    found.copy_(values, non_blocking=True)
    torch.cuda.current_stream(values.device).record_event().synchronize()
    return found.numpy()


def float_bits(values: Sequence[float] | Sequence[tuple[float, float]]) -> NDArray[np.int64]:
    """Return the float32 bits of numbers as integers, so that an integer table can hold them."""
    return np.array(values, np.float32).view(np.int32).astype(np.int64)


def from_bits(column: Tensor) -> Tensor:
    """Return the float32 numbers of the bits from ``float_bits``, on the same device."""
    return column.to(torch.int32).view(torch.float32)


def has_graphs(device: torch.device) -> bool:
    """Return whether graphs are enabled by default: on NVIDIA GPUs. AMD GPUs (also "cuda" in torch) are untested."""
    return device.type == "cuda" and torch.version.hip is None


def check(device: str) -> None:
    """Run a computation on the device. Raises ConfigError if the device is unavailable or unknown."""
    try:
        torch.ones(1, device=device).add_(1).item()
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        if out_of_memory(error):
            return  # the memory check reports this with the required amount
        why = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"The device {device} cannot be used: {why}. Another process may be using it, or its driver may not match "
            f"torch {torch.__version__}. Choose another device, or cpu."
        ) from error


def answers(device: str) -> bool:
    """Return whether the device still works. After an illegal memory access or a disconnect, it fails for the whole
    process.
    """
    try:
        check(device)
    except ConfigError:
        return False
    return True


def nvidia_capability(device: torch.device) -> int:
    """Return the major compute capability of an NVIDIA GPU (9 for Hopper), or 0 for other devices.

    torch calls AMD GPUs "cuda" too, but numbers their capabilities differently.
    """
    if device.type != "cuda" or torch.version.hip is not None:
        return 0
    return torch.cuda.get_device_capability(device)[0]


def settle(device: torch.device) -> None:
    """Set torch's global options for a device."""
    if device.type != "cuda":
        return
    torch.backends.cudnn.allow_tf32 = False  # 10 bits of mantissa cause audible errors
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans every new shape, and prompt shapes vary
