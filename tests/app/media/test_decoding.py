"""Media is decoded in processes with limits, in fair turns; a hostile file harms only its own client."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec
import numpy as np
import psutil
import pytest

from app.media import decoder_process
from app.media.audio import MediaError
from app.media.decode_jobs import AudioJob, ImageJob, Job, Result, VideoJob, receive_result, send_job
from app.media.decoder import Decoder
from app.media.decoding import LINE, MOST_PROCESSES, Decoding
from app.media.images import image_of
from engine import CameraFeed, Overloaded
from tests.app.local_decoder import LocalDecoder
from tests.app.media.boxes import box, mp4, track
from tests.app.media.test_audio import wav
from tests.app.media.test_images import png
from tests.app.media.test_videos import video
from tests.app.rig import eventually

FEED = CameraFeed(fps=2.0, side=64, most=4)
SOUND = wav(np.arange(16_000, dtype=np.int16))


class Held(LocalDecoder):
    """A decoder whose jobs last until the test releases them. The file's bytes are the job's name."""

    begun: ClassVar[list[bytes]] = []
    go: ClassVar[dict[bytes, threading.Event]] = {}

    def run(self, job: Job, file: BinaryIO, left: threading.Event) -> Result:
        data = file.read()
        self.begun.append(data)
        assert self.go[data].wait(20)
        return Result((np.zeros(1, np.int16),))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> type[Held]:
    monkeypatch.setattr(Held, "begun", [])
    monkeypatch.setattr(Held, "go", {bytes([n]): threading.Event() for n in range(64)})
    return Held


Ask = Callable[[str, int, int], asyncio.Task[Any]]


@pytest.fixture
async def ask(held: type[Held]) -> AsyncGenerator[Ask]:
    """Request a job: its kind, its name, its client."""
    make: Any = held
    decoding = Decoding(make)
    jobs: dict[str, Job] = {"image": ImageJob("png", 1, 1), "audio": AudioJob(1.0), "video": VideoJob(1.0, FEED)}

    def asking(kind: str, name: int, client: int) -> asyncio.Task[Any]:
        return asyncio.create_task(decoding._result(jobs[kind], BytesIO(bytes([name])), client), name="asking")

    yield asking
    for event in held.go.values():
        event.set()
    await decoding.close()


def begun(held: type[Held]) -> list[int]:
    return [data[0] for data in held.begun]


async def test_a_client_has_one_job_at_a_time(ask: Ask, held: type[Held]) -> None:
    mine = [ask("image", n, 1) for n in range(3)]
    theirs = ask("image", 9, 2)
    await eventually(lambda: len(held.begun) == 2)
    await asyncio.sleep(0.05)
    assert sorted(begun(held)) == [0, 9]
    for event in held.go.values():
        event.set()
    await asyncio.gather(*mine, theirs)
    assert [name for name in begun(held) if name != 9] == [0, 1, 2]


async def test_the_client_that_was_served_least_is_next(ask: Ask, held: type[Held]) -> None:
    """One that asks all the time gets no more turns than one that asks once."""
    busy = [ask("image", n, client) for client in range(MOST_PROCESSES) for n in range(client * 5, client * 5 + 5)]
    await eventually(lambda: len(held.begun) == MOST_PROCESSES)
    late = ask("image", 60, 99)
    await asyncio.sleep(0)
    held.go[b"\0"].set()
    await eventually(lambda: len(held.begun) == MOST_PROCESSES + 1)
    assert begun(held)[-1] == 60
    for event in held.go.values():
        event.set()
    await asyncio.gather(*busy, late)


async def test_a_process_is_left_for_images(ask: Ask, held: type[Held]) -> None:
    tasks = [ask("video", n, n) for n in range(3)] + [ask("audio", n, n) for n in range(3, 6)]
    await eventually(lambda: len(held.begun) == MOST_PROCESSES - 1)
    picture = ask("image", 10, 10)
    await eventually(lambda: 10 in begun(held))
    assert len(held.begun) == MOST_PROCESSES
    for event in held.go.values():
        event.set()
    await asyncio.gather(*tasks, picture)


async def test_an_image_waits_neither_for_recordings_nor_for_more_processes(
    ask: Ask, held: type[Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.media.decoding._GROW_S", 60.0)
    recordings = [ask("audio", n, n) for n in range(2)]
    await eventually(lambda: begun(held) == [0])
    picture = ask("image", 10, 10)
    await eventually(lambda: begun(held) == [0, 10])
    for event in held.go.values():
        event.set()
    await asyncio.gather(*recordings, picture)


async def test_the_line_is_bounded(ask: Ask, held: type[Held]) -> None:
    tasks = [ask("audio", n, n) for n in range(LINE)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await ask("audio", 40, 40)
    for event in held.go.values():
        event.set()
    await asyncio.gather(*tasks)
    await ask("audio", 41, 41)


async def test_a_client_that_leaves_gives_its_turn_away(ask: Ask, held: type[Held]) -> None:
    first, second, third = (ask("image", n, 1) for n in range(3))
    await eventually(lambda: len(held.begun) == 1)
    second.cancel()
    await asyncio.wait([second])
    held.go[b"\0"].set()
    held.go[b"\2"].set()
    await asyncio.gather(first, third)
    assert begun(held) == [0, 2]


@pytest.fixture
async def decoding() -> AsyncGenerator[Decoding]:
    one = Decoding(Decoder)
    yield one
    await one.close()
    await one.close()


async def test_a_process_decodes_as_this_one_does(decoding: Decoding) -> None:
    image = image_of(png())
    np.testing.assert_array_equal(await decoding.image(image, 1), image.decode())
    assert max((await decoding.image(image, 1, side=5)).shape) == 5
    assert len(await decoding.samples(BytesIO(SOUND), 5.0, 1)) == 16_000
    seen = await decoding.video(BytesIO(video(2.0)), 5.0, FEED, 1)
    assert seen.frames.shape == (4, 43, 64, 3)
    assert seen.pcm is not None
    with pytest.raises(MediaError, match="unknown audio"):
        await decoding.samples(BytesIO(b"text"), 1.0, 1)


async def test_a_killed_process_is_one_error_and_is_replaced(decoding: Decoding) -> None:
    image = image_of(png())
    await decoding.image(image, 1)
    (before,) = decoding._decoders
    os.kill(before.pid, signal.SIGSTOP)
    asking = asyncio.create_task(decoding.image(image, 1), name="asking")
    await eventually(lambda: not decoding._idle)
    os.kill(before.pid, signal.SIGKILL)
    with pytest.raises(MediaError, match="too much time or memory"):
        await asking
    (after,) = decoding._decoders
    assert after.pid != before.pid
    np.testing.assert_array_equal(await decoding.image(image, 1), image.decode())


async def test_a_job_beyond_its_wall_time_is_killed(decoding: Decoding) -> None:
    await decoding.samples(BytesIO(SOUND), 5.0, 1)
    (decoder,) = decoding._decoders
    os.kill(decoder.pid, signal.SIGSTOP)
    with pytest.raises(MediaError, match="too much time or memory"):
        await decoding._result(AudioJob(5.0, cpu_s=0.05), BytesIO(SOUND), 1)
    assert decoder not in decoding._decoders


async def test_a_job_whose_client_left_is_killed(decoding: Decoding) -> None:
    await decoding.samples(BytesIO(SOUND), 5.0, 1)
    (decoder,) = decoding._decoders
    os.kill(decoder.pid, signal.SIGSTOP)
    asking = asyncio.create_task(decoding.samples(BytesIO(SOUND), 5.0, 1), name="asking")
    await eventually(lambda: not decoding._idle)
    asking.cancel()
    await asyncio.wait([asking])
    await eventually(lambda: decoder not in decoding._decoders)


def answered(header: bytes) -> Result:
    """Receive a message with this header and no data."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<IQ", len(header), 0) + header)
        return receive_result(ours)


@pytest.mark.parametrize(
    "header",
    [b"", b"\xc1", msgspec.msgpack.encode({"fps": "x"})]
    + [msgspec.msgpack.encode({"arrays": [one]}) for one in (("|u1", [0, -1]), ("|O", [1]), ("|u1", [1 << 31]))],
)
def test_a_message_that_is_no_result_counts_as_a_crash(header: bytes) -> None:
    with pytest.raises(EOFError):
        answered(header)


async def test_a_process_whose_result_was_not_read_is_replaced(
    decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next client would receive the rest of it."""
    await decoding.samples(BytesIO(SOUND), 5.0, 1)
    (before,) = decoding._decoders

    def fails(connection: socket.socket) -> Result:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("app.media.decoder.receive_result", fails)
        with pytest.raises(MediaError, match="too much time or memory"):
            await decoding.samples(BytesIO(SOUND), 5.0, 1)
    assert before not in decoding._decoders
    assert len(await decoding.samples(BytesIO(SOUND), 5.0, 2)) == 16_000


class Leaving(BytesIO):
    """A file that is closed while it is read, as a form's file when its client has left."""

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self.close()
        return piece


async def test_a_process_that_received_half_a_file_is_replaced(decoding: Decoding) -> None:
    await decoding.samples(BytesIO(SOUND), 5.0, 1)
    (before,) = decoding._decoders
    with pytest.raises(MediaError, match="too much time or memory"):
        await decoding.samples(Leaving(bytes(1_000_000)), 5.0, 1)
    assert before not in decoding._decoders
    assert len(await decoding.samples(BytesIO(SOUND), 5.0, 2)) == 16_000


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process's memory is read from /proc")
async def test_a_file_is_held_once(decoding: Decoding) -> None:
    """By the server until it was sent, then by the decoder process until its job is done."""
    await decoding.samples(BytesIO(SOUND), 5.0, 1)
    (decoder,) = decoding._decoders
    before_mb = peak_mb(decoder.pid)
    for _ in range(2):
        file = BytesIO(mp4(track(1), rest=box(b"free", bytes(20_000_000))))
        with pytest.raises(MediaError):
            await decoding.samples(file, 5.0, 1)
        assert file.closed
    assert peak_mb(decoder.pid) - before_mb < 30


def peak_mb(pid: int) -> float:
    """Return the most resident memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


async def test_closing_ends_a_running_job() -> None:
    decoding = Decoding(Decoder)
    await decoding.samples(BytesIO(SOUND), 5.0, 1)
    (decoder,) = decoding._decoders
    os.kill(decoder.pid, signal.SIGSTOP)
    asking = asyncio.create_task(decoding.samples(BytesIO(SOUND), 5.0, 1), name="asking")
    await eventually(lambda: not decoding._idle)
    await decoding.close()
    with pytest.raises(MediaError):
        await asking
    assert not psutil.pid_exists(decoder.pid)


async def test_closing_refuses_the_jobs_that_wait(held: type[Held]) -> None:
    make: Any = held
    decoding = Decoding(make)
    jobs: list[Job] = [ImageJob("png", 1, 1), VideoJob(1.0, FEED), VideoJob(1.0, FEED)]
    asking = [asyncio.create_task(decoding._result(job, BytesIO(bytes([n])), 1)) for n, job in enumerate(jobs)]
    await eventually(lambda: begun(held) == [0])
    closing = asyncio.create_task(decoding.close())
    await asyncio.sleep(0)
    held.go[b"\0"].set()
    await closing
    _, *refused = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(one) for one in refused] == ["the server is stopping"] * 2
    assert begun(held) == [0]


async def test_a_process_that_was_idle_for_long_ends_with_its_place(
    held: type[Held], monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Any = held
    decoding = Decoding(make)
    for event in held.go.values():
        event.set()
    job = ImageJob("png", 1, 1)
    decoding.start()
    await eventually(lambda: len(decoding._idle) == 1)
    await decoding._result(VideoJob(1.0, FEED), BytesIO(b"\0"), 1)
    await eventually(lambda: len(decoding._idle) == 2)
    assert decoding._places == 2
    monkeypatch.setattr("app.media.decoding._IDLE_S", 0.0)
    for _ in range(2):
        await decoding._result(job, BytesIO(b"\1"), 1)
    assert (len(decoding._decoders), decoding._places) == (1, 1)
    await decoding.close()


LIMITED = """
import os, sys
from app.media import decode_jobs, decoder_process
def hostile(self, data):
    {hostile}
decode_jobs.AudioJob.run = hostile
decoder_process.MEMORY_BYTES = 200_000_000
sys.argv[1:] = [str(os.getppid())]
decoder_process.main()
"""


def ended(hostile: str, cpu_s: float) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Return a decoder process whose recordings do something hostile, after it received one."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-c", LIMITED.format(hostile=hostile)]
        process = subprocess.Popen(command, stdin=theirs.fileno())
    send_job(ours, AudioJob(1.0, cpu_s=cpu_s), BytesIO())
    return process, ours


def test_the_system_ends_a_process_beyond_its_cpu_time() -> None:
    process, connection = ended("while True: pass", 0.1)
    with connection, pytest.raises(EOFError):
        receive_result(connection)
    assert process.wait(20) == -signal.SIGXCPU


@pytest.mark.skipif(sys.platform != "linux", reason="macOS ignores RLIMIT_AS")
def test_a_job_beyond_its_memory_is_an_error() -> None:
    process, connection = ended("bytes(400_000_000)", 10.0)
    with connection:
        with pytest.raises(MediaError, match="too much memory"):
            receive_result(connection)
        image = image_of(png())
        send_job(connection, ImageJob(image.kind, image.width, image.height), BytesIO(image.data))
        np.testing.assert_array_equal(receive_result(connection).arrays[0], image.decode())
    assert process.wait(20) == 0, "it ends with its socket"


PARENT = """
import io, threading, time
from app.media.containers import MediaError
from app.media.decode_jobs import AudioJob
from app.media.decoder import Decoder
decoder = Decoder()
try:
    decoder.run(AudioJob(1.0), io.BytesIO(b"text"), threading.Event())
except MediaError:
    pass
print(decoder.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends with its socket, after its job")
def test_no_process_survives_a_killed_server() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    child = psutil.Process(pid)
    os.kill(pid, signal.SIGSTOP)  # one that is too busy to notice the end of its socket
    parent.kill()
    parent.wait()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_limits_have_room_for_the_largest_image() -> None:
    assert decoder_process.MEMORY_BYTES >= 5 * 16_000_000 * 3
