"""Measure the thinker on the committed sets, greedy: ``python -m engine.training.nano.eval_thinker``.

Prints the number of correct answers per ability, using the exported weights in the production stage (ONNX Runtime).
``--wrong`` shows the errors; ``--speed`` times prefill and decode steps. ``--fresh SEED`` draws new requests instead,
from words and number pairs that training never sees, and refusals written after training. ``--chained`` measures it as
the first model of a chain.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np

from engine.chunk import Chunk, Text, ToolCall, Transcript
from engine.core import Message, Sampling, TextPart
from engine.core import Request as EngineRequest
from engine.errors import Declined
from engine.training.nano.dialogues import EVAL, Request, answers_rightly, read_requests
from engine.training.nano.make_eval import distinct, typed_repeat, typed_spell, typed_sum
from engine.worker.models.nano.eyes import Eyes
from engine.worker.models.nano.network import Network
from engine.worker.models.nano.sayings import REFUSALS
from engine.worker.models.nano.sight import Sight
from engine.worker.models.nano.thinker import WEIGHTS, Thinker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

SETS = ("typed_repeat.jsonl", "typed_spell.jsonl", "typed_sums.jsonl", "typed_refuse.txt")
SPOKEN = ("spoken_in_domain.jsonl", "spoken_out_of_domain.txt")
SLOTS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder with thinker.onnx")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th request, from the i-th")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--fresh", type=int, metavar="SEED")
    parser.add_argument("--chained", action="store_true", help="as the first model of a chain: declining is a refusal")
    args = parser.parse_args()
    config = StageConfig(weights=args.weights, slots=SLOTS, may_decline=args.chained)
    stage = Thinker(config, sight=Sight(Eyes(WEIGHTS)))
    sets = committed() if args.fresh is None else fresh(random.Random(args.fresh))
    first, every = map(int, args.part.split("/"))
    for name, whole in sets.items():
        requests = whole[first - 1 :: every]
        answers = ask(stage, [r.text for r in requests])
        _report(name, requests, answers, args.wrong)
    if args.speed:
        print_speed(args.weights)


def committed() -> dict[str, list[Request]]:
    return {name: read_requests(EVAL / name) for name in SETS + SPOKEN}


def fresh(rng: random.Random) -> dict[str, list[Request]]:
    """Return new requests of the same kinds as the committed sets."""
    old = {request.text for name in SETS for request in read_requests(EVAL / name)}
    drawn = {
        "repeat": distinct(300, lambda i: typed_repeat(rng, 1 + i % 2)),  # words only: the sentences are committed ones
        "spell": distinct(300, lambda _: typed_spell(rng)),
        "sums": distinct(300, lambda i: typed_sum(rng, "sum" if i % 2 else "minus")),
        "refuse": read_requests(EVAL / "fresh_refuse.txt"),
    }
    return {f"fresh {name}": [r for r in requests if r.text not in old] for name, requests in drawn.items()}


def _report(name: str, requests: Sequence[Request], answers: Sequence[str], show_wrong: bool) -> None:
    verdicts = [answers_rightly(r.expect, a) for r, a in zip(requests, answers, strict=True)]
    print(f"{name:28} {sum(verdicts):4} of {len(verdicts):4} right: {sum(verdicts) / len(verdicts):.1%}", flush=True)
    for request, answer, right in zip(requests, answers, verdicts, strict=True):
        if show_wrong and not right:
            print(f"    {request.text!r} -> {answer!r}")
    if name.startswith("spoken_in"):
        wrong = Counter(str(r.expect["kind"]) for r, right in zip(requests, verdicts, strict=True) if not right)
        print("    wrong by kind:", dict(wrong))


def ask(stage: Thinker, texts: Sequence[str]) -> list[str]:
    """Return the answers to single requests, in batches of the stage's slots."""
    answers: list[str] = []
    for start in range(0, len(texts), SLOTS):
        requests = [_request(text) for text in texts[start : start + SLOTS]]
        emitted = asyncio.run(serve(stage, requests))
        answers += ["".join(c.text for c in chunks if isinstance(c, Text)) for chunks in emitted]
    return answers


def _request(text: str) -> EngineRequest:
    messages = (Message("user", (TextPart(text),)),)
    return EngineRequest(id="eval", session="eval", messages=messages, sampling=Sampling(greedy=True))


async def serve(stage: Thinker, requests: Sequence[EngineRequest], heard: str | None = None) -> list[list[Chunk]]:
    """Run requests through the stage together, like a worker's loop, and return the chunks of each."""
    reqs = [StageRequest(request, slot, pace=_NoPace()) for slot, request in enumerate(requests)]
    for req in reqs:
        stage.open(req)
        async for row in stage.adapt(req, _said(heard)):
            req.pending.append(row)
        req.ended = True
    emitted: list[list[Chunk]] = [[] for _ in reqs]
    while ready := [req for req in reqs if req.ready]:
        for req, chunks in zip(ready, stage.step(ready), strict=True):
            if isinstance(chunks, Declined):
                chunks = [Text(REFUSALS[0], 0)]
                req.done = True
            if isinstance(chunks, Exception):
                raise chunks
            emitted[req.slot] += chunks
    return emitted


def written(call: ToolCall) -> str:
    """Return a call as JSON."""
    return json.dumps({"name": call.name, "arguments": call.arguments})


async def _said(heard: str | None) -> AsyncIterator[Transcript]:
    if heard is not None:
        yield Transcript(heard, final=True, understood=bool(heard))


class _NoPace:
    def size(self, count: int) -> int:
        return 1

    def hurry(self) -> bool:
        return False


def print_speed(weights: Path) -> None:
    """Print the median and p95 in ms on one thread, with ONNX Runtime as in production."""
    net = Network(weights / "thinker.onnx", SLOTS)
    rng = np.random.default_rng(0)
    cases = (("prefill of 60", 1, 60, 0), ("step, 1 at 100", 1, 1, 100), ("step, 8 at 100", 8, 1, 100))
    for name, batch, count, past in cases:
        times = []
        for _ in range(200):
            ids = rng.integers(32, 127, (batch, count)).tolist()
            start = time.perf_counter()
            net.advance(list(range(batch)), ids, [past] * batch)
            times.append(1000 * (time.perf_counter() - start))
        print(f"{name:16} p50 {np.percentile(times, 50):6.2f} ms   p95 {np.percentile(times, 95):6.2f} ms")


if __name__ == "__main__":
    main()
