"""The loaders of published data sets, on miniature ones: ends and pauses for ``benchmarks.turns --corpus``."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from benchmarks import human_turns, turn_data_sets
from benchmarks.turn_data_sets import eot_turn, read, talk, write


def recording(seconds: float) -> dict[str, Any]:
    file = io.BytesIO()
    soundfile.write(file, np.arange(round(seconds * 8_000)).astype(np.int16), 8_000, format="WAV")
    return {"bytes": file.getvalue(), "path": None}


def spans(*times_s: tuple[float, float]) -> list[dict[str, float]]:
    return [{"start": start_s, "end": end_s} for start_s, end_s in times_s]


EOT = {
    "id": "turn1",
    "language": "fr",
    "audio": recording(4.0),
    "silence_spans": spans((0.5, 0.65), (1.5, 2.25), (3.0, 4.0)),
}


def annotated(*segments: tuple[float, float, str]) -> list[dict[str, Any]]:
    return [{"start_s": start_s, "end_s": end_s, "label": label} for start_s, end_s, label in segments]


TALK = {
    "conversation_id": "20",
    "speaker_1_audio": recording(9.0),
    "speaker_2_audio": recording(9.0),
    "speaker_1_annotation_a": annotated((1.0, 2.0, "Normal Turn"), (2.8, 4.0, "Normal Turn"), (7.0, 8.0, "Filler")),
    "speaker_1_annotation_b": annotated((1.1, 2.0, "Strong Floor Hold"), (2.8, 4.1, "Normal Turn")),
    "speaker_1_annotation_c": annotated((1.0, 2.9, "Normal Turn"), (7.1, 8.1, "Regular Turn")),
    "speaker_2_annotation_a": annotated((2.2, 2.5, "Continuer Backchannel"), (4.5, 6.0, "Normal Turn")),
    "speaker_2_annotation_b": annotated((2.2, 2.5, "Continuer Backchannel"), (4.6, 6.1, "Normal Turn")),
    "speaker_2_annotation_c": annotated((8.2, 8.6, "Normal Turn")),
}


def test_of_eot_bench_the_last_silence_is_the_end() -> None:
    turn = eot_turn(EOT)
    assert (turn.language, turn.end_s, list(turn.pauses)) == ("fr", 3.0, [(0.5, 0.65), (1.5, 2.25)])
    assert len(turn.pcm) == 4 * 16_000


def test_of_turnbench_a_turn_ends_where_the_other_speaker_is_next() -> None:
    turns = [(turn.name, turn.start_s, turn.end_s, list(turn.pauses)) for turn in talk(TALK)]
    assert turns == [
        ("20-1-0", 1.05, pytest.approx(4.05), [(2.0, 2.8)]),
        ("20-2-1", 4.55, 6.05, []),
        ("20-1-2", 7.05, 8.05, []),
    ]


def written(rows: Sequence[dict[str, Any]], out: Path) -> list[dict[str, Any]]:
    """Convert rows of both data sets, and return the entries of the index."""
    turns = [turn for row in rows for turn in ([eot_turn(row)] if "silence_spans" in row else talk(row))]
    write(iter(turns), out)
    return json.loads((out / "index.json").read_text())


def test_the_index_has_ends_and_pauses_that_the_evaluation_cuts(tmp_path: Path) -> None:
    french, talked, *others = written([EOT, TALK], tmp_path)
    assert (french["end_s"], french["pause_at_s"], french["pause_s"]) == (3.0, 1.5, 0.75), "150 ms is no pause"
    assert (talked["end_s"], talked["pause_at_s"], talked["pause_s"]) == (3.3, 1.25, 0.8), "from 0.3 s before it"
    assert [human_turns.moments(one) for one in (talked, *others)] == [("pause", "end"), ("end",), ("end",)]
    said, after = human_turns.cut(tmp_path, talked, "end")
    assert (len(said), len(after)) == (round(3.3 * 16_000), 1_600)


def test_a_corpus_of_one_language_is_evaluated_without_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = written([{**EOT, "id": f"turn{n}"} for n in range(8)], tmp_path)
    known = {"sound": 0.9, "falling": 0.5, "words": "Bonjour."}
    kept = {human_turns.key(entry, at): known for entry in entries for at in human_turns.moments(entry)}
    (tmp_path / "known.json").write_text(json.dumps(kept))
    capsys.readouterr()
    human_turns.main(tmp_path, None, False)
    rows = [line.split(" | ")[:2] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [language for _, language in rows] == ["all", "fr"] * 4
    assert ["| smart_turn", "fr"] in rows


def test_both_read_the_published_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    for name, row, count in (("eot-bench", EOT, 1), ("turnbench", TALK, 3)):
        folder = tmp_path / name / "data" / "fr"
        folder.mkdir(parents=True)
        parquet.write_table(pyarrow.Table.from_pylist([row]), folder / "validation-00000-of-00001.parquet")
        assert len([*read(tmp_path / name)]) == 1
        out = tmp_path / f"{name}-out"
        monkeypatch.setattr("sys.argv", ["turn_data_sets", name, str(tmp_path / name), str(out)])
        turn_data_sets.main()
        assert len(json.loads((out / "index.json").read_text())) == count
