"""A bad request among good ones: how a stage's step is broken, what random bad ones look like, and who is harmed."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from engine import (
    AudioPart,
    Engine,
    EngineError,
    ImagePart,
    Message,
    Request,
    Sampling,
    StageFailed,
    TextPart,
    TokenIds,
)
from engine.core import ToolCallPart, ToolDefinition, ToolResultPart
from engine.worker.stage_request import StageRequest

BAD = "bad"
SECRET = "internal detail 4711"
Moment = Literal["before", "after"]
ROUNDS = 10


def is_bad(req: StageRequest) -> bool:
    return req.request.id.startswith(BAD)


class Breaking:
    """Has a stage's step raise where the bad request is in the batch, from its ``nth`` step on.

    ``before`` nothing has been computed; ``after`` every state has been changed, and nobody gets what was made.
    """

    def __init__(self, patch: pytest.MonkeyPatch, stage: Any, moment: Moment, nth: int) -> None:
        self.together = 0
        """How many steps broke in which others were, too."""
        sane, seen = stage.step, 0

        def step(self_: Any, reqs: Sequence[StageRequest]) -> Any:
            nonlocal seen
            ill = any(map(is_bad, reqs))
            seen += ill
            breaks = ill and seen >= nth
            self.together += breaks and not all(map(is_bad, reqs))
            if breaks and moment == "before":
                raise ZeroDivisionError(SECRET)
            results = sane(self_, reqs)
            if breaks:
                raise ZeroDivisionError(SECRET)
            return results

        patch.setattr(stage, "step", step)

    async def one_among_good(
        self, engine: Engine, read: Read, good: Sequence[Request], bad: Request, known: dict[str, Any] | None = None
    ) -> None:
        """Until the bad one was in a batch with others: when each is stepped depends on the machine."""
        alone = await each_alone(engine, read, good, {} if known is None else known)
        for _ in range(ROUNDS):
            plain(await beside(engine, read, good, alone, bad))
            if self.together:
                return
        raise AssertionError("the bad one was in no batch with others: nothing is proved")


Read = Callable[[Engine, Request], Any]
"""Gives the whole answer to a request, as something that can be compared, or raises its EngineError."""


async def one_among_good(
    engine: Engine, read: Read, good: Sequence[Request], bad: Request, known: dict[str, Any] | None = None
) -> EngineError | None:
    """Ask all at once; every good answer must be what it is alone. What the bad one was told."""
    return await beside(engine, read, good, await each_alone(engine, read, good, {} if known is None else known), bad)


async def each_alone(engine: Engine, read: Read, good: Sequence[Request], known: dict[str, Any]) -> list[Any]:
    """What each good request is answered alone; ``known`` by their ids are those that an engine of this kind was asked
    before."""
    for request in good:
        if request.id not in known:
            known[request.id] = await read(engine, request)
    return [known[request.id] for request in good]


async def beside(
    engine: Engine, read: Read, good: Sequence[Request], alone: Sequence[Any], bad: Request
) -> EngineError | None:
    """The same, where it is known what each answer is ``alone``."""
    *together, told = await asyncio.gather(*(read(engine, request) for request in (*good, bad)), return_exceptions=True)
    for request, expected, got in zip(good, alone, together, strict=True):
        assert not isinstance(got, BaseException), f"{request.id} was lost: {got}"
        assert got == expected, f"{request.id} was changed"
    return told if isinstance(told, EngineError) else None


def plain(error: EngineError | None) -> None:
    """An error of ours is told as a sentence that names nothing of what is within."""
    assert isinstance(error, StageFailed), error
    assert str(error).endswith("the server's log says why.")
    keeps_to_itself(error)


def keeps_to_itself(error: EngineError) -> None:
    """It names nothing of what is within: a family may also say what it knows, as that its logits are no numbers."""
    for inner in (SECRET, "Error", "(", "Traceback"):
        assert inner not in str(error)


async def many_among_good(engine: Engine, read: Read, good: Sequence[Request], bad: Sequence[Request]) -> int:
    """Ask the bad ones in turn, while good ones are asked again and again. How many good answers there were."""
    alone = {request.id: await read(engine, request) for request in good}
    over = False
    answers = 0

    async def again(request: Request) -> None:
        nonlocal answers
        while not over:
            assert await read(engine, request) == alone[request.id], f"{request.id} was changed"
            answers += 1

    async def ask_bad() -> None:
        nonlocal over
        try:
            for request in bad:
                try:
                    await read(engine, request)
                except StageFailed as error:
                    keeps_to_itself(error)
                except EngineError:
                    pass
        finally:
            over = True

    async with asyncio.TaskGroup() as group:
        group.create_task(ask_bad())
        for request in good:
            group.create_task(again(request))
    return answers


async def random_among_good(engine: Engine, read: Read, good: Sequence[Request], count: int) -> int:
    """Ask so many random bad ones so. How many good answers there were."""
    return await many_among_good(engine, read, good, bad_requests(count, count, good[0], engine.model.tokenizer))


def bad_requests(seed: int, count: int, good: Request, tokenizer: str) -> list[Request]:
    """Requests of which one thing or two are not as they should be; the rest is as in a good one. ``tokenizer`` is the
    name under which token ids reach the thinker."""
    draw = random.Random(seed)
    found: list[Request] = []
    for i in range(count):
        changes: dict[str, Any] = {"id": f"{BAD}{i}", "session": f"{BAD}{i}", "max_text_tokens": 6, "max_audio_s": 0.25}
        for _ in range(draw.randint(1, 2)):
            changes |= draw.choice(FAULTS)(draw)
        if "messages" in changes:
            changes["messages"] = tuple(_tagged(message, tokenizer) for message in changes["messages"])
        found.append(msgspec.structs.replace(good, **changes))
    return found


NUMBERS = [math.nan, math.inf, -math.inf, -1, 0, 1e300, -1e-9, 10**30, 2**63, "7", None]
WEIRD: list[Any] = [None, "", "7", -1, 10**30, 1.5, math.nan, [], [None], {}, {"a": None}, True, "\ud800", "\x00" * 9]
TEXTS = ["", " ", "\x00", "\ud800", "é" * 999, "1" * 4000, "9" * 300 + "." + "9" * 300, "<|im_start|>", "a" * 20_000]
TOOLS = ["set_timer", "set_light", "get_weather", "set_volume", "", "timer", "\ud800"]


def _weird_text(draw: random.Random) -> str:
    drawn = "".join(chr(draw.choice([draw.randrange(32, 127), draw.randrange(0xD7FF)])) for _ in range(40))
    return draw.choice([*TEXTS, drawn])


def _text(draw: random.Random) -> dict[str, Any]:
    return {"messages": (Message("user", (TextPart(_weird_text(draw)),)),)}


def _recited(draw: random.Random) -> dict[str, Any]:
    return {"say": _weird_text(draw)}


def _schema(draw: random.Random) -> dict[str, Any]:
    names = ["time", "duration", "seconds", "level", "state", "color", "place", "unit", "", "\x00"]
    words = ["type", "minimum", "maximum", "enum", "description"]
    properties = {
        draw.choice(names): draw.choice([{word: draw.choice(WEIRD) for word in draw.sample(words, 3)}, *WEIRD])
        for _ in range(3)
    }
    return {
        "type": "object",
        "properties": draw.choice([properties, properties, *WEIRD]),
        "required": draw.choice(WEIRD),
    }


def _tools(draw: random.Random) -> dict[str, Any]:
    tools = tuple(ToolDefinition(draw.choice(TOOLS), "", _schema(draw)) for _ in range(2))
    asked = draw.choice(["Set a timer for ten minutes.", "Turn on the light.", "Make it louder."])
    choice = draw.choice(["auto", "required", "none", "set_timer"])
    return {"tools": tools, "tool_choice": choice, "messages": (Message("user", (TextPart(asked),)),)}


def _numbers(draw: random.Random) -> dict[str, Any]:
    return {draw.choice(["speed", "max_text_tokens", "max_audio_s", "lead_s"]): draw.choice(NUMBERS)}


def _sampling(draw: random.Random) -> dict[str, Any]:
    field = draw.choice(["temperature", "top_p", "seed", "guidance", "greedy"])
    return {"sampling": msgspec.structs.replace(Sampling(), **{field: draw.choice(NUMBERS)})}


def _picture(draw: random.Random) -> dict[str, Any]:
    shape = draw.choice([(0, 0, 3), (1, 1, 3), (5, 5), (9, 9, 4), (3,), (1, 300, 3), (40, 40, 3)])
    kind = draw.choice([np.uint8, np.float64, np.int16, np.bool_])
    part = ImagePart(draw.choice([np.zeros(shape, kind), None, "pixels", np.full(shape, 7, kind)]))
    return {"messages": (Message("user", (part, TextPart("What do you see?"))),)}


def _sound(draw: random.Random) -> dict[str, Any]:
    pcm = draw.choice(
        [np.zeros(0, np.int16), np.zeros(1, np.int16), np.zeros((4, 4), np.int16), np.full(900, math.nan), None, "pcm"]
    )
    return {"messages": (Message("user", (AudioPart(pcm),)),)}


def _history(draw: random.Random) -> dict[str, Any]:
    call = ToolCallPart(draw.choice(TOOLS), _weird_text(draw), _weird_text(draw))
    result = ToolResultPart(_weird_text(draw), _weird_text(draw))
    ids = TokenIds("", tuple(draw.choice([-1, 0, 5, 10**9, 2**40]) for _ in range(3)))
    parts = draw.sample([Message("assistant", (call,)), Message("tool", (result,)), Message("assistant", (), ids)], 2)
    return {"messages": draw.choice([(), (*parts, Message("user", (TextPart("Hello."),))), tuple(parts)])}


def _tagged(message: Message, tokenizer: str) -> Message:
    ids = message.token_ids
    return message if ids is None else msgspec.structs.replace(message, token_ids=TokenIds(tokenizer, ids.ids))


def _names(draw: random.Random) -> dict[str, Any]:
    field = draw.choice(["voice", "tool_choice", "wants", "roles"])
    values = {
        "wants": [frozenset(), frozenset({"text"}), frozenset({"smell"}), None],
        "roles": [(), ("main", "negative"), ("x",), None],
    }
    return {field: draw.choice(values.get(field, WEIRD))}


FAULTS = [_text, _recited, _tools, _tools, _numbers, _sampling, _picture, _sound, _history, _names]
