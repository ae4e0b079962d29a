"""`parley bench --voice-answers N`: spoken turns by the thousand, what became of each, and what went wrong.

Several users speak at once, each at a pace of their own; a visit is some turns of one session. Every answer is a line
of a file as soon as it is over, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
from rich.status import Status

from app.bench.client import Client, open_client, outcome
from app.bench.figures import Figure, percentile
from app.bench.sessions import counted, hear_out, speech
from app.bench.target import BenchError, Target
from app.commands import terminal
from engine.core import Pcm

USERS = 4
ASKED = "Repeat after me: what is two plus three."
"""The question is short, and so is its answer: thousands are to be had in an hour."""

TURNS = 10
"""Turns of a visit; then the user comes again, as somebody new."""

AGAIN_S = 1.0
"""Seconds that a user waits who found no session."""

PATIENCE_S = 300.0
"""Seconds until a turn counts as failed, and a connection on which no ping is answered as lost: a machine that is busy
with other things may take its time, and the times tell."""

TRACED = 60
"""Events that are kept of a turn that failed."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one spoken turn."""

    outcome: str
    """``completed``, or in one sentence why not."""
    ttfa_ms: float | None = None
    """Milliseconds from the last voiced sample to the first audible one of the answer."""
    audio_s: float = 0.0
    text: str = ""
    events: tuple[str, ...] = ()
    """Events of a turn that failed: what the server said since it began, the last of it."""


class Diary:
    """The records of all runs, one JSON object a line. What a killed run left of a line is dropped."""

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = []
        try:
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            whole = [line for line in lines if line.endswith(b"\n")]
            self.records += [msgspec.json.decode(line, type=Record) for line in whole]
            self._file: IO[bytes] = path.open("ab")
            self._file.truncate(sum(map(len, whole)))
        except OSError as error:
            raise BenchError(f"cannot keep the answers in {path}: {error.strerror}") from None
        except msgspec.DecodeError as error:
            raise BenchError(f"{path} is no record of voice answers: {error}") from None

    def add(self, record: Record) -> None:
        self.records.append(record)
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Crowd:
    """The users of one run: how many turns they have yet to begin, and where they write."""

    target: Target
    words: Pcm
    diary: Diary
    left: int
    status: Status

    async def user(self) -> None:
        """One after another, visits until there are no turns left."""
        while self.left > 0:
            try:
                async with open_client(self.target, silence_s=PATIENCE_S) as client:
                    await self._visit(client)
            except BenchError as error:
                self.left -= 1
                self._note(Record(str(error)))
                await asyncio.sleep(AGAIN_S)

    async def _visit(self, client: Client) -> None:
        """Some turns; after one that failed the rest of the session would only repeat it."""
        for _ in range(TURNS):
            if self.left <= 0:
                return
            self.left -= 1
            record = await _turn(client, self.words)
            self._note(record)
            if record.outcome != "completed":
                return

    def _note(self, record: Record) -> None:
        self.diary.add(record)
        done, failed = self.diary.records, sum(one.outcome != "completed" for one in self.diary.records)
        self.status.update(f"voice answers: {len(done)} of {len(done) + self.left}, {failed} failed …")


async def voice_answers(target: Target, count: int, path: Path) -> list[Figure]:
    """Take as many spoken turns as the file at ``path`` lacks of ``count``. Raises BenchError."""
    async with _diary(path) as diary:
        async with open_client(target, silence_s=PATIENCE_S) as client:
            words = await speech(target, client, ASKED)
        with terminal.waiting("voice answers …") as status:
            crowd = Crowd(target, words, diary, count - len(diary.records), status)
            async with asyncio.TaskGroup() as group:
                for i in range(USERS):
                    group.create_task(crowd.user(), name=f"user:{i}")
    return judged(diary.records)


@asynccontextmanager
async def _diary(path: Path) -> AsyncGenerator[Diary]:
    diary = await asyncio.to_thread(Diary, path)
    try:
        yield diary
    finally:
        diary.close()


async def _turn(client: Client, words: Pcm) -> Record:
    """Speak, and hear the answer to its end."""
    async with client.tracing(TRACED) as events:
        turn = await hear_out(client, words, PATIENCE_S)
    ttfa_ms = None if turn.ttfa_s is None else round(turn.ttfa_s * 1000, 1)
    trace = () if turn.complete else tuple(events)
    return Record(outcome(turn), ttfa_ms, round(turn.player.seconds, 2), turn.text, trace)


def judged(records: list[Record]) -> list[Figure]:
    """Count the turns that failed, by what they said."""
    failed = sum(record.outcome != "completed" for record in records)
    times_ms = [record.ttfa_ms for record in records if record.ttfa_ms is not None]
    name = f"{len(records)} voice answers"
    return [
        Figure(name=f"{name}: failed", value=float(failed), unit="", bar=0, note=counted(r.outcome for r in records)),
        Figure(name=f"{name}: TTFA(speech end), p50", value=percentile(times_ms, 50), unit="ms"),
        Figure(name=f"{name}: TTFA(speech end), p95", value=percentile(times_ms, 95), unit="ms"),
    ]
