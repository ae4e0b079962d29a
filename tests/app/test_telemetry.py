"""What the server says about itself, and what it must never say."""

from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from app.limits.log_rate_limiter import EACH_AT_ONCE
from app.telemetry import Metrics, configure_logging, log
from engine import DuplexCounts, Remembered, ReplicaInfo
from engine.aio.log_handler import LineWriter
from tests.app.rig import LoudnessVad, keys_file, running, script_spec, silence, talking, tone

SECRETS = ("swordfish", "marzipan", "sk-secret-of-this-test", "zanzibar")


@pytest.mark.fault("S2.3")
async def test_no_log_line_holds_what_was_said_or_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="parley")
    keys = keys_file(tmp_path, "sk-secret-of-this-test")
    headers = {"Authorization": "Bearer sk-secret-of-this-test"}
    spec = script_spec(keys_file=keys)
    async with running(spec, vad=LoudnessVad) as server, talking(server, additional_headers=headers) as client:
        await client.configure(instructions="marzipan", audio={"input": {"transcription": {}}})
        await client.ask("say: swordfish", metadata={"zanzibar": "zanzibar"})
        await client.ask("fail")
        await client.send("response.create", response={"metadata": "zanzibar"})
        await client.error()
        await client.append(tone(0.4))
        await client.append(silence(0.8))
        await client.until("response.done")
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name == "parley")
    text = ours + str(server.service.metrics.page())
    assert "session.opened" in text
    assert "response.done" in text
    assert "seconds" not in ours  # the transcript of the turn
    assert not [word for word in SECRETS if word in text]


def test_a_value_cannot_fake_a_field_or_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="parley")
    log("event", a="x b=1", c="two\nlines", d=1.5, e="", f="plain", g='"', h="\x1b[31m", i="ä")
    assert caplog.messages == [
        'event a="x b=1" c="two\\nlines" d=1.500 e="" f=plain g="\\"" h="\\u001b[31m" i="\\u00e4"'
    ]


@pytest.fixture
def writer() -> Generator[LineWriter]:
    """What a server's process sets up, and the loggers put back as they were."""
    all = [logging.getLogger(name) for name in ("parley", "engine", None)]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in all]
    handler = configure_logging()
    yield handler
    handler.close()
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


def test_lines_carry_time_and_level(writer: LineWriter, capfd: pytest.CaptureFixture[str]) -> None:
    log("server.ready", model="nano")
    writer.flush()
    line = capfd.readouterr().err.strip()
    assert line.endswith("INFO server.ready model=nano")
    assert line[:2] == "20"


def test_the_engines_warnings_are_in_the_servers_log_once(
    writer: LineWriter, capfd: pytest.CaptureFixture[str]
) -> None:
    """A lost worker is what an operator looks for there."""
    logging.getLogger("engine.control.fleet").warning("the worker %s was lost", "worker1.0#3")
    logging.getLogger("engine.control.fleet").debug("of no interest")
    writer.flush()
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["WARNING the worker worker1.0#3 was lost"]


def test_what_libraries_warn_of_is_there_and_bounded(writer: LineWriter, capfd: pytest.CaptureFixture[str]) -> None:
    """A stranger's datagrams are worth a traceback each to some."""
    for _ in range(100):
        logging.getLogger("aioice.ice").warning("what is this?")
    logging.getLogger("aioice.ice").info("of no interest")
    writer.flush()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == EACH_AT_ONCE
    assert all(line.endswith("WARNING what is this?") for line in lines)


def test_what_stages_remember_is_told_of_each_replica_that_remembers() -> None:
    kept = Remembered(asked=90, reused=40, hits=3, evicted=2, held_bytes=1000)
    about: dict[str, Any] = {
        "incarnation": 1,
        "state": "up",
        "leased": 0,
        "slots": 4,
        "queue": 0,
        "step_ms": 1.0,
        "age_s": 1.0,
    }
    replicas = [
        ReplicaInfo(stage="thinker", replica="worker0.0", remembered=kept, **about),
        ReplicaInfo(stage="code2wav", replica="worker0.0", **about),
    ]
    lines = Metrics(replicas=lambda: replicas).page().decode().splitlines()
    found = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if line.startswith("parley_prefix_")}
    assert found == {
        "parley_prefix_asked_total": "90.0", "parley_prefix_reused_total": "40.0", "parley_prefix_hits_total": "3.0",
        "parley_prefix_evicted_total": "2.0", "parley_prefix_bytes": "1000.0",
    }  # fmt: skip
    assert not [line for line in lines if line.startswith("parley_prefix_") and "code2wav" in line]


def test_the_frames_of_duplex_sessions_are_counted_by_replica() -> None:
    counts = DuplexCounts(frames=70, concealed=6, dropped=5, late=4, skipped=3, unread=2)
    replica = ReplicaInfo(
        stage="duplex", replica="worker0.0", incarnation=1, state="up", leased=1, slots=4, queue=0, step_ms=1.0,
        age_s=1.0, duplex=counts,
    )  # fmt: skip
    registry = Metrics(replicas=lambda: [replica]).registry
    labels = {"stage": "duplex", "replica": "worker0.0"}
    found = {name: registry.get_sample_value(f"parley_duplex_{name}_total", labels) for name in asdict(counts)}
    assert found == asdict(counts)


@pytest.mark.seed("A3.11")
def test_each_replica_of_each_stage_has_figures_of_its_own() -> None:
    replicas = [
        ReplicaInfo(
            stage=stage, replica=f"worker{n}.0", incarnation=n, state="up", leased=10 * n, slots=64, queue=100 * n,
            step_ms=1000.0 * n, age_s=1.0, remembered=Remembered(asked=n, reused=n, hits=n, evicted=n, held_bytes=n),
        )
        for n, stage in enumerate(("thinker", "talker", "talker"), 1)
    ]  # fmt: skip
    registry = Metrics(replicas=lambda: replicas).registry
    for n, one in enumerate(replicas, 1):
        labels = {"stage": one.stage, "replica": one.replica}
        figures = {"leased": 10 * n, "queue": 100 * n, "step_seconds": n, "incarnation": n}
        assert {name: registry.get_sample_value(f"parley_replica_{name}", labels) for name in figures} == figures
        assert registry.get_sample_value("parley_prefix_bytes", labels) == n


def test_each_server_has_its_own_registry() -> None:
    one, other = Metrics(), Metrics(lambda: {"talker": {"replicas": 2, "leased": 1, "waiting": 3}})
    one.sessions.set(5)
    assert b"parley_sessions 0.0" in other.page()
    assert b'parley_queue{stage="talker"} 3.0' in other.page()
