"""The seed of a request: equal across arms and concurrency, different across replays."""

from __future__ import annotations

from evalharness.types import canonical_json, sha256_hex


def request_seed(run_seed: int, *, suite: str, case_id: str, replicate: int, salt: str = "") -> int:
    """Return the sampling seed of one request, 0 <= seed < 2**31."""
    text = canonical_json([run_seed, suite, case_id, replicate, salt])
    return int(sha256_hex(text)[:8], 16) & 0x7FFFFFFF
