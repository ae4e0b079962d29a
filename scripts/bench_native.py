"""Decode steps and codec frames as native calls (native.c) beside the same in torch, at the shapes that people run.

    python scripts/bench_native.py [--rounds N] [--threads 1] [--rows 1,2,4] [NAME ...]

Every row is one shape and one size of batch, with random weights. In each round each way computes the same once, one
after the other, so that what else the machine does falls on all of them; the figures are medians over the rounds, and
``float32`` and ``bfloat16`` say how many times as long torch takes as the native call does, with the 10th and the 90th
percentile of the rounds. The native call knows float32 alone. nano has no row: ONNX Runtime computes it.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from engine.worker.nn.decoder import Decoder
from engine.worker.nn.predictor import Predictor
from engine.worker.nn.sampler import BatchSamplingParams, SamplingParams
from engine.worker.nn.slots import CachePositions

CPU = torch.device("cpu")
PAST = 500  # rows that a decode step looks back at: a short conversation
QWEN3_LAYER: dict[str, Any] = {
    "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
    "intermediate_size": 3072, "rope_parameters": {"rope_theta": 1e6},
}  # fmt: skip
TINY_LAYER: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6,
    "intermediate_size": 96, "rope_parameters": {"rope_theta": 1e6},
}  # fmt: skip
FRAMES = {
    "frame, Qwen3-TTS-0.6B's and Qwen3-Omni's predictor": QWEN3_LAYER
    | {"num_hidden_layers": 5, "num_code_groups": 16, "vocab_size": 2048},
    "frame, the tests' predictor": TINY_LAYER | {"num_hidden_layers": 2, "num_code_groups": 16, "vocab_size": 256},
}
STEPS = {
    "step, Qwen3-0.6B": QWEN3_LAYER | {"num_hidden_layers": 28},
    "step, the tests' talker": TINY_LAYER | {"num_hidden_layers": 3},
}


class RandomReader:
    """Hands out random weights, scaled by how many inputs each has."""

    device = CPU

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self._dice = dtype, torch.Generator().manual_seed(1)

    def below(self, name: str) -> RandomReader:
        return self

    def __contains__(self, name: str) -> bool:
        return False

    def __call__(self, name: str, *shape: int) -> Tensor:
        made = torch.randn(*shape, generator=self._dice) / math.sqrt(shape[-1])
        return (torch.ones(*shape) if len(shape) == 1 else made).to(self.dtype)

    def joined(self, names: Sequence[str], sizes: Sequence[int], *shape: int) -> Tensor:
        return self(names[0], sum(sizes), *shape)


Make = Callable[[dict[str, Any], int], Iterator[Callable[[], object]]]
"""A shape and a size of batch → the three ways to compute it."""


def frame_calls(config: dict[str, Any], rows: int) -> Iterator[Callable[[], object]]:
    """One codec frame of so many requests: native, torch in float32, torch in bfloat16."""
    for dtype, as_native in ((torch.float32, True), (torch.float32, False), (torch.bfloat16, False)):
        made: Any = Predictor(RandomReader(dtype), SimpleNamespace(**config), rows, 2)  # type: ignore[arg-type]
        if not as_native:
            made._native = made.cache.native = None
        assert as_native == (made._native is not None), "native.c is not built, or threads are more than one"
        hidden, first = torch.randn(2, rows, config["hidden_size"]).to(dtype)
        draws = BatchSamplingParams.of([SamplingParams(n) for n in range(rows)], CPU)
        yield lambda made=made, a=hidden, b=first, draws=draws: made.frame(a, b, draws, torch.arange(rows))


def step_calls(config: dict[str, Any], rows: int) -> Iterator[Callable[[], object]]:
    """One decode step of so many requests, each behind PAST rows: alike."""
    for dtype, as_native in ((torch.float32, True), (torch.float32, False), (torch.bfloat16, False)):
        decoder = Decoder(RandomReader(dtype), SimpleNamespace(**config))  # type: ignore[arg-type]
        cache = decoder.cache(rows, PAST + 1)
        cache.keys.normal_()
        cache.values.normal_()
        x = torch.randn(rows, 1, config["hidden_size"]).to(dtype)
        where = CachePositions.of(range(rows), [PAST] * rows, 1, CPU)
        angles = decoder.rope(torch.full((rows, 1), float(PAST)), dtype)
        if as_native:
            assert cache.native is not None, "native.c is not built, or threads are more than one"
            compute = cache.native
            yield lambda compute=compute, x=x, angles=angles, where=where: compute.forward(x, angles, where, 0, ())
        else:
            cache.native = None
            yield lambda decoder=decoder, x=x, angles=angles, where=where, cache=cache: decoder.forward(
                x, angles, where, cache
            )


def figures(make: Make, config: dict[str, Any], rows: int, asked: argparse.Namespace) -> list[str]:
    """Medians of the three ways, and how many times as long torch takes."""
    torch.set_num_threads(1)  # native calls serve where torch has one thread
    calls = list(make(config, rows))
    torch.set_num_threads(asked.threads)
    native_s, *torch_s = measured(calls, asked.rounds)
    each_ms = [f"{1000 * statistics.median(one):.2f}" for one in (native_s, *torch_s)]
    return [*each_ms, *(ratio(native_s, one) for one in torch_s)]


def measured(calls: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Call all in turn, in each round; the first round only warms up. Seconds of each way, a number a round."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(rounds + 1):
        for call, own in zip(calls, times, strict=True):
            begun_s = time.perf_counter()
            call()
            if turn:
                own.append(time.perf_counter() - begun_s)
    return times


def ratio(native_s: Sequence[float], torch_s: Sequence[float]) -> str:
    """How many times as long torch took: median of the rounds, 10th and 90th percentile."""
    each = sorted(b / a for a, b in zip(native_s, torch_s, strict=True))
    low, high = each[len(each) // 10], each[-1 - len(each) // 10]
    return f"{statistics.median(each):.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="words of the rows to measure; all without one")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", default="1,2,4")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    table = Table(title=f"native and torch, torch in {asked.threads} thread(s), {asked.rounds} rounds")
    for heading in ("", "rows", "native ms", "float32 ms", "bfloat16 ms", "float32 ÷ native", "bfloat16 ÷ native"):
        table.add_column(heading, justify="left" if not heading else "right")
    for shapes, make in ((FRAMES, frame_calls), (STEPS, step_calls)):
        for name, config in shapes.items():
            if asked.names and not any(one in name for one in asked.names):
                continue
            for rows in map(int, asked.rows.split(",")):
                table.add_row(name, str(rows), *figures(make, config, rows, asked))
                gc.collect()
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
