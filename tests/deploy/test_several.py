"""deploy/kubernetes/several.yaml: its objects agree, its HAProxy's configuration is that of deploy/haproxy.cfg, and the
real HAProxy with it finds pods by their names, and keeps what belongs to a server at that server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aioice.ice
import httpx
import pytest
import yaml
from websockets.exceptions import InvalidStatus

from app.access.tls import _made as self_signed
from app.settings import settings_of
from engine import load_config
from tests.app.transports.webrtc.caller import Caller
from tests.deploy.clients import called, client_of, held, made, opens, owner
from tests.deploy.haproxy import CONFIG, PATIENCE_S, ROOT, SILENT, Fronts, free_port, fronts, listens, proxy, stand_in
from tests.deploy.names import name_server

OBJECTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "several.yaml").read_text(encoding="utf-8"))
)


def the(kind: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in OBJECTS if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


PODS = the("StatefulSet", "parley")
PROXIES = the("Deployment", "parley-proxy")
NAMES = tuple(f"{PODS['metadata']['name']}-{ordinal}" for ordinal in range(PODS["spec"]["replicas"]))
"""As Kubernetes names the pods of a StatefulSet."""
HAPROXY: str = the("ConfigMap", "parley-proxy")["data"]["haproxy.cfg"]
SERVER = re.compile(
    r'^ *server (\S+) "(\S+)\.\$\{PARLEY_SERVERS\}:(\d+)" resolvers cluster init-addr none$', re.MULTILINE
)
SERVED = "parley-servers.default.svc.cluster.local"
"""What is behind the pods' names, in the namespace ``default``."""


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (one,) = pod(workload)["containers"]
    return one


def environment(workload: dict[str, Any]) -> dict[str, str]:
    """The variables of its container in the namespace ``default``, with each other's values in them."""
    found = {"NAMESPACE": "default"}
    for one in container(workload)["env"]:
        if "value" in one:
            found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], one["value"])
    return found


def directives(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


class TestNames:
    def test_a_server_of_haproxys_is_a_pod_and_every_pod_is_one(self) -> None:
        lines = SERVER.findall(HAPROXY)
        assert len(lines) == len(re.findall(r"^ *server ", HAPROXY, re.MULTILINE))
        assert tuple(name for name, _, _ in lines) == tuple(host for _, host, _ in lines) == NAMES
        (port,) = container(PODS)["ports"]
        assert {int(port) for _, _, port in lines} == {port["containerPort"]}
        assert environment(PROXIES)["PARLEY_PHONES"] in NAMES

    def test_the_service_of_the_pods_names_has_those_that_start_and_drain_too(self) -> None:
        service = the("Service", PODS["spec"]["serviceName"])["spec"]
        assert environment(PROXIES)["PARLEY_SERVERS"] == SERVED
        assert SERVED.startswith(f"{PODS['spec']['serviceName']}.")
        assert service["clusterIP"] == "None"
        assert service["publishNotReadyAddresses"]
        assert service["selector"] == PODS["spec"]["selector"]["matchLabels"]

    def test_the_world_reaches_haproxy_alone(self) -> None:
        service = the("Service", "parley")["spec"]
        assert service["selector"] == PROXIES["spec"]["selector"]["matchLabels"]
        assert service["selector"] != PODS["spec"]["selector"]["matchLabels"]
        assert service["externalTrafficPolicy"] == "Local", "all clients would have one address"
        assert not [one for one in OBJECTS if one["kind"] == "Ingress"]

    @pytest.mark.parametrize("name", NAMES)
    def test_a_pod_serves_under_its_own_name(self, name: str, tmp_path: Path) -> None:
        """Its container's own script, with a stand-in for the command."""
        (tmp_path / "given.yaml").write_text(the("ConfigMap", "parley")["data"]["parley.yaml"])
        (tmp_path / "parley").write_text('#!/bin/sh\necho "$@"\n')
        (tmp_path / "parley").chmod(0o755)
        (script,) = container(PODS)["args"]
        moved = script.replace("/tmp", str(tmp_path)).replace("/etc/parley/parley.yaml", str(tmp_path / "given.yaml"))
        env = {"POD": name, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = [*container(PODS)["command"], moved]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["serve", str(tmp_path / "parley.yaml")]
        assert settings_of(load_config(tmp_path / "parley.yaml").server).name == name


class TestPods:
    @pytest.mark.parametrize("workload", [PODS, PROXIES], ids=["parley", "haproxy"])
    def test_they_are_locked(self, workload: dict[str, Any]) -> None:
        one = container(workload)
        assert one["securityContext"]["readOnlyRootFilesystem"]
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod(workload)["securityContext"]["runAsNonRoot"]

    def test_a_server_drains_within_its_grace_and_is_ready_by_health(self) -> None:
        section = yaml.safe_load(the("ConfigMap", "parley")["data"]["parley.yaml"])["server"]
        assert settings_of(section | {"name": None}).drain_s + 10 <= pod(PODS)["terminationGracePeriodSeconds"]
        assert container(PODS)["readinessProbe"]["httpGet"]["path"] == "/health"
        assert container(PODS)["livenessProbe"]["httpGet"]["path"] == "/livez", "a draining pod must not be killed"

    def test_a_proxy_that_ends_keeps_its_sessions_for_as_long_as_they_may_last(self) -> None:
        pause_s = int(container(PROXIES)["lifecycle"]["preStop"]["exec"]["command"][1])
        assert "hard-stop-after 1h" in directives(HAPROXY)
        assert settings_of({}).limits.session_s == 3600
        assert pod(PROXIES)["terminationGracePeriodSeconds"] >= pause_s + 3600


def test_haproxys_configuration_is_the_one_of_deploy_but_for_the_servers() -> None:
    """What is otherwise in one of both is in the other: copy it."""
    ours, embedded = directives(CONFIG.read_text(encoding="utf-8")), directives(HAPROXY)
    begin = embedded.index("resolvers cluster")
    resolvers = embedded[begin : embedded.index("defaults")]
    assert resolvers[1] == "parse-resolv-conf"
    assert all(line.startswith("hold ") for line in resolvers[2:])
    del embedded[begin : begin + len(resolvers)]
    preset = {line.split()[1] for line in ours if line.startswith("presetenv ")}
    assert preset - environment(PROXIES).keys() == {"PARLEY_A", "PARLEY_B"}, "the environment says all others"
    assert [line for line in ours if not line.startswith(("presetenv ", "server "))] == [
        line for line in embedded if not line.startswith("server ")
    ]


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """What the proxies' pod has mounted: a configuration, and a certificate with its key in a file of its own."""
    (tmp_path / "tls").mkdir()
    parts = re.findall(r"-----BEGIN.+?-----END[^\n]+\n", self_signed(["voice.example.org"]).decode(), re.DOTALL)
    for part in parts:
        (tmp_path / "tls" / ("tls.crt" if "CERTIFICATE" in part else "tls.key")).write_text(part)
    (tmp_path / "haproxy.cfg").write_text(HAPROXY)
    return tmp_path


@pytest.mark.haproxy
def test_haproxy_takes_it_with_the_pods_own_words_and_variables(mounted: Path) -> None:
    def checked() -> subprocess.CompletedProcess[str]:
        words = [word.replace("/etc/haproxy", str(mounted)) for word in container(PROXIES)["args"]]
        variables = {name: said.replace("/etc/haproxy", str(mounted)) for name, said in environment(PROXIES).items()}
        env = {"PATH": os.environ["PATH"], **variables}
        return subprocess.run([*words, "-c"], env=env, capture_output=True, text=True)

    assert (done := checked()).returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    (mounted / "haproxy.cfg").write_text(HAPROXY.replace("resolvers cluster init-addr none", "resolvers clusters"))
    assert "clusters" in checked().stderr, "the control"
    (mounted / "haproxy.cfg").write_text(HAPROXY.replace("ssl-load-extra-del-ext", ""))
    assert checked().returncode != 0, "the control: the key is in another file"


@asynccontextmanager
async def proxied(folder: Path, text: str, **ports: int) -> AsyncGenerator[Fronts]:
    """HAProxy with a configuration, as its pod starts it, before servers that the test brings."""
    (folder / "haproxy.cfg").write_text(text)
    one = Fronts({**ports, "proxy": free_port()}, folder / "admin.sock")
    words = [word.replace("/etc/haproxy", str(folder)) for word in container(PROXIES)["args"]]
    process = proxy(one, folder / "haproxy.cfg")
    process.command = [words[0], "-W", "-db", *words[1:]]  # which the image adds
    process.environment = {**process.environment, "PARLEY_SERVERS": SERVED}
    one.processes["proxy"] = process
    process.start()
    try:
        await listens(one.admin)
        yield one
    finally:
        await process.end()


@pytest.mark.haproxy
@pytest.mark.skipif(sys.platform != "linux", reason="each pod has an address of its own in the loopback network")
async def test_a_pod_that_comes_back_is_found_at_its_new_address(tmp_path: Path) -> None:
    """With servers that only say their names, all at one port, as pods are."""
    port, known = free_port(), dict[str, str]()
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(known))
        text = HAPROXY.replace("parse-resolv-conf", f"nameserver cluster 127.0.0.1:{names}")
        text = text.replace(':8000"', f':{port}"')
        one = await stack.enter_async_context(proxied(tmp_path, text, **dict.fromkeys(NAMES, port)))
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=one.url()))

        async def said(name: str) -> str:
            return (await http.post(f"/v1/realtime/calls/rtc_{name}_0/hangup")).text

        assert "no_server" in await said(NAMES[0]), "no pod has an address yet"
        for at, name in enumerate(NAMES, 1):
            await stack.enter_async_context(await stand_in(name, f"127.0.0.{at}", port))
            known[f"{name}.{SERVED}"] = f"127.0.0.{at}"
            await one.until(name, "UP")
        assert [await said(name) for name in NAMES] == list(NAMES)
        await stack.enter_async_context(await stand_in("its successor", "127.0.0.9", port))
        known[f"{NAMES[1]}.{SERVED}"] = "127.0.0.9"
        async with asyncio.timeout(PATIENCE_S):
            while await said(NAMES[1]) != "its successor":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await said(NAMES[0]) == NAMES[0]


def placed(text: str, *names: str) -> str:
    """The configuration with the addresses of two servers of this machine, in this order, in the place of the pods'."""
    for which, name in zip("AB", names, strict=True):
        text, count = re.subn(
            rf"^ *server {name} .+$", f'    server {name} "${{PARLEY_{which}}}"', text, flags=re.MULTILINE
        )
        assert count == 1
    return text


@pytest.mark.haproxy
async def test_a_proxy_that_ends_leaves_what_is_open_to_its_end_and_takes_nothing_new(tmp_path: Path) -> None:
    """By the signal of HAProxy's image."""
    ports, go_on = {name: free_port() for name in NAMES}, asyncio.Event()
    async with AsyncExitStack() as stack:
        for name, port in ports.items():
            await stack.enter_async_context(await stand_in(name, "127.0.0.1", port, go_on))
        one = await stack.enter_async_context(proxied(tmp_path, placed(HAPROXY, *NAMES), **ports))
        await one.up(NAMES[0])
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=one.url(), timeout=PATIENCE_S))
        late = asyncio.create_task(http.get(SILENT))
        async with asyncio.timeout(PATIENCE_S):
            while await one.open_at("BACKEND") == 0:
                if late.done():  # on a busy machine a server may be taken for one that is down
                    late = asyncio.create_task(http.get(SILENT))
                await asyncio.sleep(0.05)
        process = one.processes["proxy"]
        process.send(signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE_S):
            while await reached(one):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        go_on.set()
        assert (await late).text in NAMES
        assert process.running is not None
        assert await asyncio.to_thread(process.running.wait, PATIENCE_S) == 0


async def reached(one: Fronts) -> bool:
    """Whether the proxy takes a new connection."""
    async with httpx.AsyncClient(base_url=one.url()) as http:
        try:
            await http.get("/health")
        except httpx.TransportError:
            return False
        return True


@pytest.mark.slow
@pytest.mark.haproxy
async def test_sessions_calls_and_client_secrets_stay_at_their_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two real servers, which have the pods' names."""
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])
    config = tmp_path / "haproxy.cfg"
    config.write_text(placed(HAPROXY, *NAMES))
    async with fronts(tmp_path, config, NAMES) as two, AsyncExitStack() as stack:
        http = await stack.enter_async_context(client_of(two))
        clients = await held(two, stack, 4)
        secrets = [await made(http, "realtime/client_secrets", "value") for _ in range(4)]
        assert {one.server for one in clients} == {owner(value) for value in secrets} == set(NAMES)
        caller = Caller(None)  # pyright: ignore[reportArgumentType]
        stack.push_async_callback(caller.hang_up)
        call = await called(two, caller, NAMES[1])
        await two.restart_proxy()
        for one in clients:
            before = one.server
            await one.lose()
            await one.come_back()
            assert one.server == before
            await one.works()
        assert (await http.post(f"/v1/realtime/calls/{call}/hangup")).status_code == 200
        for value in secrets[:2]:
            await opens(two, value)

        config.write_text(placed(HAPROXY, *reversed(NAMES)))
        await two.restart_proxy()
        for one in clients:
            await one.lose()
            with pytest.raises(InvalidStatus) as refused:
                await one.come_back()
            assert f"'{one.server}' made it" in (refused.value.response.body or b"").decode(), "the control"
        with pytest.raises(InvalidStatus) as refused:
            await opens(two, secrets[2])
        assert refused.value.response.status_code == 401, "the control"
