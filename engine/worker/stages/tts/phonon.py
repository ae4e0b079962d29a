"""Voices of Phonon (Gradium), on the CPU and without torch.

``weights`` is a folder as Gradium publishes them: ``config.json``, ``tokenizer.json``, ``model.safetensors`` or
``model.q8.gguf``, ``voices/``; nothing is ever fetched. The library (extra ``phonon``) computes some frames ahead in
threads of its own, and waits where nobody takes them. It spells numbers and signs out itself, and knows no speed.
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
    """The voice where a request names none; empty: the first one."""
    language: str = ""
    """The language that it speaks, as BCP 47; empty: the first language that its configuration names, or else
    English."""
    quant: str = ""
    """The type in which its weights are computed, as ``q8_0``; empty: as the file of them is stored."""
    clones: tuple[Clone, ...] = ()
    """Voices that are made from recordings of 10 s and more, where the model can do that."""


class PhononStage(ClauseSpeaker):
    """Text -> sound, a codec frame a step."""

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
        with stream:  # leaving it ends its threads, which takes a codec frame at most
            for wave in stream:
                yield wave, None

    def _clone(self, clone: Clone) -> None:
        try:
            self._tts.clone_voice(clone.name, reference_sound(clone, self._tts.voice_prompt_sample_rate))
        except NotImplementedError as error:
            raise WeightsError(
                f"options.clones: this model cannot clone voices ({error!s:.200}); leave them out."
            ) from error
        except ValueError as error:
            raise ConfigError(f"The reference {clone.reference} of the voice {clone.name}: {error!s:.200}.") from error


STAGE = PhononStage


def _asked(config: StageConfig) -> tuple[Path, PhononOptions, Mapping[str, Any]]:
    """Return the folder, the configuration's options and the model's own settings. Raises ConfigError or
    WeightsError."""
    options: PhononOptions = build(PhononOptions, dict(config.options), "options")
    check_language(options.language)
    folder = weights_folder(config.weights, "tts.phonon", "a voice of Phonon")
    path = folder / "config.json"
    try:
        settings = orjson.loads(path.read_bytes())
        names = _names(folder, settings)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WeightsError(f"{path} does not describe a Phonon voice: name the folder of one.") from error
    check_clones(options.clones, names)
    return folder, options, settings


def _names(folder: Path, settings: Mapping[str, Any]) -> list[str]:
    """Return the voices' names: those inside the model, and those that have a file."""
    files = [path for part in ("voices", "embeddings") for path in sorted((folder / part).glob("*.safetensors"))]
    default = ["default"] if (folder / "default-voice.safetensors").is_file() else []
    inside = [str(voice["name"]) for voice in settings.get("voices") or ()]
    return list(dict.fromkeys([*inside, *default, *(path.stem for path in files)]))


def _languages(asked: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The first one is that which text is prepared for."""
    known: Sequence[str] = settings.get("languages") or ["en"]
    fitting = [tag for tag in known if tag.split("-")[0] == asked.split("-")[0].lower()] if asked else [known[0]]
    if not fitting:
        raise ConfigError(f"options.language: this voice speaks {', '.join(known)}, not {asked}")
    return tuple(dict.fromkeys((asked or fitting[0], *(tag for tag in known if tag not in fitting))))


def _loaded(folder: Path, options: PhononOptions, language: str, threads: int) -> Any:
    """The library's model. Only paths of this machine reach it, also where it looks for voices that it lacks."""
    library = installed("tts.phonon", "ptts", "ptts", "phonon")
    base = language.split("-")[0].lower()
    stored = "q8_0" if (folder / "model.q8.gguf").is_file() else "f32"
    here = str(folder.absolute())
    library.set_num_threads(threads)
    try:
        return library.TTS(
            here, "cpu", options.quant or stored, lang=base if base in NORMALIZED else "none", voice_catalog=here
        )
    except Exception as error:  # whatever the library raises of files that it cannot read
        raise unloadable(f"The voice in {folder}", error) from error
