"""The options of a language model's server are read strictly, and its address is one that can be asked."""

from typing import Any

import pytest

from engine.errors import ConfigError
from engine.worker.llm.options import options_of


def options(**fields: Any) -> Any:
    return options_of({"url": "http://127.0.0.1:11434/v1", "model": "m", **fields})


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/"),
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434/v1/"),
        ("http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/v1/"),
        ("https://api.example.org/v1/chat/completions", "https://api.example.org/v1/"),
        ("https://api.example.org/openai/v2", "https://api.example.org/openai/v2/"),
        ("http://[::1]:8080", "http://[::1]:8080/v1/"),
    ],
)
def test_an_address_may_be_given_in_any_of_its_forms(url: str, base: str) -> None:
    assert options(url=url).base == base


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"url": "127.0.0.1:11434"}, "options.url: is not a server URL"),
        ({"url": "ftp://127.0.0.1"}, "options.url: is not a server URL"),
        ({"url": "http://"}, "options.url: is not a server URL"),
        ({"url": "http://host:99999"}, "options.url: is not a server URL"),
        ({"url": "http://[::1"}, "options.url: is not a server URL"),
        ({"url": "http://host/v1?key=1"}, "options.url: is not a server URL"),
        ({"url": "http://ho st/v1"}, "options.url: is not a server URL"),
        ({"url": "http://hóst/v1"}, "options.url: is not a server URL"),
        ({"url": "http://me:secret@host/v1"}, "must not contain a user name or password"),
        ({"model": ""}, "options.model"),
        ({"first_token_s": 0}, "options.first_token_s: must be a positive, finite number"),
        ({"stall_s": float("inf")}, "options.stall_s: must be a positive, finite number"),
        ({"modle": "m"}, r"options.modle: unknown key \(did you mean 'model'\?\)"),
        ({"images": "yes"}, "options.images"),
        ({"top_k": -1}, r"options.top_k: must be at least 0 \(got -1\)"),
        ({"min_p": 1.5}, r"options.min_p: must be between 0 and 1"),
        ({"repeat_penalty": 0.0}, r"options.repeat_penalty: must be above 0"),
    ],
)
def test_what_means_nothing_is_one_clear_error(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error) as caught:
        options(**fields)
    assert "secret" not in str(caught.value)


def test_a_key_does_not_go_to_another_machine_unencrypted_unless_an_option_says_so() -> None:
    with pytest.raises(ConfigError, match=r"key would go to 192\.0\.2\.1:8000 unencrypted.*allow_plain"):
        options(url="http://192.0.2.1:8000/v1", key_file="key")
    for allowed in (
        {"url": "http://192.0.2.1:8000/v1", "allow_plain": True},
        {"url": "https://192.0.2.1:8000/v1"},
        {"url": "http://localhost:8000/v1"},
    ):
        options(key_file="key", **allowed)
