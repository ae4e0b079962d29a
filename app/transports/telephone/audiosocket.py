"""AudioSocket: an Asterisk brings a call over TCP, its sound as 16-bit samples at 8 kHz both ways.

Source: Asterisk's ``res_audiosocket``: a message is a kind, two bytes of length (the high one first) and the payload;
the first one is the call's UUID. The protocol has no key, so the port is for the exchange alone.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import numpy as np

from app.refusal import Closed, Refusal
from app.service import Service
from app.telemetry import audit, log, log_failure
from app.transports.disconnect import Disconnect
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
"""Kinds of sound at rates that no telephone here has: newer versions of Asterisk know them."""

START_S = 5.0
"""Seconds until the exchange says whose call it is; it does so at once."""

MOST_CALLS = 256
"""Connections at a time, those that have not said their name included: an exchange that runs wild must not take all
descriptors."""


class AudioSocketStream:
    """One call, once it has said its name."""

    lead_s = LEAD_S
    way_s = 0.02
    """A frame of the exchange's: nothing comes back by which the way could be measured."""

    made_up_s = 0.0

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._reader = reader
        self._writer = writer

    async def received(self) -> AsyncGenerator[Pcm | str]:
        while True:
            kind, payload = await read_message(self._reader)
            match kind:
                case 0x10 if len(payload) % 2 == 0:  # SOUND
                    yield np.frombuffer(payload, "<i2")
                case 0x03:  # KEY
                    yield payload[:1].decode("ascii", "replace")
                case 0x00:  # END
                    return
                case _ if kind in OTHER_RATES_HZ:
                    sound = f"the call's sound has {OTHER_RATES_HZ[kind]} Hz, and is to have {RATE_HZ}"
                    raise Disconnect(1007, sound, "goodbye")
                case 0xFF:  # ERROR
                    raise Disconnect(1011, f"the exchange reports an error ({payload[:1].hex()})")
                case _:
                    message = f"a message of kind {kind:#04x} with {len(payload)} bytes is not understood"
                    raise Disconnect(1007, message, "goodbye")

    async def send(self, pcm: Pcm) -> None:
        try:
            self._writer.write(message(SOUND, pcm.astype("<i2").tobytes()))
            await self._writer.drain()
        except ConnectionError:
            raise Disconnect(1006, "the exchange is gone") from None

    async def stop(self) -> None:
        """Let what has left be heard: there is no word for it."""

    async def close(self, disconnect: Disconnect) -> None:
        with suppress(ConnectionError):
            if not self._writer.is_closing():
                self._writer.write(message(END))
                await self._writer.drain()


@asynccontextmanager
async def listening(service: Service, telephones: Telephones) -> AsyncGenerator[None]:
    """Take calls while the block lasts, if the settings name an address; leaving it ends those that are left.

    A server that can't listen there ends.
    """
    address = service.settings.telephone.audiosocket
    if address is None:
        yield
        return
    try:
        listener = socket.create_server(address_of(address, WHERE))
    except OSError as error:
        service.engine_host.fail(ConfigError(f"{WHERE}: cannot listen on {address}: {error.strerror}"))
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
    """The connections that a listener took, each a task."""

    def __init__(self, telephones: Telephones) -> None:
        self._telephones = telephones
        self._calls = 0

    async def accept(self, listener: socket.socket, tasks: asyncio.TaskGroup) -> None:
        """Take connections for ever."""
        while True:
            try:
                connection, (address, *_) = await asyncio.get_running_loop().sock_accept(listener)
            except OSError as error:  # no descriptor is left: the next one may find one
                log("audiosocket.not_accepted", error=error.strerror)
                await asyncio.sleep(1.0)
                continue
            if self._calls >= MOST_CALLS:
                connection.close()
                continue
            self._calls += 1
            tasks.create_task(self._serve(connection, str(address)), name="audiosocket-call")

    async def _serve(self, connection: socket.socket, address: str) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            async with asyncio.timeout(START_S):
                stream = AudioSocketStream(await _name(reader), reader, writer)
            await self._telephones.serve(stream)
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
    """One message as it goes over the wire; the payload has 65,535 bytes at most."""
    return bytes([kind]) + len(payload).to_bytes(2, "big") + payload


async def read_message(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next message: its kind and payload. Raises Disconnect where the connection ends."""
    try:
        head = await reader.readexactly(3)
        return head[0], await reader.readexactly(int.from_bytes(head[1:], "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        raise Disconnect(1006, "the exchange is gone") from None


async def _name(reader: asyncio.StreamReader) -> str:
    kind, payload = await read_message(reader)
    if kind != NAME or len(payload) != 16:
        raise Disconnect(1007, "the first message is no UUID of a call")
    return str(uuid.UUID(bytes=payload))
