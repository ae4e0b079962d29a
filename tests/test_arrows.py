"""What scripts/arrows.py counts: imports between files, those that run back up, circles."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.arrows import arrows, back, circle, within

FILES = {
    "app/__init__.py": "",
    "app/talk/__init__.py": "",
    "app/talk/session.py": "from app.talk.ears import turns\nfrom app.talk import mouth\nimport os\n",
    "app/talk/ears/__init__.py": "",
    "app/talk/ears/turns.py": "def late():\n    from ..mouth.voice import say\n    from app.shared import now\n",
    "app/talk/mouth/__init__.py": "",
    "app/talk/mouth/voice.py": "",
    "app/shared.py": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_arrows_are_pairs_of_files_within_the_folder(tree: Path) -> None:
    pairs = within(arrows(tree), "app/talk")
    assert [(one.name, "/".join(other.parts[2:])) for one, other in pairs] == [
        ("turns.py", "mouth/voice.py"), ("session.py", "ears/turns.py"), ("session.py", "mouth/__init__.py"),
    ]  # fmt: skip
    assert back(pairs, "app/talk") == []
    assert circle(arrows(tree)) == []


def test_rooms_that_import_each_other_and_circles_are_found(tree: Path) -> None:
    (tree / "app/talk/mouth/voice.py").write_text("from app.talk.ears.turns import late\n", encoding="utf-8")
    found = arrows(tree)
    assert {one.name for one, _ in back(within(found, "app/talk"), "app/talk")} == {"turns.py", "voice.py"}
    assert {path.name for path in circle(found)} == {"turns.py", "voice.py"}
