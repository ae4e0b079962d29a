"""A voice of sherpa-onnx as it lies in a folder: which model it is, whose voices and languages it has, its files.

The names of files are those of the models that the project k2-fsa/sherpa-onnx publishes. What a model is stands in its
ONNX file's metadata; the library itself ends the process where something of that is missing, so it is looked up here.
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
"""The metadata of each model without which the library ends the process."""

PHONEMIZED = ("piper", "coqui", "icefall", "inflect")
"""Toolkits whose voices of the family vits take phonemes, by the word in a model's comment."""

_KOKORO = {"a": "en-US", "b": "en-GB", "e": "es", "f": "fr", "h": "hi", "i": "it", "j": "ja", "p": "pt", "z": "zh"}
"""Kokoro's languages, by the first letter of a voice's name."""
_VOCODERS = ("hifigan", "vocos")
_REGION_FIRST = re.compile(r"(us|gb)-en")


@dataclass(frozen=True, slots=True)
class SherpaVoice:
    """``family`` is a key of NEEDED, or a cloner's; ``voices`` stand in the order of their numbers, the first language
    is the one that text is prepared for."""

    folder: Path
    family: str
    model: Path
    vocoder: Path | None
    lexicons: tuple[Path, ...]
    rules: tuple[Path, ...]
    """Grammars that write numbers as words."""
    rate_hz: int
    voices: tuple[Voice, ...]
    languages: tuple[str, ...]
    networks: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Files of a voice that clones."""
    published: PublishedVoice | None = None
    """The voice's files, if they are as its authors publish them: ``config`` takes them from another folder."""
    phonemized: bool = False
    """Whether the library takes phonemes in place of a text."""

    def number(self, voice: str) -> int:
        """Return the library's number of a voice."""
        return [one.id for one in self.voices].index(voice)

    @property
    def pronounce(self) -> Pronounce | None:
        """Return what makes phonemes of an English clause, for a voice that takes them; else None."""
        if not self.phonemized or not self.languages or _base(self.languages[0]) != "en":
            return None
        in_ipa = self.family != "kokoro"
        if self.published is not None:
            return by_dictionaries(self.folder, in_ipa)
        return by_lexicon(self.lexicons[0], in_ipa)

    def config(self, library: Any, threads: int, folder: Path) -> Any:
        """Return the configuration that sherpa_onnx.OfflineTts is made of; ``folder`` has the library's files."""
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
    """The voice in a folder, for text of a language (BCP 47; "" is the voice's own first one).

    Raises WeightsError where something is missing, ConfigError for a language that it does not speak, and for clones
    of a voice that clones nobody.
    """
    folder = weights_folder(folder, "tts.sherpa", "a voice of sherpa-onnx")
    if (cloner := cloner_in(folder)) is not None:
        return _cloning(folder, cloner, language, clones)
    if clones:
        raise ConfigError(f"options.clones: the voice in {folder} cannot clone voices; leave them out")
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
            f"The voice in {folder} speaks {voice.metadata['language']}. As its authors publish it, tts.sherpa speaks "
            "English voices only; take the files of k2-fsa/sherpa-onnx, with a lexicon."
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
    """The model, what it says of itself, and the vocoder of one that needs it."""
    found = {path: metadata_of(path) for path in sorted(folder.glob("*.onnx"))}
    vocoders = [path for path, metadata in found.items() if metadata.get("model_type", "").endswith(_VOCODERS)]
    models = [path for path in found if path not in vocoders]
    named = [path for path in models if path.name == "model.onnx"] or models
    if len(named) != 1:
        several = ", ".join(path.name for path in named)
        what = f"has several models ({several}): leave one of them" if named else "has no model.onnx"
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
    """Raise WeightsError where metadata is missing without which the library ends the process."""
    missing = [key for key in NEEDED[family] if not metadata.get(key)]
    if missing:
        raise WeightsError(f"{model} has no metadata on its {', '.join(missing)}: it is not a voice of sherpa-onnx.")
    for key in ("sample_rate", "n_speakers", "style_dim"):
        said = metadata.get(key, "0")
        if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", said) or (key != "style_dim" and "," in said):
            raise WeightsError(
                f"{model} has a {key} of {said!r:.40}, which is not valid: it is not a voice of sherpa-onnx."
            )
    if not 4_000 <= int(metadata["sample_rate"]) <= 192_000:
        raise WeightsError(
            f"{model} has a sample_rate of {metadata['sample_rate']}, which is not a sample rate of speech."
        )


def _check_files(folder: Path, family: str, metadata: Mapping[str, str], vocoder: Path | None) -> None:
    """Check the files that have to lie beside the model."""
    styled = family in ("kokoro", "kitten")
    for name in ["tokens.txt", *(["voices.bin"] if styled else [])]:
        if not (folder / name).is_file():
            raise WeightsError(f"The voice folder {folder} has no {name}.")
    if family == "matcha" and vocoder is None and metadata.get("need_vocoder") != "0":
        raise WeightsError(f"The voice folder {folder} has no vocoder: put vocos-22khz-univ.onnx beside the model.")
    if not [*folder.glob("lexicon*.txt")] and metadata.get("frontend") != "characters":
        raise WeightsError(
            f"The voice folder {folder} has no lexicon: since version 2, sherpa-onnx needs one, as lexicon-us-en.txt."
        )
    if styled:
        _check_styles(folder / "voices.bin", metadata)


def _check_styles(path: Path, metadata: Mapping[str, str]) -> None:
    numbers = [metadata["n_speakers"], *metadata["style_dim"].split(",")]
    size = 4 * math.prod(map(int, numbers))
    if path.stat().st_size != size:
        raise WeightsError(f"{path} has {path.stat().st_size} bytes, and should have {size}: fetch it again.")


def _is_phonemized(metadata: Mapping[str, str]) -> bool:
    """Whether the library reads a lexicon with ``||`` only: it takes another one for that of another model."""
    return any(name in metadata.get("comment", "").lower() for name in PHONEMIZED)


def _languages(folder: Path, metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the languages of the lexicons; else those that the model says."""
    named = [path.stem.removeprefix("lexicon").strip("-") for path in sorted(folder.glob("lexicon*.txt"))]
    found = [_tag(name) for name in named if name]
    said = metadata.get("language", "").lower()
    known = [tag for name, tag in LANGUAGES.items() if name in said]
    return tuple(dict.fromkeys(found or known or [_tag(metadata.get("voice", ""))] * bool(metadata.get("voice"))))


def _tag(name: str) -> str:
    """``us-en``, ``en-us`` and ``zh`` as BCP 47."""
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
    """One for each language: two of one contradict each other."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("lexicon*.txt"), reverse=True):  # us before gb
        tag = _tag(path.stem.removeprefix("lexicon").strip("-"))
        if tag == chosen or _base(tag) not in found:
            found[_base(tag)] = path
    return tuple(sorted(found.values(), key=lambda path: _base(chosen) not in path.stem))


def _rules(folder: Path, chosen: str) -> tuple[Path, ...]:
    """Return the rules of the voice's language: those of another would read its numbers in theirs."""
    found = sorted([*folder.glob("*.fst"), *folder.glob("*.far")])
    suffixes = {path: path.stem.rpartition("-")[2] for path in found}
    return tuple(path for path in found if suffixes[path] not in LANGUAGES.values() or suffixes[path] == _base(chosen))


def _voices(family: str, metadata: Mapping[str, str], languages: Sequence[str]) -> tuple[Voice, ...]:
    """Return the voices by their names, or else by their numbers. Voices of Kokoro whose language has no lexicon keep
    their numbers, and speak the others."""
    count = max(1, int(metadata["n_speakers"]))
    names = [name.strip() for name in metadata.get("speaker_names", "").split(",") if name.strip()]
    ids = names if len(names) == count == len({*names}) else [str(number) for number in range(count)]
    only = languages[0] if len(languages) == 1 else ""
    return tuple(named(id, _language(family, id, languages) or only) for id in ids)


def _language(family: str, id: str, languages: Sequence[str]) -> str:
    tag = _KOKORO.get(id[0], "") if family == "kokoro" and "_" in id else ""
    return tag if _base(tag) in map(_base, languages) else ""
