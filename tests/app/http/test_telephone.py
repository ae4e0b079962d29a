"""What Twilio asks over HTTP, by its own rules for signatures; and the settings of telephones."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.server import app_of
from app.service import Service
from app.settings import settings_of
from app.transports.telephone.twilio import Twilio
from engine import ConfigError
from tests.app.rig import LoudnessVad, Running, keys_file, running, script_spec
from tests.app.transports.telephone.exchanges import STREAM, TOKEN, URL, Reached, sign, twilio

PATH = "/v1/telephone/twilio"
CALL = {"CallSid": "CA1", "From": "+49301", "To": "+49302", "Caller Name": "Ω"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder = tmp_path_factory.mktemp("twilio")
    telephone = {"twilio_url": URL, "twilio_token_file": keys_file(folder, TOKEN, name="token")}
    section = {"telephone": telephone, "keys_file": keys_file(folder, "desk: the-key-of-a-backend")}
    async with running(script_spec(**section), vad=LoudnessVad) as one:
        yield one


async def post(server: Running, path: str, signature: str | None, **form: str) -> httpx.Response:
    proof = {} if signature is None else {b"x-twilio-signature": signature.encode()}
    headers = {b"host": b"voice.example.org", **proof}
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.post(path, headers=headers, data=form)


def test_the_signature_is_that_of_twilio_s_documents(tmp_path: Path) -> None:
    """The example in "Validating Signatures from Twilio"."""
    form = {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234", "From": "+14158675309",
            "To": "+18005551212"}  # fmt: skip
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    settings = settings_of({"telephone": {"twilio_url": URL, "twilio_token_file": keys_file(tmp_path, "12345")}})
    assert Twilio(settings.telephone).signed("RSOYDt4T1cUTdK1PDd93/VVr8B8=", url, form)
    assert sign(url, form, "12345") == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_s_sound_goes_to_the_stream(server: Running) -> None:
    answer = await post(server, PATH, sign(URL + PATH, CALL), **CALL)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/xml")
    assert f'<Stream url="{STREAM}"/>' in answer.text
    assert f'<Connect action="{URL}{PATH}/next">' in answer.text


@pytest.mark.asyncio(loop_scope="module")
async def test_after_a_call_twilio_hangs_up(server: Running) -> None:
    answer = await post(server, f"{PATH}/next", sign(f"{URL}{PATH}/next", CALL), **CALL)
    assert answer.text.endswith("<Response><Hangup/></Response>")


@pytest.mark.parametrize(
    ("number", "dialled"),
    [("+4930123456", "+4930123456"), ("sip:sales@example.org", "<Sip>sip:sales@example.org</Sip>")],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_after_a_call_twilio_dials_where_it_is_handed_on(
    server: Running, number: str, dialled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.transports.telephone.telephones.Telephones.next_step", lambda self, name: number)
    answer = await post(server, f"{PATH}/next", sign(f"{URL}{PATH}/next", CALL), **CALL)
    assert f"<Dial>{dialled}</Dial>" in answer.text


@pytest.mark.parametrize("path", [PATH, f"{PATH}/next"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_not_signed_is_refused(server: Running, path: str) -> None:
    for wrong in (None, "", "Ω", sign(URL + path, CALL, "another"), sign(URL + path, CALL | {"From": "+1"})):
        refused = await post(server, path, wrong, **CALL)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "invalid_signature")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stream_that_is_not_signed_is_refused(server: Running) -> None:
    for wrong in ({}, {"x-twilio-signature": sign(URL)}, {"authorization": "Bearer the-key-of-a-backend"}):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"ws://127.0.0.1:{server.port}{PATH}/stream", additional_headers=wrong):
                pass
        assert refused.value.response.status_code == 403
    assert not server.metric("parley_sessions")


@pytest.mark.parametrize("rate_hz", [0, 7999, 16_000, 48_000])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_stream_at_another_rate_never_begins(server: Running, rate_hz: int) -> None:
    async with twilio(Reached(server.port), started=False) as phone:
        await phone.start(rate_hz=rate_hz)
        await phone.ended.wait()
        assert phone.closed == (1007, "the stream's audio must be audio/x-mulaw at 8000 Hz")
        assert not server.metric("parley_sessions")


@pytest.mark.parametrize("wrong", ["text", "format", "size", "base64"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_stream_that_is_none_ends_with_its_reason(server: Running, wrong: str) -> None:
    async with twilio(Reached(server.port), started=False) as phone:
        if wrong == "format":
            await phone.start("audio/x-l16")
        else:
            await phone.start()
            payload = "A" * 40_000 if wrong == "size" else "?"
            await phone.put("media", **({} if wrong == "text" else {"media": {"payload": payload}}))
            if wrong == "text":
                await phone.send_nonsense()
        await phone.ended.wait()
        assert phone.closed[0] == (1009 if wrong == "size" else 1007)
        assert phone.closed[1]
        await server.empty()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"twilio_url": URL}, "set both twilio_url"),
        ({"twilio_token_file": "token"}, "set both twilio_url"),
        ({"twilio_url": "http://voice.example.org", "twilio_token_file": "token"}, "https://voice.example.org"),
        ({"audiosocket": "9092"}, "HOST:PORT"),
        ({"destinations": {"sales": 4930}}, "in quotes"),
        ({"greetings": "hello"}, "did you mean 'greeting'"),
    ],
)
def test_settings_that_no_telephone_can_have_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of({"telephone": wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"key": "nobody"}, "no key with this name"),
        ({"session": {"audio": "loud"}}, "session.audio"),
        ({"session": {"instructions": 7}}, "session.instructions"),
        ({"session": {"tools": "all"}}, "session.tools"),
        ({"twilio_url": URL, "twilio_token_file": "/nowhere/token"}, "cannot be read"),
    ],
)
def test_what_shows_only_beside_the_rest_is_refused_before_the_server_starts(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        app_of(Service(script_spec(telephone=wrong)))


async def test_a_port_that_is_taken_ends_the_server(serve_with: Any) -> None:
    async with serve_with() as first:
        service = Service(script_spec(telephone={"audiosocket": f"127.0.0.1:{first.port}"}))
        app = app_of(service)
        async with app.router.lifespan_context(app):
            assert isinstance(service.engine_host.failure, ConfigError)
            assert "server.telephone.audiosocket" in str(service.engine_host.failure)
