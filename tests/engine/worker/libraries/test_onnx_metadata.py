"""What an ONNX file says of itself, read without a runtime; files that are none, and files that were cut."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of

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
