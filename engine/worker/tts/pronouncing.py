"""Phonemes of English clauses, for voices that take phonemes. Words that a dictionary lacks get phonemes too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from engine.english.pronunciation import Pronunciation, ipa
from engine.errors import WeightsError
from engine.worker.tts.lexicon_file import entries

DICTIONARIES = ("us_silver.json", "us_gold.json")
"""Dictionaries of misaki (Apache-2.0), the more reliable one last."""

Pronounce = Callable[[str], str]

_Entry = str | dict[str, str | None] | None


def by_dictionaries(folder: Path, in_ipa: bool) -> Pronounce:
    """Return a function that gives a clause's phonemes from misaki's dictionaries in ``folder``.

    ``in_ipa`` selects IPA instead of misaki's symbols. Raises WeightsError if the folder has no dictionaries.
    """
    words: dict[str, str] = {}
    for name in DICTIONARIES:
        if not (folder / name).is_file():
            raise WeightsError(
                f"The voice folder {folder} has no {name}. Copy us_gold.json and us_silver.json next to it, from "
                "the folder misaki/data of the package misaki (PyPI)."
            )
        words |= _lowered(_read(folder / name))
    spoken = Pronunciation(words).phonemes
    return (lambda clause: ipa(spoken(clause))) if in_ipa else spoken


def by_lexicon(path: Path, in_ipa: bool) -> Pronounce:
    """Return a function that gives a clause's phonemes from a voice's own lexicon."""
    words = {word.lower(): "".join(phonemes) for word, phonemes in entries(path)}
    return Pronunciation(words, ipa if in_ipa else str).phonemes


def _lowered(words: Mapping[str, _Entry]) -> dict[str, str]:
    """Return the phonemes by lower-case word. A lower-case entry ("polish") takes precedence over a name ("Polish")."""
    said = {word: entry.get("DEFAULT") if isinstance(entry, dict) else entry for word, entry in words.items()}
    names_first = sorted(said, key=str.islower)
    return {word.lower(): phonemes for word in names_first if (phonemes := said[word])}


def _read(path: Path) -> Mapping[str, _Entry]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _Entry])
    except msgspec.MsgspecError:
        raise WeightsError(f"{path} is not a misaki dictionary. Download it again.") from None
