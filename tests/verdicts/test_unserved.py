"""An arm whose flag is on and whose route never ran is incomplete, however well it scores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from evalharness.noninferiority import _unserved
from evalharness.runs import Run
from evalharness.verdicts import judge
from tests.verdicts.build import plan, table

HC = "VLLM_SM70_QWEN38_BATCH_HC_FP16"
SENTENCE = f"launch 2: rank 0: {HC} is on, its route hyper_connection never ran"


def test_good_scores_do_not_admit_a_route_that_never_ran() -> None:
    tables = [table({"hc": (0, 0), "aa": (0, 0)})]
    served = judge(plan(), tables).arms[0]
    unserved = judge(plan(unserved=(("hc", SENTENCE),)), tables).arms[0]
    assert served.verdict == "admitted"
    assert unserved.verdict == "incomplete"
    assert unserved.reason == SENTENCE
    assert judge(plan(unserved=(("hc", SENTENCE),)), tables).exit_code == 12


def test_another_arms_route_is_its_own_business() -> None:
    tables = [table({"hc": (0, 0), "aa": (0, 0)})]
    assert judge(plan(unserved=(("moe", SENTENCE),)), tables).arms[0].verdict == "admitted"


def run(routes: list[dict[str, Any]], *, used: bool = True) -> Run:
    record = {
        "rank": 0,
        "flags": {HC: True},
        "flag_routes": {HC: "hyper_connection"},
        "routes": routes,
    }
    arms = [
        {"name": "control", "env": {"VLLM_PLUGINS": "kernels_sm70"}},
        {"name": "hc", "env": {HC: "1", "VLLM_PLUGINS": "kernels_sm70"}},
    ]
    servers = [
        {"arm": "control", "launch": 1, "route_hits": []},
        {"arm": "hc", "launch": 2, "route_hits": [record]},
    ]
    cell = SimpleNamespace(key=SimpleNamespace(arm="hc"), launch=2)
    cells = {"one": cell} if used else {}
    return cast(Run, SimpleNamespace(plan={"arms": arms}, servers=servers, cells=cells))


def test_what_the_servers_left_is_read() -> None:
    hit = [{"route": "hyper_connection", "m": 4, "hits": 3}]
    assert list(_unserved([run(hit)])) == []
    assert list(_unserved([run([])])) == [("hc", SENTENCE)]
    # A launch that no cell came from says nothing about the arm.
    assert list(_unserved([run([], used=False)])) == []
