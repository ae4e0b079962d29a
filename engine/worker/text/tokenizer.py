"""Reads a checkpoint's tokenizer with the tokenizers library. The ids equal those of transformers' fast tokenizer.

A folder has ``tokenizer.json``, or the byte pairs of Qwen2 as ``vocab.json`` and ``merges.txt``;
``tokenizer_config.json`` names the added tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.errors import WeightsError
from engine.worker.llm.checkpoint import json_in

QWEN2_ROLES = dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>")
"""Default special tokens by role, for a folder of Qwen2's byte pairs that does not name them."""
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern that splits text into words for Qwen2 (models/qwen2 of transformers 5.23); each digit is one word."""


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read a checkpoint's tokenizer, including its added tokens. Raises WeightsError."""
    try:
        tokenizer = _backend(folder)
        tokenizer.add_tokens(_added(folder, tokenizer))
    except Exception as error:  # noqa: BLE001 - the library raises nothing narrower for a file that it cannot read
        raise WeightsError(f"{folder}: has no tokenizer that can be read ({error})") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def plain_of(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of the tokenizer without added tokens, so that no text is encoded as a special token."""
    plain: Any = Tokenizer(tokenizer.model)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        if (found := getattr(tokenizer, part)) is not None:
            setattr(plain, part, found)
    return plain


def role_tokens(folder: Path) -> dict[str, str]:
    """Return a checkpoint's special tokens by role, such as ``eos_token``. Raises WeightsError."""
    config = json_in(folder / "tokenizer_config.json") or {}
    given = (QWEN2_ROLES if _is_qwen2(config) else {}) | (json_in(folder / "special_tokens_map.json") or {}) | config
    extra: Any = config.get("extra_special_tokens")
    given |= cast("dict[str, Any]", extra) if isinstance(extra, dict) else {}
    roles = {role: token for role, token in given.items() if role.endswith("_token")}
    return {role: _content(token) for role, token in roles.items() if isinstance(token, str | dict)}


def _is_qwen2(config: Mapping[str, Any]) -> bool:
    return str(config.get("tokenizer_class", "")).removesuffix("Fast") == "Qwen2Tokenizer"


def _backend(folder: Path) -> Tokenizer:
    whole = folder / "tokenizer.json"
    if whole.is_file():
        return Tokenizer.from_file(str(whole))
    bytepairs: Any = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    made: Any = Tokenizer(bytepairs)
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    return made


def _added(folder: Path, tokenizer: Tokenizer) -> list[AddedToken]:
    """Return the tokens that a folder adds to the tokenizer, in the order of their ids.

    Tokens named only by a role, or only as additional special tokens, come last and get the next ids.
    """
    config = json_in(folder / "tokenizer_config.json") or {}
    found = dict[str, AddedToken]()
    added = cast("dict[str, dict[str, Any]]", config.get("added_tokens_decoder") or {})
    for _, token in sorted(added.items(), key=lambda one: int(one[0])):
        found[token["content"]] = _token(token)
    for name, _ in sorted((json_in(folder / "added_tokens.json") or {}).items(), key=lambda one: one[1]):
        found.setdefault(name, AddedToken(name, special=False, normalized=False))
    for name in (*role_tokens(folder).values(), *_further(config)):
        found.setdefault(name, AddedToken(name, special=True, normalized=False))
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    return [token for name, token in found.items() if name not in known]


def _further(config: Mapping[str, Any]) -> list[str]:
    """Return the additional special tokens: those without a function of their own, such as beginning or end of text."""
    several = [config.get(name) or [] for name in ("extra_special_tokens", "additional_special_tokens")]
    return [_content(token) for tokens in several if isinstance(tokens, list) for token in cast("list[Any]", tokens)]


def _token(given: Mapping[str, Any]) -> AddedToken:
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(given["content"], **{name: bool(given[name]) for name in flags if name in given})


def _content(token: Any) -> str:
    """Return a token's text. A configuration writes a token as its text, or as an object with its flags."""
    return str(token["content"] if isinstance(token, dict) else token)
