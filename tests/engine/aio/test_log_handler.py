"""Log lines that nobody takes cost nobody anything, and how many were lost is told."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from contextlib import suppress

import pytest

from engine.aio.log_handler import LineWriter

MOST = 100


@pytest.fixture
def pipe() -> Generator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):  # the test did
            os.close(descriptor)


def say(handler: LineWriter, text: str) -> None:
    handler.handle(logging.LogRecord("parley", logging.INFO, "", 0, text, (), None))


def read_all(reader: int) -> bytes:
    return b"".join(iter(lambda: os.read(reader, 1 << 16), b""))


def test_lines_come_whole_and_in_order(pipe: tuple[int, int]) -> None:
    handler = LineWriter(pipe[1], MOST)
    for n in range(20):
        say(handler, f"line {n} ü")
    handler.close()
    os.close(pipe[1])
    assert read_all(pipe[0]).decode().splitlines() == [f"line {n} ü" for n in range(20)]


def test_nobody_waits_for_a_pipe_that_nobody_reads(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.aio.log_handler.LAST_S", 0.01)
    handler, text = LineWriter(pipe[1], MOST), "x" * 1000
    for _ in range(10_000):  # ten megabytes into 64 kB: were one of them waited for, this would not come to an end
        say(handler, text)
    handler.flush()
    os.set_blocking(pipe[0], False)
    said = b""
    while b"dropped" not in said:  # the reader is there after all
        try:
            said += os.read(pipe[0], 1 << 16)
        except BlockingIOError:
            continue
    whole = said.count(text.encode())
    assert 0 < whole < 10_000
    os.set_blocking(pipe[0], True)
    os.close(pipe[0])
    handler.close()


def test_a_reader_that_is_gone_is_no_error(pipe: tuple[int, int]) -> None:
    handler = LineWriter(pipe[1], MOST)
    os.close(pipe[0])
    for _ in range(10):
        say(handler, "nobody hears this")
    handler.close()
