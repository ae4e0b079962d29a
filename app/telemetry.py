"""The server's report about itself: Prometheus metrics, and one log line for each event of interest.

Neither ever holds what was said, heard or typed, or a key. Knows no session and no socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import engine
from app.client_address import subscriber
from app.limits.log_rate_limiter import NOBODY, LogRateLimiter, subject_of
from engine import ReplicaInfo
from engine.aio.log_handler import LineWriter

_LOGGER = logging.getLogger("parley")
_ENGINE = logging.getLogger(engine.__name__)
_SECONDS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 5.0, 10.0)
_RATIOS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.5, 2.0)


class HeldCollector(Protocol):
    """The source of what keys hold of the server's places: kind, the key's name, and how many."""

    def held(self) -> Iterable[tuple[str, str, int]]: ...

    def refused(self) -> Iterable[tuple[str, str, int]]: ...


class ReceivedCollector(Protocol):
    """The source of what keys have sent: the key's name, bytes, and how often a client of it was made to wait."""

    def received(self) -> Iterable[tuple[str, int, int]]: ...


Stats = Mapping[str, Mapping[str, int]]
Replicas = Sequence[ReplicaInfo]


class Metrics:
    """One server's metrics, in a registry of its own."""

    def __init__(
        self,
        stats: Callable[[], Stats] = dict,
        replicas: Callable[[], Replicas] = tuple,
        quotas: HeldCollector | None = None,
        budgets: ReceivedCollector | None = None,
    ) -> None:
        self.registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=self.registry), partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.sessions = gauge("parley_sessions", "Open sessions")
        gauge("parley_tasks", "Tasks of the server's event loop").set_function(_tasks)
        self.connections = gauge("parley_connections", "Open TCP connections")
        self.idle = gauge("parley_connections_idle", "Connections that wait for their client")
        self.connections_cut = counter("parley_connections_cut", "Idle connections closed for new ones")
        self.sessions_refused = counter("parley_sessions_refused", "Refused connections", ["why"])
        self.responses = counter("parley_responses", "Responses by their end", ["status"])
        self.speculations = counter("parley_guesses", "Answers begun before the turn was over", ["what"])
        self.answers = counter("parley_http_answers", "Answers over HTTP by their end", ["status"])
        self.http_waiting = gauge("parley_http_waiting", "Answers over HTTP that wait for a place")
        self.kept = gauge("parley_kept_responses", "Responses that are kept for previous_response_id")
        self.kept_bytes = gauge("parley_kept_bytes", "Memory of the responses that are kept")
        self.errors = counter("parley_errors", "Error events by code", ["code"])
        self.ttfa_s = histogram("parley_ttfa_seconds", "From commit to the first audio sent", buckets=_SECONDS)
        self.rtf = histogram("parley_rtf", "Time to produce an answer's audio over its length", buckets=_RATIOS)
        self.underruns = counter("parley_underruns", "Times that a listener ran dry")
        self.underrun_s = counter("parley_underrun_seconds", "Time that listeners were dry")
        self.registry.register(_Scraped(partial(_engine_report, stats, replicas)))
        if quotas is not None:
            self.registry.register(_Scraped(partial(_quota_report, quotas)))
        if budgets is not None:
            self.registry.register(_Scraped(partial(_bandwidth_report, budgets)))

    def page(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)


def _tasks() -> float:
    """Count the tasks. Between sessions there are always as many: more of them each time would be a leak."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # a scrape from outside the loop
        return 0


class _Scraped(Collector):
    """Metrics that a function reports at the moment of the scrape."""

    def __init__(self, report: Callable[[], Iterable[Metric]]) -> None:
        self._report = report

    def collect(self) -> Iterable[Metric]:
        return self._report()


Column = tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, Callable[[Any], float]]
"""A metric's type, name and description, and the function that reads its value."""

_STAGE_COLUMNS: tuple[Column, ...] = (
    (GaugeMetricFamily, "parley_stage_replicas", "Live replicas", lambda stage: stage.get("replicas", 0)),
    (GaugeMetricFamily, "parley_stage_leased", "Slots in use", lambda stage: stage.get("leased", 0)),
    (GaugeMetricFamily, "parley_queue", "Requests waiting for a slot", lambda stage: stage.get("waiting", 0)),
)
_REPLICA_COLUMNS: tuple[Column, ...] = (
    (GaugeMetricFamily, "parley_replica_leased", "Slots in use", lambda one: one.leased),
    (GaugeMetricFamily, "parley_replica_queue", "Requests that had to wait for a step", lambda one: one.queue),
    (GaugeMetricFamily, "parley_replica_step_seconds", "How long a step takes", lambda one: one.step_ms / 1000),
    (GaugeMetricFamily, "parley_replica_incarnation", "Workers that had this place", lambda one: one.incarnation),
)
_PREFIX_COLUMNS: tuple[Column, ...] = (
    (CounterMetricFamily, "parley_prefix_asked", "Positions of prompts that were looked up", lambda one: one.asked),
    (
        CounterMetricFamily,
        "parley_prefix_reused",
        "Positions of prompts that were not computed again",
        lambda one: one.reused,
    ),
    (CounterMetricFamily, "parley_prefix_hits", "Look-ups that found something", lambda one: one.hits),
    (CounterMetricFamily, "parley_prefix_evicted", "Prefixes forgotten for want of room", lambda one: one.evicted),
    (GaugeMetricFamily, "parley_prefix_bytes", "Memory of the prefixes that are kept", lambda one: one.held_bytes),
)


def _table(
    columns: Iterable[Column], labels: Sequence[str], rows: Mapping[tuple[str, ...], object]
) -> Iterator[Metric]:
    """Yield one metric for each column, with one sample for each row. A row's key is its labels' values."""
    for kind, name, description, value in columns:
        family = kind(name, description, labels=labels)
        for where, row in rows.items():
            family.add_metric(where, value(row))
        yield family


def _engine_report(stats: Callable[[], Stats], replicas: Callable[[], Replicas]) -> Iterator[Metric]:
    """Yield the figures of each stage and of each replica, since an average would hide a slow replica."""
    yield from _table(_STAGE_COLUMNS, ["stage"], {(stage,): figures for stage, figures in stats().items()})
    # The latest of each name: while a new worker starts, its predecessor may still drain.
    latest = {(one.stage, one.replica): one for one in replicas()}
    yield from _table(_REPLICA_COLUMNS, ["stage", "replica"], latest)
    prefixes = {where: one.remembered for where, one in latest.items() if one.remembered is not None}
    yield from _table(_PREFIX_COLUMNS, ["stage", "replica"], prefixes)


def _quota_report(quotas: HeldCollector) -> Iterator[Metric]:
    """Yield the places that each key holds, and how often it was refused one."""
    labels = ["kind", "key"]
    held = GaugeMetricFamily("parley_share_held", "Places that a key holds, by the key's name", labels=labels)
    refused = CounterMetricFamily("parley_share_refused", "Places refused for the share's sake", labels=labels)
    for family, figures in ((held, quotas.held()), (refused, quotas.refused())):
        for kind, owner, count in figures:
            family.add_metric([kind, owner], count)
        yield family


def _bandwidth_report(budgets: ReceivedCollector) -> Iterator[Metric]:
    """Yield the bytes that the clients of each key have sent, and how often they had to wait for its budget."""
    received = CounterMetricFamily("parley_received_bytes", "Bytes that a key's clients sent", labels=["key"])
    slowed = CounterMetricFamily("parley_received_slowed", "Waits for the budget of a key's bytes", labels=["key"])
    for owner, size, waits in budgets.received():
        received.add_metric([owner], size)
        slowed.add_metric([owner], waits)
    yield from (received, slowed)


_LINES = LogRateLimiter()


def log(event: str, **fields: object) -> None:
    """One line: ``session.opened session=sess_… client=127.0.0.1``. Fields are ids, counts, names and times only.

    Of many about the same client some are left out; the next one says how many.
    """
    if _LOGGER.isEnabledFor(logging.INFO) and (line := _line(event, fields)) is not None:
        _LOGGER.info("%s", line)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request: its id, the name of the key that it came with, and its address."""

    id: str = NOBODY
    key: str = NOBODY
    address: str = ""

    @property
    def owner(self) -> str:
        """Whose it is as far as turns are concerned: the key's, or without keys the address's."""
        return self.key if self.key != NOBODY else subscriber(self.address)


ASKED: ContextVar[RequestContext] = ContextVar("asked", default=RequestContext())  # noqa: B039 - it is frozen
"""The request that the current task, or the one that began it, belongs to."""


def audit(event: str, **fields: object) -> None:
    """Log a line about what a user did: their key's name, the request, the event and its size. It never holds what was
    said."""
    asked = ASKED.get()
    log(event, key=asked.key, request=asked.id, **fields)


def log_failure(event: str, **fields: object) -> None:
    """A bug of ours: the line, and where it happened."""
    if (line := _line(event, fields)) is not None:
        _LOGGER.exception("%s", line)


def configure_logging(level: str = "INFO") -> LineWriter:
    """Send our lines and the engine's to stderr, with time and level, for the process that serves.

    Libraries write their warnings only. No line waits for the reader of stderr. Returns the writer.
    """
    handler = LineWriter()
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    for logger in (_LOGGER, _ENGINE):
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
    libraries = logging.getLogger()
    libraries.handlers[:] = [handler]
    handler.addFilter(_of_libraries)
    return handler


def _of_libraries(record: logging.LogRecord) -> bool:
    """Whether a line may be written: ours are counted where they are made."""
    if record.name.partition(".")[0] in (_LOGGER.name, _ENGINE.name.partition(".")[0]):
        return True
    return record.levelno >= logging.WARNING and _LINES.admit(record.name, record.name, time.monotonic()) is not None


def _line(event: str, fields: dict[str, object]) -> str | None:
    """The line's text; None where there were too many of its kind."""
    left_out = _LINES.admit(event, subject_of(fields), time.monotonic())
    if left_out is None:
        return None
    shown = {**fields, "left_out": left_out} if left_out else fields
    return " ".join([event, *(f"{name}={_word(value)}" for name, value in shown.items())])


def _word(value: object) -> str:
    """A value as one word that cannot fake another field or another line."""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)[:200]
    return text if text.isascii() and text.isprintable() and text and not set(' "=') & set(text) else json.dumps(text)
