"""Reads checkpoints: folders of memory-mapped safetensors files. Only requested tensors are loaded.

Every fault is a WeightsError that names the file.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.quantization import MARKS, Quantization, quantization_of
from engine.worker.nn.quantized import QuantizedWeight, Weight, joined, packed, stacked

log = logging.getLogger(__name__)

_HUB = "hub:"
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]  # no pickles, code or other weight formats
INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"


def find(weights: Path | None, also: Sequence[str] = ()) -> Path:
    """Return the folder of a checkpoint: a path, a hub id in the local cache, or ``hub:OWNER/NAME``.

    Only ``hub:`` downloads missing files, which may take long; HF_HUB_OFFLINE disables it.

    Args:
        weights: The checkpoint.
        also: Names of additional files to download.
    """
    if weights is None:
        raise WeightsError("weights: missing. Set it to a checkpoint's folder or a hub id.")
    if weights.is_dir():
        return weights
    download = str(weights).startswith(_HUB)
    id = str(weights).removeprefix(_HUB)
    if len(Path(id).parts) != 2 or Path(id).is_absolute():
        raise WeightsError(f"{weights}: the folder does not exist")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    offline = not download or constants.HF_HUB_OFFLINE
    if not offline:
        log.info("weights: downloading missing files of %s from the hub", id)
    try:
        return Path(snapshot_download(id, local_files_only=offline, allow_patterns=[*_WANTED, *also]))
    except (LocalEntryNotFoundError, HFValidationError):
        hint = "downloads are disabled (HF_HUB_OFFLINE)" if download else f"write {_HUB}{id} to download it"
        raise WeightsError(f"{weights}: neither a folder nor in the hub cache; {hint}") from None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise WeightsError(f"{weights}: the download from the hub failed ({reason}). Try again to resume it.") from None


class SafetensorsFiles:
    """A folder with one safetensors file, whole or in shards.

    Tensors are views of memory-mapped files, so reading one loads only its pages.
    """

    quantization: Quantization | None = None

    def __init__(self, folder: Path, whole: str = WHOLE) -> None:
        self.folder = folder
        self._whole = whole
        self._files: dict[Path, Any] = {}
        self._bar: Bar | None = None
        self._where = self._locate()

    def _locate(self) -> Mapping[str, Path]:
        index = self.folder / f"{self._whole}.index.json"
        if index.exists():
            return self._shards(index, read_json(index).get("weight_map", {}))
        whole = self.folder / self._whole
        return dict.fromkeys(self._open(whole).keys(), whole)

    def _shards(self, index: Path, files: Any) -> Mapping[str, Path]:
        if not isinstance(files, dict) or not all(
            isinstance(one, str) for one in cast("dict[str, Any]", files).values()
        ):
            raise WeightsError(f"{index}: weight_map must map names of tensors to names of files. Download it again.")
        for file in set(cast("dict[str, str]", files).values()):
            if file in ("", "..") or PureWindowsPath(file).name != file:  # covers both slashes, and drives
                raise WeightsError(f"{index}: {file!r:.100} must be the name of a file in this folder.")
        return {name: self.folder / file for name, file in cast("dict[str, str]", files).items()}

    def _open(self, file: Path) -> Any:
        if file not in self._files:
            if not file.exists():
                raise WeightsError(f"{file} is missing, so the checkpoint is incomplete. Download it again.")
            try:
                self._files[file] = safe_open(file, framework="pt")
            except (SafetensorError, OSError) as error:
                raise WeightsError(f"{file} is damaged or truncated ({error}). Download it again.") from None
        return self._files[file]

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def names(self, prefix: str) -> list[str]:
        """Return the names of all tensors with a prefix."""
        return [name for name in self._where if name.startswith(prefix)]

    def expect(self, prefix: str) -> None:
        """Show progress for reading the tensors below a prefix."""
        self._bar = Bar(prefix.removesuffix("."), len(self.names(prefix)))

    def _at(self, name: str) -> Any:
        if name not in self._where:
            raise WeightsError(
                f"{self.folder} has no tensor {name}, so it is not a complete checkpoint of this architecture"
            )
        return self._open(self._where[name])

    def tensor(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """Return a tensor unchanged from the file, after checking its ``shape`` if one is given."""
        try:
            found = self._at(name).get_tensor(name)
        except SafetensorError as error:
            raise WeightsError(f"{self._where[name]} has no tensor {name} ({error}). Download it again.") from None
        if self._bar is not None:
            self._bar.advance()
        if shape is not None and tuple(found.shape) != tuple(shape):
            raise WeightsError(
                f"{self._where[name]}: {name} has the shape {list(found.shape)}, but config.json implies {list(shape)}"
            )
        return found


class SafetensorsCheckpoint(SafetensorsFiles):
    """A folder with ``config.json`` and ``model.safetensors``, whole or in shards."""

    def __init__(self, folder: Path, architecture: str) -> None:
        self.config: dict[str, Any] = read_json(folder / "config.json")
        names: Any = self.config.get("architectures") or [self.config.get("model_type", "nothing")]
        if not isinstance(names, list) or architecture not in names:
            other = cast("list[Any]", names)[0] if isinstance(names, list) else names
            raise WeightsError(f"{folder / 'config.json'}: the architecture is {other!s:.100}, not {architecture}")
        try:
            self.quantization = quantization_of(self.config)
        except ValueError as error:
            raise WeightsError(f"{folder / 'config.json'}: {error}") from None
        super().__init__(folder)


class Bar:
    """Progress bar on standard error; shown only on a terminal."""

    def __init__(self, name: str, total: int, wide: int = 30) -> None:
        self._name = name
        self._total = total
        self._wide = wide
        self._done = 0

    def advance(self) -> None:
        """Count one item as done. The last one ends the line."""
        self._done += 1
        if sys.stderr.isatty() and self._done <= self._total:
            full = self._wide * self._done // self._total
            end = "\n" if self._done == self._total else ""
            bar = "█" * full + "·" * (self._wide - full)
            sys.stderr.write(f"\r{self._name:>9} {bar} {self._done}/{self._total}{end}")
            sys.stderr.flush()


class WeightReader:
    """Reads the tensors below a prefix as weights on a device.

    ``kernels`` and ``static`` are passed on to the networks: the Triton kernels to use, and whether steps use static
    buffers that can be captured as CUDA graphs.
    """

    def __init__(
        self,
        checkpoint: SafetensorsFiles,
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
        """Return a reader of the tensors below ``name``."""
        return WeightReader(
            self.checkpoint, f"{self.prefix}{name}.", self.device, self.dtype, self.kernels, self.static
        )

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.checkpoint

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Return a weight of the given shape in the stage's dtype."""
        return self._plain(name, shape).to(self.device, self.dtype)

    def joined(self, names: Sequence[str], sizes: Sequence[int], *rest: int) -> Tensor:
        """Return several weights concatenated, so that they form one product. They are copied one by one."""
        whole = torch.empty(sum(sizes), *rest, device=self.device, dtype=self.dtype)
        for part, name, n in zip(whole.split(list(sizes)), names, sizes, strict=True):
            part.copy_(self._plain(name, (n, *rest)))
        return whole

    def linear(self, names: Sequence[str], sizes: Sequence[int], width: int) -> Weight:
        """Return the weight [sum of sizes, width] of linear layers with the same input, quantized if they are.

        Raises WeightsError if only some of them are quantized, or in different ways.
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
                raise ValueError("only some of these layers are quantized, which is not supported")
            parts = [self._of_few_bits(name, n, width) for name, n in zip(names, sizes, strict=True)]
            return joined(parts) if len(parts) > 1 else parts[0]
        except ValueError as error:
            which = ", ".join(f"{self.prefix}{name}" for name in names)
            raise WeightsError(f"{self.checkpoint.folder}: {which}: {error}") from None

    def linears(self, layers: Sequence[str], names: Sequence[str], sizes: Sequence[int], width: int) -> Weight:
        """Return ``linear`` of several layers, given by their name prefixes, as one weight [layers, …]."""
        parts = (self._together([f"{layer}{name}" for name in names], sizes, width) for layer in layers)
        try:
            return stacked(parts, len(layers))
        except ValueError as error:
            which = f"{self.prefix}{layers[0]}{names[0]} to {self.prefix}{layers[-1]}{names[-1]}"
            raise WeightsError(f"{self.checkpoint.folder}: {which}: {error}") from None

    def raw(self, name: str) -> Tensor:
        """Return a tensor unchanged from the file, on the stage's device."""
        return self.checkpoint.tensor(self.prefix + name).to(self.device)

    def _of_few_bits(self, name: str, outputs: int, width: int) -> QuantizedWeight:
        how = self.checkpoint.quantization
        if how is None:
            raise ValueError("it is quantized, but config.json has no quantization_config")
        return how.read(self.below(name), outputs, width, self.dtype)

    def _quantized(self, layer: str) -> bool:
        return any(f"{layer}.{mark}" in self for mark in MARKS)

    def _plain(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return an unquantized tensor. Raises WeightsError for a quantized one."""
        layer, _, last = name.rpartition(".")
        few = last == "weight" and self._quantized(layer)
        found = None if few else self.checkpoint.tensor(self.prefix + name, shape)
        if found is None or not found.is_floating_point() or found.dtype.itemsize < 2:
            raise WeightsError(
                f"{self.checkpoint.folder}: {self.prefix}{name} is quantized, which is not supported "
                "for this part of the model. Use a checkpoint in which this part is not quantized."
            )
        return found


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file of a checkpoint. Raises WeightsError."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise WeightsError(f"{file} is missing, so the checkpoint is incomplete. Download it again.") from None
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{file} is not valid JSON ({error}). Download it again.") from None
    if not isinstance(value, dict):
        raise WeightsError(f"{file} must contain a JSON object")
    return value
