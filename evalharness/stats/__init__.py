"""Paired statistics for one question: did this flag hurt the model?

Pure functions, numbers in and frozen values out; numpy and scipy only. A paired table is
a = both right, b = first only, c = second only, d = neither; a difference is first minus
second, as a fraction of cases.
"""

from evalharness.stats._cluster import (
    bca_interval,
    cluster_bootstrap,
    cluster_ratio,
    ratio_equivalence,
)
from evalharness.stats._discordant import cochran_q, mcnemar, sign_test
from evalharness.stats._equivalence import tost_paired
from evalharness.stats._exact import EXACT_LIMIT, admission_probability, exact_unconditional_p
from evalharness.stats._factorial import factorial_effects
from evalharness.stats._gate import noninferiority, smallest_admitted_margin
from evalharness.stats._multiplicity import fixed_sequence, holm
from evalharness.stats._planning import required_cases, required_items, smallest_margin
from evalharness.stats._proportions import clopper_pearson, wilson_interval
from evalharness.stats._replays import design_effect, excess_discordance, pooled_noninferiority
from evalharness.stats._resample import bootstrap_sums, resample_counts
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
from evalharness.stats._sequential import bernoulli_confidence_sequence, noninferiority_e_process

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
    "bca_interval",
    "bernoulli_confidence_sequence",
    "bootstrap_sums",
    "clopper_pearson",
    "cluster_bootstrap",
    "cluster_ratio",
    "cochran_q",
    "design_effect",
    "exact_unconditional_p",
    "excess_discordance",
    "factorial_effects",
    "fixed_sequence",
    "holm",
    "mcnemar",
    "newcombe_interval",
    "noninferiority",
    "noninferiority_e_process",
    "pooled_noninferiority",
    "ratio_equivalence",
    "required_cases",
    "required_items",
    "resample_counts",
    "score_limit",
    "score_z",
    "sign_test",
    "smallest_admitted_margin",
    "smallest_margin",
    "tango_interval",
    "tost_paired",
    "wilson_interval",
]
