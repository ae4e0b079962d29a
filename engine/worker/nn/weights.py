"""Read a checkpoint: a folder of safetensors, memory-mapped; only what is asked for is touched.

Knows file formats and shapes, no model. Every fault is a WeightsError of one sentence that names the file.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.quantization import MARKS, Quantization, quantization_of
from engine.worker.nn.quantized import QuantizedWeight, Weight, joined, packed, stacked

log = logging.getLogger(__name__)

_HUB = "hub:"
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # no pickles, no code, no second format
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"


def find(weights: Path | None, also: Sequence[str] = ()) -> Path:
    """The folder of a checkpoint: given as such, as a hub id in the local hub cache, or as ``hub:OWNER/NAME``.

    ``also`` are names of files that are wanted beside the usual kinds.

    Only the last asks the network, for what the cache lacks (HF_HUB_OFFLINE forbids it): it may take that long.
    """
    if weights is None:
        raise WeightsError("weights: missing; name a checkpoint's folder or a hub id")
    if weights.is_dir():
        return weights
    download = str(weights).startswith(_HUB)
    id = str(weights).removeprefix(_HUB)
    if len(Path(id).parts) != 2 or Path(id).is_absolute():
        raise WeightsError(f"{weights}: there is no such folder")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    offline = not download or constants.HF_HUB_OFFLINE
    if not offline:
        log.info("weights: taking %s from the hub, as far as its cache lacks it", id)
    try:
        return Path(snapshot_download(id, local_files_only=offline, allow_patterns=[*_WANTED, *also]))
    except (LocalEntryNotFoundError, HFValidationError):
        hint = "the hub may not be asked (HF_HUB_OFFLINE)" if download else f"write {_HUB}{id} to have it downloaded"
        raise WeightsError(f"{weights}: neither a folder nor in the hub's cache; {hint}") from None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise WeightsError(f"{weights}: could not be had from the hub ({reason}); try again, it goes on") from None


class SafetensorsCheckpoint:
    """A folder with ``config.json`` and ``model.safetensors``, whole or in shards.

    Tensors come as views of the mapped files: reading one touches its own pages alone, and nothing is held twice.
    """

    def __init__(self, folder: Path, architecture: str) -> None:
        self.folder = folder
        self.config: dict[str, Any] = read_json(folder / "config.json")
        names = self.config.get("architectures") or [self.config.get("model_type", "nothing")]
        if architecture not in names:
            raise WeightsError(f"{folder / 'config.json'}: describes {names[0]}, not {architecture}")
        try:
            self.quantization: Quantization | None = quantization_of(self.config)
        except ValueError as error:
            raise WeightsError(f"{folder / 'config.json'}: {error}") from None
        self._files: dict[Path, Any] = {}
        self._bar: Bar | None = None
        self._where = self._locate()

    def _locate(self) -> Mapping[str, Path]:
        index = self.folder / INDEX
        if index.exists():
            return {name: self.folder / file for name, file in read_json(index).get("weight_map", {}).items()}
        whole = self.folder / WHOLE
        return dict.fromkeys(self._open(whole).keys(), whole)

    def _open(self, file: Path) -> Any:
        if file not in self._files:
            if not file.exists():
                raise WeightsError(f"{file}: missing; the checkpoint is incomplete, download it again")
            try:
                self._files[file] = safe_open(file, framework="pt")
            except (SafetensorError, OSError) as error:
                raise WeightsError(f"{file}: damaged or truncated ({error}); download it again") from None
        return self._files[file]

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def names(self, prefix: str) -> list[str]:
        """All tensors whose name begins so."""
        return [name for name in self._where if name.startswith(prefix)]

    def expect(self, prefix: str) -> None:
        """Show from here on how much of what lies below a prefix has been read."""
        self._bar = Bar(prefix.removesuffix("."), len(self.names(prefix)))

    def _at(self, name: str) -> Any:
        if name not in self._where:
            raise WeightsError(
                f"{self.folder}: has no tensor {name}; it is not a whole checkpoint of this architecture"
            )
        return self._open(self._where[name])

    def tensor(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """A tensor as it lies in the file, of ``shape`` if one is given."""
        try:
            found = self._at(name).get_tensor(name)
        except SafetensorError as error:
            raise WeightsError(f"{self._where[name]}: has no {name} ({error}); download it again") from None
        if self._bar is not None:
            self._bar.advance()
        if shape is not None and tuple(found.shape) != tuple(shape):
            raise WeightsError(
                f"{self._where[name]}: {name} has the shape {list(found.shape)}, where config.json wants {list(shape)}"
            )
        return found


class Bar:
    """A bar that shows how much of something has been done, on a terminal's standard error; nowhere else."""

    def __init__(self, name: str, total: int, wide: int = 30) -> None:
        self._name = name
        self._total = total
        self._wide = wide
        self._done = 0

    def advance(self) -> None:
        """One more is done; the line ends with the last."""
        self._done += 1
        if sys.stderr.isatty() and self._done <= self._total:
            full = self._wide * self._done // self._total
            end = "\n" if self._done == self._total else ""
            bar = "█" * full + "·" * (self._wide - full)
            sys.stderr.write(f"\r{self._name:>9} {bar} {self._done}/{self._total}{end}")
            sys.stderr.flush()


class WeightReader:
    """Tensors below a prefix, as weights on a device. ``kernels`` are what networks of these may have computed so;
    where they are ``static``, they may be captured as graphs."""

    def __init__(
        self,
        checkpoint: SafetensorsCheckpoint,
        prefix: str,
        device: torch.device,
        dtype: torch.dtype,
        kernels: Kernels | None = None,
        static: bool = False,
    ) -> None:
        self.checkpoint = checkpoint
        self.prefix = prefix
        self.device = device
        self.dtype = dtype
        self.kernels = kernels
        self.static = static

    def below(self, name: str) -> WeightReader:
        """Return a reader of the same weights, some names deeper."""
        return WeightReader(
            self.checkpoint, f"{self.prefix}{name}.", self.device, self.dtype, self.kernels, self.static
        )

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.checkpoint

    def __call__(self, name: str, *shape: int) -> Tensor:
        """One weight of that shape, in the stage's dtype."""
        return self._plain(name, shape).to(self.device, self.dtype)

    def joined(self, names: Sequence[str], sizes: Sequence[int], *rest: int) -> Tensor:
        """Several weights as one, below each other: one product instead of three. Filled piece by piece."""
        whole = torch.empty(sum(sizes), *rest, device=self.device, dtype=self.dtype)
        for part, name, n in zip(whole.split(list(sizes)), names, sizes, strict=True):
            part.copy_(self._plain(name, (n, *rest)))
        return whole

    def linear(self, names: Sequence[str], sizes: Sequence[int], width: int) -> Weight:
        """The weight [sum of sizes, width] of linear layers that eat the same rows, quantized where they are.

        Raises WeightsError where some of them are and others not, or in several ways.
        """
        found = self._together(names, sizes, width)
        return found if isinstance(found, Tensor) else packed(found)

    def _together(self, names: Sequence[str], sizes: Sequence[int], width: int) -> Weight:
        quantized = [self._quantized(name) for name in names]
        if not any(quantized):
            whole = [f"{name}.weight" for name in names]
            return self(whole[0], sizes[0], width) if len(names) == 1 else self.joined(whole, sizes, width)
        try:
            if not all(quantized):
                raise ValueError("some of them are quantized, and others not")
            parts = [self._of_few_bits(name, n, width) for name, n in zip(names, sizes, strict=True)]
            return joined(parts) if len(parts) > 1 else parts[0]
        except ValueError as error:
            which = ", ".join(f"{self.prefix}{name}" for name in names)
            raise WeightsError(f"{self.checkpoint.folder}: {which}: {error}") from None

    def linears(self, layers: Sequence[str], names: Sequence[str], sizes: Sequence[int], width: int) -> Weight:
        """``linear`` of several layers, given by what stands before their names, as one weight [layers, …]."""
        parts = (self._together([f"{layer}{name}" for name in names], sizes, width) for layer in layers)
        try:
            return stacked(parts, len(layers))
        except ValueError as error:
            which = f"{self.prefix}{layers[0]}{names[0]} to {self.prefix}{layers[-1]}{names[-1]}"
            raise WeightsError(f"{self.checkpoint.folder}: {which}: {error}") from None

    def raw(self, name: str) -> Tensor:
        """A tensor as it lies in the file, on the stage's device."""
        return self.checkpoint.tensor(self.prefix + name).to(self.device)

    def _of_few_bits(self, name: str, outputs: int, width: int) -> QuantizedWeight:
        how = self.checkpoint.quantization
        if how is None:
            raise ValueError("it is quantized, and config.json does not say how (quantization_config)")
        return how.read(self.below(name), outputs, width, self.dtype)

    def _quantized(self, layer: str) -> bool:
        return any(f"{layer}.{mark}" in self for mark in MARKS)

    def _plain(self, name: str, shape: Sequence[int]) -> Tensor:
        """A tensor of real numbers. Raises WeightsError for one of few bits, whose numbers alone mean nothing."""
        layer, _, last = name.rpartition(".")
        few = last == "weight" and self._quantized(layer)
        found = None if few else self.checkpoint.tensor(self.prefix + name, shape)
        if found is None or not found.is_floating_point() or found.dtype.itemsize < 2:
            raise WeightsError(
                f"{self.checkpoint.folder}: {self.prefix}{name} is quantized, and this part of the model is read in "
                "full only: take a checkpoint that leaves it as it was"
            )
        return found


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file of a checkpoint."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise WeightsError(f"{file}: missing; the checkpoint is incomplete") from None
    except ValueError as error:
        raise WeightsError(f"{file}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise WeightsError(f"{file}: must hold a JSON object")
    return value
