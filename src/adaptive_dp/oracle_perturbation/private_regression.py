"""Private logistic regression as a baseline: noisy descent on all records, on minibatches, and objective perturbation.

neel2019 compares its discrete mechanisms with one private learner of a convex surrogate, DP-SGD, which is tuned on the
same records without charge. Here are that one and two others.

:func:`noisy_descent`
    Every step looks at all records. Replacing one moves the sum of the shortened gradients by at most 2 C, so that T
    steps are one Gaussian mechanism with mu = 2 sqrt(T) / (noise multiplier): the accounting is exact.
:func:`averaged_dp_sgd`
    Poisson batches and the average of all iterates, as in the paper. The accountants of DP-SGD compare data sets that
    differ by adding or removing a record, **another relation than the one of the paper**: a mechanism that is
    (epsilon, delta)-private in it is (2 epsilon, (1 + e^epsilon) delta)-private when a record is replaced.
:func:`objective_perturbation_replace_one`
    The mechanism of the first page of this chapter. Nothing is tuned.

A setting that was found by trying several on the same records (:mod:`~.regression_tuning`) is **not** covered by the
guarantee of the run that uses it. The paper tunes so; the first page of this chapter shows what it costs to pay for it.

Song, Chaudhuri and Sarwate 2013; Bassily, Smith and Thakurta 2014; Abadi et al. 2016; neel2019, section 5.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.noise import gaussian
from adaptive_dp.objective_perturbation.approximate_minima import approximate_minima_perturbation
from adaptive_dp.objective_perturbation.calibration import Calibration, calibrate_approximate
from adaptive_dp.objective_perturbation.dp_sgd import Schedule, poisson_batches, run_guarantee
from adaptive_dp.objective_perturbation.sampled_gaussian import noise_multiplier
from adaptive_dp.privacy import SLACK, Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)

LOSS = LogisticLoss()
# Parameters grow by a multiple of the rate a step; beyond this their products could overflow.
LARGEST_RATE = 1e10
# Algorithm 7 of redberg2023 with the constants of its section 4.5.
TAU, SIGMA_OUT, FACTOR = 0.01, 0.15, 1.3


def check_rate(rate: object) -> float:
    """Return a step length in (0, 1e10]."""
    value = check_positive("rate", rate)
    if value > LARGEST_RATE:
        raise ValueError(f"rate must be at most {LARGEST_RATE:g}, got {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class Descent:
    """Public constants of :func:`noisy_descent`.

    Parameters
    ----------
    clip : float
        C, largest norm of one record's gradient.
    steps : int
        T.
    rate : float
        Step length, in units in which shortened gradients have norm at most 1: theta moves by rate / (n C) times the
        noisy sum. At most 1e10.
    """

    clip: float
    steps: int
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", check_ordinary("clip", self.clip))
        object.__setattr__(self, "steps", check_count("steps", self.steps))
        object.__setattr__(self, "rate", check_rate(self.rate))


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Public constants of :func:`averaged_dp_sgd`.

    Parameters
    ----------
    clip : float
        C.
    batch : int
        Expected size of a batch.
    epochs : int
        Expected number of passes.
    rate : float
        Step length, as in :class:`Descent` with the batch in place of n.
    """

    clip: float
    batch: int
    epochs: int
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", check_ordinary("clip", self.clip))
        object.__setattr__(self, "batch", check_count("batch", self.batch))
        object.__setattr__(self, "epochs", check_count("epochs", self.epochs))
        object.__setattr__(self, "rate", check_rate(self.rate))

    def schedule(self, records: int) -> Schedule:
        """Sampling probability and number of steps for a public number of records."""
        return Schedule.of(records, batch=self.batch, epochs=self.epochs)


def accuracy(weights: ArrayLike, features: ArrayLike, labels: ArrayLike) -> FloatArray:
    """Share of records strictly on the side that their label (-1 or +1) says; <w, x> = 0 is an error for both labels.

    Parameters
    ----------
    weights : array_like, shape (..., d)
    features, labels : array_like, shapes (n, d) and (n,)

    Returns
    -------
    ndarray, shape (...)
        Not private.
    """
    w, x = as_finite_array("weights", weights), as_finite_array("features", features, ndim=2)
    y = as_finite_array("labels", labels, ndim=1)
    if w.ndim == 0 or w.shape[-1] != x.shape[1] or y.shape[0] != x.shape[0]:
        raise ValueError(f"weights {w.shape}, features {x.shape} and labels {y.shape} must fit")
    return np.asarray(np.mean((w @ x.T) * y > 0, axis=-1))


# --- all records at every step ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    """Distinct records with their counts: equal records have equal gradients, and Adult has five copies of each."""

    features: FloatArray
    labels: FloatArray
    norms: FloatArray
    counts: FloatArray
    total: int

    def sums(self, theta: FloatArray, clip: float) -> FloatArray:
        """Sums of shortened gradients over C at ``theta`` (runs, d)."""
        slopes = _shortened(self.features, self.labels, self.norms, theta, clip)
        return np.asarray((slopes * self.counts) @ self.features)


def _shortened(
    features: FloatArray, labels: FloatArray, norms: FloatArray, theta: FloatArray, clip: float
) -> FloatArray:
    """Slopes over C, no |slope| |x| above 1, shape (..., rows); ``theta`` (..., d), ``norms`` of the rows."""
    slopes = LOSS.derivative(theta @ features.T, labels)
    return np.asarray(slopes / np.maximum(np.abs(slopes) * norms, clip))


@functools.lru_cache(maxsize=2)
def _merged(data: Dataset) -> _Records:
    """A data set cannot change and is told from others by its identity: the last two are kept."""
    rows, counts = np.unique(np.column_stack([data.features, data.labels]), axis=0, return_counts=True)
    features = np.ascontiguousarray(rows[:, :-1])
    norms = np.linalg.norm(features, axis=1)
    return _Records(features, rows[:, -1].copy(), norms, counts.astype(np.float64), data.rows)


def noisy_descent(
    data: Dataset, *, epsilon: float, delta: float, settings: Descent, rng: np.random.Generator
) -> Release[FloatArray]:
    """Logistic regression by noisy gradient descent on all records, averaged over the last half of the iterates.

    Parameters
    ----------
    data : Dataset
        Private records with labels in {-1, +1}; n is public. No bound on the rows is used: gradients are shortened.
    epsilon, delta : float
        epsilon > 0, delta in (0, 1); neighbours replace one record.
    settings : Descent
        Fixed without looking at the records.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        Weights, shape (d,). The guarantee has the exact curve, and holds for all iterates together. Trace: ``sigma``,
        the noise over C on each sum.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, before anything is drawn.
    """
    (weights,), guarantee, sigma = _descend(data, epsilon, delta, settings, 1, rng)
    return Release(weights, guarantee, trace=Trace(sigma=sigma))


def noisy_descent_runs(
    data: Dataset, *, epsilon: float, delta: float, settings: Descent, runs: int, rng: np.random.Generator
) -> tuple[FloatArray, Guarantee]:
    """Independent runs of :func:`noisy_descent` side by side, to see how its answers vary.

    Returns
    -------
    weights : ndarray, shape (runs, d)
    guarantee : Guarantee
        Of each run by itself; together they cost more.
    """
    weights, guarantee, _ = _descend(data, epsilon, delta, settings, check_count("runs", runs), rng)
    return weights, guarantee


def _descend(
    data: Dataset, epsilon: float, delta: float, settings: Descent, runs: int, rng: np.random.Generator
) -> tuple[FloatArray, Guarantee, float]:
    """Weights (runs, d), the guarantee of one run, its noise multiplier."""
    check_learnable(data)
    if not isinstance(settings, Descent):
        raise TypeError(f"settings must be a Descent, got {type(settings).__name__}: {settings!r}")
    guarantee, sigma = descent_guarantee(data, epsilon=epsilon, delta=delta, settings=settings)
    check_generator(rng)
    records = _merged(data)
    theta = np.zeros((runs, data.columns))
    total = np.zeros_like(theta)
    step = settings.rate / records.total
    for time in range(settings.steps):
        theta = theta - step * (records.sums(theta, settings.clip) + gaussian(sigma, theta.shape, rng))
        if 2 * time >= settings.steps - 1:
            total += theta
    return total / (settings.steps // 2 + settings.steps % 2), guarantee, sigma


def descent_guarantee(
    data: Dataset, *, epsilon: float, delta: float, settings: Descent
) -> tuple[Guarantee, float]:
    """The guarantee of :func:`noisy_descent` and its noise multiplier: T sums, each moved by at most 2 C.

    Adaptive composition of Gaussian mechanisms is exact: mu is 2 sqrt(T) over the multiplier (dong2019, Corollary 3.3).
    """
    e, d = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    reach = 2 * math.sqrt(settings.steps)
    sigma = check_ordinary("sigma", gaussian_sigma(e, d, reach))
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=e,
        delta=d,
        neighbours=Neighbours.REPLACE_ONE,
        domain=data.domain,
        source="Gaussian mechanism, sensitivity 2 C, composed exactly",
        curve=GaussianCurve(reach / sigma),
    )
    return guarantee, sigma


def check_learnable(data: object) -> Dataset:
    """Return ``data`` if it is a Dataset whose labels are declared to be -1 or +1."""
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, got {type(data).__name__}")
    if data.domain.labels != "sign":
        raise ValueError(f"data must have labels in {{-1, +1}}, got {data.domain.describe_labels()}")
    return data


# --- minibatches --------------------------------------------------------------------------------------


def averaged_dp_sgd(
    data: Dataset,
    *,
    epsilon: float,
    delta: float,
    settings: Minibatch,
    rng: np.random.Generator,
    accountant: str = "renyi",
) -> Release[FloatArray]:
    """DP-SGD on Poisson batches, averaged over all iterates: the baseline of neel2019.

    :func:`adaptive_dp.objective_perturbation.dp_sgd.train` is the same iteration and returns its end; the paper wants
    the average, which costs no privacy, as all iterates are covered together.

    Parameters
    ----------
    data : Dataset
        Private records with labels in {-1, +1}.
    epsilon, delta : float
        epsilon > 0, delta in (0, 1); neighbours **add or remove** one record.
    settings : Minibatch
        The sampling probability is computed from the number of records, which counts as public.
    rng : numpy.random.Generator
    accountant : {"renyi", "numerical"}

    Returns
    -------
    Release
        Weights, shape (d,). Trace: ``sigma``, the noise over C on the sum of a batch.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, before anything is drawn.
    """
    check_learnable(data)
    if not isinstance(settings, Minibatch):
        raise TypeError(f"settings must be a Minibatch, got {type(settings).__name__}: {settings!r}")
    check_generator(rng)
    schedule = settings.schedule(data.rows)
    sigma = noise_multiplier(
        epsilon=epsilon, delta=delta, sampling=schedule.sampling, steps=schedule.steps, accountant=accountant
    )
    guarantee = run_guarantee(
        data, epsilon=epsilon, delta=delta, sigma=sigma, schedule=schedule, accountant=accountant
    )
    picks, edges = poisson_batches(data.rows, schedule.sampling, schedule.steps, rng)
    noise = gaussian(sigma, (schedule.steps, data.columns), rng)
    norms = np.linalg.norm(data.features, axis=1)
    theta, total = np.zeros(data.columns), np.zeros(data.columns)
    for start, end, extra in zip(edges[:-1], edges[1:], noise, strict=True):
        chosen = picks[start:end]
        rows = data.features[chosen]
        slopes = _shortened(rows, data.labels[chosen], norms[chosen], theta, settings.clip)
        theta = theta - settings.rate / schedule.batch * (slopes @ rows + extra)
        total += theta
    return Release(total / schedule.steps, guarantee, trace=Trace(sigma=sigma))


# --- objective perturbation under the paper's relation -------------------------------------------------


def group_of_two(epsilon: float, delta: float) -> tuple[float, float]:
    """What add/remove must promise so that replacing a record is (epsilon, delta)-private.

    Replacing is removing and adding: a mechanism that is (e, d)-private for one step is (2 e, (1 + e^e) d)-private for
    two.

    Returns
    -------
    tuple of float
        (epsilon / 2, delta / (1 + e^(epsilon / 2))).
    """
    e, d = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    if e > 100:
        raise ValueError(f"epsilon must be at most 100, got {e!r}")
    return e / 2, d / (1 + math.exp(e / 2))


@functools.lru_cache(maxsize=64)
def _calibration(epsilon: float, delta: float, slope: float, curvature: float) -> Calibration:
    """Noise and ridge; an experiment asks for the same ones at every repetition."""
    return calibrate_approximate(
        epsilon=epsilon,
        delta=delta,
        slope=slope,
        curvature=curvature,
        sigma_out=SIGMA_OUT,
        tau=TAU,
        factor=FACTOR,
    )


def objective_perturbation_replace_one(
    data: Dataset, *, epsilon: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    """Logistic regression by objective perturbation (redberg2023, Algorithm 16), private when one record is replaced.

    Calibrated for adding or removing a record, by the rule and the constants of the first page of this chapter, at the
    pair that :func:`group_of_two` names. No parameter looks at the records.

    Parameters
    ----------
    data : Dataset
        Private records with labels in {-1, +1} and rows that are bounded in l2; rows of norm 1 suit the constants.
    epsilon, delta : float
        epsilon > 0, delta in (0, 1); neighbours replace one record.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        Weights, shape (d,). Trace: that of
        :func:`~adaptive_dp.objective_perturbation.approximate_minima.approximate_minima_perturbation`, and ``sigma``.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, before anything is drawn.
    CertificateError
        As there, if the solver fails; on bounded rows it has not been seen.
    """
    check_learnable(data)
    half, level = group_of_two(epsilon, delta)
    check_generator(rng)
    slope = LOSS.lipschitz(data.domain, math.inf, dimension=data.columns)
    calibration = _calibration(half, level, slope, LOSS.smoothness(data.domain, dimension=data.columns))
    release = approximate_minima_perturbation(
        data, loss=LOSS, calibration=calibration, tau=TAU, sigma_out=SIGMA_OUT, delta=level, rng=rng
    )
    if release.guarantee.epsilon > half * (1 + SLACK):
        raise RuntimeError(f"the calibration promises {release.guarantee.epsilon!r}, {half!r} was asked for")
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=Neighbours.REPLACE_ONE,
        domain=data.domain,
        source=f"{release.guarantee.source}; group privacy for two steps",
    )
    return Release(release.value, guarantee, trace=Trace(**release.trace, sigma=calibration.sigma))
