"""Telemetry: Prometheus metrics, and one log line for each event of interest.

Neither ever contains speech, text or keys.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import engine
from app.client_address import subscriber
from app.limits.bandwidth import Bandwidth
from app.limits.log_rate_limiter import NOBODY, LogRateLimiter, subject_of
from engine import ReplicaInfo
from engine.aio.log_handler import LineWriter

_LOGGER = logging.getLogger("parley")
_ENGINE = logging.getLogger(engine.__name__)
_SECONDS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 5.0, 10.0)
_RATIOS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.5, 2.0)


class HeldCollector(Protocol):
    """Source of each key's use of its quotas: kind, key name and count."""

    def held(self) -> Iterable[tuple[str, str, int]]: ...

    def refused(self) -> Iterable[tuple[str, str, int]]: ...


class BandwidthCollector(Protocol):
    """Source of each key's bandwidth."""

    def usage(self) -> Iterable[tuple[str, Bandwidth]]: ...


Stats = Mapping[str, Mapping[str, int]]
Replicas = Sequence[ReplicaInfo]


class Metrics:
    """The metrics of one server, in a separate registry."""

    def __init__(
        self,
        stats: Callable[[], Stats] = dict,
        replicas: Callable[[], Replicas] = tuple,
        quotas: HeldCollector | None = None,
        budgets: BandwidthCollector | None = None,
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
        self.turns = counter("parley_turns", "Turns of users, and how they ended", ["what"])
        self.summaries = counter(
            "parley_summaries", "Summaries of older turns by their source, and dropped ones", ["source"]
        )
        self.answers = counter("parley_http_answers", "HTTP answers by their end", ["status"])
        self.http_waiting = gauge("parley_http_waiting", "HTTP answers that wait for a slot")
        self.held_bytes = gauge("parley_held_bytes", "Memory held for clients in bytes", ["kind"])
        self.kept = gauge("parley_kept_responses", "Responses stored for previous_response_id")
        self.kept_bytes = gauge("parley_kept_bytes", "Memory of the stored responses in bytes")
        self.errors = counter("parley_errors", "Error events by code", ["code"])
        self.ttfa_s = histogram("parley_ttfa_seconds", "From commit to the first audio sent", buckets=_SECONDS)
        self.rtf = histogram("parley_rtf", "Time to produce an answer's audio over its length", buckets=_RATIOS)
        self.underruns = counter("parley_underruns", "Playback underruns at listeners")
        self.underrun_s = counter("parley_underrun_seconds", "Duration of playback underruns in seconds")
        self.duplex_dropped_s = counter(
            "parley_duplex_dropped_seconds",
            "Audio of duplex sessions that was dropped: input too fast, output late or unread",
            ["what"],
        )
        self.registry.register(_Scraped(partial(_engine_report, stats, replicas)))
        if quotas is not None:
            self.registry.register(_Scraped(partial(_quota_report, quotas)))
        if budgets is not None:
            self.registry.register(_Scraped(partial(_bandwidth_report, budgets)))

    def page(self) -> bytes:
        """Return the Prometheus text format."""
        return generate_latest(self.registry)


def _tasks() -> float:
    """Count the event loop's tasks. Their number between sessions is constant; a rising one would be a leak."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # a scrape from outside the loop
        return 0


class _Scraped(Collector):
    """Metrics that a function computes at each scrape."""

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
    (GaugeMetricFamily, "parley_replica_queue", "Requests waiting for a step", lambda one: one.queue),
    (GaugeMetricFamily, "parley_replica_step_seconds", "Duration of a step", lambda one: one.step_ms / 1000),
    (GaugeMetricFamily, "parley_replica_incarnation", "Workers started for this replica", lambda one: one.incarnation),
)
_PREFIX_COLUMNS: tuple[Column, ...] = (
    (CounterMetricFamily, "parley_prefix_asked", "Prompt positions looked up in the cache", lambda one: one.asked),
    (CounterMetricFamily, "parley_prefix_reused", "Prompt positions reused from the cache", lambda one: one.reused),
    (CounterMetricFamily, "parley_prefix_hits", "Prefix cache hits", lambda one: one.hits),
    (CounterMetricFamily, "parley_prefix_evicted", "Prefixes evicted from the cache", lambda one: one.evicted),
    (GaugeMetricFamily, "parley_prefix_bytes", "Memory of the prefix cache in bytes", lambda one: one.held_bytes),
)
_DUPLEX_COLUMNS: tuple[Column, ...] = (
    (CounterMetricFamily, "parley_duplex_frames", "Frames of duplex sessions stepped", lambda one: one.frames),
    (CounterMetricFamily, "parley_duplex_concealed", "Frames without the user's sound", lambda one: one.concealed),
    (CounterMetricFamily, "parley_duplex_dropped", "Frames of sound that came too late", lambda one: one.dropped),
    (CounterMetricFamily, "parley_duplex_late", "Frames whose output was late", lambda one: one.late),
    (CounterMetricFamily, "parley_duplex_skipped", "Frames for which the device had no time", lambda one: one.skipped),
    (CounterMetricFamily, "parley_duplex_unread", "Frames whose output was not read", lambda one: one.unread),
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
    frames = {where: one.duplex for where, one in latest.items() if one.duplex is not None}
    yield from _table(_DUPLEX_COLUMNS, ["stage", "replica"], frames)


def _quota_report(quotas: HeldCollector) -> Iterator[Metric]:
    """Yield the quota use of each key, and how often it was refused."""
    labels = ["kind", "key"]
    held = GaugeMetricFamily("parley_share_held", "Quota in use, by key name", labels=labels)
    refused = CounterMetricFamily("parley_share_refused", "Requests refused because of the quota", labels=labels)
    for family, figures in ((held, quotas.held()), (refused, quotas.refused())):
        for kind, owner, count in figures:
            family.add_metric([kind, owner], count)
        yield family


def _bandwidth_report(budgets: BandwidthCollector) -> Iterator[Metric]:
    """Yield the bytes received from each key's clients and sent to them, and how often they had to wait."""
    received = CounterMetricFamily("parley_received_bytes", "Bytes received from the clients of a key", labels=["key"])
    sent = CounterMetricFamily("parley_sent_bytes", "Bytes sent to the clients of a key", labels=["key"])
    slowed = CounterMetricFamily("parley_received_slowed", "Waits for the bandwidth of a key", labels=["key"])
    for owner, one in budgets.usage():
        received.add_metric([owner], one.received.bytes)
        sent.add_metric([owner], one.sent.bytes)
        slowed.add_metric([owner], one.received.slowed + one.sent.slowed)
    yield from (received, sent, slowed)


_LINES = LogRateLimiter()


def log(event: str, **fields: object) -> None:
    """Write one log line: ``session.opened session=sess_… client=127.0.0.1``.

    Fields are only ids, counts, names and times. If there are too many lines about a client, some are dropped, and the
    next one reports their number.
    """
    if _LOGGER.isEnabledFor(logging.INFO) and (line := _line(event, fields)) is not None:
        _LOGGER.info("%s", line)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request: its id, the name of its key, and its address."""

    id: str = NOBODY
    key: str = NOBODY
    address: str = ""
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its headers ``traceparent`` and ``tracestate``, as the client sent them."""

    @property
    def owner(self) -> str:
        """The name that scheduling uses: the key's, or without keys the address."""
        return self.key if self.key != NOBODY else subscriber(self.address)


ASKED: ContextVar[RequestContext] = ContextVar("asked", default=RequestContext())  # noqa: B039 - it is frozen
"""The request that the current task or its parent belongs to."""


def audit(event: str, **fields: object) -> None:
    """Log what a user did: the key's name, the request, the event and its size, but never contents."""
    asked = ASKED.get()
    log(event, key=asked.key, request=asked.id, **fields)


def log_failure(event: str, **fields: object) -> None:
    """Log a bug of ours with its traceback."""
    if (line := _line(event, fields)) is not None:
        _LOGGER.exception("%s", line)


def configure_logging(level: str = "INFO") -> LineWriter:
    """Send our log lines and the engine's to stderr, with time and level. Returns the writer.

    Libraries log only warnings. Writing never waits for the reader of stderr.
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
    """Return whether a library's line may be written. Our own lines are limited in ``log``."""
    if record.name.partition(".")[0] in (_LOGGER.name, _ENGINE.name.partition(".")[0]):
        return True
    return record.levelno >= logging.WARNING and _LINES.admit(record.name, record.name, time.monotonic()) is not None


def _line(event: str, fields: dict[str, object]) -> str | None:
    """Return the text of a line, or None if there were too many of its kind."""
    left_out = _LINES.admit(event, subject_of(fields), time.monotonic())
    if left_out is None:
        return None
    shown = {**fields, "left_out": left_out} if left_out else fields
    return " ".join([event, *(f"{name}={_word(value)}" for name, value in shown.items())])


def _word(value: object) -> str:
    """Return a value as one word, escaped so that it can't imitate another field or line."""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)[:200]
    return text if text.isascii() and text.isprintable() and text and not set(' "=') & set(text) else json.dumps(text)
