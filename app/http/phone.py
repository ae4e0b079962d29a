"""``GET /phone``: the address at which a phone reaches the web page, as a QR code."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.access.tls import addresses, is_any
from app.client_address import parsed
from app.http.qr_code import MAX_BYTES, QUIET, qr_code, svg_path
from app.http_errors import RESPONSES, HttpRefusal
from app.service import Service


class PhoneAddress(BaseModel):
    url: str | None
    """None if only this machine reaches the server."""
    size: int = 0
    """Width and height of the QR code in modules, with its quiet zone."""
    path: str = ""
    """The QR code's dark modules as an SVG path."""


def phone(service: Service) -> APIRouter:
    """Return the route of one server."""
    router = APIRouter(responses=RESPONSES, include_in_schema=False)

    @router.get("/phone")
    async def address(  # pyright: ignore[reportUnusedFunction]
        page: Annotated[str, Query(pattern="^https?://", max_length=MAX_BYTES)],
    ) -> PhoneAddress:
        try:
            url = reachable(page, service.settings.host)
        except ValueError:
            raise HttpRefusal(400, "invalid_value", "page is not a valid URL.", "page") from None
        if url is None or len(url.encode()) > MAX_BYTES:
            return PhoneAddress(url=None)
        code = qr_code(url)
        return PhoneAddress(url=url, size=len(code) + 2 * QUIET, path=svg_path(code))

    return router


def reachable(page: str, host: str) -> str | None:
    """Return the page's address as other machines reach it; None if they can't. Raises ValueError for an invalid URL.

    Args:
        page: The address in the browser that asks.
        host: The address that the server listens on.
    """
    parts = urlsplit(page)
    if not _is_loopback(parts.hostname or ""):
        return page
    address = _network_address() if is_any(host) else host
    if address is None or _is_loopback(address):
        return None
    named = f"[{address}]" if ":" in address else address
    port = f":{parts.port}" if parts.port is not None else ""
    return urlunsplit((parts.scheme, named + port, parts.path, parts.query, parts.fragment))


def _network_address() -> str | None:
    """Return this machine's first IPv4 address on a network."""
    return next((one for one in addresses() if ":" not in one and not _is_loopback(one)), None)


def _is_loopback(host: str) -> bool:
    address = parsed(host)
    return host == "localhost" or (address is not None and address.is_loopback)
