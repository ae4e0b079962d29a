"""`parley replay`: run a recorded session again, and print the differences. Also writes the recording's pytest case."""

from __future__ import annotations

import shutil
from pathlib import Path

from app.commands import terminal
from app.commands.deployment import deployment
from app.recording.bad_recording import BadRecording
from app.recording.comparison import conversation_differences, differences, events_of, turns
from app.recording.file import RecordedSession, read
from app.recording.lines import audio_path
from app.recording.replay import replay
from app.refusal import Refusal
from engine import ConfigError

EQUAL, DIFFERENT, UNREADABLE = 0, 1, 2
"""Exit codes."""


def run_replay(path: Path, config: str | None) -> int:
    """Replay a recording, print the differences, and return the exit code. Raises EngineError."""
    try:
        recorded = read(path)
    except BadRecording as error:
        terminal.fail(str(error))
        return UNREADABLE
    if config is None and recorded.is_of_page:
        raise ConfigError("a download of the page contains no configuration: name one, such as nano")
    try:
        with terminal.waiting("replaying"):
            done = replay(recorded, None if config is None else deployment(config))
    except Refusal as refusal:
        raise ConfigError(f"the configuration refuses the session's settings: {refusal}") from None
    compared = conversation_differences if recorded.is_of_page else differences
    found = compared(events_of(recorded.server), done.events)
    for line in found:
        terminal.say(line)
    share = done.took_s / max(recorded.end_s, 0.001)
    terminal.say(f"{recorded.end_s:.1f} s replayed in {done.took_s:.1f} s ({share:.2f} of real time).")
    equal = "The conversation is equal." if recorded.is_of_page else f"All {len(done.events)} server events are equal."
    terminal.say("The replay differs." if found else equal)
    return DIFFERENT if found else EQUAL


def write_case(path: Path, case: Path) -> int:
    """Write a pytest case of a recording, with a copy of the recording beside it. Returns the exit code."""
    try:
        recorded = read(path)
    except BadRecording as error:
        terminal.fail(str(error))
        return UNREADABLE
    if recorded.is_of_page:
        raise ConfigError("a download of the page contains no configuration. Record the session on the server")
    if case.exists():
        raise ConfigError(f"{case} exists already. Choose another name")
    copy = case.with_suffix(".jsonl")
    for source, target in ((path, copy), *((audio_path(path, one), audio_path(copy, one)) for one in ("out", "in"))):
        if source.exists() and source != target:
            shutil.copy(source, target)  # with its mode
    case.write_text(_case(recorded, copy.name), encoding="utf-8")
    terminal.say(f"Run it: python -m pytest {case}")
    return EQUAL


def _case(recorded: RecordedSession, name: str) -> str:
    lines = ",\n        ".join(repr(str(turn)) for turn in turns(events_of(recorded.server)))
    return f'''"""A recorded session. Change the expected conversation if another answer is right."""

from pathlib import Path

from parley_voice.app.recording.comparison import turns
from parley_voice.app.recording.file import read
from parley_voice.app.recording.replay import replay

RECORDING = Path(__file__).with_name({name!r})


def test_the_conversation() -> None:
    replayed = replay(read(RECORDING))
    assert [str(turn) for turn in turns(replayed.events)] == [
        {lines},
    ]
'''
