"""Rotary position embeddings with one or three axes (time, height, width), stateless."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Rope:
    """Angles of positions for heads of ``dim`` channels.

    ``section`` distributes three axes over the frequencies. Interleaved (M-RoPE of the Qwen3-VL report,
    "mrope_interleaved" in its checkpoints) they alternate t h w t h w …, and t fills the rest. Otherwise the sections
    are consecutive (Qwen2-VL: Wang et al. 2024).
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
        """Return cosine and sine [batch, 1, rows, dim] of float positions [batch, rows] ([3, batch, rows] with
        sections).
        """
        if self._axes is None:
            angles = positions[..., None] * self._inverse
        else:
            angles = torch.einsum("abr,ad->brd", positions, self._axes) * self._inverse
        angles = torch.cat((angles, angles), -1)[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads [batch, heads, rows, dim] by the angles of their rows."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin
