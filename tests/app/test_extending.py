"""app/EXTENDING.md: its route works as written, and the files and names that it mentions exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from app.service import Service
from tests.app.rig import running, script_spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "app" / "EXTENDING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NEW = {"app/http/echo.py", "tests/app/http/test_echo.py", "tests/app/transports/test_ping.py"}
"""Files that the reader writes."""
NAMES = {
    "app/realtime/protocol/client_events.py": ("ClientEvent = ",),
    "app/realtime/protocol/server_events.py": ("SessionEvent = ",),
    "app/realtime/protocol/from_wire.py": ("_EVENTS",),
    "app/realtime/protocol/to_wire.py": ("def _session_events",),
    "app/realtime/session.py": ("def _obey", "self._emit(server_events."),
    "app/http/body.py": ("class StrictRoute",),
    "app/server.py": ("def app_of", "routers = "),
    "app/transports/channel.py": ("class Transport",),
    "tests/app/rig.py": ("OURS: ",),
    "tests/app/test_routes.py": ("ROWS: ",),
}


def block(part: str) -> str:
    (found,) = [one for one in BLOCKS if part in one]
    return found


def defined(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "extending"}
    exec(compile(code, "EXTENDING.md", "exec", dont_inherit=True), names)
    return names


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_the_route_answers_as_its_test_expects() -> None:
    async with running(script_spec()) as server:
        app: Any = server.server.config.app
        service: Service = server.service
        app.include_router(defined(block("def echo("))["echo"](service))
        app.router.routes.insert(0, app.router.routes.pop())
        await defined(block("async def test_a_word_is_repeated"))["test_a_word_is_repeated"](server)


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
    assert named >= NEW
    assert [path for path in named - NEW if not (ROOT / path).is_file()] == []
    assert NAMES.keys() <= named
    for path, names in NAMES.items():
        assert [name for name in names if name not in (ROOT / path).read_text(encoding="utf-8")] == [], path
