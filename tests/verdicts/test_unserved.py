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


def run(
    routes: list[dict[str, Any]], *, used: bool = True, served: bool = True, argv: Any = ()
) -> Run:
    record = {
        "rank": 0,
        "flags": {HC: True},
        "flag_routes": {HC: "hyper_connection"},
        "routes": routes,
    }
    arms = [
        {"name": "control", "argv": [], "env": {"VLLM_PLUGINS": "kernels_sm70"}},
        {"name": "hc", "argv": argv, "env": {HC: "1", "VLLM_PLUGINS": "kernels_sm70"}},
    ]
    servers: list[dict[str, Any]] = [
        {"arm": "control", "launch": 1, "route_hits": []},
        {"arm": "hc", "launch": 2, "route_hits": [record]},
    ]
    cell = SimpleNamespace(key=SimpleNamespace(arm="hc"), launch=2)
    cells = {"one": cell} if used else {}
    servers = servers if served else servers[:1]
    return cast(Run, SimpleNamespace(plan={"arms": arms}, servers=servers, cells=cells))


def test_what_the_servers_left_is_read() -> None:
    hit = [{"route": "hyper_connection", "m": 4, "hits": 3}]
    assert list(_unserved([run(hit)])) == []
    assert list(_unserved([run([])])) == [("hc", SENTENCE)]
    # A launch that no cell came from says nothing about the arm.
    assert list(_unserved([run([], used=False)])) == []


def test_a_launch_without_its_servers_record_proves_nothing() -> None:
    hit = [{"route": "hyper_connection", "m": 4, "hits": 3}]
    ((arm, text),) = _unserved([run(hit, served=False)])
    assert arm == "hc" and text.startswith("launch 2: no server.json says what served it")


def test_both_ranks_of_two_must_have_reported() -> None:
    hit = [{"route": "hyper_connection", "m": 4, "hits": 3}]
    for argv in (("-tp", "2"), ("--tensor_parallel_size=2",)):
        ((arm, text),) = _unserved([run(hit, argv=argv)])
        assert arm == "hc" and "only rank 0 reported route hits" in text
