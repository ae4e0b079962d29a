"""Checks of a deployment that runs: answers over each way, the dashboard's queries, and the drain."""

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
"""Pages that Parley itself has, and answers with another status than 404."""
TALK_S = 120.0
SCRAPED_S = 60.0
UNTIL_IT_HAPPENS = ("by (why)", "by (code)")
"""Figures that have no series before their first event: a refusal, an error."""


@dataclass(frozen=True)
class Place:
    """The files of Caddy's authority, and of a key."""

    certificate: Path
    keys: Path


def check_health(parley: Running) -> Iterator[str]:
    if not parley.healthy():
        raise Failed("the image's health check says that Parley is not ready")
    yield "health check of the image: ready"


def check_answers(place: Place) -> Iterator[str]:
    """A spoken answer over each way, and none where there is no way. Raises Failed."""
    yield f"wss through Caddy: {talk('wss', place, [])}"
    network.block_udp_but_turn()
    caller = ["ip", "netns", "exec", "caller"]
    if (answer := _talked("direct", place, caller)).returncode == 0:
        raise Failed(f"the firewall blocks nothing: a call without TURN was answered: {answer.stdout}")
    yield "WebRTC without TURN, UDP blocked: no answer, as it must be"
    yield f"WebRTC by TURN over UDP alone: {talk('udp', place, caller)}"
    network.block_udp()
    yield f"WebRTC by TURN over TCP, no UDP at all: {talk('tcp', place, caller)}"


def talk(way: str, place: Place, inside: list[str], url: str = URL) -> str:
    """Describe the answer. Raises Failed."""
    done = _talked(way, place, inside, url)
    if done.returncode != 0:
        raise Failed(f"{way}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout.strip()


def _talked(way: str, place: Place, inside: list[str], url: str = URL) -> subprocess.CompletedProcess[str]:
    words = ["-m", "scripts.containers.talk", way, url, str(place.certificate), str(place.keys)]
    command = [*inside, sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TALK_S)


def check_hidden(url: str = URL) -> Iterator[str]:
    """Ask for the pages that Caddy passes on to nobody. Raises Failed."""
    for path in HIDDEN:
        try:
            with urllib.request.urlopen(f"{url}{path}", context=_anyone(), timeout=10) as answer:
                status = answer.status
        except HTTPError as refused:
            status = refused.code
        if status != 404:
            raise Failed(f"{path} is open to the world: {status}")
    yield "/metrics and /admin: hidden behind Caddy"


def _anyone() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def dashboard_queries() -> list[str]:
    """Every expression of the dashboard."""
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def wait_scraped() -> None:
    """Wait until Prometheus has seen Parley, so that what happens from now on is a change. Raises Failed."""
    deadline_s = time.monotonic() + SCRAPED_S
    while time.monotonic() < deadline_s:
        if _values('up{job="parley"}') == [1.0]:
            return
        time.sleep(1)
    raise Failed("Prometheus does not get Parley's metrics")


def check_queries() -> Iterator[str]:
    """Ask Prometheus each question of the dashboard. Raises Failed."""
    deadline_s = time.monotonic() + SCRAPED_S
    while unanswered := [one for one in dashboard_queries() if not _has_figures(one)]:
        if time.monotonic() > deadline_s:
            raise Failed(f"Prometheus has no figures for {'; '.join(unanswered)}")
        time.sleep(2)
    yield f"Prometheus answers all {len(dashboard_queries())} queries of the dashboard"


def _has_figures(query: str) -> bool:
    values = _values(query)
    return any(map(math.isfinite, values)) or any(part in query for part in UNTIL_IT_HAPPENS)


def _values(query: str) -> list[float]:
    """The values of a query now. Raises Failed where it is none."""
    asking = f"{PROMETHEUS}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(asking, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
    except HTTPError as refused:
        raise Failed(f"Prometheus refuses {query}: {refused.read().decode()[:300]}") from None
    return [float(one["value"][1]) for one in found]


def check_stop(parley: Running) -> Iterator[str]:
    """SIGTERM drains, and the container ends well before it would be killed. Raises Failed."""
    code = parley.stop()
    if code != 0 or "server.draining" not in parley.said:
        raise Failed(f"Parley ended with {code} on SIGTERM, and said:\n{parley.said}")
    yield "SIGTERM: drained, and ended by itself"
