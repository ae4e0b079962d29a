"""A model's header: what is read of it, and what is said of files that are none."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import WeightsError
from engine.worker.llm.gguf import read_header
from tests.engine.worker.llm.gguf_files import TEMPLATE, counting, gguf, write_model, write_projector


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "counting-q4.gguf", counting())


def test_a_header_tells_the_model_its_template_its_context_and_its_size(model: Path) -> None:
    header = read_header(model)
    assert (header.architecture, header.name, header.template) == ("llama", "counting-q4", TEMPLATE)
    assert (header.context, header.size) == (2048, model.stat().st_size)
    width = int(header.fields["llama.embedding_length"])
    assert header.cache_bytes(100, 2.0) == 100 * 1 * 2 * width * 2
    assert header.logits_bytes(10) == 10 * header.fields["llama.vocab_size"] * 4
    assert header.fields["tokenizer.ggml.tokens"] == ["<|end|>", "<|user|>", "<|assistant|>"], "the rest is not kept"
    foreign = header.foreign_markers("[INST]<|user|><|tool_call|><|im_end|><start_of_turn>[INST] <| a |>")
    assert foreign == ["[INST]", "<|im_end|>", "<start_of_turn>"]


def test_windows_and_heads_of_each_layer_count_in_what_a_cache_takes(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "gemma3")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(8)
    writer.add_head_count_kv([4, 2])
    writer.add_key_length(16)
    writer.add_sliding_window(50)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_header(tmp_path / "m.gguf").cache_bytes(1000, 2.0) == (4 + 2) * (16 + 8) * 50 * 2


def test_a_projector_tells_what_it_reads(tmp_path: Path) -> None:
    header = read_header(write_projector(tmp_path / "mmproj.gguf"))
    assert (header.architecture, header.reads("vision"), header.reads("audio")) == ("clip", True, False)


@pytest.mark.parametrize("kept", [0.001, 0.003, 0.004, 0.005, 0.01, 0.5])
def test_a_file_that_is_cut_is_told(model: Path, tmp_path: Path, kept: float) -> None:
    data = model.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(WeightsError, match=r"cut\.gguf: is incomplete or damaged\. Download it again"):
        read_header(cut)


def _version(data: bytes, version: bytes) -> bytes:
    return data[:4] + version + data[8:]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "is incomplete or damaged"),
        (lambda data: b"PK\x03\x04" + data[4:], "is not a GGUF file"),
        (lambda data: b"<html>not found</html>", "is not a GGUF file"),
        (lambda data: _version(data, struct.pack("<I", 1)), "has GGUF version 1; llama.cpp supports 2 and 3"),
        (lambda data: _version(data, struct.pack("<I", 9)), "has GGUF version 9"),
        (lambda data: _version(data, struct.pack(">I", 3)), "has GGUF version 50331648"),
        (lambda data: data[:16] + b"\xff" * 8 + data[24:], "is incomplete or damaged"),
        (lambda data: data[:24] + b"\xff" * 8 + data[32:], "is incomplete or damaged"),
        (lambda data: data.replace(struct.pack("<I", 8) + b"\x05", struct.pack("<I", 77) + b"\x05", 1), "damaged"),
    ],
)
def test_what_is_no_such_file_is_told(model: Path, tmp_path: Path, change: Callable[[bytes], bytes], said: str) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(change(model.read_bytes()))
    with pytest.raises(WeightsError, match=said):
        read_header(file)


def test_a_file_that_is_not_there_or_is_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="the file does not exist"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(WeightsError, match="must be a GGUF file, not a folder"):
        read_header(tmp_path)


def test_a_file_in_parts_needs_all_of_them_and_goes_by_the_first(model: Path, tmp_path: Path) -> None:
    first, second = (tmp_path / f"big-{n:05}-of-00002.gguf" for n in (1, 2))
    shutil.copy(model, first)
    with pytest.raises(
        WeightsError, match=r"is one of 2 parts, but big-00002-of-00002\.gguf is missing from the folder"
    ):
        read_header(first)
    shutil.copy(model, second)
    with pytest.raises(WeightsError, match=r"Name the first one, big-00001-of-00002\.gguf"):
        read_header(second)


def test_the_parts_of_a_file_count_together(model: Path, tmp_path: Path) -> None:
    for n in (1, 2):
        shutil.copy(model, tmp_path / f"big-{n:05}-of-00002.gguf")
    header = read_header(tmp_path / "big-00001-of-00002.gguf")
    assert (header.name, header.size) == ("big", 2 * model.stat().st_size)


def _key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _header(*keys: bytes, tensors: int = 0, count: int | None = None) -> bytes:
    llama = _key("general.architecture", 8, _text(b"llama"))
    head = struct.pack("<4sIQQ", b"GGUF", 3, tensors, len(keys) + 1 if count is None else count)
    return head + llama + b"".join(keys)


TENSOR = struct.pack("<Q1sIQIQ", 1, b"t", 1, 1, 0, 0)
U32, I32, F32, BOOL, TEXT, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
HOSTILE = {
    "an alignment of 0": (_header(_key("general.alignment", U32, bytes(4)), tensors=1) + TENSOR, "a power of two"),
    "an alignment of 3": (_header(_key("general.alignment", U32, b"\3\0\0\0"), tensors=1) + TENSOR, "a power of two"),
    "a text as alignment": (_header(_key("general.alignment", TEXT, _text(b"abc"))), "a power of two"),
    "a text as context": (_header(_key("llama.context_length", TEXT, _text(b"abc"))), "a whole number"),
    "a list as context": (_header(_key("llama.context_length", ARRAY, struct.pack("<IQ", TEXT, 0))), "a whole number"),
    "a negative context": (_header(_key("llama.context_length", I32, b"\xff" * 4)), "a whole number"),
    "a fraction as context": (_header(_key("llama.context_length", F32, b"\0\0\x80\x3f")), "a whole number"),
    "truth as context": (_header(_key("llama.context_length", BOOL, b"\1")), "a whole number"),
    "4 billion layers": (_header(_key("llama.block_count", U32, b"\xff" * 4)), "from 0 to 4096"),
    "heads without end": (_header(_key("llama.attention.head_count", U64, b"\xff" * 8)), "from 0 to 65536"),
    "heads of text": (
        _header(_key("llama.attention.head_count_kv", ARRAY, struct.pack("<IQ", TEXT, 1) + _text(b"<|a|>"))),
        "a whole number",
    ),
    "a list as architecture": (
        _header(_key("general.architecture", ARRAY, struct.pack("<IQ", 0, 1) + b"a")), "must be text"
    ),
    "a number as a template": (_header(_key("tokenizer.chat_template", U32, bytes(4))), "must be text"),
    "a long architecture": (_header(_key("general.architecture", TEXT, _text(b"x" * 65))), "text of at most 64 bytes"),
    "a list of lists": (_header(_key("x", ARRAY, struct.pack("<IQ", ARRAY, 1 << 40))), "incomplete or damaged"),
    "tensors without end": (_header(tensors=1 << 63), "incomplete or damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_of_another_type_or_range_is_one_sentence(tmp_path: Path, name: str) -> None:
    data, said = HOSTILE[name]
    (tmp_path / "m.gguf").write_bytes(data + bytes(200))
    with pytest.raises(WeightsError, match=said) as error:
        read_header(tmp_path / "m.gguf")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


GIB = 1 << 30
SPARSE = {
    "a list": (_header(_key("x", ARRAY, struct.pack("<IQ", U64, GIB // 8))), True),
    "a text": (_header(_key("general.url", TEXT, struct.pack("<Q", GIB))), True),
    "a word": (_header(_key("x", ARRAY, struct.pack("<IQ", TEXT, 1)), count=2) + struct.pack("<Q", GIB), True),
    "a template": (_header(_key("tokenizer.chat_template", TEXT, struct.pack("<Q", GIB))), False),
    "a key": (_header(count=2) + struct.pack("<Q", GIB), False),
    "keys": (_header(count=80_000_000), False),
    "words": (_header(_key("x", ARRAY, struct.pack("<IQ", TEXT, GIB // 8))), False),
    "tensors": (_header(tensors=GIB // 32), False),
    "a tensor's shape": (_header(tensors=1) + struct.pack("<Q1sI", 1, b"t", GIB // 8 - 100), True),
}  # fmt: skip


@pytest.mark.parametrize("name", SPARSE)
def test_nothing_that_is_thrown_away_is_read(tmp_path: Path, name: str) -> None:
    """A sparse file of 4 kB on the disk may say that a list has a gigabyte."""
    data, good = SPARSE[name]
    (tmp_path / "m.gguf").write_bytes(data)
    os.truncate(tmp_path / "m.gguf", GIB + 1000)
    tracemalloc.start()
    try:
        if good:
            assert read_header(tmp_path / "m.gguf").architecture == "llama"
        else:
            with pytest.raises(WeightsError):
                read_header(tmp_path / "m.gguf")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
