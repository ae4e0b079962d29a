"""What kernels share: in what they multiply, and how they round."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def by_hand() -> bool:
    """Whether Triton interprets kernels. Its interpreter neither multiplies nor rounds bfloat16 as a GPU does."""
    return bool(triton.knobs.runtime.interpret)


def product_type(dtype: torch.dtype) -> Any:
    """The type in which factors of that dtype go into ``tl.dot``, whose sums are float32: a product of two such numbers
    is exact in float32, so what the interpreter says there holds."""
    return tl.float32 if by_hand() else TYPES[dtype]


@triton.jit
def rounded(x, TO: tl.constexpr, BY_HAND: tl.constexpr):
    """float32 rounded to the nearest number of a type, the even one of two: in that type, or where it is done by hand
    in float32."""
    if BY_HAND and tl.bfloat16 == TO:
        bits = x.to(tl.uint32, bitcast=True)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).to(tl.float32, bitcast=True)
    return x.to(TO)
