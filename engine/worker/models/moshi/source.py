"""A Moshi checkpoint: a folder in Kyutai's format (also of PersonaPlex), or in that of transformers."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from engine.core import Voice
from engine.errors import ConfigError, WeightsError
from engine.worker.models.moshi.lm import MoshiLm
from engine.worker.models.moshi.names import KyutaiMimiNames, KyutaiNames, RenamedFiles, transformers_names
from engine.worker.models.moshi.net import MoshiNet
from engine.worker.models.moshi.options import MoshiOptions
from engine.worker.models.moshi.prompt import check_promptable
from engine.worker.models.moshi.sizes import MoshiSizes, kyutai_codec, kyutai_sizes, transformers_sizes
from engine.worker.nn.checkpoint_source import DeviceSource
from engine.worker.nn.mimi import mimi_sizes
from engine.worker.nn.weights import WHOLE, SafetensorsFiles, WeightReader, read_json
from engine.worker.stage import StageConfig
from engine.worker.text.sentencepiece_file import read_sentencepiece
from engine.worker.text.tokenizer import plain_of, read_tokenizer
from engine.worker.tts.voices import named

ARCHITECTURE = "MoshiForConditionalGeneration"
CODEC = "tokenizer-e351c8d8-checkpoint125.safetensors"
TOKENIZER = "tokenizer_spm_32k_3.model"
MODEL_TYPES = ("moshi", "personaplex", "")
"""Values of ``model_type`` in Kyutai's format. Some repositories have no configuration; they are Moshi 7B."""


class MoshiSource(DeviceSource):
    """The checkpoint of a stage. Raises WeightsError or ConfigError if it does not support the options."""

    def __init__(self, config: StageConfig) -> None:
        self.options = MoshiOptions.of(config.options)
        super().__init__(config, "auto", "auto")
        file = self.folder / "config.json"
        self.config = read_json(file) if file.exists() else {}
        self._where = str(file)
        self.of_transformers = ARCHITECTURE in (self.config.get("architectures") or ())
        self.sizes = self._sizes()
        self._check()

    def _sizes(self) -> MoshiSizes:
        if self.of_transformers:
            return transformers_sizes(self.config, self._where)
        kind = self.config.get("model_type", "")
        if self.config.get("architectures") or kind not in MODEL_TYPES:
            raise WeightsError(
                f"{self._where}: the model_type is {kind!r:.80}, not one of {', '.join(map(repr, MODEL_TYPES))}."
            )
        return kyutai_sizes(self.config, self._where)

    def _check(self) -> None:
        if self.prompted:
            check_promptable(self.sizes, self._where)
            _ = self.voice_files
        elif self.options.instructions:
            raise ConfigError("options.instructions: set options.voices too. Only PersonaPlex reads instructions.")
        if self.options.voice and self.options.voice not in self.voice_files:
            known = ", ".join(self.voice_files) or "none"
            raise ConfigError(f"options.voice: there is no voice {self.options.voice!r:.80} (voices: {known}).")
        if self.options.context > self.sizes.window:
            raise ConfigError(f"options.context must be at most {self.sizes.window}, the model's own.")

    @property
    def prompted(self) -> bool:
        """Whether sessions begin with a prompt."""
        return bool(self.options.voices)

    @property
    def window(self) -> int:
        return self.options.context or self.sizes.window

    @cached_property
    def voice_files(self) -> dict[str, Path]:
        """Files of the voices by name, the default first."""
        if not self.options.voices:
            return {}
        files = {file.stem: file for file in sorted(Path(self.options.voices).glob("*.pt"))}
        if not files:
            raise ConfigError(f"options.voices: the folder {self.options.voices} has no .pt files.")
        return dict(sorted(files.items(), key=lambda one: one[0] != self.options.voice))

    @property
    def voices(self) -> tuple[Voice, ...]:
        return tuple(named(name) for name in self.voice_files)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        if self.of_transformers:
            return plain_of(read_tokenizer(self.folder))
        return read_sentencepiece(self.folder / self._file("tokenizer_name", TOKENIZER))

    @cached_property
    def tokenizer_id(self) -> str:
        """A name of the tokenizer, computed from its file."""
        file = self.folder / ("tokenizer.json" if self.of_transformers else self._file("tokenizer_name", TOKENIZER))
        return f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}" if file.exists() else ""

    def network(self) -> MoshiNet:
        """Load the weights. The codec stays in float32."""
        with torch.inference_mode():
            lm = MoshiLm(self._language_model(), self.sizes, self.slots + 1, self.window)
            return MoshiNet(lm, self._codec(), self.codec_sizes, self.slots)

    @cached_property
    def codec_sizes(self) -> Any:
        """Dimensions of the codec: in Kyutai's format those of Mimi, if it does not name a file that has them."""
        if self.of_transformers:
            return mimi_sizes(self.config.get("audio_encoder_config") or {}, f"{self._where}: audio_encoder_config")
        if not self.config.get("mimi_config_name"):
            return mimi_sizes({}, self._where)
        file = self.folder / self._file("mimi_config_name", "")
        try:
            return mimi_sizes(kyutai_codec(read_json(file)), str(file))
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsError(f"{file} is not a configuration of Mimi ({error!r}). Download it again.") from None

    def _language_model(self) -> WeightReader:
        if self.of_transformers:
            files = RenamedFiles(self.folder, transformers_names, WHOLE, self.device)
        else:
            name = self._file("moshi_name", WHOLE)
            files = RenamedFiles(self.folder, KyutaiNames(self.sizes), name, self.device)
        return WeightReader(files, "", self.device, self.dtype, self.kernels, self.static)

    def _codec(self) -> WeightReader:
        if self.of_transformers:
            files, prefix = SafetensorsFiles(self.folder), "audio_encoder."
        else:
            name = self._file("mimi_name", CODEC)
            files, prefix = RenamedFiles(self.folder, KyutaiMimiNames(self.codec_sizes), name, self.device), ""
        return WeightReader(files, prefix, self.device, torch.float32, self.kernels, self.static)

    def _file(self, field: str, default: str) -> str:
        """Return the name of a file of the folder."""
        name = self.config.get(field) or default
        if not isinstance(name, str) or Path(name).name != name:
            raise WeightsError(f"{self._where}: {field} must be the name of a file in the folder (got {name!r:.80}).")
        return name
