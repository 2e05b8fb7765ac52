"""All that the executor asks of Ray: a connection, the nodes, and launches as tasks on them."""

from __future__ import annotations

import os

# Before Ray is imported: it reads these once. A run is nobody's statistic, and the environment
# of a worker is the node's own.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# Tries to reach a cluster, each of some seconds: by default minutes pass before it is given up.
os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from evalharness.arms import ArmsFile
from evalharness.cluster.carrying import carry_out
from evalharness.cluster.examining import Examined, examine
from evalharness.cluster.values import (
    Batch,
    LaunchJob,
    LaunchLostError,
    LaunchStoppedError,
    Node,
    Shared,
)
from evalharness.errors import HarnessError
from evalharness.text import printable

ANSWER_TIMEOUT_S = 60.0
ALIVE_TIMEOUT_S = 20.0
KNOCK_TIMEOUT_S = 10.0
LOCAL = "local"
# Batches a task may be ahead of the driver; each is at most a few MiB.
AHEAD = 8


class Session:
    """A connection to one cluster; `close` it. Raises HarnessError where there is no cluster.

    address: `auto`, HOST:PORT, or `local` for a cluster of this machine alone, gone at the end.
    """

    def __init__(self, address: str) -> None:
        if address.startswith("ray://"):
            raise HarnessError(
                f"--ray-address {address}: Ray's client protocol cannot stream results; run the "
                "command on a node of the cluster with --ray-address auto"
            )
        alone = {"include_dashboard": False} if address == LOCAL else {}
        try:
            _knock(address)
            ray.init(
                address=address,
                namespace="evalharness",
                logging_level=logging.ERROR,
                log_to_driver=False,
                **alone,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError, RayError) as error:
            raise HarnessError(
                f"--ray-address {address}: {printable(str(error)).strip()[:600]}; start a cluster "
                "(`ray start --head`, and `ray start --address HOST:PORT` on each other node), "
                "with the same Ray and Python on all of them"
            ) from error
        self._shared: Any = None

    def close(self) -> None:
        """Leave the cluster; tasks of this driver end."""
        ray.shutdown()

    def nodes(self) -> list[Node]:
        """Return the living nodes by name; names that occur twice carry their id."""
        alive = [row for row in ray.nodes() if row["Alive"]]
        names = [row["NodeName"] for row in alive]
        found = [
            Node(
                id=row["NodeID"],
                name=_unique(row["NodeName"], row["NodeID"], names),
                ip=row["NodeManagerAddress"],
                host=row["NodeManagerHostname"],
                resources=row["Resources"],
            )
            for row in alive
        ]
        return sorted(found, key=lambda node: node.name)

    async def identities(self, nodes: Sequence[Node]) -> dict[str, dict[str, str]]:
        """Ask each node for its installation of this package; an `error` where it has none."""
        return await self._ask(nodes, _identity_probe(), ())

    async def examined(self, nodes: Sequence[Node], file: ArmsFile) -> dict[str, Examined]:
        """Let each node digest the arms."""
        # Model folders of hundreds of gigabytes are read here: no bound on the time.
        return await self._ask(nodes, examine, (file, os.getcwd()), timeout_s=None)  # noqa: PTH109

    async def alive(self, node: Node) -> bool:
        """Ask whether a node still carries out anything."""
        try:
            await self._ask([node], _nothing, (), timeout_s=ALIVE_TIMEOUT_S)
        except HarnessError:
            return False
        return True

    async def _ask(
        self,
        nodes: Sequence[Node],
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        *,
        timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> dict[str, Any]:
        remote = ray.remote(num_cpus=0, max_retries=0)(function)
        asked = {
            node.name: remote.options(scheduling_strategy=_only(node)).remote(*arguments)
            for node in nodes
        }
        answers = {}
        for name, reference in asked.items():
            try:
                answers[name] = await asyncio.wait_for(_answer(reference), timeout_s)
            except (RayError, TimeoutError) as error:
                said = printable(str(error)).strip()[-400:] or type(error).__name__
                raise HarnessError(
                    f"node {name}: it did not answer ({said}); check `ray status` and the node"
                ) from error
        return answers

    def share(self, shared: Shared) -> None:
        """Put what all launches share where every node can get it."""
        self._shared = ray.put(shared)

    async def launch(
        self, job: LaunchJob, node: Node, *, demand: Mapping[str, float], stop: asyncio.Event
    ) -> AsyncGenerator[Batch, None]:
        """Carry out a launch on a node; yields its batches as they come.

        Raises LaunchLostError where node or worker went away, LaunchStoppedError after `stop`.
        """
        task = _launch_task().options(
            scheduling_strategy=_only(node),
            name=f"launch {job.spec.number:03d}",
            **_options(demand),
        )
        batches = task.remote(job, self._shared, _placement(node))
        watch = asyncio.ensure_future(_cancel_after(stop, batches))
        try:
            async for reference in batches:
                yield await reference
        except GeneratorExit:
            ray.cancel(batches)  # the driver cannot keep what comes: the server must not go on
            raise
        except TaskCancelledError as error:
            raise LaunchStoppedError("stopped by the user") from error
        except RayTaskError:
            raise  # an error of ours on the node, with its traceback
        except RayError as error:
            first = printable(str(error)).strip().partition("\n")[0][:300]
            raise LaunchLostError(f"node {node.name} was lost ({first})") from error
        finally:
            watch.cancel()


def _knock(address: str) -> None:
    """Raise OSError where nothing listens at HOST:PORT; Ray itself would wait for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_TIMEOUT_S).close()


def _unique(name: str, node_id: str, names: Sequence[str]) -> str:
    return name if names.count(name) == 1 else f"{name}/{node_id[:8]}"


def _only(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)


def _placement(node: Node) -> dict[str, Any]:
    return {"executor": "ray", "name": node.name, "ip": node.ip, "ray_node_id": node.id}


def _options(demand: Mapping[str, float]) -> dict[str, Any]:
    """Return a task's options for a demand by Ray's resource names."""
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    options: dict[str, Any] = {named[key]: demand[key] for key in demand if key in named}
    options["resources"] = {key: value for key, value in demand.items() if key not in named}
    return options


async def _answer(reference: Any) -> Any:
    return await reference


async def _cancel_after(stop: asyncio.Event, batches: Any) -> None:
    await stop.wait()
    ray.cancel(batches)


def _nothing() -> None:
    return None


def _identity_probe() -> Callable[[], dict[str, str]]:
    # A function of a function travels by value: a node without this package can still run it.
    def probe() -> dict[str, str]:
        try:
            from evalharness.cluster.examining import code_identity
        except ImportError as error:
            return {"error": str(error)}
        return code_identity()

    return probe


def _launch_task() -> Any:
    return ray.remote(
        max_retries=0, num_returns="streaming", _generator_backpressure_num_objects=AHEAD
    )(_carry_out)


def _carry_out(job: LaunchJob, shared: Shared, placement: dict[str, Any]) -> Any:
    ids = [str(one) for one in ray.get_gpu_ids()]
    yield from carry_out(job, shared, {**placement, "gpu_ids": ids})
