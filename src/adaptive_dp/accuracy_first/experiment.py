"""One trial of the experiments of Section 4: what a method costs, and what it delivers.

The functions here return plain numbers, so that trials can run in other processes and be stored; they read
a release's private trace, which is why their output is for teaching and never for publication.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from adaptive_dp.accuracy_first.brownian import brownian_nr
from adaptive_dp.accuracy_first.mechanisms import Hypothesis, cov_nr, doubling, output_nr, theory_inversion
from adaptive_dp.accuracy_first.problems import Problem, RidgeProblem
from adaptive_dp.validation import check_choice

METHODS = ("noise reduction", "doubling", "theory", "brownian")

#: delta of the Brownian runs and the loss at which their boundary is tightest; public choices.
BROWNIAN_DELTA = 1e-6
BROWNIAN_TUNED_EPSILON = {"ridge": 0.3, "logistic": 0.05}


def method_of(method: str, problem: Problem, calibration: str, failure: float) -> Callable[..., Hypothesis]:
    """The mechanism that a method's name stands for on this problem, with everything but alpha and rng bound."""
    check_choice("method", method, METHODS)
    mechanism = "covariance" if isinstance(problem, RidgeProblem) else "output"
    if method == "noise reduction":
        search = cov_nr if mechanism == "covariance" else output_nr
        return partial(search, problem, failure=failure, calibration=calibration)
    if method == "doubling":
        return partial(doubling, problem, mechanism=mechanism, failure=failure, calibration=calibration)
    if method == "theory":
        return partial(theory_inversion, problem, mechanism=mechanism, calibration=calibration)
    tuned = BROWNIAN_TUNED_EPSILON[problem.task]
    return partial(
        brownian_nr,
        problem,
        mechanism=mechanism,
        failure=failure,
        delta=BROWNIAN_DELTA,
        tuned_epsilon=tuned,
        calibration=calibration,
    )


def run_trial(
    rng: np.random.Generator,
    *,
    method: str,
    calibration: str,
    alpha: float,
    problem: Problem,
    failure: float = 0.1,
) -> dict[str, float]:
    """One run of one method: the loss it reports and its parts, the excess risk and the norm it delivers.

    Returns
    -------
    dict
        ``epsilon``, ``test``, ``generate`` (0 where a method has no such part), ``refused`` (0 or 1), ``index``
        (-1 for a refusal or a one-shot method), ``excess_risk`` and ``norm`` (NaN for a refusal).
    """
    release = method_of(method, problem, calibration, failure)(alpha=alpha, rng=rng)
    parts = release.guarantee.parts
    theta = None if release.refused else np.asarray(release.value)
    return {
        "epsilon": release.guarantee.epsilon,
        "test": parts.get("test", 0.0),
        "generate": parts.get("generate", 0.0),
        "refused": float(release.refused),
        "index": -1.0 if release.index is None else float(release.index),
        "excess_risk": float("nan") if theta is None else problem.excess_risk(theta),
        "norm": float("nan") if theta is None else float(np.linalg.norm(theta)),
    }


def paper_alphas() -> list[float]:
    """The grid of Figures 1 to 4: 0.005, 0.010, ..., 0.200."""
    return [round(0.005 * step, 3) for step in range(1, 41)]


def warm(problem: Problem) -> Problem:
    """Compute everything that a problem caches, so that trials in other processes do not do it again."""
    _ = problem.minimiser, problem.excess_risk(problem.minimiser)
    if not isinstance(problem, RidgeProblem):
        _ = problem.data_hessian, problem.least_risk
    return problem
