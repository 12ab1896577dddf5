"""How many incremental gradients it takes to a small gradient: proved and measured, for three methods.

Source: redberg2023, appendix C.7 and Theorem C.7.1, with erratum 29. With Q = L / lam, which grows like n where lam ~
1 / epsilon does not depend on n, the proved costs are n times

    gradient descent  Q log(||grad f(theta_0)|| / gamma),
    accelerated       sqrt(Q) log(18 Q L (f_0 - f* + lam / 2 ||theta_0 - theta*||^2) / gamma^2),
    SAG               2 max(8, 16 Q / n) log(2 L (3/2 (f_0 - f*) + 4 L / n ||theta_0 - theta*||^2) / (gamma^2 failure)),

each plus one or two for rounding up, the last with probability 1 - failure: n^2, n^1.5 and n, times a logarithm.

They are sharper than what is printed. *Descent*: a step turns the gradient g into (I - M / L) g, where M is the Hessian
averaged along the step, lam I <= M <= L I, so that ||g|| falls by 1 - 1/Q each time. The printed way, by
||theta - theta*||, takes four times as many steps, twice by its own arithmetic; and ||grad f(theta_0)|| is known before
the run. *SAG*: ||grad f||^2 <= 2 L (f - f*), better by Q than (2 L^2 / lam)(f - f*), of which the print has lost the 2;
and Schmidt's theorem is about f / n, so that a factor n inside the logarithm goes. *Accelerated*: what decreases is
f_0 - f* + lam / 2 ||.||^2, not ||.||^2; and the test is made at the extrapolated point, whose distance to theta* is at
most 3 times that of the worse of the last two iterates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from adaptive_dp.losses import LogisticLoss
from adaptive_dp.objective_perturbation.optimisers import (
    FiniteSum,
    OptimiserRun,
    accelerated_gradient,
    gradient_descent,
    sag_runs,
)
from adaptive_dp.validation import (
    FloatArray,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

Layout = Literal["flat", "spread"]
LAYOUTS: tuple[Layout, ...] = ("flat", "spread")
METHODS = ("gradient descent", "accelerated", "SAG")
CLAIMED = {"gradient descent": 2.0, "accelerated": 1.5, "SAG": 1.0}
"""Powers of n that appendix C.7 claims, times log n."""


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """What the bounds need to know about where a method starts.

    Parameters
    ----------
    rows : int
        n.
    smoothness, lam : float
        L >= lam > 0.
    gap : float
        f(theta_0) - f*, nonnegative.
    distance : float
        ||theta_0 - theta*||, nonnegative.
    gradient_norm : float
        ||grad f(theta_0)||, nonnegative.
    """

    rows: int
    smoothness: float
    lam: float
    gap: float
    distance: float
    gradient_norm: float

    def __post_init__(self) -> None:
        check_count("rows", self.rows)
        if check_ordinary("smoothness", self.smoothness) < check_ordinary("lam", self.lam):
            raise ValueError(f"smoothness must be at least lam, got {self.smoothness!r} and {self.lam!r}")
        for name in ("gap", "distance", "gradient_norm"):
            if check_real(name, getattr(self, name)) < 0:
                raise ValueError(f"{name} must be nonnegative, got {getattr(self, name)!r}")

    @classmethod
    def of(cls, problem: FiniteSum, start: FloatArray | None = None) -> StartingPoint:
        """Measure it, with an exact minimiser from Newton's method."""
        theta, best = problem.check_start(start), problem.minimum()
        return cls(
            rows=problem.rows,
            smoothness=problem.smoothness,
            lam=problem.lam,
            gap=max(problem.value(theta) - best.value, 0.0),
            distance=float(np.linalg.norm(theta - best.theta)),
            gradient_norm=float(np.linalg.norm(problem.gradient(theta))),
        )

    @property
    def condition(self) -> float:
        """Q = L / lam."""
        return self.smoothness / self.lam

    def descent_ratio(self, gamma: float) -> float:
        """By which factor ||grad f|| must fall."""
        return _finite(self.gradient_norm / check_ordinary("gamma", gamma))

    def accelerated_ratio(self, gamma: float) -> float:
        """By which factor f_0 - f* + lam / 2 ||theta_0 - theta*||^2 must fall."""
        energy = self.gap + 0.5 * self.lam * (self.distance * self.distance)
        return _finite(18 * self.condition * self.smoothness * energy / check_ordinary("gamma", gamma) ** 2)

    def sag_ratio(self, gamma: float, failure: float) -> float:
        """By which factor Schmidt's constant for f must fall, so that Markov's inequality gives 1 - ``failure``."""
        constant = 1.5 * self.gap + 4 * self.smoothness / self.rows * (self.distance * self.distance)
        tail = check_probability("failure", failure)
        goal = check_ordinary("gamma", gamma)
        return _finite(2 * self.smoothness * constant / goal**2 / tail)


def _finite(ratio: float) -> float:
    """Return ``ratio``, or refuse one that overflowed."""
    if not math.isfinite(ratio):
        raise ValueError("gamma is so small beside L, lam, gap and distance that the bound overflows")
    return ratio


def descent_bound(start: StartingPoint, *, gamma: float) -> int:
    """Incremental gradients after which :func:`gradient_descent` has stopped, for certain."""
    return start.rows * (1 + _steps(start.descent_ratio(gamma), 1 / start.condition))


def accelerated_bound(start: StartingPoint, *, gamma: float) -> int:
    """Incremental gradients after which :func:`accelerated_gradient` has stopped, for certain."""
    return start.rows * (2 + _steps(start.accelerated_ratio(gamma), 1 / math.sqrt(start.condition)))


def sag_bound(start: StartingPoint, *, gamma: float, failure: float) -> int:
    """Incremental gradients after which SAG (``memory="vectors"``) has stopped, with probability 1 - ``failure``.

    Theorem C.7.1 with its constants; lam >= beta is not needed. The n of the start and the stopping tests are in it.
    """
    n = start.rows
    steps = _steps(start.sag_ratio(gamma, failure), min(1 / (16 * start.condition), 1 / (8 * n)))
    return n + 2 * n * math.ceil(steps / n)


def _steps(ratio: float, rate: float) -> int:
    """Smallest T >= 0 with ratio (1 - rate)^T <= 1."""
    if ratio <= 1:
        return 0
    return 1 if rate >= 1 else math.ceil(math.log(ratio) / -math.log1p(-rate))


# --- the experiment -----------------------------------------------------------------------------------------


def perturbed_problem(
    rows: int,
    *,
    columns: int = 5,
    layout: Layout = "flat",
    lam: float = 0.5,
    sigma: float = 5.0,
    rng: np.random.Generator,
) -> FiniteSum:
    """Logistic regression on simulated rows of length 1, with the noise of objective perturbation.

    Parameters
    ----------
    rows, columns : int
        n, and d >= 2.
    layout : {"flat", "spread"}
        ``"spread"``: rows uniform on the sphere, so that the data curve f in every direction. ``"flat"``: the same in
        d - 1 dimensions, and a last feature that nobody has, as a rare category is: along it lam alone curves f, which
        the bounds have to allow for.
    lam, sigma : float
        Ridge and noise; about what (1, 1e-6) asks for.
    rng : numpy.random.Generator
    """
    n, d = check_count("rows", rows), check_count("columns", columns, minimum=2)
    kind = check_choice("layout", layout, LAYOUTS)
    noise, ridge = check_ordinary("sigma", sigma), check_ordinary("lam", lam)
    features = check_generator(rng).standard_normal((n, d))
    if kind == "flat":
        features[:, -1] = 0.0
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    hidden = rng.standard_normal(d)
    labels = np.where(rng.random(n) < 1 / (1 + np.exp(-4 * features @ hidden)), 1.0, -1.0)
    return FiniteSum(features, labels, LogisticLoss(), ridge, noise * rng.standard_normal(d))


def evaluations_table(
    ns: Sequence[int] = (100, 200, 400, 800, 1_600),
    *,
    layout: Layout = "flat",
    runs: int = 8,
    failure: float = 0.05,
    rng: np.random.Generator,
    columns: int = 5,
    lam: float = 0.5,
    sigma: float = 5.0,
) -> pd.DataFrame:
    """Incremental gradients to ||grad f|| <= 1 / n from 0, measured and proved, with lam the same for every n.

    Parameters
    ----------
    ns : sequence of int
    layout, columns, lam, sigma
        See :func:`perturbed_problem`.
    runs : int
        Runs of SAG on each problem, at least 2.
    failure : float
        Probability in the bound of SAG.
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        ``n``, ``method``, ``evaluations`` (mean over the runs), ``low``, ``high`` (smallest and largest),
        ``bound``, ``logarithm`` (the logarithm in the bound), ``converged``.

    Notes
    -----
    About ten seconds with the default sizes, nearly all of it SAG. With ``"spread"`` rows the curvature of the data
    grows with n: all three methods then need far less than the bounds, and little separates their powers of n.
    """
    count = check_count("runs", runs, minimum=2)
    tail = check_probability("failure", failure)
    rows = []
    for n in ns:
        gamma = 1 / check_count("ns", n)
        problem = perturbed_problem(n, columns=columns, layout=layout, lam=lam, sigma=sigma, rng=rng)
        start = StartingPoint.of(problem)
        descent = [gradient_descent(problem, gamma=gamma)]
        accelerated = [accelerated_gradient(problem, gamma=gamma)]
        averaged = sag_runs(problem, gamma=gamma, runs=count, rng=rng)
        bounds = (
            descent_bound(start, gamma=gamma),
            accelerated_bound(start, gamma=gamma),
            sag_bound(start, gamma=gamma, failure=tail),
        )
        ratios = (
            start.descent_ratio(gamma),
            start.accelerated_ratio(gamma),
            start.sag_ratio(gamma, tail),
        )
        found = (descent, accelerated, averaged)
        rows += [_row(n, *each) for each in zip(METHODS, found, bounds, ratios, strict=True)]
    return pd.DataFrame(rows)


def _row(n: int, method: str, found: list[OptimiserRun], bound: int, ratio: float) -> dict[str, object]:
    spent = np.array([run.evaluations for run in found], dtype=float)
    return {
        "n": n,
        "method": method,
        "evaluations": float(spent.mean()),
        "low": float(spent.min()),
        "high": float(spent.max()),
        "bound": bound,
        "logarithm": math.log(max(ratio, math.e)),
        "converged": all(run.converged for run in found),
    }


def exponents(table: pd.DataFrame, *, level: float = 0.95) -> pd.DataFrame:
    """Powers of n, by least squares on log axes, in what :func:`evaluations_table` returned.

    The logarithm of each bound is divided out first. The interval is Student's, for the scatter about the line: the
    line itself is an approximation, as L = n beta + lam is one to n beta.

    Returns
    -------
    DataFrame
        ``method``, ``claimed``; ``measured``, ``low``, ``high``; ``bound``, the power of the bound alike.
    """
    coverage = check_probability("level", level)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"table must be a DataFrame, got {type(table).__name__}")
    missing = {"n", "method", "evaluations", "logarithm", "bound"} - set(table.columns)
    if table.empty or missing:
        raise ValueError(
            f"table must be one of evaluations_table, got {len(table)} rows, without {sorted(missing)}"
        )
    rows = []
    for method, part in table.groupby("method", sort=False):
        if len(part) < 3:
            raise ValueError(f"table must hold at least 3 sizes a method, got {len(part)} for {method!r}")
        log_n = np.log(part["n"].to_numpy(dtype=float))
        fit = stats.linregress(log_n, np.log(part["evaluations"] / part["logarithm"]))
        half = float(stats.t.ppf((1 + coverage) / 2, len(part) - 2) * fit.stderr)
        rows.append(
            {
                "method": method,
                "claimed": CLAIMED[str(method)],
                "measured": float(fit.slope),
                "low": float(fit.slope) - half,
                "high": float(fit.slope) + half,
                "bound": float(stats.linregress(log_n, np.log(part["bound"] / part["logarithm"])).slope),
            }
        )
    return pd.DataFrame(rows)
