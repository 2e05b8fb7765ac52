"""Verdicts of a run: paired tables and a frozen plan in, admitted or not out. Pure."""

from evalharness.verdicts.growing import GrowingVerdict, judge_growing
from evalharness.verdicts.judge import judge

__all__ = ["GrowingVerdict", "judge", "judge_growing"]
