"""Causal convolutions that remember: fed piece by piece they give what the whole signal would have given.

What a layer must remember of each request, its tail, lies in a slot. Knows no codec.
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
    """The signals that go on: their slots, an index on the device, and whether this is their beginning."""

    index: Tensor
    fresh: bool


class Shaped(Protocol):
    """What is done to each column of a signal before it is convolved."""

    def behind(self, past: Tensor | None, length: int, x: Tensor, slots: Tensor) -> Tensor:
        """The columns that come of ``x`` [batch, channels, columns], behind ``length`` ones: those that ``past``
        [slots, channels, length] holds of ``slots`` [batch], or zeros."""
        ...


class ConvState:
    """The last ``length`` columns of each slot's signal [channels]."""

    def __init__(self, slots: int, channels: int, length: int, device: torch.device, dtype: torch.dtype) -> None:
        self.length = length
        self.columns = torch.zeros(slots, channels, length, device=device, dtype=dtype)

    def before(self, x: Tensor, piece: ConvBatch, shaped: Shaped | None = None) -> Tensor:
        """``x`` [batch, channels, columns], ``shaped`` first, with its tail in front (zeros at the beginning), which
        moves on."""
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
    """Every tensor [slots, …] in which a network, or a part of one, keeps the past of its slots; views, in order."""
    if isinstance(part, ConvState):
        return [part.columns] if part.length else []
    if isinstance(part, list | tuple):
        return [state for one in part for state in slot_states(one)]
    own = [state.transpose(0, 1) for state in getattr(part, "slot_caches", ())]
    if hasattr(part, "__dict__") and not isinstance(part, Tensor | WeightReader):
        own += [state for one in vars(part).values() for state in slot_states(one)]
    return own


class CausalConv:
    """A convolution that looks back only; as many columns out as in."""

    def __init__(
        self, read: WeightReader, slots: int, into: int, out: int, kernel: int, dilation: int = 1, groups: int = 1
    ) -> None:
        self.weight = read("conv.weight", out, into // groups, kernel)
        self.bias = read("conv.bias", out)
        self.dilation = dilation
        self.groups = groups
        self._state = ConvState(slots, into, (kernel - 1) * dilation, read.device, read.dtype)

    def __call__(self, x: Tensor, piece: ConvBatch, shaped: Shaped | None = None) -> Tensor:
        x = self._state.before(x, piece, shaped)
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation, groups=self.groups)


class CausalTransposedConv:
    """Upsampling by ``stride``: columns out are columns in times the stride.

    With a kernel of twice the stride neighbours overlap. A ``late`` one cuts a stride off both ends of the whole, so
    the first column of a signal gives nothing and only later ones do; others cut what is behind the last column.
    """

    def __init__(
        self, read: WeightReader, slots: int, into: int, out: int, kernel: int, stride: int, late: bool = True
    ) -> None:
        if kernel not in (stride, 2 * stride):
            raise ValueError(f"a kernel of {kernel} for a stride of {stride} is not of this kind")
        self.weight = read("conv.weight", into, out, kernel)
        self.bias = read("conv.bias", out)
        self.stride = stride
        self.trim = kernel - stride
        self.late = late
        self._state = ConvState(slots, into, 1 if self.trim else 0, read.device, read.dtype)

    def __call__(self, x: Tensor, piece: ConvBatch, shaped: Shaped | None = None) -> Tensor:
        whole = self._state.before(x, piece, shaped)
        x = whole[..., self._state.length :] if piece.fresh and self.late else whole
        y = F.conv_transpose1d(x, self.weight, self.bias, stride=self.stride)
        return y[..., self.trim : y.shape[-1] - self.trim]
