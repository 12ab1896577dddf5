"""Small computations that the chapter sets beside its theorems: brute force, simulation, a second method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from adaptive_dp import goe
from adaptive_dp.datasets import Dataset, simulate_unit_rows
from adaptive_dp.losses import LogisticLoss, Loss, SmoothDistanceLoss, SmoothLoss, SquaredLoss
from adaptive_dp.noise import gaussian
from adaptive_dp.noise import goe as goe_noise
from adaptive_dp.per_instance.ex_post import losses_of_members, losses_of_outsiders
from adaptive_dp.per_instance.noisy_objective import RULES, NoisyHessian
from adaptive_dp.per_instance.objective import Objective, ObjectiveAt
from adaptive_dp.privacy import Domain
from adaptive_dp.validation import FloatArray, check_count, check_generator

LOSSES: tuple[Loss | SmoothLoss, ...] = (LogisticLoss(), SquaredLoss(), SmoothDistanceLoss(0.7))
STEP = 1e-3
# Central differences of order eight: error STEP^8 times the ninth derivative, far below rounding over STEP.
WEIGHTS = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}


def numerical_log_density(objective: Objective, theta: FloatArray, *, sigma: float) -> float:
    """Log density of the published theta with a *numerical* Jacobian of theta -> b, up to the same constant.

    Knows nothing of Hessians: only gradients of the objective are evaluated.
    """

    def noise(point: FloatArray) -> FloatArray:
        return -objective.derivatives(point)[0]

    jacobian = np.array(
        [
            sum(
                weight * (noise(theta + k * STEP * axis) - noise(theta - k * STEP * axis)) / STEP
                for k, weight in WEIGHTS.items()
            )
            for axis in np.eye(theta.size)
        ]
    )
    b = noise(theta)
    return -float(b @ b) / (2 * sigma**2) + float(np.linalg.slogdet(jacobian)[1])


def random_people(rows: int, columns: int, rng: np.random.Generator) -> Dataset:
    """Records in the unit ball with labels of both signs, for checks."""
    features = rng.standard_normal((check_count("rows", rows), check_count("columns", columns)))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, np.newaxis]
    return Dataset(features, rng.choice([-1.0, 1.0], rows), Domain("l2", 1.0, "sign"))


def density_check(
    *,
    trials: int,
    rng: np.random.Generator,
    rows: int = 7,
    columns: int = 4,
    lam: float = 0.7,
    sigma: float = 1.3,
) -> pd.DataFrame:
    """Largest difference between the exact loss and the numerical density ratio over random instances.

    Returns
    -------
    DataFrame
        Columns ``loss``, ``removed``, ``added`` (largest absolute differences), one row a loss function.
    """
    check_generator(rng)
    found = []
    for loss in LOSSES:
        removed = added = 0.0
        for _ in range(check_count("trials", trials)):
            whole = random_people(rows, columns, rng)
            rest = whole.take(np.arange(rows - 1))
            theta = rng.standard_normal(columns)
            full, smaller = Objective(whole, loss, lam), Objective(rest, loss, lam)
            ratio = numerical_log_density(full, theta, sigma=sigma) - numerical_log_density(
                smaller, theta, sigma=sigma
            )
            member = losses_of_members(full, theta, sigma=sigma).signed[-1]
            outsider = losses_of_outsiders(
                smaller, theta, features=whole.features[-1:], labels=whole.labels[-1:], sigma=sigma
            ).signed[0]
            removed, added = max(removed, abs(member - ratio)), max(added, abs(outsider + ratio))
        name = type(loss).__name__.removesuffix("Loss")
        found.append({"loss": f"{name} loss", "removed": removed, "added": added})
    return pd.DataFrame(found)


def largest_eigenvalues(dimension: int, *, trials: int, rng: np.random.Generator) -> FloatArray:
    """Largest eigenvalues of simulated matrices of the ensemble, shape (trials,)."""
    return np.array(
        [np.linalg.eigvalsh(goe_noise(1.0, dimension, rng))[-1] for _ in range(check_count("trials", trials))]
    )


def late_choice(
    *, trials: int, rng: np.random.Generator, dimension: int = 20, rows: int = 30, sigma: float = 2.0
) -> pd.DataFrame:
    """|<b, x>| / (sigma ||x||) for a person fixed before the noise b, and for the record along the published theta.

    Logistic regression at lam = 1 on simulated rows.

    Returns
    -------
    DataFrame
        Columns ``fixed`` and ``chosen``, one row a release.
    """
    people = simulate_unit_rows(rows, dimension, check_generator(rng))
    objective, x = Objective(people, LogisticLoss(), 1.0), people.features[0]
    found = []
    for _ in range(check_count("trials", trials)):
        b = gaussian(sigma, dimension, rng)
        theta = objective.minimise(b).theta
        found.append((abs(b @ x) / sigma, abs(b @ theta) / (sigma * np.linalg.norm(theta))))
    return pd.DataFrame(found, columns=["fixed", "chosen"])


def leverage_rules(point: ObjectiveAt, *, sigma: float, rho: float, rng: np.random.Generator) -> pd.DataFrame:
    """How much each rule overestimates leverage, from one noisy Hessian of a generalised linear loss.

    Parameters
    ----------
    point : ObjectiveAt
        The objective at a published theta; its lam should be at least 2 sigma tau, as Algorithm 2 requires.
    sigma : float
        Noise scale of the Hessian.
    rho : float
        Failure probability of the bound of the noise.

    Returns
    -------
    DataFrame
        Columns ``rule``, ``median`` and ``largest``: bound over truth, over the members.
    """
    people = point.objective.people
    records = point.records(people.features, people.labels)
    exact = records.relative_eigenvalues(point.factor)[:, 0]
    noisy = point.hessian + goe_noise(sigma, point.theta.size, rng)
    noise_bound = sigma * goe.operator_norm_bound(rho, point.theta.size)
    rows = [("ridge only", records.hessian_norms / point.objective.lam)]
    for rule in RULES:
        published = NoisyHessian(noisy, sigma, noise_bound, point.objective.lam, rule)
        rows.append((rule, published.relative_upper(records)[:, 0]))
    return pd.DataFrame(
        [(rule, np.median(bound / exact), np.max(bound / exact)) for rule, bound in rows],
        columns=["rule", "median", "largest"],
    )


def goe_agreement(
    dimensions: Sequence[int], *, probabilities: Sequence[float] = (0.01, 0.5, 0.99)
) -> pd.DataFrame:
    """Exact distribution function in double precision against the one in high precision.

    Returns
    -------
    DataFrame
        Columns ``dimension``, ``difference``: the largest absolute difference at the quantiles named.
    """
    rows = []
    for d in dimensions:
        points = [goe.quantile(p, d) for p in probabilities]
        gap = max(abs(goe.cdf(t, d) - float(goe.cdf_mpmath(t, d))) for t in points)
        rows.append({"dimension": d, "difference": gap})
    return pd.DataFrame(rows)
