"""Records what a caller hears, turn by turn, and answers as a client must: tool results and truncations.

Sans-I/O: events and monotonic times are arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.client import (
    AudioDelta,
    CallDone,
    Error,
    Event,
    PlaybackPaused,
    PlaybackResumed,
    Response,
    ResponseCreated,
    ResponseDone,
    SpeechStarted,
    TextDelta,
)
from engine import SPEAKER_RATE_HZ


@dataclass(slots=True)
class TurnRecord:
    """One turn of the caller with its answers. All times are the client's monotonic seconds."""

    label: str
    """What the caller does."""
    begun_s: float
    over: Response | None = None
    """The answer that the caller interrupts."""
    quiet_s: float | None = None
    """When that answer fell silent."""
    turn_over_s: float | None = None
    """When the caller's part was over; None while it lasts."""
    ended_s: float | None = None
    """When the caller had heard the answer."""
    answers: list[Response] = field(default_factory=list[Response])
    """The responses that began during this turn, without those that the conversation does not store."""
    errors: list[str] = field(default_factory=list[str])
    """Error events, and the reasons of failed responses."""
    cut: bool = False
    """Whether an answer began before the caller's part was over."""
    failure: str = ""
    """Why the turn ended early; empty if it did not."""

    @property
    def text(self) -> str:
        """The words of the answers."""
        return " ".join(answer.text.strip() for answer in self.answers if answer.text.strip())

    @property
    def calls(self) -> list[CallDone]:
        return [call for answer in self.answers for call in answer.calls]

    @property
    def first_audio_ms(self) -> float | None:
        """Milliseconds from the end of the caller's part to the first sound of an answer; None without a sound."""
        heard = [at_s for answer in self.answers if (at_s := answer.player.audible_s) is not None]
        return (min(heard) - self.turn_over_s) * 1000 if heard and self.turn_over_s is not None else None

    @property
    def stop_ms(self) -> float | None:
        """Milliseconds from the caller's first sound until the interrupted answer fell silent; None if it went on."""
        return None if self.quiet_s is None else (self.quiet_s - self.begun_s) * 1000


class CallListener:
    """Assigns the server's events to turns. Plays answers as a client does, without a buffer.

    ``results`` are the results of the caller's tools, by their names.
    """

    def __init__(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        self.turns: list[TurnRecord] = []
        self._results = results
        self._requested = 0  # responses that were requested and did not begin yet
        self._is_paused = False

    def begin(self, label: str, now_s: float, over: Response | None = None) -> TurnRecord:
        """Begin the next turn. From now on, new answers belong to it."""
        self._requested = 0
        self.turns.append(TurnRecord(label, now_s, over))
        return self.turns[-1]

    def playing(self, now_s: float) -> Response | None:
        """Return the answer that the caller hears now, if any."""
        answers = self.turns[-1].answers if self.turns else []
        heard = [one for one in answers if one.player.audible_s is not None]
        return next((one for one in heard if not one.ended or one.player.ends_s > now_s), None)

    def left_s(self, now_s: float) -> float | None:
        """Return the seconds until the caller has heard all answers of the turn; None if only a further event decides.

        A turn without an answer has nothing left.
        """
        turn = self.turns[-1]
        heard = [*turn.answers, *([turn.over] if turn.over is not None and turn.quiet_s is None else [])]
        if self._requested or self._is_paused or not all(answer.ended for answer in heard):
            return None
        return max((0.0, *(answer.player.ends_s - now_s for answer in heard)))

    def take(self, event: Event, now_s: float) -> list[dict[str, Any]]:
        """Take an event, and return the client's events that must follow it."""
        if not self.turns:
            return []
        turn = self.turns[-1]
        match event:
            case ResponseCreated():
                self._begin(event, turn, now_s)
            case TextDelta() | AudioDelta() | CallDone():
                return self._add(event, turn, now_s)
            case ResponseDone():
                return self._end(event, turn, now_s)
            case PlaybackPaused() | PlaybackResumed():
                self._pause(isinstance(event, PlaybackPaused), turn, now_s)
            case SpeechStarted():
                self._is_paused = False
                return self._interrupt(turn, now_s)
            case Error():
                self._requested = 0
                turn.errors.append(f"{event.code}: {event.message}")
            case _:
                pass
        return []

    def _begin(self, event: ResponseCreated, turn: TurnRecord, now_s: float) -> None:
        if event.response.get("conversation_id", "") is None:
            return  # a line that the server speaks while a tool runs
        self._requested = max(0, self._requested - 1)
        turn.cut |= turn.turn_over_s is None
        turn.answers.append(Response(now_s, id=event.id, status="in_progress"))

    def _add(self, event: TextDelta | AudioDelta | CallDone, turn: TurnRecord, now_s: float) -> list[dict[str, Any]]:
        if (answer := self._answer(event.response_id)) is None:
            return []
        answer.take(event, now_s)
        if answer is turn.over and isinstance(event, AudioDelta) and not self._is_paused:
            turn.quiet_s = None  # the server goes on with it
        return []

    def _end(self, event: ResponseDone, turn: TurnRecord, now_s: float) -> list[dict[str, Any]]:
        if (answer := self._answer(event.id)) is None:
            return []
        answer.take(event, now_s)
        if answer.error is not None:
            turn.errors.append(answer.error)
        if answer is turn.over and answer.status == "cancelled":
            turn.quiet_s = turn.quiet_s or now_s
            return list(_truncation(answer, turn.quiet_s))
        return self._tool_results(answer) if answer.status == "completed" else []

    def _interrupt(self, turn: TurnRecord, now_s: float) -> list[dict[str, Any]]:
        """Stop the playback of the interrupted answer; an answer that is not complete yet may go on."""
        over = turn.over
        if over is None or (over.ended and over.player.played_samples(now_s) == over.player.samples):
            return []
        turn.quiet_s = turn.quiet_s or now_s
        return list(_truncation(over, turn.quiet_s)) if over.ended else []

    def _pause(self, pauses: bool, turn: TurnRecord, now_s: float) -> None:
        self._is_paused = pauses
        for answer in filter(None, [turn.over, *turn.answers]):
            if pauses:
                answer.player.pause(now_s)
            else:
                answer.player.resume(now_s)
        turn.quiet_s = (turn.quiet_s or now_s) if pauses and turn.over is not None else None

    def _tool_results(self, answer: Response) -> list[dict[str, Any]]:
        calls = [call for call in answer.calls if call.name in self._results]
        if not calls:
            return []
        self._requested += 1
        return [*(_result(call, self._results[call.name]) for call in calls), {"type": "response.create"}]

    def _answer(self, response_id: str) -> Response | None:
        known = (answer for turn in reversed(self.turns) for answer in turn.answers)
        return next((answer for answer in known if answer.id == response_id), None)


def _result(call: CallDone, result: Mapping[str, Any]) -> dict[str, Any]:
    item = {"type": "function_call_output", "call_id": call.call_id, "output": orjson.dumps(result).decode()}
    return {"type": "conversation.item.create", "item": item}


def _truncation(answer: Response, at_s: float) -> Iterator[dict[str, Any]]:
    """Yield the event that keeps only the heard part of an answer in the conversation."""
    if answer.item_id is not None:
        heard_ms = answer.player.played_samples(at_s) * 1000 // SPEAKER_RATE_HZ
        where = {"item_id": answer.item_id, "content_index": 0, "audio_end_ms": heard_ms}
        yield {"type": "conversation.item.truncate", **where}
