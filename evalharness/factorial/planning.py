"""The plan: everything that decides the run, frozen before the first request.

RUN/plan.json's SHA-256 names the run. A later command with other arms, manifest or settings is
refused with the differences, because mixing them would make the comparison unfair.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalharness import __version__
from evalharness.arms import ArmsFile, PlannedLaunch
from evalharness.checked_json import LARGEST
from evalharness.errors import PlanError
from evalharness.factorial.cells import shards_of
from evalharness.manifest import Entry, Manifest
from evalharness.margins import margin_problems
from evalharness.registry import SUITES, suite_named
from evalharness.store import read_json, write_json
from evalharness.text import printable
from evalharness.types import CONTROL, Arm, Shard

DEFAULT_ALPHA = 0.025
DEFAULT_CONCURRENCY = (1, 4, 8, 16)
PLAN_NAME = "plan.json"
SHARD_RULE = "case j of a suite (from 0, in manifest order) belongs to shard j mod n + 1 of n"
# What may differ between two runs of the same command.
_NOT_COMPARED = ("created_utc",)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for, beside the two files."""

    concurrency: tuple[int, ...]
    seed: int
    settings: Mapping[str, Any]
    shards: int = 1


def build_plan(
    file: ArmsFile, manifest: Manifest, launches: Sequence[PlannedLaunch], asked: Asked
) -> dict[str, Any]:
    """Return plan.json's content (formats/plan.schema.json). Raises PlanError."""
    declared = file.plan or {}
    _check(declared, manifest, asked)
    _check_servers(file.arms, manifest)
    return {
        "format": "evalharness/plan/1",
        "created_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "harness_version": __version__,
        "declared": file.plan is not None,
        "alpha": declared.get("alpha", DEFAULT_ALPHA),
        "margins": declared.get("margins", {}),
        "gate_concurrency": list(declared.get("gate_concurrency", asked.concurrency)),
        "sequence": declared.get("sequence", "holm"),
        "scorers": declared.get("scorers", {}),
        "replays": replays_of(file),
        **_repeats(file),
        "concurrency": list(asked.concurrency),
        "seed": asked.seed,
        **_shards(manifest, asked),
        "order": [launch.arm for launch in launches],
        "control": CONTROL,
        "aa": file.aa,
        "factors": {factor: list(levels) for factor, levels in file.levels.items()},
        "arms": [_arm(arm) for arm in file.arms],
        "arms_file": {"name": file.name, "sha256": file.sha256},
        "manifest": {"name": manifest.name, "sha256": manifest.sha256},
        "suites": {name: _entry(entry, declared) for name, entry in manifest.entries.items()},
        "settings": dict(asked.settings),
    }


def _shards(manifest: Manifest, asked: Asked) -> dict[str, Any]:
    """Return the layout of the shards; nothing where every launch asks all cases."""
    if launch_shards(manifest, asked.shards, asked.concurrency) == 1:
        return {}
    cases = {}
    for entry in manifest.entries.values():
        of = shards_of(entry, shards=asked.shards, concurrency=asked.concurrency)
        sizes = [len(Shard(number, of).part(entry.case_ids)) for number in range(1, of + 1)]
        cases[entry.name] = sizes
    return {"shards": {"asked": asked.shards, "rule": SHARD_RULE, "cases": cases}}


def launch_shards(manifest: Manifest, shards: int, concurrency: Sequence[int]) -> int:
    """Return into how many launches an arm's cases are dealt out: the longest list decides."""
    return max(
        shards_of(entry, shards=shards, concurrency=concurrency)
        for entry in manifest.entries.values()
    )


def replays_of(file: ArmsFile) -> int:
    """Return the declared number of replays (1)."""
    return int((file.plan or {}).get("replays", 1))


def speed_repeats_of(file: ArmsFile) -> int:
    """Return how many launches of each arm run the speed suites: at least the replays."""
    return max(replays_of(file), int((file.plan or {}).get("speed_repeats", 1)))


def _repeats(file: ArmsFile) -> dict[str, int]:
    repeats = speed_repeats_of(file)
    return {} if repeats == replays_of(file) else {"speed_repeats": repeats}


def default_concurrency(file: ArmsFile) -> tuple[int, ...]:
    """Return the concurrency levels of a run that names none: the gate's, else 1, 4, 8, 16."""
    gate = (file.plan or {}).get("gate_concurrency", DEFAULT_CONCURRENCY)
    return tuple(sorted(set(gate)))


def _arm(arm: Arm) -> dict[str, Any]:
    return {
        "name": arm.name,
        "levels": dict(arm.levels),
        "argv": list(arm.argv),
        "env": dict(arm.env),
        "model_path": arm.model_path,
        "served_name": arm.served_name,
        "python": arm.python,
        "endpoint": arm.endpoint,
        "api_key_env": arm.api_key_env,
        "digest": arm.digest,
    }


def _entry(entry: Entry, declared: Mapping[str, Any]) -> dict[str, Any]:
    import json

    return {
        "suite": entry.suite,
        "modes": list(entry.modes),
        "cases": len(entry.case_ids),
        **({"waves": entry.options["waves"]} if "waves" in entry.options else {}),
        "template": entry.template,
        "scorer": declared.get("scorers", {}).get(entry.name, entry.scorer),
        "sampling": {
            "temperature": entry.sampling.temperature,
            "top_p": entry.sampling.top_p,
            "max_tokens": entry.sampling.max_tokens,
            "extra": json.loads(entry.sampling.extra),
        },
    }


def _check(declared: Mapping[str, Any], manifest: Manifest, asked: Asked) -> None:
    concurrency = asked.concurrency
    problems = [
        *_margins(declared, manifest),
        *_scorers(declared, manifest),
        *_speed(declared, manifest, concurrency),
    ]
    absent = [c for c in declared.get("gate_concurrency", []) if c not in concurrency]
    if absent:
        problems.append(
            f"plan.gate_concurrency asks for {_list(absent)}, the run has --concurrency "
            f"{_list(concurrency)}; add them there, or gate on fewer in the arms file"
        )
    if abs(asked.seed) > LARGEST:
        problems.append(f"--seed {asked.seed}: expected at most {LARGEST:g} either way")
    if problems:
        raise PlanError("\n".join(problems))


def _check_servers(arms: Sequence[Arm], manifest: Manifest) -> None:
    """Refuse an arm whose server could not answer a mode; what an endpoint runs is not known."""
    for entry in manifest.entries.values():
        needs = suite_named(entry.suite).needs_args
        for mode in (mode for mode in entry.modes if mode in needs):
            words = " ".join(needs[mode])
            started = [arm for arm in arms if arm.endpoint is None]
            lacking = [arm.name for arm in started if not _has(arm, needs[mode])]
            if lacking:
                raise PlanError(
                    f"suite {entry.name}, mode {mode}: expected `{words}` in every server's "
                    f"command line, not found in arm {_list(lacking)}; add it to server.args of "
                    f"the arms file, or give a manifest without {entry.name}.{mode}"
                )


def _has(arm: Arm, words: Sequence[str]) -> bool:
    """Say whether the arm's command line holds the words; `--flag=value` has two."""
    held = {word for argument in arm.argv for word in (argument, *argument.split("="))}
    return held.issuperset(words)


def _margins(declared: Mapping[str, Any], manifest: Manifest) -> Iterator[str]:
    asked = {e.name: {"suite": e.suite, "modes": e.modes} for e in manifest.entries.values()}
    known = {suite.name: {"suite": suite.name, "modes": suite.modes} for suite in SUITES}
    for problem in margin_problems(declared.get("margins", {}), asked, known=known):
        yield f"plan.margins: {problem}"


def _speed(
    declared: Mapping[str, Any], manifest: Manifest, concurrency: Sequence[int]
) -> Iterator[str]:
    """Yield what a speed suite cannot be run or judged with."""
    entries = [e for e in manifest.entries.values() if suite_named(e.suite).kind == "speed"]
    if "speed_repeats" in declared and not entries:
        yield f"plan.speed_repeats: manifest {manifest.name} has no speed suite; leave it out"
    widest = max(concurrency)
    for entry in manifest.entries.values():
        waves = entry.options.get("waves", 2)
        misplaced = "waves" in entry.options and entry not in entries
        if misplaced or type(waves) is not int or waves < 2:
            yield (
                f"{entry.name}/options/waves: found {waves!r}; expected a whole number of at least "
                "2 (the first wave warms up), and in a speed suite only"
            )
        elif entry in entries and len(entry.case_ids) < waves * widest:
            yield (
                f"{entry.name}: {len(entry.case_ids)} cases, but {waves} waves at C{widest} need "
                f"{waves * widest}; build a larger manifest, or ask for less"
            )


def _scorers(declared: Mapping[str, Any], manifest: Manifest) -> Iterator[str]:
    for name, scorer in declared.get("scorers", {}).items():
        if name not in manifest.entries:
            if name not in {suite.name for suite in SUITES}:
                yield f"plan.scorers: no suite {printable(name)!r} in manifest {manifest.name}"
            continue
        suite = suite_named(manifest.entries[name].suite)
        versions = [*suite.scorers, *suite.token_scorers]
        if scorer not in versions:
            yield f"plan.scorers: {name} has no {printable(scorer)!r}; it has {_list(versions)}"


def _list(values: Any) -> str:
    return ", ".join(str(value) for value in values)


def freeze(run: Path, plan: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Write RUN/plan.json, or compare it with the one there. Returns the plan and its SHA-256.

    Raises PlanError naming what differs.
    """
    path = run / PLAN_NAME
    if path.exists():
        frozen = read_json(path)
        differing = list(differences(frozen, plan))
        if differing:
            raise PlanError(
                f"{run} was started with another plan; it cannot be continued:\n  "
                + "\n  ".join(differing[:20])
                + "\ngive the files and options it was started with, or another --out"
            )
        plan = frozen
    elif (run / "responses").exists():
        raise PlanError(f"{run}: has responses but no plan.json; restore it, or give another --out")
    else:
        write_json(path, plan)
    return plan, hashlib.sha256(path.read_bytes()).hexdigest()


def differences(frozen: Any, asked: Any, place: str = "") -> Iterator[str]:
    """Yield one line for each part in which two plans differ."""
    if isinstance(frozen, dict) and isinstance(asked, dict):
        for key in [*frozen, *(key for key in asked if key not in frozen)]:
            if place or key not in _NOT_COMPARED:
                inner = f"{place}.{key}" if place else str(key)
                yield from differences(frozen.get(key), asked.get(key), inner)
    elif isinstance(frozen, list) and isinstance(asked, list) and len(frozen) == len(asked):
        for index, (one, other) in enumerate(zip(frozen, asked, strict=True)):
            name = one.get("name", index) if isinstance(one, dict) else index
            yield from differences(one, other, f"{place}[{name}]")
    elif frozen != asked:
        yield printable(f"{place}: the run has {_short(frozen)}, asked now: {_short(asked)}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
