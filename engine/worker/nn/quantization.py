"""Checkpoints whose linear layers are quantized, as four formats lay them out, read as ``QuantizedWeight``.

``quantization_config`` of config.json names the format; which layers are quantized is what tensors are there, and bits
and groups follow from their shapes. Only weights are taken: where a format quantizes what goes into a layer as well,
that stays in the stage's dtype, which is the more exact.

Sources: AutoAWQ's layout ``gemm``; AutoGPTQ's and GPTQModel's ``gptq`` and ``gptq_v2``; compressed-tensors
(``pack-quantized``, ``int-quantized``, ``float-quantized``, ``naive-quantized``); transformers' ``fp8`` in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.worker.nn.quantized import QuantizedWeight, halves, in_halves

BITS = (4, 8)
MARKS = ("qweight", "weight_packed", "weight_scale", "weight_scale_inv")
"""Tensors of a layer that is quantized: by each of them it is known."""
_COMPRESSED = frozenset({"pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "dense"})
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""The place of each of eight columns in a word of AWQ."""


class Layer(Protocol):
    """A linear layer's tensors in a checkpoint."""

    def __contains__(self, name: str) -> bool: ...

    def raw(self, name: str) -> Tensor:
        """A tensor as it lies in the file, on the stage's device."""
        ...


@dataclass(frozen=True, slots=True)
class Quantization:
    """The way in which a checkpoint is quantized. ``read`` makes a weight [outputs, width] of a layer's tensors."""

    method: str
    block: tuple[int, int] | None = None
    """Outputs and inputs that share a scale, where those of a file are fewer than its outputs."""
    less_one: bool = False
    """Whether zeros are stored less one."""

    def read(self, layer: Layer, outputs: int, width: int, dtype: torch.dtype) -> QuantizedWeight:
        """Raises ValueError: a clause that says what does not fit."""
        numbers, scales, zeros, groups, bits = _READ[self.method](self, layer, outputs, width)
        if bits not in BITS or numbers.shape != (outputs, width * bits // 8):
            raise ValueError(
                f"it holds {list(numbers.shape)} bytes, where config.json wants {[outputs, width]} numbers"
            )
        if len(scales) != outputs or (groups is None and width % scales.shape[-1]):
            raise ValueError(f"its scales are {list(scales.shape)}, which is no group size of {[outputs, width]}")
        if zeros is not None and zeros.shape != scales.shape:
            raise ValueError(f"its zeros are {list(zeros.shape)} for scales of {list(scales.shape)}")
        return QuantizedWeight(numbers, scales, zeros, groups, bits, dtype)


def quantization_of(config: Mapping[str, Any]) -> Quantization | None:
    """Read how a checkpoint is quantized from its config.json. Raises ValueError for a kind that is not read."""
    found = config.get("quantization_config") or config.get("compression_config")
    if not found:
        return None
    method = str(found.get("quant_method", "nothing"))
    if method not in _READ:
        raise ValueError(f"the checkpoint is quantized by {method}; read are {', '.join(sorted(_READ))}")
    if method == "awq" and (version := str(found.get("version", "gemm")).lower()) != "gemm":
        raise ValueError(f"the checkpoint is laid out for AWQ's {version} kernels; read is gemm")
    formats = {found.get("format"), *(group.get("format") for group in found.get("config_groups", {}).values())}
    if method == "compressed-tensors" and (others := formats - _COMPRESSED - {None}):
        raise ValueError(f"the checkpoint's format is {', '.join(sorted(others))}; read are {', '.join(_COMPRESSED)}")
    less_one = method == "gptq" and found.get("checkpoint_format", "gptq") != "gptq_v2"
    return Quantization(method, _block(found), less_one)


def _block(found: Mapping[str, Any]) -> tuple[int, int] | None:
    groups: Sequence[Any] = list(found.get("config_groups", {}).values())
    sizes = [found.get("weight_block_size"), *((group.get("weights") or {}).get("block_structure") for group in groups)]
    return next(((int(size[0]), int(size[1])) for size in sizes if size), None)


_Parts = tuple[Tensor, Tensor, Tensor | None, Tensor | None, int]
"""Numbers, scales, zeros, the group of each input, bits: as QuantizedWeight has them."""


def _awq(how: Quantization, layer: Layer, outputs: int, width: int) -> _Parts:
    """Numbers [in, out / 8] and zeros [groups, out / 8] in packed, scales [groups, out]."""
    numbers, zeros = (_columns(layer.raw(name)) for name in ("qweight", "qzeros"))
    return in_halves(numbers.T), layer.raw("scales").T.contiguous(), zeros.T.contiguous(), None, 4


def _columns(packed: Tensor) -> Tensor:
    """Columns [..., 8 · packed] of AWQ's packed."""
    return halves(packed.view(torch.uint8)).unflatten(-1, (-1, 8))[..., _AWQ_ORDER].flatten(-2)


def _gptq(how: Quantization, layer: Layer, outputs: int, width: int) -> _Parts:
    """Numbers [in · bits / 32, out] and zeros [groups, out · bits / 32] in packed, scales [groups, out]."""
    packed, scales = layer.raw("qweight"), layer.raw("scales")
    bits = 32 * len(packed) // width
    zeros = layer.raw("qzeros").view(torch.uint8)
    zeros = halves(zeros) if bits == 4 else zeros
    if how.less_one:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    groups = _groups(layer.raw("g_idx"), width, len(scales)) if "g_idx" in layer else None
    return packed.T.contiguous().view(torch.uint8), scales.T.contiguous(), zeros.T.contiguous(), groups, bits


def _compressed(how: Quantization, layer: Layer, outputs: int, width: int) -> _Parts:
    """Packed along the inputs; or as they are, in int8 or float8."""
    if "weight_packed" not in layer:
        return _plain(how, layer, "weight_scale", outputs, width)
    packed, scales = layer.raw("weight_packed"), _by_output(layer.raw("weight_scale"), outputs, how.block)
    bits = 32 * packed.shape[1] // width
    zeros = None
    if "weight_zero_point" in layer:  # packed along the outputs
        bytes_ = layer.raw("weight_zero_point").T.contiguous().view(torch.uint8)
        zeros = (halves(bytes_) if bits == 4 else bytes_).T[:outputs].contiguous()
    name = "weight_g_idx"
    groups = _groups(layer.raw(name), width, scales.shape[-1]) if name in layer else None
    return packed.view(torch.uint8)[:, : width * bits // 8], scales, zeros, groups, bits


def _fp8(how: Quantization, layer: Layer, outputs: int, width: int) -> _Parts:
    return _plain(how, layer, "weight_scale_inv", outputs, width)


def _plain(how: Quantization, layer: Layer, scale: str, outputs: int, width: int) -> _Parts:
    numbers, found = layer.raw("weight"), layer.raw(scale)
    if numbers.dtype.itemsize != 1:
        raise ValueError(f"its numbers are {numbers.dtype}, and not of eight bits")
    scales = _by_output(found, outputs, how.block)
    zeros = _by_output(layer.raw("weight_zero_point"), outputs, how.block) if "weight_zero_point" in layer else None
    size = how.block[1] if how.block and found.numel() > 1 else 0
    groups = torch.arange(width, device=numbers.device) // size if size and size * scales.shape[-1] != width else None
    return numbers, scales, zeros, groups, 8


def _by_output(scales: Tensor, outputs: int, block: tuple[int, int] | None) -> Tensor:
    """Scales of each output [outputs, groups]: of one for all, one for each, or one for each block."""
    if scales.numel() == 1:
        return scales.reshape(1, 1).repeat(outputs, 1)
    scales = scales[:, None] if scales.dim() == 1 else scales
    if block is not None and len(scales) == -(-outputs // block[0]):
        scales = scales.repeat_interleave(block[0], 0)[:outputs]
    return scales


def _groups(found: Tensor, width: int, count: int) -> Tensor | None:
    """The group of each input, where those of a group do not lie side by side."""
    found = found.long()
    if found.shape != (width,):
        raise ValueError(f"its groups are {list(found.shape)} for {width} inputs")
    if found.is_meta or (width % count == 0 and torch.equal(found.cpu(), torch.arange(width) // (width // count))):
        return None
    if int(found.min()) < 0 or int(found.max()) >= count:
        raise ValueError(f"its inputs are of groups that it has not: there are {count}")
    return found


_READ: Mapping[str, Callable[[Quantization, Layer, int, int], _Parts]] = {
    "awq": _awq, "gptq": _gptq, "compressed-tensors": _compressed, "fp8": _fp8,
}  # fmt: skip
