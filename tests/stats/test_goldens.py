"""Published and recomputed numbers, through the public functions only.

`stats_golden.json` runs everywhere. Where EVALHARNESS_VECTORS names a folder with
`statistics_golden.json`, its 31 cases run as well, in their own layout.

Cases of that file whose method the product does not offer, with the reason:
Agresti-Min and Bonett-Price intervals (G8): their type-I error exceeds the score test's;
the normal mixture bound (G21): unbounded data, ours is a bounded paired difference;
Pocock and O'Brien-Fleming (G23): looks are not declared, the e-process needs none;
Connor's and Chow-Shao-Wang's sample sizes (G24, G25): they power McNemar's test of a
difference, while the gate is non-inferiority. The Wald interval (G8) must never gate; it lives
in the calibration tests, where it has to fail.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evalharness.stats as stats

FIXTURES = Path(__file__).parents[1] / "fixtures"
ROWS = json.loads((FIXTURES / "stats_golden.json").read_text())["rows"]
ORDINARY = [row for row in ROWS if row["call"] != "loss_budget"]
BUDGETS = [row for row in ROWS if row["call"] == "loss_budget"]
NOT_OFFERED = {"G8", "G21", "G23", "G24", "G25"}
Triple = tuple[float, float, float]


def _pick(result: Any, path: str) -> float:
    if path == "value":
        return float(result)
    for part in path.split("."):
        result = result[int(part)] if part.isdigit() else getattr(result, part)
    return float(result)


@pytest.mark.parametrize(
    "row",
    [r for r in ROWS if r["call"] != "loss_budget"],
    ids=lambda r: f"{r['golden']}-{r['call']}",
)
def test_fixture_row(row: dict[str, Any]) -> None:
    result = getattr(stats, row["call"])(*row["args"], **row["kwargs"])
    for path, expected in row["expect"].items():
        assert _pick(result, path) == pytest.approx(expected, rel=0, abs=row["tolerance"]), path


@pytest.mark.parametrize("row", BUDGETS, ids=lambda r: str(r["args"]))
def test_loss_budget(row: dict[str, Any]) -> None:
    wins, losses, n, margin = row["args"]
    assert stats.noninferiority(wins, losses, n, margin).p_score <= 0.025
    assert stats.noninferiority(wins, losses + 1, n, margin).p_score > 0.025


def test_petersen_clustered_coefficients() -> None:
    """G20: an OLS coefficient with the other regressor partialled out is a ratio over firms."""
    data = json.loads((FIXTURES / "petersen_by_firm.json").read_text())
    small_sample = math.sqrt((data["rows"] - 1) / (data["rows"] - data["regressors"]))
    for name, coefficient, se in (
        ("intercept", 0.0296797, 0.0670127),
        ("slope", 1.034833, 0.0505957),
    ):
        ratio = stats.cluster_ratio(data[name]["sums"], data[name]["sizes"])
        assert ratio.estimate == pytest.approx(coefficient, abs=5e-7)
        assert ratio.se * small_sample == pytest.approx(se, abs=1e-7)


def _vectors() -> dict[str, dict[str, Any]]:
    folder = os.environ.get("EVALHARNESS_VECTORS")
    path = Path(folder) / "statistics_golden.json" if folder else None
    if path is None or not path.is_file():
        return {}
    return {case["id"]: case for case in json.loads(path.read_text())}


VECTORS = _vectors()


def _tango(g: dict[str, Any]) -> Iterator[Triple]:
    i = g["inputs"]
    a, d = i.get("a", 0), i.get("d", i.get("n", 0) - i["b"] - i["c"])
    confidence = 0.90 if "90%" in g["method"] else 0.95
    found = stats.tango_interval(a, i["b"], i["c"], d, confidence)
    for kind in ("published", "recomputed"):
        if g[kind] is not None:
            yield from ((f, e, g["tol"]) for f, e in zip(found, g[kind], strict=True))


def _g2(g: dict[str, Any]) -> Iterator[Triple]:
    i = g["inputs"]
    found = stats.noninferiority(i["w"], i["l"], i["n"], i["margin"])
    for kind in ("published", "recomputed"):
        yield found.z, g[kind]["z"], g["tol"]
        yield found.p_score, g[kind]["p"], g["tol"]


def _mcnemar(g: dict[str, Any]) -> Iterator[Triple]:
    i, r, p = g["inputs"], g["recomputed"], g["published"]
    m = stats.mcnemar(i.get("a", 0), i["b"], i["c"], i.get("d", 0))
    s = stats.sign_test(max(i["b"], i["c"]), min(i["b"], i["c"]))
    for found, name in (
        (m.p_chi2, "asym"),
        (m.p_cc, "cc"),
        (m.p_exact, "exact"),
        (m.p_mid, "midp"),
    ):
        yield found, p[name], g["tol"]
    yield from (
        (m.chi2, r["chi2"], 1e-6), (m.p_chi2, r["asym"], 1e-6), (m.chi2_cc, r["chi2cc"], 1e-6),
        (m.p_cc, r["cc"], 1e-6), (m.p_exact, r["exact2"], 1e-6), (m.p_mid, r["mid2"], 1e-6),
        (s.p_one_sided, r["exact1"], 1e-6), (s.p_mid_one_sided, r["mid1"], 1e-6),
    )  # fmt: skip


def _g7(g: dict[str, Any]) -> Iterator[Triple]:
    i = g["inputs"]
    found = stats.newcombe_interval(i["a"], i["b"], i["c"], i["d"])
    yield from ((f, e, g["tol"]) for f, e in zip(found, g["published"], strict=True))


def _g11(g: dict[str, Any]) -> Iterator[Triple]:
    for (b, c), p in zip(g["inputs"]["pairs"], g["published"], strict=True):
        yield stats.mcnemar(0, b, c, 0).p_exact, p, g["tol"]


def _g12(g: dict[str, Any]) -> Iterator[Triple]:
    m = stats.mcnemar(0, g["inputs"]["b"], g["inputs"]["c"], 0)
    found = (m.chi2, m.p_chi2, m.chi2_cc, m.p_cc)
    expected = (*g["published"]["nocc"], *g["published"]["cc"])
    yield from ((f, e, g["tol"]) for f, e in zip(found, expected, strict=True))


def _g13(g: dict[str, Any]) -> Iterator[Triple]:
    s, r = stats.sign_test(g["inputs"]["losses"], g["inputs"]["wins"]), g["recomputed"]
    yield from (
        (s.p_one_sided, r["one_sided"], g["tol"]), (s.p_two_sided, r["two_sided"], g["tol"]),
        (s.p_mid_one_sided, r["midp_one"], g["tol"]), (s.p_mid_two_sided, r["midp_two"], g["tol"]),
    )  # fmt: skip


def _g14(g: dict[str, Any]) -> Iterator[Triple]:
    q = stats.cochran_q(g["inputs"]["x"])
    yield q.q, g["published"]["Q"], g["tol"]
    yield q.p, g["published"]["p"], g["tol"]


def _holm(g: dict[str, Any]) -> Iterator[Triple]:
    found, tolerance = stats.holm(g["inputs"]["p"]), g["tol"]
    if g["id"] == "G15":  # published in the order of the raw p-values
        found = tuple(sorted(found))
        first = zip(found[:4], g["published"]["sorted_first4"], strict=True)
        yield from ((f, e, tolerance) for f, e in first)
    yield from ((f, e, tolerance) for f, e in zip(found, g["recomputed"], strict=True))


def _g17(g: dict[str, Any]) -> Iterator[Triple]:
    i, p = g["inputs"], g["published"]
    found = stats.tost_paired(i["x"], i["y"], -i["eps"], i["eps"])
    yield found.p, p["p"], g["tol"]
    yield from ((f, e, g["tol"]) for f, e in zip(found.interval, p["ci90"], strict=True))


def _g18(g: dict[str, Any]) -> Iterator[Triple]:
    x = np.array(g["inputs"]["x"])
    n, theta = x.size, float(x.var())
    sums = stats.bootstrap_sums(np.column_stack([x, x * x]), 200_000, 1) / n
    left_out = [float(np.delete(x, i).var()) for i in range(n)]
    replicates = sums[:, 1] - sums[:, 0] ** 2
    found = stats.bca_interval(replicates, theta, left_out, 0.90)
    yield theta, g["published"]["theta"], g["tol"]["theta"]
    for kind in ("published", "recomputed"):
        yield from ((f, e, 0.03 * e) for f, e in zip(found, g[kind]["bca"], strict=True))
    percentile = np.quantile(replicates, [0.05, 0.95])
    yield from (
        (float(f), e, 0.03 * e) for f, e in zip(percentile, g["published"]["pct"], strict=True)
    )


def _g19(g: dict[str, Any]) -> Iterator[Triple]:
    x = g["inputs"]["x"]
    for method in ("percentile", "bca"):
        b = stats.cluster_bootstrap(x, [1] * len(x), 400_000, 1, 0.95, method)
        for kind in ("published", "recomputed"):
            yield from (
                (f, e, 0.005 * e) for f, e in zip((b.lower, b.upper), g[kind][method], strict=True)
            )


def _g20(g: dict[str, Any]) -> Iterator[Triple]:
    data = json.loads((FIXTURES / "petersen_by_firm.json").read_text())
    scale = math.sqrt((data["rows"] - 1) / (data["rows"] - data["regressors"]))
    for k, name in enumerate(("intercept", "slope")):
        ratio = stats.cluster_ratio(data[name]["sums"], data[name]["sizes"])
        yield ratio.estimate, g["recomputed"]["coef"][k], g["tol"]
        yield ratio.se * scale, g["published"]["cluster_se"][k], g["tol"]


def _g22(g: dict[str, Any]) -> Iterator[Triple]:
    i = g["inputs"]
    found = stats.bernoulli_confidence_sequence(i["s"], i["n"], i["alpha"], i["t_opt"])
    yield from ((f, e, g["tol"]) for f, e in zip(found, g["published"], strict=True))


def _g26(g: dict[str, Any]) -> Iterator[Triple]:
    i = g["inputs"]
    found = stats.required_items(
        i["omega2"], i["sigma2"], i["delta"], alpha=i["alpha"], power=i["power"]
    )
    yield found, g["published"], 0


def _g27(g: dict[str, Any]) -> Iterator[Triple]:
    functions = {"wilson": stats.wilson_interval, "cp": stats.clopper_pearson}
    for name, function in functions.items():
        for (k, n), limits in zip(g["inputs"]["cases"], g["published"][name], strict=True):
            yield from ((f, e, g["tol"]) for f, e in zip(function(k, n), limits, strict=True))


def _g28(g: dict[str, Any]) -> Iterator[Triple]:
    for n, lower in zip(g["inputs"]["n"], g["recomputed"], strict=True):
        yield stats.tango_interval(0, 0, 0, n, g["inputs"]["conf"]).lower, lower, g["tol"]


def _g29(g: dict[str, Any]) -> Iterator[Triple]:
    i = g["inputs"]
    d = [1] * i["w"] + [-1] * i["l"] + [0] * (i["n"] - i["w"] - i["l"])
    b = stats.cluster_bootstrap(d, [1] * len(d), 2_000_000, 1, 0.95, "percentile")
    yield from ((f, e, g["tol"]) for f, e in zip((b.lower, b.upper), g["recomputed"], strict=True))


def _g30(g: dict[str, Any]) -> Iterator[Triple]:
    i = g["inputs"]
    for psi, expected in zip(i["discordance"], g["recomputed"], strict=True):
        rates = {"p_win": (psi - i["margin"]) / 2, "p_loss": (psi + i["margin"]) / 2}
        found = stats.admission_probability(
            i["n"], i["margin"], **rates, alpha=i["alpha"], exact=False
        )
        yield found, expected, g["tol"]


def _g31(g: dict[str, Any]) -> Iterator[Triple]:
    patterns = g["inputs"]["patterns_y0_yA_yB_yAB"]
    y = np.array(
        [json.loads(f"[{k[1:-1]}]") for k, count in patterns.items() for _ in range(count)]
    )
    effects = stats.factorial_effects(y, [(0, 0), (1, 0), (0, 1), (1, 1)])
    r, n = g["recomputed"], len(y)
    for i, name in enumerate(("A", "B", "AB")):
        yield effects[name].estimate, r[name][0], g["tol"]
        yield effects[name].se, r[name][1], g["tol"]
        yield effects[name].se * math.sqrt((n - 1) / n), r["gee_robust_se"][i], g["tol"]
        yield effects[name].p, r["signflip_two_sided"][i], g["tol"]
    q = stats.cochran_q(y)
    yield from ((f, e, g["tol"]) for f, e in zip((q.q, q.p), r["cochran"], strict=True))


CHECKS: dict[str, Callable[[dict[str, Any]], Iterator[Triple]]] = {
    "G1": _tango, "G2": _g2, "G3": _tango, "G4": _mcnemar, "G5": _mcnemar, "G6": _tango,
    "G7": _g7, "G9": _tango, "G10": _tango, "G11": _g11, "G12": _g12, "G13": _g13, "G14": _g14,
    "G15": _holm, "G16": _holm, "G17": _g17, "G18": _g18, "G19": _g19, "G20": _g20, "G22": _g22,
    "G26": _g26, "G27": _g27, "G28": _g28, "G29": _g29, "G30": _g30, "G31": _g31,
}  # fmt: skip


@pytest.mark.skipif(not VECTORS, reason="EVALHARNESS_VECTORS has no statistics_golden.json")
@pytest.mark.parametrize("golden", CHECKS)
def test_golden_file(golden: str) -> None:
    triples = list(CHECKS[golden](VECTORS[golden]))
    assert triples
    for found, expected, tolerance in triples:
        assert found == pytest.approx(expected, rel=0, abs=tolerance)


@pytest.mark.skipif(not VECTORS, reason="EVALHARNESS_VECTORS has no statistics_golden.json")
def test_every_golden_is_checked_or_named() -> None:
    assert set(VECTORS) == set(CHECKS) | NOT_OFFERED
    assert not set(CHECKS) & NOT_OFFERED
