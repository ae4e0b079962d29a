"""What an ONNX file says of itself, read without a runtime; files that are none, and files that were cut."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of, with_metadata

onnx = pytest.importorskip("onnx")


def network(**said: str) -> bytes:
    values = [onnx.numpy_helper.from_array(np.zeros(3000, np.float32), "weights")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["weights"], ["y"])], "g", [], [], values)
    model = onnx.helper.make_model(graph)
    onnx.helper.set_model_props(model, said)
    return model.SerializeToString()


def test_it_is_what_the_writer_said(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    said = {"model_type": "vits", "sprache": "Grüße, 你好", "long": "x" * 5000, "empty": ""}
    path.write_bytes(network(**said))
    assert metadata_of(path) == said
    path.write_bytes(network())
    assert metadata_of(path) == {}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"a\.onnx is missing"):
        metadata_of(tmp_path / "a.onnx")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300) | st.integers(1, 12_000).map(lambda n: network(a="b")[:n]))
def test_whatever_a_file_holds_it_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("files") / "a.onnx"
    path.write_bytes(data)
    with suppress(WeightsError):
        metadata_of(path)


def test_a_file_that_was_cut_in_its_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(network(a="b")[:6000])
    with pytest.raises(WeightsError, match="is incomplete: fetch it again"):
        metadata_of(path)


GRAPH = b"\x3a\x00"
HOSTILE = {
    "zeros": b"",
    "numbers": b"\x08\x00" * 20_000,
    "empty metadata": b"\x72\x00" * 20_000,
    "much metadata": with_metadata({f"{n}": "x" * 900_000 for n in range(6)}),
    "metadata longer than the file": b"\x72\xff\xff\xff\xff\x7f",
    "a length of 70 bits": b"\x72" + b"\xff" * 10,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sparse_or_endless_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(GRAPH + HOSTILE[name])
    os.truncate(path, 1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match="is not an ONNX file, or is incomplete"):
            metadata_of(path)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_a_pair_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(network(kind="vits") + with_metadata({"long": "x" * (1 << 20)}))
    with suppress(WeightsError):
        assert metadata_of(path) == {"kind": "vits"}
