"""A seeded fuzzer of SIP: mutated messages outside of calls, in calls, and of calls that are beginning.

    python -m tests.app.transports.telephone.sip_fuzz [--messages 50000] [--seed 1]

They reach the listener of a server in this process behind its rate limit, as fast as it reads them. It prints the
memory that the process has grown by, the longest that a message took of the event loop (CPU time), and the exceptions.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from app.transports.telephone import sip as module
from app.transports.telephone.sip import Sip
from app.transports.telephone.sip_message import SipMessage, tag_of
from tests.app.rig import LoudnessVad, running, script_spec
from tests.app.transports.telephone.exchanges import SDP

METHODS = ("INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "NOTIFY", "REFER", "SIP/2.0")
WORDS = (
    "", " ", ";", ",", "<", ">", '"', ":", "=", "0", "-1", "4294967296", "9" * 400, "\x00", "\t", "é", "z9hG4bK",
    "tag=", "branch=", ";tag=a;tag=b", "<sip:", "127.0.0.1", "[::1]", "localhost", "%s%n", "a" * 5000, "," * 3000,
    "Digest ", 'Digest realm="parley", nonce="', "application/sdp", "RTP/AVP", "IN IP4", "\r\n", "\r\n ",
)  # fmt: skip
PLACES = (("127.0.0.1", 9), ("127.0.0.1", 5060), ("127.0.0.2", 9), ("::1", 9, 0, 0))

WARM_UP = 500
"""Messages before the memory is measured: the first calls load what all calls need."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a run has cost."""

    grown_mb: float
    longest_ms: float
    exceptions: int
    answers: int


class SipFuzzer:
    """Makes messages. ``answered`` learns the tags of the server's dialogs, so that some messages are within them."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._dialogs = deque[tuple[str, str, str]]([("0@fuzz", "f", "")], maxlen=8)  # Call-ID and both tags
        self._count = 0

    def answered(self, message: SipMessage) -> None:
        if message.status == 200 and message.cseq[1] == "INVITE":
            self._dialogs.append((message.get("call-id"), tag_of(message.get("from")), tag_of(message.get("to"))))

    def message(self) -> bytes:
        """Return the next message: a third of them begin a call, the others belong to one."""
        dice = self._dice
        method = dice.choice(METHODS)
        call, caller, own = dice.choice(self._dialogs)
        if method == "INVITE" and dice.random() < 0.5:
            self._count += 1
            call, own = f"{self._count}@fuzz", ""
        lines = self._lines(method, call, caller, own)
        body = SDP.format(port=dice.choice((0, 9, 4000, 99999)), law=dice.choice((0, 8, 9))).split("\r\n")
        body = body if method in ("INVITE", "ACK") and dice.random() < 0.8 else []
        for _ in range(dice.choice((0, 0, 1, 1, 2, 5))):
            self._mutate(body if body and dice.random() < 0.4 else lines)
        data = "\r\n".join([*lines, "", "\r\n".join(body)]).encode()
        return self._flipped(data) if dice.random() < 0.1 else data

    def _lines(self, method: str, call: str, caller: str, own: str) -> list[str]:
        number = self._dice.choice((1, 1, 2, 3, 50))
        start = "SIP/2.0 200 OK" if method == "SIP/2.0" else f"{method} sip:bot@127.0.0.1 SIP/2.0"
        ends = [f"<sip:c@127.0.0.1>;tag={caller}", f"<sip:bot@127.0.0.1>{own and ';tag='}{own}"]
        first, second = reversed(ends) if method == "SIP/2.0" else ends
        return [
            start, f"Via: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bK{call}{number};rport", f"From: {first}",
            f"To: {second}", f"Call-ID: {call}", f"CSeq: {number} {'BYE' if method == 'SIP/2.0' else method}",
            "Contact: <sip:c@127.0.0.1:9>", "Record-Route: <sip:127.0.0.1;lr>", "Content-Type: application/sdp",
        ]  # fmt: skip

    def _mutate(self, lines: list[str]) -> None:
        dice, at = self._dice, self._dice.randrange(len(lines))
        match dice.randrange(6):
            case 0:
                lines[at] = dice.choice(WORDS)
            case 1:
                cut = dice.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut] + dice.choice(WORDS) + lines[at][cut:]
            case 2:
                lines[at] = lines[at].partition(":")[0] + ": " + dice.choice(WORDS)
            case 3:
                lines.extend([lines[at]] * dice.choice((1, 2, 300)))
            case 4:
                other = dice.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]

    def _flipped(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._dice.randrange(1, 8)):
            changed[self._dice.randrange(len(changed))] = self._dice.randrange(256)
        return bytes(changed[: self._dice.randrange(len(changed)) + 1])

    def place(self) -> tuple[Any, ...]:
        return self._dice.choice(PLACES) if self._dice.random() < 0.1 else PLACES[0]


async def fuzzed(messages: int, seed: int, patch: Callable[[object, str, Any], None]) -> Found:
    """Give a server so many messages. ``patch`` replaces an attribute for the time of the run."""
    fuzzer, listeners, failures, answers = SipFuzzer(seed), list[Sip](), list[str](), 0
    made, really_send = Sip.connection_made, Sip.send

    def listening(self: Sip, transport: Any) -> None:
        made(self, transport)
        listeners.append(self)

    def sent(self: Sip, message: SipMessage, address: Any) -> None:
        nonlocal answers
        answers += 1
        fuzzer.answered(message)
        really_send(self, message, PLACES[0])  # the other places are made up

    really_look_up = socket.getaddrinfo  # never for a mutated name, which would leave this machine

    def look_up(host: Any, *given: Any, **more: Any) -> Any:
        if host in ("127.0.0.1", "localhost", None):
            return really_look_up(host, *given, **more)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    patch(socket, "getaddrinfo", look_up)
    patch(Sip, "connection_made", listening)
    patch(Sip, "send", sent)
    patch(module, "log_failure", lambda event, **fields: failures.append(f"{event}: {sys.exc_info()[1]!r}"))
    patch(module, "CONFIRM_S", 1.0)
    async with running(script_spec(telephone={"sip": "127.0.0.1:0"}), vad=LoudnessVad):
        before, longest_s = 0, 0.0
        for n in range(WARM_UP + messages):
            if n == WARM_UP:
                gc.collect()
                before = psutil.Process().memory_info().rss
            data, place = fuzzer.message(), fuzzer.place()
            begun_s = time.thread_time()
            listeners[0]._read(data, place)
            longest_s = max(longest_s, time.thread_time() - begun_s)
            await asyncio.sleep(0)
        gc.collect()
        grown = psutil.Process().memory_info().rss - before
    for one in sorted({re.sub(r"\d+", "n", failure) for failure in failures})[:20]:
        sys.stdout.write(f"{one}\n")
    return Found(grown / 1e6, longest_s * 1000, len(failures), answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = asyncio.run(fuzzed(arguments.messages, arguments.seed, monkeypatch.setattr))
    sys.stdout.write(f"{arguments.messages} messages: {found}\n")
    sys.exit(found.exceptions > 0 or found.longest_ms > 100 or found.grown_mb > 100)


if __name__ == "__main__":
    main()
