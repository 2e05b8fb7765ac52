"""Verdicts of a run: paired tables and a frozen plan in, admitted or not out. Pure."""

from evalharness.verdicts.judge import judge

__all__ = ["judge"]
