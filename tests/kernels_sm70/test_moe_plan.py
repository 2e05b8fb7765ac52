# SPDX-License-Identifier: Apache-2.0
"""The MoE plan on the CPU: the emulated device code against the oracle, integer for integer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_sm70 import emulate
from kernels_sm70.moe_grouped import MAX_ROUTES, PLAN_GROUP, PLAN_HEADER, launch, reference
from tests.kernels_sm70.moe_support import only_what_runs


def emulated_plan(
    ids: torch.Tensor, experts: int, *, source_text: str | None = None
) -> torch.Tensor:
    plan = torch.full((PLAN_HEADER + PLAN_GROUP * ids.numel(),), -77, dtype=torch.int32)
    arrivals = torch.full((launch.ARRIVALS,), 5, dtype=torch.int32)
    args = launch.PlanArgs(
        ids.data_ptr(),
        plan.data_ptr(),
        arrivals.data_ptr(),
        None,
        ids.numel(),
        ids.shape[1],
        experts,
    )
    emulate.run(
        emulate.library("moe_grouped", source_text=source_text),
        "ks_moe_plan",
        args,
        launch=emulate.Launch((1, 1, 1)),
    )
    assert not arrivals.any()
    return plan


def live_part(plan: torch.Tensor) -> list[int]:
    return plan[: PLAN_HEADER + PLAN_GROUP * int(plan[0])].tolist()


@st.composite
def id_tables(draw: st.DrawFn) -> torch.Tensor:
    rows, top_k = draw(st.integers(1, 40)), draw(st.integers(1, 12))
    ids = draw(st.lists(st.integers(-1, 9), min_size=rows * top_k, max_size=rows * top_k))
    return torch.tensor(ids, dtype=torch.int32).view(rows, top_k)


@settings(max_examples=40, deadline=None)
@given(id_tables())
def test_plan_equals_the_oracle_for_any_ids(ids: torch.Tensor) -> None:
    assert live_part(emulated_plan(ids, 8)) == live_part(reference.plan(ids, 8))


def test_plan_at_its_limit() -> None:
    ids = torch.arange(MAX_ROUTES, dtype=torch.int32).view(64, 16) % 3
    plan = emulated_plan(ids, 3)
    assert live_part(plan) == live_part(reference.plan(ids, 3))
    places = plan[PLAN_HEADER:].view(-1, PLAN_GROUP)[: int(plan[0])]
    routes = places[:, 4:][places[:, 4:] >= 0]
    assert sorted(routes.tolist()) == list(range(MAX_ROUTES))


PLAN_MUTATIONS = {
    "a group of nine": ("rank - rank % kGroupRoutes", "rank - rank % 9"),
    "earlier steps forgotten": ("skip >= 0 ? leader_group : seen >> 16", "leader_group"),
    "swapped places": ("group[4 + place] = route;", "group[4 + (place ^ 1)] = route;"),
    "one step's counts lost": ("(rank + 1);", "rank;"),
    "dropped ids not counted": ("routes - total[1]", "0"),
    "unused places left": ("group[4 + i] = -1;", "group[4 + i] = 0;"),
}


@pytest.mark.slow  # compiles a mutated source
@pytest.mark.parametrize("mutation", PLAN_MUTATIONS)
def test_mutated_plans_fail_the_oracle(mutation: str) -> None:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(-1, 5, (30, 4), generator=generator, dtype=torch.int32)
    text = only_what_runs(emulate.mutated("moe_grouped", *PLAN_MUTATIONS[mutation]))
    found = emulated_plan(ids, 5, source_text=text)
    assert live_part(found) != live_part(reference.plan(ids, 5))
