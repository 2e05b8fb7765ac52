"""Read a run directory as stored facts: plan, cells, scores, responses. No server, no network.

Nothing damaged is used silently. A cell whose response file disagrees with its record is
*incomplete* with the reason; a score that does not belong to the stored response is *unobserved*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalharness.checked_json import format_problem, parse_checked, read_checked
from evalharness.errors import PlanError, StoreError
from evalharness.margins import SMALLEST, margin_problems
from evalharness.stored_cell import StoredCell, join_shards
from evalharness.stored_rows import CaseNll, CaseScore, read_scores, verify_cell
from evalharness.types import CellKey, Shard
from evalharness.vouched import (
    Note,
    counted_files,
    score_name,
    server_files,
    sums_notes,
)

NLL_SUITE = "nll"
SPEED_SUITE = "speed"
DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory, read and verified. `sha256` is plan.json's digest: the run's name.

    `scorers` maps each suite entry to the scorer version whose scores were read;
    `case_ids` names each entry's cases as the run's own manifest does, empty without one.
    `cells` has each shard by itself; `joined` the cells that the shards make up.
    """

    path: Path
    plan: Mapping[str, Any]
    sha256: str
    scorers: Mapping[str, str]
    case_ids: Mapping[str, tuple[str, ...]]
    cells: Mapping[CellKey, StoredCell]
    aborted: tuple[StoredCell, ...]
    servers: tuple[Mapping[str, Any], ...]
    notes: tuple[Note, ...]
    joined: Mapping[CellKey, StoredCell] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The directory's own name, also where it was given as `.`."""
        return self.path.resolve().name


def declared_scorers(plan: Mapping[str, Any]) -> dict[str, str]:
    """Scorer version per suite entry: the plan block's, else the manifest's."""
    return {
        name: str(plan["scorers"].get(name) or suite["scorer"])
        for name, suite in plan["suites"].items()
    }


def load_run(path: Path, *, scorers: Mapping[str, str] | None = None) -> Run:
    """Read RUN. `scorers` replaces the declared scorer of a suite (an exploratory reading).

    Raises PlanError without a readable plan.json, StoreError where the directory cannot be
    trusted: two complete results of one cell, or a cell that the plan does not know.
    """
    plan, digest = _read_plan(path / "plan.json")
    wanted = {**declared_scorers(plan), **(scorers or {})}
    servers, strange = _read_servers(path)
    refused = _refused_launches(servers, plan)
    found = [_read_cell(file, path, scorers=wanted, refused=refused) for file in _cell_files(path)]
    found = _with_one_runner(found, servers, control=plan["control"])
    cells = _one_each([cell for cell in found if cell.state != "aborted"])
    joined = join_shards(cells)
    counted = {
        "plan.json": digest,
        **dict(counted_files(path, plan, list(cells.values()), servers)),
    }
    complete = {key for key, cell in {**cells, **joined}.items() if cell.state == "complete"}
    return Run(
        path=path,
        plan=plan,
        sha256=digest,
        scorers=wanted,
        case_ids=_manifest_ids(path / "manifest.json", plan),
        cells=cells,
        aborted=tuple(cell for cell in found if cell.state == "aborted"),
        servers=servers,
        notes=(*sums_notes(path, plan, counted, complete), *strange),
        joined=joined,
    )


def _read_plan(file: Path) -> tuple[dict[str, Any], str]:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise PlanError(
            f"{file}: {error.strerror}; expected the frozen plan of a run; "
            "give the RUN directory that `evalharness factorial --out RUN` wrote"
        ) from error
    plan = parse_checked(raw, "plan", name=str(file), error=PlanError)
    problem = next(_plan_problems(plan), None)
    if problem is not None:
        raise PlanError(f"{file}: {problem}; restore the run's own file")
    return plan, hashlib.sha256(raw).hexdigest()


def _plan_problems(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a schema cannot say of a plan."""
    names = [arm["name"] for arm in plan["arms"]]
    if len(set(names)) != len(names):
        yield "two arms of one name"
    if plan["control"] not in names:
        yield f"control {plan['control']!r} is not among its arms"
    if plan["sequence"] != "holm":
        strange = [arm for arm in plan["sequence"] if arm not in names]
        if strange or plan["control"] in plan["sequence"]:
            yield f"sequence {plan['sequence']} names the control, or arms that it does not have"
        if len(set(plan["sequence"])) != len(plan["sequence"]):
            yield f"sequence {plan['sequence']} names an arm twice"
    if not SMALLEST <= plan["alpha"] < 0.5:
        yield f"alpha {plan['alpha']}, expected a number of at least {SMALLEST:g}, below 0.5"
    levels = plan["concurrency"]
    if not levels or min(levels) < 1 or len(set(levels)) != len(levels):
        yield f"concurrency {levels}, expected different numbers of at least 1"
    if not set(plan["gate_concurrency"]) <= set(levels):
        yield f"gate_concurrency {plan['gate_concurrency']} has levels that concurrency has not"
    if not 1 <= plan["replays"] <= 1_000:
        yield f"replays {plan['replays']}, expected 1 to 1000"
    for problem in margin_problems(plan["margins"], plan["suites"], known=None):
        yield f"margins: {problem}"
    for name, suite in plan["suites"].items():
        if not 1 <= suite["cases"] <= 10_000_000 or len(set(suite["modes"])) != len(suite["modes"]):
            yield f"suite {name}: {suite['cases']} cases in modes {suite['modes']}"


def _manifest_ids(file: Path, plan: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return each entry's case ids. Raises PlanError where it is not the plan's manifest."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PlanError(f"{file}: {error.strerror}; restore the run's own manifest") from error
    digest = hashlib.sha256(raw).hexdigest()
    if digest != plan["manifest"]["sha256"]:
        raise PlanError(
            f"{file}: digest {digest[:12]}, the plan was frozen with "
            f"{plan['manifest']['sha256'][:12]}; restore the run's own manifest"
        )
    suites = parse_checked(raw, "manifest", name=str(file), error=PlanError)["suites"]
    for name, suite in plan["suites"].items():
        ids = [case["id"] for case in suites.get(name, {"cases": []})["cases"]]
        if len(set(ids)) != suite["cases"] or len(ids) != suite["cases"]:
            raise PlanError(f"{file}: {len(set(ids))} cases of {name}, the plan {suite['cases']}")
    return {name: tuple(case["id"] for case in suite["cases"]) for name, suite in suites.items()}


def _read_servers(path: Path) -> tuple[tuple[Mapping[str, Any], ...], list[Note]]:
    """Return the launches' facts, without route hits that are none: those are named in notes."""
    servers, notes = [], []
    for file in server_files(path):
        server = read_checked(file, "server", error=StoreError)
        problems = [format_problem(hits, "route_hits") for hits in server["route_hits"]]
        pairs = zip(server["route_hits"], problems, strict=True)
        servers.append({**server, "route_hits": [hits for hits, bad in pairs if bad is None]})
        name = file.relative_to(path).as_posix()
        notes += [Note("absent", f"{name}: route hits left out: {bad}") for bad in problems if bad]
    return tuple(servers), notes


def _refused_launches(
    servers: tuple[Mapping[str, Any], ...], plan: Mapping[str, Any]
) -> dict[int, str]:
    """Launches whose server was not the planned arm: their cells cannot count."""
    digests = {arm["name"]: arm["digest"] for arm in plan["arms"]}
    refused: dict[int, str] = {}
    for server in servers:
        planned = digests.get(server["arm"], server["digest"])
        if planned != server["digest"]:
            refused[server["launch"]] = (
                f"launch {server['launch']} served digest {server['digest'][:12]}, "
                f"the plan's arm has {planned[:12]}"
            )
        off = [name for name, level in server["levels"].items() if level["in_effect"] is False]
        if off:
            refused[server["launch"]] = f"level not in effect on the server: {', '.join(off)}"
    return refused


def _with_one_runner(
    cells: Sequence[StoredCell], servers: Sequence[Mapping[str, Any]], *, control: str
) -> list[StoredCell]:
    """Make forced decode unobserved where another model runner served than the control's.

    The runners force tokens by different code: a difference between them is not the arm's.
    """
    runners = {server["launch"]: server["runner"] for server in servers}
    expected = {server["runner"] for server in servers if server["arm"] == control}
    told = ", ".join(sorted(_runner_name(runner) for runner in expected))
    kept = []
    for cell in cells:
        runner = runners.get(cell.launch)
        if cell.key.mode == DECODE and cell.nll and expected and expected != {runner}:
            reason = f"served by {_runner_name(runner)}, the control by {told}: not comparable"
            cell = replace(cell, nll=dict.fromkeys(cell.nll, CaseNll(False, reason)))
        kept.append(cell)
    return kept


def _runner_name(runner: str | None) -> str:
    return "an unknown model runner" if runner is None else f"model runner {runner}"


def _cell_files(path: Path) -> list[Path]:
    return sorted((path / "responses").glob("*/*/*.cell.json"))


def _read_cell(
    file: Path, root: Path, *, scorers: Mapping[str, str], refused: Mapping[int, str]
) -> StoredCell:
    record = read_checked(file, "cell", error=StoreError)
    key = CellKey(
        arm=record["arm"],
        suite=record["suite"],
        mode=record["mode"],
        concurrency=record["concurrency"],
        replicate=record["replicate"],
        shard=Shard(*record.get("shard", (1, 1))),
    )
    if key.suite not in scorers:
        known = ", ".join(sorted(scorers))
        raise StoreError(f"{file}: suite {key.suite!r} is not in the plan (it has {known})")
    responses = file.with_name(file.name.removesuffix(".cell.json") + ".jsonl")
    state, reason, checks = verify_cell(record, responses)
    if state == "complete" and record["launch"] in refused:
        state, reason = "incomplete", refused[record["launch"]]
    scorer = scorers[key.suite]
    rows: tuple[dict[str, CaseScore], dict[str, CaseNll]] = ({}, {})
    if state == "complete":
        file = root / score_name(responses.relative_to(root), key.suite, scorer)
        rows = read_scores(file, checks, scorer)
    return StoredCell(
        key, record["launch"], state, reason, record, responses, scorer, rows[0], rows[1]
    )


def _one_each(found: list[StoredCell]) -> dict[CellKey, StoredCell]:
    cells: dict[CellKey, StoredCell] = {}
    for cell in found:
        other = cells.get(cell.key)
        if other is not None and other.state == "complete" and cell.state == "complete":
            raise StoreError(
                f"{cell.responses} and {other.responses}: two complete results of one cell; "
                "keeping the better one would be a choice after the fact, so remove neither "
                "but give each its own RUN"
            )
        if other is None or cell.state == "complete" or other.state != "complete":
            cells[cell.key] = cell
    return cells


__all__ = [
    "DECODE",
    "NLL_SUITE",
    "SPEED_SUITE",
    "Note",
    "Run",
    "StoredCell",
    "declared_scorers",
    "load_run",
]
