"""What clients have a server hold: bounded for all, for a key and for an address; and given back afterwards."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import threading
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.limits import memory_budget as memory_module
from app.limits.memory_budget import (
    EVERY_S,
    LATER_S,
    LITTLE_BYTES,
    MUCH_BYTES,
    MemoryBudget,
    MemoryFull,
    MemoryReservation,
    malloc_trim,
)
from app.limits.principal import Principal
from app.limits.quotas import QuotaExceeded, Quotas
from app.media.images import Image
from app.realtime.conversation.utterance import Utterance
from app.settings import Limits
from tests.app.media.test_images import png
from tests.app.rig import Running, eventually, keys_file, running, script_spec, talking, tone

KEYS = {
    "alice": {"Authorization": "Bearer sk-alice-0123456789"},
    "bob": {"Authorization": "Bearer sk-bob-0123456789ab"},
}
ALICE, BOB = Principal("alice", address="192.0.2.1"), Principal("bob", address="192.0.2.2")


def url_of(width: int, height: int) -> str:
    """A picture of one colour, as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png(width, height)).decode()


def memory_of(most_mb: float = 10, several: bool = True) -> tuple[MemoryBudget, Quotas]:
    quotas = Quotas(Limits(held_mb=most_mb), lambda: several)
    return MemoryBudget(int(most_mb * 1e6), quotas), quotas


def test_no_more_is_held_than_may_be() -> None:
    memory = MemoryBudget(10)
    one, other = MemoryReservation(memory), MemoryReservation(memory)
    one.take(6)
    with pytest.raises(MemoryFull):
        other.take(5)
    other.take(4)
    one.close()
    assert (memory.held, other.held) == (4, 4)
    other.take(6)


def test_a_key_leaves_some_for_others() -> None:
    memory, quotas = memory_of()
    rooms = [MemoryReservation(memory, ALICE), MemoryReservation(memory, ALICE)]
    rooms[0].take(3_000_000)
    with pytest.raises(QuotaExceeded, match="5 MB"):
        rooms[1].take(2_000_001)
    rooms[1].take(2_000_000)
    MemoryReservation(memory, BOB).take(5_000_000)
    assert sorted(quotas.held()) == [("bytes", "alice", 5_000_000), ("bytes", "bob", 5_000_000)]
    assert list(quotas.refused()) == [("bytes", "alice", 1)]


def test_an_address_leaves_some_for_others_and_this_machine_need_not() -> None:
    for address, most in (("192.0.2.1", 7_500_000), ("127.0.0.1", 10_000_000)):
        memory, _ = memory_of(several=False)
        MemoryReservation(memory, Principal(address=address)).take(most)
        with pytest.raises((QuotaExceeded, MemoryFull)):
            MemoryReservation(memory, Principal(address=address)).take(1)


async def test_what_grows_without_asking_is_counted_and_all_of_it_is_given_back_once() -> None:
    memory, quotas = memory_of()
    room = MemoryReservation(memory, ALICE)
    room.count(20_000_000)
    with pytest.raises(MemoryFull):
        MemoryReservation(memory, BOB).take(1)
    room.count(-15_000_000)
    room.close()
    room.close()
    room.count(-5_000_000)
    assert (memory.held, list(quotas.held())) == (0, [])


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "EVERY_S", 0.01)


async def given_back(sizes: list[int]) -> tuple[int, set[str]]:
    """How often, and in which threads, memory is given back after rooms of these sizes are closed at once."""
    threads, done = list[str](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim() -> None:
        threads.append(threading.current_thread().name)
        loop.call_soon_threadsafe(done.set)

    memory = MemoryBudget(trim=trim)
    for size in sizes:
        room = MemoryReservation(memory)
        room.take(size)
        room.close()
    try:
        async with asyncio.timeout(10 if memory._timer is not None else 0.05):
            await done.wait()
    except TimeoutError:
        pass
    memory.close()
    return len(threads), set(threads)


@pytest.mark.usefixtures("often")
async def test_much_that_was_let_go_is_given_back_off_the_event_loop() -> None:
    times, threads = await given_back([MUCH_BYTES] * 10)
    assert times == 1
    assert threading.current_thread().name not in threads
    assert (await given_back([MUCH_BYTES // 10] * 10))[0] == 1


@pytest.mark.usefixtures("often")
async def test_little_is_given_back_later_and_next_to_nothing_is_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "LATER_S", 0.02)
    assert (await given_back([LITTLE_BYTES // 10] * 10))[0] == 1
    assert (await given_back([LITTLE_BYTES // 10] * 9))[0] == 0


async def test_much_does_not_wait_behind_little() -> None:
    memory = MemoryBudget(trim=lambda: None)
    when_s = list[float]()
    for size in (LITTLE_BYTES, MUCH_BYTES, LITTLE_BYTES):
        room = MemoryReservation(memory)
        room.take(size)
        room.close()
        assert memory._timer is not None
        when_s.append(memory._timer.when() - asyncio.get_running_loop().time())
    memory.close()
    assert when_s[0] > LATER_S - 10
    assert max(when_s[1:]) <= EVERY_S


async def test_nothing_is_given_back_once_the_server_stops() -> None:
    memory = MemoryBudget(trim=lambda: pytest.fail("it has stopped"))
    MemoryReservation(memory).count(0)
    room = MemoryReservation(memory)
    room.take(MUCH_BYTES)
    memory.close()
    room.close()
    assert memory._timer is None


def test_the_system_is_asked_where_it_can_be() -> None:
    trim = malloc_trim()
    assert trim is None or trim() in (0, 1)


@pytest_asyncio.fixture
async def small(tmp_path: Path) -> AsyncGenerator[Running]:
    """A server of two keys and of 4 MB: each key may have 2 of them held."""
    keys = keys_file(tmp_path, "alice: sk-alice-0123456789", "bob: sk-bob-0123456789ab")
    async with running(script_spec(keys_file=keys, limits={"held_mb": 4})) as one:
        yield one


async def test_conversations_of_one_key_leave_memory_for_another(small: Running) -> None:
    shown = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url_of(600, 600)}]}
    async with (
        talking(small, additional_headers=KEYS["alice"]) as first,
        talking(small, additional_headers=KEYS["alice"]) as second,
        talking(small, additional_headers=KEYS["bob"]) as bob,
    ):
        for client in (first, bob):
            await client.send("conversation.item.create", item=shown)
            await client.until("conversation.item.done")
        held = small.metric("parley_share_held", kind="bytes", key="alice")
        assert 600 * 600 * 3 <= held <= 1.01 * 600 * 600 * 3
        await second.send("conversation.item.create", item=shown)
        assert (await second.error())["code"] == "share_full"
        await second.alive()
        await first.socket.close()
        await eventually(lambda: small.metric("parley_share_held", kind="bytes", key="alice") < 10_000)
        await second.send("conversation.item.create", item=shown)
        await second.until("conversation.item.done")
    await eventually(lambda: small.service.memory.held == 0)


async def test_what_an_answer_alone_is_about_is_counted_while_it_is_made(small: Running) -> None:
    picture = {"type": "input_image", "image_url": url_of(600, 600)}
    shown = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "long 400"}, picture]}
    aside = {"conversation": "none", "input": [shown], "output_modalities": ["text"]}
    async with talking(small, additional_headers=KEYS["alice"]) as client:
        await client.send("response.create", response=aside)
        await client.until("response.created")
        assert small.metric("parley_share_held", kind="bytes", key="alice") >= 600 * 600 * 3
        await client.send("response.create", response=aside)
        assert (await client.error())["code"] == "share_full"
        await client.send("response.cancel", response_id=client.of("response.created")[0]["response"]["id"])
        await client.until("response.done")
        await eventually(lambda: small.metric("parley_share_held", kind="bytes", key="alice") < 10_000)


NESTED = {"type": "function", "name": "look", "parameters": {"type": "object", "x": [[]] * 4000}}


async def test_settings_of_sessions_are_counted_as_they_are_held(small: Running) -> None:
    """12 kB of text are 300 kB of memory: six sessions of one key, not two hundred."""
    async with AsyncExitStack() as opened:
        codes = list[str]()
        for _ in range(8):
            one = await opened.enter_async_context(talking(small, additional_headers=KEYS["alice"]))
            before = small.service.memory.held_of("settings")
            await one.send("session.update", session={"tools": [NESTED]})
            answer = await one.next()
            codes.append(answer["error"]["code"] if answer["type"] == "error" else "")
            grown = small.service.memory.held_of("settings") - before
            assert (grown > 4000 * 60) is (codes[-1] == "")
            await one.alive()
        assert set(codes) == {"", "share_full"}
        assert small.metric("parley_held_bytes", kind="settings") == small.service.memory.held_of("settings")
        bob = await opened.enter_async_context(talking(small, additional_headers=KEYS["bob"]))
        await bob.send("session.update", session={"tools": [NESTED]})
        await bob.until("session.updated")
        await bob.send("session.update", session={"tools": []})
        await bob.until("session.updated")
    await eventually(lambda: small.service.memory.held == 0)


async def test_client_secrets_are_counted_and_given_back(small: Running) -> None:
    async with httpx.AsyncClient(base_url=small.http, headers=KEYS["alice"]) as http:
        statuses = list[int]()
        for _ in range(60):
            body = {"session": {"prompt": {"a": [[]] * 15_000}}}
            statuses.append((await http.post("/v1/realtime/client_secrets", json=body)).status_code)
        assert set(statuses) == {200, 429}
        held = small.service.memory.held_of("secrets")
        assert 200_000 < held < 2_000_000
        assert small.metric("parley_held_bytes", kind="secrets") == held
        assert (await http.post("/v1/realtime/client_secrets/withdraw", json={})).status_code == 200
    await eventually(lambda: small.service.memory.held == 0)


async def test_a_body_of_brackets_counts_as_what_it_becomes(small: Running) -> None:
    body = {"model": "x", "messages": [], "x": [[]] * 40_000}
    async with httpx.AsyncClient(base_url=small.http, headers=KEYS["alice"]) as http:
        answer = await http.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "share_full")
    await eventually(lambda: small.service.memory.held == 0)


async def test_settings_of_one_response_are_counted_while_it_runs(small: Running) -> None:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "long 400"}]}
    aside = {"conversation": "none", "input": [said], "output_modalities": ["text"], "tools": [NESTED]}
    async with talking(small, additional_headers=KEYS["alice"]) as client:
        before = small.service.memory.held
        await client.send("response.create", response=aside)
        await client.until("response.created")
        assert small.service.memory.held - before > 4000 * 60
        await client.send("response.cancel", response_id=client.of("response.created")[0]["response"]["id"])
        await client.until("response.done")
        await eventually(lambda: small.service.memory.held - before < 10_000)


async def test_bodies_and_pictures_over_http_of_one_key_leave_memory_for_another(small: Running) -> None:
    large = [{"type": "image_url", "image_url": {"url": url_of(900, 900)}}]
    body: dict[str, Any] = {"model": "x", "messages": [{"role": "user", "content": large}]}
    spaces = b" " * 3_000_000
    async with httpx.AsyncClient(base_url=small.http) as http:
        for content in (json.dumps(body).encode(), spaces):
            headers = {**KEYS["alice"], "content-type": "application/json"}
            answer = await http.post("/v1/chat/completions", headers=headers, content=content)
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "share_full")
            assert "retry-after" in answer.headers
        body["messages"][0]["content"] = [{"type": "image_url", "image_url": {"url": url_of(600, 600)}}]
        assert (await http.post("/v1/chat/completions", headers=KEYS["alice"], json=body)).status_code == 200
    await eventually(lambda: small.service.memory.held == 0)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is gone then is not because of it: it comes late where little is made."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def shown_or_said(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """The pixels and the turns that are made of what clients send."""
    made: list[weakref.ref[Any]] = []

    def noted(one: Any) -> Any:
        made.append(weakref.ref(one))
        return one

    decode, begin = Image.decode, Utterance.__init__
    monkeypatch.setattr(Image, "decode", lambda self: noted(decode(self)))
    monkeypatch.setattr(Utterance, "__init__", lambda self, *given: begin(noted(self), *given))
    return made


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("left", ["with pictures", "in mid-speech", "in mid-answer", "after it"])
async def test_nothing_of_a_session_that_is_over_stays(
    server: Running, left: str, shown_or_said: list[weakref.ref[Any]]
) -> None:
    """Pictures are not asked about here: the workers are in this very process, and forget theirs later."""
    shown = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url_of(300, 300)}]}
    async with talking(server) as client:
        await client.configure(audio={"input": {"turn_detection": None}})
        if left == "with pictures":
            await client.send("conversation.item.create", item=shown)
            await client.send("parley.camera.frame", image_url=url_of(200, 200))
            await client.say("and so on")
            await client.until("conversation.item.done")
        else:
            await client.append(tone(1.0))
            await client.send("input_audio_buffer.commit")
            await client.until("input_audio_buffer.committed")
        if left in ("in mid-answer", "after it"):
            await client.send("response.create", response={})
            await client.until("response.created" if left == "in mid-answer" else "response.done")
        await client.append(tone(0.01))
    await server.empty()
    assert shown_or_said
    await eventually(lambda: not any(one() is not None for one in shown_or_said))
    await eventually(lambda: server.service.memory.held == 0)
