"""Checkpoints: from the hub only if asked for, shown as they are read, and never in memory twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import save_file

from engine.errors import WeightsError
from engine.worker.nn import weights
from engine.worker.nn.weights import Bar, find


class Hub:
    """A hub that knows one checkpoint, and what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, bool]] = []
        self.fault: Exception | None = None

    def snapshot_download(self, id: str, local_files_only: bool, allow_patterns: list[str]) -> str:
        assert not any(pattern.endswith((".py", ".bin")) for pattern in allow_patterns)
        self.asked.append((id, local_files_only))
        if self.fault is not None:
            raise self.fault
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        return str(self.folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return made


def test_only_who_says_hub_has_it_downloaded(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(Path("hub:someone/something")) == hub.folder
    with pytest.raises(WeightsError, match="write hub:someone/something to download it"):
        find(Path("someone/something"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsError, match="HF_HUB_OFFLINE"):
        find(Path("hub:someone/something"))
    assert hub.asked == [("someone/something", False), ("someone/something", True), ("someone/something", True)]


def test_a_hub_that_fails_is_one_sentence(hub: Hub) -> None:
    hub.fault = ConnectionError("no route to host\nand more")
    with pytest.raises(WeightsError, match=r"the download from the hub failed \(no route to host\)") as error:
        find(Path("hub:someone/something"))
    assert "\n" not in str(error.value)


def test_a_terminal_is_shown_how_far_reading_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = Bar("talker", 2, wide=4)
    bar.advance()
    assert capsys.readouterr().err == "", "a log is no terminal"
    monkeypatch.setattr(weights.sys.stderr, "isatty", lambda: True)
    bar = Bar("talker", 2, wide=4)
    bar.advance()
    assert capsys.readouterr().err == "\r   talker ██·· 1/2"
    bar.advance()
    assert capsys.readouterr().err == "\r   talker ████ 2/2\n"


MEASURE = """
import sys, torch
from pathlib import Path
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader

def own_mb():  # what no file backs
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) / 1024

found = SafetensorsCheckpoint(Path(sys.argv[1]), "Tiny")
before = own_mb()
kept = []
for act in (
    lambda: found.tensor("other"),
    lambda: WeightReader(found, "", torch.device("cpu"), torch.float32)("a", 2048, 4096),
    lambda: WeightReader(found, "", torch.device("cpu"), torch.bfloat16)("a", 2048, 4096),
    lambda: WeightReader(found, "", torch.device("cpu"), torch.float32).joined(("a", "b"), (2048, 2048), 4096),
):
    kept.append(act())
    kept[-1].sum()
    print(round(own_mb() - before))
    before = own_mb()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory is a process's own")
def test_nothing_is_held_twice(tmp_path: Path) -> None:
    """Weights as they lie in the file cost no memory of our own; converted or joined ones cost once."""
    (tmp_path / "config.json").write_text('{"architectures": ["Tiny"]}')
    parts = {name: torch.ones(2048, 4096) for name in ("a", "b", "other")}  # 32 MB each
    save_file(parts, tmp_path / "model.safetensors")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True, timeout=100
    )
    read, mapped, halved, joined = map(int, done.stdout.split())
    assert (read, mapped) == (pytest.approx(0, abs=4), pytest.approx(0, abs=4))
    assert halved == pytest.approx(16, abs=4)
    assert joined == pytest.approx(64, abs=6)
