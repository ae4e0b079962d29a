"""`python -m parley_voice.app.commands.health [PORT]`: a container's health check of the local server.

Exit code 0 means ready; otherwise it prints the state or the reason and exits with 1. It has no heavy imports, since it
runs every 30 seconds.
"""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

ASK_S = 5.0
_DIRECTLY = urllib.request.ProxyHandler({})


def main(arguments: Sequence[str]) -> int:
    """Print the server's state, and return the exit code."""
    port = int(arguments[0]) if arguments else 8000
    state = state_of(port)
    sys.stdout.write(f"{state}\n")
    return int(state != "ready")


def state_of(port: int) -> str:
    """Return the state reported by the server at a local port, or the reason why there is none."""
    why = ""
    for url in (f"{scheme}://{host}:{port}/health" for host in ("127.0.0.1", "[::1]") for scheme in ("http", "https")):
        try:
            health = _asked(url)
        except (OSError, HTTPException, ValueError) as error:
            why = why or f"no Parley server responds at port {port}: {error}"
            continue
        if isinstance(health, dict) and "status" in health:
            return str(health["status"])
    return why or f"the server at port {port} is not a Parley server"


def _asked(url: str) -> Any:
    """Return the JSON at a local URL. Any certificate is accepted, since no secret is sent."""
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(_DIRECTLY, urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(url, timeout=ASK_S) as answer:
            return json.load(answer)
    except HTTPError as refused:  # 503 while starting or draining
        with refused:
            return json.load(refused)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
