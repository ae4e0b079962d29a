"""A real call: baresip dials through kamailio, rtpengine carries its sound, and the built-in model answers it.

The three are Debian's packages; without them the test is skipped. ``deploy/telephone/kamailio.cfg`` is the
configuration that the documentation shows.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from engine import SPEAKER_RATE_HZ, load_config
from engine.resampler import resample
from tests.app.rig import Running, eventually, running, talking

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
PROGRAMS = ("kamailio", "rtpengine", "baresip")
QUESTION, ANSWER = "What is twelve plus thirty?", "42"

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


def caller_folder(folder: Path, port: int) -> str:
    """A telephone's configuration: its microphone is a file, and what it hears becomes one."""
    own = folder / "baresip"
    own.mkdir()
    (modules,) = Path("/usr/lib").glob("**/baresip/modules")
    (own / "config").write_text(BARESIP.format(modules=modules, sip=port, folder=folder), encoding="utf-8")
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


async def test_a_caller_is_answered_through_a_proxy_and_a_relay(folder: Path) -> None:
    sip, proxy, relay, caller = (free_port() for _ in range(4))
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
        dialing = ("baresip", "-f", caller_folder(folder, caller), "-e", f"/dial sip:parley@127.0.0.1:{proxy}")
        async with AsyncExitStack() as programs:
            log = await programs.enter_async_context(program(folder, *relaying))
            for command, ready in ((proxying, "Startup complete"), (dialing, "Replying to 'ping'")):
                await eventually(lambda ready=ready: ready in log.read_text(errors="replace"))
                await programs.enter_async_context(program(folder, *command))
            app: Any = server.server.config.app
            await eventually(lambda: bool(app.state.open_calls.ids))
            (id,) = app.state.open_calls.ids
            async with talking(server, f"?call_id={id}") as backend:
                answer = await backend.until("response.output_audio_transcript.done")
                assert ANSWER in answer["transcript"] or "forty two" in answer["transcript"].lower()
                await backend.until("output_audio_buffer.stopped")
        await server.empty()
    assert len(np.flatnonzero(loudness(folder) > 0.01)) > 25, "the caller heard nothing"
