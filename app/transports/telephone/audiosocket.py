"""AudioSocket: Asterisk connects a call over TCP, with 16-bit audio at 8 kHz in both directions.

Source: Asterisk's ``res_audiosocket``: a message consists of a kind, a two-byte big-endian length and the payload. The
first one is the call's UUID. The protocol has no authentication, so only the exchange may reach the port.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import numpy as np

from app.limits.fair_scheduler import LoopTimeBudget
from app.limits.rate_limiter import MESSAGE_BYTES
from app.refusal import Closed, Refusal
from app.service import Service
from app.telemetry import audit, log, log_failure
from app.transports.disconnect import TOO_MUCH, Disconnect
from app.transports.telephone.media_stream import LEAD_S, RATE_HZ
from app.transports.telephone.telephones import Telephones
from engine import ConfigError
from engine.core import Pcm
from engine.deployment.config import address_of

WHERE = "server.telephone.audiosocket"

END, NAME, KEY, SOUND, ERROR = 0x00, 0x01, 0x03, 0x10, 0xFF
"""Kinds of messages."""

OTHER_RATES_HZ = {
    0x11: 12_000,
    0x12: 16_000,
    0x13: 24_000,
    0x14: 32_000,
    0x15: 44_100,
    0x16: 48_000,
    0x17: 96_000,
    0x18: 192_000,
}
"""Kinds of audio at unsupported sample rates, which newer versions of Asterisk use."""

START_S = 5.0
"""Seconds until the exchange must send the call's UUID; it does so at once."""

MOST_CALLS = 256
"""Maximum number of connections, including those without a UUID yet, so that a faulty exchange can't use up all
descriptors.
"""


class AudioSocketStream:
    """One call with a known UUID."""

    lead_s = LEAD_S
    way_s = 0.02
    """One frame of the exchange: the delay can't be measured, since nothing comes back."""

    made_up_s = None

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loop_time: LoopTimeBudget
    ) -> None:
        self.name = name
        self.loop_time = loop_time
        self._reader = reader
        self._writer = writer

    async def received(self) -> AsyncGenerator[Pcm | str]:
        while True:
            kind, payload = await read_message(self._reader)
            await self._keep_pace(len(payload))
            match kind:
                case 0x10 if len(payload) % 2 == 0:  # SOUND
                    yield np.frombuffer(payload, "<i2")
                case 0x03:  # KEY
                    yield payload[:1].decode("ascii", "replace")
                case 0x00:  # END
                    return
                case _ if kind in OTHER_RATES_HZ:
                    sound = f"the call's audio must be at {RATE_HZ} Hz (got {OTHER_RATES_HZ[kind]} Hz)"
                    raise Disconnect(1007, sound, "goodbye")
                case 0xFF:  # ERROR
                    raise Disconnect(1011, f"the exchange reports an error ({payload[:1].hex()})")
                case _:
                    message = f"invalid message of kind {kind:#04x} with {len(payload)} bytes"
                    raise Disconnect(1007, message, "goodbye")

    async def send(self, pcm: Pcm) -> None:
        try:
            self._writer.write(message(SOUND, pcm.astype("<i2").tobytes()))
            await self._writer.drain()
        except ConnectionError:
            raise Disconnect(1006, "the exchange is gone") from None

    async def stop(self) -> None:
        """Do nothing: the protocol can't discard audio."""

    async def _keep_pace(self, size: int) -> None:
        """Charge a message, and wait until the exchange may send another one. Raises Disconnect."""
        pace, now_s = self.loop_time.pace, self.loop_time.now()
        if pace is None:
            return
        pace.spend(1, size + MESSAGE_BYTES, now_s)
        if pace.goes_on(now_s):
            raise Disconnect(TOO_MUCH, "the exchange has exceeded its message rate for a minute", "goodbye")
        if wait_s := pace.wait_s(now_s):
            await asyncio.sleep(wait_s)

    async def close(self, disconnect: Disconnect) -> None:
        with suppress(ConnectionError):
            if not self._writer.is_closing():
                self._writer.write(message(END))
                await self._writer.drain()


@asynccontextmanager
async def listening(service: Service, telephones: Telephones) -> AsyncGenerator[None]:
    """Accept calls while the block lasts, if the settings name an address. Remaining calls end with the block.

    A server that can't listen at the address ends.
    """
    address = service.settings.telephone.audiosocket
    if address is None:
        yield
        return
    try:
        listener = socket.create_server(address_of(address, WHERE))
    except OSError as error:
        service.hosts.fail(ConfigError(f"{WHERE}: cannot listen on {address}: {error.strerror}"))
        yield
        return
    listener.setblocking(False)
    log("audiosocket.listening", port=listener.getsockname()[1])
    with listener:
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(AudioSockets(telephones).accept(listener, tasks), name="audiosocket")
            try:
                yield
            finally:
                accepting.cancel()


class AudioSockets:
    """The accepted connections, each in a task."""

    def __init__(self, telephones: Telephones) -> None:
        self._telephones = telephones
        self._calls = 0

    async def accept(self, listener: socket.socket, tasks: asyncio.TaskGroup) -> None:
        """Accept calls until cancelled. A task of ``tasks`` serves each call."""
        while True:
            try:
                connection, (address, *_) = await asyncio.get_running_loop().sock_accept(listener)
            except OSError as error:  # no descriptor is left; one may become free later
                log("audiosocket.not_accepted", error=error.strerror)
                await asyncio.sleep(1.0)
                continue
            if self._calls >= MOST_CALLS:
                connection.close()
                continue
            self._calls += 1
            tasks.create_task(self._serve(connection, str(address)), name="audiosocket-call")

    async def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
        except OSError:  # the exchange has already left
            self._calls -= 1
            connection.close()
            return
        try:
            async with self._telephones.unconfirmed.confirming(address, START_S):
                name = await _name(reader)
            await self._telephones.serve(AudioSocketStream(name, reader, writer, self._telephones.budget(address)))
        except TimeoutError:
            audit("telephone.refused", client=address, code="no_name")
        except Disconnect as disconnect:
            audit("telephone.refused", client=address, code=disconnect.code, reason=disconnect.reason)
        except (Closed, Refusal) as refused:
            audit("telephone.refused", client=address, code=refused.code)
            writer.write(message(END))
        except Exception:  # noqa: BLE001 - a bug in one call must not end the others, and is logged with its place
            log_failure("call.bug", address=address)
        finally:
            self._calls -= 1
            writer.close()
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await writer.wait_closed()
            writer.transport.abort()


def message(kind: int, payload: bytes = b"") -> bytes:
    """Encode a message; the payload has at most 65,535 bytes."""
    return bytes([kind]) + len(payload).to_bytes(2, "big") + payload


async def read_message(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the kind and payload of the next message. Raises Disconnect if the connection ends."""
    try:
        head = await reader.readexactly(3)
        return head[0], await reader.readexactly(int.from_bytes(head[1:], "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        raise Disconnect(1006, "the exchange is gone") from None


async def _name(reader: asyncio.StreamReader) -> str:
    kind, payload = await read_message(reader)
    if kind != NAME or len(payload) != 16:
        raise Disconnect(1007, "the first message is not a call's UUID")
    return str(uuid.UUID(bytes=payload))
