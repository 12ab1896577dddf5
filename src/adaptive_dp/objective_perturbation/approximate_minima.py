"""Approximate minima perturbation: objective perturbation for solvers that stop early, with or without clipping.

Source: redberg2023, Algorithms 7 and 16, Theorems 4.4.1 and C.6.1 (Iyengar et al. 2019), errata 21 to 26 and S1.

The guarantee of objective perturbation is about the exact minimiser theta^P of

    J(theta) + b'theta,   J(theta) = sum_i f_C(x_i'theta; y_i) + lam / 2 ||theta||^2,   b ~ N(0, sigma^2 I).

An approximate one is released under Gaussian noise instead. If the gradient at theta~ is at most tau long then, J being
lam-strongly convex, ||theta~ - theta^P|| <= tau / lam, whatever the data: *given theta^P*, the difference has
sensitivity 2 tau / lam (attained: two solvers that err in opposite directions), so that theta~ + N(0, sigma_out^2 I) is
objective perturbation followed by a Gaussian mechanism with mu_out = 2 tau / (lam sigma_out).

The argument needs that theta~ is a function of the objective and of coins that do not depend on the data: a solver
may be randomised, but may not look at the records other than through the objective it is handed, nor at
results of earlier releases that were not accounted for. Which solver it is, its step sizes and its tuning
are then free. It also needs the certificate for *every* b: see :class:`CertificateError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import Loss
from adaptive_dp.noise import gaussian
from adaptive_dp.objective_perturbation.calibration import OutputNoise, analysis_curve
from adaptive_dp.objective_perturbation.clipping import ClippedProblem, check_glm
from adaptive_dp.objective_perturbation.perturbed_objective import PerturbedObjective, minimise
from adaptive_dp.per_instance.calibration import Calibration, perturbation_guarantee
from adaptive_dp.per_instance.objective import TOLERANCE, Objective, check_loss_of
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
)

# Gradients of a sum with noise of norm r are rounded by about r times this.
ROUNDING = 1e-13


class CertificateError(RuntimeError):
    """The solver's answer has a longer gradient than tau; no output noise was drawn and nothing was released.

    **What this means for privacy.** Whether a solver fails depends on the data, so the refusal is itself an
    observation, and no theorem here covers it. If it happens with probability at most p on every data set, the
    mechanism that publishes the refusal is (epsilon, delta + (1 + e^epsilon) p)-private; but nobody knows p.

    Above all it must not be answered by drawing fresh noise and trying again: b is then Gaussian *given that the
    solver succeeded*, an event that a single record can decide (:func:`~.flaws_clipping.retry_example` has epsilon
    infinite). Solving *the same* perturbed objective better is no retry: ``fallback=True`` does that with a
    deterministic solver, so that a release always happens and the guarantee holds as stated.

    Attributes
    ----------
    gradient_norm : float
        Length of the gradient at the answer; nan if there was no answer. Private, hence not in the message.
    solver_error : Exception or None
        What the solver raised. Private: its message may hold what it saw, hence it is not chained to this error, which
        would print it.
    """

    def __init__(
        self, message: str, gradient_norm: float = math.nan, solver_error: Exception | None = None
    ) -> None:
        super().__init__(message)
        self.gradient_norm = gradient_norm
        self.solver_error = solver_error


class SolverRun(Protocol):
    """What a solver may return instead of theta itself, such as a record of its run."""

    @property
    def theta(self) -> FloatArray:
        """Its answer, shape (d,)."""
        ...


Solver = Callable[[PerturbedObjective], "ArrayLike | SolverRun"]
"""A black box: it is handed the perturbed objective and returns theta, or something with an attribute ``theta``."""


def _check_parameters(
    data: Dataset, loss: Loss, calibration: Calibration, tau: float, sigma_out: float
) -> tuple[Calibration, float, float]:
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, got {type(data).__name__}")
    check_loss_of(check_glm(loss), data.domain, data.columns)
    scales = _check_calibration(calibration)
    tolerance, output = check_ordinary("tau", tau), check_ordinary("sigma_out", sigma_out)
    # Public: dimension and noise alone. (The losses' own rounding grows with the secret number of records.)
    floor = ROUNDING * scales.sigma * math.sqrt(data.columns)
    if tolerance < floor:
        raise ValueError(
            f"tau must be at least {floor:.3g}, what rounding leaves of a gradient beside this noise, got {tolerance!r}"
        )
    return scales, tolerance, output


def _check_calibration(calibration: Calibration) -> Calibration:
    if not isinstance(calibration, Calibration):
        raise TypeError(
            f"calibration must be a Calibration, got {type(calibration).__name__}: {calibration!r}"
        )
    return Calibration(check_ordinary("sigma", calibration.sigma), check_ordinary("lam", calibration.lam))


def approximate_minima_guarantee(
    loss: Loss,
    domain: Domain,
    *,
    dimension: int,
    calibration: Calibration,
    tau: float,
    sigma_out: float,
    delta: float,
    clip: float | None = None,
    analysis: str = "reduced-renyi",
) -> Guarantee:
    """The ex-ante guarantee of Algorithm 7 with these parameters, add/remove, theta in R^d; any lam > 0.

    Arguments are those of :func:`approximate_minima_perturbation`.

    Raises
    ------
    TypeError, ValueError
        Impossible parameters; gradients are unbounded on the domain and ``clip`` is None.
    """
    check_loss_of(check_glm(loss), domain, check_count("dimension", dimension))
    scales = _check_calibration(calibration)
    slope = loss.lipschitz(domain, math.inf, dimension=dimension)
    if clip is not None:
        slope = min(slope, check_ordinary("clip", clip))
    if not math.isfinite(slope):
        raise ValueError(f"clip must be given: the gradients of {loss!r} are unbounded on the domain")
    curve = analysis_curve(
        analysis,
        mu=slope / scales.sigma,
        kappa=loss.smoothness(domain, dimension=dimension) / scales.lam,
        mu_out=OutputNoise(sigma_out, tau).mu(scales.lam),
    )
    level = check_probability("delta", delta)
    return Guarantee(
        kind="ex-ante",
        epsilon=curve.epsilon(level),
        delta=level,
        neighbours=Neighbours.ADD_REMOVE,
        domain=domain,
        source=f"redberg2023, Algorithm {16 if clip is None else 7}; errata 26 and S1",
        curve=curve,
    )


def approximate_minima_perturbation(
    data: Dataset,
    *,
    loss: Loss,
    calibration: Calibration,
    tau: float,
    sigma_out: float,
    delta: float,
    rng: np.random.Generator,
    clip: float | None = None,
    solver: Solver | None = None,
    fallback: bool = False,
    analysis: str = "reduced-renyi",
) -> Release[FloatArray]:
    """Publish an approximate minimiser of the perturbed objective, under noise (redberg2023, Algorithm 7; 16).

    Parameters
    ----------
    data : Dataset
        Records obeying their declared domain. Bias: a column of ones, counted in the norm of the rows.
    loss : Loss
        Convex, smooth, generalised linear; the squared loss with ``clip``.
    calibration : Calibration
        sigma and lam (beside the *sum* of the losses), both chosen without looking at the data.
    tau : float
        Largest gradient norm at the answer, positive; units of the sum of the losses.
    sigma_out : float
        Standard deviation of the output noise, positive; units of theta.
    delta : float
        Where the guarantee is read off its curve.
    rng : numpy.random.Generator
        Two Gaussian vectors are drawn from it, b and the output noise, and nothing else. Do not hand it to a solver.
    clip : float, optional
        C: gradients of single records are cut at this norm. None is Algorithm 16; so is any C that no gradient of
        the domain can exceed, bit for bit.
    solver : callable, optional
        ``solver(objective)`` returns theta, or something with an attribute ``theta``. Anything: its answer is
        checked. By default :func:`minimise`.
    fallback : bool
        Whether :func:`minimise` solves the same objective where ``solver`` fails. Then a release always happens, and
        the guarantee needs no word about the solver. Otherwise the failure is raised: see
        :class:`CertificateError`, and never answer it with fresh noise.
    analysis : {"reduced-renyi", "half-normal", "linearised", "numerical"}
        The same as in :func:`~.calibration.calibrate_approximate`, so that the guarantee states what was calibrated
        for. The default holds for any lam > 0; Theorem 4.4.1 ("half-normal") for a lam above the curvature; the
        numerical composition promises most, and takes half a second.

    Returns
    -------
    Release
        theta, shape (d,). Private trace: ``noise``, ``gradient_norm``, ``minimiser`` (before output noise),
        ``fell_back``.

    Raises
    ------
    TypeError, ValueError
        Impossible parameters, before any noise is drawn.
    CertificateError
        The gradient at the answer is longer than tau (or the solver raised, or returned no finite vector); only b
        was drawn.
    """
    check_generator(rng)
    scales, tolerance, output = _check_parameters(data, loss, calibration, tau, sigma_out)
    guarantee = approximate_minima_guarantee(
        loss,
        data.domain,
        dimension=data.columns,
        calibration=scales,
        tau=tolerance,
        sigma_out=output,
        delta=delta,
        clip=clip,
        analysis=analysis,
    )
    if solver is not None and not callable(solver):
        raise TypeError(f"solver must be callable or None, got {type(solver).__name__}: {solver!r}")
    if not isinstance(fallback, bool):
        raise TypeError(f"fallback must be True or False, got {type(fallback).__name__}: {fallback!r}")
    bound = loss.lipschitz(data.domain, math.inf, dimension=data.columns)
    problem = ClippedProblem(
        loss, data.features, data.labels, None if clip is None or clip >= bound else clip
    )
    b = gaussian(scales.sigma, data.columns, rng)
    b.setflags(write=False)  # a solver that works in place must not change the problem
    objective = PerturbedObjective(problem, scales.lam, b, tolerance)
    theta, norm, fell_back = _certified(objective, solver, fallback)
    released = theta + gaussian(output, data.columns, rng)
    trace = Trace(noise=b, gradient_norm=norm, minimiser=theta, fell_back=fell_back)
    return Release(released, guarantee, trace=trace)


def _certified(
    objective: PerturbedObjective, solver: Solver | None, fallback: bool
) -> tuple[FloatArray, float, bool]:
    """Theta, its gradient norm (at most tau) and whether the default solver had to step in."""
    try:
        return *_run(objective, minimise if solver is None else solver), False
    except CertificateError:
        if solver is None or not fallback:
            raise
    return *_run(objective, minimise), True


def _run(objective: PerturbedObjective, solver: Solver) -> tuple[FloatArray, float]:
    name = getattr(solver, "__name__", type(solver).__name__)
    failure: Exception | None = None
    try:
        answer = solver(objective)
        theta = np.array(getattr(answer, "theta", answer), dtype=np.float64)
    except Exception as error:
        failure = error
    if failure is not None:
        # Outside the handler: a chained error is printed, and its message may tell about the records.
        raise CertificateError(
            f"solver {name} raised {type(failure).__name__}; nothing is released", solver_error=failure
        )
    if theta.shape != (objective.columns,) or not np.isfinite(theta).all():
        raise CertificateError(
            f"solver {name} must return {objective.columns} finite numbers; nothing is released"
        )
    norm = objective.gradient_norm(theta)
    if not norm <= objective.tolerance:
        raise CertificateError(
            f"solver {name} stopped before the gradient was as short as tau = {objective.tolerance:.6g}: nothing is "
            "released, and drawing fresh noise to try again would void the guarantee; let it run longer on this "
            "objective, or pass fallback=True",
            norm,
        )
    return theta, norm


def objective_perturbation(
    data: Dataset, *, loss: Loss, calibration: Calibration, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    """Publish the exact minimiser of the perturbed objective (redberg2023, section 4.2.2), to 1e-10 in the gradient.

    :func:`~adaptive_dp.per_instance.perturb_objective` with the parameters of this chapter: generalised linear losses
    with bounded gradients, no clipping. Arguments as in :func:`approximate_minima_perturbation`.

    Where Newton's method fails, as it may at the kinks of a Huber loss, :func:`minimise` solves the same objective: to
    1e-10, or to what rounding leaves beside noise that large (1e-13 sigma sqrt(d)).

    Raises
    ------
    TypeError, ValueError
        Impossible parameters, before any noise is drawn.
    CertificateError
        Neither found the minimiser: see there before trying again.
    """
    check_generator(rng)
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, got {type(data).__name__}")
    scales = _check_calibration(calibration)
    check_loss_of(check_glm(loss), data.domain, data.columns)
    if not math.isfinite(loss.lipschitz(data.domain, math.inf, dimension=data.columns)):
        raise ValueError(
            f"loss must have bounded gradients on the domain, got {loss!r}; clip them: approximate_minima_perturbation"
        )
    guarantee = perturbation_guarantee(
        loss,
        data.domain,
        dimension=data.columns,
        lam=scales.lam,
        sigma=scales.sigma,
        delta=check_probability("delta", delta),
    )
    problem = ClippedProblem(loss, data.features, data.labels)
    b = gaussian(scales.sigma, data.columns, rng)
    b.setflags(write=False)
    try:
        fit = Objective(data, loss, scales.lam).minimise(b, tolerance=TOLERANCE)
        theta, norm = fit.theta, fit.gradient_norm
    except Exception:
        theta = None
    if theta is None:
        goal = max(TOLERANCE, ROUNDING * scales.sigma * math.sqrt(data.columns))
        theta, norm = _run(PerturbedObjective(problem, scales.lam, b, goal), minimise)
    return Release(theta, guarantee, trace=Trace(noise=b, gradient_norm=norm))
