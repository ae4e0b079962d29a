"""Code that in-process voices share: description, voice selection, and which text a voice can speak."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from engine.chunk import Audio, Text, VoiceText, kinds
from engine.core import Facets, StageInfo, Voice
from engine.deployment.did_you_mean import nearest
from engine.errors import ConfigError, RequestError, StageFailed
from engine.worker.stage import StageConfig
from engine.worker.tts.clauses import CLAUSES_AHEAD

LATIN = frozenset(["cs", "cy", "da", "de", "en", "es", "et", "fi", "fr", "id", "it", "nl", "pl", "pt", "sv", "tr"])
"""Languages with published voices that are written in Latin script."""


_WITH_GENDER = (re.compile(r"[a-z](?P<gender>[fm])_(?P<name>\w+)"), re.compile(r"expr-(?P<name>.+)-(?P<gender>[fm])"))
"""The ids of Kokoro's and Kitten's voices."""
_GENDERS = {"f": "a woman", "m": "a man"}


def named(id: str, language: str = "") -> Voice:
    """Return a Voice with a readable name derived from its id, such as "Heart, a woman" for ``af_heart``."""
    for pattern in _WITH_GENDER:
        if found := pattern.fullmatch(id):
            return Voice(id, f"{_readable(found['name'])}, {_GENDERS[found['gender']]}", language)
    return Voice(id, f"Voice {id}" if id.isdigit() else _readable(id), language)


def _readable(name: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in re.split(r"[-_\s]+", name))


def voice_info(config: StageConfig, voices: Sequence[Voice], first: str, languages: tuple[str, ...]) -> StageInfo:
    """Describe a voice stage.

    Args:
        config: The stage's configuration.
        voices: Voices that requests may name.
        first: The default voice; "" is the first of ``voices``.
        languages: Languages that the stage speaks (BCP 47).

    Raises:
        ConfigError: ``first`` is not one of ``voices``.
    """
    ids = [voice.id for voice in voices]
    if first and first not in ids:
        raise ConfigError(f"options.voice: there is no voice {first!r:.80} ({nearest(first, ids)})")
    ordered = tuple(sorted(voices, key=lambda voice: voice.id != first))
    return StageInfo(
        takes=kinds(Text, VoiceText),
        emits=kinds(Audio),
        slots=config.slots,
        batch=1,
        blocking=True,
        max_pending=CLAUSES_AHEAD,
        facets=Facets(voices=ordered, languages=languages),
    )


def asked_voice(asked: str | None, voices: Sequence[Voice]) -> str:
    """Return the id of the requested voice, or of the first one.

    Only ids from ``voices`` reach the library, never another name or a path. Raises RequestError for an unknown voice.
    """
    ids = [voice.id for voice in voices]
    if asked and asked not in ids:
        raise RequestError(f"There is no voice {asked!a:.100} ({nearest(asked, ids)}).")
    return asked or (ids[0] if ids else "")


def can_say(text: str, languages: Sequence[str]) -> bool:
    """Return whether voices of these languages can read any of a text: a digit, or a letter of their script.

    Voices of European languages babble when given Chinese characters.
    """
    if not languages or any(language.split("-")[0].lower() not in LATIN for language in languages):
        return True
    return any(one.isdecimal() or unicodedata.name(one, "").startswith("LATIN") for one in text if one.isalnum())


def unsayable(languages: Sequence[str]) -> StageFailed:
    """Return the error of an answer that has no text a voice of these languages can speak."""
    known = ", ".join(languages) or "another language"
    return StageFailed(f"The voice cannot speak this answer. It supports {known}.")
