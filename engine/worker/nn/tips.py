"""What requests bring to a decode step, a row each, as columns of one table: a single copy brings all to a device.

Knows no model and no stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn import sampler
from engine.worker.nn.sampler import Draw, Draws


@dataclass(frozen=True, slots=True)
class Tip:
    """A token that goes in behind the first ``start`` rows of a slot, at a rope ``place``; draw ``step`` is next."""

    slot: int
    start: int
    token: int
    step: int
    place: float
    how: Draw


def packed(tips: Sequence[Tip]) -> NDArray[np.int64]:
    """A table [10, batch] for ``Columns``."""
    own = np.array([(tip.slot, tip.start, tip.token, tip.step) for tip in tips], np.int64)
    places = np.array([tip.place for tip in tips]).view(np.int64)
    return np.concatenate((own.T, places[None], sampler.packed([tip.how for tip in tips])))


@dataclass(frozen=True, slots=True)
class Columns:
    """Tips on a device, each field [batch]. ``widest``: see Draws."""

    slots: Tensor
    starts: Tensor
    tokens: Tensor
    steps: Tensor
    places: Tensor
    draws: Draws

    @classmethod
    def of(cls, table: Tensor, widest: int) -> Columns:
        slots, starts, tokens, steps, places = table[:5]
        places = places.view(torch.float64).float()
        return cls(slots, starts, tokens, steps, places, Draws.unpacked(table[5:], widest))
