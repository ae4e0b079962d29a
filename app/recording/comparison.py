"""Compares the server's events of a recording and its replay, without ids, times and other values of one run."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from app.recording.file import RecordedEvent
from app.recording.id_labels import IdLabels

VOLATILE = frozenset({"event_id", "expires_at", "ledger", "seq", "resume_token", "created_at"})
"""Fields that differ in every run."""

AUDIBLE = 64
"""Largest difference between two int16 samples that counts as equal: rounding, 54 dB below full scale."""

SHOWN = 60
"""Lines of differing events that are printed."""

WIDTH = 160


@dataclass(frozen=True, slots=True)
class ConversationPart:
    """A part of the conversation: the words of the user or of an answer, a tool call, or an error."""

    kind: str
    """``user``, ``answer``, ``tool``, or ``error``."""
    text: str
    status: str = ""
    """The status of the response, unless it was completed."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" + (f" ({self.status})" if self.status else "")


def turns(events: Iterable[dict[str, Any]]) -> list[ConversationPart]:
    """Return the conversation in the server's events: transcripts, answers, tool calls and errors."""
    found: list[ConversationPart] = []
    for event in events:
        match event:
            case {"type": "conversation.item.input_audio_transcription.completed", "transcript": str(text)}:
                found.append(ConversationPart("user", text.strip()))
            case {"type": "response.done", "response": {"output": list(items), "status": str(status)}}:
                found += _answers(cast("list[dict[str, Any]]", items), "" if status == "completed" else status)
            case {"type": "error", "error": {"code": code}}:
                found.append(ConversationPart("error", str(code)))
            case _:
                pass
    return found


def _answers(items: list[dict[str, Any]], status: str) -> Iterator[ConversationPart]:
    for item in items:
        if item["type"] == "function_call":
            yield ConversationPart("tool", f"{item['name']}({item['arguments']})", status)
        elif item["type"] == "message":
            parts: list[dict[str, Any]] = item["content"]
            yield ConversationPart(
                "answer", "".join(part.get("text") or part.get("transcript") or "" for part in parts), status
            )
    if status and not items:
        yield ConversationPart("answer", "", status)


def differences(recorded: Sequence[dict[str, Any]], replayed: Sequence[dict[str, Any]]) -> list[str]:
    """Return the differences as lines for the terminal; none if both runs are equal."""
    before, after = _log(recorded), _log(replayed)
    if before == after:
        return list(_audio_differences(recorded, replayed))
    said = conversation_differences(recorded, replayed)
    lines = ["The conversation differs:", *said] if said else ["The conversation is equal. Other events differ:"]
    changes = _changes(before, after)
    if said:
        lines.append(f"{len(changes)} events differ:")
    lines += [line[:WIDTH] for line in changes[:SHOWN]]
    if len(changes) > SHOWN:
        lines.append(f"… and {len(changes) - SHOWN} more")
    return lines


def conversation_differences(recorded: Iterable[dict[str, Any]], replayed: Iterable[dict[str, Any]]) -> list[str]:
    """Return the differences between the conversations as lines for the terminal."""
    return _changes([str(turn) for turn in turns(recorded)], [str(turn) for turn in turns(replayed)])


def _log(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return one line for each event, without values that always differ."""
    names = IdLabels()
    return [_line(names.labelled(event)) for event in events]


def _line(event: dict[str, Any]) -> str:
    if event["type"] == "response.output_audio.delta":
        samples = len(base64.b64decode(event["delta"]))
        event = {**event, "delta": f"{samples} bytes of audio"}
    fields = {name: value for name, value in _stable(event).items() if name != "type"}
    return f"{event['type']} {json.dumps(fields, sort_keys=True, ensure_ascii=False)}"


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        kept = {name: _stable(held) for name, held in fields.items() if name not in VOLATILE}
        return {name: held for name, held in kept.items() if name != "parley" or held}
    if isinstance(value, list):
        return [_stable(one) for one in cast("list[Any]", value)]
    return value


def _changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the lines that only one run has: ``-`` for the recording, ``+`` for the replay."""
    changes = difflib.unified_diff(before, after, n=0, lineterm="")
    return [f"{line[0]} {line[1:]}" for line in changes if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def _audio_differences(recorded: Iterable[dict[str, Any]], replayed: Iterable[dict[str, Any]]) -> Iterator[str]:
    for number, (before, after) in enumerate(zip(_audio(recorded), _audio(replayed), strict=True), 1):
        width = np.int16 if len(before) % 2 == 0 else np.int8
        samples = [np.frombuffer(one, width).astype(np.int32) for one in (before, after)]
        largest = int(np.abs(samples[0] - samples[1]).max(initial=0))
        if largest > AUDIBLE:
            yield f"The audio of answer {number} differs: by up to {largest} of 32768."


def _audio(events: Iterable[dict[str, Any]]) -> list[bytes]:
    """Return the audio of each response, in order."""
    found: dict[str, list[bytes]] = {}
    for event in events:
        if event["type"] == "response.output_audio.delta":
            found.setdefault(event["response_id"], []).append(base64.b64decode(event["delta"]))
    return [b"".join(pieces) for pieces in found.values()]


def events_of(recorded: Iterable[RecordedEvent]) -> list[dict[str, Any]]:
    """Return the recorded events as objects."""
    return [json.loads(event.text) for event in recorded]
