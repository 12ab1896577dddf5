"""First-order methods for the perturbed objective, with every gradient counted: descent, accelerated descent, SAG.

Source: redberg2023, appendix C.7 and Theorem C.7.1, with erratum 29; Nesterov, "Lectures on convex optimization", 2018;
Schmidt, Le Roux and Bach, "Minimizing finite sums with the stochastic average gradient", 2017, Theorem 1.

The objective f(theta) = sum_i l(theta; z_i) + lam / 2 ||theta||^2 + b'theta is lam-strongly convex and L-smooth with
L = n beta + lam. Approximate minima perturbation (Algorithm 7) stops at ||grad f|| <= gamma, whatever the method was.
The unit of cost is one incremental gradient: that of one record's loss. What each method is proved to cost, and what it
does cost, is in :mod:`adaptive_dp.objective_perturbation.optimisation_cost`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.losses import Loss
from adaptive_dp.solvers import NewtonFit, minimise_newton
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
)

LIMIT = 1_000_000_000
"""Incremental gradients after which a method gives up, by default."""
Memory = Literal["vectors", "scalars"]
LONGEST_HISTORY = 10_000
MEMORIES: tuple[Memory, ...] = ("vectors", "scalars")


@dataclass(frozen=True, eq=False)
class FiniteSum:
    """f(theta) = sum_i l(x_i'theta; y_i) + lam / 2 ||theta||^2 + linear'theta, over all of R^d.

    Parameters
    ----------
    features : array_like, shape (n, d)
    labels : array_like, shape (n,)
    loss : Loss
        Generalised linear, with a finite curvature.
    lam : float
        Positive, beside the sum.
    linear : array_like, shape (d,), optional
        The noise b of objective perturbation; 0 by default.
    """

    features: FloatArray
    labels: FloatArray
    loss: Loss
    lam: float
    linear: FloatArray
    smoothness: float = field(init=False)
    """L = n beta + lam with beta = sup l'' max ||x||^2: bounds the eigenvalues of every Hessian."""

    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        loss: Loss,
        lam: float,
        linear: ArrayLike | None = None,
    ) -> None:
        X, y = as_finite_array("features", features, ndim=2), as_finite_array("labels", labels, ndim=1)
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise ValueError(f"features must have at least one row and one column, got shape {X.shape}")
        if y.shape[0] != X.shape[0]:
            raise ValueError(
                f"labels must have one entry a row of features: {y.shape[0]} against {X.shape[0]}"
            )
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must be a Loss, got {type(loss).__name__}")
        loss.check_labels(y)
        if not math.isfinite(loss.curvature):
            raise ValueError(f"loss must have a finite curvature, got {loss.curvature!r}")
        b = np.zeros(X.shape[1]) if linear is None else as_finite_array("linear", linear, ndim=1)
        if b.shape != (X.shape[1],):
            raise ValueError(f"linear must have shape ({X.shape[1]},), got {b.shape}")
        ridge = check_ordinary("lam", lam)
        with np.errstate(over="ignore"):
            largest = float(np.einsum("ij,ij->i", X, X).max())
            smoothness = float(X.shape[0] * loss.curvature * largest + ridge)
        if not math.isfinite(smoothness):
            raise ValueError("features must be so small that the squares of their norms do not overflow")
        for name, value in (
            ("features", X),
            ("labels", y),
            ("loss", loss),
            ("lam", ridge),
            ("linear", b),
            ("smoothness", smoothness),
        ):
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        """Number of records n: what one full gradient costs."""
        return int(self.features.shape[0])

    @property
    def columns(self) -> int:
        """Number of features d."""
        return int(self.features.shape[1])

    def value(self, theta: FloatArray) -> float:
        """Objective at ``theta`` (d,)."""
        losses = self.loss.value(self.features @ theta, self.labels)
        return float(losses.sum() + 0.5 * self.lam * (theta @ theta) + self.linear @ theta)

    def gradient(self, theta: FloatArray) -> FloatArray:
        """Gradient at ``theta`` (d,): n incremental gradients."""
        slopes = self.loss.derivative(self.features @ theta, self.labels)
        return np.asarray(slopes @ self.features + self.lam * theta + self.linear)

    def minimum(self, *, tolerance: float = 1e-9) -> NewtonFit:
        """Exact minimiser, by Newton's method: for the bounds below and for comparison."""

        def derivatives(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
            n = self.rows
            hessian = n * self.loss.hessian(theta, self.features, self.labels, self.lam / n)
            return self.gradient(theta), hessian

        return minimise_newton(self.value, derivatives, np.zeros(self.columns), tolerance=tolerance)

    def check_start(self, start: ArrayLike | None) -> FloatArray:
        """Return a point (d,) to start from; 0 by default."""
        theta = np.zeros(self.columns) if start is None else as_finite_array("start", start, ndim=1)
        if theta.shape != (self.columns,):
            raise ValueError(f"start must have shape ({self.columns},), got {theta.shape}")
        return theta


@dataclass(frozen=True, eq=False)
class OptimiserRun:
    """Where a method stopped, and what it had spent.

    Parameters
    ----------
    theta : ndarray, shape (d,)
    gradient_norm : float
        ||grad f(theta)||, computed at ``theta`` itself.
    evaluations : int
        Incremental gradients so far, those of the stopping tests included.
    converged : bool
        Whether ``gradient_norm`` is at most gamma. If not, theta must not be released.
    history : DataFrame
        ``evaluations``, ``gradient_norm``: each test of the stopping rule. Of more than 10,000 every second, fourth,
        ... one, and the last.
    """

    theta: FloatArray
    gradient_norm: float
    evaluations: int
    converged: bool
    history: pd.DataFrame


class _Tests:
    """Tests of the stopping rule: all of them while they are few, then thinned out evenly."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, float]] = []
        self.last = (0, math.inf)
        self.count, self.every = 0, 1

    def add(self, spent: int, norm: float) -> None:
        self.last = (spent, norm)
        if self.count % self.every == 0:
            self.kept.append(self.last)
            if len(self.kept) > LONGEST_HISTORY:
                self.kept, self.every = self.kept[::2], 2 * self.every
        self.count += 1

    def run(self, theta: FloatArray, gamma: float) -> OptimiserRun:
        rows = self.kept if self.kept[-1] == self.last else [*self.kept, self.last]
        spent, norm = self.last
        history = pd.DataFrame(rows, columns=["evaluations", "gradient_norm"])
        return OptimiserRun(theta, norm, spent, norm <= gamma, history)


class _Cycle:
    """Whether a deterministic iteration has come back to where it was (Brent's method: one state is remembered)."""

    def __init__(self) -> None:
        self.state: tuple[FloatArray, ...] = ()
        self.steps, self.next = 0, 1

    def again(self, *state: FloatArray) -> bool:
        if self.state and all(np.array_equal(new, old) for new, old in zip(state, self.state, strict=True)):
            return True
        self.steps += 1
        if self.steps == self.next:
            self.state, self.next = state, 2 * self.next
        return False


def gradient_descent(
    problem: FiniteSum, *, gamma: float, start: ArrayLike | None = None, limit: int = LIMIT
) -> OptimiserRun:
    """Steps of length 1 / L along the full gradient until its norm is at most ``gamma``.

    Parameters
    ----------
    problem : FiniteSum
    gamma : float
        From 1e-100 to 1e100, in the units of the sum.
    start : array_like, shape (d,), optional
        0 by default.
    limit : int
        No step is begun after so many incremental gradients, nor where theta has come back to a point where it was
        before: it would go round for ever, for rounding hides what is left of the gradient.
    """
    theta, goal = problem.check_start(start), check_ordinary("gamma", gamma)
    most, n, tests = check_count("limit", limit), problem.rows, _Tests()
    seen = _Cycle()
    while True:
        gradient = problem.gradient(theta)
        tests.add((tests.count + 1) * n, float(np.linalg.norm(gradient)))
        if tests.last[1] <= goal or tests.last[0] >= most or seen.again(theta):
            return tests.run(theta, goal)
        theta = theta - gradient / problem.smoothness


def accelerated_gradient(
    problem: FiniteSum, *, gamma: float, start: ArrayLike | None = None, limit: int = LIMIT
) -> OptimiserRun:
    """Nesterov's method for strongly convex functions, with constant momentum (sqrt(Q) - 1) / (sqrt(Q) + 1).

    The answer is an extrapolated point: there the gradient is known, and the test costs nothing more. Parameters as
    for :func:`gradient_descent`.
    """
    point, goal = problem.check_start(start), check_ordinary("gamma", gamma)
    most, n = check_count("limit", limit), problem.rows
    root = math.sqrt(problem.smoothness / problem.lam)
    momentum = (root - 1) / (root + 1)
    last, tests, seen = point, _Tests(), _Cycle()
    while True:
        gradient = problem.gradient(point)
        tests.add((tests.count + 1) * n, float(np.linalg.norm(gradient)))
        if tests.last[1] <= goal or tests.last[0] >= most or seen.again(point, last):
            return tests.run(point, goal)
        new = point - gradient / problem.smoothness
        point, last = new + momentum * (new - last), new


def stochastic_average_gradient(
    problem: FiniteSum,
    *,
    gamma: float,
    rng: np.random.Generator,
    start: ArrayLike | None = None,
    memory: Memory = "vectors",
    limit: int = LIMIT,
) -> OptimiserRun:
    """SAG with step 1 / (16 L), tested after every n steps as in Theorem C.7.1: one run of :func:`sag_runs`."""
    return sag_runs(problem, gamma=gamma, runs=1, rng=rng, start=start, memory=memory, limit=limit)[0]


def sag_runs(
    problem: FiniteSum,
    *,
    gamma: float,
    runs: int,
    rng: np.random.Generator,
    start: ArrayLike | None = None,
    memory: Memory = "vectors",
    limit: int = LIMIT,
) -> list[OptimiserRun]:
    """Independent runs of SAG on one problem, side by side: each draws its own records.

    A step draws one record, computes its gradient, puts it in the place of the one remembered for it, and goes along
    the sum of what is remembered. Every n steps the full gradient is computed for the stopping test; its n incremental
    gradients are counted, as are the n of the start.

    Parameters
    ----------
    problem : FiniteSum
    gamma : float
        From 1e-100 to 1e100, in the units of the sum.
    runs : int
        How many.
    rng : numpy.random.Generator
    start : array_like, shape (d,), optional
        0 by default.
    memory : {"vectors", "scalars"}
        ``"vectors"``: as appendix C.7 splits f, each record's part holds its share of the ridge and of b, so that a
        vector a record is remembered; Schmidt's theorem is about this. ``"scalars"``: the ridge and b are taken
        exactly in each step and only the slope l'(x_i'theta) is remembered; usual in practice, not covered by it.
    limit : int
        A run is given up once it has spent so many incremental gradients.

    Notes
    -----
    Steps depend on each other, so that a single run is a Python loop: about 2e4 steps a second, and nearly as many
    for eight runs at once. (Many records a step would be another algorithm.)
    """
    begin, goal = problem.check_start(start), check_ordinary("gamma", gamma)
    count, most = check_count("runs", runs), check_count("limit", limit)
    check_generator(rng)
    kind = check_choice("memory", memory, MEMORIES)
    n, full = problem.rows, problem.gradient(begin)
    tests = [_Tests() for _ in range(count)]
    for each in tests:
        each.add(n, float(np.linalg.norm(full)))
    if tests[0].last[1] <= goal or n >= most:
        return [each.run(begin, goal) for each in tests]
    state = (_Vectors if kind == "vectors" else _Scalars)(problem, begin, full, count)
    done: dict[int, FloatArray] = {}
    spent = n
    while len(done) < count:
        state.epoch(rng.integers(n, size=(n, count)))
        spent += 2 * n
        for run in set(range(count)) - set(done):
            norm = float(np.linalg.norm(problem.gradient(state.theta[run])))
            tests[run].add(spent, norm)
            if norm <= goal or spent >= most:
                done[run] = state.theta[run].copy()
    return [tests[run].run(done[run], goal) for run in range(count)]


class _Vectors:
    """R runs side by side; ``parts[r, i]`` is the gradient of f_i that run r remembers."""

    def __init__(self, problem: FiniteSum, start: FloatArray, full: FloatArray, runs: int) -> None:
        self.problem = problem
        self.theta = np.tile(start, (runs, 1))
        slopes = problem.loss.derivative(problem.features @ start, problem.labels)
        share = (problem.lam * start + problem.linear - full) / problem.rows
        # Schmidt's start: the gradients at theta_0, less their mean.
        self.parts = np.tile(slopes[:, np.newaxis] * problem.features + share, (runs, 1, 1))

    def epoch(self, draws: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> None:
        problem, theta, parts = self.problem, self.theta, self.parts
        X, y, derivative, n = problem.features, problem.labels, problem.loss.derivative, problem.rows
        step, ridge, shift = 1 / (16 * problem.smoothness), problem.lam / n, problem.linear / n
        every = np.arange(theta.shape[0])
        total = parts.sum(axis=1)  # afresh each time: rounding does not pile up
        for drawn in draws:
            x = X[drawn]
            slopes = derivative(np.einsum("rd,rd->r", x, theta), y[drawn])
            new = slopes[:, np.newaxis] * x + ridge * theta + shift
            total += new - parts[every, drawn]
            parts[every, drawn] = new
            theta -= step * total


class _Scalars:
    """The same with the slopes alone remembered."""

    def __init__(self, problem: FiniteSum, start: FloatArray, full: FloatArray, runs: int) -> None:
        self.problem = problem
        self.theta = np.tile(start, (runs, 1))
        self.slopes = np.tile(problem.loss.derivative(problem.features @ start, problem.labels), (runs, 1))

    def epoch(self, draws: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> None:
        problem, theta, slopes = self.problem, self.theta, self.slopes
        X, y, derivative = problem.features, problem.labels, problem.loss.derivative
        step, lam, shift = 1 / (16 * problem.smoothness), problem.lam, problem.linear
        every = np.arange(theta.shape[0])
        total = slopes @ X
        for drawn in draws:
            x = X[drawn]
            new = derivative(np.einsum("rd,rd->r", x, theta), y[drawn])
            total += (new - slopes[every, drawn])[:, np.newaxis] * x
            slopes[every, drawn] = new
            theta -= step * (total + lam * theta + shift)
