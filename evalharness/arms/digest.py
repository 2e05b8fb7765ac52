"""What can change an arm's numbers, as one digest: words, files, versions, kernels.

Not in it: port, key, run paths. So the same arm has the same digest in every run, and two arms
that would serve the same thing cannot pass as different ones.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evalharness.arms.file_digests import file_digest
from evalharness.arms.model import ArmFacts, ArmsFile
from evalharness.errors import ArmsError
from evalharness.text import printable
from evalharness.types import Arm, canonical_json, sha256_hex

PROBE_TIMEOUT_S = 60.0
_MODULE = re.compile(r"^[A-Za-z_][\w]*(\.[A-Za-z_]\w*)+:[A-Za-z_]\w*$")


def with_digests(file: ArmsFile) -> tuple[ArmsFile, dict[str, ArmFacts]]:
    """Return the file with every arm's digest, and the facts they were made of.

    Reads the model files and asks each arm's Python what it would load. Raises ArmsError where
    a model is missing or two arms cannot be told apart.
    """
    facts: dict[str, ArmFacts] = {}
    arms: list[Arm] = []
    for arm in file.arms:
        facts[arm.name] = _no_facts() if arm.endpoint else _facts(arm)
        digest = sha256_hex(canonical_json(_identity(arm, facts[arm.name])))
        arms.append(dataclasses.replace(arm, digest=digest))
    _refuse_equal(file, arms)
    return dataclasses.replace(file, arms=tuple(arms)), facts


def _refuse_equal(file: ArmsFile, arms: Sequence[Arm]) -> None:
    seen: dict[str, Arm] = {}
    for arm in arms:
        other = seen.setdefault(arm.digest, arm)
        if other is not arm:
            differ = [f for f, level in arm.levels if other.level(f) != level]
            raise ArmsError(
                f"{file.name}: arms {other.name!r} and {arm.name!r} have the same digest "
                f"{arm.digest[:12]}: the levels of {', '.join(differ)} change neither arguments, "
                "environment, model, build nor kernels. Expected arms that differ; use `aa: true` "
                "for a second launch of the control"
            )


def _identity(arm: Arm, facts: ArmFacts) -> dict[str, Any]:
    return {
        "argv": list(arm.argv),
        "env": dict(arm.env),
        "endpoint": arm.endpoint,
        "served_name": arm.served_name,
        "facts": {key: dict(getattr(facts, key)) for key in ArmFacts.__dataclass_fields__},
    }


def _no_facts() -> ArmFacts:
    return ArmFacts(model_files={}, versions={}, plugins={}, kernels={}, files={})


def _facts(arm: Arm) -> ArmFacts:
    assert arm.model_path is not None
    modules = [value for value in _values(arm.argv) if _MODULE.match(value)]
    found = _probe(arm, [module.split(":")[0] for module in modules])
    return ArmFacts(
        model_files=tree_digests(Path(arm.model_path), arm.name),
        versions=found["versions"],
        plugins=found["plugins"],
        kernels=found["kernels"],
        files={**_argument_files(arm.argv), **found["modules"]},
    )


def _values(argv: Sequence[str]) -> Iterator[str]:
    for arg in argv:
        yield arg.split("=", 1)[1] if arg.startswith("--") and "=" in arg else arg


def _argument_files(argv: Sequence[str]) -> dict[str, str]:
    """Digest every file or folder that an argument names: a chat template decides the prompt."""
    found: dict[str, str] = {}
    for value in _values(argv):
        path = Path(value)
        try:
            if path.is_file():
                found[value] = file_digest(path)
            elif len(path.parts) > 1 and path.is_dir():
                found[value] = sha256_hex(canonical_json(tree_digests(path, value)))
        except (OSError, ValueError):
            continue  # an argument too long or too odd to be a path is just an argument
    return found


def tree_digests(root: Path, owner: str) -> dict[str, str]:
    """Return relative name -> SHA-256 of every file under the model folder (or of the one file)."""
    if root.is_file():
        return {root.name: file_digest(root)}
    if not root.is_dir():
        raise ArmsError(
            f"arm {owner!r}: model {printable(str(root))!r} not found from {Path.cwd()}; "
            "expected a local folder or file (download a hub model first: its files are digested)"
        )
    files = sorted(path for path in root.rglob("*") if path.is_file())
    if not files:
        raise ArmsError(f"arm {owner!r}: model folder {root} is empty")
    return {path.relative_to(root).as_posix(): file_digest(path) for path in files}


def _probe(arm: Arm, modules: Sequence[str]) -> Mapping[str, Any]:
    """Ask the arm's Python for versions, enabled plugins, kernels and modules."""
    python = arm.python or sys.executable
    plugins = [name for name in dict(arm.env)["VLLM_PLUGINS"].split(",") if name]
    script = Path(__file__).with_name("probe_script.py").read_text(encoding="utf-8")
    asked = json.dumps({"plugins": plugins, "modules": list(modules)})
    try:
        done = subprocess.run(
            [python, "-c", script, asked],
            env={**os.environ, **dict(arm.env)},
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise ArmsError(
            f"arm {arm.name!r}: python {python!r} could not be asked for its versions: "
            f"{printable(str(detail)).strip()[-300:]}"
        ) from error
    missing = sorted(set(plugins) - set(found["plugins"]))
    if missing:
        raise ArmsError(
            f"arm {arm.name!r}: VLLM_PLUGINS names {', '.join(missing)}, but {python} has no such "
            "entry point in vllm.general_plugins; install the plugin there or correct the name"
        )
    lost = sorted(name for name, digest in found["modules"].items() if digest == "not found")
    if lost:
        raise ArmsError(f"arm {arm.name!r}: {python} cannot find module {', '.join(lost)}")
    return found
