"""sherpa-onnx voices: model family, speakers, languages and files of a voice folder.

File names are the ones that the project k2-fsa/sherpa-onnx publishes. The model type is in the ONNX file's metadata.
The library terminates the process if metadata is missing, so this module checks it first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.core import Voice
from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of
from engine.worker.libraries.sherpa import LANGUAGES
from engine.worker.libraries.weights_folder import weights_folder
from engine.worker.tts.lexicon_file import check_lexicon
from engine.worker.tts.pronouncing import Pronounce, by_dictionaries, by_lexicon
from engine.worker.tts.published_voice import PublishedVoice, published_in
from engine.worker.tts.reference_voice import Clone
from engine.worker.tts.sherpa_clones import Cloner, cloner_in
from engine.worker.tts.voices import named

NEEDED: Mapping[str, tuple[str, ...]] = {
    "vits": ("sample_rate", "n_speakers", "language", "comment"),
    "matcha": ("sample_rate", "n_speakers", "use_eos_bos", "pad_id"),
    "kokoro": ("sample_rate", "n_speakers", "has_espeak", "style_dim"),
    "kitten": ("sample_rate", "n_speakers", "has_espeak", "style_dim", "model_type"),
}
"""Metadata that each model family needs. Without it, the library terminates the process."""

PHONEMIZED = ("piper", "coqui", "icefall", "inflect")
"""Words in a model's metadata ``comment`` that identify VITS voices which take phonemes."""

_KOKORO = {"a": "en-US", "b": "en-GB", "e": "es", "f": "fr", "h": "hi", "i": "it", "j": "ja", "p": "pt", "z": "zh"}
"""Kokoro's languages by the first letter of a voice's name."""
_VOCODERS = ("hifigan", "vocos")
_REGION_FIRST = re.compile(r"(us|gb)-en")


@dataclass(frozen=True, slots=True)
class SherpaVoice:
    """Model, speakers and languages of a voice folder."""

    folder: Path
    family: str
    """A key of NEEDED, or a cloning model's family."""
    model: Path
    vocoder: Path | None
    lexicons: tuple[Path, ...]
    rules: tuple[Path, ...]
    """Grammars that convert numbers to words."""
    rate_hz: int
    voices: tuple[Voice, ...]
    """Speakers in the order of the library's speaker ids."""
    languages: tuple[str, ...]
    """Languages of the voice; text is prepared for the first one."""
    networks: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Network files of a cloning model."""
    published: PublishedVoice | None = None
    """Files in the authors' format, or None. If set, ``config`` takes the converted files from another folder."""
    phonemized: bool = False
    """Whether the library takes phonemes instead of text."""

    def number(self, voice: str) -> int:
        """Return the library's speaker id of a voice."""
        return [one.id for one in self.voices].index(voice)

    @property
    def pronounce(self) -> Pronounce | None:
        """Function that gives an English clause's phonemes, or None for a voice that takes text or another language."""
        if not self.phonemized or not self.languages or _base(self.languages[0]) != "en":
            return None
        in_ipa = self.family != "kokoro"
        if self.published is not None:
            return by_dictionaries(self.folder, in_ipa)
        return by_lexicon(self.lexicons[0], in_ipa)

    def config(self, library: Any, threads: int, folder: Path) -> Any:
        """Return the configuration for sherpa_onnx.OfflineTts; ``folder`` holds the library's files."""
        files = {"tokens": str(folder / "tokens.txt"), "lexicon": ",".join(map(str, self.lexicons))}
        voices = str(folder / "voices.bin")
        path = str(folder / "model.onnx" if self.published else self.model)
        match self.family:
            case "kokoro":
                model = library.OfflineTtsKokoroModelConfig(model=path, voices=voices, **files)
            case "kitten":
                model = library.OfflineTtsKittenModelConfig(model=path, voices=voices, **files)
            case "matcha":
                model = library.OfflineTtsMatchaModelConfig(
                    acoustic_model=path, vocoder=str(self.vocoder or ""), **files
                )
            case "zipvoice":
                model = library.OfflineTtsZipvoiceModelConfig(**self._networks)
            case "pocket":
                model = library.OfflineTtsPocketModelConfig(**self._networks)
            case _:
                model = library.OfflineTtsVitsModelConfig(model=path, **files)
        return library.OfflineTtsConfig(
            model=library.OfflineTtsModelConfig(**{self.family: model}, num_threads=threads, provider="cpu"),
            rule_fsts=",".join(str(rule) for rule in self.rules if rule.suffix == ".fst"),
            rule_fars=",".join(str(rule) for rule in self.rules if rule.suffix == ".far"),
        )

    @property
    def _networks(self) -> dict[str, str]:
        return {name: str(path) for name, path in self.networks.items()}


def sherpa_voice(folder: Path | None, language: str = "", clones: Sequence[Clone] = ()) -> SherpaVoice:
    """Find the voice in a folder.

    Args:
        folder: The voice folder.
        language: Language of the text (BCP 47); "" is the voice's first language.
        clones: Recordings to clone, for a cloning model.

    Raises:
        WeightsError: Files are missing or damaged.
        ConfigError: The voice does not speak the language, or cannot clone.
    """
    folder = weights_folder(folder, "tts.sherpa", "a voice of sherpa-onnx")
    if (cloner := cloner_in(folder)) is not None:
        return _cloning(folder, cloner, language, clones)
    if clones:
        raise ConfigError(f"options.clones: the voice in {folder} cannot clone voices; remove options.clones")
    if (published := published_in(folder)) is not None:
        return _published(folder, published, language)
    model, metadata, vocoder = _networks(folder)
    family = _family(folder, metadata, vocoder)
    _check_metadata(model, family, metadata)
    _check_files(folder, family, metadata, vocoder)
    languages = _languages(folder, metadata)
    chosen = _chosen(language, languages, folder)
    lexicons = _lexicons(folder, chosen)
    for lexicon in lexicons:
        check_lexicon(lexicon, folder / "tokens.txt", marked=family == "vits" and _is_phonemized(metadata))
    spoken = tuple(dict.fromkeys((chosen, *languages))) if chosen else languages
    return SherpaVoice(
        folder,
        family,
        model,
        vocoder,
        lexicons,
        _rules(folder, chosen),
        int(metadata["sample_rate"]),
        _voices(family, metadata, spoken),
        spoken,
        phonemized=family == "kokoro" or (family == "vits" and _is_phonemized(metadata)),
    )


def _published(folder: Path, voice: PublishedVoice, language: str) -> SherpaVoice:
    spoken = _tag(voice.metadata["voice"])
    if _base(spoken) != "en":
        raise WeightsError(
            f"The voice in {folder} speaks {voice.metadata['language']}. In the authors' format, tts.sherpa supports "
            "English only. Use the files of k2-fsa/sherpa-onnx, which have a lexicon."
        )
    languages = (_chosen(language, (spoken,), folder),)
    rate_hz = int(voice.metadata["sample_rate"])
    voices = _voices(voice.family, voice.metadata, languages)
    return SherpaVoice(
        folder, voice.family, voice.model, None, (), (), rate_hz, voices, languages, {}, voice, phonemized=True
    )


def _cloning(folder: Path, cloner: Cloner, language: str, clones: Sequence[Clone]) -> SherpaVoice:
    chosen = _chosen(language or cloner.languages[0], cloner.languages, folder)
    languages = tuple(dict.fromkeys((chosen, *cloner.languages)))
    model = cloner.networks["decoder"]
    return SherpaVoice(
        folder,
        cloner.family,
        model,
        None,
        (),
        _rules(folder, chosen),
        cloner.rate_hz,
        cloner.voices(clones, folder),
        languages,
        cloner.networks,
    )


def _networks(folder: Path) -> tuple[Path, Mapping[str, str], Path | None]:
    """Return the acoustic model, its metadata, and the vocoder if there is one."""
    found = {path: metadata_of(path) for path in sorted(folder.glob("*.onnx"))}
    vocoders = [path for path, metadata in found.items() if metadata.get("model_type", "").endswith(_VOCODERS)]
    models = [path for path in found if path not in vocoders]
    named = [path for path in models if path.name == "model.onnx"] or models
    if len(named) != 1:
        several = ", ".join(path.name for path in named)
        what = f"has several models ({several}); keep one of them" if named else "has no model.onnx"
        raise WeightsError(f"The voice folder {folder} {what}.")
    return named[0], found[named[0]], vocoders[0] if vocoders else None


def _family(folder: Path, metadata: Mapping[str, str], vocoder: Path | None) -> str:
    kind = metadata.get("model_type", "")
    for family in NEEDED:
        if kind.startswith(family):
            return family
    if (folder / "voices.bin").exists():
        return "kokoro"
    return "matcha" if vocoder is not None else "vits"


def _check_metadata(model: Path, family: str, metadata: Mapping[str, str]) -> None:
    """Raise WeightsError if metadata is missing or invalid."""
    missing = [key for key in NEEDED[family] if not metadata.get(key)]
    if missing:
        raise WeightsError(f"{model} lacks the metadata {', '.join(missing)}. Use a voice exported for sherpa-onnx.")
    for key in ("sample_rate", "n_speakers", "style_dim"):
        said = metadata.get(key, "0")
        if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", said) or (key != "style_dim" and "," in said):
            raise WeightsError(
                f"{model}: the metadata {key} is invalid (got {said!r:.40}). Use a voice exported for sherpa-onnx."
            )
    if not 4_000 <= int(metadata["sample_rate"]) <= 192_000:
        raise WeightsError(f"{model} has a sample_rate of {metadata['sample_rate']}; it must be from 4000 to 192000.")


def _check_files(folder: Path, family: str, metadata: Mapping[str, str], vocoder: Path | None) -> None:
    """Check the files that the model needs alongside it."""
    styled = family in ("kokoro", "kitten")
    for name in ["tokens.txt", *(["voices.bin"] if styled else [])]:
        if not (folder / name).is_file():
            raise WeightsError(f"The voice folder {folder} has no {name}.")
    if family == "matcha" and vocoder is None and metadata.get("need_vocoder") != "0":
        raise WeightsError(f"The voice folder {folder} has no vocoder. Copy vocos-22khz-univ.onnx next to the model.")
    if not [*folder.glob("lexicon*.txt")] and metadata.get("frontend") != "characters":
        raise WeightsError(
            f"The voice folder {folder} has no lexicon. sherpa-onnx 2 needs one, such as lexicon-us-en.txt."
        )
    if styled:
        _check_styles(folder / "voices.bin", metadata)


def _check_styles(path: Path, metadata: Mapping[str, str]) -> None:
    numbers = [metadata["n_speakers"], *metadata["style_dim"].split(",")]
    size = 4 * math.prod(map(int, numbers))
    if path.stat().st_size != size:
        raise WeightsError(f"{path} has {path.stat().st_size} bytes instead of {size}. Download it again.")


def _is_phonemized(metadata: Mapping[str, str]) -> bool:
    """Return whether the library expects a lexicon with ``||``; it would mistake another lexicon for another
    model's.
    """
    return any(name in metadata.get("comment", "").lower() for name in PHONEMIZED)


def _languages(folder: Path, metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the languages of the lexicons, or else the ones in the metadata."""
    named = [path.stem.removeprefix("lexicon").strip("-") for path in sorted(folder.glob("lexicon*.txt"))]
    found = [_tag(name) for name in named if name]
    said = metadata.get("language", "").lower()
    known = [tag for name, tag in LANGUAGES.items() if name in said]
    return tuple(dict.fromkeys(found or known or [_tag(metadata.get("voice", ""))] * bool(metadata.get("voice"))))


def _tag(name: str) -> str:
    """Return ``us-en``, ``en-us`` or ``zh`` as a BCP 47 tag."""
    if _REGION_FIRST.fullmatch(name.lower()):
        name = "-".join(reversed(name.split("-")))
    first, *rest = name.split("-")
    return "-".join([first.lower(), *(part.upper() for part in rest)])


def _base(language: str) -> str:
    return language.split("-")[0].lower()


def _chosen(language: str, languages: Sequence[str], folder: Path) -> str:
    if not language:
        return "en-US" if "en-US" in languages else languages[0] if languages else ""
    fitting = [one for one in languages if one.lower() == language.lower()]
    fitting += [one for one in languages if _base(one) == _base(language)]
    if languages and not fitting:
        raise ConfigError(f"options.language: the voice in {folder} speaks {', '.join(languages)}, not {language}")
    return fitting[0] if fitting else language


def _lexicons(folder: Path, chosen: str) -> tuple[Path, ...]:
    """Return one lexicon per language, because two of the same language contradict each other."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("lexicon*.txt"), reverse=True):  # us before gb
        tag = _tag(path.stem.removeprefix("lexicon").strip("-"))
        if tag == chosen or _base(tag) not in found:
            found[_base(tag)] = path
    return tuple(sorted(found.values(), key=lambda path: _base(chosen) not in path.stem))


def _rules(folder: Path, chosen: str) -> tuple[Path, ...]:
    """Return the number rules of the voice's language, without the rules of other languages."""
    found = sorted([*folder.glob("*.fst"), *folder.glob("*.far")])
    suffixes = {path: path.stem.rpartition("-")[2] for path in found}
    return tuple(path for path in found if suffixes[path] not in LANGUAGES.values() or suffixes[path] == _base(chosen))


def _voices(family: str, metadata: Mapping[str, str], languages: Sequence[str]) -> tuple[Voice, ...]:
    """Return the speakers by name, or by id if they have no names.

    A Kokoro voice whose language has no lexicon keeps its id and speaks the other languages.
    """
    count = max(1, int(metadata["n_speakers"]))
    names = [name.strip() for name in metadata.get("speaker_names", "").split(",") if name.strip()]
    ids = names if len(names) == count == len({*names}) else [str(number) for number in range(count)]
    only = languages[0] if len(languages) == 1 else ""
    if count == 1 and (dataset := metadata.get("dataset")):  # the name of a Piper voice's only speaker
        return (Voice(ids[0], named(dataset).name, only),)
    return tuple(named(id, _language(family, id, languages) or only) for id in ids)


def _language(family: str, id: str, languages: Sequence[str]) -> str:
    tag = _KOKORO.get(id[0], "") if family == "kokoro" and "_" in id else ""
    return tag if _base(tag) in map(_base, languages) else ""
