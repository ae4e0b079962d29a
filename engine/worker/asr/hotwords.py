"""Keywords of a session as hotwords of sherpa-onnx's zipformer transducers, which then decode with beam search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.deployment.config import build
from engine.errors import ConfigError
from engine.worker.asr.sherpa_model_files import token_names
from engine.worker.asr.transcribing import EarsOptions

_WORD_START = "▁"
_CJK = range(0x2E80, 0xD7B0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SherpaOptions(EarsOptions):
    """Stage ``options`` of ``asr.sherpa``."""

    hotwords_score: float = 0.0
    """Log-probability added for each token of a session's ``keywords``, such as 1.5. 0: keywords have no effect.
    Otherwise a zipformer transducer decodes with beam search.
    """


@dataclass(frozen=True, slots=True)
class Hotwords:
    """How a transducer takes hotwords."""

    arguments: Mapping[str, Any]
    """Arguments of the library's factory."""
    generated: Mapping[str, str]
    """Arguments that name generated files: the content of each."""
    capitals: bool
    characters: frozenset[str]
    """The characters that the tokens contain."""

    def encode(self, keywords: Sequence[str]) -> str:
        """Return keywords in the library's format, without those that the model cannot write."""
        plain = [" ".join(word.replace("/", " ").replace(":", " ").split()) for word in keywords]
        cased = [word.upper() if self.capitals else word for word in plain]
        return "/".join(word for word in cased if word and set(word.replace(" ", "")) <= self.characters)


def sherpa_options(options: Mapping[str, Any]) -> SherpaOptions:
    """Parse and check the stage's options. Raises ConfigError."""
    built = build(SherpaOptions, dict(options), "options")
    if not 0 <= built.hotwords_score <= 100:
        raise ConfigError(f"options.hotwords_score: must be from 0 to 100 (got {built.hotwords_score})")
    return built


def hotwords_of(tokens: Path, capitals: bool, score: float) -> Hotwords:
    """Return how the transducer with this token table takes hotwords. ``capitals``: whether all tokens are in capitals.

    The library splits hotwords by a vocabulary with scores. Token numbers are ranks of the merges, as in the scores of
    SentencePiece's BPE models, so the vocabulary follows from the token table.
    """
    names = token_names(tokens)
    pieces = any(name.startswith(_WORD_START) for name in names)
    ideographs = any(len(name) == 1 and ord(name) in _CJK for name in names)
    unit = "cjkchar" if not pieces else "cjkchar+bpe" if ideographs else "bpe"
    vocabulary = "".join(f"{name}\t{-rank}\n" for rank, name in enumerate(names))
    return Hotwords(
        arguments={"decoding_method": "modified_beam_search", "hotwords_score": score, "modeling_unit": unit},
        generated={"bpe_vocab": vocabulary} if pieces else {},
        capitals=capitals,
        characters=frozenset("".join(name for name in names if name[0] != "<")),
    )
