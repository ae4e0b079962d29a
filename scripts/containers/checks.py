"""Checks of a running deployment: answers over each transport, the dashboard's queries, and draining."""

from __future__ import annotations

import json
import math
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError

from scripts.containers import network
from scripts.containers.machine import ROOT, Failed
from scripts.containers.services import DEPLOY, Running

URL = f"https://{network.NAME}"
PROMETHEUS = "http://127.0.0.1:9090"
HIDDEN = ("/metrics", "/admin/workers")
"""Pages that Parley itself serves with a status other than 404."""
TALK_S = 120.0
SCRAPED_S = 60.0
UNTIL_IT_HAPPENS = ("by (why)", "by (code)")
"""Parts of queries whose metrics have no series before their first event, such as a refusal or an error."""


@dataclass(frozen=True)
class Place:
    """The files with the certificate of Caddy's authority, and with the API keys."""

    certificate: Path
    keys: Path


def check_health(parley: Running) -> Iterator[str]:
    if not parley.healthy():
        raise Failed("the image's health check says that Parley is not ready")
    yield "health check of the image: ready"


def check_answers(place: Place) -> Iterator[str]:
    """Ask by voice over each transport; where the firewall leaves no route, expect no answer. Raises Failed."""
    yield f"wss through Caddy: {talk('wss', place, [])}"
    network.block_udp_but_turn()
    caller = ["ip", "netns", "exec", "caller"]
    if (answer := _talked("direct", place, caller)).returncode == 0:
        raise Failed(f"the firewall does not work: a call without TURN was answered: {answer.stdout}")
    yield "WebRTC without TURN, UDP blocked: no answer, as expected"
    yield f"WebRTC through TURN over UDP, other UDP blocked: {talk('udp', place, caller)}"
    network.block_udp()
    yield f"WebRTC through TURN over TCP, all UDP blocked: {talk('tcp', place, caller)}"


def talk(way: str, place: Place, inside: list[str], url: str = URL) -> str:
    """Ask by voice, and return a description of the answer. Raises Failed if there is none."""
    done = _talked(way, place, inside, url)
    if done.returncode != 0:
        raise Failed(f"{way}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout.strip()


def _talked(way: str, place: Place, inside: list[str], url: str = URL) -> subprocess.CompletedProcess[str]:
    words = ["-m", "scripts.containers.talk", way, url, str(place.certificate), str(place.keys)]
    command = [*inside, sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TALK_S)


def check_hidden(url: str = URL) -> Iterator[str]:
    """Check that Caddy does not serve Parley's internal pages. Raises Failed."""
    for path in HIDDEN:
        try:
            with urllib.request.urlopen(f"{url}{path}", context=_anyone(), timeout=10) as answer:
                status = answer.status
        except HTTPError as refused:
            status = refused.code
        if status != 404:
            raise Failed(f"{path} is open to everyone: status {status}")
    yield "/metrics and /admin: not served by Caddy"


def _anyone() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def dashboard_queries() -> list[str]:
    """Return every expression of the dashboard."""
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def wait_scraped() -> None:
    """Wait until Prometheus has scraped Parley once, so that later events show as changes. Raises Failed."""
    deadline_s = time.monotonic() + SCRAPED_S
    while time.monotonic() < deadline_s:
        if _values('up{job="parley"}') == [1.0]:
            return
        time.sleep(1)
    raise Failed("Prometheus could not scrape Parley's metrics in time")


def check_queries() -> Iterator[str]:
    """Run every query of the dashboard in Prometheus. Raises Failed if one has no result in time."""
    deadline_s = time.monotonic() + SCRAPED_S
    while unanswered := [one for one in dashboard_queries() if not _has_figures(one)]:
        if time.monotonic() > deadline_s:
            raise Failed(f"Prometheus has no values for {'; '.join(unanswered)}")
        time.sleep(2)
    yield f"Prometheus answers all {len(dashboard_queries())} queries of the dashboard"


def _has_figures(query: str) -> bool:
    values = _values(query)
    return any(map(math.isfinite, values)) or any(part in query for part in UNTIL_IT_HAPPENS)


def _values(query: str) -> list[float]:
    """Return the current values of a query. Raises Failed if Prometheus rejects it."""
    asking = f"{PROMETHEUS}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(asking, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
    except HTTPError as refused:
        raise Failed(f"Prometheus rejects {query}: {refused.read().decode()[:300]}") from None
    return [float(one["value"][1]) for one in found]


def check_stop(parley: Running) -> Iterator[str]:
    """Check that SIGTERM drains Parley, and that the container ends before the grace period is over. Raises Failed."""
    code = parley.stop()
    if code != 0 or "server.draining" not in parley.said:
        raise Failed(f"Parley ended with {code} on SIGTERM; its output:\n{parley.said}")
    yield "SIGTERM: drained, then exited"
