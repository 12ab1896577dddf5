"""What a loss costs that is no generalised linear one: exact instances beside the bounds.

Source: redberg2023, appendix C.5, with errata 1 and 27. Neighbours add or remove one record; lam stands beside a sum of
losses. Without linear structure the whole noise vector changes with the record, and its gradient depends
on the noise: Kifer's calibration is then not private; Theorem C.5.1 is, at a price that grows with d; the theorem of
:mod:`adaptive_dp.objective_perturbation.general_loss` is at one that grows with the square root of d, as the instance
itself does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import dawsn, erf, log_ndtr

from adaptive_dp.accounting import RenyiDerivedCurve, gaussian_sigma, smallest_feasible
from adaptive_dp.losses import LogisticLoss, SmoothDistanceLoss
from adaptive_dp.objective_perturbation.flaws_risk import printed_smooth_renyi
from adaptive_dp.objective_perturbation.general_loss import (
    GeneralLossCurve,
    check_renyi_order,
    eigenvalue_price,
)
from adaptive_dp.per_instance.calibration import (
    LinearPerturbationCurve,
    SmoothPerturbationCurve,
    kifer_calibration,
)
from adaptive_dp.per_instance.flaws import kifer_beyond_linear
from adaptive_dp.privacy import PrivacyCurve
from adaptive_dp.validation import (
    FloatArray,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
)

DIMENSIONS = (10, 30, 100, 300, 1_000, 3_000, 10_000)


def separable_huber_renyi(
    dimension: int,
    order: float,
    *,
    slope: float,
    curvature: float,
    sigma: float,
    lam: float,
    present: bool,
) -> float:
    """Exact Rényi divergence between no record and one, for the loss of ``per_instance.flaws.separable_huber_delta``.

    The mechanism is a product of d equal ones; with v, m, k as there, one coordinate is a Gaussian integral over a
    quadratic for v <= m / k and over a line beyond.

    Parameters
    ----------
    dimension : int
    order : float
        Above 1.
    slope, curvature, sigma, lam : float
        Positive.
    present : bool
        Whether the first of the two distributions is the one with the record.
    """
    d, alpha = check_count("dimension", dimension), check_renyi_order(order)
    if alpha == 1:
        raise ValueError(f"order must be above 1, got {alpha!r}")
    m = check_ordinary("slope", slope) / math.sqrt(d) / check_ordinary("sigma", sigma)
    k = check_ordinary("curvature", curvature) / check_ordinary("lam", lam)
    a = alpha - 1
    line = 0.5 * a * alpha * m * m + math.log(2)
    if present:
        c = 1 + a * (1 - (1 + k) ** -2)
        quadratic = a * math.log1p(k) + _log_half_normal(c, m * (1 + k) / k)
        line += float(log_ndtr(-m * (1 + k) / k - a * m))
    else:
        quadratic = -a * math.log1p(k) + _log_half_normal(1 - a * k * (2 + k), m / k)
        line += float(log_ndtr(a * m - m / k))
    return d * float(np.logaddexp(quadratic, line)) / a


def _log_half_normal(c: float, end: float) -> float:
    """Logarithm of 2 int_0^end exp(-c v^2 / 2) dv / sqrt(2 pi), c of either sign."""
    root = math.sqrt(abs(c) / 2) * end
    scale = math.log(end * math.sqrt(2 / math.pi))
    if root < 1e-5:
        return scale - c * end * end / 6
    if c > 0:
        return scale + math.log(math.sqrt(math.pi) / 2 * float(erf(root)) / root)
    return scale + root * root + math.log(float(dawsn(root)) / root)


# --- tables -----------------------------------------------------------------------------------------------


def counterexample_table(
    dims: Sequence[int] = DIMENSIONS, *, epsilon: float = 1.0, delta: float = 1e-6
) -> pd.DataFrame:
    """Exact delta of Kifer's calibration beyond generalised linear losses, beside what is promised and proved.

    Returns
    -------
    DataFrame
        ``dimension``, ``exact_low``, ``exact_high`` (the larger direction, enclosed), ``promised``, ``theorem``
        (:class:`GeneralLossCurve`), ``corrected`` (Theorem C.5.1 with erratum 27, by its hockey-stick divergence) and
        ``printed`` (Theorem C.5.1 as printed, converted).

    Notes
    -----
    Errata 1 and 27. About a second for each dimension of 1e4.
    """
    frame = kifer_beyond_linear(dims, epsilon=epsilon, delta=delta)
    sigma, lam = kifer_calibration(epsilon=epsilon, delta=delta, slope=1.0, curvature=1.0)
    table = frame[["dimension"]].astype(int)
    table["exact_low"] = frame[["absent_low", "present_low"]].max(axis=1)
    table["exact_high"] = frame[["absent_high", "present_high"]].max(axis=1)
    table["promised"] = delta
    table["theorem"] = [
        GeneralLossCurve(1 / sigma, 1 / lam, int(d)).delta(epsilon) for d in table["dimension"]
    ]
    table["corrected"] = frame["smooth_curve"]

    def printed(dimension: int) -> RenyiDerivedCurve:
        return RenyiDerivedCurve(
            lambda order: printed_smooth_renyi(
                order, slope=1.0, curvature=1.0, sigma=sigma, lam=lam, dimension=dimension
            )
        )

    table["printed"] = [printed(int(d)).delta(epsilon) for d in table["dimension"]]
    return table


def renyi_table(
    dims: Sequence[int] = DIMENSIONS, *, order: float = 2.0, epsilon: float = 1.0, delta: float = 1e-6
) -> pd.DataFrame:
    """The same at one Rényi order, with the loss of slope and curvature 1 and Kifer's noise for (epsilon, delta).

    Returns
    -------
    DataFrame
        ``dimension``; ``absent``, ``present``: exact divergences of the two directions; ``linear``: bound for a
        generalised linear loss; ``theorem``; ``eigenvalues``: the theorem's first form alone; ``corrected``,
        ``printed``: Theorem C.5.1.
    """
    sigma, lam = kifer_calibration(epsilon=epsilon, delta=delta, slope=1.0, curvature=1.0)
    alpha, mu, kappa = check_renyi_order(order), 1 / sigma, 1 / lam
    scales = {"slope": 1.0, "curvature": 1.0, "sigma": sigma, "lam": lam}
    rows = []
    for d in dims:
        price = max(eigenvalue_price(alpha, kappa, present=side) for side in (False, True))
        rows.append(
            {
                "dimension": check_count("dims", d),
                "absent": separable_huber_renyi(d, alpha, present=False, **scales),
                "present": separable_huber_renyi(d, alpha, present=True, **scales),
                "linear": GeneralLossCurve(mu, kappa, 1).renyi(alpha),
                "theorem": GeneralLossCurve(mu, kappa, d).renyi(alpha),
                "eigenvalues": 0.5 * alpha * mu**2 + d * price / (alpha - 1),
                "corrected": SmoothPerturbationCurve(mu, kappa, d).renyi(alpha),
                "printed": printed_smooth_renyi(alpha, dimension=d, **scales),
            }
        )
    return pd.DataFrame(rows)


def variance_table(dims: Sequence[int] = (100, 10_000), *, shrink: float = 50.0) -> pd.DataFrame:
    """Variance of the privacy loss against its first order, E ||g||^2 / sigma^2 + E ||A||_F^2 / lam^2 (erratum 27).

    The loss of :func:`separable_huber_renyi` with Kifer's noise for (1, 1e-6) and ``shrink`` times his lam.

    Returns
    -------
    DataFrame
        ``dimension``, ``variance``, ``gradient``, ``hessian`` (the two terms), ``first_order``.
    """
    sigma, lam = kifer_calibration(epsilon=1.0, delta=1e-6, slope=1.0, curvature=1.0)
    lam *= check_ordinary("shrink", shrink)
    rows = []
    for d in dims:
        m, k = 1 / math.sqrt(check_count("dims", d)) / sigma, 1 / lam
        v, weights = _half_normal_nodes(m / k)
        bent = v <= m / k
        loss = np.where(bent, -math.log1p(k) + k * (1 + k / 2) * v * v, m * v + m * m / 2)
        mean = float(weights @ loss)
        gradient, hessian = d * float(weights @ np.minimum(k * v, m) ** 2), d * k * k * float(weights @ bent)
        rows.append(
            {
                "dimension": d,
                "variance": d * float(weights @ (loss - mean) ** 2),
                "gradient": gradient,
                "hessian": hessian,
                "first_order": gradient + hessian,
            }
        )
    return pd.DataFrame(rows)


def _half_normal_nodes(kink: float) -> tuple[FloatArray, FloatArray]:
    """Quadrature for E f(|N(0, 1)|), f smooth on both sides of ``kink``."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    parts = [(0.0, min(kink, 10.0)), (min(kink, 10.0), min(kink, 10.0) + 10.0)]
    v = np.concatenate([low + (high - low) / 2 * (1 + nodes) for low, high in parts])
    w = np.concatenate([(high - low) / 2 * weights for low, high in parts])
    return v, np.asarray(w * np.exp(-v * v / 2) * math.sqrt(2 / math.pi))


def dependence_table(
    dims: Sequence[int] = (2, 10, 50),
    *,
    draws: int = 4_000,
    sigma: float = 2.0,
    lam: float = 1.0,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """How the noise that leads to the same theta moves when a record is added, and that it depends on the noise.

    Without any record theta = -b / lam, and the noise that gives this theta with the record is b - g(theta). The
    logistic loss moves it along x only; the smoothed distance moves it in every direction. In both cases g depends on
    b: E[-b'g] / sigma^2 = E tr(A) / lam, not 0 (Kifer et al. 2012, Lemma 17, took g for independent of b).

    Returns
    -------
    DataFrame
        ``loss``, ``dimension``, ``directions``: rank of the changes over the draws; ``across``: share of their squared
        length across x; ``product``: mean of -b'g / sigma^2, with its ``error`` (standard error of the difference
        to the trace); ``trace``: mean of tr(A) / lam.
    """
    check_generator(rng)
    count = check_count("draws", draws, minimum=2)
    scale, ridge = check_ordinary("sigma", sigma), check_ordinary("lam", lam)
    rows = []
    for d in dims:
        noise = scale * rng.standard_normal((count, check_count("dims", d)))
        theta, x = -noise / ridge, np.eye(1, d)[0]
        for name in ("logistic", "distance"):
            gradients, traces = _record_at(name, theta, x)
            products = -np.einsum("ij,ij->i", noise, gradients) / scale**2
            squares = np.einsum("ij,ij->i", gradients, gradients)
            rows.append(
                {
                    "loss": name,
                    "dimension": d,
                    "directions": int(np.linalg.matrix_rank(gradients)),
                    "across": float(1 - (gradients[:, 0] ** 2).sum() / squares.sum()),
                    "product": float(products.mean()),
                    "trace": float(traces.mean() / ridge),
                    "error": float((products - traces / ridge).std(ddof=1) / math.sqrt(count)),
                }
            )
    return pd.DataFrame(rows)


def _record_at(name: str, theta: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradients (B, d) and traces of Hessians (B,) of one record x with label 1 at each row of ``theta``."""
    if check_choice("name", name, ("logistic", "distance")) == "logistic":
        loss, score = LogisticLoss(), theta @ x
        slopes = loss.derivative(score, 1.0)
        return slopes[:, np.newaxis] * x, loss.second_derivative(score, 1.0) * float(x @ x)
    # The distance of theta to x, with the sides exchanged: one call serves all rows of theta.
    distance = SmoothDistanceLoss(1.0)
    labels = np.zeros(theta.shape[0])
    gradients = -distance.gradients(x, theta, labels)
    sizes = distance.values(x, theta, labels)
    return gradients, (theta.shape[1] - np.einsum("ij,ij->i", gradients, gradients)) / sizes


def requirement_table(
    dims: Sequence[int] = (1, 10, 100, 1_000),
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    factor: float = 1.3,
) -> pd.DataFrame:
    """The lam that (epsilon, delta) asks for at ``factor`` times the Gaussian noise, slope and curvature 1.

    Returns
    -------
    DataFrame
        ``dimension``, ``sigma``, ``linear`` (a generalised linear loss), ``theorem`` (any smooth loss), ``corrected``
        (Theorem C.5.1, corrected; infinite where no lam is enough: mu R alone costs more than epsilon).
    """
    sigma = check_ordinary("factor", factor) * gaussian_sigma(epsilon, delta, 1.0)
    rows = []
    for d in dims:
        row: dict[str, float] = {"dimension": check_count("dims", d), "sigma": sigma}
        for name, kind in (
            ("linear", None),
            ("theorem", GeneralLossCurve),
            ("corrected", SmoothPerturbationCurve),
        ):
            row[name] = _smallest_lam(kind, d, 1 / sigma, epsilon, delta)
        rows.append(row)
    return pd.DataFrame(rows)


def _smallest_lam(
    kind: type[GeneralLossCurve] | type[SmoothPerturbationCurve] | None,
    d: int,
    mu: float,
    epsilon: float,
    delta: float,
) -> float:
    def excess(lam: float) -> float:
        curve: PrivacyCurve = LinearPerturbationCurve(mu, 1 / lam) if kind is None else kind(mu, 1 / lam, d)
        return math.log(max(curve.delta(epsilon), 1e-300) / delta)

    low, high = 1e-4, 1e8
    return smallest_feasible(excess, low, high) if excess(high) <= 0 else math.inf
