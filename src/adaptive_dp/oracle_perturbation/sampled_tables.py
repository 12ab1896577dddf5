"""OPSamp on the page: sizes of the live parts, where the mechanism is usable, and runs against the bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.experiments import profile_settings
from adaptive_dp.noise import laplace
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP
from adaptive_dp.oracle_perturbation.opsamp import Plan, opsamp, plan, plan_for, printed_plan, rounding_gap
from adaptive_dp.oracle_perturbation.sampled_exact import LinePair
from adaptive_dp.oracle_perturbation.sampled_oracles import (
    CuttingPlanes,
    SampledOracle,
    cut_planes,
    list_grid,
)
from adaptive_dp.oracle_perturbation.sampled_problems import SampledProblem, ScoreLosses
from adaptive_dp.oracle_perturbation.sampled_utility import closed_rate, excess_bound
from adaptive_dp.validation import FloatArray, check_count, check_generator, check_probability

BETA = 0.05
# Features are multiples of 1 / FEATURE_GRID: a public rounding, after which equal records can be counted.
FEATURE_GRID = 4
MOST_RECORDS = 10**11


def page_settings(profile: str) -> dict[str, Any]:
    """Sizes of the live parts: records, side of the grid, runs, redraws of the Laplace noise, sizes of the plot."""
    return profile_settings(
        profile,
        quick={"records": 10_000, "side": 21, "runs": 1, "redraws": 500, "sizes": (1_000, 10_000)},
        book={"records": 10_000, "side": 41, "runs": 3, "redraws": 2_000, "sizes": (1_000, 10_000, 100_000)},
        paper={
            "records": 10_000,
            "side": 81,
            "runs": 30,
            "redraws": 2_000,
            "sizes": (1_000, 10_000, 100_000, 1_000_000),
        },
    )


# ---------------------------------------------------------------- where it is usable


def _standard(records: int, dimension: int, epsilon: float) -> dict[str, Any]:
    """W = [-1, 1]^d, G = 1/2 (such as (1 + <w, x>) / 2 with |x|_1 <= 1) and delta = 1 / n^2."""
    return {
        "epsilon": epsilon,
        "delta": float(records) ** -2,
        "records": records,
        "dimension": dimension,
        "diameter": 2.0,
        "lipschitz": 0.5,
    }


def standard_plan(records: int, dimension: int, *, epsilon: float = 1.0, oversampling: float = 2.0) -> Plan:
    """Return the corrected plan for [-1, 1]^d, G = 1/2, delta = 1 / n^2; the gap grows with n as rounding does."""
    n = check_count("records", records, minimum=2)
    given = _standard(n, dimension, epsilon)
    del given["delta"]
    eta = closed_rate(**given)[1]
    least = rounding_gap(records=n, dimension=dimension, diameter=2.0, eta=eta)
    return plan(**given, delta=float(n) ** -2, gap=max(GAP, 2 * least), oversampling=oversampling, beta=BETA)


def printed_excess(records: int, dimension: int, *, epsilon: float = 1.0) -> float:
    """Honest bound of the excess with Algorithm 2's parameters: eta as a rate, one-sided noise, an exact oracle."""
    n = check_count("records", records, minimum=2)
    given = _standard(n, dimension, epsilon)
    across = 2 * math.sqrt(dimension)
    found = printed_plan(**given, euclidean_diameter=across, beta=BETA)
    del given["delta"]
    return excess_bound(
        sensitivity=found.sensitivity, eta=found.eta, calls=found.calls, beta=BETA, centred=False, **given
    ).total


def usability_frame(
    dimensions: Sequence[int] = (1, 2, 5, 10),
    sizes: Sequence[int] = (10_000, 1_000_000),
    *,
    epsilon: float = 1.0,
) -> pd.DataFrame:
    """Bounds of the excess at failure probability .05, in units of a loss in [0, 1]: 1 and more is vacuous.

    Returns
    -------
    DataFrame
        ``dimension``, ``records``, ``printed_calls``, ``printed`` (bound), ``calls``, ``scale`` (lambda / epsilon),
        ``bound``, ``more_calls`` (bound with ten times as many calls, r = 20) and ``rate`` (2 sqrt(B E), in the
        mean).
    """
    rows = []
    for d in dimensions:
        for n in sizes:
            chosen, more = (standard_plan(n, d, epsilon=epsilon, oversampling=r) for r in (2.0, 20.0))
            given = _standard(n, d, epsilon)
            across = 2 * math.sqrt(d)
            del given["delta"]
            rows.append(
                {
                    "dimension": d,
                    "records": n,
                    "printed_calls": printed_plan(
                        **given, delta=float(n) ** -2, euclidean_diameter=across, beta=BETA
                    ).calls,
                    "printed": printed_excess(n, d, epsilon=epsilon),
                    "calls": chosen.calls,
                    "scale": chosen.scale,
                    "bound": chosen.excess(BETA).total,
                    "more_calls": more.excess(BETA).total,
                    "rate": closed_rate(**given)[0],
                }
            )
    return pd.DataFrame(rows)


def smallest_records(
    dimension: int, *, target: float = 0.1, epsilon: float = 1.0, printed: bool = False
) -> int:
    """Smallest n, to two digits and rounded up, for which the bound of the excess is below ``target``.

    The bounds fall as n grows (delta = 1 / n^2 enters through a logarithm): bisection over the numbers of two digits.
    """
    goal = check_probability("target", target)

    def enough(place: int) -> bool:
        n = _two_digits(place)
        found = (
            printed_excess(n, dimension, epsilon=epsilon)
            if printed
            else standard_plan(n, dimension, epsilon=epsilon).excess(BETA).total
        )
        return found < goal

    low, high = 0, 90 * int(math.log10(MOST_RECORDS) - 1)
    if not enough(high):
        raise ValueError(f"target must be reached by {MOST_RECORDS:.0e} records, got {target!r}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return _two_digits(high)


def _two_digits(place: int) -> int:
    """10, 11, ..., 99, 100, 110, ...: the numbers of two digits, in order."""
    return int((10 + place % 90) * 10 ** (place // 90))


def smallest_frame(dimensions: Sequence[int] = (1, 2, 5, 10), *, target: float = 0.1) -> pd.DataFrame:
    """:func:`smallest_records` over d: ``dimension``, ``printed``, ``corrected``."""
    return pd.DataFrame(
        [
            {
                "dimension": d,
                "printed": smallest_records(d, target=target, printed=True),
                "corrected": smallest_records(d, target=target),
            }
            for d in dimensions
        ]
    )


def bound_curves(
    dimensions: Sequence[int] = (1, 2, 5, 10), *, lowest: float = 4.0, highest: float = 8.0, count: int = 5
) -> pd.DataFrame:
    """Bounds against n for the figure: ``dimension``, ``records``, ``printed``, ``bound``."""
    rows = []
    for d in dimensions:
        for n in np.geomspace(10**lowest, 10**highest, check_count("count", count, minimum=2)):
            size = round(float(n))
            bound = standard_plan(size, d).excess(BETA).total
            rows.append({"dimension": d, "records": size, "printed": printed_excess(size, d), "bound": bound})
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- privacy, exactly, in one dimension


def line_privacy(records: int, *, epsilon: float = 1.0, oversampling: float = 2.0) -> dict[str, float]:
    """Exact privacy of the corrected mechanism for d = 1, W = {-1, 1} and the worst linear flip.

    Returns
    -------
    dict
        ``stability`` (s), ``distance`` (E |w - w'|), ``delta`` (claimed), ``failure`` (probability that the averages
        are further apart than lambda), ``epsilon`` (smallest at the claimed delta) and ``delta_at`` (smallest at the
        claimed epsilon).
    """
    chosen = standard_plan(records, 1, epsilon=epsilon, oversampling=oversampling)
    # The threshold is where the exponential density is largest, at sigma = 0: all other losses sum to -w / eta.
    slope = -1 / chosen.eta
    points = np.array([-1.0, 1.0])
    pair = LinePair(points, (slope + 1.0) * points, slope * points, chosen.eta)
    profile = pair.profile(chosen.calls, chosen.scale)
    return {
        "stability": chosen.stability,
        "distance": pair.mean_distance,
        "delta": chosen.delta,
        "failure": pair.distance_failure(chosen.calls, chosen.sensitivity),
        "epsilon": profile.epsilon(chosen.delta),
        "delta_at": profile.delta(chosen.epsilon),
    }


def line_frame(sizes: Sequence[int] = (1_000, 10_000, 100_000), *, epsilon: float = 1.0) -> pd.DataFrame:
    """:func:`line_privacy` over n, with ``records`` in front."""
    return pd.DataFrame([{"records": n, **line_privacy(n, epsilon=epsilon)} for n in sizes])


# ---------------------------------------------------------------- live runs


def live_records(records: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Simulated people: two features on a grid in [-1, 1], correlated, and a label that a noisy halfspace gives."""
    n = check_count("records", records)
    check_generator(rng)
    first = rng.uniform(-1, 1, n)
    second = np.clip(0.7 * first + 0.5 * rng.standard_normal(n), -1, 1)
    features = np.rint(np.column_stack([first, second]) * FEATURE_GRID) / FEATURE_GRID
    score = features[:, 0] - 0.4 * features[:, 1] + 0.4 * rng.standard_normal(n)
    return features, np.where(score > 0, 1.0, -1.0)


def reference(problem: ScoreLosses, side: int) -> float:
    """Smallest mean loss: certified by cutting planes for convex losses, over a grid for the others."""
    if problem.convex:
        found = CuttingPlanes(problem).solve(np.zeros(problem.dimension), gap=1e-4)
        return found.objective / problem.records
    return float(problem.on_grid(side).total.min()) / problem.records


def run_once(
    problem: ScoreLosses,
    *,
    oracle: str,
    side: int,
    epsilon: float,
    redraws: int,
    rng: np.random.Generator,
    centred: bool = True,
) -> dict[str, Any]:
    """One release, and what it costs: excess of the answers, of their average, and of the release.

    The Laplace noise is drawn ``redraws`` times for the excess of the release: its mean and .95 quantile given the
    average. (That looks at private values, for teaching.)
    """
    target: SampledProblem = problem.on_grid(side) if oracle == "grid" else problem
    method: SampledOracle = list_grid if oracle == "grid" else cut_planes
    chosen = plan_for(target, epsilon=epsilon, delta=float(problem.records) ** -2, beta=BETA, centred=centred)
    release = opsamp(
        target, epsilon=chosen.epsilon, delta=chosen.delta, oracle=method, chosen=chosen, centred=centred, rng=rng
    )  # fmt: skip
    average, n = release.trace["average"], problem.records
    best = reference(problem, side)
    noise = laplace(chosen.scale, (check_count("redraws", redraws), problem.dimension), rng)
    released = problem.values(np.clip(average + noise, -1, 1)) / n - best
    # A grid is within half a step of the box in each coordinate.
    coarse = problem.lipschitz * problem.dimension / (side - 1) if oracle == "grid" else 0.0
    bound = chosen.excess(BETA, centred=centred).total + coarse
    return {
        "calls": chosen.calls,
        "scale": chosen.scale,
        "answers": float(target.values(release.trace["points"]).mean()) / n - best,
        "average": float(problem.values(average[np.newaxis])[0]) / n - best,
        "released": float(released.mean()),
        "quantile": float(np.quantile(released, 1 - BETA)),
        "bound": bound if problem.convex else math.nan,
        "points": release.trace["points"],
        "centre": average,
        "value": release.value,
    }


CASES = (
    ("hinge", "grid", True),
    ("hinge", "planes", True),
    ("ramp", "grid", True),
    ("folded", "grid", True),
)


def live_runs(
    settings: dict[str, Any], *, epsilon: float, rng: np.random.Generator
) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:
    """The table of live runs (means over the runs), and the last run of each case for the figure."""
    features, labels = live_records(settings["records"], rng)
    rows, last = [], {}
    for loss, oracle, centred in CASES:
        problem = ScoreLosses(features, labels, loss)
        runs = [
            run_once(
                problem,
                oracle=oracle,
                side=settings["side"],
                epsilon=epsilon,
                redraws=settings["redraws"],
                rng=rng,
                centred=centred,
            )
            for _ in range(settings["runs"] if oracle == "grid" else 1)
        ]
        name = loss if centred else f"{loss}, one-sided"
        measured = ("answers", "average", "released", "quantile", "bound")
        means = {key: float(np.mean([run[key] for run in runs])) for key in measured}
        rows.append({"loss": name, "oracle": oracle, "calls": runs[0]["calls"], **means})
        last[f"{name}, {oracle}"] = runs[-1]
    return pd.DataFrame(rows), last


def growth_frame(settings: dict[str, Any], *, epsilon: float, rng: np.random.Generator) -> pd.DataFrame:
    """Excess of the hinge loss against n: ``records``, ``released``, ``quantile``, ``bound``, ``nothing``.

    ``nothing`` is the excess of w = 0, which needs no data.
    """
    rows = []
    for n in settings["sizes"]:
        features, labels = live_records(n, rng)
        problem = ScoreLosses(features, labels, "hinge")
        run = run_once(
            problem,
            oracle="grid",
            side=settings["side"],
            epsilon=epsilon,
            redraws=settings["redraws"],
            rng=rng,
        )
        idle = float(problem.values(np.zeros((1, 2)))[0]) / n - reference(problem, settings["side"])
        kept = {key: run[key] for key in ("released", "quantile", "bound")}
        rows.append({"records": n, **kept, "nothing": idle})
    return pd.DataFrame(rows)
