"""The perturbed objective as a solver sees it, and a solver that minimises it to any tolerance doubles allow.

Source: redberg2023, Algorithm 7, step 4. The solver is deterministic: nothing but the objective decides its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize as scipy_minimize
from scipy.sparse.linalg import LinearOperator, cg

from adaptive_dp.objective_perturbation.clipping import ClippedProblem
from adaptive_dp.solvers import minimise_newton
from adaptive_dp.validation import FloatArray

# A Newton step costs n d^2 and about six are needed; beyond this many operations a step, L-BFGS is faster.
NEWTON_OPERATIONS = 2e9
# Runs of L-BFGS: one that stalls because values are rounded is started again from where it stalled.
LBFGS_RUNS = 2
POLISHING_STEPS = 200


@dataclass(frozen=True, eq=False)
class PerturbedObjective:
    """J(theta) + b'theta as a solver sees it: value, gradient and Hessian. Private: it holds the data and the noise.

    Parameters
    ----------
    problem : ClippedProblem
        Sum of the losses.
    lam : float
        Ridge beside the sum, the modulus of strong convexity.
    noise : ndarray, shape (d,)
        b.
    tolerance : float
        tau: a solver may stop where the gradient is at most this long.
    """

    problem: ClippedProblem
    lam: float
    noise: FloatArray
    tolerance: float

    @property
    def columns(self) -> int:
        """Number of parameters d."""
        return self.problem.columns

    def value(self, theta: FloatArray) -> float:
        """The perturbed objective at ``theta`` (d,)."""
        return self.problem.value(theta) + self._plane(theta)

    def gradient(self, theta: FloatArray) -> FloatArray:
        """Its gradient, shape (d,)."""
        return np.asarray(self.problem.gradient(theta) + self.lam * theta + self.noise)

    def value_and_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Both, from one pass over the predictions."""
        predictions = self.problem.features @ theta
        value = float(self.problem.losses(predictions).sum()) + self._plane(theta)
        return value, self._gradient_at(predictions, theta)

    def hessian(self, theta: FloatArray) -> FloatArray:
        """Its Hessian, shape (d, d), positive definite; one-sided at the kinks of clipping."""
        matrix = self.problem.hessian(theta)
        matrix[np.diag_indices_from(matrix)] += self.lam
        return matrix

    def derivatives(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient and Hessian."""
        return self.gradient(theta), self.hessian(theta)

    def hessian_operator(self, theta: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return v -> Hessian at ``theta`` times v, each product in O(n d)."""
        features = self.problem.features
        weights = self.problem.curvatures(features @ theta)

        def product(vector: FloatArray) -> FloatArray:
            return np.asarray((weights * (features @ vector)) @ features + self.lam * vector)

        return product

    def gradient_norm(self, theta: FloatArray) -> float:
        """Length of the gradient: over lam, a bound of the distance to the exact minimiser."""
        return float(np.linalg.norm(self.gradient(theta)))

    def _plane(self, theta: FloatArray) -> float:
        return 0.5 * self.lam * float(theta @ theta) + float(self.noise @ theta)

    def _gradient_at(self, predictions: FloatArray, theta: FloatArray) -> FloatArray:
        slopes = self.problem.slopes(predictions)
        return np.asarray(slopes @ self.problem.features + self.lam * theta + self.noise)


class _Reached(Exception):  # noqa: N818  (not an error: it carries the answer out of scipy)
    def __init__(self, theta: FloatArray) -> None:
        super().__init__()
        self.theta = theta


def minimise(objective: PerturbedObjective) -> FloatArray:
    """Minimise the perturbed objective to its tolerance: the deterministic default solver.

    Newton's method with a line search where its steps are cheap; otherwise L-BFGS, which ends at the first point
    that meets the tolerance. A tolerance below what the rounding of the *value* lets either see is reached by Newton
    steps that look at the gradient alone. What remains is the rounding of the gradient: about 1e-16 times the
    sum of the lengths of all its terms.

    Returns
    -------
    ndarray, shape (d,)

    Raises
    ------
    RuntimeError
        The tolerance is beyond double precision for these data.
    """
    theta = np.zeros(objective.columns)
    if float(objective.problem.rows) * objective.columns**2 <= NEWTON_OPERATIONS:
        try:
            return minimise_newton(
                objective.value, objective.derivatives, theta, tolerance=objective.tolerance
            ).theta
        except RuntimeError:
            pass
    try:
        for _ in range(LBFGS_RUNS):
            theta = _lbfgs(objective, theta)
    except _Reached as found:
        return found.theta
    return _polish(objective, theta)


def _lbfgs(objective: PerturbedObjective, start: FloatArray) -> FloatArray:
    """One run of L-BFGS to where it stalls; raises ``_Reached`` at the first point that meets the tolerance."""

    def function(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective.value_and_gradient(theta)
        if np.linalg.norm(gradient) <= objective.tolerance:
            raise _Reached(theta.copy())
        return value, gradient

    # scipy's own criteria are switched off: they ask about values, or about the largest entry of the gradient.
    found = scipy_minimize(
        function,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 0.0, "gtol": 0.0, "maxiter": 10_000, "maxfun": 20_000, "maxcor": 20},
    )
    return np.asarray(found.x)


def _polish(objective: PerturbedObjective, theta: FloatArray) -> FloatArray:
    """Newton steps by conjugate gradients, each shortened until the gradient is shorter."""
    gradient = objective.gradient(theta)
    norm, d = float(np.linalg.norm(gradient)), objective.columns
    for _ in range(POLISHING_STEPS):
        if norm <= objective.tolerance:
            return theta
        operator = LinearOperator(
            (d, d), matvec=objective.hessian_operator(theta), dtype=np.dtype(np.float64)
        )
        step, _ = cg(operator, -gradient, rtol=1e-3, maxiter=2 * d)
        length = 1.0
        while length > 1e-10:
            trial = theta + length * step
            new = objective.gradient(trial)
            size = float(np.linalg.norm(new))
            if size < norm:
                break
            length *= 0.5
        else:
            break
        theta, gradient, norm = trial, new, size
    raise RuntimeError(
        f"the tolerance {objective.tolerance:.3g} was not reached: it is beyond double precision for these data"
    )
