"""SIP over UDP for incoming calls: a trunk, proxy or exchange sends calls, and the server answers them.

Source: RFC 3261 (INVITE, ACK, BYE, CANCEL, OPTIONS as a user agent server; BYE as a client), RFC 3515 (REFER). The
server does not register and requires no password: it accepts requests only from the configured hosts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from app.refusal import Closed, Refusal
from app.service import Service
from app.telemetry import audit, log, log_failure
from app.transports.disconnect import Disconnect
from app.transports.telephone.call_control import HANG_UP
from app.transports.telephone.rtp import RtpStream
from app.transports.telephone.sdp import UNKNOWN, RtpOffer, answer_to, name_in, offer_of, own_offer
from app.transports.telephone.sip_message import VERSION, NotSip, SipMessage, response, tag_of, uri_of
from app.transports.telephone.telephones import Telephones
from engine import ConfigError
from engine.deployment.config import address_of

WHERE = "server.telephone.sip"

T1_S, T2_S = 0.5, 4.0
"""First retransmission interval, and the maximum one (RFC 3261, 17)."""

GIVE_UP_S = 64 * T1_S

LOOK_UP_S = 4.0
"""Maximum seconds for resolving the host name in an offer; the exchange repeats its INVITE meanwhile."""

REFER_S = 10.0
"""Seconds within which the other side must hang up after a transfer."""

MOST_CALLS = 256
"""Maximum number of calls, including refused ones."""

METHODS = "INVITE, ACK, BYE, CANCEL, OPTIONS, NOTIFY"


class Dialog:
    """One call, from its INVITE to its BYE."""

    def __init__(self, invite: SipMessage, address: Any, sip: Sip) -> None:
        self.invite = invite
        self.address = address
        self._sip = sip
        self.tag = secrets.token_hex(8)
        self.final: SipMessage | None = None
        """The final response to the INVITE, sent again for each repeated INVITE."""
        self.confirming: asyncio.Task[None] | None = None
        """The task that repeats this response until it is confirmed."""
        self.confirmed = asyncio.Event()
        self.ended = asyncio.Event()
        self.stream: RtpStream | None = None
        self._routes = invite.all("record-route")  # of the first INVITE: later ones can't change them
        self._described: RtpOffer | None = None  # the offer that was answered last
        self._session = int(time.time())
        self._version = 0
        self._number = 1
        self._answers: dict[int, asyncio.Future[int]] = {}

    def answer(self, status: int, reason: str, *more: tuple[str, str], body: bytes = b"") -> None:
        """Send a final response to the INVITE."""
        if self.final is None:
            self.confirming = self._sip.begin(self._until_confirmed())
        self.final = response(self.invite, status, reason, self.tag, *more, body=body)
        self._sip.send(self.final, self.address)

    def accept(self, offer: RtpOffer) -> None:
        """Accept the INVITE with the local address for audio."""
        assert self.stream is not None
        if offer != self._described:
            self._described = offer
            self._version = self._version + 1
        describe = partial(answer_to, offer) if offer.port else own_offer
        body = describe(self._sip.host, self.stream.port, self._session, self._version)
        kind = ("content-type", "application/sdp")
        self.answer(200, "OK", ("contact", self._sip.contact), ("allow", METHODS), kind, body=body)

    @property
    def accepted(self) -> bool:
        """Whether the call was accepted and the caller has not hung up."""
        return self.final is not None and self.final.status == 200 and not self.ended.is_set()

    def end(self) -> None:
        """Record that the caller has hung up. May be called twice."""
        self.ended.set()
        if self.stream is not None:
            self.stream.hang_up()

    async def _until_confirmed(self) -> None:
        """Repeat the response until its ACK arrives. A caller that never sends one is gone."""
        wait_s, waited_s = T1_S, 0.0
        while waited_s < GIVE_UP_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.confirmed.wait()
                return
            assert self.final is not None
            self._sip.send(self.final, self.address)
            waited_s, wait_s = waited_s + wait_s, min(2 * wait_s, T2_S)
        self.end()

    async def request(self, method: str, *more: tuple[str, str]) -> int:
        """Send a request in the dialog until it is answered. Returns its status, or 408 without a response."""
        self._number += 1
        number, branch = self._number, f"z9hG4bK{secrets.token_hex(8)}"
        invite = self.invite
        mine = invite.get("to")
        headers = [
            ("via", f"{VERSION}/UDP {self._sip.host}:{self._sip.port};branch={branch};rport"),
            ("max-forwards", "70"),
            *(("route", route) for route in self._routes),
            ("from", mine if tag_of(mine) else f"{mine};tag={self.tag}"),
            ("to", invite.get("from")),
            ("call-id", invite.get("call-id")),
            ("cseq", f"{number} {method}"),
            ("contact", self._sip.contact),
            *more,
        ]
        message = SipMessage(f"{method} {uri_of(invite.get('contact')) or 'sip:caller'} {VERSION}", tuple(headers))
        answered = self._answers[number] = asyncio.get_running_loop().create_future()
        wait_s, waited_s = T1_S, 0.0
        try:
            while waited_s < GIVE_UP_S / 8:
                self._sip.send(message, self.address)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        return await asyncio.shield(answered)
                waited_s, wait_s = waited_s + wait_s, 2 * wait_s
            return 408
        finally:
            del self._answers[number]

    def answered(self, message: SipMessage) -> None:
        """Handle the response to one of our requests."""
        waiting = self._answers.get(message.cseq[0])
        if waiting is not None and not waiting.done() and message.status >= 200:
            waiting.set_result(message.status)


class Sip(asyncio.DatagramProtocol):
    """The SIP listener. ``tasks`` contains the calls."""

    def __init__(self, service: Service, telephones: Telephones, tasks: asyncio.TaskGroup) -> None:
        settings = service.settings
        self._telephones = telephones
        self._tasks = tasks
        self._rtp_ports = settings.ice_ports
        self._public = settings.ice_address
        self._peers = [ipaddress.ip_network(one) for one in settings.telephone.sip_peers]
        self._dialogs: dict[str, Dialog] = {}
        self.parts = set[asyncio.Task[None]]()
        self._transport: asyncio.DatagramTransport | None = None
        self._bound = ("", 0)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._bound = transport.get_extra_info("sockname")[:2]

    @property
    def host(self) -> str:
        """The server's host as seen from outside."""
        return self._public or self._bound[0]

    @property
    def port(self) -> int:
        return self._bound[1]

    @property
    def contact(self) -> str:
        return f"<sip:parley@{self.host}:{self.port}>"

    def send(self, message: SipMessage, address: Any) -> None:
        assert self._transport is not None
        self._transport.sendto(message.encode(), address)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a part of a call, which ends with the listener."""
        task = self._tasks.create_task(work, name="sip-call")
        self.parts.add(task)
        task.add_done_callback(self.parts.discard)
        return task

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not any(ipaddress.ip_address(addr[0]) in network for network in self._peers):
            return
        try:
            message = SipMessage.of(data)
        except NotSip:
            return  # keep-alives consist of two line ends
        try:
            name = name_in(message.body)
            if name is None:
                self._take(message, addr)
            elif len(self.parts) < 2 * MOST_CALLS:
                self.begin(self._look_up(message, addr, name))
        except Exception:  # noqa: BLE001 - one datagram must not end the listener, and is logged with its place
            log_failure("sip.bug")

    async def _look_up(self, message: SipMessage, addr: Any, name: str) -> None:
        """Handle a message after resolving the host name in its SDP. If that fails, the unchanged message is
        refused.
        """
        try:
            async with asyncio.timeout(LOOK_UP_S):
                family = socket.AF_INET6 if ":" in addr[0] else socket.AF_INET
                loop = asyncio.get_running_loop()
                found = await loop.getaddrinfo(name, 0, family=family, type=socket.SOCK_DGRAM)
            body = message.body.replace(name.encode(), str(found[0][4][0]).encode())
            message = replace(message, body=body)
        except (OSError, UnicodeError, TimeoutError) as error:
            log("sip.unknown_host", error=type(error).__name__)
        try:
            self._take(message, addr)
        except Exception:  # noqa: BLE001 - as in datagram_received
            log_failure("sip.bug")

    def _take(self, message: SipMessage, addr: Any) -> None:
        dialog = self._dialogs.get(message.get("call-id"))
        match message.method:
            case "":
                if dialog is not None:
                    dialog.answered(message)
            case "INVITE":
                self._invited(message, dialog, addr)
            case "ACK":
                if dialog is not None:
                    self._confirmed(message, dialog)
            case "OPTIONS":
                self.send(response(message, 200, "OK", secrets.token_hex(8), ("allow", METHODS)), addr)
            case "BYE" | "CANCEL" | "NOTIFY" if dialog is not None:
                self.send(response(message, 200, "OK"), addr)
                if message.method != "NOTIFY":
                    self._end(dialog, message.method)
            case "BYE" | "CANCEL" | "NOTIFY":
                self.send(response(message, 481, "Call/Transaction Does Not Exist"), addr)
            case _:
                refusal = response(message, 405, "Method Not Allowed", secrets.token_hex(8), ("allow", METHODS))
                self.send(refusal, addr)

    def _end(self, dialog: Dialog, method: str) -> None:
        """End a call with BYE, or with CANCEL before it was answered."""
        if dialog.final is None:
            dialog.answer(487, "Request Terminated")
        elif method == "CANCEL":
            return
        dialog.end()

    def _invited(self, invite: SipMessage, dialog: Dialog | None, addr: Any) -> None:
        if dialog is not None and not tag_of(invite.get("to")):  # the same INVITE again
            if dialog.final is not None:
                self.send(dialog.final, addr)
        elif dialog is not None and dialog.accepted and dialog.stream is not None:
            self._changed(invite, dialog, dialog.stream, addr)
        elif tag_of(invite.get("to")):
            self.send(response(invite, 481, "Call/Transaction Does Not Exist"), addr)
        elif unsupported := ", ".join(invite.all("require")):
            more = ("unsupported", unsupported)  # the caller repeats the INVITE without them (RFC 3261, 8.2.2.3)
            self.send(response(invite, 420, "Bad Extension", secrets.token_hex(8), more), addr)
        elif len(self._dialogs) >= MOST_CALLS:
            self.send(response(invite, 503, "Service Unavailable", secrets.token_hex(8), ("retry-after", "5")), addr)
        else:
            self.send(response(invite, 100, "Trying"), addr)
            dialog = self._dialogs[invite.get("call-id")] = Dialog(invite, addr, self)
            self.begin(self._serve(dialog))

    def _changed(self, invite: SipMessage, dialog: Dialog, stream: RtpStream, addr: Any) -> None:
        """Handle a later INVITE: a session timer, a hold, or another destination. An invalid one changes nothing.

        Without an offer, the server makes one, and the ACK contains the answer.
        """
        if invite.cseq < dialog.invite.cseq:
            return  # a datagram that was delayed
        try:
            offer = offer_of(invite.body) if invite.body else replace(stream.offer, direction="sendrecv")
        except Refusal:
            self.send(response(invite, 488, "Not Acceptable Here"), addr)
            return
        if invite.body:
            stream.redirect(offer, {offer.host, addr[0]})
        dialog.invite = invite
        dialog.address = addr
        dialog.accept(offer)

    def _confirmed(self, ack: SipMessage, dialog: Dialog) -> None:
        dialog.confirmed.set()
        asked = not dialog.invite.body and ack.cseq[0] == dialog.invite.cseq[0]
        if not asked or dialog.stream is None:
            return
        try:
            offer = offer_of(ack.body)
        except Refusal:
            if dialog.stream.offer is UNKNOWN:  # there is no destination for audio
                dialog.stream.hang_up()
            return
        dialog.stream.redirect(offer, {offer.host, dialog.address[0]})

    async def _serve(self, dialog: Dialog) -> None:
        """Serve one call to its end."""
        name = dialog.invite.get("call-id")
        try:
            body = dialog.invite.body
            await self._carry(dialog, offer_of(body) if body else UNKNOWN, name)
        except Closed as closed:
            dialog.answer(503, "Service Unavailable", ("retry-after", "5"))
            audit("telephone.refused", call=name[:80], code=closed.code)
        except Refusal as refusal:
            dialog.answer(488, "Not Acceptable Here")
            audit("telephone.refused", call=name[:80], code=refusal.code)
        except OSError as error:
            dialog.answer(500, "Server Internal Error")
            log("sip.no_port", error=error.strerror)
        except Exception:  # noqa: BLE001 - a bug in one call must not end the others, and is logged with its place
            log_failure("call.bug", call=name[:80])
            if dialog.final is None:
                dialog.answer(500, "Server Internal Error")
        finally:
            if dialog.confirming is not None:
                await dialog.confirming
            del self._dialogs[name]

    async def _carry(self, dialog: Dialog, offer: RtpOffer, name: str) -> None:
        """Run the call. Raises Closed and Refusal, and OSError if no port is free."""
        stream = await self._stream(dialog, offer, name)
        dialog.stream = stream
        try:
            if not dialog.ended.is_set():
                await self._telephones.serve(stream)
        finally:
            await stream.close(Disconnect())
        if dialog.ended.is_set():
            return
        step = self._telephones.next_step(name)
        if step != HANG_UP and await dialog.request("REFER", ("refer-to", f"<{_uri(step)}>")) < 300:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFER_S):
                    await dialog.ended.wait()
        if not dialog.ended.is_set():
            await dialog.request("BYE")

    async def _stream(self, dialog: Dialog, offer: RtpOffer, name: str) -> RtpStream:
        """Return the call's RTP stream on one of the allowed ports. It answers the INVITE once the session accepts the
        call.
        """

        def began() -> None:
            if dialog.final is None:  # otherwise it was cancelled meanwhile
                dialog.accept(offer)

        loop = asyncio.get_running_loop()
        first, last = self._rtp_ports or (0, 0)
        for port in range(first, last + 1):
            stream = RtpStream(name, offer, {offer.host, dialog.address[0]}, began)
            try:
                await loop.create_datagram_endpoint(lambda: stream, (self._bound[0], port))  # noqa: B023 - awaited here
            except OSError:
                if port == last:
                    raise
                continue
            return stream
        raise AssertionError("there is at least one port")


@asynccontextmanager
async def answering(service: Service, telephones: Telephones) -> AsyncGenerator[None]:
    """Accept calls while the block lasts, if the settings name an address. Remaining calls end with the block.

    A server that can't listen at the address ends.
    """
    address = service.settings.telephone.sip
    if address is None:
        yield
        return
    async with asyncio.TaskGroup() as tasks:
        sip = Sip(service, telephones, tasks)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_datagram_endpoint(lambda: sip, address_of(address, WHERE))
        except OSError as error:
            service.engine_host.fail(ConfigError(f"{WHERE}: cannot listen on {address}: {error.strerror}"))
            yield
            return
        log("sip.listening", port=sip.port)
        try:
            yield
        finally:
            for part in list(sip.parts):
                part.cancel()
            await asyncio.gather(*sip.parts, return_exceptions=True)
            sip.close()


def _uri(number: str) -> str:
    return number if number.startswith(("sip:", "sips:", "tel:")) else f"tel:{''.join(number.split())}"
