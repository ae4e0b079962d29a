"""The cost of a decode step and a codec frame on this machine's CPU, at the shapes that people run, with random
weights.

    python -m benchmarks.steps [--rounds N] [--threads N] [--rows 1,2,4] [NAME ...]

A line is one shape and one size of batch; NAME is part of a line's name. Times are medians over the rounds, in each of
which float32 and bfloat16 compute the same once. *Read* is how fast the weights came from memory for that: a step of
few rows can be no quicker than this. A codec frame stands for 80 ms of sound: above 80 ms a listener runs dry.
nano has no line: ONNX Runtime computes it.

Native code (C, float32) was measured against this and given up: at the predictor's true shape torch took 1.3 times as
long as it did for one row in float32, and in bfloat16 0.8 to 1.1 times.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from engine.worker.nn.decoder import Decoder
from engine.worker.nn.predictor import Predictor
from engine.worker.nn.sampling_params import BatchSamplingParams, SamplingParams
from engine.worker.nn.slots import CachePositions

CPU = torch.device("cpu")
PAST = 500  # rows that a decode step looks back at: a short conversation
QWEN3: dict[str, Any] = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "intermediate_size": 3072,
    "rope_parameters": {"rope_theta": 1e6},
}
TINY: dict[str, Any] = QWEN3 | {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
}


class RandomReader:
    """Hands out random weights, scaled by how many inputs each has, and counts their bytes."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.device = CPU
        self.dtype = dtype
        self.size = 0
        self.kernels = None
        self._dice = torch.Generator().manual_seed(1)

    def below(self, name: str) -> RandomReader:
        return self

    def __contains__(self, name: str) -> bool:
        return False

    def __call__(self, name: str, *shape: int) -> Tensor:
        made = (torch.randn(*shape, generator=self._dice) / math.sqrt(shape[-1])).to(self.dtype)
        self.size += 0 if "embedding" in name else made.nbytes  # one row of a table is read
        return made

    def joined(self, names: Sequence[str], sizes: Sequence[int], *shape: int) -> Tensor:
        return self(names[0], sum(sizes), *shape)

    def linear(self, names: Sequence[str], sizes: Sequence[int], width: int) -> Tensor:
        return self.joined(names, sizes, width)


@dataclass(frozen=True, slots=True)
class Work:
    """Something to time, and how many bytes of weights it reads."""

    compute: Callable[[], object]
    size: int


def frame(config: dict[str, Any], rows: int, dtype: torch.dtype) -> Work:
    """One codec frame of so many requests: a pass for each code, and one for the talker's row."""
    read = RandomReader(dtype)
    predictor = Predictor(read, SimpleNamespace(**config), rows, 2)  # type: ignore[arg-type]
    layers = RandomReader(dtype)
    Decoder(layers, SimpleNamespace(**config))  # type: ignore[arg-type]
    hidden, first = torch.randn(2, rows, config["hidden_size"]).to(dtype)
    draws, steps = BatchSamplingParams.of([SamplingParams(n) for n in range(rows)], CPU), torch.arange(rows)
    passes = config["num_code_groups"] - 1
    return Work(lambda: predictor.frame(hidden, first, draws, steps), read.size + (passes - 1) * layers.size)


def step(config: dict[str, Any], rows: int, dtype: torch.dtype) -> Work:
    """One decode step of so many requests, each behind PAST rows."""
    read = RandomReader(dtype)
    decoder = Decoder(read, SimpleNamespace(**config))  # type: ignore[arg-type]
    cache = decoder.cache(rows, PAST + 1)
    x = torch.randn(rows, 1, config["hidden_size"]).to(dtype)
    where = CachePositions.of(cache, range(rows), [PAST] * rows, 1)
    angles = decoder.rope(torch.full((rows, 1), float(PAST)), dtype)
    return Work(lambda: decoder.forward(x, angles, where, cache), read.size)


LINES: dict[str, tuple[Callable[[dict[str, Any], int, torch.dtype], Work], dict[str, Any]]] = {
    "frame of Qwen3-TTS-0.6B's and Qwen3-Omni's predictor": (
        frame,
        QWEN3 | {"num_hidden_layers": 5, "num_code_groups": 16, "vocab_size": 2048},
    ),
    "frame of the tests' predictor": (
        frame,
        TINY | {"num_hidden_layers": 2, "num_code_groups": 16, "vocab_size": 256},
    ),
    "step of Qwen3-0.6B": (step, QWEN3 | {"num_hidden_layers": 28}),
    "step of the tests' talker": (step, TINY | {"num_hidden_layers": 3}),
}


def figures(work: Sequence[Work], rounds: int) -> list[str]:
    """Return for each kind of work the median time, and how fast its weights were read."""
    times_s: list[list[float]] = [[] for _ in work]
    for turn in range(rounds + 1):  # the first one warms up
        for one, own in zip(work, times_s, strict=True):
            begun_s = time.perf_counter()
            one.compute()
            if turn:
                own.append(time.perf_counter() - begun_s)
    medians_s = [statistics.median(own) for own in times_s]
    return [
        f"{1000 * median_s:.2f} ms ({one.size / 1e9 / median_s:.1f} GB/s)"
        for one, median_s in zip(work, medians_s, strict=True)
    ]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="measure the lines whose names contain one of these")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="what `workers[].threads` would be")
    parser.add_argument("--rows", default="1,2,4", help="sizes of the batch")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    table = Table("", "rows", "float32 (read)", "bfloat16 (read)")
    for name, (make, config) in LINES.items():
        if asked.names and not any(one in name for one in asked.names):
            continue
        for rows in map(int, asked.rows.split(",")):
            work = [make(config, rows, dtype) for dtype in (torch.float32, torch.bfloat16)]
            table.add_row(name, str(rows), *figures(work, asked.rounds))
            del work
            gc.collect()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
