"""What exact divergences need to know of a loss: two derivatives, and where the second one turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.losses import HuberLoss, LogisticLoss, Loss, SquaredLoss
from adaptive_dp.objective_perturbation.clipping import ClippedLoss
from adaptive_dp.validation import FloatArray


class LineLoss(Protocol):
    """A convex function of the prediction u with a Lipschitz derivative, for each label."""

    def derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """First derivative in u, nondecreasing, elementwise."""
        ...

    def second_derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Second derivative in u, elementwise; at a jump any value between the limits of the two sides."""
        ...

    def turning_points(self, label: float) -> FloatArray:
        """Values of u, shape (k,), between which the second derivative is continuous and monotone."""
        ...


@dataclass(frozen=True)
class BoundLoss:
    """A loss of the library for rows of one norm, with its turning points."""

    loss: Loss | ClippedLoss
    norm: float

    def derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return f', cut where the loss is clipped."""
        if isinstance(self.loss, ClippedLoss):
            return self.loss.derivative(prediction, label, self.norm)
        return self.loss.derivative(prediction, label)

    def second_derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return f'', 0 where f' is cut."""
        if isinstance(self.loss, ClippedLoss):
            return self.loss.second_derivative(prediction, label, self.norm)
        return self.loss.second_derivative(prediction, label)

    def turning_points(self, label: float) -> FloatArray:
        """Of the logistic, squared and Huber losses, clipped or not."""
        if isinstance(self.loss, ClippedLoss):
            limits = np.array(self.loss.limits(label, self.norm))
            return np.union1d(limits[np.isfinite(limits)], _turning_points(self.loss.base, label))
        return _turning_points(self.loss, label)


def _turning_points(loss: Loss, label: float) -> FloatArray:
    if isinstance(loss, LogisticLoss):
        return np.zeros(1)
    if isinstance(loss, SquaredLoss):
        return np.empty(0)
    if isinstance(loss, HuberLoss):
        return np.array([label - loss.width, label + loss.width])
    raise TypeError(f"loss must say where its second derivative turns, got {type(loss).__name__}: {loss!r}")


def bind(loss: Loss | ClippedLoss | LineLoss, norm: float) -> LineLoss:
    """The loss for rows of this norm; whatever has turning points is taken as it is."""
    return BoundLoss(loss, norm) if isinstance(loss, Loss | ClippedLoss) else loss
