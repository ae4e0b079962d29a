"""The memory of failed models in a chain: a model that failed is skipped for some seconds, then probed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.errors import Declined, EngineError, RequestError


class FailureMemory:
    """The failed models of one chain, by their indexes in it.

    Args:
        skip_s: Seconds for which a failed model is skipped. 0: it never is.
        now: A monotonic clock in seconds.
    """

    def __init__(self, skip_s: float, now: Callable[[], float]) -> None:
        self._skip_s = skip_s
        self._now = now
        self._probe_at_s: dict[int, float] = {}

    def order(self, places: Iterable[int], unavailable: Callable[[int], str]) -> list[int]:
        """Return the models in the order in which to ask them: those that failed or are ``unavailable`` come last.

        After ``skip_s``, one request probes a failed model at its usual place. Other requests skip it meanwhile.
        """
        return sorted(places, key=lambda place: bool(unavailable(place)) or self._skips(place))

    def failed(self, place: int, error: EngineError) -> None:
        """Record why a model gave no answer.

        A model that declines, or rejects a request because of its content, is not skipped.
        """
        if not isinstance(error, Declined | RequestError) and self._skip_s:
            self._probe_at_s[place] = self._now() + self._skip_s

    def answered(self, place: int) -> None:
        """Record that a model has answered: it is no longer skipped."""
        self._probe_at_s.pop(place, None)

    def _skips(self, place: int) -> bool:
        probe_at_s = self._probe_at_s.get(place)
        if probe_at_s is None:
            return False
        if self._now() < probe_at_s:
            return True
        self._probe_at_s[place] = self._now() + self._skip_s
        return False
