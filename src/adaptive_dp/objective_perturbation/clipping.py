"""Losses whose gradients are clipped: the objective that clipped gradients belong to.

Source: redberg2023, Theorems C.6.2 and C.6.3 (Song et al. 2020, Lemma 5.1), corrected by erratum 26.

DP-SGD cuts the gradient of one record's loss at a norm C. For a generalised linear loss l(theta) = f(x'theta; y) the
gradient is f' x, so that cutting it means cutting the slope f' at s = C / ||x||. A cut slope is the derivative of

    f_C(u) = f(u_L) - s (u - u_L)   for u < u_L,     u_L = sup {u : f'(u) < -s},
             f(u)                   for u_L <= u <= u_H,
             f(u_H) + s (u - u_H)   for u > u_H,     u_H = inf {u : f'(u) > s}.

The paper prints it without f(u_L) and f(u_H), which leaves jumps (:mod:`~.flaws_clipping`). As it stands here f_C
is convex, its derivative is f' cut at -s and s, so that the gradient is min{1, C / ||grad l||} times that of l, and
it is as smooth as f: cutting a function that grows at a rate of at most beta leaves the rate at most beta. It is twice
differentiable except at u_L and u_H. That is enough for objective perturbation: theta -> -grad J(theta) is
Lipschitz both ways (J is lam-strongly convex with a Lipschitz gradient), so the change of variables between theta
and the noise holds almost everywhere, and the one-dimensional reduction (errata, S1) never differentiates the losses
of the others.

The limits u_L and u_H differ by record, since rows have different norms. They are found once for each record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from adaptive_dp.losses import HuberLoss, LogisticLoss, Loss, SquaredLoss, repair_norms, weighted_gram
from adaptive_dp.privacy import Domain
from adaptive_dp.validation import FloatArray, as_finite_array, check_ordinary

# Brackets of a general loss grow to 2^500, about 3e150: whoever is not steep enough there never is.
DOUBLINGS = 500
# A bracket is as wide as its root is far from 0, or 2: this many halvings leave the last place, or 2^-199.
HALVINGS = 200


def check_glm(loss: object) -> Loss:
    """Return ``loss`` if it is a generalised linear one: clipping and the theorems of this chapter ask for that.

    Raises
    ------
    TypeError
        Anything else, a general smooth loss included: its clipped gradient is the gradient of no function.
    """
    if not isinstance(loss, Loss):
        raise TypeError(
            f"loss must be a Loss of <theta, x> (a generalised linear loss), got {type(loss).__name__}: {loss!r}"
        )
    return loss


def clipping_limits(loss: Loss, slopes: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return u_L and u_H of each record: between them |l'(u, y)| is at most the record's slope s.

    In closed form for the logistic, squared and Huber losses; for any other convex loss, subclasses of those three
    included (they may have another derivative), by bisection of its derivative, to the last place.

    Parameters
    ----------
    loss : Loss
        Convex in u.
    slopes : ndarray, shape (n,)
        s = C / ||x||, positive; infinite for a row of zeros.
    labels : ndarray, shape (n,)

    Returns
    -------
    low, high : ndarray, shape (n,)
        -inf and inf where the slope stays within s. Where it is larger than s, or less than -s, for every u, both
        are 0: any point serves as an anchor of the straight line that f_C is then.
    """
    return CLOSED_FORMS.get(type(loss), bisected_limits)(loss, slopes, labels)


def bisected_limits(loss: Loss, slopes: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """:func:`clipping_limits` for any convex loss, by bisection."""
    low = _crossing(loss, slopes, labels, sign=1.0)
    high = -_crossing(loss, slopes, labels, sign=-1.0)
    straight = (low == np.inf) | (high == -np.inf)
    return np.where(straight, 0.0, low), np.where(straight, 0.0, high)


def _logistic_limits(
    loss: LogisticLoss, slopes: FloatArray, labels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    # |l'| = 1 / (1 + e^m) falls with the margin m = y u and is s at -logit(s); it never reaches 1.
    margin = np.where(slopes < 1, -logit(np.minimum(slopes, 1.0)), -np.inf)
    return np.where(labels > 0, margin, -np.inf), np.where(labels > 0, np.inf, -margin)


def _squared_limits(
    loss: SquaredLoss, slopes: FloatArray, labels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    return labels - slopes, labels + slopes


def _huber_limits(loss: HuberLoss, slopes: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    reach = np.where(slopes < loss.width, slopes, np.inf)
    return labels - reach, labels + reach


# By the exact type: a subclass may have another derivative.
CLOSED_FORMS: dict[type[Loss], Callable[[Any, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]] = {
    LogisticLoss: _logistic_limits,
    SquaredLoss: _squared_limits,
    HuberLoss: _huber_limits,
}


def _crossing(loss: Loss, slopes: FloatArray, labels: FloatArray, *, sign: float) -> FloatArray:
    """Sup of {v : sign l'(sign v, y) < -s}: -inf if there is no such v, inf if every v is one.

    With sign 1 that is u_L, with sign -1 it is -u_H: both are one bisection of a nondecreasing function.
    """
    left, right = np.full(slopes.shape, -1.0), np.full(slopes.shape, 1.0)

    def steep(v: FloatArray) -> NDArray[np.bool_]:
        with np.errstate(over="ignore"):
            return np.asarray(sign * loss.derivative(sign * v, labels) < -slopes, dtype=np.bool_)

    for _ in range(DOUBLINGS):
        short = ~steep(left)
        if not short.any():
            break
        left[short] *= 2
    never = ~steep(left)
    for _ in range(DOUBLINGS):
        short = steep(right)
        if not short.any():
            break
        right[short] *= 2
    always = steep(right)
    for _ in range(HALVINGS):
        middle = left + 0.5 * (right - left)
        below = steep(middle)
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    return np.where(never, -np.inf, np.where(always, np.inf, left))


@dataclass(frozen=True)
class ClippedLoss:
    """The loss whose gradient is that of ``base`` cut at norm ``clip``: one record at a time.

    Not a ``Loss``: what is cut off depends on the norm of the record's row, beside prediction and label. For the
    whole data set use :class:`ClippedProblem`, which finds the limits once.

    Parameters
    ----------
    base : Loss
        Convex, generalised linear.
    clip : float
        C, between 1e-100 and 1e100; units of the gradient of one record's loss.
    """

    base: Loss
    clip: float

    def __post_init__(self) -> None:
        check_glm(self.base)
        object.__setattr__(self, "clip", check_ordinary("clip", self.clip))

    def slope(self, norm: ArrayLike) -> FloatArray:
        """Largest |f_C'| that a row of this l2 norm allows: C / ||x||, infinite for a row of zeros.

        Raises
        ------
        ValueError
            A norm that is negative or not finite.
        """
        size = as_finite_array("norm", norm)
        if (size < 0).any():
            raise ValueError(f"norm must be nonnegative, got {size.min()!r}")
        return np.asarray(np.divide(self.clip, size, out=np.full(size.shape, np.inf), where=size > 0))

    def limits(self, label: ArrayLike, norm: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """u_L and u_H, elementwise; see :func:`clipping_limits`."""
        slopes, labels = np.broadcast_arrays(self.slope(norm), self._labels(label))
        low, high = clipping_limits(self.base, np.atleast_1d(slopes), np.atleast_1d(labels))
        return low.reshape(slopes.shape), high.reshape(slopes.shape)

    def value(self, prediction: ArrayLike, label: ArrayLike, norm: ArrayLike) -> FloatArray:
        """Return f_C(u), elementwise."""
        low, high = self.limits(label, norm)
        return _clipped_value(
            self.base, np.asarray(prediction, dtype=np.float64), label, self.slope(norm), low, high
        )

    def derivative(self, prediction: ArrayLike, label: ArrayLike, norm: ArrayLike) -> FloatArray:
        """Return f' cut at -C / ||x|| and C / ||x||, elementwise."""
        return _cut(self.base.derivative(prediction, self._labels(label)), self.slope(norm))

    def second_derivative(self, prediction: ArrayLike, label: ArrayLike, norm: ArrayLike) -> FloatArray:
        """Return f'' where the gradient is not cut and 0 where it is, elementwise."""
        return _clipped_curvature(self.base, prediction, self._labels(label), self.slope(norm))

    def _labels(self, label: ArrayLike) -> FloatArray:
        labels = as_finite_array("label", label)
        self.base.check_labels(labels, "label")
        return labels

    def lipschitz(self, domain: Domain, *, dimension: int | None = None) -> float:
        """Largest gradient norm over the records of ``domain`` and all theta: at most C."""
        return min(self.clip, self.base.lipschitz(domain, math.inf, dimension=dimension))

    def smoothness(self, domain: Domain, *, dimension: int | None = None) -> float:
        """Bound of the eigenvalues of one record's Hessian: that of the base (Theorem C.6.3)."""
        return self.base.smoothness(domain, dimension=dimension)


@dataclass(frozen=True, eq=False)
class ClippedProblem:
    """The sum of the losses of the records, each with its gradient cut at norm ``clip``. Private: it holds the data.

    Parameters
    ----------
    loss : Loss
        Convex, generalised linear.
    features, labels : array_like, shapes (n, d) and (n,)
        Records; rows of zeros are fine, they count with a constant.
    clip : float or None
        C > 0; None cuts nothing.

    Raises
    ------
    TypeError, ValueError
        No generalised linear loss; entries that are not finite, shapes that do not fit, labels that the loss does not
        know; ``clip`` not positive.

    Notes
    -----
    All arrays are locked: whoever is handed a problem to solve cannot change it. Features that nobody can write to, as
    those of a ``Dataset``, are not copied.

    The three functions of theta cost O(n d) (the Hessian O(n d^2)) and O(n) memory beside the answer. Where no
    gradient is cut they agree with those of the unclipped loss bit for bit.
    """

    loss: Loss
    features: FloatArray
    labels: FloatArray
    clip: float | None = None
    slopes_allowed: FloatArray | None = field(init=False, repr=False)
    """s = C / ||x||, shape (n,)."""
    low: FloatArray = field(init=False, repr=False)
    """u_L, shape (n,)."""
    high: FloatArray = field(init=False, repr=False)
    """u_H, shape (n,)."""

    def __post_init__(self) -> None:
        check_glm(self.loss)
        matrix, vector = _table(self.features), _vector(self.labels)
        if vector.size != matrix.shape[0]:
            raise ValueError(
                f"labels must have one entry a row of features: {vector.size}, {matrix.shape[0]}"
            )
        self.loss.check_labels(vector)
        size = None if self.clip is None else check_ordinary("clip", self.clip)
        allowed, low, high = None, np.full(vector.size, -np.inf), np.full(vector.size, np.inf)
        if size is not None:
            with np.errstate(over="ignore"):
                norms = np.linalg.norm(matrix, axis=1)
            allowed = ClippedLoss(self.loss, size).slope(repair_norms(matrix, norms))
            low, high = clipping_limits(self.loss, allowed, vector)
        for array in (matrix, vector, allowed, low, high):
            if array is not None:
                array.setflags(write=False)
        for name, value in (
            ("features", matrix),
            ("labels", vector),
            ("clip", size),
            ("slopes_allowed", allowed),
            ("low", low),
            ("high", high),
        ):
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> int:
        """Number of records n."""
        return int(self.features.shape[0])

    @property
    def columns(self) -> int:
        """Number of parameters d."""
        return int(self.features.shape[1])

    def take(self, rows: ArrayLike) -> ClippedProblem:
        """The sum over the records ``rows`` (integers or a mask) alone."""
        chosen = np.asarray(rows)
        return ClippedProblem(self.loss, self.features[chosen], self.labels[chosen], self.clip)

    def losses(self, predictions: FloatArray) -> FloatArray:
        """f_C of each record at its prediction x'theta; ``predictions`` (n,), shape (n,)."""
        if self.slopes_allowed is None:
            return self.loss.value(predictions, self.labels)
        return _clipped_value(self.loss, predictions, self.labels, self.slopes_allowed, self.low, self.high)

    def slopes(self, predictions: FloatArray) -> FloatArray:
        """f_C' of each record; shape (n,). The gradient of record i is slopes[i] times its row."""
        raw = self.loss.derivative(predictions, self.labels)
        return raw if self.slopes_allowed is None else _cut(raw, self.slopes_allowed)

    def curvatures(self, predictions: FloatArray) -> FloatArray:
        """f_C'' of each record; shape (n,)."""
        if self.slopes_allowed is None:
            return self.loss.second_derivative(predictions, self.labels)
        return _clipped_curvature(self.loss, predictions, self.labels, self.slopes_allowed)

    def value(self, theta: FloatArray) -> float:
        """Sum of the losses at ``theta`` (d,)."""
        return float(self.losses(self.features @ theta).sum())

    def gradient(self, theta: FloatArray) -> FloatArray:
        """Gradient of the sum, shape (d,): the sum of the clipped gradients."""
        return np.asarray(self.slopes(self.features @ theta) @ self.features)

    def hessian(self, theta: FloatArray) -> FloatArray:
        """Hessian of the sum, shape (d, d), exactly symmetric; one-sided where a record is just being cut."""
        return weighted_gram(self.features, self.curvatures(self.features @ theta))

    def clipped_share(self, theta: FloatArray) -> float:
        """Share of the records whose gradient is cut at ``theta``. Private."""
        if self.slopes_allowed is None:
            return 0.0
        raw = np.abs(self.loss.derivative(self.features @ theta, self.labels))
        return float(np.mean(raw > self.slopes_allowed))


def _table(features: FloatArray) -> FloatArray:
    # A million rows that a Dataset has checked and locked need no second copy; one look at them costs little.
    plain = type(features) is np.ndarray and features.dtype == np.float64 and features.ndim == 2
    if plain and _is_locked(features) and np.isfinite(features).all():
        return features
    return as_finite_array("features", features, ndim=2)


def _is_locked(array: FloatArray) -> bool:
    """Whether neither the array nor what it is a view of can be written to."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None


def _vector(labels: FloatArray) -> FloatArray:
    return as_finite_array("labels", labels, ndim=1)


def _cut(derivatives: FloatArray, slopes: FloatArray) -> FloatArray:
    return np.asarray(np.clip(derivatives, -slopes, slopes))


def _clipped_value(
    loss: Loss,
    predictions: FloatArray,
    labels: ArrayLike,
    slopes: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> FloatArray:
    # Inside, the second term is exactly 0 and the sum is f to the last bit. A row of zeros has an infinite slope,
    # which is never multiplied: the derivative that is cut at it is finite.
    inner = np.clip(predictions, low, high)
    return np.asarray(
        loss.value(inner, labels) + _cut(loss.derivative(predictions, labels), slopes) * (predictions - inner)
    )


def _clipped_curvature(
    loss: Loss, predictions: ArrayLike, labels: ArrayLike, slopes: FloatArray
) -> FloatArray:
    inside = np.abs(loss.derivative(predictions, labels)) <= slopes
    return np.asarray(np.where(inside, loss.second_derivative(predictions, labels), 0.0))
