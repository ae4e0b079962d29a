"""A GPU that is not there: tensors that say they are on one, compute on the CPU, and keep a GPU's discipline.

A tensor of the CPU that meets one of the device raises, as it would there; whatever makes the host wait for the device
is written down with the line of ours that asked for it, and so is a tensor there of numbers that not every device has.
What only a real device can show (kernels, streams, captures, speed) this does not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

ROOT = Path(__file__).resolve().parents[3]
GPU, CPU = torch.device("cuda:0"), torch.device("cpu")
RARE = (torch.float64, torch.complex32, torch.complex64, torch.complex128)
"""Numbers that Apple's GPUs lack, or have only lately."""
COPIES = {"aten::_to_copy", "aten::copy_"}
WAITS = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::equal", "aten::is_nonzero", "aten::repeat_interleave", "aten::bincount",
    "aten::histc", "aten::where",
}  # fmt: skip
"""What asks the device for a shape or a value; of the overloaded ones those that ``_waits`` tells from the others."""
WHOLE = {
    "aten::scaled_dot_product_attention", "aten::rms_norm", "aten::layer_norm", "aten::_grouped_mm", "aten::linear",
    "aten::where",
}  # fmt: skip
"""Operations that torch takes apart by the device it believes to see."""


class OnDevice(torch.Tensor):
    """A tensor of the device. To torch it is one of ``meta``: a CPU's build has no streams for another."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        found: Any = torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=torch.device("meta"), requires_grad=False,
        )  # fmt: skip
        found.held = inner
        return found

    @property
    def device(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return GPU

    @property
    def is_cuda(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return True

    @property
    def is_meta(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return False

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("outside of the pretended device's own context")


@dataclass
class Device:
    """The device's diary: every wait of the host's, and every tensor of rare numbers, as (what, where)."""

    waits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    rare: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    apart: int = 0
    """How deep we are in operations that torch takes apart: there, what it makes is made beside its arguments."""

    def taken(self) -> Counter[tuple[str, str]]:
        """The waits since the last call."""
        found, self.waits = Counter(self.waits), []
        return found

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """One operation."""
        given = _tensors((args, kwargs))
        ours = [one for one in given if isinstance(one, OnDevice)]
        others = [one for one in given if not isinstance(one, OnDevice) and one.device.type == "cpu"]
        name = _name(func)
        asked = kwargs.get("device")
        if self.apart and asked is not None and torch.device(asked).type == "meta":
            asked = kwargs["device"] = GPU
        there = bool(ours) if asked is None else torch.device(asked).type == "cuda"
        if name == "aten::scalar_tensor" and asked is not None and torch.device(asked).type == "meta":
            kwargs = {**kwargs, "device": CPU}  # what is assigned to a part of a tensor: on a GPU, too, from the host
        self._check(func, name, args, kwargs, ours, others, there)
        if there and asked is not None:
            kwargs = {**kwargs, "device": CPU}
        if name == "aten::copy_":
            there = isinstance(args[0], OnDevice)
        if name == "aten::_to_copy" and asked is not None and not ours and there:
            kwargs = {**kwargs, "non_blocking": False}
        found = func(*_mapped(_inner, args), **_mapped(_inner, kwargs))
        if name == "aten::_to_copy" and any(found is _inner(one) for one in given):
            found = found.clone()
        if there:
            self.rare += [(f"{name} {one.dtype}", _where()) for one in _tensors(found) if one.dtype in RARE]
        known = {id(one.held): one for one in ours}
        return _mapped(lambda one: _outer(one, known, there), found)

    def _check(
        self, func: Any, name: str, args: Any, kwargs: dict[str, Any], ours: list[Any], others: list[Any], there: bool
    ) -> None:
        if name in COPIES:
            leaves = bool(ours) and (isinstance(args[1], OnDevice) if name == "aten::copy_" else not there)
            comes = bool(others) and (isinstance(args[0], OnDevice) if name == "aten::copy_" else there)
            blocks = not (kwargs.get("non_blocking") or (name == "aten::copy_" and len(args) > 2 and args[2]))
            if (leaves and (name == "aten::_to_copy" or others)) or (comes and blocks):
                self._note(name)
            return
        if ours and others:
            self._mixed(func, name, args, others)
        if ours and name in WAITS and _waits(func):
            self._note(name)
        indexed = ours and name in ("aten::index", "aten::index_put_", "aten::index_put")
        if indexed and any(one.dtype in (torch.bool, torch.uint8) for one in _tensors(args[1])):
            self._note(f"{name} by a mask")

    def _mixed(self, func: Any, name: str, args: Any, others: list[Any]) -> None:
        """Tensors of both: a number may be a kernel's argument, an index is copied, all else is an error."""
        if name in ("aten::index", "aten::index_put_", "aten::index_put"):
            if not isinstance(args[0], OnDevice) or any(one.dim() for one in others if one is not args[0]):
                whole = [one for one in _tensors(args[1]) if any(one is other for other in others)]
                if not isinstance(args[0], OnDevice) or len(whole) < len(others):
                    raise RuntimeError(_mix_up(name))
            self._note(f"{name} from the host")
        elif any(one.dim() for one in others):
            raise RuntimeError(_mix_up(name))
        elif name == "aten::where":
            self._note("aten::where from the host")
        elif torch.Tag.pointwise not in func.tags and name not in ("aten::fill_", "aten::masked_fill"):
            raise RuntimeError(_mix_up(name))

    def _note(self, what: str) -> None:
        self.waits.append((what.removeprefix("aten::"), _where()))


class _Functions(TorchFunctionMode):
    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and _is_gpu(kwargs.get("device")):
            values = _mapped(lambda one: one.item() if isinstance(one, OnDevice) else one, args)
            return func(*values, **{**kwargs, "device": CPU}).to(GPU)
        if func is torch.Tensor.tolist and isinstance(args[0], OnDevice):
            return args[0].cpu().tolist()
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):
    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _comes_apart(func):
            ours = any(isinstance(one, OnDevice) for one in _tensors((args, kwargs)))
            with self:
                self._device.apart += ours
                try:
                    found = func.decompose(*args, **(kwargs or {}))
                finally:
                    self._device.apart -= ours
            if found is not NotImplemented:
                return found
        return self._device.run(func, args, kwargs or {})


@contextmanager
def pretended(patch: pytest.MonkeyPatch) -> Iterator[Device]:
    """As if there were a GPU, in this thread."""
    from engine.worker.nn import moe

    device = Device()
    patch.setattr(torch.cuda, "_lazy_init", lambda: None)
    patch.setattr(moe, "has_grouped", lambda device, dtype: dtype == torch.bfloat16)
    with torch.inference_mode(), _Functions(device), _Operations(device):
        yield device


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """What ``change`` makes of everything in nested lists, tuples and dicts. torch's own takes most of an operation."""
    kind = type(value)  # not ``match``: this is most of what a step costs here
    if kind is tuple:
        return tuple([_mapped(change, one) for one in value])
    if kind is list:
        return [_mapped(change, one) for one in value]
    if kind is dict:
        return {key: _mapped(change, one) for key, one in value.items()}
    return tree_map(change, value) if isinstance(value, tuple | list | dict) else change(value)  # with names


def _tensors(value: Any) -> list[Any]:
    """All tensors in nested lists, tuples and dicts."""
    found: list[Any] = []
    _mapped(found.append, value)
    return [one for one in found if isinstance(one, torch.Tensor)]


@cache
def _name(func: Any) -> str:
    return func.name().split(".")[0] if hasattr(func, "name") else func.__name__


@cache
def _comes_apart(func: Any) -> bool:
    return _name(func) not in WHOLE and func._can_decompose()


def _is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _inner(one: Any) -> Any:
    return one.held if isinstance(one, OnDevice) else one


def _outer(one: Any, known: dict[int, OnDevice], there: bool) -> Any:
    if not isinstance(one, torch.Tensor):
        return one
    return known.get(id(one)) or (OnDevice(one) if there else one) if id(one) not in known else known[id(one)]


def _waits(func: Any) -> bool:
    """``where`` of a mask alone asks for a shape, as its namesakes don't."""
    name = str(func)
    return not name.startswith("aten.where.") or name == "aten.where.default"


def _mix_up(name: str) -> str:
    return f"Expected all tensors to be on the same device, but {name} got some of cuda:0 and some of cpu ({_where()})"


def _where() -> str:
    """The innermost line of ours."""
    frame = sys._getframe(1)
    while frame is not None:
        if (ours := _ours(frame.f_code.co_filename)) is not None:
            return f"{ours}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


@cache
def _ours(file: str) -> Path | None:
    """A file of Parley's but this one, as seen from its root."""
    path = Path(file)
    own = path != Path(__file__) and (ROOT / "engine" in path.parents or ROOT / "tests" in path.parents)
    return path.relative_to(ROOT) if own else None
