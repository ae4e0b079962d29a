"""The stages that deployments share: those with the same definition, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine import ConfigError, EngineSpec, parse_config
from engine.deployment.sharing import sharing

STAGES = ("ears", "thinker", "talker", "code2wav")


def spec(name: str, thinker: str = "{}", workers: str = "", more: str = "") -> EngineSpec:
    """The scripted family's stages, each hosted as ``workers`` says."""
    return parse_config(
        f"""
name: {name}
stages:
  - {{use: script.ears}}
  - {{use: script.thinker, options: {thinker}}}
  - {{use: script.talker}}
  - {{use: script.code2wav}}
workers: [{workers or "{stages: [ears]}, {stages: [thinker]}, {stages: [talker, code2wav]}"}]
{more}
"""
    )


def shared(*specs: EngineSpec) -> dict[str, set[str]]:
    """For each deployment the stages that it shares."""
    return {name: set(stages) for name, stages in sharing(specs).items()}


def test_stages_with_the_same_definition_are_shared() -> None:
    one, two = spec("one"), spec("two", "{frames_per_word: 2}")
    assert shared(one, two) == {"one": {"ears", "talker", "code2wav"}, "two": {"ears", "talker", "code2wav"}}


def test_the_shared_workers_are_those_of_the_first_deployment() -> None:
    found = sharing([spec("one"), spec("two", "{frames_per_word: 2}"), spec("three", "{frames_per_word: 3}")])
    (workers,) = {id(one): one for stages in found.values() for one in stages.values()}.values()
    assert workers.users == ("one", "two", "three")
    assert workers.spec.name == "one"
    assert [worker.stages for worker in workers.spec.workers] == [("ears",), ("talker", "code2wav")]


def test_workers_with_other_users_are_apart() -> None:
    """So that one deployment's loss is not another's."""
    found = sharing([spec("one"), spec("two", "{frames_per_word: 2}"), spec("three", "{frames_per_word: 2}")])
    assert found["two"]["thinker"].users == ("two", "three")
    assert found["two"]["ears"].users == ("one", "two", "three")
    assert "thinker" not in found["one"]


def test_a_stage_may_run_beside_a_neighbour_that_only_one_deployment_has() -> None:
    one, two = (
        spec("one", workers="{stages: [ears]}, {stages: [thinker, talker, code2wav]}"),
        spec("two", "{frames_per_word: 2}"),
    )
    found = sharing([one, two])
    assert set(found["two"]) == {"ears", "talker", "code2wav"}
    assert ("thinker", "talker", "code2wav") in [worker.stages for worker in found["two"]["talker"].spec.workers]


def test_one_deployment_shares_nothing() -> None:
    assert shared(spec("one")) == {"one": set()}


@pytest.mark.parametrize(
    "other",
    [
        spec("two", workers="{stages: [ears, thinker, talker, code2wav], threads: 2}"),
        spec("two", more="chunks: {first: 2}"),
        spec("two", more="heartbeat: {timeout_s: 5.0}"),
        spec("two", more="queue: 3"),
        spec("two", more="cluster: {listen: '127.0.0.1:0', token_file: token}"),
        replace(
            spec("two"), stages=tuple(replace(one, name=f"my_{one.name}") for one in spec("two").stages), workers=()
        ),
        replace(spec("two"), stages=tuple(replace(one, weights="w") for one in spec("two").stages)),
        replace(spec("two"), stages=tuple(replace(one, max_batch=1) for one in spec("two").stages)),
    ],
)
def test_other_settings_are_another_definition(other: EngineSpec) -> None:
    assert shared(spec("one"), other) == {"one": set(), "two": set()}


@pytest.mark.parametrize("more", ["stall_s: 3", "server: {port: 1}"])
def test_settings_that_no_worker_reads_prevent_no_sharing(more: str) -> None:
    assert shared(spec("one"), spec("two", more=more))["two"] == set(STAGES)


def test_two_deployments_on_one_device_are_one_clear_error() -> None:
    one = spec("one", workers="{stages: [ears, thinker, talker, code2wav], devices: [0]}")
    two = replace(one, name="two", stages=tuple(replace(stage, dtype="bfloat16") for stage in one.stages))
    with pytest.raises(ConfigError, match=r"two: its worker of ears, .* uses the device 0, as a worker of one does"):
        sharing([one, two])
    assert shared(one, replace(one, name="two"))["two"] == set(STAGES)  # one worker for both
