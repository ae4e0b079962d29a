"""Qwen3-Omni from a quantized checkpoint: it says what the reference says of the weights written out."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks import memory, random_weights
from engine import ChunkSpec, ConfigError, Engine, StageSpec, WeightsError, WorkerSpec
from engine.ipc import messages
from engine.quantize import quantize
from engine.worker import quantize as quantizing
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.nn import memory as planning
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.memory import WORK, check_room, memory_of, plan
from engine.worker.nn.quantized import QuantizedWeight, dense
from engine.worker.nn.slots import Batch
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader
from engine.worker.process import stage_loader
from engine.worker.stage import StageConfig
from tests.engine.worker.nn.test_quantized import AWQ_ORDER, plain, words
from tests.oracles.qwen3_omni import Oracle, Turn
from tests.oracles.talk import ask, request, spec

Folder = Callable[[str], Path]
TURNS: list[Turn] = [("user", ["Hello, how are you today?"])]
GROUP = 8
NAMES = ("thinker", "talker", "code2wav")
ARCHITECTURE = "Qwen3OmniMoeForConditionalGeneration"


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def small(checkpoint: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint "plain", quantized to four bits."""
    out = tmp_path_factory.mktemp("quantized") / "int4"
    quantize(checkpoint("plain"), out, 4, GROUP, silent)
    return out


def written_out(small: Path, original: Path, out: Path) -> Path:
    """A quantized checkpoint as one that is not, with the weights that it stands for."""
    out.mkdir()
    for file in original.iterdir():
        if file.suffix != ".safetensors":
            (out / file.name).write_bytes(file.read_bytes())
    read = WeightReader(SafetensorsCheckpoint(small, ARCHITECTURE), "", torch.device("cpu"), torch.float32)
    tensors = load_file(original / "model.safetensors")
    for name, tensor in tensors.items():
        if f"{name.removesuffix('.weight')}.weight_packed" in read:
            rows, width = tensor.shape
            tensors[name] = dense(read.linear((name.removesuffix(".weight"),), (rows,), width)).contiguous()
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    return out


async def test_an_answer_is_the_references_of_the_same_weights(small: Path, checkpoint: Folder, tmp_path: Path) -> None:
    full = written_out(small, checkpoint("plain"), tmp_path / "full")
    expected = Oracle(full).answer(TURNS, 8, 12)
    async with Engine(spec(small)) as engine:
        found = await ask(engine, request("q", TURNS))
    assert found.ids == expected.ids
    assert found.codes.tolist() == expected.codes.tolist()
    async with Engine(spec(checkpoint("plain"))) as engine:
        other = await ask(engine, request("q", TURNS))
    assert other.codes.tolist() != found.codes.tolist(), "rounding changes something: the control"


@pytest.mark.parametrize("method", ["awq", "gptq"])
async def test_an_answer_of_a_published_layout_is_the_references(
    method: str, small: Path, checkpoint: Folder, tmp_path: Path
) -> None:
    """Of all layers of language models, as AutoAWQ and AutoGPTQ lay them out; both leave the head as it was."""
    ours, full = published(checkpoint("plain"), small, method, tmp_path)
    expected = Oracle(full).answer(TURNS, 8, 12)
    async with Engine(spec(ours)) as engine:
        found = await ask(engine, request("q", TURNS))
    assert found.ids == expected.ids
    assert found.codes.tolist() == expected.codes.tolist()


def published(original: Path, small: Path, method: str, folder: Path) -> tuple[Path, Path]:
    """A checkpoint quantized in the layout of AWQ or GPTQ, and one with the weights that it stands for, in full."""
    ends = ".weight_packed"
    layers = {name.removesuffix(ends) for name in load_file(small / "model.safetensors") if name.endswith(ends)}
    few, full = dict[str, Tensor](), dict[str, Tensor]()
    for name, tensor in load_file(original / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if layer not in layers or layer.endswith("lm_head"):
            few[name] = full[name] = tensor
            continue
        numbers, scales, zeros = unsigned(tensor, seed=len(few))
        groups = torch.arange(tensor.shape[1]) // GROUP
        full[name] = plain(numbers, scales, zeros, groups).half().float()
        if method == "awq":
            made = {"qweight": words(numbers.T, 4, AWQ_ORDER), "qzeros": words(zeros.T, 4, AWQ_ORDER)}
        else:
            made = {"qweight": words(numbers, 4).T, "qzeros": words((zeros - 1).T, 4), "g_idx": groups.int()}
        few |= {f"{layer}.{key}": value.contiguous() for key, value in (made | {"scales": scales.T}).items()}
    how = {"quant_method": method, "bits": 4, "group_size": GROUP, "version": "gemm", "desc_act": False}
    for out, tensors in ((folder / method, few), (folder / "full", full)):
        out.mkdir()
        for file in original.iterdir():
            if file.suffix != ".safetensors":
                (out / file.name).write_bytes(file.read_bytes())
        save_file(tensors, out / "model.safetensors", {"format": "pt"})
    config = json.loads((original / "config.json").read_text(encoding="utf-8"))
    (folder / method / "config.json").write_text(json.dumps(config | {"quantization_config": how}), encoding="utf-8")
    return folder / method, folder / "full"


def unsigned(weight: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of four bits without a sign [out, in], and the scale and the zero of each group [out, groups]: a zero is
    the middle, or one beside it."""
    parts = weight.unflatten(1, (-1, GROUP))
    scales = (parts.abs().amax(-1) / 7).half()
    zeros = 7 + torch.randint(3, scales.shape, generator=torch.Generator().manual_seed(seed))
    numbers = (parts / scales[..., None].float()).round().long() + zeros[..., None]
    return numbers.clamp(0, 15).flatten(1), scales, zeros


def test_what_is_rounded_and_what_stays(small: Path, checkpoint: Folder) -> None:
    before, after = (load_file(folder / "model.safetensors") for folder in (checkpoint("plain"), small))
    layers = {name.removesuffix(".weight_packed") for name in after if name.endswith("packed")}
    assert {name.removesuffix(".weight") for name in before if f"{name}".removesuffix(".weight") in layers} == layers
    kept = before.keys() & after.keys()
    assert all(torch.equal(before[name], after[name]) for name in kept)
    assert "thinker.lm_head" in layers
    assert "thinker.model.layers.0.mlp.experts.3.down_proj" in layers
    for part in ("audio_tower", "visual", "code_predictor", "code2wav", "embed_tokens", "mlp.gate.", "norm", "codec"):
        assert not [layer for layer in layers if part in layer], part
    assert (
        after["thinker.lm_head.weight_packed"].shape[1]
        == 2 * after["thinker.model.layers.0.self_attn.q_proj.weight_packed"].shape[1]
    )


def test_a_checkpoint_in_shards_stays_in_shards(checkpoint: Folder, tmp_path: Path) -> None:
    original = checkpoint("wide")
    done = quantize(original, tmp_path / "out", 8, 16, silent)
    assert done.layers > 0
    assert done.after < done.before
    found = SafetensorsCheckpoint(tmp_path / "out", ARCHITECTURE)
    for name in ("thinker.model.layers.0.self_attn.q_proj.weight_packed", "thinker.model.embed_tokens.weight"):
        assert found.tensor(name).numel()
    assert {file.name for file in (tmp_path / "out").iterdir()} == {file.name for file in original.iterdir()}


@pytest.mark.parametrize(
    ("change", "bits", "group", "reason"),
    [
        ({}, 3, 128, "bits must be 4 or 8, and group a multiple of 8"),
        ({}, 4, 12, "bits must be 4 or 8, and group a multiple of 8"),
        ({"quantization_config": {"quant_method": "awq"}}, 4, 8, "is already quantized"),
    ],
)
def test_what_cannot_be_quantized_is_one_sentence_and_leaves_nothing(
    change: dict[str, Any], bits: int, group: int, reason: str, checkpoint: Folder, tmp_path: Path
) -> None:
    copy, out = tmp_path / "copy", tmp_path / "out"
    copy.mkdir()
    for file in checkpoint("plain").iterdir():
        (copy / file.name).symlink_to(file)
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    with pytest.raises((ConfigError, WeightsError), match=reason):
        quantize(copy, out, bits, group, silent)
    assert not out.exists()


def test_a_damaged_file_or_a_folder_in_use_leaves_nothing(checkpoint: Folder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(WeightsError, match="has no safetensors"):
        quantize(tmp_path, out, 4, 8, silent)
    (tmp_path / "model.safetensors").write_bytes(b"no such thing")
    with pytest.raises(WeightsError, match=r"model\.safetensors: damaged or truncated"):
        quantize(tmp_path, out, 4, 8, silent)
    save_file({"a.model.layers.0.mlp.up_proj.weight": torch.full((8, 8), torch.nan)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="contains NaN or infinity"):
        quantize(tmp_path, out, 4, 8, silent)
    assert not out.exists()
    out.mkdir()
    with pytest.raises(ConfigError, match="already exists; name a new folder"):
        quantize(checkpoint("plain"), out, 4, 8, silent)


@pytest.mark.parametrize("where", ["save_file", "shutil.copyfile", "_write"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    where: str, checkpoint: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        reason = "No space left on device (os error 28)"
        raise SafetensorError(f"I/O error: {reason}") if where == "save_file" else OSError(28, reason)

    monkeypatch.setattr(f"engine.worker.quantize.{where}", full)
    with pytest.raises(ConfigError, match=r"out: could not be written \(.*No space left on device .*; free some space"):
        quantize(checkpoint("plain"), tmp_path / "out", 4, 8, silent)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_weight_that_is_rounded_in_pieces_is_the_same(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes no more memory beside what it is made of and becomes than its pieces do."""
    head = torch.randn(1000, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    name = "thinker.model.layers.0.mlp.up_proj.weight"
    monkeypatch.setattr(quantizing, "PART", 1 << 30)
    whole = quantizing._made(name, head, bits, 16)
    monkeypatch.setattr(quantizing, "PART", 4096)
    with memory.Peak() as peak:
        parts = quantizing._made(name, head, bits, 16)
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[one], whole[one]) for one in whole)
    assert peak.most < 2 * sum(one.nbytes for one in whole.values()) + 4096 * 48


def test_what_a_step_writes_out_is_forgotten_at_once(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One weight after the other: never two experts, and none behind the step."""
    read = WeightReader(
        SafetensorsCheckpoint(small, ARCHITECTURE), "thinker.model.", torch.device("cpu"), torch.float32
    )
    config = Qwen3OmniSource(StageConfig(weights=small)).text
    decoder = TransformerDecoder(read, config)
    write_out, written = QuantizedWeight.dense, list[weakref.ref[Tensor]]()
    most = 0

    def counted(self: QuantizedWeight) -> Tensor:
        nonlocal most
        most = max(most, sum(one() is not None for one in written))
        made = write_out(self)
        assert made.dim() == 2, "one matrix, and not those of all experts"
        written.append(weakref.ref(made))
        return made

    monkeypatch.setattr(QuantizedWeight, "dense", counted)
    batch = Batch()
    batch.add(0, 0, torch.randn(3, config.hidden_size), torch.zeros(3, 3).numpy())
    decoder.append(batch, decoder.cache(1, 16))
    experts = 2 * 3 * config.num_experts_per_tok * config.num_hidden_layers
    assert 2 * config.num_hidden_layers < len(written) <= experts + 2 * config.num_hidden_layers
    assert most <= 1, "those that are written out while the next one is"
    assert not [one for one in written if one() is not None]


def test_four_bits_take_a_fourth_of_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the language models' true shapes, but for the number of layers."""
    sizes = {part: dict(random_weights.TRUE[part]) for part in random_weights.TRUE}
    for part in ("thinker_config.text_config", "talker_config.text_config"):
        sizes[part]["num_hidden_layers"] = 1
    sizes["thinker_config.audio_config"] = {"output_dim": 2048}  # their encoders are small, and stay as they were
    sizes["thinker_config.vision_config"] = {"out_hidden_size": 2048}
    monkeypatch.setattr(random_weights, "TRUE", sizes)
    folder = random_weights.describe(tmp_path, small=False)
    place = StageConfig(slots=16, options={"context": 8192, "remember_mb": 100})
    full, few = (memory.plans(folder, kind, place)["thinker"] for kind in ("bfloat16", "int4"))
    experts, heads, attention = 128 * 3 * 2048 * 768, 152064 * 2048, 2048 * 128 * (32 + 4 + 4 + 32)
    scales = (experts + heads + attention) // 128 * 2
    assert full.weights - few.weights == (experts + attention) * 3 // 2 + heads - scales
    assert full.caches == few.caches == 2 * 16 * 4 * 8192 * 128 * 2 + 16 * 8, (
        "keys and values, in bfloat16; where slots begin"
    )
    assert full.remembered == 100 * 2**20


def test_a_plan_is_what_the_stage_takes(small: Path, checkpoint: Folder) -> None:
    """Byte for byte: of the same stage, made of numbers."""
    for folder in (small, checkpoint("plain")):
        for kind in (Thinker, Talker, Code2Wav):
            place = StageConfig(weights=folder, slots=3, options={"context": 512})
            expected = plan(kind, place)
            made = [one for one, _ in _real(kind(place))]
            assert 0 <= sum(one.nbytes for one in made) - expected.weights - expected.caches < 200_000, "tokenizers'"


def _real(stage: Any) -> Any:
    from engine.worker.nn.memory import _things

    found = [(one, cached) for one, cached in _things(stage, False, set()) if isinstance(one, Tensor)]
    return {id(one): (one, cached) for one, cached in found}.values()


def test_a_device_that_is_too_small_is_told_before_anything_is_loaded(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = StageConfig(weights=small, slots=3, options={"context": 512})
    stages = {"thinker": (Thinker, place), "talker": (Talker, place)}
    needed = sum(plan(kind, config).total for kind, config in stages.values()) + WORK
    monkeypatch.setattr(planning, "memory_of", lambda device: (needed, needed))
    check_room(stages, "cuda:0")
    monkeypatch.setattr(planning, "memory_of", lambda device: (needed - 1, needed))
    with pytest.raises(WeightsError) as raised:
        check_room(stages, "cuda:0")
    reason = str(raised.value)
    assert "The device cuda:0 has 4.4 GB free, but thinker, talker need 4.4" in reason
    assert "of weights" in reason
    assert "2.5 of work space" in reason
    assert "of caches" in reason
    assert "Use a quantized checkpoint" in reason
    assert memory_of("cpu") is None


def test_a_worker_asks_before_it_makes_its_stages(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that can tell; a stage that cannot is nobody's, and a processor is not asked."""
    stages = tuple(StageSpec(use=f"qwen3_omni.{name}", name=name, weights=str(small)) for name in NAMES)
    mine = StageSpec(use="script.thinker", name="mine")
    worker = WorkerSpec(stages=(*NAMES, "mine"), max_batch=2)
    task = messages.Task("w", (*stages, mine), worker, "cuda:0", ChunkSpec(), 1.0)
    monkeypatch.setattr(planning, "memory_of", lambda device: (1, 1))
    monkeypatch.setattr("engine.worker.nn.device.check", lambda device: None)
    with pytest.raises(WeightsError, match=r"The device cuda:0 has 0\.0 GB free, but thinker, talker, code2wav need"):
        stage_loader.build(task, lambda message: None)


def test_a_stage_that_cannot_be_planned_is_made_all_the_same(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "memory_of", lambda device: (WORK, WORK))

    def computes(config: StageConfig) -> Any:
        return torch.ones(2, device=config.device).tolist()

    check_room({"mine": (computes, StageConfig())}, "cuda:0")
    assert "cannot estimate the device memory of mine" in caplog.text

    def broken(config: StageConfig) -> Any:
        raise WeightsError("no config.json")

    with pytest.raises(WeightsError, match=r"no config\.json"):
        check_room({"mine": (broken, StageConfig())}, "cuda:0")
