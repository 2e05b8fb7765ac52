"""Runs bfcl-eval's own checker from its wheel, for tests and benchmarks; never part of a score."""
