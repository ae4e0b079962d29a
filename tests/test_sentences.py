"""What scripts/sentences.py counts: docstrings that begin without a subject."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from scripts.sentences import ROOT, TREE, begins_without_subject, docstrings, main, sources

MODULE = '''"""A module."""

LIMIT = 3
"""What it may hold."""
"""A string below a string is no docstring."""


class Queue:
    """One queue."""

    size: int
    """Of the line."""

    def take(self):
        "Take the first."
        first = 1
        """The first."""
        if first:
            """No docstring: nothing stands above it."""
'''


@pytest.mark.parametrize(
    "text",
    [
        "What a client gets first.",
        "Who asks, as far as it is known.",
        "Of the input, those of pictures.",
        "Between a session and its client.",
        "Those of a call.",
        "The same, for calls.",
        "As above.",
        "Ours, not the library's.",
        "One session's. Positions are samples.",
        "Knows no socket.",
        "what: in small letters",
    ],
)
def test_an_opening_without_a_subject_is_found(text: str) -> None:
    assert begins_without_subject(text)


@pytest.mark.parametrize(
    "text",
    [
        "The next packet, if it is due.",
        "Return the next packet.",
        "Packets leave in order.",
        "Whether a packet is due.",
        "Raises ConfigError for a key that does not exist.",
        "At most two requests wait.",
        "The same request again.",
        "One session's requests.",
        "Whatsoever",
        "``what`` is a name.",
        "16 bits.",
        "",
    ],
)
def test_a_noun_an_imperative_and_a_sentence_are_not(text: str) -> None:
    assert not begins_without_subject(text)


def test_docstrings_are_those_of_modules_classes_functions_and_attributes() -> None:
    assert [(one.line, one.text) for one in docstrings(MODULE, "app/queue.py")] == [
        (1, "A module."),
        (4, "What it may hold."),
        (9, "One queue."),
        (12, "Of the line."),
        (15, "Take the first."),
        (17, "The first."),
    ]


def test_a_tree_with_too_many_of_them_fails_and_names_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app" / "training").mkdir(parents=True)
    (tmp_path / "app" / "queue.py").write_text(MODULE)
    (tmp_path / "app" / "training" / "queue.py").write_text(MODULE)
    assert main(["app"], tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        "app/queue.py:4: What it may hold.",
        "app/queue.py:12: Of the line.",
        "2 of 6 docstrings begin without a subject (33.3%)",
    ]
    (tmp_path / "app" / "queue.py").write_text('"""A module."""')
    assert main(["app"], tmp_path) == 0


def test_a_sample_is_drawn_from_all_docstrings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "queue.py").write_text(MODULE)
    assert main(["--sample", "5", "--seed", "7", "queue.py"], tmp_path) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert len(drawn) == 6
    assert main(["--sample", "5", "--seed", "7", "queue.py"], tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == drawn


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no nowhere"):
        main(["nowhere"], tmp_path)


def test_the_docstrings_of_the_project_begin_with_their_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(TREE) == 0, capsys.readouterr().out


def test_the_user_is_they() -> None:
    """No docstring and no page calls anybody "he"."""
    he = re.compile(r"\b(he|him|his|himself)\b", re.IGNORECASE)
    found = [one for path in sources(ROOT, TREE) for one in docstrings(path.read_text("utf-8"), str(path))]
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pages = [page for page in listed.split() if "training" not in page]
    assert "README.md" in pages
    assert not [str(one) for one in found if he.search(one.text)]
    assert not [page for page in pages if he.search((ROOT / page).read_text("utf-8"))]
