"""The memory that Qwen3-Omni-30B-A3B takes of a device, stage by stage, of its true shapes and without a number.

    python -m benchmarks.memory [--slots 16] [--context 8192] [--remember-mb 2048]
    python -m benchmarks.memory --configs       # what the shipped deployments take of the devices that they are for

Each stage is built on torch's device ``meta``, as a worker does it before it loads anything, and what it holds is added
up: with the checkpoint's weights in bfloat16, and as ``parley quantize`` leaves them in eight and in four bits. What a
step computes in, graphs and CUDA itself come on top; of deployments an allowance for that is added (WORK). It ends
with 1 where one does not fit.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.random_weights import Random, describe
from engine.config import load_config
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.nn.memory import WORK, Plan, plan
from engine.worker.nn.quantized import QuantizedWeight
from engine.worker.nn.weights import Reader
from engine.worker.omni import source
from engine.worker.quantize import HEADS, LAYERS
from engine.worker.stage import StageConfig

STAGES: dict[str, Any] = {"thinker": Thinker, "talker": Talker, "code2wav": Code2Wav}
GROUP = 128
CONFIGS = Path(__file__).parents[1] / "configs"


class Shapes(Random):
    """The checkpoint as shapes alone, in bfloat16."""

    def tensor(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        assert shape is not None
        return torch.empty(tuple(shape), device="meta", dtype=torch.bfloat16)


class Packed(Shapes):
    """The same as ``quantize`` leaves it, with a scale for each GROUP inputs."""

    bits = 4

    def __init__(self, folder: Path, architecture: str) -> None:
        super().__init__(folder, architecture)
        self.quantization: Any = self

    def __contains__(self, name: str) -> bool:
        return re.fullmatch(f"(({LAYERS})|({HEADS}))\\.weight_packed", name) is not None

    def read(self, layer: Reader, rows: int, width: int, dtype: torch.dtype) -> QuantizedWeight:
        bits = 8 if re.fullmatch(HEADS, layer.prefix.removesuffix(".")) else self.bits
        numbers = torch.empty(rows, width * bits // 8, dtype=torch.uint8, device="meta")
        scales = torch.empty(rows, width // GROUP, dtype=torch.bfloat16, device="meta")
        return QuantizedWeight(numbers, scales, None, None, bits, dtype)


class Packed8(Packed):
    """The same in eight bits."""

    bits = 8


DEVICES: dict[str, tuple[str, float]] = {
    "qwen3_omni_1gpu": ("bfloat16", 102.0),
    "qwen3_omni_2gpu": ("bfloat16", 84.9),
    "qwen3_omni_80gb": ("bfloat16", 84.9),
    "qwen3_omni_48gb": ("int4", 47.8),
    "qwen3_omni_2x48gb": ("int8", 47.8),
    "qwen3_omni_2x24gb": ("int4", 25.2),
}
"""The weights of each deployment, and the GB of its devices by their data sheets, less 0.6 for a driver: RTX PRO 6000
(96 GB), H100, L40S, RTX 3090."""

KINDS: dict[str, type[Shapes]] = {"bfloat16": Shapes, "int8": Packed8, "int4": Packed}


@contextmanager
def reading(kind: type[Shapes]) -> Generator[None]:
    """Have the family read such a checkpoint."""
    before = source.Checkpoint
    source.Checkpoint = kind  # type: ignore[misc]
    try:
        yield
    finally:
        source.Checkpoint = before  # type: ignore[misc]


def plans(folder: Path, kind: str, place: StageConfig, stages: Sequence[str] = tuple(STAGES)) -> dict[str, Plan]:
    """Plan each stage with weights of a kind."""
    place = replace(place, weights=folder, dtype="bfloat16")
    with reading(KINDS[kind]):
        return {name: plan(STAGES[name], place) for name in stages}


def deployments(folder: Path) -> int:
    """Print what each deployment takes of its devices; 1 where one of them is too small."""
    missed = 0
    for name, (kind, free_gb) in DEVICES.items():
        spec = load_config(CONFIGS / f"{name}.yaml")
        for worker in spec.workers:
            found = plans(folder, kind, StageConfig(slots=worker.max_batch, options=spec.options), worker.stages)
            needed_gb = (sum(one.total for one in found.values()) + WORK) / 1e9
            missed += needed_gb > free_gb
            sys.stdout.write(
                f"{name:18} {kind:8} {'+'.join(found):24} {needed_gb:5.1f} of {free_gb:5.1f} GB: "
                f"{'fits' if needed_gb <= free_gb else 'DOES NOT FIT'}\n"
            )
    return min(missed, 1)


def main(place: StageConfig, configs: bool) -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = describe(Path(folder), small=False)
        if configs:
            return deployments(made)
        for kind in KINDS:
            found = plans(made, kind, place)
            for name, one in found.items():
                sys.stdout.write(f"{kind:8} {name:9} {one.total / 1e9:6.2f} GB: {one}\n")
            sys.stdout.write(f"{kind:8} {'together':9} {sum(one.total for one in found.values()) / 1e9:6.2f} GB\n")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--remember-mb", type=int, default=2048)
    parser.add_argument("--configs", action="store_true")
    asked = parser.parse_args()
    options = {"context": asked.context, "remember_mb": asked.remember_mb}
    sys.exit(main(StageConfig(slots=asked.slots, options=options), asked.configs))
