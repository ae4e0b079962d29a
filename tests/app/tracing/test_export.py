"""The export of spans: to a receiver of OTLP over HTTP, and to one that is down."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.settings import Otel, settings_of
from app.tracing import Tracing
from app.tracing.export import BATCH
from engine import ConfigError
from tests.app.rig import LoudnessVad, running, script_spec, talking


class Receiver(HTTPServer):
    """A collector that keeps the spans, or answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.refused = 0
        self.requests: list[ExportTraceServiceRequest] = []
        self.endpoint = f"http://127.0.0.1:{self.server_port}/v1/traces"

    def names(self) -> list[str]:
        return [
            span.name
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, Receiver)
        if self.server.status == 200:
            self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        else:
            self.server.refused += 1
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def receiving() -> Generator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


async def test_a_collector_receives_the_spans() -> None:
    with receiving() as receiver:
        spec = script_spec(otel={"endpoint": receiver.endpoint}, name="a")
        async with running(spec, vad=LoudnessVad) as server, talking(server) as client:
            await client.ask("say: hello")
    assert set(receiver.names()) == {"session", "invoke_agent", "llm thinker", "tts talker", "tts code2wav"}
    resource = receiver.requests[0].resource_spans[0].resource
    about = {one.key: one.value.string_value for one in resource.attributes}
    assert (about["service.name"], about["service.instance.id"]) == ("parley", "a")


def test_a_collector_that_is_down_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with receiving() as receiver:
        receiver.status = 400
        tracing = Tracing(Otel(endpoint=receiver.endpoint))
        tracing.start()
        export = tracing._export
        assert export is not None
        for status in (400, 400, 200, 200, 400):
            receiver.status = status
            export.root("probe", {}).end()
            export._provider.force_flush()
        tracing.close()
    lines = [record.getMessage().split()[0] for record in caplog.records if record.name == "parley"]
    assert lines == ["tracing.export_failed", "tracing.export_resumed", "tracing.export_failed"]
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


async def test_a_server_without_its_collector_answers_as_always() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"
        async with running(script_spec(otel={"endpoint": endpoint}), vad=LoudnessVad) as server:
            async with talking(server) as client:
                await client.ask("say: hello")
            async with httpx.AsyncClient(base_url=server.http) as http:
                assert (await http.get("/health")).status_code == 200


def test_a_server_that_stops_does_not_retry_a_collector_that_fails() -> None:
    with receiving() as receiver:
        receiver.status = 400
        tracing = Tracing(Otel(endpoint=receiver.endpoint))
        tracing.start()
        export = tracing._export
        assert export is not None
        export._exporter.closing = True
        for _ in range(3 * BATCH):
            export.root("probe", {}).end()
        export._provider.force_flush()
        tracing.close()
        assert receiver.refused == 1


@pytest.mark.slow
async def test_the_event_loop_never_waits_for_a_collector() -> None:
    """A collector that accepts connections, and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracing = Tracing(Otel(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"))
        tracing.start()
        export = tracing._export
        assert export is not None
        flushing = asyncio.create_task(asyncio.to_thread(export._provider.force_flush))
        for _ in range(5000):  # more than the queue holds
            export.root("probe", {}).end()
        flushing.cancel()
        silent.close()
        await asyncio.to_thread(tracing.close)


@pytest.mark.slow
def test_a_server_without_an_endpoint_loads_no_exporter() -> None:
    code = "import sys, app.server; print([name for name in sys.modules if name.startswith('opentelemetry.')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "opentelemetry.sdk" not in found
    assert "opentelemetry.exporter" not in found


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "http://ann:secret@127.0.0.1:4318", "http://a/b?key=1"])
def test_a_bad_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.otel\.endpoint: must be"):
        settings_of({"otel": {"endpoint": endpoint}})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.settings.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the OpenTelemetry packages.*otel"):
        settings_of({"otel": {"endpoint": "http://127.0.0.1:4318/v1/traces"}})
