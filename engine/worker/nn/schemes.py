"""What config.json says of the layers that a checkpoint holds in few bits: their bits, groups and blocks.

Nothing is read by it alone: tensors have shapes, and it is what those are held against.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAME, _LINEAR = "re:", "Linear"
"""What a target begins with that is a pattern of layers' names; the class of layers that others name."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How some layers are quantized; None: config.json does not say that."""

    bits: int | None = None
    group: int | None = None
    """Inputs in a row that share a scale; 0: all of an output's do, each output having its own."""
    block: tuple[int, int] | None = None
    """Outputs and inputs that share a scale, where those of a file are fewer than its outputs."""
    floats: bool | None = None
    """Whether numbers are small floats, and not whole."""
    symmetric: bool | None = None

    def groups(self, width: int) -> int | None:
        """Return how many scales an output of so many inputs has."""
        size = self.block[1] if self.block else self.group
        return None if size is None else -(-width // size) if size else 1


Schemes = Sequence[tuple[Sequence[str], Scheme]]
"""Schemes, each with its targets: names, patterns and classes of layers."""


def scheme_of(schemes: Schemes, name: str) -> Scheme:
    """The scheme of a layer: the first whose target is its name, else the one of all linear layers, or the only one."""
    named = [scheme for targets, scheme in schemes if any(_names(target, name) for target in targets)]
    classes = [scheme for targets, scheme in schemes if _LINEAR in targets]
    every = [scheme for _, scheme in schemes] if len(schemes) == 1 else []
    return next(iter((*named, *classes, *every)), Scheme())


def _names(target: str, layer: str) -> bool:
    return bool(re.match(target[len(_NAME) :], layer)) if target.startswith(_NAME) else target == layer


def schemes_of(method: str, found: Mapping[str, Any]) -> Schemes:
    """Read the schemes of a ``quantization_config``. Raises ValueError, or what Python says of a field of another
    kind."""
    schemes = _compressed(found) if method == "compressed-tensors" else _of_all(method, found)
    for targets, _ in schemes:
        for target in targets:
            _names(target, "")  # which raises where a pattern is none
    return schemes


def _of_all(method: str, found: Mapping[str, Any]) -> Schemes:
    """One scheme for all layers; GPTQModel's ``dynamic`` names layers of which some fields differ."""
    special = [
        ([_NAME + pattern.removeprefix("+:")], _plain(method, {**found, **more}))
        for pattern, more in (found.get("dynamic") or {}).items()
        if more and not pattern.startswith("-:")
    ]
    return [*special, ([_LINEAR], _plain(method, found))]


def _plain(method: str, found: Mapping[str, Any]) -> Scheme:
    if method == "fp8":
        return Scheme(8, block=_block(found.get("weight_block_size")), floats=True)
    bits, size = found.get("bits", found.get("w_bit")), found.get("group_size", found.get("q_group_size"))
    return Scheme(_whole("bits", bits), _group(size), floats=False)


def _compressed(found: Mapping[str, Any]) -> Schemes:
    groups = [group for group in found.get("config_groups", {}).values() if group.get("weights")]
    return [(list(group.get("targets") or ()), _of_weights(group["weights"])) for group in groups]


def _of_weights(weights: Mapping[str, Any]) -> Scheme:
    floats = weights.get("type") == "float" if "type" in weights else None
    bits, symmetric = _whole("num_bits", weights.get("num_bits")), weights.get("symmetric")
    size, strategy = _group(weights.get("group_size")), weights.get("strategy")
    block = _block(weights.get("block_structure")) if strategy in ("block", None) else None
    group = {"channel": 0, "tensor": None, "block": None}.get(str(strategy), size)
    return Scheme(bits, group, block, floats, symmetric)


def _block(found: Any) -> tuple[int, int] | None:
    if not found:
        return None
    if not isinstance(found, list | tuple) or len(found) != 2 or None in found:
        raise ValueError(f"the block size is {found!r}, and not two whole numbers")
    outputs, inputs = (_whole("block size", one) or 1 for one in found)
    return outputs, inputs


def _group(found: Any) -> int | None:
    return 0 if found == -1 else _whole("group_size", found)


def _whole(name: str, found: Any) -> int | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ValueError(f"the {name} is {found!r:.80}, and not a whole number from 1 on")
    return found
