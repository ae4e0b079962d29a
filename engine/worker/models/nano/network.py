"""The ONNX decoder of nano's language model, with the state of each conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import WeightsError
from engine.worker.models.nano.inference import load, run
from engine.worker.models.nano.tokens import CONTEXT, VOCABULARY

WARM = 64  # tokens, the length of a first turn


@dataclass(frozen=True, slots=True)
class NanoPrefixKV:
    """Keys, values and convolution states of a conversation, stored so that its next request can reuse them."""

    keys: NDArray[np.float32]
    values: NDArray[np.float32]
    ends: Sequence[tuple[int, NDArray[np.float32]]]
    """Positions from which a later request can continue, each with its convolution state."""

    @property
    def size(self) -> int:
        return self.keys.nbytes + self.values.nbytes + sum(conv_state.nbytes for _, conv_state in self.ends)


class Network:
    """The exported decoder and the state of ``slots`` conversations.

    State arrays (float32), laid out for the matrix products: ``keys`` [slots, layers, heads, head, CONTEXT], ``values``
    [slots, layers, heads, CONTEXT, head], and ``conv_states`` [slots, layers, taps - 1, mixed], the last inputs of the
    convolutions.
    """

    def __init__(self, path: Path, slots: int, threads: int = 1) -> None:
        self._session = load(path, threads, same_shapes=False)
        size = {entry.name: entry.shape for entry in self._session.get_outputs()}["logits"][-1]
        if size != VOCABULARY:
            raise WeightsError(
                f"{path}: the model has {size} tokens, but this version of nano needs {VOCABULARY}. "
                "Download nano's files again."
            )
        sizes: dict[str, list[int]] = {entry.name: entry.shape for entry in self._session.get_inputs()}
        layers, heads, head, _ = sizes["keys"][1:]
        # np.full touches the memory now. np.zeros would allocate it page by page during a user's first step.
        self._keys = np.full((slots, layers, heads, head, CONTEXT), 0, np.float32)
        self._values = np.full((slots, layers, heads, CONTEXT, head), 0, np.float32)
        self._conv_states = np.full((slots, *sizes["tails"][1:]), 0, np.float32)
        self._warm(slots)

    def _warm(self, slots: int) -> None:
        """Make the runtime allocate its memory: run a long prefill, and a step of all slots."""
        self.advance([0], [[0] * WARM], [0])
        self.advance(range(slots), [[0]] * slots, [WARM] * slots)

    def conv_state(self, slot: int) -> NDArray[np.float32]:
        """Return a copy of a slot's convolution state."""
        return self._conv_states[slot].copy()

    def prefix_kv(self, slot: int, length: int, ends: Sequence[tuple[int, NDArray[np.float32]]]) -> NanoPrefixKV:
        """Return a copy of the first ``length`` positions of a slot."""
        return NanoPrefixKV(
            self._keys[slot, ..., :length].copy(), self._values[slot, :, :, :length].copy(), tuple(ends)
        )

    def restore(self, slot: int, length: int, prefix: NanoPrefixKV, conv_state: NDArray[np.float32]) -> None:
        """Fill a slot with the first ``length`` positions of a stored prefix."""
        self._keys[slot, ..., :length] = prefix.keys[..., :length]
        self._values[slot, :, :, :length] = prefix.values[:, :, :length]
        self._conv_states[slot] = conv_state

    def advance(
        self, slots: Sequence[int], ids: Sequence[Sequence[int]], lengths: Sequence[int]
    ) -> NDArray[np.float32]:
        """Feed the same number of tokens to each slot, after its ``lengths`` positions. Returns logits [batch,
        VOCABULARY].
        """
        past = max(1, *lengths)
        for slot, length in zip(slots, lengths, strict=True):
            self._conv_states[slot] *= length > 0
        feeds = {
            "ids": np.asarray(ids, np.int64),
            "keys": self._keys[slots, ..., :past],
            "values": self._values[slots, :, :, :past],
            "tails": self._conv_states[slots],
            "lengths": np.asarray(lengths, np.int64),
        }
        logits, keys, values, conv_state = run(self._session, None, feeds)
        for i, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
            end = length + len(ids[i])
            self._keys[slot, ..., length:end] = keys[i]
            self._values[slot, :, :, length:end] = values[i]
        self._conv_states[slots] = conv_state
        return logits
