"""What scripts/arrows.py counts: imports between modules, those between rooms that run both ways, circles."""

from __future__ import annotations

import grimp
import pytest

from scripts.arrows import TREE, back, circles, within

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


def test_no_files_of_the_engine_import_each_other_in_a_circle() -> None:
    """Imports for types alone, and those in functions, count."""
    tree = grimp.build_graph(*TREE, cache_dir=None)
    assert [group for group in circles(tree) if any(module.startswith("engine.") for module in group)] == []
