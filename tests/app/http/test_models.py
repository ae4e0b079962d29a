"""``GET /v1/models``, and what the API's pages say of the routes."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI, NotFoundError

from app.server import create_app
from tests.app.rig import Running, keys_file, script_spec


async def test_the_loaded_model_is_listed_with_what_it_can(openai: AsyncOpenAI) -> None:
    listed = await openai.models.list()
    assert [model.id for model in listed.data] == ["script"]
    one = await openai.models.retrieve("script")
    assert one.owned_by == "parley"
    assert one.to_dict()["parley"]["voices"] == ["tone"]  # type: ignore[index]
    with pytest.raises(NotFoundError):
        await openai.models.retrieve("gpt-5")


async def test_the_api_pages_describe_every_route(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        schema = (await http.get("/openapi.json")).json()
    posts = {path for path, routes in schema["paths"].items() if "post" in routes}
    assert posts >= {
        "/v1/chat/completions",
        "/v1/audio/speech",
        "/v1/audio/transcriptions",
        "/v1/realtime/client_secrets",
    }
    spoken = schema["paths"]["/v1/audio/speech"]["post"]
    assert "audio/wav" in spoken["responses"]["200"]["content"]
    assert set(spoken["responses"]) == {"200", "4XX", "5XX"}
    assert schema["components"]["schemas"]["SpeechRequest"]["required"] == ["model", "input"]


async def test_the_api_pages_say_when_a_key_is_asked_for(tmp_path: Path) -> None:
    for section, asked in (
        ({}, None),
        ({"keys_file": keys_file(tmp_path, "sk-one-0123456789")}, [{"HTTPBearer": []}]),
    ):
        schema = create_app(script_spec(**section)).openapi()
        assert schema["paths"]["/v1/audio/speech"]["post"].get("security") == asked
        assert "WS /v1/realtime" in schema["info"]["description"]


async def test_a_path_that_is_none_is_told_in_the_api_s_shape(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        missing, wrong = await http.post("/v1/embeddings", json={}), await http.get("/v1/chat/completions")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (404, "not_found")


async def test_a_proxy_that_does_not_pass_an_upgrade_on_is_told(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.get("/v1/realtime", params={"model": "nano"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], answer.headers["upgrade"]) == (426, "upgrade_required", "websocket")
    assert "Upgrade" in error["message"]
