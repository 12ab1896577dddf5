"""Chapter 3 against straightforward baselines: ratios of processor times within one run.

usage: python -m benchmarks.propose_test_release [--quick] [--record [FILE]]

A ratio says how many times longer the baseline takes. A baseline that visits queries one by one visits a sample of
them, and its time is multiplied up. One BLAS thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adaptive_dp.datasets import Dataset
from adaptive_dp.privacy import Domain
from adaptive_dp.ptr import gnmax, smooth_sensitivity
from adaptive_dp.ptr.posterior_calibration import PosteriorCalibration, calibrate_gamma, posterior_calibration
from adaptive_dp.ptr.posterior_sampling import Statistics
from adaptive_dp.ptr.spectrum import Spectrum
from adaptive_dp.validation import FloatArray
from benchmarks.timing import HEADING, Comparison, agree, compare, run

SEED = 20263


@dataclass(frozen=True)
class Setting:
    """What is run."""

    rows: int = 17_379
    columns: int = 16
    proposals: int = 30
    epsilon: float = 0.5
    delta: float = 1e-7
    queries: int = 200
    sample: int = 20
    teachers: int = 400
    classes: int = 10
    sigma: float = 40.0
    order: float = 25.0
    repetitions: int = 9
    block: float = 0.05


QUICK = Setting(
    rows=300, columns=4, proposals=5, queries=8, sample=4, teachers=40, repetitions=2, block=0.001
)


def simulated_people(setting: Setting, rng: np.random.Generator) -> Dataset:
    """Rows of length one with a linear answer in [-1, 1]."""
    features = rng.standard_normal((setting.rows, setting.columns))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = np.clip(features @ rng.standard_normal(setting.columns), -1.0, 1.0)
    return Dataset(features, labels, Domain("l2", 1.0, "real", 1.0))


def simulated_votes(setting: Setting, rng: np.random.Generator) -> FloatArray:
    """Votes of teachers, of all degrees of consensus; shape (queries, classes)."""
    favour = rng.uniform(0.3, 1.0, setting.queries)
    chances = (
        np.full((setting.queries, setting.classes), 1.0) * ((1 - favour) / (setting.classes - 1))[:, None]
    )
    chances[:, 0] = favour
    return rng.multinomial(setting.teachers, chances).astype(np.float64)


# ---------------------------------------------------------------- library and baselines


def precisions(people: Dataset, lams: FloatArray, table: PosteriorCalibration) -> FloatArray:
    """Largest gamma of each proposal, from one decomposition and the table of the budget."""
    spectrum = Spectrum.of(people)
    curvature = lams + spectrum.smallest_eigenvalue
    scaled = table.scaled_precision(1 / curvature, 1 / np.maximum(lams, curvature - 1))
    return np.asarray(scaled / np.square(spectrum.residual_bound(lams)))


def precisions_one_by_one(people: Dataset, lams: FloatArray, setting: Setting) -> FloatArray:
    """The same with X'X, its eigenvalues, a ridge regression and a search for gamma each."""
    found = []
    for lam in lams:
        gram = people.features.T @ people.features
        theta = np.linalg.solve(gram + lam * np.eye(setting.columns), people.features.T @ people.labels)
        size = 1 + float(np.linalg.norm(theta))
        statistics = Statistics(float(lam), max(float(np.linalg.eigvalsh(gram)[0]), 0.0), size)
        found.append(calibrate_gamma(statistics, epsilon=setting.epsilon, delta=setting.delta))
    return np.array(found)


def sensitivities_one_by_one(votes: FloatArray, setting: Setting) -> FloatArray:
    """The largest change of the loss over the gaps within reach, query by query and distance by distance."""
    cells = smooth_sensitivity.RESOLUTION
    scale, a, total = setting.sigma, setting.order, setting.teachers
    changes = smooth_sensitivity._changes(total, setting.classes, scale, a, cells)
    answer = np.zeros(total + 1)
    for row in votes:
        low, high = smooth_sensitivity.reachable_gaps(row[np.newaxis], sigma=scale)
        for distance in range(total + 1):
            margin = smooth_sensitivity.SLACK * (distance + 1)
            first = int(max(low[0, distance] - margin, 0.0) * cells)
            last = int((min(high[0, distance] + margin, total) + 2) * cells)
            answer[distance] += changes[first : last + 1].max()
    return answer


def losses_one_by_one(votes: FloatArray, setting: Setting) -> FloatArray:
    """The loss of one query and one order at a time, summed."""
    orders = gnmax.default_orders()
    rows = [
        [gnmax.gnmax_renyi(row[np.newaxis], sigma=setting.sigma, orders=[order]).sum() for order in orders]
        for row in votes
    ]
    return np.asarray(np.array(rows).sum(axis=0))


# ---------------------------------------------------------------- comparisons


def proposals(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """One decomposition and one table against a solution and a search a proposal."""
    people = simulated_people(setting, rng)
    lams = np.geomspace(10.0, 10.0 * setting.rows, setting.proposals)
    table = posterior_calibration(setting.epsilon, setting.delta)
    agree(
        "precisions", precisions(people, lams, table), precisions_one_by_one(people, lams, setting), rtol=1e-5
    )
    yield compare(
        f"{lams.size} proposals, n = {people.rows:,}, d = {setting.columns}",
        ("one decomposition, one table", lambda: precisions(people, lams, table)),
        ("a solution and a search each", lambda: precisions_one_by_one(people, lams, setting)),
        repetitions=setting.repetitions,
        block=setting.block,
        against_once=True,
    )


def votes_of_teachers(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """All queries at once against one at a time."""
    votes = simulated_votes(setting, rng)
    chosen = votes[: setting.sample]
    orders = gnmax.default_orders()

    def sensitivities(rows: FloatArray) -> FloatArray:
        return smooth_sensitivity.local_sensitivities(rows, sigma=setting.sigma, order=setting.order)

    def losses(rows: FloatArray) -> FloatArray:
        return np.asarray(gnmax.gnmax_renyi(rows, sigma=setting.sigma, orders=orders).sum(axis=0))

    agree("sensitivities", sensitivities(chosen), sensitivities_one_by_one(chosen, setting))
    yield (
        compare(
            f"local sensitivities of {len(votes)} queries of {setting.teachers} teachers",
            ("a table of maxima", lambda: sensitivities(votes)),
            (
                f"a maximum a query and distance ({len(chosen)} of them)",
                lambda: sensitivities_one_by_one(chosen, setting),
            ),
            repetitions=setting.repetitions,
            block=setting.block,
            against_once=True,
        ).times(setting.queries / setting.sample)
    )
    agree("losses", losses(chosen), losses_one_by_one(chosen, setting))
    yield (
        compare(
            f"Rényi losses of {len(votes)} queries at {orders.size} orders",
            ("all at once", lambda: losses(votes)),
            (
                f"a call a query and order ({len(chosen)} of them)",
                lambda: losses_one_by_one(chosen, setting),
            ),
            repetitions=setting.repetitions,
            block=setting.block,
            against_once=True,
        ).times(setting.queries / setting.sample)
    )


def work(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Everything that is compared, in turn."""
    print(HEADING)
    yield from proposals(setting, rng)
    yield from votes_of_teachers(setting, rng)


def main(arguments: list[str] | None = None) -> int:
    """Run all comparisons and print them; ``--record`` keeps the ratios."""
    return run(
        "propose_test_release", __doc__, work, full=Setting(), quick=QUICK, seed=SEED, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
