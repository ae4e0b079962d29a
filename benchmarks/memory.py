"""The memory that Qwen3-Omni-30B-A3B takes of a device, stage by stage, of its true shapes and without a number.

    python -m benchmarks.memory [--slots 16] [--context 8192] [--remember-mb 2048]
    python -m benchmarks.memory --configs       # what the shipped deployments take of the devices that they are for

Each stage is built on torch's device ``meta``, as a worker does it before it loads anything, and what it holds is added
up: with the checkpoint's weights in bfloat16, and as ``parley quantize`` leaves them in eight and in four bits; in four
bits the weights are held against their bars. Then a step and a prefill of 64 requests run there, of two layers of the
true shapes, and what they hold at once is held against the work space that is planned: with those weights, and with fp8
in blocks, whose scales are in float32. CUDA itself comes on top; of deployments an allowance for that is added (WORK).
It ends with 1 where a bar is missed, or a deployment does not fit.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.random_weights import TRUE, Random, describe
from engine.deployment.config import load_config
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.nn import checkpoint_source, moe
from engine.worker.nn.memory import WORK, MemoryPlan, plan
from engine.worker.nn.quantized import QuantizedWeight
from engine.worker.nn.slots import Batch
from engine.worker.nn.weights import WeightReader
from engine.worker.quantize import HEADS, LAYERS
from engine.worker.stage import StageConfig
from engine.worker.talker.code2wav import MOST_FRAMES, RAMP

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

    def read(self, layer: WeightReader, rows: int, width: int, dtype: torch.dtype) -> QuantizedWeight:
        bits = 8 if re.fullmatch(HEADS, layer.prefix.removesuffix(".")) else self.bits
        numbers = torch.empty(rows, width * bits // 8, dtype=torch.uint8, device="meta")
        scales = torch.empty(rows, width // GROUP, dtype=torch.bfloat16, device="meta")
        return QuantizedWeight(numbers, scales, None, None, bits, dtype)


class Packed8(Packed):
    """The same in eight bits."""

    bits = 8


class Fp8(Packed):
    """The same in fp8, in blocks with scales in float32; the head in eight bits."""

    def read(self, layer: WeightReader, rows: int, width: int, dtype: torch.dtype) -> QuantizedWeight:
        if re.fullmatch(HEADS, layer.prefix.removesuffix(".")):
            return super().read(layer, rows, width, dtype)
        numbers = torch.empty(rows, width, dtype=torch.float8_e4m3fn, device="meta")
        scales = torch.empty(rows, width // GROUP, dtype=torch.float32, device="meta")
        return QuantizedWeight(numbers, scales, None, None, 8, dtype)


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
STEPS = KINDS | {"fp8": Fp8}
"""Weights of which steps are looked at."""
BARS_GB = {("thinker",): 19.0, ("talker", "code2wav"): 8.0}
"""GB that the weights of stages may take in four bits."""
SHORT = 512  # positions that a step without kernels looks back at
SHORTEST = 40  # positions of the shortest prompt of a prefill
ROWS = 64
"""Requests of a step whose memory is looked at."""


class Peak(TorchDispatchMode):
    """Counts the bytes that are computed within it and held at once, at most. What was there before counts for none."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most = 0
        self._living: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {id(one.untyped_storage()) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        for one in tree_leaves(out):
            if isinstance(one, Tensor) and id(one.untyped_storage()) not in given | self._living.keys():
                self._take(one.untyped_storage())
        return out

    def _take(self, made: Any) -> None:
        size, name = made.nbytes(), id(made)

        def gone(_: Any) -> None:
            self._living.pop(name, None)
            self.held -= size

        self._living[name] = weakref.ref(made, gone)
        self.held += size
        self.most = max(self.most, self.held)


@contextmanager
def reading(kind: type[Shapes]) -> Generator[None]:
    """Have the family read such a checkpoint."""
    before = checkpoint_source.SafetensorsCheckpoint
    checkpoint_source.SafetensorsCheckpoint = kind  # type: ignore[misc]
    try:
        yield
    finally:
        checkpoint_source.SafetensorsCheckpoint = before  # type: ignore[misc]


def plans(folder: Path, kind: str, place: StageConfig, stages: Sequence[str] = tuple(STAGES)) -> dict[str, MemoryPlan]:
    """Plan each stage with weights of a kind."""
    place = replace(place, weights=folder, dtype="bfloat16")
    with reading(KINDS[kind]):
        return {name: plan(STAGES[name], place) for name in stages}


@contextmanager
def without_launches() -> Generator[None]:
    """Have grouped products, and launch no kernel of Triton: there is no device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moe, "has_grouped", lambda device, dtype: True)
        if find_spec("triton") is not None:
            patch.setattr("triton.runtime.jit.JITFunction.run", lambda kernel, *args, **more: None)
        yield


def step(net: Any, rows: int) -> None:
    """One decode step."""
    net.graphs.computed(torch.empty(10, rows, dtype=torch.int64, device="meta"), SHORT)


def prefill(net: Any, rows: int) -> None:
    """One prompt of each of so many requests, each longer than the one before."""
    batch = Batch()
    for slot in range(rows):
        count = SHORTEST + slot
        embeddings = torch.empty(count, net.decoder.config.hidden_size, dtype=net.dtype, device="meta")
        batch.add(slot, 0, embeddings, np.zeros((3, count), np.float32))
    net.decoder.append(batch, net.cache)


def peaks(kind: str) -> dict[str, tuple[int, int]]:
    """Bytes that a step and a prefill of each stage hold at once, at most, and those that are planned for them."""
    found: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as folder, two_layers(), reading(STEPS[kind]), torch.inference_mode():
        options = {"context": 2048, "graphs": "on"}
        place = StageConfig(
            weights=describe(Path(folder), small=False), device="meta", dtype="bfloat16", slots=ROWS, options=options
        )
        for name in ("thinker", "talker"):
            net, planned = STAGES[name](place).net, plan(STAGES[name], place).work
            with without_launches():
                for run in (step, prefill):
                    run(net, ROWS)  # what is made once for each size of batch is made now
                    with Peak() as peak:
                        run(net, ROWS)
                    found[f"{name}'s {run.__name__}"] = peak.most, planned
        voice = STAGES["code2wav"](place)
        size, count = MOST_FRAMES // RAMP[0], RAMP[0]
        given = [torch.empty(size, *shape, dtype=torch.int64, device="meta") for shape in ((count, 16), (), ())]
        with Peak() as peak:
            voice._computed((size, count, False), *given)
        found["code2wav's step"] = peak.most, voice.work_bytes
    return found


@contextmanager
def two_layers() -> Generator[None]:
    """Have the model's stacks so few layers, each of the true shapes, and encoders next to none."""
    before = {name: dict(values) for name, values in TRUE.items()}
    for part in ("thinker_config.text_config", "talker_config.text_config"):
        TRUE[part]["num_hidden_layers"] = 2
    TRUE["thinker_config.audio_config"] = {"output_dim": 2048}
    TRUE["thinker_config.vision_config"] = {"out_hidden_size": 2048}
    TRUE["talker_config"]["accept_hidden_layer"] = 1
    try:
        yield
    finally:
        TRUE.update(before)


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
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        made = describe(Path(folder), small=False)
        if configs:
            return deployments(made)
        for kind in KINDS:
            found = plans(made, kind, place)
            for name, one in found.items():
                sys.stdout.write(f"{kind:8} {name:9} {one.total / 1e9:6.2f} GB: {one}\n")
            sys.stdout.write(f"{kind:8} {'together':9} {sum(one.total for one in found.values()) / 1e9:6.2f} GB\n")
            for names, bar_gb in BARS_GB.items() if kind == "int4" else ():
                weights_gb = sum(found[name].weights for name in names) / 1e9
                missed += weights_gb > bar_gb
                sys.stdout.write(f"{kind:8} weights of {'+'.join(names)}: {weights_gb:.1f} of {bar_gb:.1f} GB\n")
    for kind in STEPS:
        for what, (most, planned) in peaks(kind).items():
            missed += most > planned
            sys.stdout.write(f"{kind:8} {what:17} {most / 1e9:5.2f} of {planned / 1e9:5.2f} GB at once\n")
    return min(missed, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--remember-mb", type=int, default=2048)
    parser.add_argument("--configs", action="store_true")
    asked = parser.parse_args()
    options = {"context": asked.context, "remember_mb": asked.remember_mb}
    sys.exit(main(StageConfig(slots=asked.slots, options=options), asked.configs))
