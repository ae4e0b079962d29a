"""SDP offers that went wrong on their way, or were made to: any number of them out of a real one, from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

WORDS = [
    "", "0", "-1", "7", "65536", "4294967296", "9" * 30, "NaN", "1e400", "\x00", "\ud7ff", "\u202e", "a" * 3000, "%s%n",
    "127.0.0.1", "::1", "fe80::1%lo", "0.0.0.0", "255.255.255.255", "224.0.0.1", "host.invalid", "tcp", "UDP", "sha-1",
    "sha-256", "active", "passive", "holdconn", "actpass", "sendonly", "inactive", "opus/48000/2", "opus/0/2",
    "opus/48000/999", "opus/x", "VP8/90000", "H264/90000", "rtx/90000", "apt=111", "apt=999", "webrtc-datachannel",
    "5000", "BUNDLE", "0 1 2 3", "0 0 0", "UDP/DTLS/SCTP", "DTLS/SCTP", "*",
]  # fmt: skip
CHARACTERS = [chr(n) for n in (0, 9, 10, 13, 32, 58, 61, 127, 0xE9, 0x1F600)]
LETTERS = "abcimostvz"


def mutated(offer: str, seed: int) -> str:
    """The offer, with one to eight of its lines cut, doubled, moved or replaced."""
    dice, lines = random.Random(seed), offer.split("\r\n")
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        dice.choice(WAYS)(lines, dice.randrange(len(lines)), dice)
        lines = lines or [""]
    return "\r\n".join(lines)


def corpus(offer: str, count: int, seed: int = 1) -> Iterator[bytes]:
    """So many of them; some are no UTF-8."""
    for n in range(count):
        data = mutated(offer, seed * 1_000_000 + n).encode("utf-8", "surrogatepass")
        half = len(data) // 2
        yield data[:half] + b"\xff\xc0\x80" + data[half:] if n % 97 == 96 else data


Way = Callable[[list[str], int, random.Random], None]


def _drop(lines: list[str], at: int, dice: random.Random) -> None:
    del lines[at]


def _drop_kind(lines: list[str], at: int, dice: random.Random) -> None:
    lines[:] = [line for line in lines if not line.startswith(lines[at][:6])]


def _repeat(lines: list[str], at: int, dice: random.Random) -> None:
    lines[at:at] = [lines[at]] * dice.choice((1, 10, 100))


def _insert_other(lines: list[str], at: int, dice: random.Random) -> None:
    lines.insert(at, dice.choice(lines))


def _swap(lines: list[str], at: int, dice: random.Random) -> None:
    other = dice.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


def _cut(lines: list[str], at: int, dice: random.Random) -> None:
    lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]


def _end(lines: list[str], at: int, dice: random.Random) -> None:
    del lines[at + 1 :]


def _word(lines: list[str], at: int, dice: random.Random) -> None:
    words = lines[at].split(" ")
    words[dice.randrange(len(words))] = dice.choice(WORDS)
    lines[at] = " ".join(words)


def _value(lines: list[str], at: int, dice: random.Random) -> None:
    lines[at] = lines[at].partition(":")[0] + ":" + dice.choice(WORDS)


def _character(lines: list[str], at: int, dice: random.Random) -> None:
    place = dice.randrange(len(lines[at]) + 1)
    lines[at] = lines[at][:place] + dice.choice(CHARACTERS) + lines[at][place + 1 :]


def _number(lines: list[str], at: int, dice: random.Random) -> None:
    lines[at] = re.sub(r"\d+", lambda found: dice.choice(("0", "-1", "65536", "4294967296", found[0] * 5)), lines[at])


def _line(lines: list[str], at: int, dice: random.Random) -> None:
    lines[at] = dice.choice(LETTERS) + "=" + dice.choice(WORDS)


def _candidate(lines: list[str], at: int, dice: random.Random) -> None:
    words = ["1", "udp", "2130706431", "9", "typ", "host", "srflx", "raddr", dice.choice(WORDS)]
    lines.insert(at, "a=candidate:" + " ".join(dice.choice(words) for _ in range(dice.randrange(1, 12))))


def _section_again(lines: list[str], at: int, dice: random.Random) -> None:
    lines += lines[dice.choice([n for n, line in enumerate(lines) if line.startswith("m=")] or [0]) :]


WAYS: list[Way] = [
    _drop, _drop_kind, _repeat, _insert_other, _swap, _cut, _end, _word, _value, _character, _number, _line, _candidate,
    _section_again,
]  # fmt: skip
