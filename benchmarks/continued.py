"""Check that answers of a bfloat16 thinker stay consistent when its replica is killed at a random moment.

    python -m benchmarks.continued --folder DIR [--answers 100]

A tiny Qwen3-Omni is trained on a language of 26 words and a tool call, and two replicas of it run in bfloat16, where
results depend on the rest of the batch. Any word may follow any other, so each word is a random draw that the last bit
of a logit can change. After its first letter, the rest of a word is almost certain, so two spliced answers are
detectable.

Three runs without kills answer the same questions. In the fourth run, thinkers are killed (kill -9) one after the other
until enough answers have been hit. Each answer must have no lost or repeated characters and valid JSON arguments, and
must end normally. Then transformers ranks every token in float32 given the tokens before it: unlikely tokens (rank
above 40) must be no more frequent than without kills (at a significance of 5 %). The last run is a control: its
thinkers keep no state, and must fail.

Results are stored in DIR, so an interrupted run can continue. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from math import comb
from pathlib import Path
from string import ascii_lowercase

import torch

from benchmarks import program
from engine import Engine, EngineError, Message, Request, Sampling, TextPart, parse_config
from engine.chunk import Text, ToolCall, Usage
from engine.core import ToolDefinition
from engine.worker.text.chat_encoder import Chat
from tests.oracles import tiny_qwen3_omni as tiny
from tests.oracles.qwen3_omni import Oracle

AT_ONCE, TOKENS, FRAMES = 12, 160, 12
RARE = 40
JUDGED = 16  # answers per batch of the reference
STEPS, ROWS = 150, 8
TOOL = ToolDefinition("city", "Tells about a city.", {"type": "object"})
WORDS = tuple(f"{letter}{letter.upper()}{'1' * (letter > 'm')}" for letter in ascii_lowercase)
CITIES = ("Ulm", "Rome", "Oslo", "Lima", "Bern")

CONFIG = """
stages:
  - {{name: thinker, use: {thinker}, weights: {weights}, dtype: bfloat16, options: {{context: 1024}}}}
  - {{name: talker, use: qwen3_omni.talker, weights: {weights}, dtype: bfloat16, options: {{context: 1024}}}}
  - {{name: code2wav, use: qwen3_omni.code2wav, weights: {weights}, dtype: bfloat16}}
workers:
  - {{stages: [thinker], replicas: 2, max_batch: 16}}
  - {{stages: [talker, code2wav], max_batch: 16}}
heartbeat: {{interval_s: 0.5, timeout_s: 20}}
empty_s: 120
stall_s: 120
"""
FORGETFUL = '''
from collections import deque
from engine.worker.models.qwen3_omni.thinker import Thinker


class Forgetful(Thinker):
    """Leaves out what was given, and writes anew: as if it would draw the same again."""

    def _kept(self, req):
        return deque()
'''


@dataclass(slots=True)
class Heard:
    """An answer as its client received it."""

    id: int
    text: str = ""
    ids: list[int] = field(default_factory=list[int])
    prompt: list[int] = field(default_factory=list[int])
    calls: list[str] = field(default_factory=list[str])
    called: list[int] = field(default_factory=list[int])
    """Token ids of calls, which are not text."""
    gaps: int = 0
    finish: str = ""
    error: str = ""
    hit: bool = False


def question(n: int) -> Request:
    """Return the n-th question, which is the same in every run."""
    draw = random.Random(n)
    said = Message("user", (TextPart(_sentence(draw)),))
    return Request(
        id=f"{n}",
        session=f"{n}",
        messages=(said,),
        tools=(TOOL,),
        dump=True,
        max_text_tokens=TOKENS,
        max_audio_s=0.08 * FRAMES,
        sampling=Sampling(seed=n, temperature=1.0),
    )


def _sentence(draw: random.Random) -> str:
    return "".join(draw.choice(WORDS) for _ in range(draw.randrange(8, 16))) + "."


def taught(folder: Path) -> Path:
    """Train a tiny checkpoint that chats and calls a tool, once."""
    made = folder / "weights"
    if (folder / "taught").exists():
        return made
    torch.manual_seed(0)
    tiny.make(made)
    chat, oracle, draw = Chat(made), Oracle(made), random.Random(0)
    thinker = oracle.model.thinker.train()
    adam = torch.optim.AdamW(thinker.parameters(), 3e-3)
    for step in range(STEPS):
        pairs = [(question(10_000 + step * ROWS + i), _lesson(chat, draw)) for i in range(ROWS)]
        rows = [(chat.prompt(asked.messages, asked.tools), answer) for asked, answer in pairs]
        longest = max(len(prompt) + len(answer) for prompt, answer in rows)
        ids = torch.tensor([[*prompt, *answer, *[0] * longest][:longest] for prompt, answer in rows])
        wanted = torch.full_like(ids, -100)
        for i, (prompt, answer) in enumerate(rows):
            wanted[i, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
        logits = thinker(input_ids=ids, attention_mask=(torch.arange(longest) < 10**6).expand_as(ids).long()).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), wanted[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 20 == 0:
            print(f"lesson {step}: {loss.item():.3f}", flush=True)
    oracle.model.eval().save_pretrained(made)
    (folder / "taught").touch()
    return made


def _lesson(chat: Chat, draw: random.Random) -> list[int]:
    """Return an answer of one or two sentences, usually followed by a call."""
    ids = chat.encode(" ".join(_sentence(draw) for _ in range(draw.randrange(1, 3))))
    if draw.random() < 3 / 4:
        arguments = {"name": TOOL.name, "arguments": {"city": draw.choice(CITIES), "true": draw.randrange(100)}}
        ids += [chat.added["<tool_call>"], *chat.encode(f"\n{json.dumps(arguments)}\n"), chat.added["</tool_call>"]]
    return [*ids, chat.added["<|im_end|>"]]


async def hear(engine: Engine, heard: Heard, hits: set[str]) -> None:
    try:
        async with engine.open(question(heard.id)) as chunks:
            async for chunk in chunks:
                match chunk:
                    case Text(text, start, ids):
                        heard.gaps += start != len(heard.text)
                        heard.text = heard.text + text
                        heard.ids = [*heard.ids, *ids]
                    case ToolCall(_, _, arguments, ids):
                        heard.calls.append(arguments)
                        heard.ids = [*heard.ids, *ids]
                        heard.called = [*heard.called, *ids]
                    case Usage():
                        heard.finish = chunk.finish
                        heard.prompt = list(chunk.prompt_ids) or heard.prompt
                    case _:
                        pass
    except EngineError as error:
        heard.error = str(error)
    heard.hit = f"{heard.id}" in hits


async def run(folder: Path, name: str, use: str, answers: int, kills: bool) -> list[Heard]:
    """Return ``answers`` answers; with kills, run until that many have been hit."""
    file = folder / f"{name}.jsonl"
    if (folder / f"{name}.done").exists():
        return [Heard(**json.loads(line)) for line in file.read_text().splitlines()]
    done = [Heard(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    hits: set[str] = set()
    numbers = iter(range(len(done), 10**6))

    def left() -> int:
        return answers - (sum(one.hit for one in done) if kills else len(done))

    async def session() -> None:
        while left() > 0:
            heard = Heard(next(numbers))
            await hear(engine, heard, hits)
            done.append(heard)
            with file.open("a") as out:
                out.write(json.dumps(asdict(heard)) + "\n")

    spec = parse_config(CONFIG.format(thinker=use, weights=folder / "weights"))
    async with Engine(spec) as engine, asyncio.TaskGroup() as tasks:
        for i in range(AT_ONCE):
            tasks.create_task(session(), name=f"session{i}")
        draw = random.Random(len(done))
        while kills and left() > 0:
            await asyncio.sleep(draw.uniform(0.2, 1.5))
            hits |= await killed(engine)
            print(f"{name}: {answers - left()} of {answers} hit", flush=True)
    (folder / f"{name}.done").touch()
    return done


async def killed(engine: Engine) -> set[str]:
    """Kill the busiest thinker and wait until there are two again. Returns the requests that it had."""
    pool = engine._fleet.pools["thinker"]  # pyright: ignore[reportPrivateUsage]
    while len(pool) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    host = max(pool.members(), key=lambda member: len(member.leases)).replica.host
    hit = {run.partition("/")[0] for run in host._runs}  # pyright: ignore[reportPrivateUsage]
    os.kill(host.hello.result().pid, signal.SIGKILL)
    await host.gone.wait()
    return hit


@dataclass(frozen=True, slots=True)
class Judged:
    """Broken answers of a run, and the number of its tokens that are unlikely for the reference."""

    broken: list[str]
    tokens: int
    rare: int
    worst: int


def judged(oracle: Oracle, chat: Chat, answers: list[Heard], file: Path) -> Judged:
    """Judge a run's answers with the reference. The result is cached, because it takes as long as the run."""
    if file.exists():
        return Judged(**json.loads(file.read_text()))
    broken, ranks = list[str](), list[int]()
    for one in answers:
        if fault := _fault(chat, one):
            broken.append(f"{one.id}: {fault}: {one.text!r} {one.error}")
    told = sorted((one for one in answers if one.ids and one.prompt), key=lambda one: len(one.prompt) + len(one.ids))
    for start in range(0, len(told), JUDGED):
        ranks += _ranks(oracle, told[start : start + JUDGED])
    found = Judged(broken, len(ranks), sum(rank >= RARE for rank in ranks), max(ranks, default=0) + 1)
    file.write_text(json.dumps(asdict(found)))
    return found


@torch.inference_mode()
def _ranks(oracle: Oracle, answers: list[Heard]) -> list[int]:
    """Return each token's rank: the number of tokens that the reference finds more likely. Padding comes after the
    answer.
    """
    longest = max(len(one.prompt) + len(one.ids) for one in answers)
    ids = torch.tensor([[*one.prompt, *one.ids, *[0] * longest][:longest] for one in answers])
    logits = oracle.model.thinker(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    ranks = list[int]()
    for one, row, known in zip(answers, logits, ids, strict=True):
        start, end = len(one.prompt), len(one.prompt) + len(one.ids)
        behind = row[start - 1 : end - 1]
        ranks += (behind > behind.gather(1, known[start:end, None])).sum(1).tolist()
    return ranks


def _fault(chat: Chat, one: Heard) -> str:
    if one.error or one.finish not in {"stop", "length", "tool"}:
        return "it did not end"
    if one.gaps:
        return "a piece of text does not begin where the one before it ended"
    spoken, called = [], list(one.called)
    for id in one.ids:
        if called and id == called[0]:
            called.pop(0)
        else:
            spoken.append(id)
    if chat.text(spoken) != one.text:
        return "characters are lost or doubled"
    for arguments in one.calls:
        try:
            json.loads(arguments)
        except ValueError:
            return "a call's arguments are no JSON"
    return ""


def by_chance(rare: int, tokens: int, others: int, other_tokens: int) -> float:
    """Return the probability of at least this many rare tokens if they are distributed like the others.

    This is a conditional test of two rates (Przyborowski and Wilenski 1940).
    """
    every, share = rare + others, tokens / (tokens + other_tokens)
    return sum(comb(every, k) * share**k * (1 - share) ** (every - k) for k in range(rare, every + 1))


async def main(folder: Path, answers: int) -> int:
    weights, began_s = taught(folder), time.monotonic()
    forgetful = folder / "forgetful.py"
    forgetful.write_text(FORGETFUL)
    chat, oracle = Chat(weights), Oracle(weights)
    use, found = "qwen3_omni.thinker", dict[str, tuple[list[Heard], Judged]]()
    runs: list[tuple[str, str, bool, int]] = [(f"calm{i}", use, False, answers) for i in range(3)]
    runs += [("killed", use, True, answers), ("forgetful", f"{forgetful}:Forgetful", True, max(20, answers // 2))]
    for name, thinker, kills, count in runs:
        heard = await run(folder, name, thinker, count, kills)
        hit = [one for one in heard if one.hit] if kills else heard
        found[name] = hit, judged(oracle, chat, hit, folder / f"{name}.judged.json")
        result, calls = found[name][1], sum(len(one.calls) for one in hit)
        print(
            f"{name}: {len(hit)} answers, {calls} calls, {result.tokens} tokens, {result.rare} of rank > {RARE} "
            f"(worst {result.worst}), {len(result.broken)} broken; {time.monotonic() - began_s:.0f} s",
            flush=True,
        )
    return verdict(found)


def verdict(found: dict[str, tuple[list[Heard], Judged]]) -> int:
    calm = [found[f"calm{i}"][1] for i in range(3)]
    rare, tokens = sum(one.rare for one in calm), sum(one.tokens for one in calm)
    good = list[bool]()
    for name in ("killed", "forgetful"):
        result = found[name][1]
        print(*result.broken[:5], sep="\n")
        kept = program.check_bar(f"{name}: broken answers", len(result.broken), "<=", 0, "")
        chance = by_chance(result.rare, result.tokens, rare, tokens)
        kept = program.check_bar(f"{name}: chance of so many rare tokens", chance, ">=", 0.05, "") and kept
        good.append(kept if name == "killed" else program.check_bar("control: it misses a bar", not kept, ">=", 1, ""))
    same = {one.id: one.ids for one in found["calm0"][0]}
    again = [one.ids == same.get(one.id) for one in found["calm1"][0]]
    print(f"of the answers of two runs without a kill {sum(again)} of {len(again)} are the same: this is bfloat16")
    return int(not all(good))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=100)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main(asked.folder.resolve(), asked.answers)))
