"""SIP exchanges that place calls in ways that a simple telephone does not."""

from __future__ import annotations

import pytest

from tests.app.rig import LoudnessVad, eventually, running, script_spec
from tests.app.transports.telephone.exchanges import SDP, reached, sip_phone


@pytest.mark.xfail(strict=True, reason="an INVITE without an offer is refused with 488")
async def test_an_invite_without_an_offer_is_answered_with_one() -> None:
    telephone = {"sip": "127.0.0.1:0", "greeting": "Say hello."}
    async with (
        running(script_spec(telephone=telephone), vad=LoudnessVad) as server,
        sip_phone(reached(server)) as phone,
    ):
        phone.put("INVITE")
        offer = await phone.answer()
        assert offer.startswith("SIP/2.0 200"), offer
        phone.tag = offer.partition("to: ")[2].partition("\r\n")[0].partition("tag=")[2]
        phone.put("ACK", body=SDP.format(port=phone.rtp.port, law=0))
        await eventually(lambda: len(phone.sound) > 5)
        await phone.hang_up()
        await server.empty()
