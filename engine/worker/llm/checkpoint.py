"""A checkpoint folder in Hugging Face layout: model type, chat template and memory needs.

Source: transformers 5 (``config.json``, ``chat_template.jinja``, ``tokenizer_config.json``). Does not load weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from engine.errors import WeightsError

VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LARGEST = 1 << 31
"""Maximum of the numbers in a configuration; the longest contexts have a few million positions."""
_WEIGHTS = ("*.safetensors", "*.bin")
_OWN_TEMPLATE = "tekken.json"
"""Mistral's tokenizer formats conversations itself."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model's folder."""

    folder: Path
    size: int
    """Size of the weights in bytes."""
    config: Mapping[str, Any]
    template: str
    """Chat template (Jinja), or "" if the tokenizer formats conversations itself."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def context(self) -> int:
        """Maximum tokens of prompt and answer in training, or 0 if unknown."""
        return self._number("max_position_embeddings", 0)

    @property
    def value_bytes(self) -> int:
        """Bytes per stored weight, or 0 if unknown."""
        return VALUE_BYTES.get(str(self._of("dtype", self._of("torch_dtype", ""))), 0)

    def reads(self, what: str) -> bool:
        """Return whether the model itself supports "vision" or "audio" input."""
        return f"{what}_config" in self.config

    def cache_bytes(self, tokens: int, value_bytes: int) -> int:
        """Return the maximum bytes of keys and values for a number of tokens, or 0 if unknown."""
        heads = self._number("num_attention_heads", 0)
        width = self._number("head_dim", 0) or self._number("hidden_size", 0) // max(1, heads)
        kv_heads = self._number("num_key_value_heads", heads)
        return 2 * self._number("num_hidden_layers", 0) * kv_heads * width * value_bytes * tokens

    def _number(self, key: str, otherwise: int) -> int:
        found = self._of(key, otherwise)
        if type(found) is not int or not 0 <= found <= LARGEST:
            raise WeightsError(f"{self.folder / 'config.json'}: {key} must be a whole number from 0 to {LARGEST}")
        return found

    def _of(self, key: str, otherwise: Any) -> Any:
        """Return a field of the language model; multimodal models have it one level deeper."""
        text = self.config.get("text_config")
        found: Any = cast("dict[str, Any]", text).get(key) if isinstance(text, dict) else None
        found = self.config.get(key) if found is None else found
        return otherwise if found is None else found


def read_checkpoint(folder: Path, template: bool = True) -> ModelFolder:
    """Read a folder. Raises WeightsError if it has no language model, or lacks a required chat ``template``."""
    if not folder.is_dir():
        what = "must be a checkpoint folder, not a file" if folder.exists() else "the folder does not exist"
        raise WeightsError(f"{folder}: {what}")
    config = json_in(folder / "config.json")
    if config is None:
        raise WeightsError(f"{folder}: has no config.json, so it is not a Hugging Face checkpoint")
    files = next((found for pattern in _WEIGHTS if (found := sorted(folder.glob(pattern)))), [])
    if not files:
        raise WeightsError(f"{folder}: has no weights (*.safetensors)")
    found = template_in(folder)
    if template and not found and not (folder / _OWN_TEMPLATE).exists():
        raise WeightsError(f"{folder}: has no chat template. Set options.template to a Jinja file.")
    return ModelFolder(folder, sum(file.stat().st_size for file in files), config, found)


def template_in(folder: Path) -> str:
    """Return a checkpoint's chat template (Jinja), or "" if there is none. Raises WeightsError for an unreadable
    file.
    """
    return next(filter(None, _templates(folder)), "")


def _templates(folder: Path) -> Iterator[str]:
    """Yield the template from each possible place; if a file has several, the default one."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        yield file.read_text(encoding="utf-8", errors="replace")
    for name in ("chat_template.json", "tokenizer_config.json"):
        match (json_in(folder / name) or {}).get("chat_template"):
            case str() as text:
                yield text
            case list() as several:
                entries = [cast("dict[str, Any]", one) for one in cast("list[Any]", several) if isinstance(one, dict)]
                yield next((str(one.get("template", "")) for one in entries if one.get("name") == "default"), "")
            case _:
                pass


def json_in(file: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file; None if the file does not exist. Raises WeightsError."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WeightsError(f"{file}: cannot be read: {error}") from None
