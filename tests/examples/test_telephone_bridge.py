"""The bridge between a telephone exchange and a session, with a caller behind Twilio's Media Streams."""

from __future__ import annotations

import asyncio
import dataclasses
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import numpy as np
from websockets.asyncio.client import connect

from engine.core import Pcm
from tests.app.rig import TIMEOUT_S, LoudnessVad, Running, eventually, running, script_spec
from tests.app.transports.telephone.exchanges import StreamPhone, heard
from tests.examples.programs import environment, python


@asynccontextmanager
async def bridge(server: Running) -> AsyncGenerator[str]:
    """The bridge as a program of its own; its address."""
    command = python("telephone_bridge.py", "--port", "0", "--url", f"ws://127.0.0.1:{server.port}")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=environment())
    try:
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            yield (await process.stdout.readline()).decode().split()[-1]
    finally:
        process.terminate()
        await process.communicate()


@asynccontextmanager
async def dialled(address: str) -> AsyncGenerator[StreamPhone]:
    """A caller whose call has begun."""
    async with connect(address) as socket:
        phone = StreamPhone(socket, "CA1")
        await phone.start()
        listening = asyncio.create_task(phone.listen())
        yield phone
        await listening


def spoken(seconds: float) -> Pcm:
    """A tone, which the test's detector takes for speech, then the silence that ends a turn."""
    tone = 8000 * np.sin(2 * np.pi * 300 * np.arange(int(seconds * 8000)) / 8000)
    return np.concatenate([tone, np.zeros(8000)]).astype(np.int16)


async def test_a_caller_is_answered_and_hangs_up() -> None:
    async with (
        running(script_spec(), vad=LoudnessVad) as server,
        bridge(server) as address,
        dialled(address) as phone,
    ):
        await phone.speak(spoken(0.6))
        await eventually(lambda: len(heard(phone)) > 2400)
        assert np.abs(heard(phone)).max() > 500
        await phone.hang_up()
        await phone.ended.wait()
        await server.empty()


async def test_a_caller_who_interrupts_has_the_sound_that_waits_cleared() -> None:
    slow = dataclasses.replace(script_spec(), options={"frames_per_word": 100})  # an answer of 16 s
    async with (
        running(slow, vad=LoudnessVad) as server,
        bridge(server) as address,
        dialled(address) as phone,
    ):
        await phone.speak(spoken(0.6))
        await eventually(lambda: len(heard(phone)) > 2400)
        await phone.speak(spoken(1.2)[:9600])  # longer than a backchannel
        await eventually(lambda: phone.cleared > 0)
        await phone.hang_up()
        await phone.ended.wait()
