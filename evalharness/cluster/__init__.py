"""The factorial on a Ray cluster: each launch one task, its responses landing in one RUN.

Importing this package imports nothing of Ray; only `session` and `datasets` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalharness.errors import HarnessError

if TYPE_CHECKING:
    from evalharness.cluster.executor import RayExecutor
    from evalharness.cluster.session import Session


def require_ray() -> None:
    """Raise HarnessError where the [ray] extra is not installed."""
    import importlib.util

    if importlib.util.find_spec("ray") is None:
        raise HarnessError(
            "--executor ray: the package ray is not installed here; "
            "`pip install '.[ray]'` in the clone, here and on every node of the cluster"
        )


def open_session(address: str) -> Session:
    """Connect to the cluster. Raises HarnessError where there is none, or no Ray here."""
    require_ray()
    from evalharness.cluster.session import Session

    return Session(address)


def open_ray_executor(address: str, resources: Mapping[str, float]) -> RayExecutor:
    """Connect to the cluster for a factorial; see open_session.

    resources: what one launch asks for by Ray's names, such as {"GPU": 4}; empty for one launch
    a node.
    """
    session = open_session(address)
    from evalharness.cluster.executor import RayExecutor

    return RayExecutor(session, resources)
