"""Chapter 2 against straightforward baselines: ratios of processor times within one run.

usage: python -m benchmarks.per_instance [--quick] [--record [FILE]]

A ratio says how many times longer the baseline takes. A baseline that visits people one by one visits a sample of
them, and its time is multiplied up. One BLAS thread.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.datasets import Dataset, simulate_unit_rows
from adaptive_dp.losses import LogisticLoss, Loss, SmoothDistanceLoss, SmoothLoss
from adaptive_dp.per_instance import (
    Objective,
    PrivacyReport,
    data_dependent_report,
    losses_of_members,
)
from adaptive_dp.per_instance.noisy_objective import NoisyHessian
from adaptive_dp.per_instance.objective import ObjectiveAt, records_at
from adaptive_dp.validation import FloatArray
from benchmarks.timing import (
    HEADING,
    Comparison,
    agree,
    compare,
    peak_mebibytes,
    run,
    three_digits,
)

SEED = 20262
Indices = NDArray[np.int64]
# How far a baseline with an inverse a person may be from the library.
CLOSE = {"rtol": 1e-7, "atol": 1e-9}


@dataclass(frozen=True)
class Setting:
    """What is run."""

    rows: int = 30_000
    columns: int = 21
    general_rows: int = 3_000
    million: int = 1_000_000
    sample: int = 200
    repetitions: int = 9
    block: float = 0.05
    lam: float = 1.0
    sigma: float = 5.0
    sigma_gradient: float = 5.0
    sigma_hessian: float = 0.2
    rho: float = 1e-6


QUICK = Setting(rows=500, columns=5, general_rows=200, million=5_000, sample=20, repetitions=2, block=0.001)


@dataclass(frozen=True, eq=False)
class Case:
    """An objective seen from a published parameter."""

    point: ObjectiveAt
    sigma: float

    @property
    def people(self) -> Dataset:
        return self.point.objective.people


def case_of(
    rows: int, setting: Setting, rng: np.random.Generator, loss: Loss | SmoothLoss | None = None
) -> Case:
    """Rows of length one under a linear rule, and a parameter near the one that fits them."""
    people = simulate_unit_rows(rows, setting.columns, rng)
    objective = Objective(people, LogisticLoss() if loss is None else loss, setting.lam)
    theta = objective.minimise(rng.normal(0, setting.sigma, setting.columns), tolerance=1e-6).theta
    return Case(objective.at(theta), setting.sigma)


def report_of(case: Case, setting: Setting, rng: np.random.Generator) -> PrivacyReport:
    return data_dependent_report(
        case.point.objective,
        case.point.theta,
        sigma=setting.sigma,
        sigma_gradient=setting.sigma_gradient,
        sigma_hessian=setting.sigma_hessian,
        rho=setting.rho,
        delta=1e-6,
        rng=rng,
    )


# ---------------------------------------------------------------- baselines


def losses_one_by_one(case: Case, chosen: Indices) -> FloatArray:
    """The formula of Theorem 2.3.1 for each person, with the inverse of the Hessian and a determinant each."""
    objective, theta = case.point.objective, case.point.theta
    d, X, y = theta.size, case.people.features, case.people.labels
    found = []
    for i in chosen:
        x, label = X[[i]], y[[i]]
        if isinstance(objective.loss, Loss):
            g = objective.loss.derivative(x @ theta, label)[0] * x[0]
            A = objective.loss.second_derivative(x @ theta, label)[0] * np.outer(x[0], x[0])
        else:
            g = objective.loss.gradients(theta, x, label)[0]
            A = objective.loss.hessians(theta, x, label)[0]
        determinant = np.linalg.slogdet(np.eye(d) - np.linalg.inv(case.point.hessian) @ A)[1]
        square = g @ g / (2 * case.sigma**2)
        found.append(abs(-determinant + square - case.point.gradient @ g / case.sigma**2))
    return np.array(found)


def report_one_by_one(report: PrivacyReport, case: Case, chosen: Indices) -> FloatArray:
    """Everybody puts her record into the function herself."""
    X, y = case.people.features, case.people.labels
    return np.array([report(X[i], float(y[i])).bound for i in chosen])


def leverage_member_by_member(hessian: NoisyHessian, features: FloatArray) -> FloatArray:
    """The smallest bound of x'H^-1 x over the family, with a matrix inverted for each member; shape (m,)."""
    best = np.full(features.shape[0], np.inf)
    for spectrum in hessian.lower_bounds():
        inverse = np.linalg.inv((hessian.basis * spectrum) @ hessian.basis.T)
        best = np.minimum(best, np.einsum("ij,jk,ik->i", features, inverse, features, optimize=True))
    return best


# ---------------------------------------------------------------- comparisons


def exact_losses(case: Case, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """One factor for everybody against one inverse a person."""
    chosen = some(case, setting, rng)
    library = losses_of_members(case.point, sigma=case.sigma).loss
    agree("exact losses", library[chosen], losses_one_by_one(case, chosen), **CLOSE)
    kind = type(case.point.objective.loss).__name__
    yield (
        compare(
            f"exact losses, {kind}, {case.people.rows:,} people, d = {setting.columns}",
            ("one factor", lambda: losses_of_members(case.point, sigma=case.sigma)),
            (f"an inverse a person ({chosen.size} of them)", lambda: losses_one_by_one(case, chosen)),
            repetitions=setting.repetitions,
            block=setting.block,
        ).times(case.people.rows / chosen.size)
    )


def reports(case: Case, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """A report for everybody, and the leverage bounds in it."""
    report = report_of(case, setting, rng)
    chosen, features, labels = some(case, setting, rng), case.people.features, case.people.labels
    agree(
        "reports",
        report.to_frame(features, labels)["bound"].to_numpy()[chosen],
        report_one_by_one(report, case, chosen),
        **CLOSE,
    )
    yield (
        compare(
            f"a report for each of {case.people.rows:,} people, d = {setting.columns}",
            ("a table", lambda: report.to_frame(features, labels)),
            (f"a call a person ({chosen.size} of them)", lambda: report_one_by_one(report, case, chosen)),
            repetitions=setting.repetitions,
            block=setting.block,
        ).times(case.people.rows / chosen.size)
    )
    hessian = report.hessian
    assert hessian is not None
    records = records_at(case.point.objective.loss, case.point.theta, features, labels)
    curvature = records.eigenvalues[:, 0] / np.einsum("ij,ij->i", features, features)
    agree(
        "leverage bounds",
        hessian.relative_upper(records)[:, 0],
        curvature * leverage_member_by_member(hessian, features),
        **CLOSE,
    )
    yield compare(
        f"leverage bounds: {len(hessian.lower_bounds())} members, {case.people.rows:,} people",
        ("one eigenbasis", lambda: hessian.relative_upper(records)),
        ("an inverse a member", lambda: leverage_member_by_member(hessian, features)),
        repetitions=setting.repetitions,
        block=setting.block,
    )


def tiny_ridge(case: Case, setting: Setting) -> Iterator[Comparison]:
    """What accuracy costs where the ridge is tiny: a QR of the rows instead of a Cholesky factor."""
    people = case.people
    flat = Dataset(
        np.hstack([people.features[:, :-1], np.zeros((people.rows, 1))]), people.labels, people.domain
    )
    plain, tiny = (Objective(flat, LogisticLoss(), lam) for lam in (setting.lam, 1e-9))
    theta = case.point.theta
    yield compare(
        f"an objective at theta, n = {people.rows:,}, d = {setting.columns}",
        (f"Cholesky, lam = {setting.lam:g}", lambda: plain.at(theta)),
        ("QR of the rows, lam = 1e-9", lambda: tiny.at(theta)),
        repetitions=setting.repetitions,
        block=setting.block,
    )


def some(case: Case, setting: Setting, rng: np.random.Generator) -> Indices:
    """Indices of a sample of people."""
    return rng.choice(case.people.rows, size=setting.sample, replace=False)


def comparisons(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Everything that is compared, in turn."""
    case = case_of(setting.rows, setting, rng)
    yield from exact_losses(case, setting, rng)
    yield from exact_losses(case_of(setting.general_rows, setting, rng, SmoothDistanceLoss()), setting, rng)
    yield from reports(case, setting, rng)
    yield from tiny_ridge(case, setting)


# ---------------------------------------------------------------- running it


def traced(task: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds of ``task``, and MiB that it allocates on top of what is there, in two separate calls."""
    start = time.process_time()
    task()
    seconds = time.process_time() - start
    tracemalloc.start()
    task()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak / 2**20


def show_million(setting: Setting, rng: np.random.Generator) -> None:
    """Print time and memory for a million people, for information."""
    people = simulate_unit_rows(setting.million, setting.columns, rng)
    before = peak_mebibytes()
    objective, theta = Objective(people, LogisticLoss(), setting.lam), rng.standard_normal(setting.columns)
    tasks: dict[str, Callable[[], object]] = {
        "exact losses": lambda: losses_of_members(objective, theta, sigma=setting.sigma)
    }
    report = report_of(Case(objective.at(theta), setting.sigma), setting, rng)
    tasks["a report"] = lambda: report.to_frame(people.features, people.labels)
    data = people.features.nbytes / 2**20
    print(
        f"{people.rows:,} people, d = {setting.columns}, {data:.0f} MiB; peak after simulating {before:.0f} MiB"
    )
    for name, task in tasks.items():
        seconds, extra = traced(task)
        print(f"    {name}: {three_digits(seconds)} s, {extra:.0f} MiB beyond the data")
    print(f"    peak of the process: {peak_mebibytes():.0f} MiB")


def work(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Times and memory for information, then everything that is compared."""
    print("For information, processor times and memory on this machine:")
    show_million(setting, rng)
    print(f"\n{HEADING}")
    yield from comparisons(setting, rng)


def main(arguments: list[str] | None = None) -> int:
    """Run all comparisons and print them; ``--record`` keeps the ratios."""
    return run("per_instance", __doc__, work, full=Setting(), quick=QUICK, seed=SEED, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
