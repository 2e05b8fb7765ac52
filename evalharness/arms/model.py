"""What an arms file says, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalharness.types import Arm


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """What an arm's digest was made of, beyond the file's own words.

    model_files: file name in the model folder -> SHA-256. versions: distribution -> version.
    plugins: enabled vLLM plugin -> its distribution, version and the digest of its files.
    files: files named by arguments, and modules loaded by name -> SHA-256.
    """

    model_files: Mapping[str, str]
    versions: Mapping[str, str]
    plugins: Mapping[str, Mapping[str, str]]
    kernels: Mapping[str, str]
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ArmsFile:
    """A checked arms file. `arms` starts with the control; the A/A launch is not among them.

    `plan` is the file's plan block or None; `levels[factor]` lists the level names in file order.
    """

    name: str
    sha256: str
    levels: Mapping[str, tuple[str, ...]]
    control: Mapping[str, str]
    arms: tuple[Arm, ...]
    aa: bool
    order: str
    plan: Mapping[str, Any] | None
    ready_timeout_s: float
    settings: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def arm(self, name: str) -> Arm:
        """Return the arm of that name; `aa` is the control. KeyError if there is none."""
        wanted = "control" if name == "aa" else name
        for arm in self.arms:
            if arm.name == wanted:
                return arm
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """One server start: `arm` is the arm's name or `aa`; its replicates run in it.

    shard: which part of every dealt-out case list it asks, from 1. speed_only: its replicates
    are repeats that only speed suites have.
    """

    arm: str
    replicates: tuple[int, ...]
    shard: int = 1
    speed_only: bool = False
