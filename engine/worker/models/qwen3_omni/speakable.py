"""The messages from the thinker to the talker: the user's turns, how the answer begins, and its text token by token."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk, Kind, Usage
from engine.worker.omni import talker_feed
from engine.worker.omni.talker_feed import TextEnd


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


Speakable = UserTurns | Lead | TextToken | TextEnd | Usage

_STRUCTS: dict[Kind, type[UserTurns | Lead | TextToken | TextEnd]] = {
    str(one.__struct_config__.tag): one for one in (UserTurns, Lead, TextToken, TextEnd)
}


def read(chunk: Chunk) -> Speakable:
    """Read a chunk of the thinker's. Raises StageFailed for one that is none of these."""
    return talker_feed.read(chunk, _STRUCTS)
