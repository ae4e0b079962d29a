"""Qwen3-Omni-30B-A3B on one GPU: its true shapes with random weights, generated on the device without using the disk.

    python -m benchmarks.gpu [--json FILE] [--preset h100|h200] [--budget-s 540] [--concurrency 1,4,16,64]
    python -m benchmarks.gpu --tiny --device cpu    # the same on tiny shapes, to try the script

Three stages and an engine run in this process, with the settings of a shipped configuration. The preset ``h100`` is
that for one GPU of 80 GB; ``h200`` is for a larger one, whose cache of 16 full contexts is shared by 64 users. By
default, the device's memory decides. Results are printed, and written to FILE after each part, so an interrupted run
keeps them. A part without enough time or memory is reported, and the other parts still run.

device    throughput of the machine: copies, bf16 products, grouped products as kernels and inside a graph
plan      the GB that each stage will take, and the free memory
start     building each stage, and capturing its graphs
steps     a thinker's step, a talker's frame, the code predictor's share of it, code2wav: as graphs and without
answers   N users who finish one to six seconds of speech together, in at least three rounds: time to the first
          chunk of sound and to the first audible one (TTFA; with random weights a chunk may be silent); RTF, the time
          from an answer's first to its last chunk divided by the length of the sound in between; failed answers
within    duration of each stage's steps during these answers
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu_steps import Bench, about_device, steps
from benchmarks.memory import plans
from benchmarks.random_weights import Random, describe
from engine import AudioPart, Engine, EngineError, EngineSpec, Message, Request, Sampling, load_config, parse_config
from engine.aio.event_loop import settle
from engine.chunk import Audio
from engine.worker.models import qwen3_omni
from engine.worker.nn import checkpoint_source, cuda_graph_runner
from engine.worker.nn.memory import WORK, memory_of
from engine.worker.process import stage_loader
from engine.worker.stage import StageConfig

RATE_HZ = 16_000
SHORTEST_S, LONGEST_S = 1.0, 6.0  # length of the users' speech
ROUNDS, ANSWERS = 3, 30  # minimum of each, after one warm-up round
QUANTILES = {"p50": 0.5, "p95": 0.95, "longest": 1.0}
AUDIBLE = 0.01  # amplitude (-40 dB) from which sound counts as audible
BARS_MS = {1: 60.0, 16: 150.0, 64: 400.0}  # TTFA at p95 (for one user: at p50)
BAR_RTF = 0.40  # at 64 users, the median
CONFIGS = Path(__file__).parents[1] / "configs"
PRESETS = {"h100": "qwen3_omni_80gb", "h200": "qwen3_omni_1gpu"}
"""Shipped configurations by preset."""
LARGE_GB = 120.0  # minimum memory for the preset h200
SPEC = """
model: qwen3_omni
weights: {folder}
launcher: inline
workers: [{{stages: [thinker, talker, code2wav], devices: [{device}], max_batch: {slots}, dtype: {dtype}}}]
heartbeat: {{interval_s: 1.0, timeout_s: 600.0}}
chunks: {{first: {chunks.first}, growth: {chunks.growth}, steady: {chunks.steady}}}
stall_s: 300
queue: 256
"""


def settings(asked: argparse.Namespace) -> EngineSpec:
    """Fill in the missing options from the preset's configuration, as far as tiny shapes allow."""
    if not asked.preset:
        known = None if asked.device == "cpu" else memory_of(asked.device)
        asked.preset = "h200" if known and known[1] / 1e9 >= LARGE_GB else "h100"
    spec = load_config(CONFIGS / f"{PRESETS[asked.preset]}.yaml")
    shipped = {"slots": spec.workers[0].max_batch, **spec.options}
    for key in ("slots", "context", "piece", "cache_tokens", "remember_mb", "sound_dtype"):
        if getattr(asked, key) is None:
            setattr(asked, key, shipped.get(key))
    if asked.cache_tokens is not None:
        asked.cache_tokens = max(asked.cache_tokens, asked.context)
    return spec


def place(bench: Bench, folder: Path) -> StageConfig:
    asked = bench.asked
    wanted = {key: getattr(asked, key) for key in ("context", "piece", "cache_tokens", "remember_mb")}
    options = {key: value for key, value in wanted.items() if value is not None}
    options["graphs"] = "on" if asked.tiny else "auto"
    options |= {"kernels": asked.kernels, "sound_dtype": asked.sound_dtype}
    return StageConfig(folder, asked.device, str(bench.dtype).removeprefix("torch."), 4, asked.slots, options)


def planned(bench: Bench, folder: Path) -> None:
    """Report the planned memory of the stages before they are built."""
    asked, known = bench.asked, None if bench.asked.device == "cpu" else memory_of(bench.asked.device)
    found = plans(folder, "bfloat16", place(bench, folder))
    for name, one in found.items():
        bench.note("plan", {"stage": name, "GB": one.total / 1e9, "of which weights": one.weights / 1e9})
    needed = sum(one.total for one in found.values()) + WORK
    row: dict[str, Any] = {"stage": f"{asked.preset}: {asked.slots} slots", "GB": needed / 1e9}
    bench.note("plan", row | ({} if known is None else {"free GB": known[0] / 1e9}))


def build(bench: Bench, folder: Path) -> dict[str, Any]:
    """Build the stages. Those without enough memory are left out and reported."""
    Random.device = bench.device
    Random.dtype = bench.dtype
    checkpoint_source.SafetensorsCheckpoint = Random  # type: ignore[misc]
    config = place(bench, folder)
    stages: dict[str, Any] = {}
    for order, name in enumerate(qwen3_omni.STAGES):
        began_s = time.monotonic()
        with bench.surviving("start", stage=name):
            stages[name] = stage_loader.make(f"qwen3_omni.{name}", name, order, config)
            graphs = getattr(stages[name].net, "graphs", None)
            count = (
                {} if graphs is None else {"graphs": sum(one is not None for one in graphs.captured.graphs.values())}
            )
            took_s = time.monotonic() - began_s
            bench.note("start", {"stage": name, "took s": took_s, **count, "reserved GB": bench.memory_gb()})
    return stages


async def answers(bench: Bench, stages: dict[str, Any], folder: Path, spec: EngineSpec) -> None:
    """Measure simultaneous users, with graphs and, if time is left, without."""
    stage_loader.make = lambda use, name, order, config: stages[name]
    stage_loader.device_checked = lambda specs, task: lambda: True  # they are already built
    asked = bench.asked
    device = asked.device.removeprefix("cuda:").replace("cuda", "0")
    dtype = str(bench.dtype).removeprefix("torch.")
    text = SPEC.format(folder=folder, device=device, slots=asked.slots, dtype=dtype, chunks=spec.chunks)
    graphs = {name: stages[name].net.graphs for name in ("thinker", "talker")}
    took = {name: timed(stage) for name, stage in stages.items()}
    async with Engine(parse_config(text)) as engine:
        await crowd(engine, bench, 1, "warm")
        settle()
        for on, counts in ((True, asked.counts), (False, [n for n in asked.counts if n in (1, 16)])):
            for name, found in graphs.items():
                stages[name].net.graphs = found if on else None
            for count in (n for n in counts if n <= asked.slots):
                if bench.left_s < 30:
                    bench.note("answers", {"users": count, "graphs": on, "left out": "no time"})
                    continue
                with bench.surviving("answers", users=count, graphs=on):
                    await measured(engine, bench, count, on, took)


def timed(stage: Any) -> list[float]:
    """Record the duration of each of a stage's steps in milliseconds from now on."""
    times, step = list[float](), stage.step

    def timing(requests: Any) -> Any:
        began_s = time.perf_counter()
        found = step(requests)
        times.append((time.perf_counter() - began_s) * 1e3)
        return found

    stage.step = timing
    return times


async def measured(engine: Engine, bench: Bench, count: int, graphs: bool, took: dict[str, list[float]]) -> None:
    """Run rounds of ``count`` users. The first round is a warm-up."""
    first, audible, speed, lost = list[float](), list[float](), list[float](), list[str]()
    rounds = ROUNDS if bench.asked.tiny else max(ROUNDS, math.ceil(ANSWERS / count))
    for number in range(rounds + 1):
        if number > 1 and bench.left_s < 20:
            break
        found = await crowd(engine, bench, count, f"{graphs}-{number}")
        if number == 0:
            for times in took.values():
                times.clear()
        if number:
            first += [one[0] for one in found if not isinstance(one, str)]
            audible += [one[1] for one in found if not isinstance(one, str)]
            speed += [one[2] for one in found if not isinstance(one, str)]
            lost += [one for one in found if isinstance(one, str)]
    row: dict[str, Any] = {"users": count, "graphs": graphs, "answers": len(first), "lost": len(lost)}
    if first:
        row |= {"TTFA p50 ms": quantile(audible, 0.5), "TTFA p95 ms": quantile(audible, 0.95)}
        row |= {"chunk p50 ms": quantile(first, 0.5), "chunk p95 ms": quantile(first, 0.95)}
        row |= {"RTF p50": quantile(speed, 0.5), "RTF p95": quantile(speed, 0.95)}
    bench.note("answers", row | {"reserved GB": bench.memory_gb()} | ({"why": lost[0]} if lost else {}))
    for name, times in took.items():
        if times:
            spread: dict[str, Any] = {"users": count, "graphs": graphs, "stage": name, "steps": len(times)}
            spread |= {f"{what} ms": quantile(times, q) for what, q in QUANTILES.items()}
            bench.note("within", spread | {"above 3 x p50": sum(one > 3 * spread["p50 ms"] for one in times)})


async def crowd(engine: Engine, bench: Bench, count: int, title: str) -> list[tuple[float, float, float] | str]:
    """Run ``count`` simultaneous users.

    Returns for each user the milliseconds to the first chunk and to the first audible sound, and the real-time factor,
    or the error.
    """
    dice = np.random.default_rng(list(f"{title} {count}".encode()))
    asked: list[Request] = []
    for i in range(count):
        length_s = SHORTEST_S + (LONGEST_S - SHORTEST_S) * ((i + 0.5) / count if count > 1 else dice.random())
        pcm = dice.integers(-4000, 4000, int(length_s * RATE_HZ), dtype=np.int16)
        id = f"{title}-{count}-{i}"
        asked.append(
            Request(
                id=id,
                session=id,
                messages=(Message("user", (AudioPart(pcm),)),),
                max_text_tokens=40,
                sampling=Sampling(seed=i, temperature=0.7),
                max_audio_s=0.08 * bench.asked.frames,
            )
        )
    return await asyncio.gather(*(one_user(engine, one) for one in asked))


async def one_user(engine: Engine, request: Request) -> tuple[float, float, float] | str:
    began_s, heard, audible_s = time.perf_counter(), list[tuple[float, float]](), math.nan
    try:
        async with engine.open(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Audio) and len(chunk.wave):
                    heard.append((time.perf_counter() - began_s, len(chunk.wave) / 24_000))
                    if math.isnan(audible_s) and np.abs(chunk.wave).max() > AUDIBLE:
                        audible_s = heard[-1][0]
    except EngineError as error:
        return str(error)
    if math.isnan(audible_s):
        return "an answer without an audible sound"
    length_s = sum(audio_s for _, audio_s in heard[1:])
    return heard[0][0] * 1e3, audible_s * 1e3, (heard[-1][0] - heard[0][0]) / length_s if length_s else math.nan


def quantile(values: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q))


def tables(bench: Bench) -> Iterator[Table]:
    """Yield a table for each part."""
    for part, rows in bench.found.items():
        columns = list(dict.fromkeys(name for row in rows for name in row))
        table = Table(*columns, title=part)
        for row in rows:
            values = (row.get(name, "") for name in columns)
            table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in values))
        yield table


def bars(bench: Bench) -> Iterator[str]:
    """Yield a line for each bar: met, missed or not measured."""
    if bench.asked.tiny:
        return
    rows = {row["users"]: row for row in bench.found.get("answers", []) if row["graphs"] and "TTFA p95 ms" in row}
    for users, bar_ms in BARS_MS.items():
        if users not in rows:
            yield f"{users} users: not measured"
            continue
        took_ms = rows[users]["TTFA p50 ms" if users == 1 else "TTFA p95 ms"]
        yield f"{users} users: {took_ms:.0f} of {bar_ms:.0f} ms to the first sound: {kept(took_ms <= bar_ms)}"
    if 64 in rows:
        yield f"64 users: RTF {rows[64]['RTF p50']:.2f} of {BAR_RTF:.2f}: {kept(rows[64]['RTF p50'] <= BAR_RTF)}"


def kept(is_kept: bool) -> str:
    return "kept" if is_kept else "MISSED"


async def measure(bench: Bench, folder: Path, spec: EngineSpec) -> None:
    """Run all parts. A part without enough memory is reported, and the next one runs."""
    with bench.surviving("device"):
        about_device(bench)
    planned(bench, folder)
    stages = build(bench, folder)
    steps(bench, stages)
    if missing := [name for name in qwen3_omni.STAGES if name not in stages]:
        bench.note("answers", {"users": "all", "left out": f"{', '.join(missing)} is not there"})
        return
    with bench.surviving("answers", users="all"):
        await answers(bench, stages, folder, spec)


def main() -> None:
    asked = _arguments().parse_args()
    asked.counts = [int(one) for one in asked.concurrency.split(",")]
    spec = settings(asked)
    cuda_graph_runner.WARM_S = asked.warm_s
    bench = Bench(asked)
    if asked.memory_gib:
        whole = torch.cuda.get_device_properties(bench.device).total_memory
        torch.cuda.set_per_process_memory_fraction(asked.memory_gib * 2**30 / whole)
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measure(bench, describe(Path(name), asked.tiny), spec))
    console = Console(width=140)
    for table in tables(bench):
        console.print(table)
    print(*bars(bench), sep="\n")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes in float32")
    parser.add_argument("--preset", choices=PRESETS, help="use the settings of a shipped configuration")
    parser.add_argument("--memory-gib", type=float, help="limit the device memory, to simulate a smaller device")
    parser.add_argument("--json", help="file for all figures")
    parser.add_argument("--budget-s", type=float, default=540.0)
    parser.add_argument("--slots", type=int, help="default of this and the next options: the preset's value")
    parser.add_argument("--context", type=int)
    parser.add_argument("--cache-tokens", type=int)
    parser.add_argument("--piece", type=int, help="maximum prompt rows per step")
    parser.add_argument("--remember-mb", type=int)
    parser.add_argument("--frames", type=int, default=50, help="codec frames of each answer, 80 ms each")
    parser.add_argument("--kernels", choices=("auto", "on", "off"), default="auto", help="options.kernels")
    parser.add_argument("--sound-dtype", help="options.sound_dtype")
    parser.add_argument(
        "--warm-s", type=float, default=45.0, help="maximum time for capturing a stage's graphs in advance"
    )
    parser.add_argument("--concurrency", default="1,4,16,64")
    return parser


if __name__ == "__main__":
    main()
