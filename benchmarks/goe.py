"""The law of the largest eigenvalue of Gaussian symmetric noise, against straightforward computations.

usage: python -m benchmarks.goe [--quick] [--record [FILE]]

A ratio says how many times longer the baseline takes. Constants of a dimension are computed before the clock starts,
on both sides. One BLAS thread.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy import special

from adaptive_dp import goe
from adaptive_dp.validation import FloatArray
from benchmarks.timing import HEADING, Comparison, compare, run, seconds_of

SEED = 20262
DIMENSIONS = (2, 21, 50, 100, 200)


@dataclass(frozen=True)
class Setting:
    """What is run."""

    dimensions: tuple[int, ...] = DIMENSIONS
    rho: float = 8.465e-6
    exact_dimension: int = 20
    draws: int = 2_000
    repetitions: int = 9
    block: float = 0.05


QUICK = Setting(dimensions=(2, 21), exact_dimension=4, draws=20, repetitions=2, block=0.001)


# ---------------------------------------------------------------- baselines


def functions_and_integrals(count: int, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Hermite functions of degree below ``count`` and their integrals up to each point; two arrays (count, points)."""
    values, integrals = np.zeros((2, count + 1, points.size))
    values[0] = np.exp(-(points**2) / 2) / math.pi**0.25
    integrals[0] = math.sqrt(math.pi / 2) * special.erfc(-points / math.sqrt(2)) / math.pi**0.25
    values[1], integrals[1] = math.sqrt(2) * points * values[0], -math.sqrt(2) * values[0]
    for j in range(2, count):
        values[j] = math.sqrt(2 / j) * points * values[j - 1] - math.sqrt(1 - 1 / j) * values[j - 2]
        integrals[j] = math.sqrt(1 - 1 / j) * integrals[j - 2] - math.sqrt(2 / j) * values[j - 1]
    return values[:count], integrals[:count]


def log_pfaffian(x: float, dimension: int) -> float:
    """log Pf M(x) as de Bruijn wrote it: all integrals from far left up to x."""
    left = -math.sqrt(2 * dimension + 1) - 9
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(left, x, max(4, math.ceil(2.5 * (x - left))) + 1)
    half = np.diff(edges)[:, None] / 2
    points, weights = (edges[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
    values, integrals = functions_and_integrals(dimension, points)
    nested = (integrals * weights) @ values.T
    size = dimension + dimension % 2
    matrix = np.zeros((size, size))
    matrix[:dimension, :dimension] = nested - nested.T
    if dimension % 2:
        border = functions_and_integrals(dimension, np.array([x]))[1][:, 0]
        matrix[:dimension, -1], matrix[-1, :dimension] = border, -border
    return float(np.linalg.slogdet(matrix)[1]) / 2


@lru_cache
def log_pfaffian_at_infinity(dimension: int) -> float:
    """log Pf M(inf), by the same quadrature."""
    return log_pfaffian(math.sqrt(2 * dimension + 1) + 9, dimension)


def straightforward_cdf(t: float, dimension: int) -> float:
    """P(lambda_1 <= t) as a ratio of two Pfaffians; its complement has no digits for tails below 1e-13."""
    return math.exp(log_pfaffian(t / math.sqrt(2), dimension) - log_pfaffian_at_infinity(dimension))


def bisect_norm_bound(rho: float, dimension: int) -> float:
    """The operator norm bound by fifty halvings."""
    low, high = 2 * math.sqrt(dimension) - 8, goe.explicit_bound(rho, dimension)
    for _ in range(50):
        middle = (low + high) / 2
        if 1 - straightforward_cdf(middle, dimension) > rho / 2:
            low = middle
        else:
            high = middle
    return high


def simulate_norms(dimension: int, draws: int, rng: np.random.Generator) -> FloatArray:
    """Operator norms of ``draws`` matrices, shape (draws,)."""
    norms = np.empty(draws)
    for index in range(draws):
        square = rng.standard_normal((dimension, dimension))
        norms[index] = np.abs(np.linalg.eigvalsh((square + square.T) / math.sqrt(2))[[0, -1]]).max()
    return norms


# ---------------------------------------------------------------- comparisons


def comparisons(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Everything that is compared, in turn."""
    for dimension in setting.dimensions:
        # operator_norm_bound remembers its answers; this is the computation behind it.
        def library(dimension: int = dimension) -> float:
            return goe.upper_quantile(setting.rho / 2, dimension)

        def halving(dimension: int = dimension) -> float:
            return bisect_norm_bound(setting.rho, dimension)

        if abs(library() - halving()) > 1e-6:
            raise AssertionError("both bounds must agree")
        yield compare(
            f"operator norm bound, d = {dimension}, rho = {setting.rho:g}",
            ("small determinant, bracketed root", library),
            ("ratio of Pfaffians, bisection", halving),
            repetitions=setting.repetitions,
            block=setting.block,
            against_once=True,
        )
    exact = setting.exact_dimension
    centre = 2 * math.sqrt(exact)
    yield compare(
        f"one value of the distribution function, d = {exact}",
        ("double precision", lambda: goe.cdf(centre, exact)),
        ("mpmath, 30 digits", lambda: goe.cdf_mpmath(centre, exact)),
        repetitions=setting.repetitions,
        block=setting.block,
        against_once=True,
    )
    largest = setting.dimensions[-1]
    yield compare(
        f"a 99% quantile of the norm, d = {largest}",
        ("exact", lambda: goe.upper_quantile(0.01 / 2, largest)),
        (
            f"{setting.draws:,} simulated matrices",
            lambda: np.quantile(simulate_norms(largest, setting.draws, rng), 0.99),
        ),
        repetitions=setting.repetitions,
        block=setting.block,
        against_once=True,
    )


def show_quantiles(dimension: int, setting: Setting) -> str:
    """Absolute times of two quantiles, for information."""
    times = []
    for probability in (0.5, 1 - setting.rho / 2):
        task = partial(goe.quantile, probability, dimension)
        task()  # fills the cache
        times.append(f"{1e3 * seconds_of(task, setting.repetitions):.1f} ms at {probability:.7g}")
    return f"quantile, d = {dimension}: {', '.join(times)}"


def work(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Times for information, then everything that is compared."""
    print("For information, processor times on this machine:")
    for dimension in setting.dimensions:
        print(show_quantiles(dimension, setting))
    print(f"\n{HEADING}")
    yield from comparisons(setting, rng)


def main(arguments: list[str] | None = None) -> int:
    """Run all comparisons and print them; ``--record`` keeps the ratios."""
    return run("goe", __doc__, work, full=Setting(), quick=QUICK, seed=SEED, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
