"""Decode steps and codec frames as one native call each (native.c), over the tensors of the torch blocks.

The library is built with the package where there is a compiler. Where it is missing, or the stack is not its kind
(float32 on a CPU, one thread: with more, torch spreads its products over them), the blocks compute the same in torch.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.worker.nn.sampler import BatchSamplingParams

if TYPE_CHECKING:
    from engine.worker.nn.decoder import Decoder, Layer
    from engine.worker.nn.slots import KvSlots, Where

VERSION = 2  # of native.c's structures and signatures
MOST_WORK = 16e6  # multiplications: beyond (some hundred rows of a tiny stack), torch's blocked products win
log = logging.getLogger(__name__)


class _Layer(ctypes.Structure):
    _fields_ = [
        (name, c_void_p)
        for name in (
            "before", "qkv", "qkv_bias", "query_norm", "key_norm", "out", "out_bias", "between", "router", "gate_up",
            "down", "shared_gate", "shared_gate_up", "shared_down",
        )
    ]  # fmt: skip


class _Stack(ctypes.Structure):
    _fields_ = [
        *(
            (name, c_int64)
            for name in (
                "layers", "width", "heads", "kv_heads", "dim", "inner", "experts", "top_k", "normalise",
                "shared_inner", "slots", "length",
            )
        ),
        ("eps", c_double),
        *((name, c_void_p) for name in ("layer", "norm", "keys", "values")),
    ]  # fmt: skip


class _Predictor(ctypes.Structure):
    _fields_ = [
        ("stack", c_void_p), ("groups", c_int64), ("vocabulary", c_int64),
        *((name, c_void_p) for name in ("codes", "heads", "cosines", "sines")),
        ("stream", c_int64), ("top_k", c_int64), ("top_p", c_double),
    ]  # fmt: skip


class _Extra(ctypes.Structure):
    _fields_ = [("tap", c_int64), ("deep", c_int64), ("tapped", c_void_p), ("added", c_void_p)]


@cache
def library() -> Any:
    """What native.c was built into; None where it was not."""
    here = Path(__file__).parent
    built = next((file for suffix in EXTENSION_SUFFIXES if (file := here / f"_native{suffix}").exists()), None)
    if built is None:
        return None
    found = ctypes.CDLL(str(built))
    if found.version() != VERSION:
        log.warning("%s was built from other sources, so steps run in torch: install Parley again", built)
        return None
    return found


class NativeStack:
    """The layers of a Decoder over one of its caches."""

    def __init__(self, decoder: Decoder, cache: KvSlots, native: Any) -> None:
        self._held = decoder, cache  # their memory is what the structures point to
        self._step = native.step
        self._layers = (_Layer * len(decoder.layers))(*(_layer(layer) for layer in decoder.layers))
        first, (_, slots, kv_heads, length, dim) = decoder.layers[0], cache.keys.shape
        feed = next((layer.feed for layer in decoder.layers if hasattr(layer.feed, "router")), first.feed)
        experts, top_k, normalise = _routing(feed)
        shared: Any = getattr(feed, "shared", None)
        self._struct = _Stack(
            len(decoder.layers), decoder.config.hidden_size, first.heads[0], kv_heads, dim, feed.down.shape[-1],
            experts, top_k, normalise, 0 if shared is None else shared.down.shape[-1], slots, length,
            decoder.config.rms_norm_eps, ctypes.addressof(self._layers), _at(decoder.norm), _at(cache.keys),
            _at(cache.values),
        )  # fmt: skip
        self.address = ctypes.addressof(self._struct)
        answering = feed.gate_up[0].numel() * 3 // 2 * top_k if experts else feed.gate_up.numel() * 3 // 2
        answering += 0 if shared is None else shared.gate_up.numel() * 3 // 2
        self._work = len(decoder.layers) * (first.qkv.numel() + first.out.numel() + answering)
        self._look = len(decoder.layers) * first.heads[0] * dim * 2

    def suits(self, count: int, where: Where) -> bool:
        """Whether ``count`` rows that go to ``rows`` are few enough to be computed here, and look at little enough.

        Here each row reads its own way through what it sees. Torch reads that once for all rows of a slot: of a long
        conversation's next turn (90 rows behind 1700) it makes half the time of what is three times as quick here
        behind nothing.
        """
        return count * self._work + where.shared * self._look <= MOST_WORK

    @classmethod
    def of(cls, decoder: Decoder, cache: KvSlots) -> NativeStack | None:
        """None where torch is to compute."""
        plain = decoder.device.type == "cpu" and decoder.dtype == torch.float32 and torch.get_num_threads() == 1
        alike = len({(type(layer.feed), layer.feed.down.shape[-1]) for layer in decoder.layers}) == 1
        native = library() if plain and alike else None
        return None if native is None else cls(decoder, cache, native)

    def forward(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        where: Where,
        tap: int,
        added: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor]:
        """See Decoder.forward."""
        hidden, (batch, count, _) = x.clone(memory_format=torch.contiguous_format), x.shape
        cos, sin = (one.expand(batch, 1, count, -1).contiguous() for one in angles)
        tapped = torch.empty_like(hidden) if tap > 0 else x
        deep = torch.stack(list(added)) if added else hidden
        slots = where.owners
        extra = _Extra(tap, len(added), tapped.data_ptr(), deep.data_ptr())
        _check(
            self._step(
                c_void_p(self.address), _to(hidden), c_int64(batch * count), _to(slots), _to(where.at), _to(cos),
                _to(sin), ctypes.byref(extra),
            )
        )  # fmt: skip
        return hidden, tapped


class NativeFrames:
    """A code predictor's whole frame: ``codes`` and ``heads`` of each group, ``angles`` of its positions."""

    def __init__(
        self, stack: NativeStack, codes: Sequence[Tensor], heads: Sequence[Tensor], angles: tuple[Tensor, Tensor],
        stream: int, top_k: int, top_p: float,
    ) -> None:  # fmt: skip
        native = library()
        self._frame, self.groups = native.frame, len(codes) + 1
        self._held = stack, codes, heads, angles
        self._tables = [(c_void_p * len(tables))(*map(_at, tables)) for tables in (codes, heads)]
        self._struct = _Predictor(
            stack.address, self.groups, codes[0].shape[0], *map(ctypes.addressof, self._tables), *map(_at, angles),
            stream, top_k, top_p,
        )  # fmt: skip

    def frame(self, hidden: Tensor, first: Tensor, params: BatchSamplingParams, steps: Tensor) -> tuple[Tensor, Tensor]:
        """See Predictor.frame."""
        codes = torch.empty(len(hidden), self.groups - 1, dtype=torch.long)
        total = torch.empty_like(first)
        hidden, first = hidden.contiguous(), first.contiguous()
        _check(
            self._frame(
                ctypes.byref(self._struct), _to(hidden), _to(first), c_int64(len(hidden)), _to(params.greedy),
                _to(params.seeds), _to(steps), _to(codes), _to(total),
            )
        )  # fmt: skip
        return codes, total


def _layer(layer: Layer) -> _Layer:
    feed: Any = layer.feed
    shared = getattr(feed, "shared", None)
    return _Layer(
        *map(_at, (layer.before, layer.qkv, layer.qkv_bias, layer.query_norm, layer.key_norm, layer.out)),
        *map(_at, (layer.out_bias, layer.between, getattr(feed, "router", None), feed.gate_up, feed.down)),
        *map(_at, (feed.shared_gate, shared.gate_up, shared.down) if shared is not None else (None, None, None)),
    )


def _routing(feed: Any) -> tuple[int, int, bool]:
    """How many experts there are, how many answer, and whether their shares are made to sum to one."""
    router = getattr(feed, "router", None)
    return (0, 0, False) if router is None else (len(router), feed.top_k, bool(feed.normalise))


def _at(tensor: Tensor | None) -> int | None:
    """Where a weight lies, for as long as its owner holds it."""
    if tensor is None:
        return None
    assert tensor.is_contiguous(), "native code knows no strides"
    assert tensor.dtype == torch.float32, "native code reads float32"
    return tensor.data_ptr()


def _to(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("no memory for a decode step")
