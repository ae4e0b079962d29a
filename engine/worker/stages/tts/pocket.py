"""Voices of Pocket TTS (Kyutai), on the CPU: seven languages, and voices cloned from a recording.

``weights`` is a folder as published by Kyutai; nothing is downloaded. The library (extra ``pocket``) computes one codec
frame of 80 ms per step, in its own thread, for the most urgent listener. It does not support ``speed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.core import StageInfo
from engine.deployment.config import build
from engine.errors import ConfigError, WeightsError
from engine.worker.remote.options import check_language
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import ClauseSpeaker, Piece, Saying
from engine.worker.tts.number_words import number_words
from engine.worker.tts.pocket import PocketFiles, PocketVoice, pocket_files
from engine.worker.tts.reference_voice import Clone, check_clones, reference_sound
from engine.worker.tts.voices import named, voice_info


@dataclass(frozen=True, slots=True, kw_only=True)
class PocketOptions:
    """The ``options`` of the stage."""

    voice: str = ""
    """The default voice; empty: the first one."""
    model: str = ""
    """The package's name for the model in the folder, like ``german``. Empty: by the folder's YAML file or name."""
    language: str = ""
    """The language that the voice speaks, as BCP 47, if the model's name does not contain it."""
    clones: tuple[Clone, ...] = ()
    """Voices cloned from recordings, if the model supports that."""


class PocketStage(ClauseSpeaker):
    """The stage: text to audio, one codec frame per step."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options, files = _asked(config)
        language = options.language or files.language
        names = [*files.embeddings, *(clone.name for clone in options.clones)]
        voices = [named(name, language) for name in names]
        return voice_info(config, voices, options.voice, (language,) if language else ())

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        options, files = _asked(config)
        self._library = PocketVoice(files, config.threads)
        self.rate_hz = self._library.rate_hz
        self._spell = number_words(options.language or files.language)
        self._voices: Mapping[str, Any] = {
            **{name: self._library.embedded(path) for name, path in files.embeddings.items()},
            **{clone.name: self._library.cloned(reference_sound(clone, self.rate_hz)) for clone in options.clones},
        }

    def wording(self, text: str) -> str:
        line = super().wording(text)
        return self._spell(line) if self._spell else line

    def pieces(self, saying: Saying) -> Iterator[Piece]:
        for wave in self._library.frames(saying.text, self._voices[saying.voice], saying.seed):
            yield wave, None


STAGE = PocketStage


def _asked(config: StageConfig) -> tuple[PocketOptions, PocketFiles]:
    """Return the options and the folder's files. Raises ConfigError or WeightsError."""
    options: PocketOptions = build(PocketOptions, dict(config.options), "options")
    check_language(options.language)
    files = pocket_files(config.weights, options.model)
    base = options.language.split("-")[0].lower()
    if base and files.language not in ("", base):
        raise ConfigError(f"options.language: the voice in {files.home} speaks {files.language}, not {base}")
    check_clones(options.clones, [*files.embeddings])
    if not files.embeddings and not options.clones:
        raise WeightsError(
            f"The voice folder {files.home} has no embeddings/NAME.safetensors, and options.clones is empty."
        )
    return options, files
