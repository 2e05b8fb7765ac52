"""Paired statistics for one question: did this flag hurt the model?

Pure functions, numbers in and frozen values out; numpy and scipy only. A paired table is
a = both right, b = first only, c = second only, d = neither; a difference is first minus
second, as a fraction of cases.
"""

from evalharness.stats._discordant import cochran_q, mcnemar, sign_test
from evalharness.stats._exact import EXACT_LIMIT, admission_probability, exact_unconditional_p
from evalharness.stats._gate import noninferiority, smallest_admitted_margin
from evalharness.stats._proportions import clopper_pearson, wilson_interval
from evalharness.stats._results import (
    BootstrapInterval,
    CochranQ,
    EProcess,
    Equivalence,
    ExcessDiscordance,
    FactorialEffect,
    FactorialEffects,
    GateVerdict,
    Interval,
    McNemar,
    Noninferiority,
    PooledNoninferiority,
    RatioEstimate,
    SignTest,
    Tost,
)
from evalharness.stats._score import newcombe_interval, score_limit, score_z, tango_interval

__all__ = [
    "EXACT_LIMIT",
    "BootstrapInterval",
    "CochranQ",
    "EProcess",
    "Equivalence",
    "ExcessDiscordance",
    "FactorialEffect",
    "FactorialEffects",
    "GateVerdict",
    "Interval",
    "McNemar",
    "Noninferiority",
    "PooledNoninferiority",
    "RatioEstimate",
    "SignTest",
    "Tost",
    "admission_probability",
    "clopper_pearson",
    "cochran_q",
    "exact_unconditional_p",
    "mcnemar",
    "newcombe_interval",
    "noninferiority",
    "score_limit",
    "score_z",
    "sign_test",
    "smallest_admitted_margin",
    "tango_interval",
    "wilson_interval",
]
