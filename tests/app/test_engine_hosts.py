"""The names of several deployments: each can be part of a URL, and no two are equal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.engine_hosts import named
from app.service import Service
from engine import ConfigError, parse_config
from tests.app.rig import script_spec
from tests.app.second_model import model_of


def test_two_models_of_one_name_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"two configurations are called 'second'\. Set a different `name`"):
        Service(model_of("second"), others=[model_of("second")])


@pytest.mark.parametrize("name", ["a/b", "a b", "Ω", "a?b", "..", "a" * 65, "a+b", "a%20b"])
def test_a_name_that_no_url_can_have_is_one_clear_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"can't be part of a URL. Set a `name`"):
        named([replace(script_spec(), name=name), model_of("x")])


def test_a_model_that_cannot_be_described_needs_a_name() -> None:
    with pytest.raises(ConfigError, match=r"'no.such\+no.such' can't be part of a URL. Set a `name`"):
        named([parse_config("stages: [{use: no.such}, {use: no.such}]"), model_of("x")])


def test_a_model_without_a_name_has_its_family_s() -> None:
    assert [spec.name for spec in named([script_spec(), model_of("second")])] == ["script", "second"]


def test_one_configuration_may_have_any_name() -> None:
    assert Service(replace(script_spec(), name="a/b")).hosts.of("a/b").name == ""
