"""A request's roles at a stage: known to each other, complete together, released once, and none ends alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import pytest

from engine.chunk import Bundle, Chunk
from engine.ipc import messages
from engine.worker.listener import Listener
from engine.worker.loop.role_group import RoleGroup
from engine.worker.loop.run import Run
from engine.worker.pace import OneFrame
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, data_of, only, opened, request, turns, until, working, x
from tests.engine.worker.test_blocking import Held

NOTHING = frozenset[str]()
THREE = ("main", "negative", "empty")


def group(kind: str, *roles: str) -> RoleGroup:
    """A request at a stage in these roles; each has given its own name."""
    stage = FakeStage(group=kind)
    reqs = [
        StageRequest(request(roles=roles), slot, OneFrame(), role, info=stage.info) for slot, role in enumerate(roles)
    ]
    for req in reqs:
        req.given.append(x(req.role))
    return RoleGroup(stage, reqs)


@pytest.mark.seed("A0.2", "A0.3")
@pytest.mark.parametrize("kind", ["guided", "joined"])
def test_every_role_knows_the_others_and_the_main_one(kind: str) -> None:
    known = group(kind, *THREE)
    for req in known.reqs:
        assert list(req.roles) == list(THREE), "in the order of the request"
        assert req.roles[req.role] is req
        assert req.roles["main"] is known.main
        assert req.roles.get("nobody") is None
    (alone,) = group(kind, "main").reqs
    assert dict(alone.roles) == {"main": alone}
    assert list(alone.together) == [alone]


@pytest.mark.seed("A0.3", "A0.6", "A0.9")
def test_a_joined_group_is_released_once_and_not_before_its_last_role_has_ended() -> None:
    known = group("joined", *THREE)
    for req in known.reqs:
        assert not known.done
        assert known.bundle() is None
        req.done = True
    bundle = known.bundle()
    assert bundle is not None
    assert {role: [data_of(chunk) for chunk in chunks] for role, chunks in bundle.roles.items()} == {
        role: [role] for role in THREE
    }
    assert known.bundle() is None


@pytest.mark.seed("A0.3")
@pytest.mark.parametrize("kind", ["", "guided", "joined"])
def test_one_role_is_complete_by_itself_and_no_bundle(kind: str) -> None:
    alone = group(kind, "main")
    assert not alone.guided
    assert not alone.joined
    alone.main.done = True
    assert alone.done
    assert alone.bundle() is None


def sent_by(roles: Sequence[str]) -> tuple[Run, RoleGroup, list[messages.Message]]:
    """A run at one joined stage, and what it sends."""
    sent: list[messages.Message] = []
    stage = FakeStage(group="joined", emits=NOTHING)
    asked = request(roles=tuple(roles))
    run = Run("r", asked, sent.append, messages.CREDIT, Listener(), lambda: None)
    run.host(stage, [StageRequest(asked, n, OneFrame(), role, info=stage.info) for n, role in enumerate(roles)])
    return run, run.groups[0], sent


@pytest.mark.seed("A0.6", "A0.7")
def test_a_role_that_ends_again_changes_nothing_and_releases_nothing() -> None:
    run, group, sent = sent_by(THREE)
    for req in group.reqs:
        req.done = True
        run.stepped(group, req, [x(req.role)], 1.0, 2.0)
        before = len(sent), dict(req.marks)
        for _ in range(3):
            run.stepped(group, req, [], 3.0, 4.0)
        assert (len(sent), req.marks) == before, "its end is told once, at its first time"
    (bundle,) = only(Bundle, [message.chunk for message in sent if isinstance(message, messages.Emit)])
    assert {role: len(chunks) for role, chunks in bundle.roles.items()} == dict.fromkeys(THREE, 1)
    assert run.over


class GivenUp(FakeStage):
    """Its adapter of one role is cancelled by what it waits for, as a library may do it."""

    def __init__(self, role: str, kind: str) -> None:
        super().__init__("g", group=kind)
        self.role = role

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            if req.role == self.role:
                cancelled = asyncio.get_running_loop().create_future()
                cancelled.cancel()
                await cancelled
            yield chunk


@pytest.mark.seed("A0.13", "A0.15")
@pytest.mark.parametrize("kind", ["guided", "joined"])
@pytest.mark.parametrize("role", ["main", "negative"])
async def test_a_role_that_is_given_up_alone_ends_its_request_at_once(role: str, kind: str) -> None:
    """Else the others would wait for it, until the request stands still for too long."""
    async with working(GivenUp(role, kind)) as desk:
        desk.put(opened("r", "g", roles=THREE[:2]), messages.Feed("r", x(1)))
        await desk.ended("r")
        (failed,) = desk.of(messages.Failed, "r")
        assert failed.code == "stage_failed"
        assert f"g cancelled the role {role}" in failed.message
        await until(lambda: not desk.worker.runs)
        assert desk.worker.free == {"g": 16}


@pytest.mark.seed("A0.16")
@pytest.mark.parametrize("kind", ["guided", "joined"])
async def test_what_a_companion_gives_after_its_requests_end_creates_nothing(kind: str) -> None:
    """It is in a step when the request is left; the step returns, and nobody hears of it."""
    seen: list[StageRequest] = []

    def give(req: StageRequest) -> list[Chunk]:
        seen.append(req)
        req.state, req.done = {"of": req.role}, True
        return [x(req.role)]

    stage = Held(act=give, group=kind)
    async with working(stage) as desk:
        desk.put(opened("r", roles=THREE), messages.Feed("r", x(1)))
        await stage.entered()
        desk.put(messages.Close("r"))
        await until(lambda: not desk.worker.runs)
        said = len(desk.sent)
        stage.go.release()
        await until(lambda: not desk.worker.in_step)
        await turns()
        assert {type(message) for message in desk.sent[said:]} <= {messages.Blocking, messages.Trying}
        assert [req.role for req in seen] == list(THREE)
        assert all(req.state is None and not req.given and not req.marks for req in seen)
        assert desk.worker.free == {"a": 16}
