"""Tables about OPDisc for the page: sizes of noise, exact privacy on small spaces, measured and promised accuracy.

Sizes of noise are in units of the shift Delta, on which all three laws depend alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from adaptive_dp.oracle_perturbation.discrete_privacy import (
    ProvedGaussianCurve,
    exact_shift,
    largest_proved_dimension,
    printed_sigma,
    released_code_sigma,
    shift,
    smallest_ratio,
)
from adaptive_dp.oracle_perturbation.discrete_utility import printed_alpha, tail_alpha
from adaptive_dp.oracle_perturbation.exact_release import hockey_stick, member_probability, output_law
from adaptive_dp.oracle_perturbation.opdisc import LiftedNoise, plan
from adaptive_dp.oracle_perturbation.problems import TableProblem, ThresholdProblem, integer_features
from adaptive_dp.oracle_perturbation.spaces import FiniteSpace, IntegerBall, PointSet
from adaptive_dp.validation import as_finite_array, check_generator


def _points(members: ArrayLike) -> PointSet:
    return PointSet(np.asarray(members, dtype=np.float64))


TWO_POINTS = _points([[-1.0], [1.0]])
SQUARE = IntegerBall.signs(2)
LOCATIONS = _points(np.linspace(-1.0, 1.0, 9)[:, np.newaxis])


def settings(profile: str) -> dict[str, Any]:
    """Sizes of the section's computations for the profiles quick, book and paper."""
    quick, paper = profile == "quick", profile == "paper"
    return {
        "dimensions": (2, 5, 10, 23, 55, 100),
        "curve": 12 if quick else (60 if paper else 25),
        "epsilons": (0.5, 1.0, 2.0) if quick else (0.25, 0.5, 1.0, 2.0, 4.0),
        "data_sets": 1 if quick else (10 if paper else 2),
        "margins": (1, 4, 16) if quick else (1, 2, 4, 8, 16, 32),
        "releases": 200 if quick else (5000 if paper else 1000),
    }


# --- sizes of noise -----------------------------------------------------------------------------------


def noise_table(dimensions: ArrayLike, *, epsilon: float = 1.0, delta: float = 1e-8) -> pd.DataFrame:
    """Noise of OPDisc over W = {-1, 0, 1}^d in units of the shift, not folded.

    Columns ``d``; sigma as ``printed`` and ``proved``; mean lengths ``E printed``, ``E proved``, ``E norm``; and
    ``delta of print``, what is proved of the printed scale at ``epsilon``.
    """
    printed = 1.75 * math.sqrt(-math.log(delta)) / epsilon
    rows = []
    for d in np.asarray(dimensions, dtype=int).tolist():
        proved = smallest_ratio(epsilon=epsilon, delta=delta, coordinates=d + 1, members=3**d)
        mean = float(stats.chi.mean(d + 1))
        rows.append(
            {
                "d": d,
                "printed": printed,
                "proved": proved,
                "E printed": printed * mean,
                "E proved": proved * mean,
                "E norm": (d + 1) / epsilon,
                "delta of print": ProvedGaussianCurve(1 / printed, d + 1, 3**d).delta(epsilon),
            }
        )
    return pd.DataFrame(rows)


def proved_dimensions(epsilons: ArrayLike, *, delta: float = 1e-8) -> pd.DataFrame:
    """Largest d at which Algorithm 1's scale is proved: for any space, for {-1, 0, 1}^d and for {-1, 1}^d."""
    rows = []
    for epsilon in np.asarray(epsilons, dtype=float).tolist():
        sizes = {"any W": None, "{-1,0,1}^d": lambda d: 3**d, "{-1,1}^d": lambda d: 2**d}
        found = {
            name: largest_proved_dimension(epsilon=epsilon, delta=delta, members=size)
            for name, size in sizes.items()
        }
        rows.append({"epsilon": epsilon, **found})
    return pd.DataFrame(rows)


def shift_table() -> pd.DataFrame:
    """The shift of Lemma 3 beside the smallest one for all pairs, losses in [0, 1].

    Columns ``space``, ``Lemma 3``, ``all pairs``, ``ratio``.
    """
    grid = np.linspace(-1.0, 1.0, 9)
    disc = np.array([(a, b) for a in grid for b in grid if a * a + b * b <= 1])
    spaces = {
        "{-1,1}^5": _points(2.0 * np.indices((2,) * 5).reshape(5, -1).T - 1),
        "{-1,0,1}^2": _points(IntegerBall.signs(2).points()),
        "{-1,0,1}^4": _points(IntegerBall.signs(4).points()),
        "{-1,0,1}^6": _points(IntegerBall.signs(6).points()),
        "disc, step 1/4": _points(disc),
        "{0,1}": _points([[0.0], [1.0]]),
        "{0,1}, centred": _points([[-0.5], [0.5]]),
    }
    rows = [
        {"space": name, "Lemma 3": shift(space, gap=0.0), "all pairs": exact_shift(space)}
        for name, space in spaces.items()
    ]
    table = pd.DataFrame(rows)
    table["ratio"] = table["all pairs"] / table["Lemma 3"]
    return table


# --- exact privacy on small spaces --------------------------------------------------------------------


def exchange_log_ratio(space: FiniteSpace, noise: LiftedNoise, base: ArrayLike) -> float:
    """Largest |log(P_D(w) / P_D'(w))| over all w and all ways to exchange one record, losses in [0, 1].

    ``base`` holds the losses (N,) of the records that stay. P_D(w) rises with the losses of the other members and
    falls with that of w, so that the worst exchange for w is the record with loss 0 at w and 1 elsewhere against its
    opposite; and the ratio of a set of outcomes is at most the largest ratio in it.
    """
    losses = as_finite_array("base", base, ndim=1)
    worst = 0.0
    for w in range(space.size):
        step = np.where(np.arange(space.size) == w, 1.0, 0.0)
        liked = member_probability(space, noise, total=losses + 1 - step, place=w)
        disliked = member_probability(space, noise, total=losses + step, place=w)
        worst = max(worst, math.log(liked / disliked))
    return worst


def norm_noise(space: FiniteSpace, *, epsilon: float, fold: bool) -> LiftedNoise:
    """The noise of OPDisc for an exact oracle (a = 0) and losses in [0, 1]."""
    return LiftedNoise("norm", shift(space, gap=0.0) / epsilon, space.dimension + 1, fold)


def ratio_table(epsilons: ArrayLike, *, data_sets: int, rng: np.random.Generator) -> pd.DataFrame:
    """Largest exact P_D(w) / P_D'(w) with norm noise: columns ``epsilon``, ``bound`` and four cases.

    ``square`` and ``folded``: W = {-1, 0, 1}^2, the worst exchange in ``data_sets`` random data sets of 11 records.
    ``tie`` and ``far``: W = {-1, 1}, both answers equally good, and one of them 30 records worse.
    """
    check_generator(rng)
    bases = rng.integers(0, 2, size=(data_sets, 10, SQUARE.size)).sum(axis=1).astype(float)
    rows = []
    for epsilon in np.asarray(epsilons, dtype=float).tolist():
        row = {"epsilon": epsilon, "bound": math.exp(epsilon)}
        for name, fold in (("square", False), ("folded", True)):
            noise = norm_noise(SQUARE, epsilon=epsilon, fold=fold)
            row[name] = math.exp(max(exchange_log_ratio(SQUARE, noise, base) for base in bases))
        line = norm_noise(TWO_POINTS, epsilon=epsilon, fold=False)
        for name, margin in (("tie", 0.0), ("far", 30.0)):
            row[name] = math.exp(exchange_log_ratio(TWO_POINTS, line, [margin, 0.0]))
        rows.append(row)
    return pd.DataFrame(rows)


def margin_table(margins: Sequence[float], *, epsilon: float = 1.0) -> pd.DataFrame:
    """Log ratio over epsilon where one member is ``margin`` records worse than all others.

    Column ``two points``: W = {-1, 1}; ``square``: the middle of {-1, 0, 1}^2, and ``limit`` what it tends to, the
    smallest shift of this space over that of Lemma 3.
    """
    limit = exact_shift(_points(SQUARE.points())) / shift(SQUARE, gap=0.0)
    middle = int(np.flatnonzero((SQUARE.points() == 0).all(axis=1))[0])
    rows = []
    for margin in margins:
        row = {"margin": margin}
        for name, space, place in (("two points", TWO_POINTS, 0), ("square", SQUARE, middle)):
            noise = norm_noise(space, epsilon=epsilon, fold=False)
            step = np.where(np.arange(space.size) == place, 1.0, 0.0)
            liked = member_probability(space, noise, total=(margin - 1) * step, place=place)
            disliked = member_probability(space, noise, total=(margin + 1) * step, place=place)
            row[name] = math.log(liked / disliked) / epsilon
        rows.append({**row, "limit": limit})
    return pd.DataFrame(rows)


def two_point_delta(sigma: float, *, epsilon: float) -> float:
    """Exact smallest delta of OPDisc over W = {-1, 1} with Gaussian noise, over all data sets with losses in [0, 1].

    The shift has one direction here, so that this is the analytic Gaussian mechanism. The worst data set is
    2 sigma^2 epsilon records from a tie, where the log ratio at the edge of the cell is epsilon.
    """
    noise = LiftedNoise("gaussian", sigma, 2, False)
    margin = 2 * sigma**2 * epsilon
    liked = output_law(TWO_POINTS, noise, total=[margin - 1, 0.0])
    disliked = output_law(TWO_POINTS, noise, total=[margin + 1, 0.0])
    return hockey_stick(liked[:1], disliked[:1], epsilon)


def two_point_table(*, epsilon: float = 1.0, delta: float = 1e-8) -> pd.DataFrame:
    """Exact delta of W = {-1, 1} with Algorithm 1's scale and with that of the authors' program."""
    scales = {
        "Algorithm 1": printed_sigma(TWO_POINTS, epsilon=epsilon, delta=delta),
        "released program": released_code_sigma(TWO_POINTS, epsilon=epsilon, delta=delta),
    }
    rows = [
        {"scale": name, "sigma": sigma, "claimed": delta, "exact": two_point_delta(sigma, epsilon=epsilon)}
        for name, sigma in scales.items()
    ]
    return pd.DataFrame(rows)


def margin_delta(
    space: FiniteSpace, sigma: float, margins: ArrayLike, *, place: int, epsilon: float, fold: bool
) -> float:
    """Largest exact hockey-stick divergence where the member in ``place`` is ``margins`` records worse than the others.

    Gaussian noise, losses in [0, 1], both directions: a lower bound of the delta of the mechanism, to be compared with
    what ``ProvedGaussianCurve`` promises.
    """
    noise = LiftedNoise("gaussian", sigma, space.dimension + 1, fold)
    step = np.where(np.arange(space.size) == place, 1.0, 0.0)
    worst = 0.0
    for margin in np.asarray(margins, dtype=float).tolist():
        p, q = (output_law(space, noise, total=(margin + way) * step) for way in (-1, 1))
        worst = max(worst, hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
    return worst


def square_delta_table(epsilons: ArrayLike, *, delta: float = 1e-3) -> pd.DataFrame:
    """Promised, proved and attained delta of Gaussian OPDisc on {-1, 0, 1}^2.

    Columns ``epsilon``, ``scale`` (that of Algorithm 1, or the proved one for ``delta``), ``sigma``, ``proved`` and
    ``attained``: the best margin of the middle member, of about sigma^2 epsilon over the distance of its cell.
    """
    middle = int(np.flatnonzero((SQUARE.points() == 0).all(axis=1))[0])
    length = shift(SQUARE, gap=0.0)
    rows = []
    for epsilon in np.asarray(epsilons, dtype=float).tolist():
        ratio = smallest_ratio(epsilon=epsilon, delta=delta, coordinates=3, members=SQUARE.size)
        scales = {
            "Algorithm 1": printed_sigma(SQUARE, epsilon=epsilon, delta=delta),
            "proved": ratio * length,
        }
        for name, sigma in scales.items():
            # The apex of the cell moves by the smallest shift when the margin grows by two.
            reach = 2 * sigma**2 * epsilon / exact_shift(_points(SQUARE.points())) ** 2
            margins = reach * np.linspace(0.75, 1.15, 9)
            attained = margin_delta(SQUARE, sigma, margins, place=middle, epsilon=epsilon, fold=False)
            proved = ProvedGaussianCurve(length / sigma, 3, SQUARE.size).delta(epsilon)
            rows.append(
                {"epsilon": epsilon, "scale": name, "sigma": sigma, "proved": proved, "attained": attained}
            )
    return pd.DataFrame(rows)


# --- teaching problems and accuracy -------------------------------------------------------------------


def location_problem(records: int, rng: np.random.Generator) -> TableProblem:
    """Where is the larger of two heaps? Loss min(1, |w - y|), not convex in w, G = 1, nine candidates in [-1, 1]."""
    check_generator(rng)
    heap = rng.random(records) < 0.7
    values = np.clip(np.where(heap, 0.5, -0.75) + 0.15 * rng.normal(size=records), -1, 1)
    losses = np.minimum(np.abs(values[:, np.newaxis] - LOCATIONS.members[:, 0]), 1.0)
    return TableProblem(losses, LOCATIONS, lipschitz=1.0)


def halfspace_problem(records: int, dimension: int, rng: np.random.Generator) -> ThresholdProblem:
    """Classification by an integer halfspace: standardised features in [-1, 1] on a grid, labels with noise."""
    check_generator(rng)
    x = np.clip(0.4 * rng.normal(size=(records, dimension)), -1, 1)
    direction = np.where(np.arange(dimension) % 2 == 0, 1.0, -1.0) / (1 + np.arange(dimension))
    y = np.where(x @ direction + 0.15 * rng.normal(size=records) > 0, 1.0, -1.0)
    return ThresholdProblem(integer_features(x), y, IntegerBall.halfspaces(dimension))


def excess_table(problem: TableProblem, *, epsilon: float, delta: float, beta: float = 0.05) -> pd.DataFrame:
    """Promised and exact (1 - beta)-quantiles of the mean excess loss, for the three noises, not folded.

    Columns ``noise``; ``E length``; ``Theorem 1`` with the scale at hand (none for norm noise); ``2 length``, the
    quantile of 2 ||eta||; ``proved``, that of ||eta|| - <eta, pi(w*)>; ``exact`` and ``mean``, from the output law on
    this data set.
    """
    n, d = problem.records, problem.space.dimension
    excess = (problem.total - problem.total.min()) / n
    order = np.argsort(excess, kind="stable")
    rows = []
    for kind in ("printed", "gaussian", "norm"):
        law, _ = plan(
            problem, epsilon=epsilon, delta=None if kind == "norm" else delta, noise=kind, fold=False
        )
        pure = kind == "norm"
        exact = output_law(problem, law)
        shares = np.cumsum(exact[order])
        place = min(int(np.searchsorted(shares, 1 - beta)), len(order) - 1)
        printed = printed_alpha(sigma=law.scale, dimension=d, records=n, beta=beta)
        name = "norm" if pure else "gaussian"
        rows.append(
            {
                "noise": kind,
                "E length": law.scale * (d + 1 if pure else float(stats.chi.mean(d + 1))),
                "Theorem 1": math.nan if pure else printed,
                "2 length": 2 * law.length(beta) / n,
                "proved": tail_alpha(noise=name, scale=law.scale, dimension=d, records=n, beta=beta),
                "exact": float(excess[order[place]]),
                "mean": float(exact @ excess),
            }
        )
    return pd.DataFrame(rows)
