"""The released payload builders as an oracle: random payloads of each transition, and what they are to be equal to.

A case is a call of the released builder, and a check of its result against ours. The check returns the cause where the
two differ on purpose, and what is left to be equal then has been asserted.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from engine import stream
from engine.chunk import Chunk, Codes, Tensors, Text, Usage
from engine.core import Request
from engine.errors import ConfigError, StageFailed
from engine.worker.codec_frames import Books
from engine.worker.models.qwen3_omni.feed import Feed
from engine.worker.models.qwen3_omni.talker_net import LEAD
from engine.worker.omni.talker_feed import TalkerRows
from engine.worker.stage_request import StageRequest
from engine.worker.transitions import (
    cosyvoice3,
    covo_audio,
    dynin_omni,
    mimo_audio,
    ming_flash_omni,
    qwen2_5_omni,
    qwen3_tts,
)
from engine.worker.transitions.transition import Transition
from tests.conformance.environments import ORACLES, Environment

RELEASE = Environment("vllm_omni", ORACLES)
MINUTES = 10.0
"""The time after which the process of the builders is given up."""
REFUSED = "refused"
Rng = np.random.Generator
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """A payload: the call of the released builder, and the check of its result."""

    call: tuple[Any, ...]
    check: Callable[[Any], str]


def results(calls: Sequence[tuple[Any, ...]]) -> tuple[list[Any], dict[str, list[str]]]:
    """What the builders made of every call, and the code of theirs that was not reached, by function."""
    command = [RELEASE.tool, str(RELEASE.recipe / "program.py"), str(RELEASE.folder)]
    asked = pickle.dumps([(name, arguments) for name, *arguments in calls])
    done = subprocess.run(command, input=asked, capture_output=True, timeout=60 * MINUTES)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return pickle.loads(done.stdout)


def given(transition: Transition[Any], steps: Iterable[msgspec.Struct]) -> list[Any]:
    """The payloads of a request."""
    chunks: list[Chunk] = [step if isinstance(step, Text | Usage) else Tensors.of(step) for step in steps]
    return [*(payload for chunk in chunks for payload in transition.add(chunk)), transition.end()]


def pieces(rng: Rng, rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Rows in random pieces; some are empty."""
    cuts = np.sort(rng.integers(0, len(rows) + 1, rng.integers(0, 6)))
    return [*np.split(rows, cuts), *([rows[:0]] * int(rng.integers(0, 2)))]


def chosen(rng: Rng, *words: Any) -> Any:
    return words[int(rng.integers(len(words)))]


def one_in(rng: Rng, n: int) -> bool:
    return bool(rng.integers(n) == 0)


def equal(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


# --- CovoAudio


def covo_whole(rng: Rng) -> Case:
    ids = rng.integers(151_600, 151_800, int(rng.integers(0, 30)))
    ids[rng.random(len(ids)) < 0.2] = -1
    if one_in(rng, 3):
        ids = ids[ids < covo_audio.FIRST_ID]
    if one_in(rng, 10) and len(ids):
        ids[0] = covo_audio.FIRST_ID + covo_audio.BOOK + int(rng.integers(2))
    steps = [covo_audio.Tokens(piece) for piece in pieces(rng, ids)]

    def check(theirs: Any) -> str:
        try:
            (ours,) = given(covo_audio.whole(), steps)
        except StageFailed:
            assert max(theirs) >= covo_audio.BOOK
            return "a code beyond the book: refused here, handed on there"
        if theirs is None or theirs.tolist() == [-1]:
            equal(ours.codes, [])
            return "no codes: an empty payload here; there -1, or none at all"
        equal(ours.codes, theirs)
        return ""

    return Case(("covo_whole", ids.tolist() or chosen(rng, [], None)), check)


# --- MiMo-Audio


def _groups(rng: Rng, n: int) -> Ids:
    codes = rng.integers(0, mimo_audio.BOOKS[:, None], (n, *mimo_audio.GROUP))
    return codes + (codes.max(axis=(1, 2, 3), keepdims=True) == 0)  # none is all zeros by chance


def mimo_whole(rng: Rng) -> Case:
    codes = _groups(rng, int(rng.integers(480, 540)) if one_in(rng, 100) else int(rng.integers(0, 12)))
    codes[rng.random(len(codes)) < chosen(rng, 0, 0.3, 1)] = 0
    shape = chosen(rng, "flat", "flat", "nested", "nested", "none", "text", "keyless", "3-D", "beyond")
    if shape == "beyond" and len(codes):
        codes[0, 0, 7, 0] = 129
    steps = [mimo_audio.Groups(piece) for piece in pieces(rng, codes)]
    if shape in ("none", "text", "keyless"):
        steps = chosen(rng, [], [mimo_audio.Groups()])
    elif shape == "3-D":
        codes = codes[:, 0]
        steps = [mimo_audio.Groups(codes)]

    def check(theirs: Any) -> str:
        try:
            (ours,) = given(mimo_audio.whole(), steps)
        except StageFailed:
            assert shape in ("3-D", "beyond")
            return "codes of another shape, or beyond the book: refused here, handed on there"
        if theirs is None:
            equal(ours.ids, [])
            return "no sound: an empty payload here, none there"
        if len(theirs) == 18_192:
            equal(ours.ids, theirs[:18_180])
            return "too long: cut behind a group here, within one there"
        equal(ours.ids, theirs)
        return ""

    return Case(("mimo_whole", codes, shape if shape in ("none", "text", "keyless", "nested") else "flat"), check)


def mimo_stream(rng: Rng) -> Case:
    sizes = chosen(rng, (3, 40), (5, 41), (10, 40), (30, 40), None, (2, 40), (3, 39))
    words = ("nothing", "text", "shape") if sizes else ("text", "shape")  # without sizes, "nothing" has other defaults
    steps: list[Any] = [
        (codes[None], chosen(rng, "4-D", "3-D", "list")) for codes in _groups(rng, int(rng.integers(65)))
    ]
    for _ in range(rng.integers(4)):
        steps.insert(int(rng.integers(len(steps) + 1)), chosen(rng, *words))
    end = chosen(rng, "with the last", *words)
    if one_in(rng, 20):
        steps = []
        end = chosen(rng, "text", "shape")
    codes = np.concatenate([np.zeros((0, *mimo_audio.GROUP), np.int64), *(one[0] for one in steps if one not in words)])
    config = None if sizes is None else {"codec_chunk_frames": sizes[0], "codec_left_context_frames": sizes[1]}
    config = {"extra": config} if config and one_in(rng, 2) else config
    id = None if one_in(rng, 10) else "r"
    silent = sizes is not None and id is not None and one_in(rng, 5)
    if silent:
        steps.insert(0, (np.zeros((1, 1, *mimo_audio.GROUP), np.int64)[0], "4-D"))

    def check(theirs: Any) -> str:
        try:
            stream = mimo_audio.Stream(*(sizes or ()))
        except ConfigError:
            return "windows that are too small: refused here, replaced by the default there"
        ours = [
            (one.ids, one.context, one.finished) for one in given(stream, map(mimo_audio.Groups, pieces(rng, codes)))
        ]
        if id is None:
            assert not any(len(ids) for ids, _, _ in theirs)
            return "a request without an id of its own: served here, lost there"
        if silent:
            assert not _voiced(theirs)[0][1:9].any()
            equal(_voiced(ours), _voiced(theirs)[1 : 1 + len(codes)])
            return "groups without sound: left out here, voiced there"
        once = _once(theirs)
        _same_windows(ours, once)
        return REPEATED if len(once) < len(theirs) else ""

    return Case(("mimo_stream", steps, config, end, id), check)


def _voiced(windows: list[Any]) -> NDArray[np.int64]:
    """The groups [groups, 36] that windows voice."""
    return np.concatenate([ids.reshape(-1, mimo_audio.ROW)[context:] for ids, context, _ in windows])


REPEATED = "a call without a frame behind a full window: nothing, or the end, here; that window once more there"


def _once(windows: list[Any]) -> list[Any]:
    """The windows without those that repeat the one before."""
    pairs = zip([(np.zeros(0), -1, False), *windows[:-1]], windows, strict=True) if windows else []
    return [one for before, one in pairs if before[1] != one[1] or not np.array_equal(before[0], one[0])]


def _same_windows(ours: list[Any], theirs: list[Any]) -> None:
    """Compare windows; the end may come with the last of them, or by itself."""
    one, other = ([*windows[: len(windows) - (len(windows[-1][0]) == 0)]] for windows in (ours, theirs))
    assert [context for _, context, _ in one] == [context for _, context, _ in other]
    assert ours[-1][2]
    for (ids, _, _), (wanted, _, _) in zip(one, other, strict=True):
        equal(ids, wanted)


# --- CosyVoice3


def _voice(rng: Rng) -> dict[str, Any]:
    tokens = int(rng.integers(1, 6))
    return {
        "speech_token": rng.integers(0, 9, (1, tokens)),
        "speech_feat": rng.random((1, 2 * tokens, 80), np.float32),
        "embedding": rng.random((1, 192), np.float32),
    }


def _same_voice(ours: cosyvoice3.Voice | None, theirs: Any) -> None:
    assert (ours is None) == (theirs is None)
    for name, part in (theirs or {}).items():
        equal(getattr(ours, name), part)


def cosyvoice_whole(rng: Rng) -> Case:
    voice, prompt_ids = _voice(rng), rng.integers(0, 9, int(rng.integers(0, 4)))
    head = [chosen(rng, part, part, part[:-1], part[:0]) for part in (prompt_ids, voice["speech_token"][0])]
    tail = rng.integers(-1, 20, int(rng.integers(0, 12))) * chosen(rng, 1, 330, 350)
    ids = np.concatenate([*head, tail])
    shape = chosen(
        rng, "flat", "flat", "nested", "nested", "none", "empty", "embed", "unfinished", "part", "empty part"
    )
    lost = chosen(rng, *voice)
    sent = dict(voice)
    if shape == "part":
        del sent[lost]
    elif shape == "empty part":
        sent[lost] = sent[lost][:, :0]
    whole = shape in ("flat", "nested", "unfinished")

    def check(theirs: Any) -> str:
        steps = [cosyvoice3.Tokens(piece) for piece in pieces(rng, ids)]
        if whole:
            steps.insert(0, cosyvoice3.Tokens(None, cosyvoice3.Voice(**voice), prompt_ids))
        try:
            *before, ours = given(cosyvoice3.whole(), steps)
        except StageFailed:
            assert not whole
            assert theirs[0] is None or lost not in theirs[0] or theirs[1] == REFUSED
            return "a voice, or a part of it, is missing: refused here, silence or no payload there"
        assert not before
        _same_voice(ours.voice, theirs[0])
        if shape == "unfinished":
            assert theirs[1] is None
            return ""
        tokens, offset = theirs[1]
        sounding = [token for token in tokens if 0 <= token < cosyvoice3.BOOK]
        equal(ours.tokens, sounding)
        assert ours.offset == offset
        return "" if len(sounding) == len(tokens) else "stops and placeholders: left out here, by the consumer there"

    return Case(("cosyvoice_whole", ids.tolist(), prompt_ids.tolist(), sent, shape.split()[-1]), check)


def cosyvoice_stream(rng: Rng) -> Case:
    voice = _voice(rng) if not one_in(rng, 10) else {}
    sizes = chosen(rng, None, (4, 15, 3, 2), (5, 3, 0, 3), (15, 60, 3, 2), (2, 9, 1, 1), (0, 9, 3, 2), (4, 15, -1, 2))
    names = ("codec_chunk_frames", "codec_max_chunk_frames", "codec_pre_lookahead_frames", "codec_stream_scale_factor")
    config = None if sizes is None else dict(zip(names, sizes, strict=True))
    config = {"extra": config} if config and one_in(rng, 2) else config
    ids = rng.integers(-300, 7_000, int(rng.integers(0, 160)))
    steps, end = pieces(rng, ids), chosen(rng, "apart", "apart", "with the last")
    if one_in(rng, 20):
        steps = [ids[:0]]
    source = chosen(rng, "request", "request alone", "output", "bare")

    def stream() -> cosyvoice3.Stream:
        return cosyvoice3.Stream(*(sizes[0], sizes[1], sizes[3], sizes[2]) if sizes else ())

    def check(theirs: Any) -> str:
        first = [cosyvoice3.Tokens(voice=cosyvoice3.Voice(**voice))] if voice else []
        sent = [*first, *(cosyvoice3.Tokens(piece) for piece in steps)]
        try:
            ours = given(stream(), sent)
        except ConfigError:
            assert theirs == REFUSED
            return ""
        except StageFailed:
            assert not voice
            return "a voice, or a part of it, is missing: refused here, silence or no payload there"
        before = given(stream(), sent[:-1])[:-1] if end == "with the last" else ours[:-1]
        assert len(theirs) == len(before) + 1
        for one, (tokens, offset, finished, told) in zip(ours[: len(before)], theirs[:-1], strict=True):
            equal(one.tokens, tokens)
            assert (one.offset, one.finished) == (offset, finished)
            _same_voice(one.voice, told)
        rest, (tokens, offset, finished, told) = ours[len(before) :], theirs[-1]
        assert (rest[0].offset, True) == (offset, finished)
        _same_voice(rest[0].voice, told)
        last = rest[-1] if len(rest[-1].tokens) or len(rest) == 1 else rest[-2]
        equal(last.tokens, tokens)
        return "the end comes with tokens for more than a window: all at once there" if len(rest) > 1 else ""

    return Case(("cosyvoice_stream", steps, voice, config, end, source), check)


# --- Dynin-Omni


def _tokens(rng: Rng) -> tuple[Any, Ids | None]:
    """Tokens as the release may be given them, and as they are."""
    ids = rng.integers(0, 4_000, int(rng.integers(0, 5)))
    how = chosen(rng, "tensor", "batch", "list", "lists", "one", "one tensor", "none")
    if how.startswith("one"):
        return (int(ids.sum()), "tensor" if how == "one tensor" else ""), ids.sum(keepdims=True)
    if how == "none" or (how == "lists" and not len(ids)):
        return (None, ""), None
    return (ids.tolist(), how), ids


def _runtime(rng: Rng) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "speaker": chosen(rng, "Ann", "Bob"), "language": "en", "task": "t2s", "audio_vocab_offset": 7,
        "codebook_size": int(rng.integers(9_000)), "detok_id": int(rng.integers(4)),
    }  # fmt: skip
    return {name: value for name, value in fields.items() if one_in(rng, 2)}


def _runtime_output(rng: Rng, runtime: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """What a stage found out, as the release may be given it, and whether it can be read."""
    listed = {name: [value] for name, value in runtime.items()} if one_in(rng, 2) else runtime
    match chosen(rng, "json tensor", "json bytes", "json list", "dict", "beside", "broken"):
        case "dict":
            return {"runtime_info_json": (listed, "")}, True
        case "beside":
            return {"runtime_info": (listed, ""), "runtime_info_json": chosen(rng, (None, ""), (b"", ""))}, True
        case "broken":
            return {
                "runtime_info_json": chosen(rng, (b"{", ""), (["x"], ""), (b"3", ""), (3.5, "")),
                "runtime_info": ("x", ""),
            }, False
        case how:
            return {"runtime_info_json": (listed, how)}, True


def dynin_whole(rng: Rng) -> Case:
    hop = chosen(rng, "token2text_to_token2image_full_payload", "token2image_to_token2audio_full_payload")
    (sent_ids, ids), (sent_text, text), runtime, prompt = _tokens(rng), _tokens(rng), _runtime(rng), _runtime(rng)
    found, read = _runtime_output(rng, runtime)
    detok, how = chosen(
        rng, *((n, how) for n in range(4) for how in ("", "tensor", "list")), (None, ""), ([], "tensor"), ([], "")
    )
    listed = [detok] if how == "list" else detok
    output = {"token_ids": sent_ids, "text_tokens": sent_text, "detok_id": (listed, how), **found}
    drawn = rng.integers(0, 99, int(rng.integers(0, 4)))
    asked = chosen(rng, "prompt", "prompt", "prompt", "none", "no request")
    metadata: dict[str, Any] = {name: chosen(rng, value, [value]) for name, value in prompt.items()}
    if one_in(rng, 10):
        output, ids, text, read, detok = None, None, None, False, None
    if strange := one_in(rng, 20) and asked == "prompt":
        metadata["colour"] = "red"
    drawn_ids = None if asked == "no request" else drawn

    def check(theirs: Any) -> str:
        fields: dict[str, Any] = (
            {"prompt": metadata if strange else dynin_omni.Runtime(**prompt)} if asked == "prompt" else {}
        )
        fields |= {"runtime": dynin_omni.Runtime(**runtime)} if read else {}
        last = {"token_ids": ids, "text_tokens": text, "detok_id": None if detok == [] else detok, **fields}
        earlier = {name: value for name, value in last.items() if name not in fields and value is not None}
        earlier = {name: 0 if name == "detok_id" else np.arange(3) for name in earlier}
        cut = pieces(rng, drawn) if drawn_ids is not None else []
        transition = dynin_omni.whole()
        try:
            for step in (earlier, *({"drawn_ids": piece} for piece in cut), last):
                assert not list(transition.add(Tensors("dynin_omni.output", step)))
            ours = transition.end()
        except StageFailed:
            known = theirs is None or theirs[1]["detok_id"] == [3]
            assert strange or known
            return "metadata, or a target, that nobody knows: refused here, handed on there"
        if theirs is None:
            equal(ours.tokens, [])
            return "no tokens: an empty payload here, none there"
        tokens, payload = theirs
        equal(ours.tokens, tokens)
        assert payload.pop("detok_id") == [ours.target]
        runtime_ = {name: [getattr(ours.runtime, name)] for name in ours.runtime.__struct_fields__}
        assert payload == {name: v for name, v in runtime_.items() if v != [None] and name != "detok_id"}
        return ""

    sent = metadata if asked == "prompt" else "no request" if asked == "no request" else ""
    return Case(("dynin_whole", hop, output, None if drawn_ids is None else drawn_ids.tolist(), sent), check)


# --- Ming-Flash-Omni


MING = {
    "voice_name": "name", "prompt_text": "prompt_text", "spk_emb": "speaker", "prompt_wav_lat": "prompt_latents",
    "prompt_wav_emb": "prompt_embedding", "max_text_length": "max_text_length",
}  # fmt: skip
"""The released names of a voice's fields, and ours."""


def ming_whole(rng: Rng) -> Case:
    text = "".join(chosen(rng, "Hello ", "wörld", " ", "。", "!") for _ in range(rng.integers(0, 9)))
    shape = chosen(rng, "one", "list", "no prompt", "no prompts", "no text")
    fields: dict[str, Any] = {
        "voice_name": chosen(rng, "DB30", "Ann"), "prompt_text": "Hello", "max_text_length": int(rng.integers(9, 99)),
        "spk_emb": rng.random((1, 4), np.float32), "prompt_wav_lat": rng.random((1, 4, 2), np.float32),
        "prompt_wav_emb": rng.random((1, 4), np.float32),
    }  # fmt: skip
    voice = {name: part for name, part in fields.items() if one_in(rng, 2)}
    known = {} if shape.startswith("no prompt") else voice
    steps = ["".join(piece) for piece in pieces(rng, np.array(list("" if shape == "no text" else text), dtype=object))]
    sent = {name: part[0].tolist() if name == "spk_emb" else part for name, part in voice.items()}

    def check(theirs: Any) -> str:
        payload, told = theirs
        assert payload is None, "no tensor crosses"
        transition = ming_flash_omni.Spoken(ming_flash_omni.Voice(**{MING[name]: part for name, part in known.items()}))
        (line,) = given(transition, [Text(step, 0) for step in steps])
        assert (told.pop("text"), told.pop("ming_task")) == (line.text, "omni")
        for name, part in told.items():
            assert np.array_equal(getattr(line.voice, MING[name]), part), name
        return ""

    return Case(("ming_whole", text, sent or None, shape), check)


# --- Qwen2.5-Omni


def qwen2_5_thought(rng: Rng) -> Case:
    prompt_ids, drawn_ids = rng.integers(0, 9, int(rng.integers(0, 6))), rng.integers(0, 9, int(rng.integers(0, 6)))
    computed = max(0, len(prompt_ids) + len(drawn_ids) + int(rng.integers(-3, 2)))
    hidden = rng.random((computed, 4), np.float32)
    shape = chosen(rng, *["plain"] * 6, "all ids", "status as text", "none", "empty")
    stops = {int(one) for one in rng.integers(0, 9, 3)}
    eos = int(rng.integers(9))
    named = {
        "stop_token_ids": [*stops, "x"],
        "eos_token_id": eos,
        "all_stop_token_ids": [8, None],
        "_eos_token_id": None,
    }
    ignored = one_in(rng, 2)
    finish = chosen(
        rng,
        None,
        "FINISHED_STOPPED",
        "FINISHED_LENGTH_CAPPED",
        {},
        {**named, "ignore_eos": ignored},
        {"ignore_eos": True},
    )
    if isinstance(finish, dict) and "eos_token_id" in finish:
        stops |= set() if ignored else {eos, 8}
    else:
        stops = set()
    if shape in ("none", "empty"):
        hidden = hidden[:0]

    def check(theirs: Any) -> str:
        steps: list[msgspec.Struct] = [qwen2_5_omni.Thought(prompt_ids=prompt_ids)]
        steps += [qwen2_5_omni.Thought(hidden=piece) for piece in pieces(rng, hidden)]
        steps += [qwen2_5_omni.Thought(drawn_ids=piece) for piece in pieces(rng, drawn_ids)]
        steps += [Usage(finish="stop" if finish == "FINISHED_STOPPED" else "length")] if isinstance(finish, str) else []
        try:
            (ours,) = given(qwen2_5_omni.Thoughts(stops), steps)
        except StageFailed:
            assert theirs is None or not len(hidden)
            return "fewer hidden rows than the prompt has ids, or none: refused here, no payload there"
        if theirs is None:
            assert not len(ours.answer)
            return "nothing was drawn but a stop: the prompt's rows here, none there"
        for one, other in zip((ours.prompt, ours.answer, ours.prompt_ids, ours.drawn_ids), theirs, strict=True):
            equal(one, other)
        return ""

    return Case(("qwen2_5_thought", hidden, prompt_ids.tolist(), drawn_ids.tolist(), finish, shape), check)


def qwen2_5_codes(rng: Rng) -> Case:
    ids = rng.integers(8_280, 8_296, int(rng.integers(0, 12)))
    ids[rng.random(len(ids)) < 0.1] = -1
    ids = np.concatenate([ids, chosen(rng, [], [8_294], [-1] * int(rng.integers(1, 4)))]).astype(np.int64)
    steps = [qwen2_5_omni.Drawn(piece) for piece in pieces(rng, ids)]

    def check(theirs: Any) -> str:
        (ours,) = given(qwen2_5_omni.codes(), steps)
        equal(ours.codes, [] if theirs is None else theirs)
        return "no codes: an empty payload here, none there" if theirs is None else ""

    return Case(("qwen2_5_codes", ids.tolist() or chosen(rng, [], None)), check)


# --- Qwen3-TTS


def _frames(rng: Rng, n: int, books: int = 16) -> Ids:
    return rng.integers(0, 2_048, (n, books)) | (np.arange(books) == 0)  # none is all zeros


def _with_junk(rng: Rng, frames: Ids, share: float) -> Ids:
    """The same, and some frames that are no sound: padding, a placeholder, a stop."""
    frames = frames.copy()
    for n in np.flatnonzero(rng.random(len(frames)) < share):
        frames[n] = chosen(rng, frames[n] * 0, -1, np.where(np.arange(16) == 0, 2_150, frames[n]))
    return frames


def qwen3_tts_whole(rng: Rng) -> Case:
    codes = _with_junk(rng, _frames(rng, int(rng.integers(0, 12))), chosen(rng, 0, 0.3, 1))
    sounding = codes[((codes >= 0) & (codes < 2_048)).all(axis=1) & codes.any(axis=1)]
    drawn = int(rng.integers(2, 9)) if one_in(rng, 3) and len(sounding) else len(codes) + 1
    reference = _frames(rng, int(rng.integers(1, 5))) if one_in(rng, 2) else None
    how, most = chosen(rng, "", "flat", "list", "odd", "3-D", "no list"), int(rng.integers(1, 6))
    length = chosen(rng, (most, ""), (most, "tensor"), (None, ""), (0, ""), (-3, ""), (9, "no tensor"))
    shape = chosen(rng, "flat", "flat", "nested", "nested", "none", "empty", "list", "meta", "codes")
    lost = shape in ("none", "empty", "list")
    known = None if reference is None or how in ("odd", "3-D", "no list") or shape == "codes" else reference
    if known is not None and length[0] == most and shape != "meta":
        known = known[:most]

    def check(theirs: Any) -> str:
        answer = codes[:0] if lost else codes
        cause = "no sound: an empty payload here, none there" if theirs is None else ""
        if drawn - 1 < len(sounding) and not lost:
            answer, cause = (
                sounding[len(sounding) - (drawn - 1) :],
                "more frames than were drawn: made by nobody here, cut there",
            )
        steps = [qwen3_tts.Frames(reference=known), *(qwen3_tts.Frames(piece) for piece in pieces(rng, answer))]
        (ours,) = given(qwen3_tts.whole(), steps)
        if theirs is None:
            assert (len(ours.codes), ours.context) == (0, 0)
            return cause
        equal(ours.codes.T.reshape(-1), theirs)
        assert ours.context == (0 if known is None else len(known))
        return cause

    return Case(("qwen3_tts_whole", codes, (reference, how), length, [0] * drawn, shape), check)


def qwen3_tts_stream(rng: Rng) -> Case:
    sizes = chosen(
        rng,
        (25, 25, 1, 72),
        (25, 72, 4, 0),
        (10, 7, 3, 5),
        (4, 4, 9, 2),
        (2, 3, 0, 0),
        (6, 5, 0, 3),
        None,
        (0, 1, 1, 1),
        (5, -1, 1, 1),
    )
    names = ("codec_chunk_frames", "codec_left_context_frames", "initial_codec_chunk_frames", "ref_code_context_frames")
    config = None if sizes is None else dict(zip(names, sizes, strict=True))
    config = {"extra": config} if config and one_in(rng, 2) else config
    frames = _frames(rng, int(rng.integers(0, 70)))
    words = ("nothing", "text", "zeros", "no rows")
    steps: list[Any] = [frame[None] for frame in frames]
    for _ in range(rng.integers(4)):
        steps.insert(int(rng.integers(len(steps) + 1)), chosen(rng, *words))
    end = chosen(rng, "with the last", *words) if len(steps) else chosen(rng, *words)
    override = chosen(rng, None, None, None, "no state", 0, 2, -1)
    reference = _frames(rng, int(rng.integers(1, 9))) if one_in(rng, 2) else None
    how = chosen(rng, "", "", "flat", "odd", "3-D")
    known = (
        None
        if reference is None or how in ("odd", "3-D") or not len(frames) or isinstance(steps[0], str)
        else reference
    )
    if one_in(rng, 50):
        steps.insert(0, "3-D")

    def check(theirs: Any) -> str:
        windows, first = theirs
        if windows == REFUSED:
            chunk, left, *_ = sizes or (1, 1)
            assert chunk < 1 or left < 0 or override == -1 or steps[0] == "3-D"
            with pytest.raises((ConfigError, StageFailed)):
                _no_frames(1 if override != -1 else override, chunk, left)
            return ""
        chunk, left, initial, most = sizes or (25, 25, 0, 0)
        first = override if override in (0, 2) and override else first or initial or chunk
        stream = qwen3_tts.Stream(min(first, chunk), chunk, left, most or left)
        said = [qwen3_tts.Frames(reference=known), *(qwen3_tts.Frames(piece) for piece in pieces(rng, frames))]
        ours = [(one.codes, one.context, one.finished) for one in given(stream, said)]
        tail = frames[:0] if known is None else known[-(most or left) :]
        found = [(_restored(one, tail), one[1], one[4]) for one in windows]
        once = _once(found)
        _same_windows(ours, once)
        return REPEATED if len(once) < len(found) else ""

    return Case(("qwen3_tts_stream", steps, (reference, how), config, end, override), check)


def _no_frames(first: int, chunk: int, left: int) -> None:
    given(qwen3_tts.Stream(first, chunk, left), [qwen3_tts.Frames(np.ones((1, 1), np.int64))])


def _restored(window: Any, reference: Ids) -> Ids:
    """A window as the released decoder sees it: behind the reference, which comes with the first one and is kept."""
    codes, _, size, included, _ = window
    frames = codes.reshape(16, -1).T if len(codes) else np.zeros((0, 16), np.int64)
    assert size in (0, len(reference))
    return frames if included or not size else np.concatenate([reference, frames])


# --- Qwen3-Omni


TURN, SYSTEM, USER, ASSISTANT = 151_644, 8_948, 872, 77_091


def _chat(rng: Rng) -> Ids:
    """A prompt's ids: turns of every role, the last of them the assistant's, which is to be answered in."""
    turns = [chosen(rng, SYSTEM, USER, USER, ASSISTANT, 9) for _ in range(rng.integers(0, 4))]
    return np.concatenate([[TURN, role, *rng.integers(10, 99, int(rng.integers(5)))] for role in [*turns, ASSISTANT]])


def qwen3_omni_thought(rng: Rng) -> Case:
    prompt_ids, drawn_ids = _chat(rng), rng.integers(10, 99, int(rng.integers(1, 6)))
    stopped = not one_in(rng, 3)
    ids = np.concatenate([prompt_ids, drawn_ids])
    rows = rng.random((len(ids), 4), np.float32) if not one_in(rng, 20) else np.zeros((0, 4), np.float32)
    shape = chosen(rng, *["plain"] * 4, "hidden", "no marks", "marks", "no all", "none", "empty")

    def check(theirs: Any) -> str:
        indices, lead = _user_turns(prompt_ids.tolist())
        if theirs is None:
            assert shape in ("none", "empty")
            return "no rows: no payload"
        embeddings, hidden, all_ids, prompt, length = theirs
        assert (all_ids, prompt) == (ids.tolist(), prompt_ids.tolist())
        assert length == len(indices) + LEAD, "rows of the user's turns, and those of the talker's own"
        assert lead == np.flatnonzero(prompt_ids == TURN)[-1], "where the assistant's turn begins"
        equal(hidden, 2 * embeddings)
        if not len(rows):
            return "no rows: handed on there"
        equal(embeddings, rows[: len(prompt_ids) + len(drawn_ids[:-1])])
        return (
            ""
            if stopped
            else "an answer cut at its length: its last row is cut there, spoken here as transformers does"
        )

    return Case(("qwen3_omni_thought", rows, 2 * rows, prompt_ids.tolist(), drawn_ids.tolist(), shape), check)


def _user_turns(ids: list[int]) -> tuple[list[int], int]:
    """The rows of a prompt that our talker takes, and where its own turn begins."""
    marks = SimpleNamespace(turn=TURN, user=USER)
    return Feed._user_turns(cast(Any, SimpleNamespace(marks=marks)), ids)


def qwen3_omni_thoughts(rng: Rng) -> Case:
    """Rows come one prompt piece after the other, then one a token."""
    prompt_ids = _chat(rng)
    drawn = int(rng.integers(0, 8))
    rows = rng.random((len(prompt_ids) + drawn, 4), np.float32)
    sizes = [len(piece) for piece in pieces(rng, rows[: len(prompt_ids)]) if len(piece)] + [1] * drawn
    end = chosen(rng, "nothing", "text", "layers")
    for _ in range(rng.integers(3)):
        sizes.insert(int(rng.integers(len(sizes))), 0)
    strange = one_in(rng, 20) and drawn > 2
    resumable = one_in(rng, 4) and not strange

    def check(theirs: Any) -> str:
        if strange:
            return "two rows at once in the answer: they do not come here, and are dropped there"
        whole = [rows_ for rows_, _, _ in theirs]
        equal(np.concatenate(whole) if whole else rows[:0], rows[: sum(map(len, whole))])
        assert [prompt for _, prompt, _ in theirs] == [True, *[False] * (len(theirs) - 1)][: len(theirs)]
        assert not whole or len(whole[0]) > len(prompt_ids) or theirs[0][2], "all of the prompt, and one row more"
        indices, _ = _user_turns(prompt_ids.tolist())
        ours = TalkerRows(np.array(indices, np.int64), np.zeros((3, len(indices)), np.float32), np.array(indices))
        cuts = np.cumsum([0, *sizes])
        found = [ours.indices[ours.within(slice(a, b))] for a, b in itertools.pairwise(cuts)]
        equal(np.concatenate(found), indices)
        return ""

    if strange:
        sizes[-2:] = [2]
    return Case(("qwen3_omni_thoughts", rows, 2 * rows, prompt_ids.tolist(), sizes, end, resumable), check)


class Cut:
    """A chunk policy: a first size, and another one."""

    def __init__(self, first: int, size: int) -> None:
        self.sizes = (first, size)

    def size(self, count: int) -> int:
        return self.sizes[count > 0]

    def hurry(self) -> bool:
        return False


def _windows(frames: Ids, first: int, size: int) -> list[Ids]:
    """The windows that code2wav gets of a talker's frames."""
    chunks = [Codes(frame[None].astype(np.int16), n) for n, frame in enumerate(frames)]
    req = StageRequest(Request(id="r", session="s", messages=()), 0, Cut(first, size))

    async def gathered() -> list[Ids]:
        return [window.codes async for window in Books(16, 2_048, 1_920).windows(req, stream.of(chunks))]

    return asyncio.run(gathered())


def qwen3_omni_codes(rng: Rng) -> Case:
    frames = _frames(rng, int(rng.integers(0, 30)))
    rows = _with_junk(rng, frames, chosen(rng, *[0] * 8, *[0.2] * 4, 1))
    rows[~rows.any(axis=1)] = -1  # frames of zeros are told by their ids there
    drawn = np.where((rows[:, 0] >= 0) & (rows[:, 0] < 2_048), rows[:, 0], chosen(rng, 2_150, 4_198, -1))
    ahead = int(rng.integers(3)) if one_in(rng, 4) else 0  # rows of the prompt, which no id belongs to
    shape = chosen(rng, *["flat"] * 16, *["nested"] * 12, "as list", "none", "empty", "list", "3-D")
    ids = [*drawn.tolist()] if not one_in(rng, 20) else []
    ids = [str(one) if one_in(rng, 200) else one for one in ids]
    if one_in(rng, 20) and ids:
        ids[0] = "x"
    sent = np.concatenate([_frames(rng, ahead + (shape == "3-D")), rows])
    kept = rows[[str(one).isdigit() and int(one) < 2_048 for one in ids] if ids else [False] * len(rows)]
    kept = kept[((kept >= 0) & (kept < 2_048)).all(axis=1)]

    def check(theirs: Any) -> str:
        if shape == "3-D":
            with pytest.raises(StageFailed):
                _windows(sent[:, None], 4, 25)
            return "codes of another shape: refused here, handed on there"
        windows = _windows(kept[:0] if shape in ("none", "empty", "list") else kept, 4, 25)
        if theirs is None:
            assert not windows or not ids
            return "no codes: no window, and the end, here; nothing there"
        equal(np.concatenate(windows).T.reshape(-1), theirs)
        return (
            ""
            if len(kept) == len(sent)
            else "stops, placeholders and rows of the prompt: made by nobody here, left out there"
        )

    return Case(("qwen3_omni_codes", sent, ids, shape), check)


def qwen3_omni_frames(rng: Rng) -> Case:
    first, size, left = chosen(rng, (4, 25, 25), (1, 5, 7), (0, 10, 25), (0, 25, 25))
    names = ("initial_codec_chunk_frames", "codec_chunk_frames", "codec_left_context_frames")
    config = dict(zip(names, (first, size, left), strict=True))
    config = None if (first, size) == (0, 25) else {"extra": config} if one_in(rng, 2) else config
    frames = _frames(rng, int(rng.integers(0, 70)))
    steps: list[Any] = [frame[None] for frame in frames]
    stop = _frames(rng, 1)
    stop[0, 0] = 2_150
    for _ in range(rng.integers(4)):
        steps.insert(
            int(rng.integers(len(steps) + 1)), chosen(rng, "nothing", "text", "list", "no rows", "zeros", stop)
        )
    end = chosen(rng, "with the last", "with the last", "nothing", "zeros")
    stops = chosen(rng, {"stop_token_ids": [2_150]}, {"stop_token_id": 2_150})

    def check(theirs: Any) -> str:
        ours = _windows(frames, first or size, size)
        found = [codes.reshape(16, -1).T[context:] for codes, context, _ in theirs]
        ended = end == "with the last" and len(steps) > 0 and not isinstance(steps[-1], str) and steps[-1] is not stop
        for one, other in zip(ours, found, strict=False):
            equal(one, other)
        if ended:
            assert len(ours) == len(found)
            assert theirs[-1][2]
        else:
            assert len(found) == len(ours) - (
                len(ours) > 0 and len(ours[-1]) < (size if len(ours) > 1 else first or size)
            )
        for n, (_, context, _) in enumerate(theirs):
            assert context <= sum(map(len, ours[:n])), "no more context than there is"
        return "" if ended else "the end comes without a frame: the remainder is voiced here, lost there"

    return Case(("qwen3_omni_frames", steps, config, stops, end), check)


DRAWN = (
    qwen3_omni_thought, qwen3_omni_thoughts, qwen3_omni_codes, qwen3_omni_frames, qwen2_5_thought, qwen2_5_codes,
    covo_whole, mimo_whole, mimo_stream, qwen3_tts_whole, qwen3_tts_stream, cosyvoice_whole, cosyvoice_stream,
    dynin_whole, ming_whole,
)  # fmt: skip
"""Every transition, whole and in windows where the release has them."""
