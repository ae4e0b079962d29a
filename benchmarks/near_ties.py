"""A bench of why an answer of a family, beside others, may not be the one that it is alone: its draws near a tie.

    python -m benchmarks.near_ties [--family qwen3_omni] [--rounds 12]

A draw points into the number line on which the shares of the ids lie one behind the other. A batch of another size
rounds its products otherwise, so that the ends on that line move by some 1e-7; a point that lies nearer to an end than
that draws the neighbour, and what is drawn afterwards is another answer. Where the last id that top-k keeps and the
first that it leaves out are as near to each other, one takes the other's place, and all ends between them move by a
share. Every draw of a tiny random checkpoint is kept (float32, in one process), alone and beside others, and compared
until the first one that differs.

A parting whose point lay further from the end than the end has moved is a fault, and so is one whose logits moved by
more than ROUNDING: the command fails.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs
from torch import Tensor

from app.bench.loads import Plan
from benchmarks.families import FAMILIES, VOICES, written
from engine import Audio, Engine, EngineSpec, Request, Sampling, load_config, loop
from engine.worker.nn import sampler
from engine.worker.nn.sampling_params import BatchSamplingParams

Key = tuple[int, int, int, int]
"""The seed, the stage, the step and the codebook of a draw."""


ROUNDING = 1e-5
"""The most that another batch may move a logit of these checkpoints, whose logits are some units large."""


@dataclass(frozen=True, slots=True)
class Draw:
    """An id, where its point lay, the ends of the ids on the line, float32 [ids kept], and the logits [ids]."""

    id: int
    point: float
    kept: Tensor
    ends: Tensor
    logits: Tensor

    @property
    def margin(self) -> float:
        """Return how far the point lay from the next end."""
        return float((self.ends - self.point).abs().min())

    def moved(self, other: Draw) -> float:
        """Return how far the end that is next to this point lies elsewhere in another draw of the same."""
        at = int((self.ends - self.point).abs().argmin())
        return abs(float(self.ends[at] - other.ends[at])) + abs(self.point - other.point)

    def logit_moved(self, other: Draw) -> float:
        """Return how far the farthest logit lies elsewhere in another draw of the same."""
        return float((self.logits - other.logits).nan_to_num(0.0).abs().max())  # what is never drawn is -inf in both

    def exchanged(self, other: Draw) -> list[int]:
        """Return the ids that are on the line of one and not of the other."""
        return sorted({*self.kept.tolist()} ^ {*other.kept.tolist()})


@dataclass(frozen=True, slots=True)
class Parting:
    """A draw that another batch drew otherwise: its key, how far its point lay from the end, how far the end moved, how
    far a logit did, and which ids took each other's place on the line."""

    key: Key
    margin: float
    moved: float
    logit_moved: float
    exchanged: list[int]

    @property
    def fault(self) -> bool:
        return self.margin > self.moved or self.logit_moved > ROUNDING


@dataclass(slots=True)
class Recorder:
    """Every draw by its key, in the order in which they were made."""

    draws: dict[Key, Draw] = field(default_factory=dict[Key, Draw])
    _keys: list[Key] = field(default_factory=list[Key])

    def install(self) -> None:
        inside: Any = sampler
        points, drawn = BatchSamplingParams.points, inside._drawn

        def noted(params: BatchSamplingParams, stage: int, steps: Tensor, codebook: int) -> Tensor:
            pairs = zip(params.seeds.tolist(), steps.tolist(), strict=True)
            self._keys = [(seed, stage, step, codebook) for seed, step in pairs]
            return points(params, stage, steps, codebook)

        def recorded(logits: Tensor, params: BatchSamplingParams, at: Tensor) -> Tensor:
            ids, (kept, ends) = drawn(logits, params, at), sampler.number_line(logits, params)
            rows = zip(self._keys, ids.tolist(), (at * ends[:, -1]).tolist(), kept, ends, logits, strict=True)
            for key, id, point, *row in rows:
                self.draws[key] = Draw(id, point, *(one.clone() for one in row))
            return ids

        inside.BatchSamplingParams.points = noted
        inside._drawn = recorded

    def taken(self) -> dict[Key, Draw]:
        """Return the draws since the last call."""
        draws = self.draws
        self.draws = {}
        return draws


@dataclass(slots=True)
class Comparison:
    """The draws of answers beside others, up to where they part from the same answer alone."""

    answers: int = 0
    compared: int = 0
    margins: list[float] = field(default_factory=list[float])
    moves: list[float] = field(default_factory=list[float])
    partings: list[Parting] = field(default_factory=list[Parting])

    def add(self, alone: dict[Key, Draw], beside: dict[Key, Draw]) -> None:
        for seed in {key[0] for key in alone}:
            self.answers += 1
            for key, draw in beside.items():
                if key[0] != seed or key not in alone:
                    continue
                one = alone[key]
                self.compared += 1
                if draw.id != one.id:
                    parting = Parting(key, one.margin, one.moved(draw), one.logit_moved(draw), one.exchanged(draw))
                    self.partings.append(parting)
                    break
                self.margins.append(one.margin)
                self.moves.append(one.moved(draw))


async def answer(engine: Engine, request: Request) -> int:
    """Return the samples of an answer."""
    async with engine.open(request) as chunks:
        return sum([len(chunk.wave) async for chunk in chunks if isinstance(chunk, Audio)])


async def compare(spec: EngineSpec, requests: Sequence[Request], rounds: int) -> Comparison:
    recorder, found = Recorder(), Comparison()
    recorder.install()
    async with Engine(spec) as engine:
        for number in range(rounds):
            asked = [_asked(request, number) for request in requests]
            for request in asked:
                await answer(engine, request)
            alone = recorder.taken()
            await asyncio.gather(*(answer(engine, request) for request in asked))
            found.add(alone, recorder.taken())
            print(f"{len(found.partings)} of {found.answers}", file=sys.stderr)
    return found


def _asked(request: Request, number: int) -> Request:
    """The same question with another seed: each round has draws of its own."""
    assert request.sampling.seed is not None
    sampling = structs.replace(request.sampling, seed=100 * number + request.sampling.seed)
    return structs.replace(request, sampling=sampling)


def shown(found: Comparison) -> Iterable[str]:
    yield f"{found.answers} answers beside others, {found.compared} draws until they end or part"
    yield f"an end of the line moves by {max(found.moves):.1e} at the most"
    yield f"the nearest point that drew the same lay {min(found.margins):.1e} from an end"
    yield f"{len(found.partings)} answers part from what they are alone"
    for one in found.partings:
        seed, stage, step, codebook = one.key
        yield f"  seed {seed}, stage {stage}, step {step}, codebook {codebook}:"
        yield f"  the point lay {one.margin:.1e} from the end, which moved by {one.moved:.1e}"
        yield f"  logits moved by {one.logit_moved:.1e}; exchanged: {one.exchanged or 'none'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=FAMILIES, default="qwen3_omni")
    parser.add_argument("--rounds", type=int, default=12, help="with eight answers each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = written(args.family, Path(folder), launcher="inline")
        kind = Plan().kinds()[0 if args.family in VOICES else -1]
        requests = [
            structs.replace(
                one, id=str(at), session=str(at), max_text_tokens=50, max_audio_s=4.0, sampling=Sampling(seed=at)
            )
            for at, one in enumerate(kind.requests)
        ]
        found = loop.run(compare(load_config(path), requests, args.rounds))
    print("\n".join(shown(found)))
    return int(any(one.fault for one in found.partings))


if __name__ == "__main__":
    sys.exit(main())
