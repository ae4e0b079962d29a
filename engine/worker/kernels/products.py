"""Number types and rounding that the kernels share."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def by_hand() -> bool:
    """Return whether Triton interprets kernels.

    The kernels then emulate a GPU's bfloat16 rounding, which the interpreter does differently.
    """
    return bool(triton.knobs.runtime.interpret)


def product_type(dtype: torch.dtype) -> Any:
    """Return the type of the factors of ``tl.dot``, whose sums are float32.

    The interpreter uses float32, in which the product of two bfloat16 or float16 numbers is exact, so its results are
    valid.
    """
    return tl.float32 if by_hand() else TYPES[dtype]


@triton.jit
def rounded(x, TO: tl.constexpr, BY_HAND: tl.constexpr):
    """Round float32 to the nearest number of a type, ties to even; BY_HAND emulates bfloat16 in float32."""
    if BY_HAND and tl.bfloat16 == TO:
        bits = x.to(tl.uint32, bitcast=True)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).to(tl.float32, bitcast=True)
    return x.to(TO)
