"""Guided sampling in nano's talker: a companion that is not told the text, through the engine's request groups.

What the group says is compared with both roles computed alone in torch, and combined by hand.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine import Engine, EngineSpec, WorkerSpec
from engine.chunk import Checkpoint, Chunk, Codes, Text
from engine.core import Request
from engine.errors import RequestError
from engine.training.nano import meter
from engine.training.nano.align import letters as letter_ids
from engine.training.nano.export import read_voice
from engine.training.nano.speak import Steady, Voice, asked, drive, opened
from engine.training.nano.talker import Talker, TalkerStep, guided, places_of
from engine.worker.models.nano import talker as nano_talker
from engine.worker.models.nano import voice as nano_voice
from engine.worker.stage import StageConfig
from tests.engine.fakes import only

WEIGHTS = Path(nano_voice.__file__).parents[3] / "weights" / "nano"
TEXT = "Hello, I am nano. It is half past three."


@pytest.fixture(scope="module")
def voice() -> Voice:
    return Voice()


@pytest.fixture(scope="module")
def eager() -> Talker:
    torch.set_num_threads(1)
    return read_voice(WEIGHTS)[0]


def say(voice: Voice, asked_for: Request) -> NDArray[np.int64]:
    """The codes of a request at the talker alone."""

    async def read() -> list[Chunk]:
        return [
            chunk async for chunk in drive(voice.talker, opened(voice.talker, asked_for, Steady(5)), [Text(TEXT, 0)])
        ]

    return np.concatenate([chunk.frames for chunk in only(Codes, asyncio.run(read()))]).astype(np.int64)


@torch.no_grad()
def agreement(talker: Talker, codes: NDArray[np.int64], scale: float) -> float:
    """Share of the codes that both roles, each alone and given the frames before, give when combined by hand."""
    given, first = torch.from_numpy(codes), torch.tensor([0])
    ids = letter_ids(meter.spoken(TEXT))
    states, duration, _, _ = talker.text(torch.tensor([ids + [0] * nano_talker.REACH]), first)
    duration = duration[0, : len(ids)].double()
    ends_s = torch.cumsum(torch.where(duration[:, 1] > 0, torch.exp(duration[:, 0]), 0.0), 0)
    index, places = places_of(ends_s.float(), len(given))
    latent = torch.stack([talker.books[i][given[:, i]] for i in range(given.shape[1])]).sum(0)
    previous = torch.cat([torch.zeros_like(latent[:1]), latent[:-1]])[None]
    unknown = (torch.arange(len(given)) == 0)[None]
    told, where = states[0][index][None], places[None]
    entered = [talker.enter(told * share, where * share, previous, unknown, first) for share in (1, 0)]
    x = [talker.frames(one, first)[0] for one in entered]
    picked, _ = talker.pick(x[1] + scale * (x[0] - x[1]), first.expand(len(given)))
    return float((picked == given).float().mean())


@pytest.mark.parametrize("scale", [1.0, 1.5, 3.0])
def test_a_group_says_what_its_roles_alone_say_combined(voice: Voice, eager: Talker, scale: float) -> None:
    assert agreement(eager, say(voice, asked(guidance=scale)), scale) > 0.99


def test_control_another_scale_is_another_voice(voice: Voice, eager: Talker) -> None:
    assert agreement(eager, say(voice, asked(guidance=3.0)), 1.0) < 0.97


def test_a_group_at_scale_one_says_what_one_says_alone(voice: Voice) -> None:
    alone = say(voice, asked())
    together = say(voice, Request(id="r", session="s", messages=(), roles=("main", nano_talker.NEGATIVE)))
    assert len(alone) == len(together)
    assert float((alone == together).mean()) > 0.99


def test_rows_that_are_their_own_partner_stay_as_they_are() -> None:
    x = torch.randn(3, 192)
    assert torch.equal(guided(x, torch.arange(3), torch.ones(3)), x)
    away = guided(x, torch.tensor([1, 1, 2]), torch.tensor([2.0, 1.0, 1.0]))
    assert torch.allclose(away[0], 2 * x[0] - x[1], atol=1e-5)
    assert torch.equal(away[1:], x[1:])


def test_the_step_guides_within_a_batch() -> None:
    torch.manual_seed(0)
    step = TalkerStep(Talker(torch.randn(8, 512, 64)).eval())
    rows = [torch.randn(3, 192), torch.rand(3, 6), torch.randn(3, 64), torch.tensor([4, 4, 4])]
    ring = torch.randn(3, 4, 2, 4, 31, 48)
    with torch.no_grad():
        speaker = torch.zeros(3, dtype=torch.long)
        alone = step(*rows, ring, torch.arange(3), torch.ones(3), speaker)
        mixed = step(*rows, ring, torch.tensor([1, 1, 2]), torch.tensor([3.0, 1.0, 1.0]), speaker)
    assert not torch.equal(alone[0][0], mixed[0][0])
    assert torch.equal(alone[0][1:], mixed[0][1:])
    assert torch.allclose(alone[2], mixed[2])


@pytest.fixture(scope="module")
def alone(voice: Voice) -> dict[float, NDArray[np.int64]]:
    return {scale: say(voice, asked(guidance=scale)) for scale in (1.0, 2.0)}


async def test_through_the_engines_request_groups(alone: dict[float, NDArray[np.int64]]) -> None:
    """Guided requests and others share batches, and each says what it says alone."""
    worker = WorkerSpec(stages=("ears", "thinker", "talker", "code2wav"), max_batch=8)
    async with Engine(EngineSpec(model="nano", workers=(worker,), launcher="inline")) as engine:

        async def ask(number: int, scale: float) -> None:
            given = asked(guidance=scale)
            request = Request(
                id=str(number),
                session="s",
                messages=(),
                say=TEXT,
                dump=True,
                roles=given.roles,
                sampling=given.sampling,
            )
            async with engine.open(request) as chunks:
                codes = [chunk.frames async for chunk in chunks if isinstance(chunk, Codes)]
            assert float((np.concatenate(codes) == alone[scale]).mean()) > 0.99, scale

        await asyncio.gather(*(ask(number, scale) for number, scale in enumerate((1.0, 2.0, 1.0, 2.0))))


@pytest.mark.parametrize(
    ("roles", "scale", "message"),
    [
        (("main",), 2.0, "needs the role negative"),
        (("main", "positive"), 1.0, "does not support the role"),
        (("main", "negative"), 11.0, "from 0 to 10"),
        (("main", "negative"), float("nan"), "from 0 to 10"),
    ],
)
def test_what_cannot_be_guided_is_refused(voice: Voice, roles: tuple[str, ...], scale: float, message: str) -> None:
    asked_for = Request(id="r", session="s", messages=(), roles=roles, sampling=asked(guidance=scale).sampling)
    with pytest.raises(RequestError, match=message):
        voice.talker.open(opened(voice.talker, asked_for, Steady(5)))


def raw(asked_for: Request, kept: tuple[Chunk, ...] = ()) -> list[Chunk]:
    """All that a fresh talker gives, its states too."""
    talker = nano_talker.Talker(StageConfig(slots=4))
    main = opened(talker, asked_for, Steady(5))
    main.kept = kept
    for req in main.roles.values():
        talker.open(req)
    speller = nano_talker.Speller()
    main.pending.append(speller.feed(TEXT) + speller.flush())
    main.ended = True
    given: list[Chunk] = []
    while not main.done:
        chunks = talker.step(list(main.roles.values()))[0]
        assert isinstance(chunks, list)
        given += chunks
    return given


def test_a_guided_request_goes_on_behind_what_a_lost_replica_left() -> None:
    whole = raw(asked(guidance=2.0))
    at = next(index for index, chunk in enumerate(whole) if isinstance(chunk, Checkpoint))
    rest = [chunk.frames.tolist() for chunk in whole[at:] if isinstance(chunk, Codes)]
    again = [chunk.frames.tolist() for chunk in raw(asked(guidance=2.0), (whole[at],)) if isinstance(chunk, Codes)]
    assert rest
    assert again == rest
    assert [chunk.frames.tolist() for chunk in only(Codes, raw(asked(guidance=2.0)))][-len(rest) :] == rest
