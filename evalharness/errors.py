"""Errors a user can fix, and the exit code each maps to.

Every message says what, where, expected, found, and what to do.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_SERVER = 3
EXIT_UNDECIDED = 10
EXIT_HARM = 11
EXIT_INCOMPLETE = 12


class HarnessError(Exception):
    """Base of every error that is the user's to fix; printed without a traceback."""

    exit_code = EXIT_USAGE


class ManifestError(HarnessError):
    """A manifest, its data or a case of it is missing, changed or malformed."""


class ArmsError(HarnessError):
    """The arms file is malformed, or describes arms that cannot be told apart."""


class PlanError(HarnessError):
    """The plan of a run is missing, changed, or contradicts what is asked now."""


class StoreError(HarnessError):
    """A run directory holds something that cannot be trusted, or is locked by another process."""


class DiskFullError(StoreError):
    """The disk is full: what is complete is safe, and the same command goes on from there."""

    exit_code = EXIT_INCOMPLETE


class ScoreError(HarnessError):
    """Scoring cannot start: unknown suite or scorer, or a needed checker is not installed."""


class ServerError(HarnessError):
    """A server could not be started, died, or is not the one that was asked for."""

    exit_code = EXIT_SERVER


class IncompleteError(HarnessError):
    """The command ended with cells that are not complete."""

    exit_code = EXIT_INCOMPLETE
