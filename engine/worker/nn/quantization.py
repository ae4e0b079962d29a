"""Reads the quantized linear layers of checkpoints in four formats as ``QuantizedWeight``.

``quantization_config`` in config.json names the format, bits and groups (``schemes``). The tensors in the files show
which layers are quantized. Both must agree, because a tensor of the wrong shape would be read as wrong numbers. Only
weights are quantized: if a format also quantizes activations, they stay in the stage's dtype, which is more accurate.

Sources: AutoAWQ's layout ``gemm``; AutoGPTQ's and GPTQModel's ``gptq`` and ``gptq_v2``; compressed-tensors
(``pack-quantized``, ``int-quantized``, ``float-quantized``, ``naive-quantized``); transformers' ``fp8`` in blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.worker.nn.quantized import QuantizedWeight, halves, in_halves
from engine.worker.nn.schemes import Scheme, Schemes, scheme_of, schemes_of

BITS = (4, 8)
MARKS = ("qweight", "weight_packed", "weight_scale", "weight_scale_inv")
"""Tensors that identify a quantized layer."""
_COMPRESSED = frozenset({"pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "dense"})
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Order of eight columns in a 32-bit word of AWQ."""
_INTEGERS, _INDICES = frozenset({torch.int32}), frozenset({torch.int32, torch.int64})
_SCALES = frozenset({torch.float16, torch.bfloat16, torch.float32})
_BYTES = {torch.int8: False, torch.float8_e4m3fn: True}
"""dtypes of unpacked numbers, and whether they are floats."""


class QuantizedLayer(Protocol):
    """Tensors of a linear layer in a checkpoint; ``prefix`` is its name and a dot."""

    prefix: str

    def __contains__(self, name: str) -> bool: ...

    def raw(self, name: str) -> Tensor:
        """Return a tensor unchanged from the file, on the stage's device."""
        ...


@dataclass(frozen=True, slots=True)
class Quantization:
    """The quantization of a checkpoint."""

    method: str
    schemes: Schemes = ()
    less_one: bool = False
    """Whether zero points are stored minus one."""

    def read(self, layer: QuantizedLayer, outputs: int, width: int, dtype: torch.dtype) -> QuantizedWeight:
        """Return the weight [outputs, width] of a layer. Raises ValueError with the reason if the tensors do not
        match.
        """
        scheme = scheme_of(self.schemes, layer.prefix.removesuffix("."))
        numbers, scales, zeros, groups, bits = _READ[self.method](self, scheme, layer, outputs, width)
        _fits(numbers, outputs, width, bits)
        count = scheme.groups(width) or scales.shape[-1]
        if scales.shape != (outputs, count):
            raise ValueError(
                f"its scales have the shape {list(scales.shape)}, but config.json implies {[outputs, count]}"
            )
        if groups is None and width % count:
            raise ValueError(
                f"its scales have the shape {list(scales.shape)}, which does not divide {[outputs, width]} into groups"
            )
        if zeros is None and scheme.symmetric is False:
            raise ValueError("its zero points are missing, but config.json says that it is not symmetric")
        if zeros is not None and zeros.shape != scales.shape:
            raise ValueError(f"its zero points have the shape {list(zeros.shape)}, its scales {list(scales.shape)}")
        return QuantizedWeight(numbers, scales, zeros, groups, bits, dtype)


def quantization_of(config: Mapping[str, Any]) -> Quantization | None:
    """Read a checkpoint's quantization from its config.json. Raises ValueError for an unsupported kind."""
    found = config.get("quantization_config") or config.get("compression_config")
    if not found:
        return None
    try:
        return _quantization(found)
    except (AttributeError, IndexError, KeyError, TypeError, re.error) as error:
        raise ValueError(f"quantization_config cannot be read ({error})") from None


def _quantization(found: Mapping[str, Any]) -> Quantization:
    method = str(found.get("quant_method", "nothing"))
    if method not in _READ:
        raise ValueError(f"the quantization method {method} is not supported (supported: {', '.join(sorted(_READ))})")
    if method == "awq" and (version := str(found.get("version", "gemm")).lower()) != "gemm":
        raise ValueError(f"AWQ checkpoints of the version {version} are not supported (only gemm)")
    schemes = schemes_of(method, found)
    if method == "awq" and schemes[-1][1].bits not in (4, None):
        raise ValueError(f"{schemes[-1][1].bits}-bit AWQ checkpoints are not supported (only 4-bit)")
    if method == "compressed-tensors":
        formats = {found.get("format"), *(group.get("format") for group in found.get("config_groups", {}).values())}
        if others := formats - _COMPRESSED - {None}:
            names = ", ".join(sorted(map(str, others)))
            raise ValueError(
                f"the compressed-tensors format {names} is not supported "
                f"(supported: {', '.join(sorted(_COMPRESSED))}); use another checkpoint"
            )
    less_one = method == "gptq" and found.get("checkpoint_format", "gptq") != "gptq_v2"
    return Quantization(method, schemes, less_one)


_Parts = tuple[Tensor, Tensor, Tensor | None, Tensor | None, int]
"""Numbers, scales, zero points, group of each input, and bits, as in QuantizedWeight."""


def _awq(how: Quantization, scheme: Scheme, layer: QuantizedLayer, outputs: int, width: int) -> _Parts:
    """Read AWQ: packed numbers [in, out / 8] and zero points [groups, out / 8], scales [groups, out]."""
    numbers, zeros = (_columns(_taken(layer, name, _INTEGERS)) for name in ("qweight", "qzeros"))
    if numbers.shape != (width, outputs):
        raise ValueError(f"it has {list(numbers.T.shape)} numbers, but config.json implies {[outputs, width]}")
    return in_halves(numbers.T), _taken(layer, "scales", _SCALES).T.contiguous(), zeros.T.contiguous(), None, 4


def _columns(packed: Tensor) -> Tensor:
    """Unpack AWQ's packed columns to [..., 8 · packed]."""
    return halves(packed.view(torch.uint8)).unflatten(-1, (-1, 8))[..., _AWQ_ORDER].flatten(-2)


def _gptq(how: Quantization, scheme: Scheme, layer: QuantizedLayer, outputs: int, width: int) -> _Parts:
    """Read GPTQ: packed numbers [in · bits / 32, out] and zero points [groups, out · bits / 32], scales [groups,
    out].
    """
    packed, scales = _taken(layer, "qweight", _INTEGERS), _taken(layer, "scales", _SCALES)
    bits = _bits(scheme, packed.T, outputs, width)
    zeros = _taken(layer, "qzeros", _INTEGERS).view(torch.uint8)
    zeros = halves(zeros) if bits == 4 else zeros
    if how.less_one:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    groups = _groups(_taken(layer, "g_idx", _INDICES, (1,)), width, len(scales)) if "g_idx" in layer else None
    return packed.T.contiguous().view(torch.uint8), scales.T.contiguous(), zeros.T.contiguous(), groups, bits


def _compressed(how: Quantization, scheme: Scheme, layer: QuantizedLayer, outputs: int, width: int) -> _Parts:
    """Read compressed-tensors: packed along the inputs, or unpacked int8 or float8."""
    if "weight_packed" not in layer:
        return _plain(how, scheme, layer, outputs, width)
    packed = _taken(layer, "weight_packed", _INTEGERS)
    scales = _by_output(_taken(layer, "weight_scale", _SCALES, (0, 1, 2)), scheme, outputs, width)
    bits = _bits(scheme, packed, outputs, width)
    zeros = None
    if "weight_zero_point" in layer:  # packed along the outputs
        found = _taken(layer, "weight_zero_point", _INTEGERS)
        if len(found) != -(-outputs * bits // 32):
            raise ValueError(
                f"its packed zero points have the shape {list(found.shape)} for {outputs} outputs of {bits} bits"
            )
        bytes_ = found.T.contiguous().view(torch.uint8)
        zeros = (halves(bytes_) if bits == 4 else bytes_).T[:outputs].contiguous()
    name = "weight_g_idx"
    groups = _groups(_taken(layer, name, _INDICES, (1,)), width, scales.shape[-1]) if name in layer else None
    return packed.view(torch.uint8)[:, : width * bits // 8], scales, zeros, groups, bits


def _plain(how: Quantization, scheme: Scheme, layer: QuantizedLayer, outputs: int, width: int) -> _Parts:
    """Read unpacked int8 or float8."""
    numbers = _taken(layer, "weight", None)
    if numbers.dtype not in _BYTES or scheme.floats not in (None, _BYTES[numbers.dtype]):
        wanted = {None: "int8 or float8_e4m3fn", True: "float8_e4m3fn", False: "int8"}[scheme.floats]
        raise ValueError(f"its numbers are {numbers.dtype}, but must be {wanted}")
    _fits(numbers, outputs, width, 8)
    scale = "weight_scale_inv" if how.method == "fp8" else "weight_scale"
    scales = _by_output(_taken(layer, scale, _SCALES, (0, 1, 2)), scheme, outputs, width)
    zeros = None
    if "weight_zero_point" in layer:
        dtypes = _INDICES | _SCALES | {numbers.dtype}
        zeros = _by_output(_taken(layer, "weight_zero_point", dtypes, (0, 1, 2)), scheme, outputs, width)
    size = scheme.block[1] if scheme.block else width
    groups = torch.arange(width, device=numbers.device) // size if size < width and width % size else None
    return numbers, scales, zeros, groups, 8


def _taken(
    layer: QuantizedLayer, name: str, dtypes: frozenset[torch.dtype] | None, dims: tuple[int, ...] = (2,)
) -> Tensor:
    """Return a tensor of the layer. Raises ValueError for a wrong dtype, wrong dimensions, or an empty tensor."""
    found = layer.raw(name)
    if dtypes is not None and found.dtype not in dtypes:
        wanted = " or ".join(sorted(str(one).removeprefix("torch.") for one in dtypes))
        raise ValueError(f"its {name} is {found.dtype}, but must be {wanted}")
    if found.dim() not in dims or not found.numel():
        raise ValueError(f"its {name} has the shape {list(found.shape)}, which is invalid for this format")
    return found


def _bits(scheme: Scheme, packed: Tensor, outputs: int, width: int) -> int:
    """Return the bits of numbers that are packed into integers [outputs, …] along the inputs."""
    fitting = [bits for bits in range(1, 17) if -(-width * bits // 32) == packed.shape[1]]
    if scheme.floats:
        raise ValueError("its numbers are integers, but config.json says that they are floats")
    if len(packed) != outputs or not fitting:
        raise ValueError(f"it has {list(packed.shape)} integers, but config.json implies {[outputs, width]} numbers")
    if scheme.bits is not None and scheme.bits not in fitting:
        raise ValueError(f"its numbers have {fitting[0]} bits, but config.json says {scheme.bits}")
    bits = scheme.bits or next((bits for bits in BITS if bits in fitting), fitting[0])
    if bits not in BITS:
        raise ValueError(f"{bits}-bit numbers are not supported (only {' and '.join(map(str, BITS))})")
    return bits


def _fits(numbers: Tensor, outputs: int, width: int, bits: int) -> None:
    if numbers.shape != (outputs, width * bits // 8):
        raise ValueError(f"it has {list(numbers.shape)} bytes, but config.json implies {[outputs, width]} numbers")


def _by_output(scales: Tensor, scheme: Scheme, outputs: int, width: int) -> Tensor:
    """Return scales per output [outputs, groups], from one for all, one per output, or one per block."""
    if scheme.block is not None:
        blocks = -(-outputs // scheme.block[0]), -(-width // scheme.block[1])
        if scales.shape != blocks and (scales.numel() > 1 or blocks != (1, 1)):
            raise ValueError(
                f"its scales have the shape {list(scales.shape)}, but config.json implies {list(blocks)} "
                f"for blocks of {list(scheme.block)}"
            )
        scales = scales.reshape(blocks)
        return scales.repeat_interleave(min(scheme.block[0], outputs), 0)[:outputs]
    if scales.numel() == 1 and scheme.group is None:
        return scales.reshape(1, 1).repeat(outputs, 1)
    return scales.reshape(-1, 1) if scales.dim() < 2 else scales


def _groups(found: Tensor, width: int, count: int) -> Tensor | None:
    """Return the group of each input, or None if each group's inputs are contiguous."""
    found = found.long()
    if found.shape != (width,):
        raise ValueError(f"its group index has the shape {list(found.shape)} for {width} inputs")
    if found.is_meta or (width % count == 0 and torch.equal(found.cpu(), torch.arange(width) // (width // count))):
        return None
    if int(found.min()) < 0 or int(found.max()) >= count:
        raise ValueError(
            f"its group index (g_idx) names groups that do not exist (there are {count}); download the file again"
        )
    return found


_READ: Mapping[str, Callable[[Quantization, Scheme, QuantizedLayer, int, int], _Parts]] = {
    "awq": _awq,
    "gptq": _gptq,
    "compressed-tensors": _compressed,
    "fp8": _plain,
}
