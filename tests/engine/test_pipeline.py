"""Stages in their order: what fits, which of them a request passes, and what all of them can do together."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from engine.chunk import Audio, Codes, Speech, Text, ToolCall, Transcript, Usage, VoiceText, kinds
from engine.core import ANSWER, IN_WRITING, AudioPart, Facets, Message, Request, StageInfo, TextPart, Voice
from engine.errors import ConfigError, RequestError
from engine.pipeline import Pipeline, Route

EARS = StageInfo(name="ears", takes=kinds(Speech), emits=kinds(Transcript), feeds=kinds(Transcript))
THINKER = StageInfo(
    name="thinker", takes=kinds(Transcript), emits=kinds(Text, ToolCall, Usage), feeds=kinds(Text), answers=True
)
TALKER = StageInfo(name="talker", takes=kinds(Text, VoiceText), feeds=kinds(Codes))
CODE2WAV = StageInfo(name="code2wav", takes=kinds(Codes), emits=kinds(Audio), facets=Facets(frame_s=0.02))
OMNI = StageInfo(
    name="omni", takes=kinds(Speech), emits=kinds(Text), feeds=frozenset({"omni.rows"}), answers=True, says=True
)
ROWS = StageInfo(name="rows", takes=frozenset({"omni.rows"}), emits=kinds(Audio))
WHOLE = [EARS, THINKER, TALKER, CODE2WAV]


def named(stage: StageInfo, name: str = "", **changes: Any) -> StageInfo:
    return msgspec.structs.replace(stage, **changes, **({"name": name} if name else {}))


def typed(**fields: Any) -> Request:
    return Request(id="r", session="s", messages=(Message("user", (TextPart("hi"),)),), **fields)


def live(**fields: Any) -> Request:
    return Request(id="r", session="s", messages=(), live=True, **fields)


def recorded(**fields: Any) -> Request:
    part = AudioPart(np.zeros(160, np.int16))
    return Request(id="r", session="s", messages=(Message("user", (part,)),), **fields)


ONLY = frozenset({"transcript"})


@pytest.mark.parametrize(
    ("stages", "request_", "route"),
    [
        (WHOLE, typed(), Route((1, 2, 3))),
        (WHOLE, typed(wants=IN_WRITING), Route((1,))),
        (WHOLE, live(), Route((0, 1, 2, 3), ears=1)),
        (WHOLE, recorded(), Route((0, 1, 2, 3))),
        (WHOLE, live(wants=IN_WRITING), Route((0, 1), ears=1)),
        (WHOLE, live(wants=ONLY), Route((0,), ears=1)),
        (WHOLE, recorded(wants=ONLY), Route((0,))),
        (WHOLE, typed(say="Good day."), Route((2, 3), say="Good day.")),
        (WHOLE[:2], live(wants=IN_WRITING), Route((0, 1), ears=1)),
        (WHOLE[1:], typed(), Route((0, 1, 2))),
        ([OMNI, ROWS], live(), Route((0, 1))),
        ([OMNI, ROWS], typed(wants=IN_WRITING), Route((0,))),
        ([OMNI, ROWS], typed(say="Good day."), Route((0, 1))),
        ([EARS], live(wants=ONLY), Route((0,), ears=1)),
        ([TALKER, CODE2WAV], typed(say="Good day."), Route((0, 1), say="Good day.")),
    ],
)
def test_a_request_passes_the_stages_that_bring_what_it_wants(
    stages: list[StageInfo], request_: Request, route: Route
) -> None:
    assert Pipeline(stages).route(request_) == route


@pytest.mark.parametrize(
    ("stages", "request_", "told"),
    [
        (WHOLE[:2], typed(), "has no voice; ask for text"),
        (WHOLE[:2], typed(say="x"), "has no voice; ask for text"),
        (WHOLE[1:], live(), "does not accept audio; send text"),
        ([OMNI, ROWS], live(wants=ONLY), "gives no transcript"),
        ([EARS], live(wants=IN_WRITING - ONLY), "gives no text"),
        (
            [named(EARS, emits=kinds(Text), feeds=frozenset(), takes=kinds(Speech, Transcript))],
            typed(wants=IN_WRITING),
            "does not accept typed messages",
        ),  # it writes only what it hears,
        ([TALKER, CODE2WAV], typed(), "is only a voice: it can speak a given text, but not answer"),
        ([TALKER, CODE2WAV], live(), "is only a voice: it can speak a given text, but not answer"),
        ([named(EARS, unfit="No ears here: type."), *WHOLE[1:]], live(), "No ears here: type."),
        ([named(OMNI, says=False), ROWS], typed(say="x"), "cannot speak a given text"),
        ([OMNI, ROWS], typed(say="x", wants=frozenset()), "add .audio. to `wants`"),
        (WHOLE, typed(say="x", wants=frozenset({"text"})), "add .audio. to `wants`"),
    ],
)
def test_a_request_that_has_no_way_is_told_so(stages: list[StageInfo], request_: Request, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        Pipeline(stages, "it").route(request_)


def test_who_types_is_answered_where_nobody_can_be_heard() -> None:
    deaf = Pipeline([named(EARS, unfit="No ears here."), *WHOLE[1:]])
    assert deaf.route(typed()).stages == (1, 2, 3)
    assert "audio" not in deaf.model.abilities


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        ([EARS, named(THINKER, feeds=frozenset({"words"})), TALKER, CODE2WAV],
         r"talker takes text or voice_text, but no stage before it provides that \(ears provides transcript; thinker"),
        ([EARS, TALKER, THINKER], r"stages\[1\]: talker takes .*; thinker does, so move it before talker"),
        ([EARS, THINKER, THINKER], "two stages are called 'thinker'"),
        ([EARS, THINKER, TALKER], "the last one, talker, provides codes, which no later stage takes"),
        ([named(THINKER, emits=frozenset(), feeds=frozenset())], "the last one, thinker, has no output"),
        ([EARS, OMNI, ROWS], "omni and ears would both hear the user"),
        ([CODE2WAV], r"stages\[0\]: code2wav takes codes, but no stage before it provides that"),
        ([EARS, THINKER, TALKER, named(CODE2WAV, "picture", takes=kinds(Text))],
         "picture reads from thinker, but talker is between them"),
    ],
)  # fmt: skip
def test_stages_that_cannot_fit_are_told_in_one_sentence(stages: list[StageInfo], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Pipeline(stages)


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        ({"talker": "nobody"}, r"stages\[2\].from: no stage before talker is called 'nobody'; there are ears, thinker"),
        ({"talker": "code2wav"}, "no stage before talker is called 'code2wav'"),
        ({"talker": "ears"}, "talker reads from thinker, the stage before it"),
    ],
)
def test_a_source_that_is_none_is_told(sources: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Pipeline(WHOLE, sources=sources)
    assert Pipeline(WHOLE, sources={"talker": "thinker"})


def test_each_stage_adds_what_it_knows() -> None:
    voice = Voice("v", "V")
    model = Pipeline(
        [
            named(EARS, facets=Facets(heard_languages=("en", "de"))),
            named(THINKER, facets=Facets(model="m", context=99, sees=frozenset({"image"}), leaving="All leaves.")),
            named(TALKER, facets=Facets(voices=(voice,), languages=("en",))),
            CODE2WAV,
        ]
    ).model
    assert (model.name, model.context, model.frame_s) == ("m", 99, 0.02)
    assert (model.voices, model.languages, model.heard_languages) == ((voice,), ("en",), ("en", "de"))
    assert model.abilities == {"text", "audio", "speech", "tools", "image"}
    assert model.notes == ("All leaves.",)
    gone = Facets(leaving="All leaves.")
    twice = [EARS, named(THINKER, facets=gone), named(TALKER, facets=gone), CODE2WAV]
    assert Pipeline(twice).model.notes == ("All leaves.",), "it is said once"
    assert Pipeline(WHOLE, "mine").model.name == "mine"
    assert Pipeline(WHOLE).model.name == "ears+thinker+talker+code2wav"


def test_chunks_that_have_no_effect_are_told_where_they_are_set() -> None:
    blocks = [*WHOLE[:3], named(CODE2WAV, facets=Facets(own_chunks=True))]
    told = "The configuration's chunks have no effect: code2wav cuts its audio by its own rule."
    assert Pipeline(blocks, sets_chunks=True).model.notes == (told,)
    assert Pipeline(blocks).model.notes == Pipeline(WHOLE, sets_chunks=True).model.notes == ()


def test_a_voice_alone_and_ears_alone_offer_what_they_can() -> None:
    assert Pipeline([EARS]).model.abilities == {"audio"}
    assert Pipeline(WHOLE[:2]).model.abilities == {"audio", "text", "tools"}
    assert ANSWER > IN_WRITING


def test_a_model_with_ears_before_it_reads_transcripts() -> None:
    assert Pipeline(WHOLE).model.reads_transcripts
    assert not Pipeline([OMNI, ROWS]).model.reads_transcripts


def test_ears_for_one_thinker_s_requests_say_so_before_another() -> None:
    ears = named(EARS, facets=Facets(hears_for="m"))
    for name, told in (("m", 0), ("other", 1)):
        model = Pipeline([ears, named(THINKER, facets=Facets(model=name))]).model
        assert len(model.notes) == told
        assert all("only understands the requests of m" in note for note in model.notes)
        assert model.hears_only_for == ("m" if told else "")
        assert model.understands_speech == (not told)


def test_the_terms_of_the_ledger_are_those_of_its_own_stages() -> None:
    assert Pipeline(WHOLE).terms == [
        ("queue", "open"),
        ("ears", "ears.done"),
        ("thinker_prefill", "thinker.out"),
        ("thinker_tokens", "talker.step"),
        ("talker", "talker.out"),
        ("code2wav", "code2wav.out"),
        ("packet", "audio"),
    ]
    others = [named(WHOLE[1], "llm"), StageInfo(name="voice", takes=kinds(Text), emits=kinds(Audio))]
    assert Pipeline(others).model.ledger == ("queue", "llm_prefill", "llm_tokens", "voice", "packet")
    assert Pipeline(others[:1]).model.ledger == ("queue", "llm", "packet")
