"""Chapter 1: accuracy first (ligett2017, with its errata and the Brownian mechanism)."""

from adaptive_dp.accuracy_first.above_threshold import (
    Query,
    ValueQuery,
    accuracy_margin,
    false_acceptance_probability,
    halting_probability,
    interactive_above_threshold,
)
from adaptive_dp.accuracy_first.brownian import BrownianBoundary, brownian_levels, brownian_nr, brownian_walk
from adaptive_dp.accuracy_first.calibration import (
    above_threshold_epsilon,
    default_levels,
    doubling_levels,
    doubling_test_epsilon,
    minimiser_radius,
    minimiser_sensitivity,
    risk_query_sensitivity,
)
from adaptive_dp.accuracy_first.levels import GeometricLevels, ListedLevels, PrivacyLevels
from adaptive_dp.accuracy_first.mechanisms import (
    cov_nr,
    covariance_perturbation,
    doubling,
    output_nr,
    output_perturbation,
    theory_inversion,
)
from adaptive_dp.accuracy_first.noise_reduction import (
    NoisePath,
    noise_reduction,
    noise_reduction_marginal,
    step_characteristic_function,
)
from adaptive_dp.accuracy_first.problems import LogisticProblem, RidgeProblem, prepare
from adaptive_dp.accuracy_first.theory import expected_excess_risk, invert_sgd, invert_theory

__all__ = [
    "BrownianBoundary",
    "GeometricLevels",
    "ListedLevels",
    "LogisticProblem",
    "NoisePath",
    "PrivacyLevels",
    "Query",
    "RidgeProblem",
    "ValueQuery",
    "above_threshold_epsilon",
    "accuracy_margin",
    "brownian_levels",
    "brownian_nr",
    "brownian_walk",
    "cov_nr",
    "covariance_perturbation",
    "default_levels",
    "doubling",
    "doubling_levels",
    "doubling_test_epsilon",
    "expected_excess_risk",
    "false_acceptance_probability",
    "halting_probability",
    "interactive_above_threshold",
    "invert_sgd",
    "invert_theory",
    "minimiser_radius",
    "minimiser_sensitivity",
    "noise_reduction",
    "noise_reduction_marginal",
    "output_nr",
    "output_perturbation",
    "prepare",
    "risk_query_sensitivity",
    "step_characteristic_function",
    "theory_inversion",
]
