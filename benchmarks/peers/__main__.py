"""Run a peer as a process: reads its subject, then questions, as JSON lines from stdin, and writes times to stdout."""

from __future__ import annotations

import sys

import msgspec

from benchmarks.peers.peer import Question, Subject
from engine.deployment.registry import load
from engine.errors import EngineError


def main() -> None:
    lines = sys.stdin.buffer
    try:
        peer = load("benchmarks.peers", sys.argv[1], "PEER")(msgspec.json.decode(lines.readline(), type=Subject))
    except EngineError as error:
        sys.exit(str(error))
    _say(b"ready")
    for line in lines:
        _say(msgspec.json.encode(peer.answer(msgspec.json.decode(line, type=Question))))


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
