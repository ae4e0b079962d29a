"""The description of a chain of models."""

from __future__ import annotations

from engine.chunk import Text, Transcript, kinds
from engine.core import Facets, StageInfo
from engine.worker.llm.chained import chained_info


def model(name: str, examples: tuple[str, ...] = ()) -> StageInfo:
    facets = Facets(model=name, examples=examples)
    return StageInfo(takes=kinds(Transcript), emits=kinds(Text), feeds=kinds(Text), answers=True, facets=facets)


def test_the_examples_of_a_chain_are_those_of_its_last_model() -> None:
    small, large = model("small", ("Count to nine.",)), model("large")
    assert chained_info([small, large]).facets.examples == ()
    assert chained_info([large, small]).facets.examples == ("Count to nine.",)
