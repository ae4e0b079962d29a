"""The deployment of two machines, both of them this one: its voice comes from workers that join."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.bench import subject
from tests.app.rig import keys_file
from tests.examples.programs import EXAMPLES, environment, python, ran, sound_s

GUIDE = (EXAMPLES / "cluster" / "server.yaml").read_text(encoding="utf-8")
WRITTEN = "127.0.0.1:7000"


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def second_machine(address: str, token: str) -> Generator[None]:
    """The worker that the file's comment starts, at another address."""
    (line,) = re.findall(r"# +\.venv/bin/parley (worker .+)", GUIDE)
    assert WRITTEN in line
    words = line.replace(WRITTEN, address).replace(" token ", f" {token} ").split()
    with subprocess.Popen([sys.executable, "-m", "app", *words], env=environment()) as worker:
        try:
            yield
        finally:
            worker.terminate()


def test_the_voice_comes_from_workers_that_join(tmp_path: Path) -> None:
    address, token = free_address(), keys_file(tmp_path, "a-token-for-two-machines", name="token")
    here = GUIDE.replace(f'"{WRITTEN}"', f'"{address}"').replace("token_file: token", f"token_file: {token}")
    (tmp_path / "server.yaml").write_text(here, encoding="utf-8")
    with ExitStack() as stack:
        stack.enter_context(second_machine(address, token))
        server = stack.enter_context(subject.running(str(tmp_path / "server.yaml")))
        ran(python("raw_websocket.py", "Say good morning.", "--url", server.url), tmp_path)
    assert sound_s(tmp_path / "answer.wav") > 0.3
