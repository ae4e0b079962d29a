"""What scripts/arrows.py counts: imports between modules, those between rooms that run both ways, circles."""

from __future__ import annotations

import grimp
import pytest

from scripts.arrows import TREE, back, between, circles, past_doors, within

MODULES = (
    "app",
    "app.talk",
    "app.talk.session",
    "app.talk.ears",
    "app.talk.ears.turns",
    "app.talk.mouth",
    "app.talk.mouth.voice",
    "app.shared",
)
IMPORTS = [
    ("app.talk.session", "app.talk.ears.turns"),
    ("app.talk.session", "app.talk.mouth"),
    ("app.talk.ears.turns", "app.talk.mouth.voice"),
    ("app.talk.ears.turns", "app.shared"),
]


@pytest.fixture
def graph() -> grimp.ImportGraph:
    made = grimp.ImportGraph()
    for module in MODULES:
        made.add_module(module)
    for importer, imported in IMPORTS:
        made.add_import(importer=importer, imported=imported)
    return made


def test_arrows_are_pairs_of_modules_within_the_package(graph: grimp.ImportGraph) -> None:
    assert within(graph, "app.talk") == [
        ("app.talk.ears.turns", "app.talk.mouth.voice"),
        ("app.talk.session", "app.talk.ears.turns"),
        ("app.talk.session", "app.talk.mouth"),
    ]
    assert back(graph, "app.talk") == []
    assert circles(graph) == []


def test_a_room_is_taken_for_one_and_entered_by_its_door(graph: grimp.ImportGraph) -> None:
    assert between(graph, "app.talk") == [
        ("app.talk.ears", "app.talk.mouth"),
        ("app.talk.session", "app.talk.ears"),
        ("app.talk.session", "app.talk.mouth"),
    ]
    assert past_doors(graph, "app.talk") == [
        ("app.talk.ears.turns", "app.talk.mouth.voice"),
        ("app.talk.session", "app.talk.ears.turns"),
    ]


def test_rooms_that_import_each_other_and_circles_are_found(graph: grimp.ImportGraph) -> None:
    graph.add_import(importer="app.talk.mouth.voice", imported="app.talk.ears.turns")
    assert {one for one, _ in back(graph, "app.talk")} == {"app.talk.ears.turns", "app.talk.mouth.voice"}
    assert circles(graph) == [["app.talk.ears.turns", "app.talk.mouth.voice"]]


def test_every_circle_is_found_and_a_long_one_whole(graph: grimp.ImportGraph) -> None:
    graph.add_import(importer="app.talk.mouth.voice", imported="app.talk.session")
    graph.add_import(importer="app", imported="app.shared")
    graph.add_import(importer="app.shared", imported="app")
    assert circles(graph) == [
        ["app", "app.shared"],
        ["app.talk.ears.turns", "app.talk.mouth.voice", "app.talk.session"],
    ]


@pytest.fixture(scope="module")
def tree() -> grimp.ImportGraph:
    return grimp.build_graph(*TREE, cache_dir=None)


def test_no_files_import_each_other_in_a_circle(tree: grimp.ImportGraph) -> None:
    """Imports for types alone, and those in functions, count."""
    assert circles(tree) == []


def test_the_rooms_of_a_conversation_keep_to_their_doors_and_none_runs_back(tree: grimp.ImportGraph) -> None:
    """``app.realtime``: few arrows between its rooms, all one way, and none past a door but to the events' names."""
    assert len(between(tree, "app.realtime")) <= 30
    assert back(tree, "app.realtime") == []
    events = {f"app.realtime.protocol.{kind}_events" for kind in ("client", "server")}
    assert {other for _, other in past_doors(tree, "app.realtime")} <= events
