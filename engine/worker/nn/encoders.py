"""Encoders of sound and pictures: transformers' own modules, given our checkpoint's weights without a second copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from engine.worker.nn.weights import Reader


def encoder(kind: type[Any], config: Any, read: Reader) -> Any:
    """A module of transformers as it would come from ``from_pretrained``, filled from ``read``.

    It is built without memory. Tables that it computes for itself (sinusoids, rope frequencies) come from a twin of
    the same kind with no layers, built in memory.
    """
    with torch.device("meta"):
        module = kind._from_config(config, dtype=read.dtype)
    tables = dict(_small(kind, config).named_buffers())
    for name, buffer in list(module.named_buffers()):
        if buffer.is_meta:
            owner, _, last = name.rpartition(".")
            module.get_submodule(owner).register_buffer(last, tables[name].to(read.device), persistent=False)
    return read.fill(module)


def _small(kind: type[Any], config: Any) -> nn.Module:
    twin = type(config)(**config.to_dict())
    for name in ("encoder_layers", "num_hidden_layers", "depth"):
        if hasattr(twin, name):
            setattr(twin, name, 0)
    return kind._from_config(twin)
