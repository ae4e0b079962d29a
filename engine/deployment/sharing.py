"""The stages that several deployments of one server have in common, so that each is loaded once.

Two deployments share a stage if its name, model, weights and options are equal, and so are the settings of its worker
and those settings of the deployments on which a worker depends. The worker of the first deployment then runs it for
all of them. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.deployment.config import EngineSpec, StageSpec, WorkerSpec, exclusive
from engine.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class SharedWorkers:
    """Workers that the same deployments use."""

    users: tuple[str, ...]
    """The names of these deployments. The first one defines the workers."""
    spec: EngineSpec
    """The first deployment, with these workers only."""


Sharing = Mapping[str, Mapping[str, SharedWorkers]]
"""For each deployment's name, its shared stages, each with the workers that run it."""


def sharing(specs: Sequence[EngineSpec]) -> Sharing:
    """Return which stages these deployments share. Their stages and workers are written out, their names differ.

    Raises:
        ConfigError: Two deployments would use one device.
    """
    hosts = _hosts(specs)
    _check_devices(hosts)
    shared: dict[tuple[str, ...], SharedWorkers] = {
        users: _shared(users, hosts) for users in {host.users for host in hosts} if len(users) > 1
    }
    common = [host for host in hosts if host.users in shared]
    return {
        str(spec.name): {stage: shared[host.users] for host in common for stage in host.used.get(spec.name, ())}
        for spec in specs
    }


@dataclass(slots=True, eq=False)
class _Host:
    """A worker, the deployment that defines it, and the stages that each deployment uses of it."""

    spec: EngineSpec
    worker: WorkerSpec
    used: dict[str | None, list[str]] = field(default_factory=dict[str | None, list[str]])

    @property
    def users(self) -> tuple[str, ...]:
        return tuple(map(str, self.used))

    def runs(self, stage: StageSpec, worker: WorkerSpec, spec: EngineSpec) -> bool:
        """Whether it runs exactly this stage of another deployment."""
        return (
            self.spec is not spec
            and any(stage == own for own in self.spec.stages if own.name in self.worker.stages)
            and replace(self.worker, stages=()) == replace(worker, stages=())
            and _for_workers(self.spec) == _for_workers(spec)
            and spec.cluster.listen is None
        )


def _hosts(specs: Sequence[EngineSpec]) -> list[_Host]:
    """Return all workers. A stage that an earlier deployment's worker runs is left out of the later one's."""
    hosts: list[_Host] = []
    for spec in specs:
        stages = {stage.name: stage for stage in spec.stages}
        for worker in spec.workers:
            left: list[str] = []
            for name in worker.stages:
                host = next((one for one in hosts if one.runs(stages[name], worker, spec)), None)
                if host is None:
                    left.append(name)
                else:
                    host.used.setdefault(spec.name, []).append(name)
            if left:
                hosts.append(_Host(spec, replace(worker, stages=tuple(left)), {spec.name: left}))
    return hosts


def _for_workers(spec: EngineSpec) -> EngineSpec:
    """Return a deployment's settings on which its workers depend."""
    return replace(spec, name=None, model=None, stages=(), workers=(), weights=None, options={}, server={}, stall_s=1.0)


def _shared(users: tuple[str, ...], hosts: Sequence[_Host]) -> SharedWorkers:
    of_them = [host for host in hosts if host.users == users]
    return SharedWorkers(users, replace(of_them[0].spec, workers=tuple(host.worker for host in of_them)))


def _check_devices(hosts: Sequence[_Host]) -> None:
    taken: dict[str, _Host] = {}
    for host, device in _devices(hosts):
        other = taken.setdefault(device, host)
        if other.spec is not host.spec:
            raise ConfigError(
                f"{host.spec.name}: its worker of {', '.join(host.worker.stages)} uses the device {device}, as a "
                f"worker of {other.spec.name} does. Give it another device"
            )


def _devices(hosts: Sequence[_Host]) -> Iterator[tuple[_Host, str]]:
    """Yield the devices of this machine that belong to one worker each."""
    for host in hosts:
        if host.spec.on_one_machine and not host.worker.resources:
            for device in host.worker.devices:
                if exclusive(device):
                    yield host, str(device).removeprefix("cuda:")
