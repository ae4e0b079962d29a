"""Code that voices in this process share: what they tell of themselves, whom a request may name, what they can say.

Knows no library and no schedule: a stage decides what is said when.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from engine.chunk import Audio, Text, VoiceText, kinds
from engine.core import Facets, StageInfo, Voice
from engine.deployment.did_you_mean import nearest
from engine.errors import ConfigError, RequestError, StageFailed
from engine.worker.stage import StageConfig
from engine.worker.tts.clauses import CLAUSES_AHEAD

LATIN = frozenset(["cs", "cy", "da", "de", "en", "es", "et", "fi", "fr", "id", "it", "nl", "pl", "pt", "sv", "tr"])
"""Languages, of those that there are voices for, that are written in Latin letters."""


def named(id: str, language: str = "") -> Voice:
    """A voice, called what people read its id as."""
    return Voice(id, f"Voice {id}" if id.isdigit() else id.replace("_", " ").title(), language)


def voice_info(config: StageConfig, voices: Sequence[Voice], first: str, languages: tuple[str, ...]) -> StageInfo:
    """Describe such a stage: who speaks, ``first`` where a request names nobody (empty: the first voice).

    Raises ConfigError where nobody is called that.
    """
    ids = [voice.id for voice in voices]
    if first and first not in ids:
        raise ConfigError(f"options.voice: there is no {first!r:.80} ({nearest(first, ids)})")
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
    """The id of the voice that a request asks for, else of the first one: no other name, and no address, reaches a
    library. Raises RequestError where there is no such voice."""
    ids = [voice.id for voice in voices]
    if asked and asked not in ids:
        raise RequestError(f"There is no voice {asked!a:.100} ({nearest(asked, ids)}).")
    return asked or (ids[0] if ids else "")


def can_say(text: str, languages: Sequence[str]) -> bool:
    """Whether there is anything in a text that voices of these languages have learnt to read: a digit, or a letter of
    their script. Chinese characters make a voice of European languages babble."""
    if not languages or any(language.split("-")[0].lower() not in LATIN for language in languages):
        return True
    return any(one.isdecimal() or unicodedata.name(one, "").startswith("LATIN") for one in text if one.isalnum())


def unsayable(languages: Sequence[str]) -> StageFailed:
    """The end of an answer of which a voice of these languages could say nothing."""
    known = ", ".join(languages) or "another language"
    return StageFailed(f"The voice cannot say any of this answer: it speaks {known}.")
