"""The ex-post per-instance loss of the Gaussian mechanism, and why it must not be published as it is.

The mechanism answers o = Q(D) + N(0, sigma^2 I_d). With Delta = Q(D+-z) - Q(D) and mu = |Delta| / sigma the loss

    L(o) = log p_D(o) / p_{D+-z}(o) = mu^2/2 - Delta'(o - Q(D)) / sigma^2

is exactly N(mu^2/2, mu^2) when o comes from D and exactly N(-mu^2/2, mu^2) when it comes from D+-z, so |L| has one
law in both worlds, and it depends on mu alone.

Source: redberg2023, Theorem A.6.1, Corollary A.6.2 and Lemma A.7.4, as corrected by erratum 9 (the second expression
of the corollary is sqrt(2 log(1/delta)); the second tail of the lemma is P_{p'}(-L > epsilon)), and Example 2.2.4
(the other root is 2 o - 1 - Q).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from adaptive_dp.accounting import GaussianCurve, gaussian_epsilon
from adaptive_dp.experiments.statistics import proportion_interval
from adaptive_dp.noise import gaussian
from adaptive_dp.privacy import Guarantee, Neighbours, Release
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

BOUNDS = ("exact", "tail", "explicit")
BISECTIONS = 80
LARGEST_COUNT = 2**53
"""Above this not every whole number is a double, and a count could not be told from its neighbour."""


def gaussian_loss(
    outcomes: ArrayLike, answer: ArrayLike, neighbour_answer: ArrayLike, *, sigma: float
) -> FloatArray:
    """Signed ex-post loss log p_D(o) / p_{D+-z}(o) of each outcome (Theorem A.6.1, with its sign).

    Parameters
    ----------
    outcomes : array_like, shape (..., d)
        What the mechanism may have published; a scalar or shape (d,) is one outcome.
    answer, neighbour_answer : array_like, shape (d,) or ()
        Q(D) and Q(D+-z). If both are scalars the query is one number: every entry of ``outcomes``, whatever its
        shape, is an outcome.
    sigma : float
        Standard deviation of the noise in each coordinate.

    Returns
    -------
    ndarray, shape (...) (that of ``outcomes`` for a scalar query)
        Positive where the outcome speaks for D.

    Raises
    ------
    ValueError
        Shapes do not fit, an entry is not finite, ``sigma`` is not positive, or the loss overflows.
    """
    scale = check_ordinary("sigma", sigma)
    own, other = _answers(answer, neighbour_answer)
    published = as_finite_array("outcomes", outcomes)
    if own.ndim == 0:
        own, other, published = own[np.newaxis], other[np.newaxis], published[..., np.newaxis]
    if published.ndim == 0 or published.shape[-1] != own.size:
        raise ValueError(
            f"outcomes must have the {own.size} entries of answer in the last axis, got shape {published.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        # Differences are taken before anything is squared: a large common part of o, Q and Q' cancels exactly.
        shift = (other - own) / scale
        middle = ((own - published) + (other - published)) / (2 * scale)
        loss = np.asarray(middle @ shift)
    if not np.isfinite(loss).all():
        raise ValueError(f"outcomes: the loss overflows at sigma {scale!r}")
    return loss


def gaussian_ex_post_loss(
    outcomes: ArrayLike, answer: ArrayLike, neighbour_answer: ArrayLike, *, sigma: float
) -> FloatArray:
    """Ex-post per-instance loss |log p_D(o) / p_{D+-z}(o)|; arguments as in :func:`gaussian_loss`."""
    return np.abs(gaussian_loss(outcomes, answer, neighbour_answer, sigma=sigma))


def gaussian_shift(answer: ArrayLike, neighbour_answer: ArrayLike, *, sigma: float) -> float:
    """The only number that the law of the loss depends on: mu = |Q(D+-z) - Q(D)|_2 / sigma."""
    own, other = _answers(answer, neighbour_answer)
    return float(np.linalg.norm(np.atleast_1d(other - own) / check_ordinary("sigma", sigma)))


def loss_exceedance(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray:
    """Exact P(|L| > epsilon), the same under D and under D+-z; broadcasts.

    It is Phi(mu/2 - epsilon/mu) + Phi(-mu/2 - epsilon/mu); for mu = 0 the loss is 0 and the answer is 0.

    Parameters
    ----------
    epsilon, mu : array_like
        Nonnegative.
    """
    losses, shifts = _nonnegative("epsilon", epsilon), _nonnegative("mu", mu)
    return _exceedance(losses, shifts)


def loss_quantile(rho: float, mu: ArrayLike) -> FloatArray:
    """Smallest epsilon with P(|L| > epsilon) <= rho: the sharpest bound that depends on mu only.

    Found by bisection and rounded to the safe side: the exceedance at the answer is at most ``rho``.

    Parameters
    ----------
    rho : float
        Probability in (0, 1) with which the bound may fail.
    mu : array_like
        Nonnegative; the answer has its shape.
    """
    tail, shifts = check_probability("rho", rho), _nonnegative("mu", mu)
    # One tail alone already has mass rho at ``low``; at ``high`` either tail has at most rho / 2.
    low = np.maximum(0.0, shifts * (shifts / 2 - special.ndtri(tail)))
    high = _above(shifts * (shifts / 2 - special.ndtri(tail / 2)))
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        fails = _exceedance(middle, shifts) > tail
        low, high = np.where(fails, middle, low), np.where(fails, high, middle)
    return np.asarray(np.where(shifts > 0, high, 0.0))


def high_probability_loss(rho: float, mu: ArrayLike, *, bound: str = "tail") -> FloatArray:
    """Bound on |L| that fails with probability at most ``rho`` (Corollary A.6.2, second part).

    Parameters
    ----------
    rho : float
        In (0, 1).
    mu : array_like
        Nonnegative; the answer has its shape.
    bound : {"tail", "explicit", "exact"}
        mu^2/2 + mu Phi^{-1}(1 - rho/2); mu^2/2 + mu sqrt(2 log(2/rho)); or the exact quantile, the smallest of
        the three.
    """
    tail, shifts = check_probability("rho", rho), _nonnegative("mu", mu)
    kind = check_choice("bound", bound, BOUNDS)
    if kind == "exact":
        return loss_quantile(tail, shifts)
    factor = -special.ndtri(tail / 2) if kind == "tail" else math.sqrt(2 * math.log(2 / tail))
    return np.asarray(shifts * (shifts / 2 + factor))


def gaussian_instance_epsilon(delta: float, mu: ArrayLike, *, bound: str = "exact") -> FloatArray:
    """Per-instance epsilon at ``delta`` for a person who moves the query by mu sigma, both directions.

    Parameters
    ----------
    delta : float
        In (0, 1).
    mu : array_like
        |Q(D+-z) - Q(D)|_2 / sigma, nonnegative; the answer has its shape.
    bound : {"exact", "tail", "explicit"}
        The root of the Gaussian profile; mu^2/2 + mu Phi^{-1}(1 - delta); mu^2/2 + mu sqrt(2 log(1/delta)). The
        last two come from the tail of the loss (Lemma A.7.4) and never are below the first.
    """
    budget, shifts = check_probability("delta", delta), _nonnegative("mu", mu)
    kind = check_choice("bound", bound, BOUNDS)
    if kind == "exact":
        return np.asarray(gaussian_epsilon(budget, shifts), dtype=np.float64)
    factor = -special.ndtri(budget) if kind == "tail" else math.sqrt(2 * math.log(1 / budget))
    # For delta > 1/2 the tail bound may be negative: then already epsilon = 0 holds at that delta.
    return np.asarray(np.maximum(0.0, shifts * (shifts / 2 + factor)))


def noisy_count(
    people: ArrayLike, *, sigma: float, rng: np.random.Generator, delta: float = 1e-6
) -> Release[float]:
    """Publish how many people say yes, with Gaussian noise.

    Parameters
    ----------
    people : array_like, shape (n,), or int
        One 0 or 1 (or truth value) a person, or the count itself. Adding or removing a person moves the count by at
        most 1.
    sigma : float
        Standard deviation of the noise.
    rng : numpy.random.Generator
        The only source of chance.
    delta : float
        At which epsilon is quoted; the guarantee carries the whole curve.

    Raises
    ------
    TypeError, ValueError
        Bad input; no noise has been drawn then.
    """
    check_generator(rng)
    count = _count_of(people)
    scale, budget = check_ordinary("sigma", sigma), check_probability("delta", delta)
    curve = GaussianCurve(1 / scale)
    guarantee = Guarantee(
        "ex-ante",
        float(gaussian_epsilon(budget, 1 / scale)),
        Neighbours.ADD_REMOVE,
        delta=budget,
        source="analytic Gaussian mechanism, sensitivity 1",
        curve=curve,
    )
    return Release(count + float(gaussian(scale, (), rng)), guarantee)


@dataclass(frozen=True, slots=True)
class CountAttack:
    """What an attacker concludes from one noisy count and one published loss."""

    candidates: tuple[float, float]
    """The two roots; one of them is the count, up to the precision of what was published."""
    consistent: int
    """How many whole numbers agree with what was published."""
    count: int | None
    """The count, if exactly one whole number agrees; None says that the attacker cannot be sure."""
    guess: int | None
    """The likeliest of the numbers that agree; None if none does."""


def recover_count(
    output: float, loss: float, *, sigma: float, member: bool = False, precision: float = 0.0
) -> CountAttack:
    """Recover a count from its noisy release and one person's published ex-post loss (Example 2.2.4).

    For an outsider Q(D+z) = Q + 1, so |2 o - 2 Q - 1| = 2 sigma^2 loss and Q = o - 1/2 +- sigma^2 loss; for a member
    who is counted Q(D-z) = Q - 1 and Q = o + 1/2 +- sigma^2 loss. If Q is one root the other is 2 o -+ 1 - Q: a
    whole number only if 2 o is one. That has probability zero for real noise; for doubles it happens (always so
    beyond 2^52), and then the attack says that two numbers are left.

    Parameters
    ----------
    output : float
        The noisy count o.
    loss : float
        The person's published ex-post loss, nonnegative.
    sigma : float
        Standard deviation of the noise: public.
    member : bool
        Whether the person is in the data and counted; her own knowledge.
    precision : float
        Largest error of ``loss``: half a unit of the last digit for a rounded loss, 0 for the loss in double
        precision. What floating point itself may have lost is added.
    """
    noisy, scale = check_real("output", output), check_ordinary("sigma", sigma)
    known = float(_nonnegative("loss", check_real("loss", loss)))
    error = float(_nonnegative("precision", check_real("precision", precision)))
    if not isinstance(member, bool | np.bool_):
        raise TypeError(f"member must be a truth value, got {type(member).__name__}: {member!r}")
    step = scale * scale * known
    centre = noisy + (0.5 if member else -0.5)
    if not math.isfinite(step):
        raise ValueError(f"loss: sigma^2 times it overflows, got {known!r} at sigma {scale!r}")
    guesses, consistent = _likeliest_counts(np.array([noisy]), np.array([known]), scale, bool(member), error)
    found = int(consistent[0])
    guess = int(guesses[0]) if found else None
    return CountAttack((centre - step, centre + step), found, guess if found == 1 else None, guess)


def attack_counts(
    count: int,
    *,
    sigma: ArrayLike,
    draws: int,
    rng: np.random.Generator,
    digits: Sequence[int | None] = (None,),
    member: bool = False,
    level: float = 0.95,
) -> pd.DataFrame:
    """Run the attack of Example 2.2.4 on many noisy counts, for several precisions of the published loss.

    Parameters
    ----------
    count : int
        The true count, nonnegative (at least 1 for a member).
    sigma : float or array_like, shape (m,)
        Standard deviations of the noise.
    draws : int
        Noisy counts for each sigma; all precisions see the same ones.
    rng : numpy.random.Generator
        The only source of chance.
    digits : sequence of int or None
        Digits after the point to which the loss is rounded before it is published; None publishes the double.
    member : bool
        Whether the attacker is in the data and counted.
    level : float
        Coverage of the Clopper-Pearson intervals.

    Returns
    -------
    pandas.DataFrame
        A row for each sigma and precision: ``sigma``, ``digits`` (missing for the double), ``draws``; ``certain``
        (share of runs in which one whole number is left, and it is the count) with ``certain_low`` and
        ``certain_high``; ``guessed`` (share in which the likeliest number left is the count) with ``guessed_low``
        and ``guessed_high``; ``wrong`` (runs in which one number is left and it is not the count); ``without``,
        the exact success 2 Phi(1/(2 sigma)) - 1 of rounding the noisy count, with no loss published at all.
        With w = 10^-digits sigma^2 and noise of sigma >= 1/2 (2 o is then uniform between whole numbers):
        ``predicted`` = max(0, 1 - w) for ``certain``, the mean over where the steps of the rounding fall between
        the whole numbers; and ``at_least`` = max(0, 1 - 2 w), which holds wherever they fall and is what happens
        when w divides 1, as the confusions of both roots then come together.
    """
    check_generator(rng)
    if not isinstance(member, bool | np.bool_):
        raise TypeError(f"member must be a truth value, got {type(member).__name__}: {member!r}")
    truth, runs = check_count("count", count, minimum=1 if member else 0), check_count("draws", draws)
    if truth > LARGEST_COUNT:
        raise ValueError(f"count must be at most 2^53, got {truth}")
    scales = [check_ordinary("sigma", float(s)) for s in np.atleast_1d(as_finite_array("sigma", sigma))]
    places = [None if k is None else check_count("digits", k, minimum=0) for k in digits]
    coverage = check_probability("level", level)
    rows = []
    for scale in scales:
        outputs = truth + gaussian(scale, runs, rng)
        losses = gaussian_ex_post_loss(outputs, truth, truth - 1 if member else truth + 1, sigma=scale)
        for k in places:
            published, error = (losses, 0.0) if k is None else (np.round(losses, k), 0.5 * 10.0**-k)
            guesses, consistent = _likeliest_counts(outputs, published, scale, bool(member), error)
            right = (guesses == truth) & (consistent > 0)
            certain, guessed = int((right & (consistent == 1)).sum()), int(right.sum())
            rows.append(
                {
                    "sigma": scale,
                    "digits": math.nan if k is None else float(k),
                    "draws": runs,
                    "certain": certain / runs,
                    **_interval("certain", certain, runs, coverage),
                    "guessed": guessed / runs,
                    **_interval("guessed", guessed, runs, coverage),
                    "wrong": int(((consistent == 1) & ~right).sum()),
                    "predicted": max(0.0, 1 - (0.0 if k is None else 10.0**-k * scale**2)),
                    "at_least": max(0.0, 1 - (0.0 if k is None else 2 * 10.0**-k * scale**2)),
                    "without": float(special.erf(0.5 / scale / math.sqrt(2))),
                }
            )
    return pd.DataFrame.from_records(rows)


def _interval(name: str, hits: int, runs: int, level: float) -> dict[str, float]:
    low, high = proportion_interval(hits, runs, level)
    return {f"{name}_low": low, f"{name}_high": high}


def _likeliest_counts(
    outputs: FloatArray, losses: FloatArray, sigma: float, member: bool, error: float
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Likeliest whole number, and how many there are, that agree with each output and loss up to ``error``.

    The counts that agree lie in two windows, centre -+ sigma^2 [loss - error, loss + error]; the likeliest, all
    counts being equally likely beforehand, is the one nearest to the output. Entries with none are meaningless.
    """
    centres = outputs + (0.5 if member else -0.5)
    steps = sigma * sigma * losses
    # A handful of roundings, each relative to the largest number in the computation, in the loss and in the roots.
    slack = sigma * sigma * error + 16 * np.finfo(np.float64).eps * (np.abs(outputs) + steps + 1)
    inner, outer = steps - slack, steps + slack
    merged = inner <= 0
    near = np.where(merged, -outer, inner)
    windows = [
        (np.maximum(centres + near, 0.0), centres + outer),
        # Where the windows meet the first holds both, and the second is emptied: no number is counted twice.
        (np.maximum(centres - outer, 0.0), np.where(merged, -1.0, centres - inner)),
    ]
    best, distance = np.full(outputs.shape, -1.0), np.full(outputs.shape, math.inf)
    total = np.zeros(outputs.shape)
    for low, high in windows:
        total += np.maximum(0.0, np.floor(high) - np.ceil(low) + 1)
        nearest = np.clip(outputs, low, np.maximum(low, high))
        for whole in (np.floor(nearest), np.ceil(nearest)):
            better = (low <= whole) & (whole <= high) & (np.abs(outputs - whole) < distance)
            best, distance = (
                np.where(better, whole, best),
                np.where(better, np.abs(outputs - whole), distance),
            )
    return best, np.minimum(total, LARGEST_COUNT).astype(np.int64)


def _exceedance(losses: FloatArray, shifts: FloatArray) -> FloatArray:
    moved = np.where(shifts > 0, shifts, 1.0)
    with np.errstate(over="ignore"):
        ratio = losses / moved
    both = special.ndtr(moved / 2 - ratio) + special.ndtr(-moved / 2 - ratio)
    return np.asarray(np.where(shifts > 0, both, 0.0))


def _above(values: FloatArray) -> FloatArray:
    """A few roundings up."""
    return values * (1 + 4 * np.finfo(np.float64).eps)


def _nonnegative(name: str, value: ArrayLike) -> FloatArray:
    array = as_finite_array(name, value)
    if array.size and array.min() < 0:
        raise ValueError(f"{name} must be nonnegative, got {array.min()!r}")
    return array


def _answers(answer: ArrayLike, neighbour_answer: ArrayLike) -> tuple[FloatArray, FloatArray]:
    own, other = as_finite_array("answer", answer), as_finite_array("neighbour_answer", neighbour_answer)
    if own.shape != other.shape or own.ndim > 1:
        raise ValueError(
            f"neighbour_answer must have the shape of answer, () or (d,): {other.shape} against {own.shape}"
        )
    return own, other


def _count_of(people: ArrayLike) -> int:
    if isinstance(people, numbers.Integral) and not isinstance(people, bool | np.bool_):
        count = check_count("people", people, minimum=0)
    else:
        entries = as_finite_array("people", people, ndim=1)
        bad = (entries != 0) & (entries != 1)
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(f"people must hold 0 or 1 for each person, got {entries[at]!r} at index {at}")
        count = int(entries.sum())
    if count > LARGEST_COUNT:
        raise ValueError(f"people must be at most 2^53, got {count}")
    return count
