"""One SIP call: its dialog, its transactions, and the requests of the server in it.

Source: RFC 3261, 12 (dialogs), 13 (INVITE) and 17 (transactions).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from app.transports.telephone.rtp import RtpStream
from app.transports.telephone.sdp import RtpOffer, answer_to, own_offer
from app.transports.telephone.sip_message import VERSION, SipMessage, branch_of, response, tag_of, uri_of

T1_S = 0.5
"""First retransmission interval (RFC 3261, 17)."""

CONFIRM_S = 64 * T1_S
"""Seconds until a response to an INVITE must be confirmed."""

MOST_SENT = 4
"""How often a response to an INVITE is sent without being asked.

RFC 3261 repeats it until its confirmation, which sends a multiple of the INVITE to an address that may be forged. A
caller that has lost four responses gets another one for each INVITE that it repeats.
"""

REQUEST_S = 4.0
"""Seconds for which a request of the server is repeated."""

METHODS = "INVITE, ACK, BYE, CANCEL, OPTIONS, NOTIFY"

DialogId = tuple[str, str, str]
"""The caller's host, the Call-ID and the caller's tag. The server's own tag completes the proof."""


class Line(Protocol):
    """The listener of a dialog: sends its messages, and tells its own address."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def send(self, message: SipMessage, address: Any) -> None: ...


def dialog_id(message: SipMessage, address: Any) -> DialogId:
    """Return the id of the dialog to which a message from this address belongs."""
    caller = message.get("from") if message.method else message.get("to")
    return str(address[0]), message.get("call-id"), tag_of(caller)


class Dialog:
    """One call, from its INVITE to its BYE. ``address`` is where its signalling comes from, and goes to."""

    def __init__(self, invite: SipMessage, address: Any, line: Line) -> None:
        self.id = dialog_id(invite, address)
        self.invite = invite
        self.address = address
        self.tag = secrets.token_hex(8)
        self.final: SipMessage | None = None
        """The final response to the INVITE, sent again for each repeated INVITE."""
        self.confirmed = asyncio.Event()
        self.ended = asyncio.Event()
        self.stream: RtpStream | None = None
        self._line = line
        self._routes = invite.all("record-route")  # of the first INVITE: later ones can't change them
        self._described: RtpOffer | None = None  # the offer that was answered last
        self._session = int(time.time())
        self._version = 0
        self._number = 1
        self._answers: dict[str, asyncio.Future[int]] = {}

    @property
    def name(self) -> str:
        """The Call-ID."""
        return self.invite.get("call-id")

    @property
    def contact(self) -> str:
        return f"<sip:parley@{self._line.host}:{self._line.port}>"

    @property
    def accepted(self) -> bool:
        """Whether the call was accepted and the caller has not hung up."""
        return self.final is not None and self.final.status == 200 and not self.ended.is_set()

    def may_change(self, invite: SipMessage) -> bool:
        """Return whether an INVITE within the call may change it: the call is accepted, and no later one has
        arrived.
        """
        return self.accepted and invite.cseq >= self.invite.cseq

    def is_within(self, message: SipMessage) -> bool:
        """Return whether a message that has this dialog's id also has the server's tag."""
        own = message.get("to") if message.method else message.get("from")
        return secrets.compare_digest(tag_of(own).encode(), self.tag.encode())

    def repeats(self, message: SipMessage) -> bool:
        """Return whether a request belongs to the INVITE's transaction (RFC 3261, 17.2.3)."""
        return branch_of(message) == branch_of(self.invite)

    def answer(self, status: int, reason: str, *more: tuple[str, str], body: bytes = b"") -> None:
        """Send a final response to the INVITE."""
        self.final = response(self.invite, status, reason, self.tag, *more, body=body)
        self._line.send(self.final, self.address)

    def accept(self, offer: RtpOffer) -> None:
        """Accept the INVITE with the local address for audio."""
        assert self.stream is not None
        if offer != self._described:
            self._described = offer
            self._version = self._version + 1
        describe = partial(answer_to, offer) if offer.port else own_offer
        body = describe(self._line.host, self.stream.port, self._session, self._version)
        kind = ("content-type", "application/sdp")
        self.answer(200, "OK", ("contact", self.contact), ("allow", METHODS), kind, body=body)

    def end(self) -> None:
        """Record that the caller has hung up. May be called twice."""
        self.ended.set()
        self.confirmed.set()  # nothing is repeated to a caller that has left
        if self.stream is not None:
            self.stream.hang_up()

    async def confirmation(self) -> None:
        """Wait for the ACK, and repeat the final response a few times meanwhile."""
        for n in range(MOST_SENT - 1):
            with suppress(TimeoutError):
                async with asyncio.timeout(T1_S * 2**n):
                    await self.confirmed.wait()
                return
            assert self.final is not None
            self._line.send(self.final, self.address)
        await self.confirmed.wait()

    async def request(self, method: str, *more: tuple[str, str]) -> int:
        """Send a request in the dialog until it is answered. Returns its status, or 408 without a response."""
        self._number += 1
        branch = f"z9hG4bK{secrets.token_hex(8)}"
        message = self._request(method, branch, *more)
        answered = self._answers[branch] = asyncio.get_running_loop().create_future()
        wait_s, waited_s = T1_S, 0.0
        try:
            while waited_s < REQUEST_S:
                self._line.send(message, self.address)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        return await asyncio.shield(answered)
                waited_s += wait_s
                wait_s *= 2
            return 408
        finally:
            del self._answers[branch]

    def _request(self, method: str, branch: str, *more: tuple[str, str]) -> SipMessage:
        invite, mine = self.invite, self.invite.get("to")
        headers = [
            ("via", f"{VERSION}/UDP {self._line.host}:{self._line.port};branch={branch};rport"),
            ("max-forwards", "70"),
            *(("route", route) for route in self._routes),
            ("from", mine if tag_of(mine) else f"{mine};tag={self.tag}"),
            ("to", invite.get("from")),
            ("call-id", self.name),
            ("cseq", f"{self._number} {method}"),
            ("contact", self.contact),
            *more,
        ]
        return SipMessage(f"{method} {uri_of(invite.get('contact')) or 'sip:caller'} {VERSION}", tuple(headers))

    def answered(self, message: SipMessage) -> None:
        """Handle the response to one of the server's requests."""
        waiting = self._answers.get(branch_of(message))
        if waiting is not None and not waiting.done() and message.status >= 200:
            waiting.set_result(message.status)
