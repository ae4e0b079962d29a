"""Rotary positions, of one axis or of three (time, height, width), always explicit: no state, no cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Rope:
    """The angles of positions for heads of ``dim`` channels.

    ``section`` spreads three axes over the frequencies in turn: t h w t h w …; where the h and w of their sections
    are used up, t goes on (interleaved M-RoPE: Qwen3-VL report, "mrope_interleaved" in its checkpoints). Without
    ``interleaved`` the sections lie one behind another (Qwen2-VL: Wang et al. 2024).
    """

    def __init__(
        self,
        dim: int,
        theta: float,
        device: torch.device,
        section: Sequence[int] | None = None,
        interleaved: bool = True,
    ) -> None:
        self._inverse = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim)
        axes = torch.zeros(dim // 2, dtype=torch.long)
        section = tuple(section or ())
        if not interleaved:
            axes = torch.arange(3).repeat_interleave(torch.tensor(section))
        for axis in (1, 2) if section and interleaved else ():
            axes[axis : section[axis] * 3 : 3] = axis
        self._axes = torch.nn.functional.one_hot(axes, 3).T.to(device, torch.float32) if section else None

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine [batch, 1, rows, dim] of float positions [batch, rows] ([3, batch, rows] with sections)."""
        if self._axes is None:
            angles = positions[..., None] * self._inverse
        else:
            angles = torch.einsum("abr,ad->brd", positions, self._axes) * self._inverse
        angles = torch.cat((angles, angles), -1)[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn heads [batch, heads, rows, dim] by the angles of their rows."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin
