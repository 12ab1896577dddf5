"""The two problems of chapter 1 with everything precomputed that a risk query needs.

A problem object holds private data. It is built once (the O(n p^2) pass) and then answers excess-risk
queries: O(p^2) for ridge regression, whatever n is; for logistic regression most queries are decided by
bounds in O(p^2) and the rest cost one pass over the distinct rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from adaptive_dp.accuracy_first.calibration import MECHANISMS
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.privacy import Domain
from adaptive_dp.solvers import logistic_regression, ridge_regression
from adaptive_dp.validation import FloatArray, check_choice, check_ordinary


def _freeze(*arrays: FloatArray) -> FloatArray:
    """Make arrays read-only, and return the first: an edited statistic would void every later guarantee."""
    for array in arrays:
        array.setflags(write=False)
    return arrays[0]


@dataclass(frozen=True, eq=False, repr=False)
class RidgeProblem:
    """L(theta) = |y - X theta|^2 / (2n) + (lam/2) |theta|^2, kept as X'X, X'y and y'y."""

    gram: FloatArray
    moment: FloatArray
    label_square: float
    rows: int
    lam: float
    domain: Domain

    task = "ridge"

    def __post_init__(self) -> None:
        _freeze(self.gram, self.moment)

    @property
    def columns(self) -> int:
        """Number of features p."""
        return int(self.moment.size)

    @cached_property
    def hessian(self) -> FloatArray:
        """X'X/n + lam I, shape (p, p)."""
        return self.gram / self.rows + self.lam * np.eye(self.columns)

    @cached_property
    def minimiser(self) -> FloatArray:
        """The exact minimiser theta*, shape (p,). Private."""
        return _freeze(ridge_regression(self.gram, self.moment, self.rows, self.lam))

    @cached_property
    def minimiser_norm(self) -> float:
        """|theta*|. Private."""
        return float(np.linalg.norm(self.minimiser))

    def risk(self, theta: FloatArray) -> float:
        """L(theta)."""
        residual = self.label_square - 2 * self.moment @ theta + theta @ self.gram @ theta
        return float(residual / (2 * self.rows) + self.lam * (theta @ theta) / 2)

    def excess_risk(self, theta: FloatArray) -> float:
        """L(theta) - L(theta*), as the quadratic form it is: no cancellation, O(p^2)."""
        step = theta - self.minimiser
        return float(step @ self.hessian @ step / 2)

    def excess_at_most(self, theta: FloatArray, level: float) -> bool:
        """Whether L(theta) - L(theta*) <= level."""
        return self.excess_risk(theta) <= level

    def least_excess_on_sphere(self, radius: float) -> float:
        """Lower bound on the excess risk of every theta with |theta| = ``radius``, from strong convexity."""
        return _least_excess_on_sphere(self, radius)


@dataclass(frozen=True, eq=False, repr=False)
class LogisticProblem:
    """L(theta) = mean log(1 + exp(-y <theta, x>)) + (lam/2) |theta|^2.

    The loss of a record depends on y x alone, so equal rows y x are kept once with a count.
    """

    signed: FloatArray
    counts: FloatArray
    rows: int
    lam: float
    domain: Domain

    task = "logistic"

    def __post_init__(self) -> None:
        _freeze(self.signed, self.counts)

    @property
    def columns(self) -> int:
        """Number of features p."""
        return int(self.signed.shape[1])

    @cached_property
    def minimiser(self) -> FloatArray:
        """The exact minimiser theta* (gradient below 1e-10), shape (p,). Private."""
        ones = np.ones(self.signed.shape[0])
        return _freeze(logistic_regression(self.signed, ones, self.lam, weights=self.counts).theta)

    @cached_property
    def minimiser_norm(self) -> float:
        """|theta*|. Private."""
        return float(np.linalg.norm(self.minimiser))

    @cached_property
    def data_hessian(self) -> FloatArray:
        """Hessian of the mean loss at theta*, without the ridge term, shape (p, p)."""
        margin = self.signed @ self.minimiser
        curvature = self.counts * expit(margin) * expit(-margin)
        return np.asarray((self.signed.T * curvature) @ self.signed / self.rows)

    @cached_property
    def least_risk(self) -> float:
        """L(theta*). Private."""
        return self.risk(self.minimiser)

    def risk(self, theta: FloatArray) -> float:
        """L(theta); O(distinct rows x p)."""
        margin = self.signed @ theta
        loss = np.log1p(np.exp(-np.abs(margin))) - np.minimum(margin, 0)
        return float(self.counts @ loss / self.rows + self.lam * (theta @ theta) / 2)

    def excess_risk(self, theta: FloatArray) -> float:
        """L(theta) - L(theta*); O(distinct rows x p)."""
        return self.risk(theta) - self.least_risk

    @cached_property
    def _single(self) -> NDArray[np.float32]:
        return np.asfortranarray(self.signed, dtype=np.float32)

    def rough_excess_risk(self, theta: FloatArray) -> tuple[float, float]:
        """Excess risk in single precision and a bound on its error; several times faster than the exact value.

        A margin is a sum of p products, at most |theta| in total, each step of which rounds by 2^-24; the loss is
        1-Lipschitz in the margin, and its own rounding is of the same order. The bound is twice that.
        """
        margin = self._single @ theta.astype(np.float32)
        loss = np.log(1 + np.exp(-np.abs(margin))) - np.minimum(margin, 0)
        risk = float(self.counts @ loss.astype(np.float64) / self.rows + self.lam * (theta @ theta) / 2)
        error = 2 * (self.columns + 8) * 2.0**-23 * (1 + float(np.linalg.norm(theta)))
        return risk - self.least_risk, error

    def excess_bounds(self, theta: FloatArray) -> tuple[float, float]:
        """Lower and upper bound on the excess risk from derivatives at theta* alone; O(p^2).

        Along a segment on which no margin moves by more than u, the logistic loss's curvature changes by a
        factor between e^-u and e^u (self-concordance, Bach 2010), so with q = d' H d, d = theta - theta*,
        q (e^-u + u - 1)/u^2 <= excess - (lam/2) |d|^2 <= q (e^u - u - 1)/u^2.
        """
        step = theta - self.minimiser
        # |<x, d>| <= |x|_1 |d|_inf, or |x|_2 |d|_2 where only l2 norms are declared
        reach = np.abs(step).max() if self.domain.norm == "l1" else np.sqrt(step @ step)
        u = float(reach) * self.domain.feature_bound
        curvature, penalty = float(step @ self.data_hessian @ step), self.lam * float(step @ step) / 2
        if u < 1e-4:  # the quotients tend to 1/2 -+ u/6; their cancellation is worse than this remainder
            return curvature * (0.5 - u / 6) + penalty, curvature * (0.5 + u / 5) + penalty
        upper = curvature * (np.expm1(u) - u) / u**2 if u < 700 else np.inf
        return curvature * (np.expm1(-u) + u) / u**2 + penalty, float(upper + penalty)

    def excess_at_most(self, theta: FloatArray, level: float) -> bool:
        """Whether L(theta) - L(theta*) <= level.

        Reads the data only where the bounds leave it open, and in double precision only where single
        precision leaves it open.
        """
        lower, upper = self.excess_bounds(theta)
        # A relative guard far above rounding: near ties are always decided by the exact value.
        if lower * (1 - 1e-9) > level:
            return False
        if upper * (1 + 1e-9) < level:
            return True
        rough, error = self.rough_excess_risk(theta)
        if abs(rough - level) > error:
            return rough < level
        return self.excess_risk(theta) <= level

    def least_excess_on_sphere(self, radius: float) -> float:
        """Lower bound on the excess risk of every theta with |theta| = ``radius``, from strong convexity."""
        return _least_excess_on_sphere(self, radius)


Problem = RidgeProblem | LogisticProblem


def _least_excess_on_sphere(problem: Problem, radius: float) -> float:
    distance = max(0.0, radius - problem.minimiser_norm)
    return problem.lam * distance**2 / 2


def prepare(data: Dataset | Problem, *, lam: float | None = None) -> Problem:
    """Build the problem that a data set's labels ask for; a problem that is already built passes through.

    Real labels give ridge regression, labels in {-1, +1} logistic regression. O(n p^2).

    Raises
    ------
    TypeError
        ``data`` is neither a Dataset nor a problem.
    ValueError
        The declared domain is not the unit one that the sensitivities of this chapter are proved for, or
        ``lam`` is not positive, or differs from that of a problem already built.
    """
    if isinstance(data, RidgeProblem | LogisticProblem):
        if lam is not None and lam != data.lam:
            raise ValueError(f"lam must be that of the prepared problem, {data.lam!r}, got {lam!r}")
        return data
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset or a prepared problem, got {type(data).__name__}")
    strength = check_ordinary("lam", lam)
    check_unit_domain(data.domain)
    if data.domain.labels == "sign":
        signed, counts = _distinct_rows(data.features * data.labels[:, None])
        return LogisticProblem(signed, counts, data.rows, strength, data.domain)
    features, labels = data.features, data.labels
    return RidgeProblem(
        features.T @ features, features.T @ labels, float(labels @ labels), data.rows, strength, data.domain
    )


def _distinct_rows(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distinct rows and how often each occurs; columns first, so that a matrix-vector product is fast."""
    # Hashing rows as opaque bytes is several times faster than a lexicographic sort of 38 columns;
    # adding zero turns -0.0 into 0.0, which are different bytes and the same number.
    packed = np.ascontiguousarray(rows + 0.0).view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
    _, first, counts = np.unique(packed, return_index=True, return_counts=True)
    order = np.argsort(first)
    return np.asfortranarray(rows[first[order]]), counts[order].astype(np.float64)


def check_unit_domain(domain: Domain) -> None:
    """Refuse a domain other than rows of norm <= 1 and |label| <= 1: every constant assumes it."""
    if domain.norm not in ("l1", "l2") or domain.feature_bound > 1:
        raise ValueError(
            f"domain must declare rows of l1 or l2 norm at most 1, got {domain.describe()}; "
            "divide the features by a public constant first"
        )
    if domain.labels == "class":
        raise ValueError("domain must declare real labels or labels in {-1, +1}, got classes")
    if domain.label_bound > 1:
        raise ValueError(
            f"domain must declare |label| <= 1, got {domain.label_bound!r}; divide the labels first"
        )


def check_task_of(problem: Problem, mechanism: str) -> None:
    """Refuse a problem that the mechanism does not fit: covariance perturbation is for ridge regression."""
    if check_choice("mechanism", mechanism, MECHANISMS) == "covariance" and problem.task != "ridge":
        raise ValueError(
            f"data must pose a ridge problem (real labels) for covariance perturbation, got labels of a "
            f"{problem.task} problem: {problem.domain.describe_labels()}"
        )
