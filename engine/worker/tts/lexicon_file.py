"""Lexicons of sherpa-onnx voices: one word and its phonemes per line, with or without ``||`` between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from engine.errors import WeightsError

SAMPLE = 200
"""Number of lines to check."""


def check_lexicon(path: Path, tokens: Path, marked: bool) -> None:
    """Check a lexicon's format, because the library accepts any file and then speaks gibberish.

    Args:
        path: The lexicon.
        tokens: The voice's ``tokens.txt``.
        marked: Whether the voice needs the format with ``||`` between a word and its phonemes.

    Raises:
        WeightsError: The file has another format, or the voice does not know its phonemes.
    """
    lines = list(islice(_lines(path), SAMPLE))
    if marked and (old := [line for line in lines if "||" not in line]):
        raise WeightsError(
            f"{path} has the format of sherpa-onnx before version 2 ({old[0]!r:.60}). This voice needs lines with || "
            "after the word, for example hello || h ə l oʊ."
        )
    known = {line.rsplit(" ", 1)[0] for line in _lines(tokens)}
    strange = [line for line in lines if not _fits(line, known)]
    if not lines or len(strange) > len(lines) / 2:
        what = f"{strange[0]!r:.60} has no phoneme of the voice's tokens.txt" if strange else "it has no words"
        raise WeightsError(f"{path} is not a lexicon of this voice: {what}.")


def entries(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each word with its phonemes."""
    for line in _lines(path):
        word, mark, phonemes = line.partition("||")
        yield (word.strip(), phonemes.split()) if mark else (line.split()[0], line.split()[1:])


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from (line.rstrip("\n") for line in file if line.strip() and not line.startswith("# "))
    except (OSError, UnicodeDecodeError):
        raise WeightsError(f"{path} cannot be read as UTF-8 text. Download it again.") from None


def _fits(line: str, known: set[str]) -> bool:
    word, mark, phonemes = line.partition("||")
    found = phonemes.split() if mark else word.split()[1:]
    return any(one in known or (len(one) > 1 and known.issuperset(one)) for one in found)
