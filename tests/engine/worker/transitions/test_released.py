"""Random payloads of every transition, whole and in random pieces, against the builders that were released.

`make transitions` fetches the release, once, and runs this; without it, the tests are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from tests.engine.worker.transitions import released_qwen as qwen
from tests.engine.worker.transitions import released_speech as speech
from tests.engine.worker.transitions.released import RELEASE, REPEATED, Case, results

pytestmark = pytest.mark.transitions

PAYLOADS = 1_000
DRAWN = (
    qwen.qwen3_omni_thought, qwen.qwen3_omni_thoughts, qwen.qwen3_omni_codes, qwen.qwen3_omni_frames,
    qwen.qwen2_5_thought, qwen.qwen2_5_codes, speech.covo_whole, speech.mimo_whole, speech.mimo_stream,
    qwen.qwen3_tts_whole, qwen.qwen3_tts_stream, speech.cosyvoice_whole, speech.cosyvoice_stream, speech.dynin_image,
    speech.dynin_sound, speech.ming_whole,
)  # fmt: skip
"""Every transition, whole and in windows where the release has them."""
NAMES = [draw.__name__ for draw in DRAWN]

UNREACHABLE = {
    "cosyvoice3.talker2code2wav_async_chunk": {
        # The voice goes with the first payload: it has not gone while there are no tokens, and has once some have.
        '258: if not state.get("sent_prompt", False): -> 261',
        '271: if not state.get("sent_prompt", False): -> 272',
        '272: embed_struct = _build_prompt_embed_struct(state.get("prompt_payload", {}))',
        '273: state["sent_prompt"] = True',
        # An end with no new tokens has returned above.
        "295: if available <= 0: -> 296",
        "296: return None",
    },
    # The builder has returned where there are no codes.
    "qwen3_tts._filter_audio_codes_qwen3_tts": {
        "346: if not isinstance(audio_codes, torch.Tensor) or audio_codes.numel() == 0: -> 347",
        "347: return audio_codes",
    },
    # A reference that has any codes has frames.
    "qwen3_tts.talker2code2wav_async_chunk": {"284: if ref_context_size > 0: -> 293"},
}
"""Code that no input reaches, by function, with its lines."""


CAUSES = {
    "",
    REPEATED,
    "an answer cut at its length: its last row is cut there, spoken here as transformers does",
    "stops, placeholders and rows of the prompt: made by nobody here, left out there",
    "more frames than were drawn: made by nobody here, cut there",
    "no rows: no payload",
    "no rows: handed on there",
    "two rows at once in the answer: they do not come here, and are dropped there",
    "codes of another shape: refused here, handed on there",
    "no codes: no window, and the end, here; nothing there",
    "the end comes without a frame: the remainder is voiced here, lost there",
    "fewer hidden rows than the prompt has ids, or none: refused here, no payload there",
    "nothing was drawn but a stop: the prompt's rows here, none there",
    "no codes: an empty payload here, none there",
    "a code beyond the book: refused here, handed on there",
    "no codes: an empty payload here; there -1, or none at all",
    "codes of another shape, or beyond the book: refused here, handed on there",
    "no sound: an empty payload here, none there",
    "too long: cut behind a group here, within one there",
    "windows that are too small: refused here, replaced by the default there",
    "a request without an id of its own: served here, lost there",
    "groups without sound: left out here, voiced there",
    "a voice, or a part of it, is missing: refused here, silence or no payload there",
    "stops and placeholders: left out here, by the consumer there",
    "the end comes with tokens for more than a window: all at once there",
    "metadata, or a target, that nobody knows: refused here, handed on there",
    "no tokens: an empty payload here, none there",
}
"""Every cause for a difference."""


@dataclass(frozen=True)
class Released:
    """The cases of every transition, the released builders' results, and what was not reached of these."""

    cases: dict[str, list[Case]]
    results: dict[str, list[Any]]
    unreached: dict[str, list[str]]


@pytest.fixture(scope="module")
def released() -> Released:
    if not RELEASE.ready:
        pytest.skip("the release is not here: make transitions fetches it")
    cases = {
        draw.__name__: [draw(np.random.default_rng([n, k])) for k in range(PAYLOADS)] for n, draw in enumerate(DRAWN)
    }
    found, unreached = results([case.call for drawn in cases.values() for case in drawn])
    each = {name: found[PAYLOADS * n : PAYLOADS * (n + 1)] for n, name in enumerate(cases)}
    return Released(cases, each, unreached)


@pytest.fixture(scope="module")
def causes() -> Generator[dict[str, Counter[str]]]:
    """Why payloads differ, by transition; printed at the end."""
    found: dict[str, Counter[str]] = {}
    yield found
    table = Table("transition", "payloads", "difference", title="against the released builders")
    for name, counts in found.items():
        for cause, count in sorted(counts.items()):
            table.add_row(name, str(count), cause or "none")
    Console(width=140).print(table)


@pytest.mark.parametrize("name", NAMES)
def test_payloads_equal_those_of_the_release(name: str, released: Released, causes: dict[str, Counter[str]]) -> None:
    found = [case.check(theirs) for case, theirs in zip(released.cases[name], released.results[name], strict=True)]
    causes[name] = Counter(found)
    assert causes[name].keys() <= CAUSES
    assert causes[name][""] >= PAYLOADS // 4, "most payloads are ordinary ones"


def test_every_branch_of_the_released_builders_is_reached(released: Released) -> None:
    missed = {name: set(lines) - UNREACHABLE.get(name, set()) for name, lines in released.unreached.items()}
    assert not any(missed.values()), {name: lines for name, lines in missed.items() if lines}
