"""The files of deploy/: what they name is there, what they share is the same in all, and no secret stands in them.

The schemas of compose and Kubernetes are those of others: `make containers` holds the files against them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.engine_host import STOP_S
from app.limits.bandwidth import BandwidthLimits
from app.limits.quotas import Quotas
from app.settings import Limits, settings_of
from app.telemetry import Metrics
from engine import ReplicaInfo, load_config
from scripts.containers.composed import filled
from scripts.containers.lint import KUBERNETES as HELD_AGAINST_SCHEMAS

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
KUBERNETES: dict[str, Any] = {
    one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "parley.yaml").read_text())
}

UNIT = dict(re.findall(r"^([A-Z]\w+)=(.*)$", (DEPLOY / "parley.service").read_text(), re.MULTILINE))
"""Keys of the systemd unit that stand in it once."""


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """What configure.sh writes."""
    configured(tmp_path, "203.0.113.7").check_returncode()
    return tmp_path / "local"


def configured(where: Path, address: str) -> subprocess.CompletedProcess[str]:
    """Run configure.sh for a folder ``local``. Only root may give files away, so a stand-in for chown does nothing."""
    (where / "chown").write_text("#!/bin/sh\nexit 0\n")
    (where / "chown").chmod(0o755)
    environment = {"PATH": f"{where}:{os.environ['PATH']}"}
    script = ["sh", str(DEPLOY / "configure.sh"), "voice.example.org", address, "local"]
    return subprocess.run(script, env=environment, cwd=where, capture_output=True, text=True)


class TestDockerfile:
    def test_it_ends_as_a_user_without_rights_with_a_health_check_and_a_drain(self) -> None:
        final = DOCKERFILE.rpartition("\nFROM ")[2]
        assert re.search(r"^USER 10001:10001$", final, re.MULTILINE)
        assert "HEALTHCHECK" in final
        assert '"parley_voice.app.commands.health"' in final
        assert "STOPSIGNAL SIGTERM" in final
        assert final.index("USER") > final.rindex("COPY")

    def test_it_installs_what_is_pinned_and_keeps_pips_configuration_out(self) -> None:
        assert "PIP_CONSTRAINT=constraints.txt" in DOCKERFILE
        assert "--mount=type=secret,id=pip,target=/etc/pip.conf" in DOCKERFILE
        assert "://" not in DOCKERFILE

    def test_what_it_copies_is_let_in_and_nothing_else_is(self) -> None:
        lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
        assert lines[0] == "*"
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        assert {line.removeprefix("!") for line in lines if line.startswith("!")} == set(" ".join(copied).split())

    def test_its_ports_are_those_of_the_configuration(self, local: Path) -> None:
        settings = settings_of(load_config(local / "parley.yaml").server)
        first, last = settings.ice_ports
        assert f"EXPOSE {settings.port}/tcp {first}-{last}/udp" in DOCKERFILE
        assert SERVICES["parley"]["ports"] == [f"{first}-{last}:{first}-{last}/udp"]
        assert last - first + 1 >= 2 * settings.limits.calls


class TestConfigure:
    def test_parley_and_coturn_share_a_secret_that_is_new_each_time(self, local: Path, tmp_path: Path) -> None:
        settings = settings_of(load_config(local / "parley.yaml").server)
        secrets = {one.secret for one in settings.ice_servers}
        assert secrets == {re.findall(r"^static-auth-secret=(\S+)$", (local / "turnserver.conf").read_text(), re.M)[0]}
        assert all(len(one or "") >= 32 for one in secrets)
        assert settings.ice_address == "203.0.113.7"
        assert "voice.example.org" in settings.allowed_hosts

    def test_coturn_has_a_relay_for_each_address_of_each_call(self, local: Path) -> None:
        settings = settings_of(load_config(local / "parley.yaml").server)
        coturn = dict(re.findall(r"^([a-z-]+)=(\d+)$", (local / "turnserver.conf").read_text(), re.MULTILINE))
        relays = sum(len(one.urls) for one in settings.ice_servers) + 1  # a browser asks each, and the server one
        assert int(coturn["total-quota"]) >= relays * settings.limits.calls
        assert int(coturn["max-port"]) - int(coturn["min-port"]) + 1 >= int(coturn["total-quota"])
        assert "user-quota" not in coturn, "all clients of a key are one user to coturn"

    def test_only_the_owner_reads_what_is_secret(self, local: Path) -> None:
        for name in ("parley.yaml", "keys", "turnserver.conf"):
            assert stat.S_IMODE((local / name).stat().st_mode) == 0o400
        assert stat.S_IMODE((local / ".env").stat().st_mode) == 0o600

    def test_compose_finds_the_files_in_whatever_folder_they_are(self, local: Path) -> None:
        variables = dict(line.split("=", 1) for line in (local / ".env").read_text().splitlines())
        assert variables["PARLEY_LOCAL"] == f"'{local}'"
        mounts = [one["source"] for service in SERVICES.values() for one in service["volumes"]]
        ours = [source for source in mounts if Path(source).name in {path.name for path in local.iterdir()}]
        assert {source.rpartition("/")[0] for source in ours} == {"${PARLEY_LOCAL:-./local}"}
        assert len(ours) == 3

    @pytest.mark.parametrize("address", ["2001:db8::1", "voice.example.org"])
    def test_an_address_to_which_no_relay_leads_is_refused(self, tmp_path: Path, address: str) -> None:
        refused = configured(tmp_path, address)
        assert refused.returncode == 2
        assert f"{address} is no IPv4 address" in refused.stderr
        assert not (tmp_path / "local").exists()

    def test_what_is_there_already_stays(self, local: Path) -> None:
        before = (local / "keys").read_text()
        again = configured(local.parent, "203.0.113.7")
        assert again.returncode == 1
        assert "remove it to begin anew" in again.stderr
        assert (local / "keys").read_text() == before

    def test_the_repository_holds_no_secret(self) -> None:
        assert "/deploy/local/" in (ROOT / ".gitignore").read_text()
        assert "static-auth-secret=@SECRET@" in (DEPLOY / "templates" / "turnserver.conf").read_text()


class TestCompose:
    def test_every_service_is_locked_and_ends_in_time(self) -> None:
        for name, one in SERVICES.items():
            assert one["read_only"], name
            assert one["cap_drop"] == ["ALL"], name
            assert "no-new-privileges:true" in one["security_opt"], name
        drain_s = settings_of({}).drain_s
        assert int(SERVICES["parley"]["stop_grace_period"].removesuffix("s")) >= drain_s + 10

    def test_parley_ends_before_the_proxy_through_which_it_says_goodbye(self) -> None:
        """Compose ends what depends on another first."""
        assert "caddy" in SERVICES["parley"]["depends_on"]
        assert "depends_on" not in SERVICES["caddy"]

    def test_what_it_mounts_is_there_or_made_by_configure(self, local: Path) -> None:
        for one in SERVICES.values():
            for mount in one.get("volumes", ()):
                if mount["type"] == "bind":
                    assert (DEPLOY / filled(mount["source"], {"PARLEY_LOCAL": str(local)})).exists()
                    assert mount["read_only"]
                else:
                    assert mount["source"] in COMPOSE["volumes"]

    def test_caddy_is_the_proxy_that_parley_trusts(self, local: Path) -> None:
        subnet = COMPOSE["networks"]["inside"]["ipam"]["config"][0]["subnet"]
        assert load_config(local / "parley.yaml").server["trusted_proxies"] == [subnet]
        assert "inside" in SERVICES["caddy"]["networks"]
        assert not any("8000" in port for port in SERVICES["parley"]["ports"]), "the proxy would be passed by"


class TestProxyAndPrometheus:
    def test_prometheus_asks_parley_at_its_own_port(self, local: Path) -> None:
        port = settings_of(load_config(local / "parley.yaml").server).port
        scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
        assert [one["static_configs"] for one in scraped] == [[{"targets": [f"parley:{port}"]}]]

    def test_the_world_reaches_neither_metrics_nor_the_admin_s_pages(self) -> None:
        caddy = (DEPLOY / "Caddyfile").read_text()
        assert re.search(r"^\t@inside path /metrics /admin /admin/\*\n\trespond @inside 404$", caddy, re.MULTILINE)
        assert re.search(r"^\tadmin off$", caddy, re.MULTILINE)


class TestUnit:
    def test_it_drains_before_it_is_killed(self) -> None:
        assert float(UNIT["TimeoutStopSec"]) >= settings_of({}).drain_s + STOP_S + 5
        assert "KillSignal" not in UNIT, "SIGTERM, which drains, is systemd's own"
        assert UNIT["ExecStart"].split()[:2] == ["/opt/parley/bin/parley", "serve"]

    def test_it_has_a_user_of_its_own_and_no_rights(self) -> None:
        assert (UNIT["User"], UNIT["CapabilityBoundingSet"]) == ("parley", "")
        locks = "NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelModules", "RestrictNamespaces"
        assert [UNIT[lock] for lock in locks] == ["yes"] * len(locks)
        assert UNIT["ProtectSystem"] == "strict"
        assert int(UNIT["LimitNOFILE"]) >= 8192

    @pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
    def test_systemd_knows_every_word_of_it_and_finds_it_locked(self, tmp_path: Path) -> None:
        unit, text = tmp_path / "parley.service", (DEPLOY / "parley.service").read_text()

        def asked(*command: str) -> str:
            done = subprocess.run(["systemd-analyze", *command, str(unit)], capture_output=True, text=True)
            return f"{done.returncode} {done.stdout}{done.stderr}"

        unit.write_text(text.replace("/opt/parley/bin/parley", "/bin/true"))
        assert asked("verify", "--man=no").strip() == "0"
        assert asked("security", "--offline=true", "--threshold=25").startswith("0")
        unit.write_text(unit.read_text().replace("PrivateTmp=", "PrivateTemp="))
        assert "Unknown key" in asked("verify", "--man=no"), "the control"


class TestKubernetes:
    POD: dict[str, Any] = KUBERNETES["Deployment"]["spec"]["template"]["spec"]

    def test_the_pod_is_locked_and_ready_by_health_alive_by_livez(self) -> None:
        (container,) = self.POD["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert self.POD["securityContext"]["runAsUser"] == 10001
        assert self.POD["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["readinessProbe"]["httpGet"]["path"] == "/health"
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez", "a draining pod must not be killed"

    def test_its_configuration_is_one_and_drains_within_the_grace(self) -> None:
        section = yaml.safe_load(KUBERNETES["ConfigMap"]["data"]["parley.yaml"])["server"]
        pause_s = int(self.POD["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
        assert settings_of(section).drain_s + pause_s + 10 <= self.POD["terminationGracePeriodSeconds"]

    def test_every_example_is_held_against_the_schemas(self) -> None:
        there = {path.relative_to(ROOT).as_posix() for path in (DEPLOY / "kubernetes").glob("*.y*ml")}
        assert there == set(HELD_AGAINST_SCHEMAS)

    def test_it_is_one_server_since_no_proxy_before_it_reads_names(self) -> None:
        assert KUBERNETES["Deployment"]["spec"]["replicas"] == 1


class TestDashboard:
    BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    QUERIES: tuple[str, ...] = tuple(target["expr"] for panel in BOARD["panels"] for target in panel["targets"])

    def test_queries_name_only_metrics_that_the_server_has(self) -> None:
        limits = Limits()
        metrics = Metrics(
            lambda: {"ears": {}}, tuple[ReplicaInfo, ...], Quotas(limits, lambda: True), BandwidthLimits(limits)
        )
        families = text_string_to_metric_families(metrics.page().decode())
        there = set[str]()
        for family in families:
            names = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
            there |= {f"{family.name}{ending}" for ending in names}
        named = {name for query in self.QUERIES for name in re.findall(r"parley_\w+", query)}
        assert named - there == set()

    def test_it_shows_first_audio_underruns_sessions_and_the_queue(self) -> None:
        for name in ("parley_ttfa_seconds", "parley_underruns_total", "parley_sessions", "parley_queue"):
            assert any(name in query for query in self.QUERIES), name

    def test_its_data_source_is_the_one_that_is_provisioned(self) -> None:
        folder = DEPLOY / "grafana" / "provisioning"
        (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"]
        assert {panel["datasource"]["uid"] for panel in self.BOARD["panels"]} == {source["uid"]}
        assert source["url"] == "http://prometheus:9090"
