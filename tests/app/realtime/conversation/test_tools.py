"""The tools that a client offers: functions are taken, whatever stands beside them."""

from __future__ import annotations

from typing import Any

import pytest

from app.realtime.conversation.tools import MOST_SERVERS, functions_only

LOOK = {"type": "function", "name": "look"}
BARE = {"name": "listen"}
FILES = {"type": "mcp", "server_label": "files", "server_url": "https://files.example"}
MAIL = {"type": "mcp", "server_label": "mail", "connector_id": "connector_gmail"}


def test_functions_stay_and_servers_are_named_once() -> None:
    offer = functions_only({"tools": [FILES, LOOK, MAIL, BARE, FILES], "instructions": "x"}, "session")
    assert offer.patch == {"tools": [LOOK, BARE], "instructions": "x"}
    assert (offer.servers, offer.refusal) == (("files", "mail"), None)


def test_other_kinds_are_refused_in_one_sentence_and_the_rest_holds() -> None:
    offer = functions_only(
        {"tools": [LOOK, {"type": "web_search"}, {"type": "x" * 99}, {"type": "web_search"}]}, "session"
    )
    assert offer.patch == {"tools": [LOOK]}
    assert offer.refusal is not None
    assert offer.refusal.param == "session.tools[1].type"
    assert str(offer.refusal) == (
        f"Tools of type 'web_search', '{'x' * 40}' are not supported: use 'function' or 'mcp'. "
        "The other settings were applied."
    )


@pytest.mark.parametrize("tools", [None, 7, "look", {}, [7, None, {"type": 7}, {}]])
def test_what_are_no_tools_is_left_to_be_refused(tools: Any) -> None:
    offer = functions_only({"tools": tools}, "session")
    assert offer.patch == {"tools": tools}
    assert (offer.servers, offer.refusal) == ((), None)


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        ("required", "required"),
        ({"type": "function", "name": "look"}, {"type": "function", "name": "look"}),
        ({"type": "mcp", "server_label": "files"}, "auto"),
    ],
)
def test_a_tool_that_is_not_served_is_not_chosen(choice: Any, taken: Any) -> None:
    assert functions_only({"tool_choice": choice}, "session").patch == {"tool_choice": taken}
    assert functions_only({"tool_choice": choice, "tools": [FILES]}, "session").patch["tool_choice"] == taken


def test_a_flood_of_servers_is_bounded() -> None:
    many = [{"type": "mcp", "server_label": f"{n}"} for n in range(10_000)]
    assert len(functions_only({"tools": many}, "session").servers) == MOST_SERVERS
