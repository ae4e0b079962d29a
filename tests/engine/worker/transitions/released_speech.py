"""Random payloads of the families whose networks are not here, and what they are to be equal to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.chunk import Tensors, Text
from engine.errors import ConfigError, StageFailed
from engine.worker.transitions import cosyvoice3, covo_audio, dynin_omni, mimo_audio, ming_flash_omni
from tests.engine.worker.transitions.released import (
    REFUSED,
    REPEATED,
    Case,
    Ids,
    Rng,
    chosen,
    equal,
    given,
    once,
    one_in,
    pieces,
    same_windows,
)

# --- CovoAudio


def covo_whole(rng: Rng) -> Case:
    ids = rng.integers(151_600, 151_800, int(rng.integers(0, 30)))
    ids[rng.random(len(ids)) < 0.2] = -1
    if one_in(rng, 3):
        ids = ids[ids < covo_audio.FIRST_ID]
    if one_in(rng, 10) and len(ids):
        ids[0] = covo_audio.FIRST_ID + covo_audio.BOOK + int(rng.integers(2))
    steps = [covo_audio.CovoTokens(piece) for piece in pieces(rng, ids)]

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
            stream = mimo_audio.MimoStream(*(sizes or ()))
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
        left_over = once(theirs)
        same_windows(ours, left_over)
        return REPEATED if len(left_over) < len(theirs) else ""

    return Case(("mimo_stream", steps, config, end, id), check)


def _voiced(windows: list[Any]) -> NDArray[np.int64]:
    """The groups [groups, 36] that windows voice."""
    return np.concatenate([ids.reshape(-1, mimo_audio.ROW)[context:] for ids, context, _ in windows])


# --- CosyVoice3


def _voice(rng: Rng) -> dict[str, Any]:
    tokens = int(rng.integers(1, 6))
    return {
        "speech_token": rng.integers(0, 9, (1, tokens)),
        "speech_feat": rng.random((1, 2 * tokens, 80), np.float32),
        "embedding": rng.random((1, 192), np.float32),
    }


def _same_voice(ours: cosyvoice3.CosyVoiceVoice | None, theirs: Any) -> None:
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
        steps = [cosyvoice3.CosyVoiceTokens(piece) for piece in pieces(rng, ids)]
        if whole:
            steps.insert(0, cosyvoice3.CosyVoiceTokens(None, cosyvoice3.CosyVoiceVoice(**voice), prompt_ids))
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

    def stream() -> cosyvoice3.CosyVoiceStream:
        return cosyvoice3.CosyVoiceStream(*(sizes[0], sizes[1], sizes[3], sizes[2]) if sizes else ())

    def check(theirs: Any) -> str:
        first = [cosyvoice3.CosyVoiceTokens(voice=cosyvoice3.CosyVoiceVoice(**voice))] if voice else []
        sent = [*first, *(cosyvoice3.CosyVoiceTokens(piece) for piece in steps)]
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


def dynin_image(rng: Rng) -> Case:
    return _dynin_whole(rng, "token2text_to_token2image_full_payload")


def dynin_sound(rng: Rng) -> Case:
    return _dynin_whole(rng, "token2image_to_token2audio_full_payload")


def _dynin_whole(rng: Rng, hop: str) -> Case:
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
        transition = ming_flash_omni.MingText(
            ming_flash_omni.MingVoice(**{MING[name]: part for name, part in known.items()})
        )
        (line,) = given(transition, [Text(step, 0) for step in steps])
        assert (told.pop("text"), told.pop("ming_task")) == (line.text, "omni")
        for name, part in told.items():
            assert np.array_equal(getattr(line.voice, MING[name]), part), name
        return ""

    return Case(("ming_whole", text, sent or None, shape), check)
