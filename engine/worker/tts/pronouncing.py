"""The phonemes of English clauses for voices that take them: with a fallback, so that no word is dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from engine.english.pronunciation import Pronunciation, ipa
from engine.errors import WeightsError
from engine.worker.tts.lexicon_file import entries

DICTIONARIES = ("us_silver.json", "us_gold.json")
"""The dictionaries of misaki (Apache-2.0), the better one last."""

Pronounce = Callable[[str], str]

_Entry = str | dict[str, str | None] | None


def by_dictionaries(folder: Path, in_ipa: bool) -> Pronounce:
    """Return what pronounces English by misaki's dictionaries in a folder.

    Raises WeightsError, with where to get them, for a folder that has none.
    """
    words: dict[str, str] = {}
    for name in DICTIONARIES:
        if not (folder / name).is_file():
            raise WeightsError(
                f"The voice folder {folder} has no {name}: put us_gold.json and us_silver.json beside the model, from "
                "the folder misaki/data of the package misaki (PyPI)."
            )
        words |= _lowered(_read(folder / name))
    spoken = Pronunciation(words).phonemes
    return (lambda clause: ipa(spoken(clause))) if in_ipa else spoken


def by_lexicon(path: Path, in_ipa: bool) -> Pronounce:
    """Return what pronounces English by a voice's own lexicon."""
    words = {word.lower(): "".join(phonemes) for word, phonemes in entries(path)}
    return Pronunciation(words, ipa if in_ipa else str).phonemes


def _lowered(words: Mapping[str, _Entry]) -> dict[str, str]:
    """Return the words in lowercase letters; one that is written so ("polish") comes before a name ("Polish")."""
    said = {word: entry.get("DEFAULT") if isinstance(entry, dict) else entry for word, entry in words.items()}
    names_first = sorted(said, key=str.islower)
    return {word.lower(): phonemes for word in names_first if (phonemes := said[word])}


def _read(path: Path) -> Mapping[str, _Entry]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _Entry])
    except msgspec.MsgspecError:
        raise WeightsError(f"{path} is not a dictionary of misaki: fetch it again.") from None
