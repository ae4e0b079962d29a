"""The first sound of an omni model's answer to a turn that is spoken and shown, beside the same turn only spoken.

    python -m benchmarks.camera --weights DIR [--config FILE] [--pairs N] [--seconds S] [--side PIXELS] [--window-s S]

Each pair is the same words twice, as fast as they are spoken, once with two frames a second of noise beside them; which
comes first takes turns. *First sound* is from the commit (the input's end) to the first chunk of sound. *Ratio* is the
median over the pairs of what one took to what the other did; the bar is 1.2.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from engine import MIC_RATE_HZ, Audio, Engine, Request, Sampling, Speech, VideoFrame, load_config
from engine.chunk import Chunk

BLOCK = 512  # samples of a microphone's block
BAR = 1.2


async def turn(seconds: float, side: int, fps: float, ended: list[float]) -> AsyncIterator[Chunk]:
    """A turn as it is spoken; without frames where ``fps`` is 0."""
    dice, begun_s = np.random.default_rng(0), time.monotonic()
    pcm = dice.integers(-4000, 4000, int(seconds * MIC_RATE_HZ), dtype=np.int16)
    due_s = 0.0
    for at in range(0, len(pcm), BLOCK):
        await asyncio.sleep(begun_s + at / MIC_RATE_HZ - time.monotonic())
        if fps and at >= due_s * MIC_RATE_HZ:
            yield VideoFrame(dice.integers(0, 255, (side * 3 // 4, side, 3), dtype=np.uint8), due_s)
            due_s += 1 / fps
        yield Speech(pcm[at : at + BLOCK])
    ended.append(time.monotonic())


async def first_sound_ms(engine: Engine, id: str, seconds: float, side: int, fps: float) -> float:
    """Milliseconds from the commit to the first sound."""
    ended: list[float] = []
    request = Request(
        id=id,
        session=id,
        messages=(),
        live=True,
        camera=fps > 0,
        sampling=Sampling(greedy=True),
        max_text_tokens=4,
        max_audio_s=0.5,
    )
    async with engine.open(request, turn(seconds, side, fps, ended)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio):
                return (time.monotonic() - ended[0]) * 1000
    raise SystemExit("the answer had no sound: use another checkpoint")


async def measure(args: argparse.Namespace) -> None:
    spec = replace(load_config(args.config), weights=str(args.weights))
    spec = replace(spec, options={**spec.options, "window_s": args.window_s})
    pairs: list[tuple[float, float]] = []
    async with Engine(spec) as engine:
        fps = engine.model.camera.fps
        for number in range(args.pairs + 1):
            both: dict[float, float] = {}
            for rate in (0.0, fps) if number % 2 else (fps, 0.0):
                both[rate] = await first_sound_ms(engine, f"{number}-{rate}", args.seconds, args.side, rate)
            pairs += [(both[0.0], both[fps])] if number else []  # the first is a rehearsal
    show(pairs)


def show(pairs: list[tuple[float, float]]) -> None:
    ratio = statistics.median(seen / heard for heard, seen in pairs)
    table = Table("", "first sound, p50")
    for name, times in zip(("spoken", "spoken and shown"), zip(*pairs, strict=True), strict=True):
        table.add_row(name, f"{statistics.median(times):.1f} ms")
    table.add_row("ratio", f"{ratio:.2f} (bar {BAR}){'' if ratio <= BAR else ': missed'}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=Path("configs/qwen3_omni_tiny.yaml"))
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.4)
    parser.add_argument("--side", type=int, default=90, help="pixels of a frame's longer side")
    parser.add_argument("--window-s", type=float, default=1.0)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
