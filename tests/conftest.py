"""What holds for every test: no timing decides one."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Both would fail a sound test on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
