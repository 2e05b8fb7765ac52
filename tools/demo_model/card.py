"""The model card's numbers out of runs of manifests/arms/model-card.yaml: every case's outcome.

python -m tools.demo_model.card RUN [RUN2 ...] --write docs/results/model-card.json
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def kind_of(suite: str, case_id: str) -> str:
    """Return what the card calls a case's kind: a category of BFCL, else its suite."""
    return re.sub(r"_\d.*", "", case_id) if suite == "bfcl" else suite


def outcomes(run: Path) -> Iterator[tuple[int, str, str, str]]:
    """Yield (concurrency, kind, case, outcome) of a run's control by the plan's scorers."""
    suites = json.loads((run / "plan.json").read_text())["suites"]
    for path in sorted(run.glob("responses/control/*/*.cell.json")):
        cell = json.loads(path.read_text())
        scorer = suites[cell["suite"]]["scorer"].replace("/", "-")
        scored = run / "scores" / f"{cell['suite']}.{scorer}"
        rows = scored / path.relative_to(run / "responses").with_suffix("").with_suffix(".jsonl")
        for line in rows.read_text().splitlines():
            row = json.loads(line)
            kind = kind_of(cell["suite"], row["case_id"])
            yield cell["concurrency"], kind, row["case_id"], row["outcome"]


def card(runs: list[Path]) -> dict[str, Any]:
    """Return the document: what was served, and each case's outcome by concurrency."""
    (server, *others) = [
        json.loads(path.read_text())
        for run in runs
        for path in run.glob("arms/control/*/server.json")
    ]
    if any(other["digest"] != server["digest"] for other in others):
        raise SystemExit("the runs served different arms; run them from one arms file")
    found: dict[str, dict[str, dict[str, str]]] = {}
    for run in runs:
        for concurrency, kind, case_id, outcome in outcomes(run):
            found.setdefault(kind, {}).setdefault(case_id, {})[f"C{concurrency}"] = outcome
    return {
        "vllm": server["vllm_version"],
        "arm_digest": server["digest"],
        "model_files": server["model_files"],
        "plans": [json.loads((run / "plan.json").read_text())["created_utc"] for run in runs],
        "outcomes": found,
    }


def counts(document: Mapping[str, Any]) -> dict[str, dict[str, tuple[int, int]]]:
    """Return kind -> level -> (correct, asked)."""
    table: dict[str, dict[str, tuple[int, int]]] = {}
    for kind, cases in document["outcomes"].items():
        asked = Counter(level for levels in cases.values() for level in levels)
        right = Counter(
            level for levels in cases.values() for level, o in levels.items() if o == "correct"
        )
        table[kind] = {level: (right[level], count) for level, count in sorted(asked.items())}
    return table


def main() -> int:
    """Print the counts; write the document where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    document = card(args.runs)
    for kind, levels in counts(document).items():
        shown = ", ".join(f"{level} {right} of {asked}" for level, (right, asked) in levels.items())
        print(f"{kind}: {shown}")
    if args.write:
        args.write.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
