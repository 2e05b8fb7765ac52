"""A flag that is on and a route that never ran: said, for every rank."""

from __future__ import annotations

from typing import Any

from evalharness.route_coverage import uncovered

HC, MOE = "VLLM_SM70_QWEN38_BATCH_HC_FP16", "VLLM_SM70_QWEN38_GROUPED_MOE"


def record(rank: int = 0, **hits: int) -> dict[str, Any]:
    return {
        "rank": rank,
        "flags": {HC: True, MOE: True},
        "flag_routes": {HC: "hyper_connection", MOE: "moe_grouped"},
        "routes": [{"route": name, "m": 4, "hits": n} for name, n in hits.items()],
    }


def test_routes_that_ran_in_every_rank() -> None:
    ranks = [record(n, hyper_connection=5, moe_grouped=1) for n in range(2)]
    assert uncovered({HC: "1", MOE: "1", "VLLM_PLUGINS": "kernels_sm70"}, ranks, 2) == []


def test_one_rank_without_hits() -> None:
    ranks = [record(0, hyper_connection=5, moe_grouped=1), record(1, hyper_connection=5)]
    assert uncovered({HC: "1", MOE: "1"}, ranks, 2) == [
        f"rank 1: {MOE} is on, its route moe_grouped never ran"
    ]


def test_zero_hits_are_no_hits() -> None:
    assert uncovered({HC: "1"}, [record(hyper_connection=0)], 1)


def test_only_asked_flags_are_looked_at() -> None:
    assert uncovered({HC: "0", "OMP_NUM_THREADS": "1"}, [record()], 1) == []


def test_no_report_at_all() -> None:
    env = {HC: "1", "VLLM_PLUGINS": "kernels_sm70"}
    assert uncovered(env, [], 1) == [f"{HC}=1 was asked for, but no process reported route hits"]
    assert uncovered({HC: "0", "VLLM_PLUGINS": "kernels_sm70", "VLLM_X": "1"}, [], 1) == []


def test_the_plugin_contradicts_the_arm() -> None:
    one = record(hyper_connection=3) | {"flags": {HC: False, MOE: True}}
    assert "says it is off" in uncovered({HC: "1"}, [one], 1)[0]


def test_a_rank_that_reported_nothing() -> None:
    """Of two ranks one is there and complete; its silence about the other is not coverage."""
    ranks = [record(0, hyper_connection=5, moe_grouped=1)]
    assert uncovered({HC: "1"}, ranks, 2) == [
        "2 processes serve the arm, only rank 0 reported route hits"
    ]
    assert uncovered({HC: "0"}, ranks, 2) == []
