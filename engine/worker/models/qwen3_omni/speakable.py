"""The messages from the thinker to the talker: the user's turns, how the answer begins, and its text token by token."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray


class UserTurns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_omni.user_turns"):
    """A piece of the user's turns, which begins ``at`` a row of them all: ids [rows], their positions [3, rows] and
    names [rows], and the thinker's hidden rows [sounds and pictures, width] for those ids that stand for them."""

    at: int
    ids: NDArray[np.int64]
    positions: NDArray[np.float32]
    media: NDArray[np.float32]
    names: NDArray[np.int64]


class Lead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_omni.lead"):
    """The beginning of the assistant's own turn: its ids, the first of them at ``position``."""

    ids: tuple[int, ...]
    position: float


class TextToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_omni.text_token"):
    """The next token to be spoken, behind which the answer has ``text_end`` characters."""

    id: int
    text_end: int
