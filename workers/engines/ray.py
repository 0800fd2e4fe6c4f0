"""The engine of actors: one process a rank, started by Ray on the machines of its cluster, which joins them in a group.

Ray finds the machines, starts the processes and carries inputs to them and outputs back. What the ranks send one
another goes as under torchrun: `process.run_rank` does not know who started it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...imports import DECLARING, declaring_files, import_declared
from ...planner.format import Document, Resolved
from ...planner.format.codec import decode, encode
from ..devices import computes_in, device_place
from ..faults import described, ended, rebuilt
from ..result import RunResult
from ..stores.arrays import Array
from ..stores.inputs import checked_inputs
from .engine import Engine, Settings
from .torchrun import demand_torch

_HOST = "host"


@dataclass(frozen=True)
class Failed:
    """What a rank raised, as data: errors of ours do not survive pickling."""

    cause: dict[str, Any]


class RayEngine(Engine):
    """Joins the cluster that this process is connected to, or RAY_ADDRESS names; else one is started here and ended."""

    def run(self, document: Document | Resolved, inputs: Mapping[str, Array], settings: Settings) -> RunResult:
        if settings.order is not None:
            sides = {"engine": "ray", "order": settings.order}
            raise UsageError("an order can be chosen for the local engine only", sides=sides)
        device_place(settings.device)  # a name that is not known is refused before anything starts
        demand_torch("ray")
        plan = document if isinstance(document, Resolved) else Resolved(document)
        checked = checked_inputs(plan.program, inputs)
        with _cluster() as ray:
            actors = _actors(ray, plan.size, settings)
            try:
                return _joined(ray, actors, plan, checked, settings)
            finally:
                for actor in actors:
                    ray.kill(actor)


# -- where the call is made ------------------------------------------------------------------------------------------


@contextmanager
def _cluster() -> Iterator[Any]:
    """Ray, connected. What was started here is ended here."""
    try:
        import ray
    except ImportError as error:
        hint = "pip install 'tapestry-planner[ray]'"
        raise UsageError("Ray is not installed", sides={"engine": "ray"}, hint=hint) from error
    if ray.is_initialized():
        yield ray
        return
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        yield ray
    finally:
        ray.shutdown()


def _actors(ray: Any, ranks: int, settings: Settings) -> list[Any]:
    """One actor a rank. On GPUs each has one for itself; CPU ranks share cores, as under torchrun."""
    on_gpus = computes_in(settings.device) != _HOST
    have = int(ray.cluster_resources().get("GPU", 0))
    if on_gpus and have < ranks:
        raise UsageError("the plan has more ranks than the cluster has GPUs", sides={"ranks": ranks, "GPUs": have})
    root = str(Path(__file__).absolute().parents[3])  # of the package, through the link if it is one
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    needs = {"num_cpus": 0, "num_gpus": 1 if on_gpus else 0, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    kind = ray.remote(RankActor).options(**needs, runtime_env={"env_vars": {"PYTHONPATH": path}})
    return [kind.remote() for _ in range(ranks)]


def _joined(ray: Any, actors: list[Any], plan: Resolved, inputs: Mapping[str, Array], settings: Settings) -> RunResult:
    """Tell the actors of one another, let them run, and wait for all."""
    places = ray.get([actor.place.remote() for actor in actors])
    alone = len({node for node, _, _ in places}) == 1
    _, address, port = places[0]
    common = {"WORLD_SIZE": str(len(actors)), "MASTER_PORT": str(port), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
    common |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"} if alone else {"MASTER_ADDR": address}
    common[DECLARING] = declaring_files([plan.program])
    text, given = ray.put(encode(plan.document)), ray.put(dict(inputs))
    running = [
        actor.run.remote(common | {"RANK": str(rank)}, text, given, settings) for rank, actor in enumerate(actors)
    ]
    found, gone = [], []
    for rank, answer in enumerate(running):
        try:
            found.append(ray.get(answer))
        except ray.exceptions.RayActorError:
            gone.append(rank)
    causes = [answer.cause for answer in found if isinstance(answer, Failed)]
    said = rebuilt(causes[0]) if causes else None  # all say the same: what was published first
    if gone:
        raise ended(gone[0], "", said)
    if said is not None:
        raise said
    result: RunResult = found[0]
    return result


# -- in a rank ---------------------------------------------------------------------------------------------------


class RankActor:
    """One rank, in a process of its own."""

    def place(self) -> tuple[str, str, int]:
        """The machine, its address, and a port that is free there."""
        import ray

        with closing(socket.socket()) as found:
            found.bind(("", 0))
            port = int(found.getsockname()[1])
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), port

    def run(
        self, environment: Mapping[str, str], document: bytes, inputs: Mapping[str, Array], settings: Settings
    ) -> RunResult | Failed:
        os.environ.update(environment)
        from .group import group
        from .process import run_rank

        try:
            import_declared()
            result = run_rank(decode(document), inputs, group(), settings)
        except Exception as error:
            return Failed(described(error, int(environment["RANK"])))
        group().close()
        return result
