"""Compute the device memory of Qwen3-Omni-30B-A3B per stage, from its true shapes without loading data.

    python -m benchmarks.memory [--slots 16] [--context 8192] [--remember-mb 2048]
    python -m benchmarks.memory --configs       # memory of the shipped deployments on their intended devices

Each stage is built on torch's device ``meta``, as a worker does before loading, and its memory is summed up: with
bfloat16 weights, and with the 8-bit and 4-bit weights of ``parley quantize``; the 4-bit weights have bars. Then a step
and a prefill of 64 requests run there, with two layers of the true shapes, and their peak memory is compared with the
planned working memory, also for block-wise fp8 with float32 scales. CUDA's own memory comes on top; for deployments, an
allowance (WORK) is added. Exits with 1 if a bar is missed or a deployment does not fit.
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
    """The checkpoint as bfloat16 shapes."""

    def tensor(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        assert shape is not None
        return torch.empty(tuple(shape), device="meta", dtype=torch.bfloat16)


class Packed(Shapes):
    """The checkpoint as quantized by ``parley quantize``, with a scale per GROUP inputs."""

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
    """The same with 8 bits."""

    bits = 8


class Fp8(Packed):
    """The same in fp8, in blocks with float32 scales; the head has 8-bit integers."""

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
"""Weights of each deployment, and the GB of its devices by their data sheets, minus 0.6 for a driver: RTX PRO 6000 (96
GB), H100, L40S, RTX 3090.
"""

KINDS: dict[str, type[Shapes]] = {"bfloat16": Shapes, "int8": Packed8, "int4": Packed}
STEPS = KINDS | {"fp8": Fp8}
"""Kinds of weights whose steps are checked."""
BARS_GB = {("thinker",): 19.0, ("talker", "code2wav"): 8.0}
"""Maximum GB of the stages' 4-bit weights."""
SHORT = 512  # positions that a step without kernels attends to
SHORTEST = 40  # positions of the shortest prompt of a prefill
ROWS = 64
"""Requests of the checked step."""


class Peak(TorchDispatchMode):
    """Tracks the peak of bytes that are allocated within the block and alive at once."""

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
    """Make the family read a checkpoint of this kind."""
    before = checkpoint_source.SafetensorsCheckpoint
    checkpoint_source.SafetensorsCheckpoint = kind  # type: ignore[misc]
    try:
        yield
    finally:
        checkpoint_source.SafetensorsCheckpoint = before  # type: ignore[misc]


def plans(folder: Path, kind: str, place: StageConfig, stages: Sequence[str] = tuple(STAGES)) -> dict[str, MemoryPlan]:
    """Plan each stage with a kind of weights."""
    place = replace(place, weights=folder, dtype="bfloat16")
    with reading(KINDS[kind]):
        return {name: plan(STAGES[name], place) for name in stages}


@contextmanager
def without_launches() -> Generator[None]:
    """Enable grouped products and launch no Triton kernels, because there is no device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moe, "has_grouped", lambda device, dtype: True)
        if find_spec("triton") is not None:
            patch.setattr("triton.runtime.jit.JITFunction.run", lambda kernel, *args, **more: None)
        yield


def step(net: Any, rows: int) -> None:
    """Run one decode step."""
    net.graphs.computed(torch.empty(10, rows, dtype=torch.int64, device="meta"), SHORT)


def prefill(net: Any, rows: int) -> None:
    """Run a prefill of ``rows`` prompts of increasing length."""
    batch = Batch()
    for slot in range(rows):
        count = SHORTEST + slot
        embeddings = torch.empty(count, net.decoder.config.hidden_size, dtype=net.dtype, device="meta")
        batch.add(slot, 0, embeddings, np.zeros((3, count), np.float32))
    net.decoder.append(batch, net.cache)


def peaks(kind: str) -> dict[str, tuple[int, int]]:
    """Return the peak bytes of a step and a prefill of each stage, and the planned bytes."""
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
                    run(net, ROWS)  # allocates what is kept per batch size
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
    """Reduce the model's stacks to two layers of the true shapes, and the encoders to almost nothing."""
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
    """Print the memory of each deployment on its devices. Returns 1 if a device is too small."""
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
