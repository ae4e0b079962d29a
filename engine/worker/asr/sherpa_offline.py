"""sherpa-onnx models that transcribe whole clips: recognizes the model type from its files, and checks them.

Supports NeMo transducers (Parakeet) and CTC, zipformer transducers, Whisper, Moonshine, SenseVoice, Paraformer and
Qwen3-ASR, with the file names that the project publishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import WeightsError
from engine.worker.asr.moonshine_tokens import moonshine_tokens
from engine.worker.asr.sherpa_model_files import (
    in_capitals,
    languages_of,
    needed_metadata,
    network_of,
    only_network_of,
    tokens_of,
    whole,
)
from engine.worker.asr.transcribing import language_codes
from engine.worker.asr.whole_clips import LONGEST_S
from engine.worker.libraries.onnx_metadata import metadata_of
from engine.worker.libraries.sherpa import LANGUAGES, SherpaModel
from engine.worker.libraries.weights_folder import weights_folder

USE = "asr.sherpa_offline"
QWEN3_LONGEST_S, QWEN3_TOKENS = 20.0, 256
"""Longest clip in seconds, and its maximum tokens. The model has 512 positions: 13 per second of audio, the rest for
text. The library's default of 128 tokens truncates fast speech.
"""

MOONSHINE_SHORT_S = 2.0
"""Length below which Moonshine confuses clips that end with their last word."""
TAIL_S = 0.5
"""Seconds of silence after a clip that is too short."""

_ZIPFORMERS = ("zipformer", "conformer")
"""Model types of icefall that transcribe whole clips. Streaming exports have the metadata key T (frames per chunk)."""
_WHISPER = (
    "n_mels", "n_text_layer", "n_text_ctx", "n_text_state", "n_vocab", "sot", "eot", "blank_id", "translate",
    "transcribe", "is_multilingual", "no_timestamps", "no_speech",
)  # fmt: skip
_SENSE_VOICE_LANGUAGES = ("zh", "en", "ja", "ko", "yue")
_SENSE_VOICE = (
    "vocab_size",
    "lfr_window_size",
    "lfr_window_shift",
    "normalize_samples",
    "with_itn",
    "without_itn",
    "lang_auto",
    *(f"lang_{language}" for language in _SENSE_VOICE_LANGUAGES),
)
_QWEN3_LANGUAGES = (
    "zh", "en", "yue", "ar", "de", "fr", "es", "pt", "id", "it", "ko", "ru", "th", "vi", "ja", "tr", "hi", "ms", "nl",
    "sv", "da", "fi", "pl", "cs", "fil", "fa", "el", "ro", "hu", "mk",
)  # fmt: skip
_MOONSHINE = {
    "preprocessor": "preprocess",
    "encoder": "encode",
    "uncached_decoder": "uncached_decode",
    "cached_decoder": "cached_decode",
}
_MERGED = {"encoder": "encoder_model.ort", "decoder": "decoder_model_merged.ort"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineEars(SherpaModel):
    """Speech recognition model that transcribes whole clips."""

    recognizer = "OfflineRecognizer"
    longest_s: float = LONGEST_S
    """Longest clip in seconds; longer ones are transcribed in parts."""
    invents: bool = False
    """Whether the model writes words for silence, so that silent clips must not reach it."""
    short_s: float = 0.0
    """Clips shorter than this get TAIL_S of silence after them."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options that are set on each stream of the library."""

    def stream(self, recognizer: Any) -> Any:
        """Return the library's stream for one clip."""
        stream = recognizer.create_stream()
        for name, value in self.options.items():
            stream.set_option(name, value)
        return stream


def offline_ears(folder: Path | None, languages: Sequence[str] = ()) -> OfflineEars:
    """Find the speech model in a folder.

    Raises WeightsError for missing or damaged files, ConfigError for unsupported languages.
    """
    folder = weights_folder(folder, USE, "a speech recognition model of sherpa-onnx")
    if network_of(folder, "conv_frontend") or (folder / "tokenizer").is_dir():
        return _qwen3(folder, languages)
    if any(network_of(folder, name) for name in _MOONSHINE.values()):
        return _moonshine(folder, languages)
    if any(folder.joinpath(name).exists() for name in _MERGED.values()):
        return _merged_moonshine(folder, languages)
    encoder = network_of(folder, "encoder")
    if encoder is not None and metadata_of(encoder).get("model_type", "").startswith("whisper"):
        return _whisper(folder, encoder, languages)
    if encoder is not None or network_of(folder, "joiner") or network_of(folder, "decoder"):
        return _transducer(folder, languages)
    return _one_network(folder, languages)


def _transducer(folder: Path, languages: Sequence[str]) -> OfflineEars:
    files = whole(folder, {part: network_of(folder, part) for part in ("encoder", "decoder", "joiner")})
    if _check_kind(files["encoder"], "EncDec", *_ZIPFORMERS) == "EncDec":
        count = _nemo_tokens(files["encoder"], "pred_rnn_layers", "pred_hidden")
        return _made(folder, "from_transducer", files, languages, count, model_type="nemo_transducer")
    count = int(needed_metadata(files["decoder"], ["vocab_size", "context_size"])["vocab_size"])
    return _made(folder, "from_transducer", files, languages, count, model_type="transducer")


def _one_network(folder: Path, languages: Sequence[str]) -> OfflineEars:
    model = only_network_of(folder)
    if model is None:
        raise WeightsError(f"The model folder {folder} has no network (*.onnx). Copy or download the complete folder.")
    match _check_kind(model, "EncDec", "sense_voice", "paraformer"):
        case "sense_voice":
            return _sense_voice(folder, model, languages)
        case "paraformer":
            count = int(needed_metadata(model, _SENSE_VOICE[:3], ["neg_mean", "inv_stddev"])["vocab_size"])
            return _made(folder, "from_paraformer", {"paraformer": model}, languages, count)
        case _:
            return _made(folder, "from_nemo_ctc", {"model": model}, languages, _nemo_tokens(model))


def _sense_voice(folder: Path, model: Path, languages: Sequence[str]) -> OfflineEars:
    count = int(needed_metadata(model, _SENSE_VOICE, ["neg_mean", "inv_stddev"])["vocab_size"])
    language = _one_of(_SENSE_VOICE_LANGUAGES, languages) or "auto"
    known = languages or _SENSE_VOICE_LANGUAGES
    return _made(folder, "from_sense_voice", {"model": model}, known, count, language=language, use_itn=True)


def _whisper(folder: Path, encoder: Path, languages: Sequence[str]) -> OfflineEars:
    files = whole(folder, {"encoder": encoder, "decoder": network_of(folder, "decoder")})
    metadata = needed_metadata(encoder, _WHISPER, ["sot_sequence"])
    known, language = ("en",), "en"
    if metadata["is_multilingual"] != "0":
        codes = needed_metadata(encoder, lists=["all_language_tokens", "all_language_codes"])
        known = tuple(codes["all_language_codes"].split(","))
        if len(known) != len(codes["all_language_tokens"].split(",")):
            raise WeightsError(
                f"{encoder} has a different number of language codes and language tokens. Download it again."
            )
        language = _one_of(known, languages)
    return _made(folder, "from_whisper", files, languages or known, language=language, invents=True)


def _moonshine(folder: Path, languages: Sequence[str]) -> OfflineEars:
    files = whole(folder, {part: network_of(folder, name) for part, name in _MOONSHINE.items()})
    return _made(folder, "from_moonshine", files, languages, invents=True, short_s=MOONSHINE_SHORT_S)


def _merged_moonshine(folder: Path, languages: Sequence[str]) -> OfflineEars:
    """Describe a Moonshine model as published since 2026: two files in ONNX Runtime's ORT format.

    Moonshine AI ships the tokens as `tokenizer.bin`, sherpa-onnx as `tokens.txt`.
    """
    files = whole(folder, {part: folder / name for part, name in _MERGED.items()})
    tokenizer = folder / "tokenizer.bin"
    if not tokenizer.exists() or any(folder.glob("*tokens.txt")):
        return _made(folder, "from_moonshine_v2", files, languages, invents=True, short_s=MOONSHINE_SHORT_S)
    return OfflineEars(
        folder=folder,
        factory="from_moonshine_v2",
        arguments={name: str(path) for name, path in files.items()},
        generated={"tokens": moonshine_tokens(tokenizer)},
        languages=languages_of(folder, languages),
        invents=True,
        short_s=MOONSHINE_SHORT_S,
    )


def _qwen3(folder: Path, languages: Sequence[str]) -> OfflineEars:
    files = whole(folder, {part: network_of(folder, part) for part in ("conv_frontend", "encoder", "decoder")})
    tokenizer = folder / "tokenizer"
    whole(folder, {f"tokenizer/{name}": tokenizer / name for name in ("vocab.json", "merges.txt")})
    _check_json(tokenizer / "vocab.json")
    one = _one_of(_QWEN3_LANGUAGES, languages)
    names = {code: name.capitalize() for name, code in LANGUAGES.items()}
    return OfflineEars(
        folder=folder,
        factory="from_qwen3_asr",
        arguments={
            **{part: str(path) for part, path in files.items()},
            "tokenizer": str(tokenizer),
            "max_new_tokens": QWEN3_TOKENS,
        },
        languages=tuple(languages) or _QWEN3_LANGUAGES,
        longest_s=QWEN3_LONGEST_S,
        invents=True,
        options={"language": names[one]} if one in names else {},
    )


def _check_json(path: Path) -> None:
    try:
        msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except msgspec.DecodeError as error:
        raise WeightsError(f"{path} is not valid JSON or is incomplete. Download it again.") from error


def _made(
    folder: Path,
    factory: str,
    files: Mapping[str, Path],
    languages: Sequence[str],
    count: int = 0,
    invents: bool = False,
    short_s: float = 0.0,
    **settings: Any,
) -> OfflineEars:
    """Describe a model with a token table of at least ``count`` tokens."""
    tokens = tokens_of(folder, count)
    arguments = {**{name: str(path) for name, path in files.items()}, "tokens": str(tokens), **settings}
    return OfflineEars(
        folder=folder,
        factory=factory,
        arguments=arguments,
        languages=languages_of(folder, languages),
        capitals=in_capitals(tokens),
        invents=invents,
        short_s=short_s,
    )


def _check_kind(network: Path, *kinds: str) -> str:
    """Return which of ``kinds`` the network is. Raises WeightsError for other and for streaming networks."""
    metadata = metadata_of(network)
    model_type = metadata.get("model_type", "")
    streams = bool(metadata.get("T" if model_type.startswith(_ZIPFORMERS) else "chunk_shift"))
    for kind in kinds:
        if model_type.startswith(kind) and not streams:
            return kind
    hint = "; set use: asr.sherpa" if streams else ""
    raise WeightsError(
        f"{network} has the model type {model_type!r:.40}; {USE} supports NeMo, zipformers, Whisper, Moonshine, "
        f"SenseVoice, Paraformer and Qwen3-ASR{hint}."
    )


def _nemo_tokens(network: Path, *also: str) -> int:
    return int(needed_metadata(network, ["vocab_size", "subsampling_factor", *also])["vocab_size"])


def _one_of(known: Sequence[str], languages: Sequence[str]) -> str:
    """Return the language if exactly one is given, or "" if the model must detect it. Raises ConfigError."""
    codes = language_codes(languages, known)
    return codes[0] if len(codes) == 1 else ""
