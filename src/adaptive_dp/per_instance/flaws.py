"""What redberg2023 prints wrong in chapter 2 about privacy: the printed formulas, and experiments that show the fault.

Nothing here is a mechanism, and no ``printed_...`` function may be used to calibrate one: each is *false as printed*.
The right versions are in the other modules of the package. The experiments return tables; they are exact computations
wherever one exists. Faults of the bounds, of the reports and about noisy matrices are in the modules ``flaws_bounds``,
``flaws_reports`` and ``flaws_matrices``.

Errata 1 (Theorem 2.2.5), 2 (Corollary 2.3.2), 6 (Theorem 2.3.5 (1)), 9 (appendices A.6, A.7, Example 2.2.4) and 10
(Corollary A.3.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import erf, erfc, ndtr, ndtri

from adaptive_dp.accounting import gaussian_delta, gaussian_epsilon, gaussian_sigma
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import SquaredLoss
from adaptive_dp.per_instance.calibration import (
    LinearPerturbationCurve,
    SmoothPerturbationCurve,
    kifer_calibration,
)
from adaptive_dp.per_instance.ex_post import losses_of_members
from adaptive_dp.per_instance.objective import Objective
from adaptive_dp.privacy import Domain
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

# --- erratum 1: the calibration of Theorem 2.2.5 ------------------------------------------------------


def printed_kifer_sigma(*, epsilon: float, delta: float, slope: float) -> float:
    """Noise scale of Theorem 2.2.5, **false as printed**: it is the variance (erratum 1).

    The units show it: a loss that is c times larger needs c times the noise, and this gives c^2 times. Where
    slope sqrt(8 log(2/delta) + 4 epsilon) < epsilon it is too small. Right: :func:`kifer_calibration`.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    return check_ordinary("slope", slope) ** 2 * (8 * math.log(2 / tail) + 4 * level) / level**2


def kifer_noise(
    cases: Sequence[tuple[float, float]] = ((1.0, 1.0), (0.1, 1.0), (0.1, 4.0), (0.01, 1.0)),
    *,
    delta: float = 1e-6,
) -> pd.DataFrame:
    """Exact delta of the printed and of the right noise, for losses l(theta; z) = g'theta with |g| <= slope.

    With linear losses objective perturbation is the Gaussian mechanism on the sum of the g (theta = -(sum + b)/lam),
    so delta is exact.

    Parameters
    ----------
    cases : sequence of (slope, epsilon)
    delta : float
        What is promised.

    Returns
    -------
    DataFrame
        ``slope``, ``epsilon``, ``sigma_printed``, ``sigma_right``, ``delta_printed``, ``delta_right``, ``promised``.
    """
    rows = []
    for slope, epsilon in cases:
        printed = printed_kifer_sigma(epsilon=epsilon, delta=delta, slope=slope)
        right = kifer_calibration(epsilon=epsilon, delta=delta, slope=slope, curvature=1.0).sigma
        rows.append(
            {
                "slope": slope,
                "epsilon": epsilon,
                "sigma_printed": printed,
                "sigma_right": right,
                "delta_printed": gaussian_delta(epsilon, slope / printed),
                "delta_right": gaussian_delta(epsilon, slope / right),
                "promised": delta,
            }
        )
    return pd.DataFrame(rows)


def separable_huber_delta(
    dimension: int,
    *,
    epsilon: float,
    slope: float,
    curvature: float,
    sigma: float,
    lam: float,
    present: bool,
    step: float | None = None,
) -> tuple[float, float]:
    """Hockey-stick divergence of objective perturbation between no record and one, enclosed to several digits.

    The loss is sum_j h(theta_j) with h'(u) = clip(curvature u, -c, c), c = slope / sqrt(d): gradients have norm at
    most ``slope`` and Hessians are at most curvature I, but of full rank. The mechanism is a product of d equal
    mechanisms in one dimension. With v = lam |theta_j| / sigma, m = c / sigma, k = curvature / lam, the loss of one
    coordinate, without the record against with it, increases in v:

        -log(1 + k) + ((1 + k)^2 - 1) v^2 / 2  for v <= m / k,   m v + m^2 / 2  beyond,

    and v is |N(0, 1)| without the record, while min((1 + k) v, v + m) is with it. The law of the sum comes from a
    fast Fourier transform on a grid. Upper bound: each cell's mass goes to its ends so that both data sets keep
    theirs; lower bound: each cell is merged (Jensen's inequality) and moved down.

    Parameters
    ----------
    dimension : int
        d.
    epsilon, slope, curvature, sigma, lam : float
        Positive.
    present : bool
        Direction: whether the first of the two distributions is the one with the record.
    step : float, optional
        Width of the grid; the gap between the bounds falls with its square. By default min(4e-4, 4e-3 / sqrt(d)).

    Returns
    -------
    (float, float)
        Lower and upper bound, up to the rounding of the transform, about 1e-14.
    """
    d, level = check_count("dimension", dimension), check_real("epsilon", epsilon)
    width = min(4e-4, 4e-3 / math.sqrt(d)) if step is None else check_ordinary("step", step)
    noise = check_ordinary("sigma", sigma)
    m = check_ordinary("slope", slope) / math.sqrt(d) / noise
    k = check_ordinary("curvature", curvature) / check_ordinary("lam", lam)
    first, last = -math.log1p(k), m * REACH + m * m / 2
    # Cells around the grid points for the lower bound, between them for the upper one.
    cells = np.arange(math.floor(first / width) - 1, math.ceil(last / width) + 2, dtype=np.float64)
    bounds = []
    for upper in (True, False):
        edges = np.asarray((cells if upper else cells - 0.5) * width)
        v = _largest_v(edges, m, k)
        absent = np.diff(erf(v / math.sqrt(2)))
        with_record = np.diff(erf(np.minimum((1 + k) * v, v + m) / math.sqrt(2)))
        p, q = (with_record, absent) if present else (absent, with_record)
        x, y = (-edges[1:], -edges[:-1]) if present else (edges[:-1], edges[1:])
        some = (p > 0) & (q > 0)
        p, q, x, y = p[some], q[some], x[some], y[some]
        if upper:
            share = np.clip((q - p * np.exp(-y)) / (np.exp(-x) - np.exp(-y)), 0.0, p)
            law = (np.concatenate([x, y]), np.concatenate([share, p - share]))
            found = _hockey_stick_of_sum(*law, d, level, width) + d * float(erfc(REACH / math.sqrt(2)))
        else:
            centre = 0.5 * (x + y)
            short = centre - np.log(p / q)  # by how much the grid point promises too much
            slack = _best_slack(short, p, width)
            moved = np.where(short > slack, centre - width, centre)
            found = _hockey_stick_of_sum(moved, p, d, level + d * slack, width)
        bounds.append(min(1.0, max(0.0, found)))
    return min(bounds[1], bounds[0]), bounds[0]


REACH = 12.0
"""Standard deviations that the grid of a coordinate covers: 4e-33 lies beyond."""


def _largest_v(losses: FloatArray, m: float, k: float) -> FloatArray:
    """Where the loss of a coordinate passes ``losses``: its inverse, constant across its jump."""
    bend = m / k
    quadratic = np.sqrt(2 * np.maximum(losses + math.log1p(k), 0.0) / (k * (2 + k)))
    linear = np.minimum((losses - m * m / 2) / m, REACH)
    return np.asarray(np.maximum(np.minimum(quadratic, bend), linear))


def _best_slack(short: FloatArray, mass: FloatArray, width: float) -> float:
    """Tolerance s >= 0 that minimises s + width P(short > s); any s is valid."""
    order = np.argsort(short)
    candidates = np.maximum(short[order], 0.0)
    beyond = np.maximum(mass.sum() - np.cumsum(mass[order]), 0.0)
    return float(candidates[np.argmin(candidates + width * beyond)])


def _hockey_stick_of_sum(losses: FloatArray, mass: FloatArray, d: int, epsilon: float, width: float) -> float:
    """E (1 - exp(epsilon - S))_+ for the sum S of d independent losses on the grid."""
    mean = float(losses @ mass)
    variance = max(float(mass @ (losses - mean) ** 2), 0.0) * d
    farthest = float(np.abs(losses - mean).max())
    # Bernstein's inequality: S is farther from its mean than this with probability below 1e-19.
    c = 46 * farthest / 3
    reach = c + math.sqrt(c * c + 92 * variance)
    size = next_fast_len(max(math.ceil(2 * reach / width), math.ceil(2 * farthest / width) + 2), real=True)
    table = np.bincount(np.rint(losses / width).astype(np.int64) % size, mass, minlength=size)
    law = np.maximum(irfft(rfft(table) ** d, size), 0.0)
    points = np.arange(size)
    points = points + size * np.rint((d * mean / width - points) / size)
    values = points * width
    above = values > epsilon
    return float(law[above] @ -np.expm1(epsilon - values[above]))


def kifer_beyond_linear(
    dimensions: Sequence[int] = (1, 10, 100, 10_000), *, epsilon: float = 1.0, delta: float = 1e-6
) -> pd.DataFrame:
    """Exact delta of Kifer's calibration (with the right sigma) for a loss that is no generalised linear one.

    The loss of :func:`separable_huber_delta` with slope and curvature 1 meets every condition that Theorem 2.2.5
    states. In one dimension it *is* generalised linear; from there on the promise fails, in the direction "with the
    record": d eigenvalues of the Hessian may each cost log(1 + epsilon / 2), not one (errata 1 and 27).

    Returns
    -------
    DataFrame
        ``dimension``; ``absent_low``, ``absent_high``, ``present_low``, ``present_high`` (both directions, enclosed);
        ``promised``; ``linear_curve``, the proved delta of a generalised linear loss with the same parameters;
        ``smooth_curve``, the proved delta of any smooth loss with them (:class:`SmoothPerturbationCurve`).
    """
    sigma, lam = kifer_calibration(epsilon=epsilon, delta=delta, slope=1.0, curvature=1.0)
    rows = []
    for d in dimensions:
        row: dict[str, float] = {"dimension": check_count("dimensions", d)}
        for name, present in (("absent", False), ("present", True)):
            row[f"{name}_low"], row[f"{name}_high"] = separable_huber_delta(
                d, epsilon=epsilon, slope=1.0, curvature=1.0, sigma=sigma, lam=lam, present=present
            )
        row["promised"] = delta
        row["linear_curve"] = LinearPerturbationCurve(1 / sigma, 1 / lam).delta(epsilon)
        row["smooth_curve"] = SmoothPerturbationCurve(1 / sigma, 1 / lam, d).delta(epsilon)
        rows.append(row)
    return pd.DataFrame(rows)


# --- erratum 2: the Hessian of Corollary 2.3.2 --------------------------------------------------------


def printed_removal_determinant(ratio: float) -> float:
    """-log(1 - f''mu) of a removed record with mu from the Hessian *without* her, **false** (erratum 2).

    ``ratio`` is f'' x'H^-1 x with that Hessian. Right is log(1 + ratio), the same as -log(1 - f''mu) with the Hessian
    of the actual data. From 1 on the misreading is infinite or undefined: returned as infinity.
    """
    size = check_positive("ratio", ratio)
    return -math.log1p(-size) if size < 1 else math.inf


def removal_hessian(ratios: Sequence[float] = (0.1, 0.5, 0.9, 0.99, 2.0)) -> pd.DataFrame:
    """Determinant term of the only record of a data set, removed: exact and misread, by f''|x|^2 / lam.

    Returns
    -------
    DataFrame
        ``ratio``, ``exact``, ``misread``, ``error``: unbounded.
    """
    frame = pd.DataFrame({"ratio": [check_positive("ratios", r) for r in ratios]})
    frame["exact"] = np.log1p(frame["ratio"])
    frame["misread"] = [printed_removal_determinant(r) for r in frame["ratio"]]
    frame["error"] = frame["misread"] - frame["exact"]
    return frame


def removal_errors(trials: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """Errors of both readings against the density itself, on random squared-loss data (n = 7, d = 4).

    The truth is log p_D / p_{D without z} from the change of variables for both data sets, which needs no formula
    for a person at all.

    Returns
    -------
    DataFrame
        A row a trial: ``library`` and ``misread``, absolute errors of the loss (infinite where undefined).
    """
    check_generator(rng)
    rows = []
    for _ in range(check_count("trials", trials)):
        features = rng.standard_normal((7, 4))
        features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, np.newaxis]
        data = Dataset(features, rng.uniform(-1, 1, 7), Domain("l2", 1.0, "real", 1.0))
        lam, sigma, theta = 10 ** rng.uniform(-0.5, 0.5), rng.uniform(0.5, 2.0), rng.standard_normal(4)
        whole = Objective(data, SquaredLoss(), lam).at(theta)
        rest = Objective(data.take(np.arange(6)), SquaredLoss(), lam).at(theta)
        truth = whole.log_density(sigma=sigma) - rest.log_density(sigma=sigma)
        terms = losses_of_members(whole, sigma=sigma)
        person = whole.records(data.features[-1:], data.labels[-1:])
        ratio = float(person.relative_eigenvalues(rest.factor)[0, 0])
        misread = printed_removal_determinant(ratio) + float(terms.gradient[-1] + terms.inner[-1])
        rows.append({"library": abs(float(terms.signed[-1]) - truth), "misread": abs(misread - truth)})
    return pd.DataFrame(rows)


# --- erratum 6: the overhead of the report ------------------------------------------------------------


def overhead_formulas(
    *,
    slope: float = 1.0,
    curvature: float = 0.25,
    sigma_gradient: float = 8.0,
    sigma_hessian: float = 2.0,
    delta: float = 1e-6,
) -> pd.DataFrame:
    """Epsilon of releasing gradient and Hessian, by four formulas (erratum 6).

    Theorem 2.3.5 (1) covers both releases, but Algorithm 2 takes it for the Hessian alone and adds epsilon_2: the
    gradient is paid for twice. Nothing breaks; more is reported than was lost.

    Returns
    -------
    DataFrame
        ``formula``, ``epsilon``, and ``exact_delta`` of the joint release at that epsilon.
    """
    tail = check_probability("delta", delta)
    root = math.sqrt(2 * math.log(1 / tail))
    first = check_ordinary("slope", slope) / check_ordinary("sigma_gradient", sigma_gradient)
    second = check_ordinary("curvature", curvature) / (
        math.sqrt(2) * check_ordinary("sigma_hessian", sigma_hessian)
    )
    mu = math.hypot(first, second)
    joint, gradient, hessian = (m * m / 2 + m * root for m in (mu, first, second))
    rows = {
        "Algorithm 2: epsilon_2 + Theorem 2.3.5 (1)": gradient + joint,
        "Theorems A.3.4 + A.4.1 (at 2 delta)": gradient + hessian,
        "Theorem 2.3.5 (1), joint": joint,
        "joint, exact": gaussian_epsilon(tail, mu),
    }
    frame = pd.DataFrame({"formula": list(rows), "epsilon": list(rows.values())})
    frame["exact_delta"] = gaussian_delta(frame["epsilon"].to_numpy(), mu)
    return frame


# --- erratum 9: appendices A.6 and A.7, Example 2.2.4 -------------------------------------------------


def gaussian_epsilons(mus: Sequence[float] = (0.1, 0.5, 1.0, 3.0), *, delta: float = 1e-6) -> pd.DataFrame:
    """The three epsilons of a Gaussian mechanism that Corollary A.6.2 is about.

    The corollary prints its first bound, with Phi^-1(1 - delta), twice; the second was to be the one with
    sqrt(2 log(1 / delta)). Both are valid; neither is exact.

    Returns
    -------
    DataFrame
        ``mu``, ``root_log``, ``quantile``, ``exact``.
    """
    tail = check_probability("delta", delta)
    mu = np.array([check_ordinary("mus", m) for m in mus])
    return pd.DataFrame(
        {
            "mu": mu,
            "root_log": mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / tail)),
            "quantile": mu**2 / 2 - mu * float(ndtri(tail)),
            "exact": gaussian_epsilon(tail, mu),
        }
    )


def printed_tail_condition(*, mu: float, epsilon: float) -> float:
    """P_{p'}(-epsilon(o) < -epsilon) of a Gaussian pair: the tail that Lemma A.7.4 (2) prints, **the wrong one**."""
    shift, level = check_ordinary("mu", mu), check_real("epsilon", epsilon)
    return float(ndtr(-level / shift - shift / 2))


def needed_tail_condition(*, mu: float, epsilon: float) -> float:
    """P_{p'}(-epsilon(o) > epsilon): the tail that the second direction needs."""
    shift, level = check_ordinary("mu", mu), check_real("epsilon", epsilon)
    return float(ndtr(-level / shift + shift / 2))


def one_sided_lemma() -> pd.DataFrame:
    """A pair that Lemma A.7.4 (2) as printed calls (log 2, 0)-private, although one direction has delta = 1/2.

    The printed second condition follows from the first: it asks nothing. Take p = (0, 1) and p' = (1/2, 1/2): log p/p'
    is -infinity and log 2, so that both printed probabilities are 0 at epsilon = log 2; but the first outcome, which
    has probability 1/2 under p', is impossible under p.

    Returns
    -------
    DataFrame
        ``condition``, ``probability`` at epsilon = log 2, and ``delta``, the exact divergence of its direction.
    """
    p, other, epsilon = np.array([0.0, 1.0]), np.array([0.5, 0.5]), math.log(2)
    with np.errstate(divide="ignore"):
        loss = np.log(p / other)
    forward = float(np.maximum(p - math.exp(epsilon) * other, 0).sum())
    backward = float(np.maximum(other - math.exp(epsilon) * p, 0).sum())
    return pd.DataFrame(
        [
            ("P_p(loss > epsilon)", float(p[loss > epsilon].sum()), forward),
            ("printed: P_p'(-loss < -epsilon)", float(other[-loss < -epsilon].sum()), backward),
            ("needed: P_p'(-loss > epsilon)", float(other[-loss > epsilon].sum()), backward),
        ],
        columns=["condition", "probability", "delta"],
    )


def count_candidates(
    outputs: Sequence[float] = (0.1, 1.0), *, count: int = 0, sigma: float = 1.0
) -> pd.DataFrame:
    """The two counts that an outsider's published ex-post loss leaves open (Example 2.2.4).

    They add up to 2 o - 1: both are whole numbers exactly if 2 o is one. The example's own o = 1 is such a case, and
    its attack fails there; for real noise that has probability zero.

    Returns
    -------
    DataFrame
        ``output``, ``loss``, ``smaller``, ``larger``, and ``whole``: how many of the two are whole numbers.
    """
    truth, scale = check_count("count", count, minimum=0), check_ordinary("sigma", sigma)
    output = np.array([check_real("outputs", o) for o in outputs])
    loss = np.abs(2 * output - 2 * truth - 1) / (2 * scale**2)
    roots = output - 0.5 + np.array([[-1.0], [1.0]]) * scale**2 * loss
    return pd.DataFrame(
        {
            "output": output,
            "loss": loss,
            "smaller": roots[0],
            "larger": roots[1],
            "whole": (np.abs(roots - np.rint(roots)) < 1e-9).sum(axis=0),
        }
    )


# --- erratum 10: Corollary A.3.6 ----------------------------------------------------------------------


def printed_hessian_sigma(*, epsilon: float, delta: float, curvature: float) -> float:
    """Noise scale of Corollary A.3.6 for the Hessian, wasteful as printed: 1.25-formula and a sqrt 2 too much."""
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    return check_ordinary("curvature", curvature) * math.sqrt(2 * math.log(1.25 / tail)) / level


def hessian_noise(*, epsilon: float = 0.8, delta: float = 1e-6, curvature: float = 0.25) -> pd.DataFrame:
    """Printed and exact noise scale for releasing a Hessian with GOE noise, sensitivity curvature / sqrt 2.

    Returns
    -------
    DataFrame
        ``version``, ``sigma``, ``exact_delta`` at ``epsilon``, ``promised``.
    """
    size = curvature / math.sqrt(2)
    frame = pd.DataFrame(
        {
            "version": ["printed", "exact"],
            "sigma": [
                printed_hessian_sigma(epsilon=epsilon, delta=delta, curvature=curvature),
                gaussian_sigma(epsilon, delta, size),
            ],
        }
    )
    frame["exact_delta"] = [gaussian_delta(epsilon, size / s) for s in frame["sigma"]]
    frame["promised"] = delta
    return frame


def logistic_overhead(
    shares: Sequence[float] = (0.1, 0.5, 0.74, 0.75, 0.76, 0.9), *, delta: float = 1e-6
) -> pd.DataFrame:
    """Does the Hessian's release cost a person less than training did? Corollary A.3.6 says so for logistic loss.

    Both releases are calibrated to the same worst case: mu_max = 1. With p = |f'| the model's probability of the
    wrong label and |x| = 1, training moves by |f'| = p of the worst case 1, the Hessian by f'' = p (1 - p) of the
    worst case 1/4. The corollary divides |f'| by the bound beta = 1/4 of f'' instead of the bound 1 of |f'|; with the
    right one its claim needs p >= 3/4, people whom the model fits badly.

    Returns
    -------
    DataFrame
        ``p``; ``printed`` and ``right``, whether either condition holds; ``training`` and ``hessian``, the person's
        exact Gaussian epsilons of the two gradients of cost at ``delta``, without the determinant term.
    """
    p = np.array([check_probability("shares", s) for s in shares])
    hessian = 4 * p * (1 - p)
    return pd.DataFrame(
        {
            "p": p,
            "printed": hessian <= 4 * p,
            "right": hessian <= p,
            "training": gaussian_epsilon(delta, p),
            "hessian": gaussian_epsilon(delta, hessian),
        }
    )
