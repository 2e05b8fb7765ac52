"""On a node, before anything starts: would this node serve the same arms with the same code?"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evalharness import __version__
from evalharness.arms import ArmFacts, ArmsFile, with_digests
from evalharness.errors import HarnessError
from evalharness.server.node import gpus

MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Examined:
    """What a node says of itself. `error` is set where an arm could not be served there."""

    error: str | None
    file: ArmsFile | None
    facts: Mapping[str, ArmFacts]
    cards: Sequence[Mapping[str, Any]]


def code_identity() -> dict[str, str]:
    """Return this installation's version and the digest of its sources."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return {"version": __version__, "sources": digest.hexdigest()}


def examine(file: ArmsFile, working_directory: str) -> Examined:
    """Digest the arms as this node would serve them, and read its GPUs.

    Relative paths of the arms file are taken from the driver's working directory.
    """
    with contextlib.suppress(OSError):
        os.chdir(working_directory)
    try:
        digested, facts = with_digests(file)
    except HarnessError as error:
        return Examined(str(error), None, {}, gpus())
    return Examined(None, digested, facts, gpus())


def agreed(found: Mapping[str, Examined]) -> tuple[ArmsFile, Mapping[str, ArmFacts]]:
    """Return the digested file on which all nodes agree; `found` maps node name -> its answer.

    Raises HarnessError naming each node that lacks something or has another model, build, plugin
    or kernel than the first.
    """
    errors = {name: one.error for name, one in found.items() if one.error is not None}
    if errors:
        if len(errors) == len(found) and len(set(errors.values())) == 1:
            raise HarnessError(f"on every node: {next(iter(errors.values()))}")
        raise HarnessError("\n".join(f"node {name}: {error}" for name, error in errors.items()))
    first, *others = found
    problems = [line for name in others for line in _differences(found, first, name)]
    if problems:
        shown = "\n  ".join(problems[:MAX_PROBLEMS])
        raise HarnessError(
            f"the nodes would not serve the same arms:\n  {shown}\n"
            "give every node the same model files and the same environment"
        )
    file = found[first].file
    assert file is not None
    return file, found[first].facts


def _differences(found: Mapping[str, Examined], first: str, name: str) -> Iterator[str]:
    """Yield what an arm is made of on one node and not on the first; each fact once."""
    seen: set[str] = set()
    for arm, facts in found[name].facts.items():
        here, there = _flat(asdict(facts)), _flat(asdict(found[first].facts[arm]))
        for key in sorted({*here, *there}):
            if here.get(key) != there.get(key) and key not in seen:
                seen.add(key)
                yield (
                    f"node {name}: {key} is {_short(here.get(key))}, on node {first} "
                    f"{_short(there.get(key))} (arm {arm})"
                )


def _flat(value: Mapping[str, Any], place: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, inner in value.items():
        name = f"{place} {key}".strip()
        flat |= _flat(inner, name) if isinstance(inner, Mapping) else {name: str(inner)}
    return flat


def _short(value: str | None) -> str:
    return "absent" if value is None else value if len(value) <= 40 else f"{value[:12]}..."
