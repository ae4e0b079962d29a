"""Reads bits, groups and blocks of quantized layers from config.json, to check the tensors in the files against
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAME, _LINEAR = "re:", "Linear"
"""Prefix of targets that are patterns of layer names, and the class name that stands for all linear layers."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """Quantization of some layers; None means that config.json does not specify it."""

    bits: int | None = None
    group: int | None = None
    """Consecutive inputs that share a scale; 0: one scale per output."""
    block: tuple[int, int] | None = None
    """Outputs and inputs that share a scale, for block-wise scales."""
    floats: bool | None = None
    """Whether numbers are small floats instead of integers."""
    symmetric: bool | None = None

    def groups(self, width: int) -> int | None:
        """Return the number of scales per output of ``width`` inputs."""
        size = self.block[1] if self.block else self.group
        return None if size is None else -(-width // size) if size else 1


Schemes = Sequence[tuple[Sequence[str], Scheme]]
"""Schemes with their targets: layer names, patterns and classes."""


def scheme_of(schemes: Schemes, name: str) -> Scheme:
    """Return a layer's scheme: the first that targets its name, else the one of all linear layers, else the only
    one.
    """
    named = [scheme for targets, scheme in schemes if any(_names(target, name) for target in targets)]
    classes = [scheme for targets, scheme in schemes if _LINEAR in targets]
    every = [scheme for _, scheme in schemes] if len(schemes) == 1 else []
    return next(iter((*named, *classes, *every)), Scheme())


def _names(target: str, layer: str) -> bool:
    return bool(re.match(target[len(_NAME) :], layer)) if target.startswith(_NAME) else target == layer


def schemes_of(method: str, found: Mapping[str, Any]) -> Schemes:
    """Read the schemes of a ``quantization_config``. Raises ValueError, or Python's own error for a malformed field."""
    schemes = _compressed(found) if method == "compressed-tensors" else _of_all(method, found)
    for targets, _ in schemes:
        for target in targets:
            _names(target, "")  # raises re.error for an invalid pattern
    return schemes


def _of_all(method: str, found: Mapping[str, Any]) -> Schemes:
    """Return the schemes of layers with their own settings (GPTQModel's ``dynamic``), then the scheme of all others."""
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
        raise ValueError(f"the block size must be two integers (got {found!r})")
    outputs, inputs = (_whole("block size", one) or 1 for one in found)
    return outputs, inputs


def _group(found: Any) -> int | None:
    return 0 if found == -1 else _whole("group_size", found)


def _whole(name: str, found: Any) -> int | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ValueError(f"the {name} must be a positive integer (got {found!r:.80})")
    return found
