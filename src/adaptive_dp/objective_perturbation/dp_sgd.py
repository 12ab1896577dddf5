"""DP-SGD for generalised linear models, many learning rates at once.

At each step every record is in the batch with probability q, independently; its gradient is shortened to norm C; the
sum of the shortened gradients gets N(0, (sigma C)^2 I) and is divided by the *expected* batch size, a public number
(the size of the batch at hand is private). Adam, or plain SGD, moves the parameter. Adding or removing one record moves
the sum by at most C, not by 2 C: that would be the exchange of one record.

The gradient of one record is f'(x'theta) x, so that its norm |f'| ||x|| and the shortened sum come from products of
matrices with vectors; no record's gradient is ever written down.

Song, Chaudhuri and Sarwate 2013; Bassily, Smith and Thakurta 2014; Abadi et al. 2016; Kingma and Ba, "Adam: a method
for stochastic optimization", ICLR 2015, Algorithm 1; redberg2023, Section 4.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import LogisticLoss, Loss, l2_feature_bound, repair_norms
from adaptive_dp.objective_perturbation.sampled_gaussian import (
    check_sampling,
    noise_multiplier,
    sampled_gaussian_curve,
)
from adaptive_dp.privacy import Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
)

OPTIMISERS = ("adam", "sgd")
PRECISIONS = ("double", "single")
SOURCE = "Abadi et al. 2016; Mironov, Talwar and Zhang 2019"
# Kingma and Ba's recommendations, the defaults everywhere.
DECAY, SQUARE_DECAY, FLOOR = 0.9, 0.999, 1e-8
# Random numbers are drawn for several steps at a time: about this many indices, or entries of noise, a run.
DRAWS = 1 << 16
# Rows longer than this are refused in single precision: their products could overflow.
LONGEST_SINGLE = 1e10
# Slopes over C, and C over the batch, must be numbers of the precision: C in single precision, and C / batch.
SINGLE_CLIPS = (1e-20, 1e20)
LARGEST_SINGLE_LABEL = 1e10
LARGEST_STEP = 1e100
# Parameters grow by a multiple of the rate a step; beyond this their products could overflow.
LARGEST_RATE = 1e10


@dataclass(frozen=True, slots=True)
class Schedule:
    """The public constants of a run: they must not be computed from the private number of records.

    Under the relation add/remove the number of records is private, and a sampling probability of 256 / n would differ
    between neighbours. All guarantees here take the three numbers as fixed in advance, as all accountants do.

    Parameters
    ----------
    sampling : float
        q, probability in (0, 1] that a record is in a batch.
    steps : int
        T, number of batches.
    batch : float
        What the noisy sums are divided by: the expected batch size, if q was chosen for about the right n.
    """

    sampling: float
    steps: int
    batch: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling", check_sampling(self.sampling))
        object.__setattr__(self, "steps", check_count("steps", self.steps))
        object.__setattr__(self, "batch", check_ordinary("batch", self.batch))

    @classmethod
    def of(cls, rows: int, *, batch: int = 256, epochs: int = 60) -> Schedule:
        """Schedule for about ``rows`` records, a public figure: q = batch / rows, T = epochs ceil(1 / q).

        The thesis's numbers are the defaults. ``rows`` of at most ``batch`` gives q = 1.
        """
        n, size, times = check_count("rows", rows), check_count("batch", batch), check_count("epochs", epochs)
        size = min(size, n)
        return cls(size / n, times * -(-n // size), float(size))


def poisson_batches(
    rows: int, sampling: float, steps: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw ``steps`` Poisson samples of ``rows`` records.

    One coin for each record and step, in one long row: the gaps between heads are geometric, and only heads are drawn.
    The law is that of the coins, and so is that of a binomial size with as many records without replacement; this way
    is five times faster than that one, thirty times faster than tossing each coin.

    Returns
    -------
    picks, edges : ndarray of int, shapes (total,) and (steps + 1,)
        Step t has the records ``picks[edges[t]:edges[t + 1]]``, in increasing order.
    """
    coins = rows * steps
    if coins >= 1 << 61:
        raise ValueError(f"steps times rows must be below 2^61, got {coins!r}")
    size = int(coins * sampling + 5 * math.sqrt(coins * sampling) + 10)
    heads = np.cumsum(rng.geometric(sampling, size)) - 1
    while heads[-1] < coins:
        more = np.cumsum(rng.geometric(sampling, size)) + heads[-1]
        heads = np.concatenate([heads, more])
    edges = np.searchsorted(heads, rows * np.arange(steps + 1))
    return heads[: edges[-1]] % rows, edges


def train(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    rates: ArrayLike,
    sigma: float,
    clip: float,
    sampling: float,
    steps: int,
    rng: np.random.Generator,
    loss: Loss | None = None,
    shared: bool = False,
    batch: float | None = None,
    optimiser: str = "adam",
    precision: str = "double",
) -> FloatArray:
    """Run DP-SGD from theta = 0 once for each learning rate: the computation, without a guarantee.

    Parameters
    ----------
    features, labels : array_like, shapes (n, d) and (n,)
        Records.
    rates : array_like, shape (R,)
        Learning rates, positive, at most 1e10.
    sigma : float
        Noise multiplier: the noise on the sum of shortened gradients has standard deviation sigma * clip.
    clip : float
        C, largest norm of one record's gradient.
    sampling : float
        q in (0, 1].
    steps : int
        T.
    rng : numpy.random.Generator
        With ``shared`` all draws come from it, otherwise each run draws from a generator that four of its draws
        seed.
    loss : Loss, optional
        Logistic by default.
    shared : bool
        True: all runs see the same batches and the same noise. Each run has its right law, so that averages over runs
        of one rate are right; together they are dependent, and neither composition nor a theorem on selection says
        anything about the best of them. False: independent runs.
    batch : float, optional
        Divisor of the noisy sums; by default q n.
    optimiser : {"adam", "sgd"}
    precision : {"double", "single"}
        Of the products of matrices and vectors. Single halves the memory that a step moves. A sum of 256 gradients is
        then off by about 1e-6 C, a millionth of the noise.

    Returns
    -------
    ndarray, shape (R, d)
        Last iterates. Time O(T (q n R d)); memory a copy of the features and O(R d).

    Raises
    ------
    TypeError, ValueError
        A parameter out of range, labels that the loss is not defined for, before anything is drawn. In single
        precision ``clip`` must lie between 1e-20 and 1e20, rows and labels be at most 1e10; clip / batch, and sigma
        times it, at most 1e100.
    """
    X, y = as_finite_array("features", features, ndim=2), as_finite_array("labels", labels, ndim=1)
    if X.shape[0] == 0 or X.shape[1] == 0 or y.shape[0] != X.shape[0]:
        raise ValueError(f"features (n, d) and labels (n,) must fit, got shapes {X.shape} and {y.shape}")
    grid = check_rates(rates)
    noise, bound = check_ordinary("sigma", sigma), check_ordinary("clip", clip)
    q, total = check_sampling(sampling), check_count("steps", steps)
    divisor = q * X.shape[0] if batch is None else check_ordinary("batch", batch)
    function = check_loss(loss)
    function.check_labels(y)
    check_choice("optimiser", optimiser, OPTIMISERS)
    check_choice("precision", precision, PRECISIONS)
    check_scales(bound, noise, divisor, precision)
    _check_label_size(float(np.abs(y).max()), precision)
    check_generator(rng)
    task = _Task.of(X, y, function, bound, noise, precision)
    theta = np.zeros((grid.size, X.shape[1]))
    update = (_Adam if optimiser == "adam" else _Sgd)(theta, grid[:, np.newaxis])
    sums = task.shared if shared else task.independent
    # Seeded by draws, not spawned: what a generator spawns does not depend on what was drawn from it before.
    streams = (
        [rng]
        if shared
        else [np.random.default_rng(seed) for seed in rng.integers(1 << 63, size=(grid.size, 4))]
    )
    for gradients in sums(theta, q, total, streams):
        gradients *= bound / divisor
        update(gradients)
    return theta


def check_rates(rates: ArrayLike) -> FloatArray:
    """Return learning rates as an array of shape (R,), R >= 1, each positive and at most 1e10."""
    grid = np.atleast_1d(as_finite_array("rates", rates))
    if grid.ndim != 1 or not grid.size:
        raise ValueError(f"rates must be a list of numbers, got shape {grid.shape}")
    if grid.min() <= 0 or grid.max() > LARGEST_RATE:
        worst = grid.min() if grid.min() <= 0 else grid.max()
        raise ValueError(f"rates must be positive and at most {LARGEST_RATE:g}, got {worst!r}")
    return grid


def check_scales(clip: float, sigma: float, batch: float, precision: str) -> None:
    """Refuse scales, ordinary numbers each, with which a step would overflow: public constants alone decide."""
    low, high = SINGLE_CLIPS
    if precision == "single" and not low <= clip <= high:
        raise ValueError(f"clip must lie between {low:g} and {high:g} in single precision, got {clip!r}")
    if max(1.0, sigma) * clip / batch > LARGEST_STEP:
        raise ValueError(
            f"batch must not be so small beside clip and sigma: clip / batch, and sigma times it, must be at most "
            f"{LARGEST_STEP:g}, got batch {batch!r}, clip {clip!r} and sigma {sigma!r}"
        )


def _check_label_size(largest: float, precision: str) -> None:
    if precision == "single" and largest > LARGEST_SINGLE_LABEL:
        raise ValueError(
            f"precision must be 'double' for labels beyond {LARGEST_SINGLE_LABEL:g}, got {largest:g}"
        )


def check_loss(loss: object) -> Loss:
    """Return a loss of linear predictors; logistic for None."""
    if loss is None:
        return LogisticLoss()
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a Loss of linear predictors, got {type(loss).__name__}: {loss!r}")
    return loss


@dataclass(frozen=True)
class _Task:
    """Records and constants of a run; sums of shortened gradients in units of C."""

    features: NDArray[Any]
    labels: FloatArray
    norms: FloatArray
    loss: Loss
    clip: float
    sigma: float
    room: list[NDArray[Any]]

    @classmethod
    def of(cls, X: FloatArray, y: FloatArray, loss: Loss, clip: float, sigma: float, precision: str) -> _Task:
        matrix: NDArray[Any] = X
        with np.errstate(over="ignore"):
            norms = repair_norms(X, np.sqrt(np.einsum("ij,ij->i", X, X)))
        if precision == "single":
            if norms.max() > LONGEST_SINGLE:
                raise ValueError(
                    f"precision must be 'double' for rows longer than {LONGEST_SINGLE:g}, got {norms.max():g}"
                )
            matrix = X.astype(np.float32)
            norms *= 1 + 1e-6  # room for the rounding of rows and slopes
        return cls(matrix, y, norms, loss, clip, sigma, [matrix[:0]])

    def gather(self, picks: NDArray[np.int64]) -> NDArray[Any]:
        """Rows of a batch, in memory that the next batch overwrites: fresh pages would cost more than the copy."""
        if picks.size > self.room[0].shape[0]:
            self.room[0] = np.empty(
                (picks.size + picks.size // 4, self.features.shape[1]), self.features.dtype
            )
        return self.features.take(picks, axis=0, out=self.room[0][: picks.size], mode="clip")

    def sums(self, points: FloatArray, picks: NDArray[np.int64]) -> NDArray[Any]:
        """Sums of shortened gradients over C at ``points``, (d,) or (R, d), in the shape of ``points``."""
        rows = self.gather(picks)
        labels, norms = self.labels[picks], self.norms[picks]
        if points.ndim == 2:
            labels, norms = labels[:, np.newaxis], norms[:, np.newaxis]
        slopes = self.loss.derivative(rows @ points.astype(rows.dtype, copy=False).T, labels)
        # Over C, and shortened so that no |slope| ||x|| exceeds 1.
        slopes /= np.maximum(np.abs(slopes) * norms, self.clip)
        return np.asarray(slopes.T.astype(rows.dtype, copy=False) @ rows)

    def draws(
        self, sampling: float, steps: int, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.int64], FloatArray]]:
        """Batch and noise (in units of C) of each step."""
        rows, width = self.features.shape
        chunk = int(min(256, max(1, DRAWS // max(width, sampling * rows))))
        for start in range(0, steps, chunk):
            size = min(chunk, steps - start)
            picks, edges = poisson_batches(rows, sampling, size, rng)
            noise = rng.standard_normal((size, width))
            noise *= self.sigma
            bounds = edges.tolist()
            for t in range(size):
                yield picks[bounds[t] : bounds[t + 1]], noise[t]

    def shared(
        self, theta: FloatArray, sampling: float, steps: int, streams: list[np.random.Generator]
    ) -> Iterator[FloatArray]:
        """Noisy sums, (R, d), at the current ``theta`` (which the caller moves between two of them)."""
        for picks, noise in self.draws(sampling, steps, streams[0]):
            yield np.add(self.sums(theta, picks), noise)

    def independent(
        self, theta: FloatArray, sampling: float, steps: int, streams: list[np.random.Generator]
    ) -> Iterator[FloatArray]:
        """The same with batches and noise of its own for each run."""
        sources = [self.draws(sampling, steps, stream) for stream in streams]
        result = np.empty_like(theta)
        for drawn in zip(*sources, strict=True):
            for (picks, noise), point, total in zip(drawn, theta, result, strict=True):
                np.add(self.sums(point, picks), noise, out=total)
            yield result


class _Adam:
    """Adam on a stack of parameters; it moves ``theta`` in place and uses the gradients as scratch."""

    def __init__(self, theta: FloatArray, rates: FloatArray) -> None:
        self.theta, self.rates, self.time = theta, rates, 0
        self.mean, self.square = np.zeros_like(theta), np.zeros_like(theta)
        self.scratch = np.empty_like(theta)

    def __call__(self, gradients: FloatArray) -> None:
        self.time += 1
        np.multiply(gradients, 1 - DECAY, out=self.scratch)
        self.mean *= DECAY
        self.mean += self.scratch
        gradients *= gradients
        gradients *= 1 - SQUARE_DECAY
        self.square *= SQUARE_DECAY
        self.square += gradients
        np.divide(self.square, 1 - SQUARE_DECAY**self.time, out=self.scratch)
        np.sqrt(self.scratch, out=self.scratch)
        self.scratch += FLOOR
        np.divide(self.mean, self.scratch, out=self.scratch)
        self.scratch *= self.rates / (1 - DECAY**self.time)
        self.theta -= self.scratch


class _Sgd:
    """Plain gradient steps, in place."""

    def __init__(self, theta: FloatArray, rates: FloatArray) -> None:
        self.theta, self.rates = theta, rates

    def __call__(self, gradients: FloatArray) -> None:
        gradients *= self.rates
        self.theta -= gradients


def dp_sgd(
    data: Dataset,
    *,
    epsilon: float,
    delta: float,
    rate: float,
    schedule: Schedule,
    clip: float | None = None,
    loss: Loss | None = None,
    optimiser: str = "adam",
    accountant: str = "renyi",
    precision: str = "double",
    rng: np.random.Generator,
) -> Release[FloatArray]:
    """DP-SGD with one learning rate that was fixed in advance.

    A rate that was found by looking at these records is not covered: see
    :mod:`~adaptive_dp.objective_perturbation.tuning`.

    Parameters
    ----------
    data : Dataset
        Private records.
    epsilon, delta : float
        epsilon > 0, delta in (0, 1); neighbours add or remove one record.
    rate : float
        Learning rate.
    schedule : Schedule
        Public constants.
    clip : float, optional
        C. By default the Lipschitz constant of the loss on the declared domain, where nothing is shortened.
    loss : Loss, optional
        Logistic by default.
    optimiser : {"adam", "sgd"}
    accountant : {"renyi", "numerical"}
    precision : {"double", "single"}
        See :func:`train`.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        theta, shape (d,). The guarantee carries the whole curve and holds for all iterates together. The trace holds
        ``sigma`` (the noise multiplier) and ``clip``.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, before anything is drawn.
    """
    function, bound = check_problem(data, loss, clip, optimiser=optimiser, precision=precision)
    check_schedule(schedule)
    check_rates(check_positive("rate", rate))
    check_generator(rng)
    sigma = noise_multiplier(
        epsilon=epsilon, delta=delta, sampling=schedule.sampling, steps=schedule.steps, accountant=accountant
    )
    check_scales(bound, sigma, schedule.batch, precision)
    guarantee = run_guarantee(
        data, epsilon=epsilon, delta=delta, sigma=sigma, schedule=schedule, accountant=accountant
    )
    (theta,) = train(
        data.features,
        data.labels,
        rates=[rate],
        sigma=sigma,
        clip=bound,
        sampling=schedule.sampling,
        steps=schedule.steps,
        batch=schedule.batch,
        loss=function,
        optimiser=optimiser,
        precision=precision,
        rng=rng,
    )
    return Release(theta, guarantee, trace=Trace(sigma=sigma, clip=bound))


def run_guarantee(
    data: Dataset, *, epsilon: float, delta: float, sigma: float, schedule: Schedule, accountant: str
) -> Guarantee:
    """Guarantee of one run with noise multiplier ``sigma``, checked against its curve."""
    return Guarantee(
        kind="ex-ante",
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=Neighbours.ADD_REMOVE,
        domain=data.domain,
        source=SOURCE,
        curve=sampled_gaussian_curve(
            sampling=schedule.sampling, sigma=sigma, steps=schedule.steps, accountant=accountant
        ),
    )


def check_schedule(schedule: object) -> Schedule:
    """Return ``schedule`` if it is one."""
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be a Schedule, got {type(schedule).__name__}: {schedule!r}")
    return schedule


def check_problem(
    data: object, loss: object, clip: object, *, optimiser: str, precision: str
) -> tuple[Loss, float]:
    """Return the loss and the clipping threshold for ``data``, or refuse what does not fit."""
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, got {type(data).__name__}")
    function = check_loss(loss)
    check_choice("optimiser", optimiser, OPTIMISERS)
    check_choice("precision", precision, PRECISIONS)
    longest = l2_feature_bound(data.domain, data.columns)
    if precision == "single" and longest > LONGEST_SINGLE:
        raise ValueError(
            f"precision must be 'double' where rows may be longer than {LONGEST_SINGLE:g}, got {longest:g}"
        )
    natural = function.lipschitz(data.domain, math.inf, dimension=data.columns)
    if data.domain.labels == "real":
        _check_label_size(data.domain.label_bound, precision)
    if clip is not None:
        return function, check_ordinary("clip", clip)
    if not math.isfinite(natural):
        raise ValueError("clip must be given: the gradients of this loss are unbounded on the domain")
    return function, check_ordinary("clip", natural)
