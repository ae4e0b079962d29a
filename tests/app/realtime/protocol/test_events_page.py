"""app/EVENTS.md lists every event of openai's types and of ours, and says of each what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from openai.types.realtime.realtime_client_event import RealtimeClientEvent
from openai.types.realtime.realtime_server_event import RealtimeServerEvent

from app.realtime.protocol import from_wire, server_events, to_wire, wire_hosted

PAGE = (Path(from_wire.__file__).parents[2] / "EVENTS.md").read_text(encoding="utf-8")
FROM_CLIENT, FROM_SERVER = PAGE.partition("## From the server")[::2]


def rows(section: str) -> dict[str, str]:
    """Each event of a table, and what the page says of it."""
    found = re.findall(r"^\| `([\w.]+)` \| (yes|ours|no) \| \S.+ \|$", section, re.MULTILINE)
    assert len(found) == len(dict(found)) == section.count("\n| `")
    return dict(found)


def names(union: Any) -> Iterator[str]:
    """The types of openai's events."""
    for one in get_args(union):
        if get_args(one):
            yield from names(one)
        elif hasattr(one, "model_fields"):
            yield from get_args(one.model_fields["type"].annotation)


def written() -> Iterator[str]:
    """The types that the encoder writes, each as a pattern: what is not known before it runs is any word."""
    yield from map(re.escape, to_wire._PLAIN.values())
    for module in (to_wire, wire_hosted):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                types = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "type"]
                yield from (pattern(value, module) for value in types)


def pattern(value: ast.expr, module: ModuleType) -> str:
    match value:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            return "".join(pattern(part, module) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)) if isinstance(getattr(module, name, None), str):
            return re.escape(getattr(module, name))
        case _:
            return r"\w+"


def test_the_clients_events_are_those_that_the_decoder_knows() -> None:
    listed = rows(FROM_CLIENT)
    assert set(names(RealtimeClientEvent)) <= set(listed)
    assert {name for name, here in listed.items() if here != "no"} == set(from_wire._EVENTS)


def test_every_plain_event_has_a_type() -> None:
    assert set(to_wire._PLAIN) == set(get_args(server_events.PlainEvent))


def test_the_servers_events_are_openais_and_those_that_the_encoder_writes() -> None:
    listed, patterns = rows(FROM_SERVER), [one for one in written() if "\\." in one or one == "error"]
    assert set(names(RealtimeServerEvent)) <= set(listed)
    sent = {name for name in listed if any(re.fullmatch(one, name) for one in patterns)}
    assert {name for name, here in listed.items() if here != "no"} <= sent
    assert not [name for name, here in listed.items() if here == "no" and re.escape(name) in patterns]
    unlisted = [one for one in patterns if not any(re.fullmatch(one, name) for name in listed)]
    assert not unlisted


def test_what_is_ours_is_called_so() -> None:
    for name, here in (rows(FROM_CLIENT) | rows(FROM_SERVER)).items():
        assert (here == "ours") == name.startswith("parley."), name
