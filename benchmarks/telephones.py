"""Compare the first sound on a telephone with that over the WebSocket, and run ten calls at once (nano, over loopback).

    python -m benchmarks.telephones [--turns 20] [--calls 10]

The same question is spoken in real time over the WebSocket, Twilio's Media Streams, Asterisk's AudioSocket and SIP, in
turn. The time is from sending its last piece to the first audible sample of the answer at the caller. An underrun is a
moment in which a listener without a buffer has nothing to play; the server's own count and the lateness of the callers'
process show which side caused it. Recognition at 8 kHz may differ from 24 kHz, but only the time counts. The delay of a
format is what resampling delays the audio to the recognizer (in) and from the voice (out); packets of 20 ms come on
top.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from app.bench.client import open_client
from app.bench.figures import Figure, percentile, show
from app.bench.sessions import hear_out, speech
from app.bench.subject import Subject, running
from app.bench.target import BenchError, Target
from app.client.player import Player
from app.media import g711
from app.realtime.protocol import MicrophoneDecoder, OutputEncoder
from app.realtime.protocol.audio_formats import samples_of
from app.realtime.protocol.options import PcmaFormat, PcmuFormat
from benchmarks.media import holds
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.aio import event_loop
from engine.audio.resampler import resample
from engine.core import Pcm
from tests.app.rig import keys_file
from tests.app.transports.telephone.exchanges import TOKEN, URL, Reached, Telephone, asterisk, frames, sip, twilio

Dial = Callable[[Reached], AbstractAsyncContextManager[Telephone]]
DIALS: dict[str, Dial] = {"Twilio": twilio, "AudioSocket": asterisk, "SIP": sip}
FRAME_S = 0.020
PATIENCE_S = 20.0
BEYOND_MS = 60.0
"""Maximum milliseconds in addition to the WebSocket's time."""


class Turn:
    """One spoken turn of a telephone as its caller hears it."""

    def __init__(self, phone: Telephone) -> None:
        self._phone = phone
        self.player = Player()
        self.spoke_s = 0.0
        self._seen = len(phone.sound)
        self._due_s = 0.0
        self.late_s = 0.0

    async def ask(self, pcm: Pcm) -> None:
        """Speak int16 at 8 kHz in real time, and stay silent until the answer has been heard."""
        self._due_s = time.monotonic()
        await self._talk(frames(pcm))
        self.spoke_s = time.monotonic()
        quiet = [np.zeros(160, np.int16)] * 5
        while not self._over:
            await self._talk(quiet)
            self._listen()
            if time.monotonic() - self.spoke_s > PATIENCE_S:
                raise BenchError("an answer did not arrive or did not end")

    @property
    def ttfa_ms(self) -> float:
        if self.player.audible_s is None:
            raise BenchError("an answer had no sound")
        return (self.player.audible_s - self.spoke_s) * 1000

    @property
    def _over(self) -> bool:
        heard = self.player.audible_s is not None
        return heard and time.monotonic() > self.player.ends_s + 0.5

    async def _talk(self, pieces: list[Pcm]) -> None:
        """Send each piece when it is due, like the client's microphone over the WebSocket."""
        for one in pieces:
            await asyncio.sleep(max(0.0, self._due_s - time.monotonic()))
            self.late_s = max(self.late_s, time.monotonic() - self._due_s)
            await self._phone.speak(one)
            self._due_s += FRAME_S

    def _listen(self) -> None:
        for at_s, pcm in self._phone.sound[self._seen :]:
            if at_s >= self.spoke_s:
                self.player.receive(at_s, (np.repeat(pcm, 3) / 32768).astype(np.float32))
        self._seen = len(self._phone.sound)


async def over_sockets(target: Target, turns: int) -> tuple[list[float], Pcm]:
    """Return the first-sound times over the WebSocket in ms, and the question as int16 at 24 kHz."""
    async with open_client(target) as client:
        asked = await speech(target, client)
        found = [await hear_out(client, asked) for _ in range(turns)]
    if any(turn.ttfa_s is None for turn in found):
        raise BenchError("an answer over the WebSocket did not arrive")
    return [turn.ttfa_s * 1000 for turn in found if turn.ttfa_s is not None], asked


async def over_telephone(dial: Dial, ports: Reached, pcm: Pcm, turns: int) -> list[Turn]:
    async with dial(ports) as phone:
        found: list[Turn] = []
        for _ in range(turns):
            found.append(Turn(phone))
            await found[-1].ask(pcm)
        await phone.hang_up()
    return found


async def measure(server: Subject, ports: Reached, turns: int, calls: int) -> list[Figure]:
    target, figures = Target(server.url), list[Figure]()
    base, asked = await over_sockets(target, turns)
    middle = percentile(base, 50) or 0.0
    figures.append(Figure(name="WebSocket: last word → first sound, p50", value=middle, unit="ms"))
    pcm = resample(asked, SPEAKER_RATE_HZ, 8000)
    for name, dial in DIALS.items():
        found = await over_telephone(dial, ports, pcm, turns)
        beyond = (percentile([turn.ttfa_ms for turn in found], 50) or 0.0) - middle
        figures.append(Figure(name=f"{name}: beyond it, p50", value=beyond, unit="ms", bar=BEYOND_MS))
    for name, dial in DIALS.items():
        before = await asyncio.to_thread(holds, server)
        each = await asyncio.gather(*(over_telephone(dial, ports, pcm, 2) for _ in range(calls)))
        told = (await asyncio.to_thread(holds, server)).underruns - before.underruns
        figures.append(underruns(f"{calls} calls at once by {name}", [turn for found in each for turn in found], told))
    return figures


def underruns(name: str, turns: list[Turn], told: float) -> Figure:
    """Return the callers' underruns, with the server's count and the callers' own lateness in the note.

    Callers and server share the machine.
    """
    dry = sum(turn.player.underruns for turn in turns)
    longest_ms = 1000 * max(turn.player.longest_dry_s for turn in turns)
    late_ms = 1000 * max(turn.late_s for turn in turns)
    note = f"{longest_ms:.0f} ms at most; {told:.0f} by the server's count; the callers came {late_ms:.0f} ms late"
    return Figure(name=f"{name}: underruns", value=float(dry), unit="", bar=0, note=note)


def g711_delays() -> list[Figure]:
    """Return the delay that a telephone's format adds in each direction, for PCMU and PCMA."""
    sound = np.random.default_rng(0).normal(0, 3000, 8000)
    low = np.convolve(sound, np.sinc(np.arange(-32, 33) / 2) * np.hanning(65) / 2, "same").astype(np.int16)
    figures = list[Figure]()
    for name, format in (("PCMU", PcmuFormat()), ("PCMA", PcmaFormat())):
        encode = {"PCMU": g711.encode_ulaw, "PCMA": g711.encode_alaw}[name]
        decoder, encoder = MicrophoneDecoder(format), OutputEncoder(format)
        wide = resample(low, g711.RATE_HZ, SPEAKER_RATE_HZ)
        heard = np.concatenate([decoder.push(encode(piece)) for piece in frames(low)])
        told = b"".join(encoder.push_pcm(piece) for piece in np.split(wide, len(wide) // 480))
        spoken = samples_of(told, format)
        ways = (
            ("in", resample(low, g711.RATE_HZ, MIC_RATE_HZ), heard, MIC_RATE_HZ),
            ("out", low, spoken, g711.RATE_HZ),
        )
        for way, whole, streamed, rate_hz in ways:
            held_ms = (len(whole) - len(streamed)) / rate_hz * 1000
            delay_ms = held_ms + shift(whole, streamed) / rate_hz * 1000
            figures.append(Figure(name=f"{name}, {way}: delay of the format", value=delay_ms, unit="ms"))
    return figures


def shift(whole: Pcm, streamed: Pcm) -> int:
    """Return the delay of the second signal in samples."""
    count = len(streamed)
    spectra = [np.fft.rfft(one[:count].astype(np.float64), 2 * count) for one in (streamed, whole)]
    found = np.fft.irfft(spectra[0] * spectra[1].conj())
    at = int(found.argmax())
    return at if at < count else at - 2 * count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--calls", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        free = [_free_port(kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
        token = keys_file(Path(folder), TOKEN, name="token")
        telephone: dict[str, Any] = {
            "twilio_url": URL,
            "twilio_token_file": token,
            "audiosocket": f"127.0.0.1:{free[0]}",
            "sip": f"127.0.0.1:{free[1]}",
        }
        with running(None, changes={f"server.telephone.{name}": value for name, value in telephone.items()}) as server:
            ports = Reached(int(server.url.rpartition(":")[2]), *free, limit_s=600.0)
            figures = g711_delays() + event_loop.run(measure(server, ports, args.turns, args.calls))
    show(figures, Console(emoji=False))
    return int(not all(figure.passed for figure in figures))


def _free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
