"""Which cases are asked: as many as the plan needs, drawn by a seed, none used for calibrating."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from evalharness.data import KNOWN, locate, rows
from evalharness.manifest_build import build_manifest
from evalharness.plan_table import cases_needed
from evalharness.registry import suite_named
from evalharness.types import sha256_hex

CATEGORIES = ("simple_python", "multiple", "parallel", "irrelevance")
SCHEMA_SOURCE = "Github_easy"
# One case in three is for choosing the fault's strength, by a digest of its id; seeds draw from
# the other two, so that no case decides about a fault that was chosen on it.
CALIBRATION_SHARE = 3
# Reading a prompt is most of a request's time on two cores.
MOST_BYTES = {"bfcl": 1500, "schema": 800}
MAX_TOKENS = {"bfcl": 96, "schema": 96}
FLOOR_NLL_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """Margins, alpha, power and shares are fractions; margins by suite."""

    margins: Mapping[str, float]
    discordance: float
    alpha: float
    power: float

    def cases(self, suite: str) -> int:
        """Return the cases that `evalharness plan` asks for; BFCL's fill four equal categories."""
        needed = cases_needed(
            self.margins[suite], self.discordance, alpha=self.alpha, power=self.power
        ).by_gate
        return needed if suite != "bfcl" else -(-needed // len(CATEGORIES)) * len(CATEGORIES)


def harm_power(n: int, *, p_loss: float, p_win: float, alpha: float, contrasts: int) -> float:
    """Return the enumerated chance that the exact one-sided sign test shows harm in one cell.

    n cases with the given true shares of losses and wins; `contrasts`: cells judged together,
    over which the cell must hold at Holm's first and strictest step.
    """
    shared = p_loss + p_win
    discordant = np.arange(n + 1)
    # Fewest losses of m discordant cases that are significant: P(B >= k) <= alpha / contrasts.
    fewest = binom.isf(alpha / contrasts, discordant, 0.5) + 1
    shown = binom.sf(fewest - 1, discordant, p_loss / shared)
    return float((binom.pmf(discordant, n, shared) * shown).sum())


def has_schema() -> bool:
    """Say whether JSONSchemaBench's rows are on this machine."""
    return locate(KNOWN[SCHEMA_SOURCE]) is not None


def for_calibration(case_id: str) -> bool:
    """Say whether a case is kept for choosing the fault's strength."""
    return int(sha256_hex(f"calibration:{case_id}"), 16) % CALIBRATION_SHARE == 0


def drawn(suite: str, *, seed: int, take: int, group: str = "", calibration: bool) -> list[str]:
    """Return `take` case ids in the seed's order; ValueError where there are too few."""
    source = KNOWN["bfcl" if suite == "bfcl" else SCHEMA_SOURCE]
    found = rows(source)
    to_case = suite_named(suite).to_case
    pool = [
        row_id
        for row_id, row in found.items()
        if (not group or row_id.rpartition("_")[0] == group)
        and for_calibration(row_id) == calibration
        and len(to_case(row_id, row).prompt) <= MOST_BYTES[suite]
    ]
    if take > len(pool):
        raise ValueError(f"{suite} {group}: {take} cases wanted, {len(pool)} there")
    return sorted(pool, key=lambda row_id: sha256_hex(f"{seed}:{row_id}"))[:take]


def recipe(name: str, *, seed: int, sizes: Mapping[str, int], calibration: bool) -> dict[str, Any]:
    """Return a recipe that lists the seed's cases: sizes["bfcl"] over the four categories,
    sizes["schema"] with the schema in the prompt, sizes["nll"] packaged continuations."""
    suites: dict[str, Any] = {}
    each = sizes["bfcl"] // len(CATEGORIES)
    chosen = [
        drawn("bfcl", seed=seed, take=each, group=group, calibration=calibration)
        for group in CATEGORIES
    ]
    ids = [row_id for several in zip(*chosen, strict=True) for row_id in several]
    suites["bfcl"] = _entry("bfcl", "tools", "official/1", source="bfcl", select={"ids": ids})
    if sizes.get("schema"):
        ids = drawn("schema", seed=seed, take=sizes["schema"], calibration=calibration)
        suites["schema"] = _entry(
            "schema", "prompt", "strict/1", source=SCHEMA_SOURCE, select={"ids": ids}
        )
    if sizes.get("nll"):
        packaged = {"kind": "packaged", "id": "nll_demo", "revision": "1"}
        suites["nll"] = _entry(
            "nll", "decode", "raw/1", source=packaged, select={"take": sizes["nll"]}
        )
    for suite, entry in suites.items():
        if suite != "nll":
            entry["seed_salt"] = name
    return {"format": "evalharness/recipe/1", "name": name, "suites": suites}


def _entry(
    suite: str, mode: str, scorer: str, *, source: object, select: Mapping[str, Any]
) -> dict[str, Any]:
    sampling = {
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": MAX_TOKENS.get(suite, FLOOR_NLL_TOKENS),
        "extra": {"top_logprobs": 5} if suite == "nll" else {},
    }
    return {
        "source": source,
        "modes": [mode],
        "template": f"{suite}/1",
        "scorer": scorer,
        "sampling": sampling,
        "select": [dict(select)],
    }


def write_manifest(document: Mapping[str, Any], folder: Path) -> Path:
    """Write the recipe and the manifest that the builder makes of it; return the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{document['name']}.recipe.json"
    source.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    out = folder / f"{document['name']}.manifest.json"
    out.write_text(build_manifest(source).text, encoding="utf-8")
    return out
