"""Exact privacy of two given neighbours: objective perturbation of a generalised linear loss with d = 1 or 2.

The mechanism is theta = argmin sum_i f(x_i' theta; y_i) + lam / 2 ||theta||^2 + b' theta, b ~ N(0, sigma^2 I), the
neighbours are the data without and with one record z.

**d = 1** (:class:`LinePair`): divergences are *enclosed*. b(theta) = -J'(theta) is strictly decreasing, so that the
probability of an interval of theta is a difference of normal distribution functions under either law. With t = b/sigma
and s = -x f'/sigma, both of which fall as theta grows, the loss is s t + s^2/2 - log(1 + h/H) with h = x^2 f'' and
H = J''. s and t are monotone whatever the convex loss; f'' is only assumed to be monotone between its *turning
points*, jumps included, so that its bounds on a cell are those at the ends and at the turning points inside. All the
rest is that of :mod:`~adaptive_dp.per_instance.one_dimensional`, which does it for the logistic loss.

**d = 2** (:class:`PlanePair`): a trapezoidal rule on a grid of the noise, with a Newton solve at each node and full
determinants. Nothing of the one-dimensional reduction enters, which makes it a check of it. The error is estimated from
the grid with every other node, not enclosed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.losses import Loss
from adaptive_dp.objective_perturbation.clipping import ClippedLoss
from adaptive_dp.objective_perturbation.line_losses import LineLoss, bind
from adaptive_dp.per_instance.cells import Cells, Interval, normal_cells
from adaptive_dp.per_instance.one_dimensional import REACH as LINE_REACH
from adaptive_dp.per_instance.one_dimensional import Data1D, Neighbours1D, check_order, renyi_reach
from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_ordinary, check_real

TABLE, HALVINGS = 200, 20
CORE, OUTER, LARGEST_TURNS = 160, 24, 100
FAR = 1e200
NEWTON_STEPS, LINE_STEPS = 200, 50
SOLVED = 1e-9
REACH = 8.0  # standard deviations of the noise of a plane


# ---------------------------------------------------------------- d = 1


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One record of d = 1: what f(x theta; y) adds to J' and J''."""

    loss: LineLoss
    feature: float
    label: float

    def slope(self, theta: FloatArray) -> FloatArray:
        """Derivative in theta, shape of ``theta``."""
        return np.asarray(self.feature * self.loss.derivative(self.feature * theta, self.label))

    def curvature(self, theta: FloatArray) -> FloatArray:
        """Second derivative in theta."""
        return np.asarray(self.feature**2 * self.loss.second_derivative(self.feature * theta, self.label))

    def turning_points(self) -> FloatArray:
        """Where the second derivative in theta turns; none for x = 0."""
        if self.feature == 0:
            return np.empty(0)
        with np.errstate(over="ignore"):
            return np.asarray(self.loss.turning_points(self.label) / self.feature)

    def largest_slope(self) -> float:
        """Supremum over theta of |derivative|; infinite where it grows without end."""
        ends = np.abs(self.slope(np.array([-FAR, FAR])))
        return float(ends.max()) if ends.max() < 1e100 else math.inf

    def largest_curvature(self) -> float:
        """Supremum over theta of the second derivative."""
        points = np.array([-FAR, FAR, 0.0])
        return float(max(self.curvature(points).max(), self._at_turns().max(initial=0.0)))

    def _at_turns(self) -> FloatArray:
        """Values at the turning points and beside them, shape (3, k)."""
        if self.feature == 0:
            return np.empty((3, 0))
        at = self.loss.turning_points(self.label)
        sides = np.stack([np.nextafter(at, -np.inf), at, np.nextafter(at, np.inf)])
        return np.asarray(self.feature**2 * self.loss.second_derivative(sides, self.label))

    def curvature_bounds(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest second derivative between neighbours of the increasing ``theta`` (K,); (K - 1,)."""
        values = self.curvature(theta)
        low, high = np.minimum(values[:-1], values[1:]), np.maximum(values[:-1], values[1:])
        for point, beside in zip(self.turning_points(), self._at_turns().T, strict=True):
            if not math.isfinite(point):
                continue
            # A few units in the last place more, so that no rounding puts the point into another cell.
            slack = 1e-14 * abs(point) + 1e-300
            inside = (theta[:-1] <= point + slack) & (theta[1:] >= point - slack)
            low[inside] = np.minimum(low[inside], beside.min())
            high[inside] = np.maximum(high[inside], beside.max())
        return low, high


@dataclass(frozen=True, slots=True, eq=False)
class LineData(Data1D):
    """Data in one dimension: ``products`` are the features x, each with its weight and its term."""

    terms: tuple[Term, ...]

    def scores(self, theta: FloatArray) -> FloatArray:
        """Return t = b/sigma for the noise that makes each ``theta`` the minimiser; decreasing, same shape."""
        total = self.lam * theta
        for weight, term in zip(self.weights, self.terms, strict=True):
            total = total + weight * term.slope(theta)
        return np.asarray(-total / self.sigma)

    def curvatures(self, theta: FloatArray) -> FloatArray:
        """Second derivative H of the objective at each ``theta``."""
        total = np.full(theta.shape, self.lam)
        for weight, term in zip(self.weights, self.terms, strict=True):
            total += weight * term.curvature(theta)
        return total

    def curvature_bounds(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bounds of H between neighbouring points, shape (K - 1,)."""
        low = np.full(theta.size - 1, self.lam)
        high = low.copy()
        for weight, term in zip(self.weights, self.terms, strict=True):
            least, most = term.curvature_bounds(theta)
            low += weight * least
            high += weight * most
        return low, high

    def largest_slope(self) -> float:
        """Bound of the derivative of the sum of losses; infinite for the squared loss."""
        return float(sum(w * term.largest_slope() for w, term in zip(self.weights, self.terms, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class LinePair(Neighbours1D):
    """Two neighbouring data sets in one dimension; build it with :func:`line_pair`.

    ``delta``, ``epsilon``, ``renyi``, ``exceedance`` and ``quantile`` are those of
    :class:`~adaptive_dp.per_instance.one_dimensional.Neighbours1D`: enclosures in both directions, first the one with
    P = data without z.
    """

    base: LineData
    record: Term

    @property
    def mu(self) -> float:
        """Supremum over theta of |gradient of z| / sigma."""
        return self.record.largest_slope() / self.base.sigma

    @property
    def kappa(self) -> float:
        """Supremum over theta of z's second derivative / lam."""
        return self.record.largest_curvature() / self.base.lam

    def log_ratio(self, theta: ArrayLike) -> FloatArray:
        """Exact log p_without(theta) / p_with(theta), shape of ``theta``."""
        points = as_finite_array("theta", theta)
        shifts = self._shifts(points)
        determinant = np.log1p(self.record.curvature(points) / self.base.curvatures(points))
        return np.asarray(shifts * (self.base.scores(points) + shifts / 2) - determinant)

    def first_cells(self, reach: float) -> tuple[Cells, Cells]:
        """Both directions on the first grid, which covers ``reach`` standard deviations of both laws."""
        return self._cells_at(self._first_grid(reach))

    def _shifts(self, theta: FloatArray) -> FloatArray:
        return np.asarray(-self.record.slope(theta) / self.base.sigma)

    def _first_grid(self, reach: float) -> FloatArray:
        """Points that resolve both laws, and the turning points of the record and of a few others."""
        inner, outer = np.linspace(-10, 10, CORE), np.linspace(10, max(reach, 10.5), OUTER)[1:]
        targets = np.concatenate([-outer[::-1], inner, outer])
        wanted = [self._thetas(targets, with_record=flag) for flag in (False, True)]
        inside = np.concatenate(wanted)
        turns = np.concatenate(
            [term.turning_points() for term in (self.record, *self.base.terms[:LARGEST_TURNS])]
        )
        turns = turns[(turns > inside.min()) & (turns < inside.max())]
        points = np.unique(np.concatenate([inside, turns]))
        # Equal scores make empty cells; a point too few is only a coarser grid.
        scores = self.base.scores(points)
        falls = np.diff(scores) < -1e-11 * np.maximum(1.0, np.abs(scores[1:]))
        return np.asarray(points[np.concatenate([[True], falls])])

    def _thetas(self, scores: FloatArray, *, with_record: bool) -> FloatArray:
        """The theta that noise of each score makes the minimiser, by bisection; accurate enough for a grid."""

        def at(theta: FloatArray) -> FloatArray:
            return self.base.scores(theta) + (self._shifts(theta) if with_record else 0.0)

        # J' grows at least as fast as lam theta: that bounds theta, and a table of all magnitudes brackets it.
        start = float(at(np.zeros(1))[0])
        span = 1.01 * float(np.abs(start - scores).max()) * self.base.sigma / self.base.lam + 1e-290
        half = np.geomspace(max(span * 1e-16, 1e-300), span, TABLE)
        table = np.concatenate([-half[::-1], [0.0], half])
        above = np.searchsorted(-at(table), -scores)
        left, right = (table[np.clip(above + shift, 0, table.size - 1)] for shift in (-1, 0))
        for _ in range(HALVINGS):
            middle = 0.5 * (left + right)
            before = at(middle) > scores
            left, right = np.where(before, middle, left), np.where(before, right, middle)
        return np.asarray(0.5 * (left + right))

    def _cells_at(self, points: FloatArray) -> tuple[Cells, Cells]:
        """The cells of the gradient's part of the loss, with the determinant's bounds added."""
        nothing, one = np.zeros(points.size), np.ones(points.size)
        forward, backward = normal_cells(self.base.scores(points), self._shifts(points), one, nothing)
        (h_low, h_high), (H_low, H_high) = (
            part.curvature_bounds(points) for part in (self.record, self.base)
        )
        low, high = forward.low.copy(), forward.high.copy()
        low[1:-1] -= np.log1p(h_high / H_low)
        high[1:-1] -= np.log1p(h_low / H_high)
        empty = ~np.isfinite(forward.log_mass) | ~np.isfinite(backward.log_mass)
        mean = np.where(empty, 0.0, forward.log_mass) - np.where(empty, 0.0, backward.log_mass)
        # On a narrow cell the difference of two rounded masses is worse than what interval arithmetic knows already.
        mean = np.clip(mean, low, np.maximum(low, high))
        cells = Cells(forward.log_mass, mean, low, high, forward.ends)
        return cells, cells.reverse(backward.log_mass, backward.ends)


def line_pair(
    loss: Loss | ClippedLoss | LineLoss,
    record: tuple[float, float],
    *,
    features: ArrayLike = (),
    labels: ArrayLike = (),
    weights: ArrayLike | None = None,
    lam: float,
    sigma: float,
) -> LinePair:
    """The data (``features``, ``labels``) without and with ``record``, in one dimension.

    Parameters
    ----------
    loss : Loss, ClippedLoss or LineLoss
        Convex with a Lipschitz derivative. The squared loss, whose mu is infinite, has no enclosed Renyi divergence.
    record : (float, float)
        x and y of z.
    features, labels : array_like, shape (n,)
        The others; none is fine.
    weights : array_like, shape (n,), optional
        How often each counts, nonnegative; once by default.
    lam, sigma : float
        Ridge beside the sum of the losses and noise scale; between 1e-100 and 1e100.
    """
    x, y = as_finite_array("features", features, ndim=1), as_finite_array("labels", labels, ndim=1)
    counts = np.ones(x.size) if weights is None else as_finite_array("weights", weights, ndim=1)
    if not x.size == y.size == counts.size:
        raise ValueError(
            f"features, labels and weights must have one length, got {x.size}, {y.size} and {counts.size}"
        )
    if (counts < 0).any():
        raise ValueError(f"weights must be nonnegative, got {counts.min()!r}")
    rows, place = np.unique(np.stack([x, y], axis=1), axis=0, return_inverse=True)
    terms = tuple(Term(bind(loss, abs(a)), a, b) for a, b in rows.tolist())
    total = np.zeros(len(terms))
    np.add.at(total, place.ravel(), counts)
    data = LineData(rows[:, 0], total, check_ordinary("lam", lam), check_ordinary("sigma", sigma), terms)
    feature, label = (check_real("record", part) for part in record)
    return LinePair(data, feature, Term(bind(loss, abs(feature)), feature, label))


def exact_delta(problem: LinePair, epsilon: float) -> tuple[Interval, Interval]:
    """Enclose the hockey-stick divergence at any real ``epsilon``: z absent from P, z present in P."""
    return problem.delta(epsilon)


def exact_renyi(problem: LinePair, order: float) -> tuple[Interval, Interval]:
    """Enclose the Renyi divergence of ``order`` > 1 in the same two directions."""
    if not math.isfinite(problem.mu):
        raise ValueError(f"problem must have a bounded gradient of the record, got mu {problem.mu!r}")
    return problem.renyi(order)


def attained_deltas(problem: LinePair, epsilons: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Lower bounds of both divergences at each of ``epsilons`` (k,) from the first grid: quick, for searches."""
    levels = as_finite_array("epsilons", epsilons, ndim=1)
    absent, present = (side.hockey_lower(levels).sum(axis=-1) for side in problem.first_cells(LINE_REACH))
    return np.asarray(absent), np.asarray(present)


def attained_renyi(problem: LinePair, order: float) -> tuple[float, float]:
    """Lower bounds of both Renyi divergences from the first grid."""
    alpha = check_order(order)
    reach = renyi_reach(alpha, problem.mu, problem.kappa) if math.isfinite(problem.mu) else LINE_REACH
    absent, present = (float(side.renyi_lower(alpha)) for side in problem.first_cells(reach))
    return absent, present


# ---------------------------------------------------------------- d = 2


class PlaneDelta(NamedTuple):
    """Quadrature values of both directions with estimates of their errors: not an enclosure."""

    absent: float
    present: float
    absent_error: float
    present_error: float


class PlaneNodes(NamedTuple):
    """What is known at the nodes of the noise, each of shape (k,)."""

    weights: FloatArray
    """Probability of the node under P, the data at hand."""
    along: FloatArray
    """Noise along the record over sigma, standard normal under P."""
    loss: FloatArray
    """Privacy loss of the outcome: log of its density under P over that under the neighbour."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanePair:
    """Two neighbouring data sets in two dimensions; build it with :func:`plane_pair`."""

    features: FloatArray
    labels: FloatArray
    losses: tuple[LineLoss, ...]
    """Those of the data, and the record's last; so are the rows of ``features`` and ``labels``."""
    lam: float
    sigma: float

    def derivatives(self, theta: FloatArray, *, with_record: bool) -> tuple[FloatArray, FloatArray]:
        """Gradient (k, 2) and Hessian (k, 2, 2) of the objective at each row of ``theta`` (k, 2)."""
        gradient = self.lam * theta
        hessian = np.broadcast_to(self.lam * np.eye(2), (theta.shape[0], 2, 2)).copy()
        last = self.labels.size if with_record else self.labels.size - 1
        for x, y, loss in zip(self.features[:last], self.labels[:last], self.losses[:last], strict=True):
            u = theta @ x
            gradient = gradient + np.outer(loss.derivative(u, y), x)
            hessian += loss.second_derivative(u, y)[:, np.newaxis, np.newaxis] * np.outer(x, x)
        return gradient, hessian

    def solve(self, noise: FloatArray, *, with_record: bool) -> FloatArray:
        """The minimiser theta (k, 2) for each row of ``noise`` b (k, 2).

        Newton's method, with a search along the step for the minimum where the gradient does not halve: f'' may jump.

        Raises
        ------
        RuntimeError
            Some gradient stays above 1e-9 of sigma.
        """
        theta = np.zeros(noise.shape)
        gradient, hessian = self.derivatives(theta, with_record=with_record)
        gradient = gradient + noise
        for _ in range(NEWTON_STEPS):
            norm = np.linalg.norm(gradient, axis=1)
            rest = np.nonzero(norm > SOLVED * self.sigma)[0]
            if rest.size == 0:
                return theta
            step = np.linalg.solve(hessian[rest], gradient[rest][..., np.newaxis])[..., 0]
            low, length = np.zeros(rest.size), np.ones(rest.size)
            high = length.copy()
            for _ in range(LINE_STEPS):
                trial = theta[rest] - length[:, np.newaxis] * step
                new, bend = self.derivatives(trial, with_record=with_record)
                new = new + noise[rest]
                slope = np.einsum("kj,kj->k", new, step)
                done = (np.linalg.norm(new, axis=1) < 0.5 * norm[rest]) | ((slope >= 0) & (length == 1))
                if done.all():
                    break
                # J is convex along the step: where it rises again the step was too long.
                low, high = np.where(slope >= 0, length, low), np.where(slope >= 0, high, length)
                length = np.where(done, length, 0.5 * (low + high))
            theta[rest], gradient[rest], hessian[rest] = trial, new, bend
        raise RuntimeError(f"Newton's method left {rest.size} nodes above {SOLVED:g} sigma")

    def nodes(self, along: FloatArray, across: FloatArray, *, present: bool) -> PlaneNodes:
        """The product grid of noise along and across the record, over sigma; both equally spaced.

        P is the law of the data with the record if it is ``present``, and of those without it otherwise.
        """
        x = self.features[-1]
        size = float(np.hypot(*x))
        first = x / size if size > 0 else np.array([1.0, 0.0])
        t, v = (part.ravel() for part in np.meshgrid(along, across, indexing="ij"))
        noise = self.sigma * (np.outer(t, first) + np.outer(v, np.array([-first[1], first[0]])))
        theta = self.solve(noise, with_record=present)
        here, bend_here = self.derivatives(theta, with_record=present)
        there, bend_there = self.derivatives(theta, with_record=not present)
        squares = np.einsum("kj,kj->k", there - here, there + here) / self.sigma**2
        loss = 0.5 * squares - np.log(np.linalg.det(bend_there) / np.linalg.det(bend_here))
        cell = float((along[1] - along[0]) * (across[1] - across[0]))
        return PlaneNodes(np.exp(-0.5 * (t * t + v * v)) / (2 * math.pi) * cell, t, loss)

    def delta(self, epsilon: float, *, nodes: int = 321) -> PlaneDelta:
        """Hockey-stick divergences at any real ``epsilon`` out to 8 standard deviations of the noise.

        ``nodes`` (33 or more, rounded to a multiple of 8 and 1) lie along the record, a quarter of them across; the
        error is the distance from the same rule with every other node. Time O(nodes^2 n).
        """
        level, count = check_real("epsilon", epsilon), check_count("nodes", nodes, minimum=33) // 8 * 8 + 1
        along, across = np.linspace(-REACH, REACH, count), np.linspace(-REACH, REACH, (count - 1) // 4 + 1)
        fine, errors = [], []
        for present in (False, True):
            at = self.nodes(along, across, present=present)
            with np.errstate(over="ignore"):
                parts = at.weights * np.maximum(0.0, -np.expm1(level - at.loss))
            table = parts.reshape(along.size, across.size)
            fine.append(float(table.sum()))
            errors.append(abs(fine[-1] - 4 * float(table[::2, ::2].sum())))
        return PlaneDelta(*fine, *errors)


def plane_pair(
    loss: Loss | ClippedLoss | LineLoss,
    record: tuple[ArrayLike, float],
    *,
    features: ArrayLike,
    labels: ArrayLike,
    lam: float,
    sigma: float,
) -> PlanePair:
    """The data (``features`` (n, 2), ``labels`` (n,)) without and with ``record`` (x (2,), y); n may be 0."""
    X, y = as_finite_array("features", features), as_finite_array("labels", labels, ndim=1)
    X = X.reshape(0, 2) if X.size == 0 else X
    if X.shape != (y.size, 2):
        raise ValueError(f"features must have shape ({y.size}, 2), got {X.shape}")
    x = as_finite_array("record", record[0], ndim=1)
    if x.size != 2:
        raise ValueError(f"record must have two features, got {x.size}")
    rows, targets = np.vstack([X, x]), np.append(y, check_real("record", record[1]))
    bound = tuple(bind(loss, norm) for norm in np.linalg.norm(rows, axis=1).tolist())
    return PlanePair(rows, targets, bound, check_ordinary("lam", lam), check_ordinary("sigma", sigma))


def plane_delta(
    loss: Loss | ClippedLoss | LineLoss,
    record: tuple[ArrayLike, float],
    *,
    features: ArrayLike,
    labels: ArrayLike,
    lam: float,
    sigma: float,
    epsilon: float,
    nodes: int = 321,
) -> PlaneDelta:
    """Hockey-stick divergences of two neighbours in two dimensions by quadrature, with error estimates."""
    pair = plane_pair(loss, record, features=features, labels=labels, lam=lam, sigma=sigma)
    return pair.delta(epsilon, nodes=nodes)
