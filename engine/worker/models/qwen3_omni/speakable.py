"""Messages from the thinker to the talker: the user's turns, the start of the answer, and its text tokens."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray


class UserTurns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_omni.user_turns"):
    """A piece of the user's turns."""

    at: int
    """Index of the first row within all user turns."""
    ids: NDArray[np.int64]
    """Token ids [rows]."""
    positions: NDArray[np.float32]
    """Rope positions [3, rows]."""
    media: NDArray[np.float32]
    """Hidden rows [placeholders, width] of the thinker, one for each audio or image placeholder in ``ids``."""
    names: NDArray[np.int64]
    """Content names [rows], used to find reusable prefixes."""


class Lead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_omni.lead"):
    """Start of the assistant's turn: its token ids, the first at rope position ``position``."""

    ids: tuple[int, ...]
    position: float


class TextToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_omni.text_token"):
    """The next token to speak; ``text_end`` is the answer's length in characters after it."""

    id: int
    text_end: int
