"""What travels between the driver and the nodes: values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evalharness.errors import HarnessError
from evalharness.factorial.cell_run import CellSettings
from evalharness.factorial.cells import PlannedCell
from evalharness.manifest import Manifest
from evalharness.server import LaunchSpec
from evalharness.types import Case


@dataclass(frozen=True, slots=True)
class Node:
    """One living node. `name` is unique in the cluster; `resources` are its totals."""

    id: str
    name: str
    ip: str
    host: str
    resources: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file of the run, by its path in RUN: appended at `offset`, or whole (None)."""

    path: str
    data: bytes
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a launch tells: `ready` (seconds), a note, how it ended, or why it could not go on.

    error_exit: the exit code of the error's kind.
    """

    kind: Literal["ready", "note", "end", "error"]
    text: str = ""
    seconds: float | None = None
    died: bool = False
    error_exit: int = 0


Batch = tuple[Piece | Said, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """What all launches of a run share; sent to a node once."""

    manifest: Manifest
    cases: Mapping[str, Sequence[Case]]


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """One launch for a node. `spec.folder` is relative to RUN.

    folder: name of the node's scratch folder of this run; session: this driver's, new with every
    command. lost: launches of this session that ended without their own clean-up.
    """

    spec: LaunchSpec
    cells: tuple[PlannedCell, ...]
    seed: int
    settings: CellSettings
    working_directory: str
    folder: str
    session: str
    lost: frozenset[int]


class LaunchLostError(HarnessError):
    """The node, or the process on it, went away before the launch had ended."""


class LaunchStoppedError(HarnessError):
    """The launch was cancelled because the user stops the run."""
