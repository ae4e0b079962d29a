"""Measure a GPU's throughput and the duration of decode steps: the parts of benchmarks.gpu that need no engine."""

from __future__ import annotations

import argparse
import functools
import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.errors import EngineError
from engine.worker.nn import moe
from engine.worker.nn.cuda_graph_runner import CudaGraphRunner
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput, packed
from engine.worker.nn.device import to_device
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.out_of_memory import out_of_memory

REPEATS = 20


class Bench:
    """The options, and the results so far."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.device = torch.device(asked.device)
        self.dtype = torch.float32 if asked.tiny else torch.bfloat16
        self.began_s = time.monotonic()
        self.found = dict[str, Any]()

    @property
    def left_s(self) -> float:
        return self.asked.budget_s - (time.monotonic() - self.began_s)

    def note(self, part: str, row: dict[str, Any]) -> None:
        """Print a row of a part's table, and save all rows so far."""
        self.found.setdefault(part, []).append(row)
        words = "  ".join(
            f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
        )
        print(f"[{time.monotonic() - self.began_s:6.1f} s] {part}: {words}", flush=True)
        if self.asked.json:
            Path(self.asked.json).write_text(json.dumps(self.found, indent=1), encoding="utf-8")

    @contextmanager
    def surviving(self, part: str, **row: Any) -> Generator[None]:
        """Report a part that fails or runs out of device memory, and continue after it."""
        try:
            yield
        except (RuntimeError, MemoryError, EngineError) as error:
            what = "out of memory" if out_of_memory(error) or out_of_memory(error.__cause__) else "failed"
            self.note(part, row | {what: str(error).strip().split("\n")[0]})
        else:
            return
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def memory_gb(self) -> float:
        return torch.cuda.memory_reserved() / 2**30 if self.device.type == "cuda" else 0.0

    def median_ms(self, compute: Callable[[], Any], repeats: int | None = None) -> float:
        """Return the median duration of calls, each including a device synchronization."""
        for _ in range(2):
            compute()
        self.sync()
        took: list[float] = []
        for _ in range(min(repeats or REPEATS, REPEATS)):
            began_s = time.perf_counter()
            compute()
            self.sync()
            took.append((time.perf_counter() - began_s) * 1e3)
        return statistics.median(took)

    @torch.inference_mode()
    def graph_ms(self, compute: Callable[[], Any]) -> float:
        """Return the median duration of calls inside a graph, without dispatch overhead; outside of one without a
        GPU.
        """
        if self.device.type != "cuda" or not torch.cuda.is_available():
            return self.median_ms(compute)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            compute()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(REPEATS):
                compute()
        return self.median_ms(graph.replay, 5) / REPEATS


def about_device(bench: Bench) -> None:
    """Print the throughput of the machine."""
    row: dict[str, Any] = {"torch": torch.__version__, "device": str(bench.device)}
    if bench.device.type == "cuda":
        row |= {"name": torch.cuda.get_device_name(), "capability": str(torch.cuda.get_device_capability())}
        big = torch.empty(2**31, device=bench.device, dtype=torch.uint8).random_()
        other = torch.empty_like(big)
        row["copy TB/s"] = 2 * big.numel() / bench.median_ms(lambda: other.copy_(big), 5) / 1e9
        del big, other
        a = torch.randn(8192, 8192, device=bench.device, dtype=torch.bfloat16)
        row["bf16 TFLOP/s"] = 2 * 8192**3 / bench.median_ms(lambda: a @ a, 5) / 1e9
    bench.note("device", row)
    grouped_products(bench)


def grouped_products(bench: Bench) -> None:
    """Measure one expert layer of the thinker for decode batches, and compare it with float32."""
    experts, inner, width, top_k = (8, 32, 64, 2) if bench.asked.tiny else (128, 768, 2048, 8)
    make = lambda *shape: torch.randn(shape, device=bench.device, dtype=bench.dtype) / shape[-1] ** 0.5  # noqa: E731
    gate_up, down, router = make(experts, 2 * inner, width), make(experts, width, inner), make(experts, width)
    for rows in (1, 4, 16, 64, 512):
        x = make(rows, width) * width**0.5
        chosen, shares = moe.route(x, router, top_k, True)
        row: dict[str, Any] = {"rows": rows, "experts": int(chosen.unique().numel())}
        with bench.surviving("experts", rows=rows):
            compute = functools.partial(moe.moe, x, chosen, shares, gate_up, down)
            answer = compute()
            row["kernels ms"] = bench.median_ms(compute)
            row["ms"] = bench.graph_ms(compute)
            if bench.device.type == "cuda" and bench.asked.kernels != "off":
                ours = import_module("engine.worker.kernels.experts").answers
                row["ours ms"] = bench.graph_ms(functools.partial(ours, x, chosen, shares, gate_up, down))
            row["TB/s"] = row["experts"] * 3 * inner * width * x.element_size() / row["ms"] / 1e9
            if rows <= 64:
                few = slice(0, 4)
                exact = moe.gathered(x[few].float(), chosen[few], gate_up.float(), down.float())
                exact = (exact * shares[few, :, None]).sum(1)
                row["error"] = float((answer[few] - exact).norm() / exact.norm())
            bench.note("experts", row)


def inputs(count: int, start: int = 100) -> list[DecodeInput]:
    return [
        DecodeInput(slot, start, 7 + slot, 5, float(start), SamplingParams(slot, False, 0.9, 50))
        for slot in range(count)
    ]


@torch.inference_mode()
def steps(bench: Bench, stages: dict[str, Any]) -> None:
    """Measure decode steps as graphs and without. Missing stages are skipped."""
    for count in (n for n in bench.asked.counts if n <= bench.asked.slots):
        if bench.left_s < 60:
            bench.note("steps", {"rows": count, "left out": "no time"})
            return
        for what, compute in _kinds(bench, stages, count).items():
            with bench.surviving("steps", what=what, rows=count):
                bench.note("steps", {"what": what, "rows": count, **compute()})
    for name in ("thinker", "talker"):
        for pieces in (1, 4, 8, 16) if name in stages else ():
            if pieces <= bench.asked.slots:
                with bench.surviving("steps", what=f"{name}'s prompts", rows=64 * pieces):
                    took_ms = prompts(bench, stages[name].net, pieces)
                    bench.note("steps", {"what": f"{name}'s prompts", "rows": 64 * pieces, "graph ms": took_ms})
    if "thinker" in stages:
        with bench.surviving("steps", what="ears"):
            for windows in (1, 4, 16):
                took_ms = ears(bench, stages["thinker"].encoders.ears, windows)
                bench.note("steps", {"what": "ears, windows", "rows": windows, "graph ms": took_ms})
    if "thinker" in stages:
        contexts = (bench.asked.cache_tokens or math.inf) // bench.asked.context  # maximum that fits at once
        far = [replace(one, start=bench.asked.context - 8) for one in inputs(int(min(16, contexts, bench.asked.slots)))]
        what = f"thinker step over {bench.asked.context}"
        with bench.surviving("steps", what=what, rows=len(far)), long_enough(stages["thinker"].net.cache, far):
            graphs = stages["thinker"].net.graphs
            bench.note("steps", {"what": what, "rows": len(far), "graph ms": bench.median_ms(lambda: graphs(far), 5)})


def _kinds(bench: Bench, stages: dict[str, Any], count: int) -> dict[str, Callable[[], dict[str, float]]]:
    """Return the kinds of steps of the available stages, each with a function that measures it for ``count`` rows."""
    found: dict[str, Callable[[], dict[str, float]]] = {}
    given = inputs(count)
    for name, what in (("thinker", "thinker step"), ("talker", "talker frame")):
        if name in stages:
            found[what] = functools.partial(in_cache, bench, stages[name].net, given)
    if "talker" in stages:
        found["predictor"] = functools.partial(predictor, bench, stages["talker"].net, count)
    if "code2wav" in stages:
        for frames, fresh in ((1, True), (1, False), (25, False)):
            what = f"code2wav of {frames}{' first' * fresh}"
            found[what] = functools.partial(sounding, bench, stages["code2wav"], (count, frames, fresh))
    return found


def in_cache(bench: Bench, net: Any, given: Sequence[DecodeInput]) -> dict[str, float]:
    with long_enough(net.cache, given):
        return both_ways(bench, net.graphs, given)


def prompts(bench: Bench, net: Any, pieces: int) -> float:
    """Return the duration (ms) of a batch of ``pieces`` prompt pieces of 64 rows."""
    batch = prompt_rows(bench, net, pieces)
    with long_enough(net.cache, inputs(pieces, 64)):
        return bench.median_ms(lambda: net.prefills(batch)[0][0, 0].item(), 5)


def prompt_rows(bench: Bench, net: Any, pieces: int) -> Batch:
    batch = Batch()
    for slot in range(pieces):
        rows = torch.randn(64, net.decoder.config.hidden_size, device=bench.device, dtype=bench.dtype)
        batch.add(slot, 0, rows, np.tile(np.arange(64, dtype=np.float32), (3, 1)))
    return batch


def ears(bench: Bench, encoder: Any, windows: int) -> float:
    """Return the duration (ms) of encoding ``windows`` windows of audio."""
    frames = encoder.piece * encoder.window
    mel = torch.randn(128, windows * frames, device=bench.device, dtype=bench.dtype)
    return bench.median_ms(lambda: encoder(mel, [frames] * windows)[0, 0].item(), 5)


@contextmanager
def long_enough(cache: Any, given: Sequence[DecodeInput]) -> Generator[None]:
    """Allocate the positions that the requests' steps need in a shared cache."""
    if not cache.shared:
        yield
        return
    try:
        for one in given:
            cache.resize(one.slot, one.start + 1)
        yield
    finally:
        for one in given:
            cache.resize(one.slot, 0)


def sounding(bench: Bench, stage: Any, shape: tuple[int, int, bool]) -> dict[str, float]:
    """Measure code2wav for a number of rows and frames, at the start of answers or later."""
    count, frames, fresh = shape
    codes = np.random.default_rng(0).integers(0, stage.net.front.book, (count, frames, stage.net.front.groups))
    slots, starts = list(range(count)), [0 if fresh else 80] * count

    def compute() -> None:
        at = 0
        for frames in stage.cuts(codes.shape[1]):
            stage.decoded(slots, starts, codes[:, at : at + frames], fresh and at == 0).cpu()
            at += frames

    return {"graph ms": bench.median_ms(compute, 5)}


def both_ways(bench: Bench, graphs: CudaGraphRunner, given: Sequence[DecodeInput]) -> dict[str, float]:
    """Measure a step as a graph, including its copies, and without a graph."""
    table = to_device(packed(given), bench.device)
    return {
        "graph ms": bench.median_ms(lambda: graphs(given)),
        "kernels ms": bench.median_ms(lambda: graphs.computed(table, graphs.context_buckets[0]).cpu(), 5),
    }


def predictor(bench: Bench, talker: Any, count: int) -> dict[str, float]:
    """Measure the code predictor's fifteen passes alone."""
    hidden = torch.randn(bench.asked.slots + 1, talker.width, device=bench.device, dtype=bench.dtype)

    def compute(columns: DecodeBatch, _: int) -> Tensor:
        given = hidden[columns.slots]
        return talker.predictor.frame(given, given, columns.params, columns.steps)[0]

    return both_ways(
        bench, CudaGraphRunner("predictor", compute, bench.asked.slots, 512, 50, bench.device), inputs(count)
    )
