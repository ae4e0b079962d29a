"""Workers from elsewhere: who may come in, how they come back, how they go, and what strangers meet at the listener."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import ConfigError, Engine, EngineSpec, Message, Request, StageUnavailable, TextPart, WorkerSpec
from engine.chunk import Audio, Text
from engine.control import join_listener
from engine.deployment.config import ClusterSpec
from engine.ipc import messages
from engine.ipc.handshake import GREETING, Visitor, read_token
from engine.ipc.links import SocketLink
from engine.ipc.protocol_version import ANOTHER
from engine.worker.process import join_client
from engine.worker.process.join_client import JoinRequest, connect
from tests.engine.control.test_fleet import answer, remote, workers
from tests.engine.fakes import until

FRONT, VOICE = ("ears", "thinker"), ("talker", "code2wav")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def spec(tmp_path: Path, voices: int = 1, port: int = 0) -> EngineSpec:
    cluster = ClusterSpec(listen=f"127.0.0.1:{port}", token_file=str(tmp_path / "token"))
    hosted = (WorkerSpec(stages=FRONT), WorkerSpec(stages=VOICE, replicas=voices))
    return EngineSpec(model="script", workers=hosted, launcher="inline", cluster=cluster, empty_s=20.0)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncGenerator[Engine]:
    async with Engine(spec(tmp_path)) as one:
        yield one


def address(engine: Engine) -> str:
    opened = engine._fleet._cluster.listener
    assert opened is not None
    return "{}:{}".format(*opened.address)


@contextmanager
def parley_worker(at: str, token: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, until the block is left."""
    command = ["worker", "--join", at, "--token-file", str(token), "--wait", "30", *options]
    process = subprocess.Popen([sys.executable, "-m", "app", *command], stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        await until(true, turns_left=100_000)


def guests(engine: Engine) -> dict[str, int]:
    return {name: number for name, number in workers(engine).items() if name.startswith("guest")}


@pytest.mark.seed("A1.1", "A1.18")
async def test_workers_join_serve_and_leave_when_they_are_done(engine: Engine, tmp_path: Path) -> None:
    with parley_worker(
        address(engine), tmp_path / "token", "--stages", "talker,code2wav", "--replicas", "2"
    ) as command:
        await eventually(lambda: len(guests(engine)) == 2)
        assert engine.stats()["talker"]["replicas"] == 3
        assert engine.stats()["thinker"]["replicas"] == 1
        texts = await asyncio.gather(
            *(answer(engine, f"say: {i} is mine", id=str(i), session=str(i)) for i in range(9))
        )
        assert texts == [f"{i} is mine" for i in range(9)]
        command.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(command.wait, 30) == 0
    assert guests(engine) == {}
    assert await answer(engine, "say: without them") == "without them"


@pytest.mark.seed("A1.6", "A1.16", "A1.21")
async def test_a_worker_that_was_cut_off_comes_back_to_its_place(engine: Engine, tmp_path: Path) -> None:
    with parley_worker(address(engine), tmp_path / "token", "--stages", "code2wav,talker"):
        await eventually(lambda: guests(engine) == {"guest0": 1})
        placement = engine._fleet.placements["guest0"]
        assert placement.worker is not None
        placement.worker.fence()
        assert guests(engine) == {}
        await eventually(lambda: guests(engine) == {"guest0": 2})


@pytest.mark.seed("A1.7", "A4.18")
@pytest.mark.slow
async def test_what_a_stopped_guest_says_when_it_wakes_up_is_not_heard(engine: Engine, tmp_path: Path) -> None:
    """Nobody here can kill it: it is fenced off in mid-answer, and what it had still to say goes nowhere."""
    with parley_worker(address(engine), tmp_path / "token", "--stages", "talker,code2wav"):
        await eventually(lambda: guests(engine) == {"guest0": 1})
        stopped = remote(engine, "guest0")
        pid = stopped.hello.result().pid
        answers = [asyncio.create_task(spoken(engine, str(i))) for i in range(4)]
        await eventually(lambda: stopped.runs > 0)
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            await stopped.gone.wait()
        os.kill(pid, signal.SIGCONT)
        assert await asyncio.gather(*answers) == [("a b c d e f g h", 8 * 6 * 960)] * 4
        await eventually(lambda: guests(engine) == {"guest0": 2})


async def spoken(engine: Engine, id: str) -> tuple[str, int]:
    """An answer of two seconds, made little ahead of who listens: its text, and how many samples it has."""
    message = Message("user", (TextPart("say: a b c d e f g h"),))
    async with engine.open(Request(id=id, session=id, messages=(message,), lead_s=0.2)) as chunks:
        got = [chunk async for chunk in chunks]
    samples = sum(len(chunk.wave) for chunk in got if isinstance(chunk, Audio))
    return "".join(chunk.text for chunk in got if isinstance(chunk, Text)), samples


class Door:
    """A listener that notes from where each visitor comes, and sends them away. Its first one is ``came``."""

    def __init__(self) -> None:
        self.came: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.came.done():
            self.came.set_result(writer.get_extra_info("peername")[0])
        writer.close()


@pytest.mark.seed("A1.18")
async def test_the_address_that_a_worker_is_given_is_the_one_it_comes_from(tmp_path: Path) -> None:
    """Without one the route says which it is. The machine's second address stands for another network."""
    (tmp_path / "token").write_text("x" * 40)
    (tmp_path / "token").chmod(0o600)
    for options, source in (([], "127.0.0.1"), (["--address", "127.0.0.2"], "127.0.0.2")):
        door = Door()
        async with await asyncio.start_server(door, "127.0.0.1", 0) as server:
            at = "{}:{}".format(*server.sockets[0].getsockname())
            with parley_worker(at, tmp_path / "token", "--stages", "talker", *options):
                async with asyncio.timeout(60):
                    assert await door.came == source


@pytest.mark.seed("A1.15")
async def test_a_second_guest_of_the_same_key_takes_the_place_of_the_first(engine: Engine, tmp_path: Path) -> None:
    """Both are alive: the first is cut off, and serves nobody beside its twin."""
    with worker_of_key("twin", address(engine), tmp_path / "token"):
        await eventually(lambda: guests(engine) == {"guest0": 1})
        first = remote(engine, "guest0")
        with worker_of_key("twin", address(engine), tmp_path / "token"):
            await eventually(lambda: guests(engine) == {"guest0": 2})
            assert first.fenced
            assert engine.stats()["talker"]["replicas"] == 2, "the server's own, and one guest"
            assert await answer(engine, "say: one of them") == "one of them"


@contextmanager
def worker_of_key(key: str, at: str, token: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker's process with the key by which the server knows it again, until the block is left."""
    options = ["--join", at, "--token-file", str(token), "--stages", "talker,code2wav", "--key", key, "--wait", "30"]
    process = subprocess.Popen([sys.executable, "-m", "engine.worker", *options], stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.seed("A1.19")
async def test_a_worker_waits_for_a_server_that_is_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knocks where nobody listens, twice at least, before the server is started."""
    port, tries, twice = free_port(), 0, asyncio.Event()
    knock_once = join_client._connect

    async def counted(*call: Any) -> SocketLink:
        nonlocal tries
        tries += 1
        if tries > 2:
            twice.set()
        return await knock_once(*call)

    monkeypatch.setattr(join_client, "_connect", counted)
    monkeypatch.setattr(join_client, "AGAIN_S", 0.0)
    (tmp_path / "token").write_text("x" * 40)
    (tmp_path / "token").chmod(0o600)
    join = messages.Join("early", VOICE, "cpu", "")
    call = JoinRequest("127.0.0.1", port, read_token(tmp_path / "token"), join, 60.0)
    task: asyncio.Future[messages.Message] = asyncio.get_running_loop().create_future()
    coming = asyncio.create_task(connect(call, task.set_result, lambda: None))
    await asyncio.wait({coming, asyncio.create_task(twice.wait())}, return_when=asyncio.FIRST_COMPLETED)
    async with Engine(spec(tmp_path, port=port)):
        link = await coming
        assert isinstance(await task, messages.Task)
        link.close()


async def test_a_worker_waits_no_longer_than_it_was_told_to(tmp_path: Path) -> None:
    call = JoinRequest("127.0.0.1", free_port(), b"x" * 40, messages.Join("late", VOICE, "cpu", ""), 0.01)
    with pytest.raises(StageUnavailable, match=r"no server .* at 127\.0\.0\.1:\d+ within 0\.01 s; start it"):
        await connect(call, lambda message: None, lambda: None)


@pytest.mark.seed("A1.19")
async def test_the_order_of_start_is_free(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "token").write_text("x" * 40)
    (tmp_path / "token").chmod(0o600)
    with parley_worker(f"127.0.0.1:{port}", tmp_path / "token", "--stages", "talker,code2wav") as command:
        async with Engine(spec(tmp_path, voices=0, port=port)) as engine:  # it waits for its voice, as the voice for it
            assert engine.ready
            assert await answer(engine, "say: all here") == "all here"
        assert await asyncio.to_thread(command.wait, 30) == 0, "the server has ended, and so did what it had"


@pytest.mark.seed("A1.3", "A1.19")
@pytest.mark.parametrize("stages", ["mouth", "ears,talker", ""])
async def test_stages_that_nobody_wants_are_refused_with_a_reason(
    stages: str, engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = asyncio.get_running_loop().create_future()
    join = messages.Join("key", tuple(filter(None, stages.split(","))), "cpu", "")
    host, port = address(engine).split(":")
    call = JoinRequest(host, int(port), read_token(tmp_path / "token"), join, 5.0)
    link = await connect(call, refused.set_result, lambda: None)
    message = await refused
    link.close()
    assert isinstance(message, messages.Refused)
    assert "there are ears, thinker; talker, code2wav" in message.message
    assert guests(engine) == {}


@contextmanager
def worker_of_another_version(at: str, token: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker's process whose Parley greets otherwise, until the block is left."""
    code = (
        "import engine.ipc.handshake as handshake\n"
        "handshake.GREETING = b'parley/00000000'\n"
        "from engine.worker.__main__ import main\n"
        "main()\n"
    )
    options = ["--join", at, "--token-file", str(token), "--stages", "talker,code2wav"]
    process = subprocess.Popen([sys.executable, "-c", code, *options], stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_worker_of_another_version_and_its_server_are_told_so_in_one_sentence_each(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with worker_of_another_version(address(engine), tmp_path / "token") as process:
        _, said = await asyncio.to_thread(process.communicate)
    assert process.returncode == 1, "it need not try again"
    (line,) = said.decode().splitlines()
    assert line.endswith(f"the server {ANOTHER}")
    (record,) = (record for record in caplog.records if "is closed" in record.message)
    assert record.message.endswith(f"it {ANOTHER}")
    assert guests(engine) == {}
    assert await answer(engine, "say: undisturbed") == "undisturbed"


async def test_a_token_made_for_this_time_is_gone_with_it(tmp_path: Path) -> None:
    async with Engine(spec(tmp_path)):
        assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "token").exists()


async def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"cluster\.listen: cannot listen"),
    ):
        await Engine(spec(tmp_path, port=taken.getsockname()[1])).__aenter__()
    assert not (tmp_path / "token").exists()


# --- strangers


async def knock(engine: Engine, data: bytes) -> bytes:
    """Say something to the listener and read until the connection is closed."""
    host, port = address(engine).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def frame(message: messages.Message) -> bytes:
    return messages.encode(message)


STRANGERS = {
    "garbage": b"\xff" * 64,
    "HTTP": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: x\r\n\r\n" + b"x" * 40,
    "much": b"\0" * 1_000_000,
    "a join without a proof": frame(messages.Join("k", VOICE, "cpu", "")) + b"\0" * 64,
}


@pytest.mark.seed("A1.2")
@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS)
async def test_strangers_are_shut_out_with_one_line(
    data: bytes, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    await knock(engine, data)
    assert len([record for record in caplog.records if "is closed" in record.message]) == 1
    assert guests(engine) == {}
    assert await answer(engine, "say: undisturbed") == "undisturbed"


async def test_who_says_nothing_is_shut_out(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_listener, "SILENCE_S", 0.05)
    assert len(await knock(engine, b"")) == len(GREETING) + 32, "the greeting, and no more"


async def test_a_crowd_of_strangers_keeps_nobody_else_out(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay: the oldest of them goes for who comes next."""
    monkeypatch.setattr(join_listener, "SILENCE_S", 600.0)
    host, port = address(engine).split(":")
    crowd = [await asyncio.open_connection(host, int(port)) for _ in range(join_listener.STRANGERS + 8)]
    opened = engine._fleet._cluster.listener
    assert opened is not None
    await eventually(lambda: len(opened._strangers) == join_listener.STRANGERS)
    with parley_worker(address(engine), tmp_path / "token", "--stages", "talker,code2wav"):
        await eventually(lambda: guests(engine) == {"guest0": 1})
    for _, writer in crowd:
        writer.close()


async def test_the_stranger_who_goes_is_one_of_the_address_that_has_most(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_listener, "STRANGERS", 4)
    host, port = address(engine).split(":")
    opened = engine._fleet._cluster.listener
    assert opened is not None
    _, alone = await asyncio.open_connection(host, int(port))
    await eventually(lambda: len(opened._strangers) == 1)
    crowd = [await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0)) for _ in range(20)]
    assert await crowd[15][0].read(), "it was greeted, and went for those after it"
    await eventually(lambda: list(opened._strangers.values()) == ["127.0.0.1", *["127.0.0.2"] * 3])
    for writer in (alone, *(writer for _, writer in crowd)):
        writer.close()


async def admitted(engine: Engine, tmp_path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has proved itself and said nothing yet."""
    host, port = address(engine).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    visitor = Visitor(read_token(tmp_path / "token"))
    writer.write(GREETING + visitor.feed(await reader.readexactly(len(GREETING) + 32))[0])
    visitor.feed(await reader.readexactly(32))
    assert visitor.done
    return reader, writer


FIRST_WORDS = {
    "no join": frame(messages.Stop()),
    "garbage": struct.pack(">I", 8) + b"\xc1" * 8,
    "not UTF-8": struct.pack(">I", 5) + b"\x81\xa1t\xa1\xff",
    "oversized": struct.pack(">I", 1 << 30),
    "a beat of nobody": frame(messages.Beat("worker0.0#1", 1, {}, {})),
}


@pytest.mark.seed("A1.2")
@pytest.mark.parametrize("data", FIRST_WORDS.values(), ids=FIRST_WORDS)
async def test_a_first_word_that_is_no_join_ends_the_connection(data: bytes, engine: Engine, tmp_path: Path) -> None:
    reader, writer = await admitted(engine, tmp_path)
    writer.write(data)
    try:
        async with asyncio.timeout(20):
            assert await reader.read() == b""
    except ConnectionError:
        pass
    writer.close()
    assert guests(engine) == {}
    assert await answer(engine, "say: undisturbed") == "undisturbed"


@pytest.mark.seed("A1.15", "A1.16")
async def test_64_who_come_at_once_get_64_names(engine: Engine, tmp_path: Path) -> None:
    names: list[str] = []
    links: list[SocketLink] = []
    host, port = address(engine).split(":")
    token = read_token(tmp_path / "token")

    def told(message: messages.Message) -> None:
        assert isinstance(message, messages.Task)
        names.append(message.id)

    async def come(i: int) -> None:
        join = messages.Join(f"key{i}", VOICE, "cpu", "")
        links.append(await connect(JoinRequest(host, int(port), token, join, 20.0), told, lambda: None))

    for eight in range(8):  # fewer at a time than may knock
        await asyncio.gather(*(come(8 * eight + i) for i in range(8)))
    await eventually(lambda: len(names) == 64)
    assert len(set(names)) == 64
    assert len({name.partition("#")[0] for name in names}) == 64, "and a place each"
    for link in links:
        link.close()
    await eventually(lambda: not [name for name in engine._fleet.placements if name.startswith("guest")])
