"""Quantize the language models of a checkpoint in safetensors format, one file at a time.

The result has the format ``pack-quantized`` of compressed-tensors, which other servers also read. Each weight is
rounded to a symmetric grid. Of several scales per group, the one with the smallest error is chosen. This needs no
calibration data; methods with calibration data (AWQ, GPTQ) lose less quality at 4 bits.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.errors import ConfigError, WeightsError
from engine.worker.nn.quantization import BITS
from engine.worker.nn.quantized import in_halves
from engine.worker.nn.weights import INDEX, WHOLE, read_json

LAYERS = r"(?!.*code_predictor)(.*\.)?model\.layers\.\d+\.(self_attn|mlp)\.(.*\.)?(q|k|v|o|gate|up|down)_proj"
"""The quantized layers: attention, feed-forward and expert layers of decoder stacks.

Embeddings, routers, encoders, code predictors, codec heads and audio decoders are copied unchanged.
"""
HEADS = r"(.*\.)?lm_head"
"""The heads over text tokens, which always get 8 bits."""
PART = 1 << 24
"""Weights that are rounded at once: their float32 copies take 0.4 GB; a whole head would take 6.9 GB."""
SHRUNK = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""Candidates for a group's scale, relative to its largest weight. Values below 1 clip."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a quantization: the number of quantized layers, and the bytes of all tensors before and after."""

    layers: int
    before: int
    after: int


def quantize(folder: Path, out: Path, bits: int = 4, group: int = 128, say: Callable[[str], None] = print) -> Done:
    """Quantize the checkpoint in ``folder`` into the new folder ``out``.

    Layers whose number of inputs is not a multiple of ``group`` are copied unchanged. ``out`` is removed after an
    error.

    Args:
        folder: The checkpoint's folder.
        out: The new folder. It must not exist.
        bits: 4 or 8 bits per weight.
        group: Inputs that share a scale, a multiple of 8.
        say: Called with the name of each file.

    Raises:
        ConfigError: An option is invalid, or ``out`` cannot be written.
        WeightsError: The checkpoint is damaged, already quantized, or has no safetensors files.
    """
    if bits not in BITS or group < 8 or group % 8:
        raise ConfigError(f"bits must be {' or '.join(map(str, BITS))}, and group a multiple of 8")
    config = read_json(folder / "config.json")
    if config.get("quantization_config"):
        raise WeightsError(f"{folder}: is already quantized; use the original checkpoint")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{folder}: has no safetensors files, so it cannot be quantized")
    try:
        out.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"{out}: already exists; name a new folder") from None
    except OSError as error:
        raise _unwritten(out, error) from None
    try:
        return _converted(folder, out, files, config, bits, group, say)
    except BaseException as error:
        shutil.rmtree(out, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritten(out, error) from None
        raise


def _unwritten(out: Path, error: Exception) -> ConfigError:
    why = str(error).splitlines()[0]
    return ConfigError(f"{out}: could not be written ({why}); free some space, or name a different folder")


def _converted(
    folder: Path,
    out: Path,
    files: list[Path],
    config: dict[str, Any],
    bits: int,
    group: int,
    say: Callable[[str], None],
) -> Done:
    where = dict[str, str]()
    layers = before = after = 0
    for number, file in enumerate(files, 1):
        say(f"{file.name} ({number} of {len(files)})")
        tensors = dict[str, Tensor]()
        try:
            with safe_open(file, framework="pt") as source:
                for name in source.keys():  # noqa: SIM118 - not a mapping
                    found = source.get_tensor(name)
                    made = _made(name, found, bits, group)
                    before, layers = before + found.nbytes, layers + (name not in made)
                    tensors |= made
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file}: damaged or truncated ({error}); download it again") from None
        after += sum(one.nbytes for one in tensors.values())
        try:
            save_file(tensors, out / file.name, {"format": "pt"})
        except SafetensorError as error:
            raise _unwritten(out, error) from None
        where |= dict.fromkeys(tensors, file.name)
    for file in folder.iterdir():
        if file.is_file() and file.suffix != ".safetensors" and file.name not in ("config.json", INDEX):
            shutil.copyfile(file, out / file.name)
    if [file.name for file in files] != [WHOLE]:
        _write(out / INDEX, {"metadata": {"total_size": after}, "weight_map": where})
    _write(out / "config.json", config | {"quantization_config": _described(bits, group)})
    return Done(layers, before, after)


def _made(name: str, found: Tensor, bits: int, group: int) -> dict[str, Tensor]:
    """Return the tensors that replace one tensor of a checkpoint."""
    layer = name.removesuffix(".weight")
    head = re.fullmatch(HEADS, layer)
    if found.dim() != 2 or not found.is_floating_point() or not (head or re.fullmatch(LAYERS, layer)):
        return {name: found}
    if found.shape[1] % group:
        return {name: found}
    bits = 8 if head else bits
    parts = found.split(max(1, PART // found.shape[1]))
    if not all(torch.isfinite(part).all() for part in parts):
        raise WeightsError(f"{name} contains NaN or infinity; download the checkpoint again")
    made = [(packed(numbers, bits), scales) for numbers, scales in (rounded(part, bits, group) for part in parts)]
    words, scales = zip(*made, strict=True)
    return {
        f"{layer}.weight_packed": torch.cat(words),
        f"{layer}.weight_scale": torch.cat(scales),
        f"{layer}.weight_shape": torch.tensor(found.shape),
    }


def rounded(weight: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """Round a weight [out, in] in groups of inputs.

    Returns:
        Numbers, int8 [out, in], and scales [out, in / group] in the weight's dtype.
    """
    parts = weight.float().unflatten(1, (-1, group))
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    largest = parts.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    best = error = torch.full_like(largest, torch.inf)
    numbers = torch.zeros_like(parts)
    for share in SHRUNK:
        scales = (largest * share / (most + 0.5)).to(weight.dtype).float()
        tried = (parts / scales).nan_to_num().round().clamp(least, most)
        off = ((tried * scales - parts) ** 2).sum(-1, keepdim=True)
        better = off < error
        best, error = torch.where(better, scales, best), torch.where(better, off, error)
        numbers = torch.where(better, tried, numbers)
    return numbers.flatten(1).to(torch.int8), best[..., 0].to(weight.dtype)


def packed(numbers: Tensor, bits: int) -> Tensor:
    """Pack signed numbers int8 [out, in] into int32 words [out, in * bits / 32], lowest bits first."""
    whole = (numbers.to(torch.int16) + (1 << (bits - 1))).to(torch.uint8)
    whole = in_halves(whole) if bits == 4 else whole
    return torch.nn.functional.pad(whole, (0, -whole.shape[1] % 4)).contiguous().view(torch.int32)


def _described(bits: int, group: int) -> dict[str, Any]:
    groups = {"group_0": _group(LAYERS, bits, group), "group_1": _group(HEADS, 8, group)}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": [],
    }


def _group(layers: str, bits: int, group: int) -> dict[str, Any]:
    weights = {
        "num_bits": bits,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": group,
        "dynamic": False,
    }
    return {"targets": [f"re:{layers}"], "weights": weights, "input_activations": None}


def _write(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2), encoding="utf-8")
