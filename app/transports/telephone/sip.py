"""SIP over UDP for incoming calls: a trunk, proxy or exchange sends calls, and the server answers them.

Source: RFC 3261 (INVITE, ACK, BYE, CANCEL, OPTIONS as a user agent server; BYE as a client), RFC 3515 (REFER). The
server does not register. It accepts requests only from the configured hosts, and calls only with the configured
password, if any. A call has no session and no audio until its caller has confirmed the server's answer.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from app.client_address import within
from app.limits.fair_scheduler import LoopTimeBudget
from app.limits.lru_table import LruTable
from app.refusal import Closed, Refusal
from app.service import Service
from app.telemetry import audit, log, log_failure
from app.transports.datagram_intake import DatagramIntake
from app.transports.disconnect import Disconnect
from app.transports.telephone.call_control import HANG_UP
from app.transports.telephone.rtp import RtpStream
from app.transports.telephone.sdp import UNKNOWN, RtpOffer, name_in, offer_of
from app.transports.telephone.sip_dialog import CONFIRM_S, METHODS, Dialog, DialogId, dialog_id
from app.transports.telephone.sip_digest import Digest
from app.transports.telephone.sip_message import NotSip, SipMessage, response, tag_of
from app.transports.telephone.telephones import Telephones
from engine import ConfigError
from engine.deployment.config import address_of

WHERE = "server.telephone.sip"

LOOK_UP_S = 4.0
"""Maximum seconds for resolving the host name in an offer."""

REFER_S = 10.0
"""Seconds within which the other side must hang up after a transfer."""

MOST_CALLS = 256
"""Maximum number of calls, including unconfirmed and ending ones."""

MOST_SENDERS = 1024
"""Maximum number of addresses whose rate is remembered."""

RETRY = ("retry-after", "5")


class Sip(asyncio.DatagramProtocol):
    """The SIP listener. ``tasks`` contains the calls. Raises ConfigError if the password can't be read."""

    def __init__(self, service: Service, telephones: Telephones, tasks: asyncio.TaskGroup) -> None:
        settings = service.settings
        self._telephones = telephones
        self._tasks = tasks
        self._rtp_ports = settings.ice_ports
        self._public = settings.ice_address
        self._is_peer = within(settings.telephone.sip_peers)
        self._digest = Digest.of(settings.telephone)
        self._throttle = service.throttle
        self._dialogs: dict[DialogId, Dialog] = {}
        self._senders = LruTable[str, DatagramIntake](MOST_SENDERS)
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

    def send(self, message: SipMessage, address: Any) -> None:
        assert self._transport is not None
        self._transport.sendto(message.encode(), address)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a part of a call, which ends with the listener."""
        task = self._tasks.create_task(_logged(work), name="sip-call")
        self.parts.add(task)
        task.add_done_callback(self.parts.discard)

    @property
    def _may_look_up(self) -> bool:
        """Whether another part of a call may begin. A look-up of a host name lasts up to LOOK_UP_S."""
        return len(self.parts) < 2 * MOST_CALLS

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self._transport is not None:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        sender = self._senders.get(addr[0])
        if sender is None:
            if not self._is_peer(addr[0]):
                return
            sender = self._senders[addr[0]] = DatagramIntake(self._read, self._telephones.budget(addr[0]))
        sender.put(data, addr)

    def _read(self, data: bytes, addr: Any) -> None:
        try:
            message = SipMessage.of(data)
        except NotSip:
            return  # keep-alives consist of two line ends
        try:
            self._take(message, addr)
        except Exception:  # noqa: BLE001 - one datagram must not end the listener, and is logged with its place
            log_failure("sip.bug")

    def _take(self, message: SipMessage, addr: Any) -> None:
        begun = self._dialogs.get(dialog_id(message, addr))
        dialog = begun if begun is not None and begun.is_within(message) else None
        match message.method:
            case "":
                if dialog is not None:
                    dialog.answered(message)
            case "INVITE" if dialog is not None:
                if self._may_look_up:
                    self.begin(self._changed(message, dialog, addr))
            case "INVITE" if tag_of(message.get("to")):
                self._refuse_unknown(message, addr)
            case "INVITE" if begun is not None:
                self._repeated(message, begun, addr)
            case "INVITE":
                self._invited(message, addr)
            case "ACK":
                if dialog is not None:
                    self._confirmed(message, dialog)
            case "BYE" | "NOTIFY" if dialog is not None:
                self.send(response(message, 200, "OK"), addr)
                if message.method == "BYE":
                    dialog.end()
            case "CANCEL" if begun is not None and begun.repeats(message):
                self.send(response(message, 200, "OK", begun.tag), addr)
                self._cancel(begun)
            case "BYE" | "CANCEL" | "NOTIFY":
                self._refuse_unknown(message, addr)
            case "OPTIONS":
                self._respond(message, addr, 200, "OK", ("allow", METHODS))
            case _:
                self._respond(message, addr, 405, "Method Not Allowed", ("allow", METHODS))

    def _respond(self, message: SipMessage, addr: Any, status: int, reason: str, *more: tuple[str, str]) -> None:
        """Send a response without remembering the request."""
        self.send(response(message, status, reason, secrets.token_hex(8), *more), addr)

    def _refuse_unknown(self, message: SipMessage, addr: Any) -> None:
        self.send(response(message, 481, "Call/Transaction Does Not Exist"), addr)

    def _repeated(self, invite: SipMessage, dialog: Dialog, addr: Any) -> None:
        """Answer an INVITE that was sent again, or that reached the server on a second path (RFC 3261, 8.2.2.2)."""
        if not dialog.repeats(invite):
            self._respond(invite, addr, 482, "Loop Detected")
        elif dialog.final is not None:
            self.send(dialog.final, addr)

    def _cancel(self, dialog: Dialog) -> None:
        """End a call that was not answered yet."""
        if dialog.final is None:
            dialog.answer(487, "Request Terminated")
            dialog.end()

    def _invited(self, invite: SipMessage, addr: Any) -> None:
        """Begin a call. A refusal keeps nothing: the caller repeats its INVITE if the response is lost."""
        if unsupported := ", ".join(invite.all("require")):
            more = ("unsupported", unsupported)  # the caller repeats the INVITE without them (RFC 3261, 8.2.2.3)
            self._respond(invite, addr, 420, "Bad Extension", more)
        elif len(self._dialogs) >= MOST_CALLS:
            self._respond(invite, addr, 503, "Service Unavailable", RETRY)
        elif self._is_authorized(invite, addr):
            try:
                self._telephones.check_room()
                offer = offer_of(_with_host(invite.body, addr[0])) if invite.body else UNKNOWN
            except Closed as closed:
                self._respond(invite, addr, 503, "Service Unavailable", RETRY)
                audit("telephone.refused", client=addr[0], code=closed.code)
            except Refusal as refusal:
                self._respond(invite, addr, 488, "Not Acceptable Here")
                audit("telephone.refused", client=addr[0], code=refusal.code)
            else:
                dialog = Dialog(invite, addr, self)
                self._dialogs[dialog.id] = dialog
                self.begin(self._serve(dialog, offer))

    def _is_authorized(self, invite: SipMessage, addr: Any) -> bool:
        """Return whether the caller knows the password, if there is one; otherwise refuse the INVITE."""
        if self._digest is None:
            return True
        host = addr[0]
        verdict = self._digest.verdict(invite.method, invite.all("authorization"), host)
        if verdict == "wrong":
            audit("telephone.refused", client=host, code="wrong_password")
            self._throttle.failed(host)
        if self._throttle.wait_s(host) > 0:
            self._respond(invite, addr, 403, "Forbidden")
            return False
        if verdict != "right":
            self._respond(invite, addr, 401, "Unauthorized", *self._digest.challenges(host, verdict == "stale"))
        return verdict == "right"

    async def _changed(self, invite: SipMessage, dialog: Dialog, addr: Any) -> None:
        """Handle a later INVITE: a session timer, a hold, or another destination. An invalid one changes nothing.

        Without an offer, the server makes one, and the ACK contains the answer.
        """
        stream = dialog.stream
        if stream is None or not dialog.may_change(invite):
            return  # a datagram that was delayed
        try:
            body = await self._resolved(invite.body, addr[0])
            offer = offer_of(body) if body else replace(stream.offer, direction="sendrecv")
        except Refusal:
            self.send(response(invite, 488, "Not Acceptable Here"), addr)
            return
        if not dialog.may_change(invite):
            return  # a later one came while the host was looked up
        if body:
            stream.redirect(offer, {offer.host, addr[0]})
        dialog.invite = invite
        dialog.address = addr
        dialog.accept(offer)

    def _confirmed(self, ack: SipMessage, dialog: Dialog) -> None:
        asked = not dialog.invite.body and ack.cseq[0] == dialog.invite.cseq[0]
        if asked and dialog.stream is not None and self._may_look_up:
            self.begin(self._answered(ack.body, dialog, dialog.stream))
        dialog.confirmed.set()

    async def _answered(self, body: bytes, dialog: Dialog, stream: RtpStream) -> None:
        """Use the caller's answer to the server's offer. An INVITE without an offer has it in its ACK."""
        try:
            await self._follow(body, dialog, stream)
        except Refusal:
            if stream.offer is UNKNOWN:  # there is no destination for audio
                stream.hang_up()

    async def _follow(self, body: bytes, dialog: Dialog, stream: RtpStream) -> None:
        """Send audio to the place in an SDP, unless a later INVITE has named another one meanwhile. Raises Refusal."""
        invite = dialog.invite
        offer = offer_of(await self._resolved(body, dialog.address[0]))
        if dialog.invite is invite:
            stream.redirect(offer, {offer.host, dialog.address[0]})

    async def _resolved(self, body: bytes, host: str) -> bytes:
        """Return an SDP body with the address of the host name in it, if it has one. If that fails, it is unchanged,
        and refused later.

        Only confirmed calls make the server look up a name.
        """
        name = name_in(body)
        if name is None:
            return body
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            async with asyncio.timeout(LOOK_UP_S):
                loop = asyncio.get_running_loop()
                found = await loop.getaddrinfo(name, 0, family=family, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError, TimeoutError) as error:
            log("sip.unknown_host", error=type(error).__name__)
            return body
        return _with_host(body, str(found[0][4][0]))

    async def _serve(self, dialog: Dialog, offer: RtpOffer) -> None:
        """Serve one call to its end."""
        try:
            await self._carry(dialog, offer)
        except Exception as error:  # noqa: BLE001 - a bug in one call must not end the others, and is logged with its place
            if isinstance(error, OSError) and dialog.final is None:
                log("sip.no_port", error=error.strerror)
            else:
                log_failure("call.bug", call=dialog.name[:80])
            await self._give_up(dialog)
        finally:
            del self._dialogs[dialog.id]

    async def _give_up(self, dialog: Dialog) -> None:
        """End a call that failed: refuse it, or hang up if it was accepted."""
        if dialog.final is None:
            dialog.answer(500, "Server Internal Error")
        elif dialog.accepted:
            await dialog.request("BYE")

    async def _carry(self, dialog: Dialog, offer: RtpOffer) -> None:
        """Run the call. Raises OSError if no port is free."""
        loop_time = self._telephones.budget(dialog.address[0])
        stream = await self._stream(dialog, offer, loop_time)
        dialog.stream = stream
        try:
            if dialog.ended.is_set() or not await self._accept(dialog, offer):
                return
            await self._talk(dialog, stream)
        finally:
            await stream.close(Disconnect())
        if not dialog.ended.is_set():
            await self._hand_back(dialog)

    async def _accept(self, dialog: Dialog, offer: RtpOffer) -> bool:
        """Accept the call, wait for its caller's ACK, and return whether the call still runs.

        False if the ACK does not arrive within CONFIRM_S or if the call has ended meanwhile.
        """
        host = dialog.address[0]
        try:
            async with self._telephones.unconfirmed.confirming(host, CONFIRM_S):
                dialog.accept(offer)
                await dialog.confirmation()
        except TimeoutError:
            audit("telephone.refused", client=host, code="unconfirmed")
            return False
        return not dialog.ended.is_set()

    async def _talk(self, dialog: Dialog, stream: RtpStream) -> None:
        """Run the session of a confirmed call."""
        body = dialog.invite.body
        try:
            if name_in(body) is not None:
                await self._follow(body, dialog, stream)
            await self._telephones.serve(stream)
        except (Closed, Refusal) as refused:
            audit("telephone.refused", client=dialog.address[0], code=refused.code)

    async def _hand_back(self, dialog: Dialog) -> None:
        """End a call at the caller: transfer it if the model did, and hang up otherwise."""
        step = self._telephones.next_step(dialog.name)
        if step != HANG_UP and await dialog.request("REFER", ("refer-to", f"<{_uri(step)}>")) < 300:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFER_S):
                    await dialog.ended.wait()
        if not dialog.ended.is_set():
            await dialog.request("BYE")

    async def _stream(self, dialog: Dialog, offer: RtpOffer, loop_time: LoopTimeBudget) -> RtpStream:
        """Return the call's RTP stream on one of the allowed ports. Raises OSError if none is free."""
        loop = asyncio.get_running_loop()
        first, last = self._rtp_ports or (0, 0)
        for port in range(first, last + 1):
            stream = RtpStream(dialog.name, offer, {offer.host, dialog.address[0]}, loop_time, self._is_peer)
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
        loop = asyncio.get_running_loop()
        try:
            sip = Sip(service, telephones, tasks)
            await loop.create_datagram_endpoint(lambda: sip, address_of(address, WHERE))
        except ConfigError as error:
            service.hosts.fail(error)
            yield
            return
        except OSError as error:
            service.hosts.fail(ConfigError(f"{WHERE}: cannot listen on {address}: {error.strerror}"))
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


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    """Run a part of a call. A bug in it is logged with its place, and ends neither the listener nor other calls."""
    try:
        await work
    except Exception:  # noqa: BLE001 - see above
        log_failure("sip.bug")


def _with_host(body: bytes, host: str) -> bytes:
    """Return an SDP body with ``host`` in place of the host name, if it has one."""
    name = name_in(body)
    return body if name is None else body.replace(name.encode(), host.encode())


def _uri(number: str) -> str:
    return number if number.startswith(("sip:", "sips:", "tel:")) else f"tel:{''.join(number.split())}"
