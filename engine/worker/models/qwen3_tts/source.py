"""Checkpoint data shared by the stages: configuration, voices, languages and codec."""

from __future__ import annotations

import json
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from engine.core import Voice
from engine.deployment.did_you_mean import nearest
from engine.errors import ConfigError, WeightsError
from engine.worker.models.qwen3_tts.options import Qwen3TtsOptions
from engine.worker.nn.checkpoint_source import CheckpointSource
from engine.worker.nn.weights import SafetensorsCheckpoint
from engine.worker.stage import StageConfig
from engine.worker.tts.voices import named

ARCHITECTURE, CODEC = "Qwen3TTSForConditionalGeneration", "Qwen3TTSTokenizerV2Model"
TOKENIZER = "qwen3_tts_tokenizer_12hz"
LANGUAGES = {
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
}
"""BCP 47 language tags by the checkpoints' language names."""
WANTS = {"custom_voice": "", "voice_design": "designs", "base": "clones"}
"""Checkpoint kinds (tts_model_type), each with the option that defines its voices."""


class Qwen3TtsSource(CheckpointSource):
    """The checkpoint, as used by every stage. Raises ConfigError or WeightsError if it does not support the options."""

    def __init__(self, config: StageConfig) -> None:
        self.options = Qwen3TtsOptions.of(config.options)
        super().__init__(config, ARCHITECTURE, self.options.graphs, self.options.kernels)
        self.config = namespace(self.checkpoint.config)
        self._check()

    def _check(self) -> None:
        tokenizer, kind, options = self.config.tokenizer_type, self.kind, self.options
        if tokenizer != TOKENIZER:
            raise WeightsError(f"{self.folder}: the codec {tokenizer} is not supported (only {TOKENIZER}).")
        if kind not in WANTS:
            raise WeightsError(f"{self.folder}: the tts_model_type {kind!r:.80} is not one of {', '.join(WANTS)}")
        for name in ("designs", "clones"):
            if getattr(options, name) and WANTS[kind] != name:
                raise ConfigError(f"options.{name}: this checkpoint is of the kind {kind}, which does not support them")
        if WANTS[kind] and not getattr(options, WANTS[kind]):
            raise ConfigError(
                f"options.{WANTS[kind]}: this checkpoint is of the kind {kind}; define at least one voice"
            )
        if options.instruct and not self.instructed:
            raise ConfigError("options.instruct: only CustomVoice checkpoints of 1.7B support instructions")
        if options.voice and options.voice not in self.names:
            known = nearest(options.voice, self.names)
            raise ConfigError(f"options.voice: there is no voice {options.voice!r:.80} ({known})")
        _ = self.language

    @property
    def kind(self) -> str:
        return str(self.config.tts_model_type)

    @property
    def instructed(self) -> bool:
        """Whether the speakers support instructions; the 0.6B model was not trained with them."""
        return self.kind == "custom_voice" and self.config.tts_model_size not in ("0b6", "0.6b")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the voices, the default first."""
        made: tuple[Any, ...] = self.options.designs if self.kind == "voice_design" else self.options.clones
        speakers: dict[str, int] = self.checkpoint.config["talker_config"].get("spk_id") or {}
        found = [*speakers] if self.kind == "custom_voice" else [one.name for one in made]
        return tuple(sorted(found, key=lambda name: name != self.options.voice))

    @property
    def voices(self) -> tuple[Voice, ...]:
        return tuple(named(name) for name in self.names)

    @cached_property
    def known_languages(self) -> dict[str, int]:
        """Ids of languages and dialects by name."""
        return dict(self.checkpoint.config["talker_config"].get("codec_language_id") or {})

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(tag for name, tag in LANGUAGES.items() if name in self.known_languages)

    @cached_property
    def language(self) -> str:
        """The configured language by the checkpoint's name; empty if the model should infer it."""
        asked = self.options.language.lower()
        if not asked or asked == "auto" or asked in self.known_languages:
            return asked.removeprefix("auto")
        base = asked.split("-")[0]
        found = next((name for name, tag in LANGUAGES.items() if tag == base and name in self.known_languages), "")
        if not found:
            known = ", ".join(self.languages)
            raise ConfigError(f"options.language: the checkpoint in {self.folder} speaks {known}, not {base:.40}")
        return found

    @cached_property
    def codec(self) -> SafetensorsCheckpoint:
        """The 12 Hz codec, in the subfolder speech_tokenizer."""
        return SafetensorsCheckpoint(self.folder / "speech_tokenizer", CODEC)

    @property
    def config_of_decoder(self) -> Any:
        """Configuration of the codec's decoder."""
        return namespace(self.codec.config["decoder_config"])


def namespace(config: dict[str, Any]) -> Any:
    """Return a configuration as attributes, with ``rope_parameters`` built from the vendor's two rope fields."""
    found = json.loads(json.dumps(config), object_hook=lambda one: SimpleNamespace(**one))
    for part in (found, *_parts(found)):
        if hasattr(part, "rope_theta"):
            scaling = getattr(part, "rope_scaling", None)
            section = getattr(scaling, "mrope_section", None)
            part.rope_parameters = {"rope_theta": part.rope_theta} | ({"mrope_section": section} if section else {})
    return found


def _parts(config: Any) -> list[Any]:
    own = [one for one in vars(config).values() if isinstance(one, SimpleNamespace)]
    return own + [part for one in own for part in _parts(one)]
