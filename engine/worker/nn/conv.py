"""Streaming causal convolutions: fed piece by piece, a layer returns the same output as for the whole signal.

Each layer stores the last columns of each request's signal in a slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.weights import WeightReader


@dataclass(frozen=True, slots=True)
class ConvBatch:
    """The signals that a step continues: their slots (a tensor on the device), and whether the signals are new."""

    index: Tensor
    fresh: bool


class Shaped(Protocol):
    """An elementwise function that is applied before a convolution."""

    def behind(self, past: Tensor | None, length: int, x: Tensor, slots: Tensor) -> Tensor:
        """Apply the function to ``x`` [batch, channels, columns], and prepend ``length`` past columns.

        The past columns are ``past`` [slots, channels, length] at ``slots`` [batch], or zeros if ``past`` is None.
        """
        ...


class ConvState:
    """The last ``length`` columns [channels] of each slot's signal."""

    def __init__(self, slots: int, channels: int, length: int, device: torch.device, dtype: torch.dtype) -> None:
        self.length = length
        self.columns = torch.zeros(slots, channels, length, device=device, dtype=dtype)

    def before(self, x: Tensor, piece: ConvBatch, shaped: Shaped | None = None) -> Tensor:
        """Return ``x`` [batch, channels, columns], after ``shaped``, with the past columns in front, and update the
        past.

        New signals have zeros in front.
        """
        if shaped is not None:
            whole = shaped.behind(None if piece.fresh else self.columns, self.length, x, piece.index)
        elif self.length == 0:
            return x
        else:
            head = x.new_zeros(x.shape[0], x.shape[1], self.length) if piece.fresh else self.columns[piece.index]
            whole = torch.cat((head, x), -1)
        if self.length:
            self.columns[piece.index] = whole[..., -self.length :]
        return whole


def slot_states(part: Any) -> list[Tensor]:
    """Return views of all tensors [slots, …] in which a network keeps per-slot state, in order."""
    if isinstance(part, ConvState):
        return [part.columns] if part.length else []
    if isinstance(part, list | tuple):
        return [state for one in part for state in slot_states(one)]
    own = [state.transpose(0, 1) for state in getattr(part, "slot_caches", ())]
    if hasattr(part, "__dict__") and not isinstance(part, Tensor | WeightReader):
        own += [state for one in vars(part).values() for state in slot_states(one)]
    return own


class CausalConv:
    """Streaming causal convolution: stores each slot's last columns (time steps), and has one output per ``stride``
    input columns.

    Only the last piece of a signal may end within a stride; zeros fill it up.
    """

    def __init__(
        self,
        read: WeightReader,
        slots: int,
        into: int,
        out: int,
        kernel: int,
        dilation: int = 1,
        groups: int = 1,
        stride: int = 1,
    ) -> None:
        self.weight = read("conv.weight", out, into // groups, kernel)
        self.bias = read("conv.bias", out)
        self.dilation = dilation
        self.groups = groups
        self.stride = stride
        self._state = ConvState(slots, into, (kernel - 1) * dilation + 1 - stride, read.device, read.dtype)

    def __call__(self, x: Tensor, piece: ConvBatch, shaped: Shaped | None = None) -> Tensor:
        missing = -x.shape[-1] % self.stride
        x = self._state.before(x, piece, shaped)
        if missing:
            x = F.pad(x, (0, missing))
        return F.conv1d(x, self.weight, self.bias, self.stride, dilation=self.dilation, groups=self.groups)


class CausalTransposedConv:
    """Causal upsampling by ``stride``, with ``stride`` output columns per input column.

    The kernel is one or two strides long; with two, neighbours overlap. A ``late`` layer trims one stride at both ends
    of the whole output, so the first column of a signal gives no output. Others trim only the end.
    """

    def __init__(
        self,
        read: WeightReader,
        slots: int,
        into: int,
        out: int,
        kernel: int,
        stride: int,
        late: bool = True,
        groups: int = 1,
        biased: bool = True,
    ) -> None:
        if kernel not in (stride, 2 * stride):
            raise ValueError(f"the kernel must be one or two strides long (got {kernel} for a stride of {stride})")
        self.weight = read("conv.weight", into, out // groups, kernel)
        self.bias = read("conv.bias", out) if biased else None
        self.stride = stride
        self.groups = groups
        self.trim = kernel - stride
        self.late = late
        self._state = ConvState(slots, into, 1 if self.trim else 0, read.device, read.dtype)

    def __call__(self, x: Tensor, piece: ConvBatch, shaped: Shaped | None = None) -> Tensor:
        whole = self._state.before(x, piece, shaped)
        x = whole[..., self._state.length :] if piece.fresh and self.late else whole
        y = F.conv_transpose1d(x, self.weight, self.bias, stride=self.stride, groups=self.groups)
        return y[..., self.trim : y.shape[-1] - self.trim]
