"""The tool calls of a session that have no result yet: when the user hears a line about them, and their results.

Sans-I/O: the clock is an argument, and ``changed`` is called after each change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from app.mcp import MOST_CALLS
from app.realtime.protocol import CallOutputItem, HostedCallItem, Item, ToolOptions

LONGEST_WAIT_S = 300.0
"""Seconds after which a call that has not returned has no further lines."""

LineKind = Literal["preamble", "progress", "sound"]


@dataclass(frozen=True, slots=True)
class WaitLine:
    """What the user hears next while tools run. ``number`` counts the progress lines of this wait."""

    kind: LineKind
    options: ToolOptions
    number: int = 0


@dataclass(slots=True)
class _Call:
    """A call without a result."""

    options: ToolOptions
    begun_s: float
    audible: bool
    cancel: Callable[[], None] | None


class PendingCalls:
    """The pending calls of one session, by id. ``now`` returns monotonic seconds."""

    def __init__(self, now: Callable[[], float], changed: Callable[[], None]) -> None:
        self._now = now
        self._changed = changed
        self._calls: dict[str, _Call] = {}
        self._unspoken: dict[str, None] = {}  # results to speak about without a request
        self._unasked = 0  # answers without a request since the user's last turn
        self._user_speaks = False
        self._quiet_s = -math.inf  # when the user stopped speaking
        self._spoken_s: float | None = None  # when the last line began; None before the first of this wait
        self._progress = 0

    def began(
        self,
        id: str,
        options: ToolOptions,
        hosted: bool,
        introduced: bool = False,
        cancel: Callable[[], None] | None = None,
    ) -> None:
        """Add a call.

        Args:
            id: Its id.
            options: The settings of its tool.
            hosted: Whether the server runs it. By default, only these calls have lines.
            introduced: Whether the model spoke before it in the same response. Then it has no preamble.
            cancel: Cancels it. Its result is then an error.
        """
        audible = hosted if options.speech is None else options.speech
        if not self.audible:
            self._spoken_s = self._now() if introduced else None
            self._progress = 0
        self._calls[id] = _Call(options, self._now(), audible, cancel)
        self._changed()

    def returned(self, id: str) -> None:
        """Remove a call whose result the conversation has stored. Calls that are not pending are ignored."""
        call = self._calls.pop(id, None)
        if call is not None and call.options.answer:
            self._unspoken[id] = None
        self._changed()

    def asked(self) -> None:
        """Record that the session itself requests an answer to the results."""
        self._unasked += 1

    def answered(self, ids: Iterable[str]) -> None:
        """Record that a response begins whose prompt has these results."""
        for id in ids:
            self._unspoken.pop(id, None)

    def keep_results(self) -> None:
        """Leave all results in the conversation without speaking about them, because no answer can be made."""
        self._unspoken.clear()

    def hush(self) -> None:
        """End the lines about the pending calls, because the client wants silence."""
        for call in self._calls.values():
            call.audible = False

    def user_speaks(self, speaks: bool) -> None:
        """Set whether the user speaks now. Meanwhile, no line begins."""
        if self._user_speaks and not speaks:
            self._quiet_s = self._now()
        self._user_speaks = speaks
        self._changed()

    def moved_on(self) -> None:
        """Record a new turn of the user: no further lines for the pending calls; some are cancelled."""
        self._unasked = 0
        self.hush()
        for call in tuple(self._calls.values()):
            if call.cancel is not None and call.options.on_interrupt == "cancel":
                cancel = call.cancel
                call.cancel = None  # the call may take a while to end, and cannot be cancelled twice
                cancel()
        self.user_speaks(False)

    @property
    def busy(self) -> bool:
        """Whether a line or an answer may be due."""
        return bool(self._unspoken) or self.audible

    @property
    def audible(self) -> bool:
        """Whether the user hears lines about a pending call."""
        return self._leading is not None

    @property
    def _leading(self) -> _Call | None:
        """The oldest call that has lines."""
        since_s = self._now() - LONGEST_WAIT_S
        return next((call for call in self._calls.values() if call.audible and call.begun_s > since_s), None)

    @property
    def wants_answer(self) -> bool:
        """Whether the session must speak about a result now, without a request. After MOST_CALLS times, it waits for
        the user.
        """
        return bool(self._unspoken) and not self._user_speaks and self._unasked < MOST_CALLS

    def due(self, sound_ends_s: float) -> tuple[float, WaitLine] | None:
        """Return the next line and its time; None while the user speaks, or without a call that has lines.

        ``sound_ends_s`` is when the listener has heard all audio sent so far.
        """
        call = self._leading
        if call is None or self._user_speaks:
            return None
        options = call.options
        quiet_s = max(sound_ends_s, call.begun_s, self._quiet_s)
        if self._spoken_s is None and sound_ends_s > call.begun_s:
            self._spoken_s = sound_ends_s  # the model itself spoke after the call began
        if self._spoken_s is None and options.preamble != "":
            return quiet_s + options.preamble_s, WaitLine("preamble", options)
        spoken_s = call.begun_s if self._spoken_s is None else self._spoken_s
        line_s = max(quiet_s, spoken_s + options.progress_s) if options.progress_s else math.inf
        sound_s = quiet_s + options.sound_s if options.sound_s else math.inf
        if line_s <= sound_s < math.inf:
            line_s = sound_s  # the line replaces the sound that would end this silence
        at_s = min(line_s, sound_s)
        kind = "progress" if line_s <= sound_s else "sound"
        return None if at_s == math.inf else (at_s, WaitLine(kind, options, self._progress))

    def said(self, line: WaitLine) -> None:
        """Record that a line begins now."""
        if line.kind != "sound":
            self._spoken_s = self._now()
        self._progress += line.kind == "progress"


def results_in(items: Iterable[Item]) -> Iterator[str]:
    """Yield the ids of the calls whose results are among these items."""
    for item in items:
        match item:
            case CallOutputItem(call_id=id):
                yield id
            case HostedCallItem(id=id, result=str()):
                yield id
            case _:
                pass
