"""The suites there are: an explicit tuple, one line each."""

from __future__ import annotations

from evalharness import bfcl, gsm8k, nll, schema, speed
from evalharness.errors import ManifestError
from evalharness.suite import Suite

SUITES: tuple[Suite, ...] = (
    bfcl.SUITE,
    schema.SUITE,
    gsm8k.SUITE,
    nll.SUITE,
    speed.SUITE,
)


def suite_named(name: str) -> Suite:
    """Return the suite of that name. Raises ManifestError if there is none."""
    for suite in SUITES:
        if suite.name == name:
            return suite
    known = ", ".join(suite.name for suite in SUITES)
    raise ManifestError(f"unknown suite {name!r}; expected one of {known}")
