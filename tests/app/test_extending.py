"""CONTRIBUTING.md: its route works as written, and the files and names that it mentions exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from app.realtime.protocol import client_events, from_wire, server_events, to_wire
from app.service import Service
from tests.app.rig import running, script_spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NEW = {
    "app/http/echo.py": "def echo(",
    "tests/app/http/test_echo.py": "async def test_a_word_is_repeated",
    "tests/app/transports/test_ping.py": "async def test_a_ping_is_answered",
}
"""Files that the reader writes, with a line that only the file's block has."""
NAMES = {
    "app/realtime/protocol/client_events.py": ("ClientEvent = ",),
    "app/realtime/protocol/server_events.py": ("PlainEvent = ",),
    "app/realtime/protocol/from_wire.py": ("_EVENTS: ", "class _Encoded", "class _Delay"),
    "app/realtime/protocol/to_wire.py": ("_PLAIN: ", "def _session_events"),
    "app/realtime/session.py": ("def _obey", "self._emit(server_events."),
    "app/http/body.py": ("class StrictRoute",),
    "app/server.py": ("ROUTERS = ",),
    "tests/app/rig.py": ("OURS: ",),
    "tests/app/test_routes.py": ("ROWS: ",),
}


def block(part: str) -> str:
    (found,) = [one for one in BLOCKS if part in one]
    return found


def defined(code: str, **known: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "extending", **known}
    exec(compile(code, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    return names


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_the_route_answers_as_its_test_expects() -> None:
    async with running(script_spec()) as server:
        app: Any = server.server.config.app
        service: Service = server.service
        app.include_router(defined(block("def echo("))["echo"](service))
        app.router.routes.insert(0, app.router.routes.pop())
        await defined(block("async def test_a_word_is_repeated"))["test_a_word_is_repeated"](server)


def test_the_event_is_decoded_and_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {
        name: defined(block("class Ping").replace("Ping", name), Struct=Struct)[name] for name in ("Ping", "PongEvent")
    }
    for module, kind in ((client_events, kinds["Ping"]), (server_events, kinds["PongEvent"])):
        monkeypatch.setattr(module, kind.__name__, kind, raising=False)
    monkeypatch.setattr(server_events, "PlainEvent", server_events.PlainEvent | kinds["PongEvent"])
    decoded = defined(block("_EVENTS = {"), client_events=client_events)["_EVENTS"]
    encoded = defined(block("_PLAIN = {"), server_events=server_events)["_PLAIN"]
    monkeypatch.setattr(from_wire, "_EVENTS", from_wire._EVENTS | decoded)
    monkeypatch.setattr(to_wire, "_PLAIN", to_wire._PLAIN | encoded)
    received = from_wire.decode('{"type": "parley.ping", "note": "hello"}')
    assert received.event == kinds["Ping"]("hello")
    (text,) = to_wire.encode(kinds["PongEvent"]("hello"))
    assert msgspec.json.decode(text) | {"event_id": ""} == {"type": "parley.pong", "note": "hello", "event_id": ""}


@pytest.mark.parametrize(("file", "part"), NEW.items())
def test_a_new_file_passes_the_checks(file: str, part: str) -> None:
    """`make check` refuses, for example, a test without a docstring."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", file, "-"]
    checked = subprocess.run(command, cwd=ROOT, input=block(part), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("code", BLOCKS)
def test_a_block_is_python(code: str) -> None:
    match code.lstrip()[:5]:
        case "case ":
            ast.parse(f"match 0:\n{code}")
        case '("GET':
            ast.parse(f"{{{code}}}")
        case _:
            ast.parse(code)


def test_the_files_exist_and_have_the_names() -> None:
    named = set(re.findall(r"\b(?:app|tests)/[\w/]+\.py", PAGE))
    assert named >= NEW.keys()
    assert [path for path in named - NEW.keys() if not (ROOT / path).is_file()] == []
    assert NAMES.keys() <= named
    for path, names in NAMES.items():
        assert [name for name in names if name not in (ROOT / path).read_text(encoding="utf-8")] == [], path
