"""Voices of Phonon (Gradium), on the CPU, without torch.

``weights`` is a folder as published by Gradium: ``config.json``, ``tokenizer.json``, ``model.safetensors`` or
``model.q8.gguf``, ``voices/``. Nothing is downloaded. The library (extra ``phonon``) computes some frames ahead in its
own threads, and pauses while nobody reads them. It reads numbers and symbols as words, and does not support ``speed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from engine.core import StageInfo
from engine.deployment.config import build
from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.installed import installed
from engine.worker.libraries.weights_folder import unloadable, weights_folder
from engine.worker.remote.options import check_language
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import ClauseSpeaker, Piece, Saying
from engine.worker.tts.reference_voice import Clone, check_clones, reference_sound
from engine.worker.tts.voices import named, voice_info

NORMALIZED = ("de", "en", "es", "fr", "pt")
"""Languages whose numbers and signs the library spells out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhononOptions:
    """The ``options`` of the stage."""

    voice: str = ""
    """The default voice; empty: the first one."""
    language: str = ""
    """The language it speaks, as BCP 47. Empty: the first one in the model's configuration, or English."""
    quant: str = ""
    """The type of the weights during computation, like ``q8_0``. Empty: as stored in the file."""
    clones: tuple[Clone, ...] = ()
    """Voices cloned from recordings of at least 10 s, if the model supports that."""


class PhononStage(ClauseSpeaker):
    """The stage: text to audio, one codec frame per step."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        folder, options, settings = _asked(config)
        names = [*_names(folder, settings), *(clone.name for clone in options.clones)]
        languages = _languages(options.language, settings)
        return voice_info(config, [named(name, languages[0]) for name in names], options.voice, languages)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        folder, options, _ = _asked(config)
        self._tts = _loaded(folder, options, self.info.facets.languages[0], config.threads)
        self.rate_hz: int = self._tts.sample_rate
        for clone in options.clones:
            self._clone(clone)
        if missing := sorted({voice.id for voice in self.info.facets.voices} - {*self._tts.voices}):
            raise WeightsError(f"The voice {missing[0]} in {folder} cannot be read: fetch it again.")

    def pieces(self, saying: Saying) -> Iterator[Piece]:
        try:
            stream = self._tts.stream(saying.text, voice=saying.voice or None, seed=saying.seed)
        except ValueError as error:
            if "nothing to synthesize" in str(error):
                return
            raise
        with stream:  # leaving it ends its threads within a codec frame
            for wave in stream:
                yield wave, None

    def _clone(self, clone: Clone) -> None:
        try:
            self._tts.clone_voice(clone.name, reference_sound(clone, self._tts.voice_prompt_sample_rate))
        except NotImplementedError as error:
            raise WeightsError(
                f"options.clones: this model cannot clone voices ({error!s:.200}); remove them."
            ) from error
        except ValueError as error:
            raise ConfigError(f"The reference {clone.reference} of the voice {clone.name}: {error!s:.200}.") from error


STAGE = PhononStage


def _asked(config: StageConfig) -> tuple[Path, PhononOptions, Mapping[str, Any]]:
    """Return the folder, the options and the model's own settings. Raises ConfigError or WeightsError."""
    options: PhononOptions = build(PhononOptions, dict(config.options), "options")
    check_language(options.language)
    folder = weights_folder(config.weights, "tts.phonon", "a voice of Phonon")
    path = folder / "config.json"
    try:
        settings = orjson.loads(path.read_bytes())
        names = _names(folder, settings)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WeightsError(
            f"{path} does not describe a Phonon voice. Set `weights` to a Phonon voice's folder."
        ) from error
    check_clones(options.clones, names)
    return folder, options, settings


def _names(folder: Path, settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the voices inside the model, and of those with their own file."""
    files = [path for part in ("voices", "embeddings") for path in sorted((folder / part).glob("*.safetensors"))]
    default = ["default"] if (folder / "default-voice.safetensors").is_file() else []
    inside = [str(voice["name"]) for voice in settings.get("voices") or ()]
    return list(dict.fromkeys([*inside, *default, *(path.stem for path in files)]))


def _languages(asked: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the languages of the voice, the one for text preparation first."""
    known: Sequence[str] = settings.get("languages") or ["en"]
    fitting = [tag for tag in known if tag.split("-")[0] == asked.split("-")[0].lower()] if asked else [known[0]]
    if not fitting:
        raise ConfigError(f"options.language: this voice speaks {', '.join(known)}, not {asked}")
    return tuple(dict.fromkeys((asked or fitting[0], *(tag for tag in known if tag not in fitting))))


def _loaded(folder: Path, options: PhononOptions, language: str, threads: int) -> Any:
    """Load the model. The library gets only local paths, also for missing voices, so it downloads nothing."""
    library = installed("tts.phonon", "ptts", "ptts", "phonon")
    base = language.split("-")[0].lower()
    stored = "q8_0" if (folder / "model.q8.gguf").is_file() else "f32"
    here = str(folder.absolute())
    library.set_num_threads(threads)
    try:
        return library.TTS(
            here, "cpu", options.quant or stored, lang=base if base in NORMALIZED else "none", voice_catalog=here
        )
    except Exception as error:  # the library may raise anything for damaged files
        raise unloadable(f"The voice in {folder}", error) from error
