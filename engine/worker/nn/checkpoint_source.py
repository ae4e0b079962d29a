"""A checkpoint on the device of a stage: the code that all families share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from engine.errors import WeightsError
from engine.worker.nn.device import has_graphs, settle
from engine.worker.nn.kernel_loading import chosen
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader, find, read_json
from engine.worker.stage import StageConfig, switched

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class DeviceSource:
    """The folder of a checkpoint, the device and dtype of its weights, and the settings of its steps.

    Raises WeightsError or ConfigError for an unsupported option.
    """

    def __init__(self, config: StageConfig, graphs: Any, kernels: Any, files: Sequence[str] = ()) -> None:
        torch.set_num_threads(config.threads)
        self.folder = find(config.weights, files)
        self.slots = config.slots
        self.device = torch.device(f"cuda:{config.device}" if config.device.isdigit() else config.device)
        if config.dtype not in DTYPES:
            raise WeightsError(f"dtype: {config.dtype!r} is not one of float32, bfloat16")
        self.dtype = DTYPES[config.dtype]
        settle(self.device)
        self.static = switched("graphs", graphs, has_graphs(self.device))
        """Whether decode steps use static buffers, as graphs if the device supports them."""
        self.kernels = chosen(kernels, self.device)


class CheckpointSource(DeviceSource):
    """A checkpoint of one architecture. Raises WeightsError or ConfigError for an unsupported checkpoint or option."""

    def __init__(
        self, config: StageConfig, architecture: str, graphs: Any, kernels: Any, files: Sequence[str] = ()
    ) -> None:
        super().__init__(config, graphs, kernels, files)
        self.checkpoint = SafetensorsCheckpoint(self.folder, architecture)

    def reader(self, prefix: str, dtype: torch.dtype | None = None) -> WeightReader:
        """Return a reader of a part's weights. Shows a progress bar on a terminal."""
        self.checkpoint.expect(prefix)
        return WeightReader(self.checkpoint, prefix, self.device, dtype or self.dtype, self.kernels, self.static)

    @cached_property
    def generation(self) -> dict[str, Any]:
        """The checkpoint's generation_config.json; empty if there is none."""
        file = self.folder / "generation_config.json"
        return read_json(file) if file.exists() else {}
