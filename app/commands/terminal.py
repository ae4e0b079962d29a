"""Terminal output of the commands: results on standard output, everything else on standard error.

`parley say -o -` writes samples to standard output, so nothing else may.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.status import Status

from engine import SPEAKER_RATE_HZ, Ledger

console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)  # ":cd:" is part of a fingerprint


def _print(text: str, end: str = "\n") -> None:
    """Write to standard error. On a full disk or a closed pipe, only the line is lost."""
    with suppress(OSError):
        console.print(text, end=end)


def forget(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that the interpreter's final flush can't fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str) -> None:
    """Print a line."""
    _print(escape(text))


def show_code(line: str) -> None:
    """Print a line of a QR code, black on white."""
    with suppress(OSError):
        console.print(line, style="black on bright_white", markup=False)


def say_piece(text: str) -> None:
    """Print a piece of an answer to standard output."""
    sys.stdout.write(text)
    sys.stdout.flush()


def note_piece(text: str) -> None:
    """Print a piece of an answer to standard error, if standard output carries audio."""
    sys.stderr.write(text)
    sys.stderr.flush()


def whisper(text: str) -> None:
    """Print a secondary line, dimmed."""
    _print(f"[dim]{escape(text)}[/]")


def prompt() -> None:
    """Prompt the user to type."""
    _print("[bold cyan]you[/] ", end="")


def fail(text: str) -> None:
    """Print an error as one sentence."""
    _print(f"[bold red]error:[/] {escape(text)}")


@contextmanager
def waiting(text: str) -> Generator[Status]:
    """Show a spinner while the block lasts, if standard error is a terminal."""
    with console.status(escape(text)) as status:
        yield status


def ledger_line(ledger: Ledger | None) -> str:
    """Return the parts of the time to first audio: ``first audio after 87.1 ms = queue 0.1 + …``."""
    if ledger is None:
        return "no audio received"
    terms = " + ".join(f"{name} {ms:.1f}" for name, ms in ledger.terms.items())
    return f"first audio after {ledger.ttfa_ms:.1f} ms = {terms}"


class SpeakingProgress:
    """A progress bar of the spoken part of a text, with its duration."""

    def __init__(self, characters: int) -> None:
        columns = (TextColumn("speaking"), BarColumn(), TextColumn("{task.fields[seconds]:.1f} s"))
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task: TaskID = self._progress.add_task("", total=characters, seconds=0.0)
        self._samples = 0

    def __enter__(self) -> SpeakingProgress:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @property
    def seconds(self) -> float:
        return self._samples / SPEAKER_RATE_HZ

    def spoken(self, text_end: int, samples: int) -> None:
        """Advance to character ``text_end``."""
        self._samples += samples
        self._progress.update(self._task, completed=text_end, seconds=self.seconds)


def finding(level: str, text: str, step: str) -> None:
    """Print a finding with its level (ok, warn or fail), and the next step below it."""
    colour = {"ok": "green", "warn": "yellow", "fail": "red"}[level]
    _print(f"[{colour}]{level:<4}[/] {escape(text)}")
    if step:
        _print(f"     → {escape(step)}")
