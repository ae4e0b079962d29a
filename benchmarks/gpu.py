"""Qwen3-Omni-30B-A3B on one GPU: its true shapes with random weights, which are made on the device and never on a disk.

    python -m benchmarks.gpu [--json FILE] [--budget-s 540] [--concurrency 1,4,16,64] [--slots 64]
    python -m benchmarks.gpu --tiny --device cpu    # the same on tiny shapes, to try the script

Everything is in this process: three stages and an engine around them. It prints as it goes, and writes FILE after each
part, so that a run that is cut off still tells something; a part for which no time is left is left out and named.

device    what the machine gives: copies, bf16 products, grouped products
start     building each stage, and capturing its graphs
steps     a thinker's step, a talker's frame, the code predictor's share of it, code2wav: as graphs and kernel by kernel
answers   N users who commit three seconds of speech at the same moment: first audio from there (TTFA), and RTF, the
          time from an answer's first chunk of sound to its last over the length of the sound between
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
from rich.console import Console
from rich.table import Table

from benchmarks.gpu_steps import Bench, about_device, profile, steps
from benchmarks.random_weights import Random, describe
from engine import AudioPart, Engine, Message, Request, Sampling, parse_config
from engine.chunk import Audio
from engine.worker import host
from engine.worker.models import qwen3_omni
from engine.worker.nn import cuda_graph_runner
from engine.worker.omni import source
from engine.worker.stage import StageConfig

SPEECH_S, RATE_HZ = 3.0, 16_000
BARS = {1: 100.0, 16: 300.0, 64: 600.0}  # ms of TTFA at the 95th percentile (of one user: at the median)
SPEC = """
model: qwen3_omni
weights: {folder}
launcher: inline
workers: [{{stages: [thinker, talker, code2wav], devices: [{device}], max_batch: {slots}, dtype: {dtype}}}]
heartbeat: {{interval_s: 1.0, timeout_s: 600.0}}
chunks: {{first: 1, growth: 1.5, steady: 25}}
stall_s: 300
queue: 256
"""


def build(bench: Bench, folder: Path) -> dict[str, Any]:
    """The stages, by name."""
    Random.device, Random.dtype = bench.device, bench.dtype
    source.Checkpoint = Random  # type: ignore[misc]
    asked = bench.asked
    options = {
        "context": asked.context,
        "piece": asked.piece,
        "remember_mb": 64,
        "graphs": "on" if asked.tiny else "auto",
    }
    config = StageConfig(folder, asked.device, str(bench.dtype).removeprefix("torch."), 4, asked.slots, options)
    stages: dict[str, Any] = {}
    for order, name in enumerate(qwen3_omni.STAGES):
        began_s = time.monotonic()
        stages[name] = host.make(f"qwen3_omni.{name}", name, order, config)
        graphs = getattr(stages[name].net, "graphs", None)
        count = {} if graphs is None else {"graphs": sum(one is not None for one in graphs._graphs.values())}
        took_s = time.monotonic() - began_s
        bench.note("start", {"stage": name, "took s": took_s, **count, "reserved GB": bench.memory_gb()})
    return stages


async def answers(bench: Bench, stages: dict[str, Any], folder: Path) -> None:
    """Users who come together, with graphs and, where time is left, without."""
    host.make = lambda use, name, order, config: stages[name]
    asked = bench.asked
    device = "cpu" if asked.device == "cpu" else asked.device.removeprefix("cuda:").replace("cuda", "0")
    dtype = str(bench.dtype).removeprefix("torch.")
    spec = parse_config(SPEC.format(folder=folder, device=device, slots=asked.slots, dtype=dtype))
    graphs = {name: stages[name].net.graphs for name in ("thinker", "talker")}
    async with Engine(spec) as engine:
        await crowd(engine, bench, 1, "warm")
        for on, counts in ((True, asked.counts), (False, [n for n in asked.counts if n in (1, 16)])):
            for name, found in graphs.items():
                stages[name].net.graphs = found if on else None
            for count in (n for n in counts if n <= asked.slots):
                if bench.left_s < 30:
                    bench.note("answers", {"users": count, "graphs": on, "left out": "no time"})
                    continue
                await measured(engine, bench, count, on)


async def measured(engine: Engine, bench: Bench, count: int, graphs: bool) -> None:
    """Rounds of as many users; the first one warms up."""
    first, speed = list[float](), list[float]()
    rounds = max(1, math.ceil((3 if bench.asked.tiny else 30) / count))
    for number in range(rounds + 1):
        if number > 1 and bench.left_s < 20:
            break
        found = await crowd(engine, bench, count, f"{graphs}-{number}")
        if number:
            first += [one for one, _ in found]
            speed += [one for _, one in found]
    row: dict[str, Any] = {"users": count, "graphs": graphs, "answers": len(first)}
    row |= {"TTFA p50 ms": quantile(first, 0.5), "TTFA p95 ms": quantile(first, 0.95)}
    row |= {"RTF p50": quantile(speed, 0.5), "RTF p95": quantile(speed, 0.95), "reserved GB": bench.memory_gb()}
    bench.note("answers", row)


async def crowd(engine: Engine, bench: Bench, count: int, title: str) -> list[tuple[float, float]]:
    """Return each user's milliseconds to the first sound, and their real-time factor."""
    dice = np.random.default_rng(abs(hash(title)) % 2**32)
    asked: list[Request] = []
    for i in range(count):
        pcm = dice.integers(-4000, 4000, int(SPEECH_S * RATE_HZ), dtype=np.int16)
        id = f"{title}-{count}-{i}"
        how = Sampling(seed=i, temperature=0.7)
        messages = (Message("user", (AudioPart(pcm),)),)
        asked.append(
            Request(
                id=id,
                session=id,
                messages=messages,
                sampling=how,
                max_text_tokens=40,
                max_audio_s=0.08 * bench.asked.frames,
            )
        )
    return await asyncio.gather(*(one_user(engine, one) for one in asked))


async def one_user(engine: Engine, request: Request) -> tuple[float, float]:
    began_s, heard = time.perf_counter(), list[tuple[float, float]]()
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio) and len(chunk.wave):
                heard.append((time.perf_counter() - began_s, len(chunk.wave) / 24_000))
    assert heard, "an answer without sound"
    length_s = sum(audio_s for _, audio_s in heard[1:])
    return heard[0][0] * 1e3, (heard[-1][0] - heard[0][0]) / length_s if length_s else math.nan


def quantile(values: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q))


def tables(bench: Bench) -> Iterator[Table]:
    """All that was found, and how it stands to the bars."""
    for part, rows in bench.found.items():
        columns = list(dict.fromkeys(name for row in rows for name in row))
        table = Table(*columns, title=part)
        for row in rows:
            values = (row.get(name, "") for name in columns)
            table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in values))
        yield table


def bars(bench: Bench) -> Iterator[str]:
    for row in bench.found.get("answers", []):
        bar, users = BARS.get(row["users"]), row["users"]
        if not bench.asked.tiny and bar and row["graphs"] and "TTFA p95 ms" in row:
            took = row["TTFA p50 ms" if users == 1 else "TTFA p95 ms"]
            yield f"{users} users: {took:.0f} of {bar:.0f} ms to the first sound: {'kept' if took <= bar else 'MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes in float32")
    parser.add_argument("--json", help="where all figures go")
    parser.add_argument("--budget-s", type=float, default=540.0)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--piece", type=int, default=2048, help="rows of prompts that one step takes in")
    parser.add_argument("--frames", type=int, default=50, help="codec frames of each answer, 80 ms each")
    parser.add_argument("--warm-s", type=float, default=45.0, help="for capturing the graphs of a stage ahead")
    parser.add_argument("--profile", action="store_true", help="also print which kernels the steps consist of")
    parser.add_argument("--concurrency", default="1,4,16,64")
    asked = parser.parse_args()
    asked.counts = [int(one) for one in asked.concurrency.split(",")]
    cuda_graph_runner.WARM_S = asked.warm_s
    bench = Bench(asked)
    about_device(bench)
    with tempfile.TemporaryDirectory() as name:
        folder = describe(Path(name), asked.tiny)
        stages = build(bench, folder)
        steps(bench, stages)
        if asked.profile:
            profile(bench, stages)
        asyncio.run(answers(bench, stages, folder))
    console = Console(width=140)
    for table in tables(bench):
        console.print(table)
    print(*bars(bench), sep="\n")


if __name__ == "__main__":
    main()
