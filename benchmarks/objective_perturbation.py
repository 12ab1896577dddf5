"""Chapter 4 against straightforward baselines: ratios of processor times within one run.

usage: python -m benchmarks.objective_perturbation [--quick] [--record [FILE]]

A ratio says how many times longer the baseline takes. A baseline that takes seconds a step does a part of the work, and
its time is multiplied up. One BLAS thread.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant  # type: ignore[import-untyped]
from numpy.typing import NDArray
from scipy import optimize

from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.objective_perturbation.clipping import ClippedProblem
from adaptive_dp.objective_perturbation.dp_sgd import poisson_batches, train
from adaptive_dp.objective_perturbation.perturbed_objective import PerturbedObjective, minimise
from adaptive_dp.objective_perturbation.sampled_gaussian import sampled_gaussian_renyi
from adaptive_dp.privacy import Domain
from adaptive_dp.validation import FloatArray
from benchmarks.timing import HEADING, Comparison, agree, compare, run

SEED = 20264


@dataclass(frozen=True)
class Setting:
    """What is run."""

    rows: int = 36_176
    columns: int = 105
    sampling: float = 256 / 36_176
    steps: int = 400
    rates: int = 10
    orders: int = 60
    lam: float = 2.0
    noise: float = 7.0
    tau: float = 0.01
    repetitions: int = 7
    block: float = 0.05


QUICK = Setting(rows=400, columns=5, sampling=0.1, steps=10, rates=3, orders=6, repetitions=2, block=0.001)


def simulated_people(setting: Setting, rng: np.random.Generator) -> Dataset:
    """Rows of length one, labels from a logistic model."""
    features = rng.standard_normal((setting.rows, setting.columns))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    scores = 6 * features @ rng.standard_normal(setting.columns)
    labels = np.where(rng.random(setting.rows) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
    return Dataset(features, labels, Domain("l2", 1.0, "sign"))


# ---------------------------------------------------------------- baselines


def minimise_by_scipy(objective: PerturbedObjective) -> FloatArray:
    """L-BFGS from zero, as the thesis uses it, until the gradient is as short as tau; no other help."""
    found = optimize.minimize(
        objective.value_and_gradient,
        np.zeros(objective.columns),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": objective.tolerance / math.sqrt(objective.columns), "maxiter": 10_000, "ftol": 0.0},
    )
    return np.asarray(found.x, dtype=np.float64)


def batches_by_coins(
    rows: int, sampling: float, steps: int, rng: np.random.Generator
) -> list[NDArray[np.intp]]:
    """One coin a record and step."""
    return [np.flatnonzero(rng.random(rows) < sampling) for _ in range(steps)]


def renyi_order_by_order(orders: FloatArray, sampling: float, sigma: float) -> FloatArray:
    """Whole orders one at a time by the binomial sum of the maintained library."""
    return np.array(
        [
            rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(sampling, sigma, [order])[0]
            for order in orders
        ]
    )


# ---------------------------------------------------------------- comparisons


def approximate_minima(people: Dataset, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """The solver of Algorithm 7 against plain L-BFGS, to the same certificate."""
    problem = ClippedProblem(LogisticLoss(), people.features, people.labels)
    b = setting.noise * rng.standard_normal(setting.columns)
    objective = PerturbedObjective(problem, setting.lam, b, setting.tau)
    ours, theirs = minimise(objective), minimise_by_scipy(objective)
    # Both are within tau / lam of the exact minimiser.
    agree("minimisers", ours, theirs, rtol=0.0, atol=2.5 * setting.tau / setting.lam)
    yield compare(
        f"approximate minimum, n = {people.rows:,}, d = {setting.columns}",
        ("Newton", lambda: minimise(objective)),
        ("L-BFGS from zero", lambda: minimise_by_scipy(objective)),
        repetitions=setting.repetitions,
        block=setting.block,
    )


def gradient_descent(people: Dataset, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """All learning rates in one pass against one after the other; batches by gaps against coins."""
    rates = np.geomspace(1e-3, 1e-1, setting.rates)

    def run_of(chosen: FloatArray) -> FloatArray:
        return train(
            people.features,
            people.labels,
            rates=chosen,
            sigma=1.0,
            clip=1.0,
            sampling=setting.sampling,
            steps=setting.steps,
            rng=np.random.default_rng(SEED),
            shared=True,
        )

    agree("runs", run_of(rates), np.concatenate([run_of(rates[i : i + 1]) for i in range(rates.size)]))
    yield compare(
        f"DP-SGD, {rates.size} learning rates, {setting.steps} steps",
        ("one pass", lambda: run_of(rates)),
        ("one after the other", lambda: [run_of(rates[i : i + 1]) for i in range(rates.size)]),
        repetitions=setting.repetitions,
        block=setting.block,
    )
    yield compare(
        f"{setting.steps} Poisson batches of n = {people.rows:,}",
        ("geometric gaps", lambda: poisson_batches(people.rows, setting.sampling, setting.steps, rng)),
        ("a coin a record", lambda: batches_by_coins(people.rows, setting.sampling, setting.steps, rng)),
        repetitions=setting.repetitions,
        block=setting.block,
    )


def accounting(setting: Setting) -> Iterator[Comparison]:
    """Rényi divergences of the sampled Gaussian at whole orders."""
    orders = np.unique(np.round(np.geomspace(2, 400, setting.orders)))
    agree(
        "divergences",
        sampled_gaussian_renyi(orders, sampling=0.01, sigma=1.1),
        renyi_order_by_order(orders, 0.01, 1.1),
        rtol=1e-6,
    )
    yield compare(
        f"sampled Gaussian at {orders.size} orders",
        ("quadrature, all at once", lambda: sampled_gaussian_renyi(orders, sampling=0.01, sigma=1.1)),
        ("sums, one by one", lambda: renyi_order_by_order(orders, 0.01, 1.1)),
        repetitions=setting.repetitions,
        block=setting.block,
    )


def work(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Everything that is compared, in turn."""
    print(HEADING)
    people = simulated_people(setting, rng)
    yield from approximate_minima(people, setting, rng)
    yield from gradient_descent(people, setting, rng)
    yield from accounting(setting)


def main(arguments: list[str] | None = None) -> int:
    """Run all comparisons and print them; ``--record`` keeps the ratios."""
    return run(
        "objective_perturbation", __doc__, work, full=Setting(), quick=QUICK, seed=SEED, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
