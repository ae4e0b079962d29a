"""A real call: baresip dials through kamailio, rtpengine carries its sound, and the built-in model answers it.

The three are Debian's packages; without them the test is skipped. ``deploy/telephone/kamailio.cfg`` is the
configuration that the documentation shows.
"""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from engine import SPEAKER_RATE_HZ, load_config
from engine.audio.resampler import resample
from tests.app.rig import Client, Running, eventually, running, talking

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
PROGRAMS = ("kamailio", "rtpengine", "baresip")
QUESTION, ANSWER = "What is twelve plus thirty?", "42"
SOUND_BITS_S = 8000
"""Bits a second over three seconds that no silent packets come to; G.711 has 64,000."""

RELAY = (
    "rtpengine", "--foreground", "--log-stderr", "--table=-1", "--interface=127.0.0.1", "--port-min=31000",
    "--port-max=31100",
)  # fmt: skip

BARESIP = """
module_path {modules}
module g711.so
module aufile.so
module sndfile.so
module uuid.so
module_app account.so
module_app contact.so
module_app menu.so
module cons.so
cons_listen 127.0.0.1:{console}
sip_listen 127.0.0.1:{sip}
audio_player aufile,/dev/null
audio_source aufile,{folder}/caller.wav
audio_alert aufile,/dev/null
net_interface 127.0.0.1
rtp_ports 30000-30100
snd_path {folder}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if missing := [one for one in PROGRAMS if shutil.which(one) is None]:
        pytest.skip(f"{', '.join(missing)} not installed: apt-get install kamailio rtpengine-daemon baresip")
    return tmp_path


def proxy_file(folder: Path, places: dict[str, str]) -> str:
    """The documented configuration at other places."""
    text = (ROOT / "deploy" / "telephone" / "kamailio.cfg").read_text(encoding="utf-8")
    for documented, ours in places.items():
        assert text.count(documented) == 1
        text = text.replace(documented, ours)
    (folder / "kamailio.cfg").write_text(text, encoding="utf-8")
    return str(folder / "kamailio.cfg")


def caller_folder(folder: Path, port: int, console: int) -> str:
    """A telephone's configuration: its microphone is a file, what it hears becomes one, and keys come by UDP."""
    own = folder / "baresip"
    own.mkdir()
    (modules,) = Path("/usr/lib").glob("**/baresip/modules")
    (own / "config").write_text(
        BARESIP.format(modules=modules, sip=port, console=console, folder=folder), encoding="utf-8"
    )
    (own / "accounts").write_text("<sip:caller@127.0.0.1>;regint=0;audio_codecs=PCMU\n", encoding="utf-8")
    (own / "contacts").touch()
    return str(own)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@asynccontextmanager
async def program(folder: Path, *command: str) -> AsyncGenerator[Path]:
    """A program while the block lasts; the path of what it writes."""
    log = folder / f"{command[0]}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    try:
        yield log
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(10):
            await process.wait()


async def speech(server: Running) -> np.ndarray:
    """The question as the model itself says it, int16 at 8 kHz."""
    async with talking(server) as client:
        await client.ask(f"Repeat after me: {QUESTION}")
        deltas = client.of("response.output_audio.delta")
    pcm = np.frombuffer(b"".join(base64.b64decode(one["delta"]) for one in deltas), "<i2")
    return resample(pcm, SPEAKER_RATE_HZ, 8000)


def loudness(folder: Path) -> np.ndarray:
    """The RMS of each 20 ms of what the caller heard."""
    (recorded,) = folder.glob("*-dec.wav")
    pcm, _ = soundfile.read(recorded)
    return np.sqrt(np.mean(pcm[: len(pcm) // 160 * 160].reshape(-1, 160) ** 2, axis=1))


@dataclass
class Call:
    """A call that is under way, and a backend that listens to it."""

    backend: Client
    folder: Path
    console: int

    def press(self, command: str) -> None:
        """Tell the caller's telephone one of its commands."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(f"/{command}\n".encode(), ("127.0.0.1", self.console))

    @property
    def log(self) -> str:
        return (self.folder / "baresip.log").read_text(errors="replace")

    async def agreed(self, times: int) -> None:
        """Wait until the telephone and the server have agreed so often on where sound goes."""
        await eventually(lambda: self.log.count("stream: update 'audio'") >= times)

    def received(self) -> int:
        """Return how many bits a second the telephone has received over its last three seconds."""
        return int(re.findall(r"audio=\d+/(\d+)", self.log)[-1])


@asynccontextmanager
async def called(folder: Path) -> AsyncGenerator[Call]:
    """The caller has dialled, and the server has answered; they ask their question a second later."""
    sip, proxy, relay, caller, console = (free_port() for _ in range(5))
    spec = load_config(ROOT / "configs" / "nano.yaml")
    section = {"host": "127.0.0.1", "port": 0, "telephone": {"sip": f"127.0.0.1:{sip}"}}
    async with running(replace(spec, server=section)) as server:
        asked = await speech(server)
        rest = np.zeros(8000, np.int16)
        soundfile.write(folder / "caller.wav", np.concatenate([rest, asked, *[rest] * 60]), 8000)
        ng = f"127.0.0.1:{relay}"
        relaying = (*RELAY, f"--listen-ng={ng}", f"--pidfile={folder}/relay.pid")
        places = {"127.0.0.1:5060": f"127.0.0.1:{proxy}", "127.0.0.1:5070": f"127.0.0.1:{sip}", "127.0.0.1:2223": ng}
        proxying = ("kamailio", "-f", proxy_file(folder, places), "-DD", "-E", "-w", str(folder), "-Y", str(folder))
        own = caller_folder(folder, caller, console)
        dialing = ("baresip", "-f", own, "-e", f"/dial sip:parley@127.0.0.1:{proxy}")
        async with AsyncExitStack() as programs:
            log = await programs.enter_async_context(program(folder, *relaying))
            for command, ready in ((proxying, "Startup complete"), (dialing, "Replying to 'ping'")):
                await eventually(lambda ready=ready: ready in log.read_text(errors="replace"))
                await programs.enter_async_context(program(folder, *command))
            app: Any = server.server.config.app
            await eventually(lambda: bool(app.state.open_calls.ids))
            (id,) = app.state.open_calls.ids
            async with talking(server, f"?call_id={id}") as backend:
                yield Call(backend, folder, console)
        await server.empty()


async def answer(backend: Client) -> str:
    """The words of the next answer, once it has been played."""
    told = await backend.until("response.output_audio_transcript.done")
    await backend.until("output_audio_buffer.stopped")
    return told["transcript"].lower()


async def test_a_caller_is_answered_through_a_proxy_and_a_relay(folder: Path) -> None:
    async with called(folder) as call:
        told = await answer(call.backend)
        assert ANSWER in told or "forty two" in told
    assert len(np.flatnonzero(loudness(folder) > 0.01)) > 25, "the caller heard nothing"


async def test_a_call_that_was_put_on_hold_goes_on(folder: Path) -> None:
    async with called(folder) as call:
        await answer(call.backend)
        call.press("hold")
        await call.agreed(2)
        await eventually(lambda: call.received() == 0)
        call.press("resume")
        await call.agreed(3)
        await call.backend.say("Repeat after me: The workshop opens at nine on Monday.")
        await call.backend.send("response.create")
        await answer(call.backend)
        await eventually(lambda: call.received() > SOUND_BITS_S)
