"""Choosing the learning rate of DP-SGD: honestly, and as it is usually done.

Honest tuning is private selection with a Poisson number of candidates (Papernot and Steinke, "Hyperparameter tuning
with Rényi differential privacy", ICLR 2022, Theorem 6). One candidate is a learning rate drawn from a law fixed in
advance, a run of DP-SGD with it, and a score of the result. The theorem asks for three things that are easy to miss:

- The candidates are independent and alike: rates are drawn with replacement, batches and noise are each run's own.
- Outcomes are compared in an order that does not depend on the private records. A score that looks at private records
  is therefore part of what a candidate publishes, and must be noisy and paid for (:class:`NoisyScore`); one that looks
  at public records only is free (:class:`PublicScore`). Ties go to the earliest candidate: as the candidates are
  exchangeable, this is the order in which each outcome carries a random number of its own to break them.
- The number K of candidates is Poisson, and with no candidate at all (probability e^-mean) the answer is a constant.
  K itself is not published.

The released value is the winner's model, rate and score: all that the theorem covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import Loss
from adaptive_dp.objective_perturbation.dp_sgd import (
    Schedule,
    check_problem,
    check_rates,
    check_scales,
    check_schedule,
    run_guarantee,
    train,
)
from adaptive_dp.objective_perturbation.sampled_gaussian import noise_multiplier
from adaptive_dp.objective_perturbation.tuning_accounting import (
    EPSILONS,
    MEAN,
    honest_curve,
    honest_noise_multiplier,
    noise_table,
    poisson_mean,
)
from adaptive_dp.privacy import Guarantee, Neighbours, Release, Trace
from adaptive_dp.ptr.selection_renyi import PoissonRounds
from adaptive_dp.validation import FloatArray, check_count, check_generator, check_ordinary

__all__ = [
    "EPSILONS",
    "MEAN",
    "LogUniform",
    "NoisyScore",
    "PublicScore",
    "Rounds",
    "TunedModel",
    "dishonest_dp_sgd",
    "draw_rates",
    "honest_curve",
    "honest_dp_sgd",
    "honest_noise_multiplier",
    "learning_rates",
    "noise_multiplier",
    "noise_table",
    "poisson_mean",
    "right_answers",
    "select_best",
]

Outcome = TypeVar("Outcome")

SOURCE = "Papernot and Steinke 2022, Theorem 6"
DISHONEST = (
    "nothing: the best of several runs on the same records, chosen by looking; "
    "one run with a rate fixed in advance would have trace['run']"
)


def learning_rates(size: int = 10, low: float = 1e-8, high: float = 0.1) -> FloatArray:
    """Evenly log-spaced grid from ``low`` to ``high``, the thesis's by default; shape (size,)."""
    first, last = check_rates([low, high]).tolist()
    if not first <= last:
        raise ValueError(f"low must not exceed high, got {first!r} and {last!r}")
    return np.geomspace(first, last, check_count("size", size))


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Law of a learning rate whose logarithm is uniform between those of ``low`` and ``high``."""

    low: float = 1e-8
    high: float = 0.1

    def __post_init__(self) -> None:
        learning_rates(2, self.low, self.high)

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Draw ``count`` independent rates, shape (count,)."""
        size = check_count("count", count, minimum=0)
        return np.exp(check_generator(rng).uniform(math.log(self.low), math.log(self.high), size))


def draw_rates(rates: LogUniform | ArrayLike, count: int, rng: np.random.Generator) -> FloatArray:
    """Independent candidates: from the law, or from a grid uniformly and *with* replacement; shape (count,)."""
    if isinstance(rates, LogUniform):
        return rates.draw(count, rng)
    grid, size = check_rates(rates), check_count("count", count, minimum=0)
    return np.asarray(grid[check_generator(rng).integers(grid.size, size=size)])


@dataclass(frozen=True, slots=True)
class PublicScore:
    """Score a model by its accuracy on public records.

    The guarantee says nothing about the people in ``records``. That none of them is among the training records is the
    caller's duty: only the training records themselves, in whatever order, are recognised and refused. (Two people may
    look alike, so that equal rows prove nothing.)
    """

    records: Dataset


@dataclass(frozen=True, slots=True)
class NoisyScore:
    """Score a model by how many private records it classifies rightly, plus N(0, sigma^2).

    Adding or removing one record moves the number by at most 1.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise, in records.
    records : Dataset, optional
        Validation records of *other* people than the training records: they are then part of the private data, whose
        neighbours add or remove one record of either part. A person in the validation part is met by the scores alone,
        one in the training part by the training alone, and the larger of the two losses counts. That they are other
        people is the caller's duty, as for :class:`PublicScore`. By default the training records: the two losses add
        up.
    """

    sigma: float
    records: Dataset | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", check_ordinary("sigma", self.sigma))


Score = PublicScore | NoisyScore


@dataclass(frozen=True, eq=False)
class TunedModel:
    """The winner: its model (d,), learning rate and score; rate and score are None if there was no candidate."""

    theta: FloatArray
    rate: float | None
    score: float | None


# --- selection ----------------------------------------------------------------------------------------


class Rounds(Protocol):
    """Law of the number of candidates."""

    def draw(self, rng: np.random.Generator) -> int:
        """One number of candidates."""
        ...


def select_best(
    candidates: Callable[[int, np.random.Generator], Sequence[tuple[float, Outcome]]],
    *,
    rounds: Rounds,
    fallback: Outcome,
    rng: np.random.Generator,
) -> Outcome:
    """Draw a number of candidates and return the one with the largest score, the earliest of several.

    Parameters
    ----------
    candidates : callable ``(count, rng) -> [(score, outcome), ...]``
        Independent and identically distributed. A score that is nan ranks below all numbers.
    rounds : PoissonRounds or another law
        How many.
    fallback : object
        The answer if there is no candidate; it must not depend on the data.
    rng : numpy.random.Generator

    Raises
    ------
    TypeError
        ``candidates`` is not callable, ``rounds`` no law, ``rng`` no generator; nothing was drawn.
    """
    if not callable(candidates):
        raise TypeError(f"candidates must be callable, got {type(candidates).__name__}: {candidates!r}")
    if not callable(getattr(rounds, "draw", None)):
        raise TypeError(
            f"rounds must be a law with a method draw(rng), such as PoissonRounds, got {type(rounds).__name__}: "
            f"{rounds!r}"
        )
    count = rounds.draw(check_generator(rng))
    best: tuple[float, Outcome] | None = None
    for score, outcome in candidates(count, rng) if count else ():
        # Not refused: which scores are nan may depend on the records.
        if best is None or score > best[0] or (math.isnan(best[0]) and not math.isnan(score)):
            best = (score, outcome)
    return fallback if best is None else best[1]


def honest_dp_sgd(
    data: Dataset,
    *,
    epsilon: float,
    delta: float,
    schedule: Schedule,
    score: Score,
    rates: LogUniform | ArrayLike | None = None,
    mean: float = MEAN,
    clip: float | None = None,
    loss: Loss | None = None,
    optimiser: str = "adam",
    accountant: str = "renyi",
    precision: str = "double",
    rng: np.random.Generator,
) -> Release[TunedModel]:
    """DP-SGD with a learning rate that was tuned, and the tuning paid for.

    Parameters
    ----------
    data : Dataset
        Private training records.
    epsilon, delta : float
        Total.
    schedule : Schedule
        Public constants of each run.
    score : PublicScore or NoisyScore
        How candidates are compared, and what of it is private.
    rates : array_like or LogUniform, optional
        Law of a candidate's learning rate: uniform on a grid, or log-uniform. By default the thesis's grid.
    mean : float
        Expected number of candidates; by default such that 11 or more are tried with probability 0.9.
    clip, loss, optimiser, accountant, precision
        As in :func:`~adaptive_dp.objective_perturbation.dp_sgd.dp_sgd`.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        A :class:`TunedModel`; theta = 0 without rate and score if there was no candidate. The trace holds ``sigma``
        (noise multiplier of each run), ``rounds``, ``rates`` and ``scores`` of all candidates.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, before anything is drawn.
    """
    function, bound = check_problem(data, loss, clip, optimiser=optimiser, precision=precision)
    check_schedule(schedule)
    judged = _scored_records(score, data)
    law = (
        learning_rates() if rates is None else rates if isinstance(rates, LogUniform) else check_rates(rates)
    )
    rounds = PoissonRounds(mean)
    check_generator(rng)
    noise = score.sigma if isinstance(score, NoisyScore) else None
    disjoint = isinstance(score, NoisyScore) and score.records is not None
    sigma = honest_noise_multiplier(
        epsilon=epsilon,
        delta=delta,
        sampling=schedule.sampling,
        steps=schedule.steps,
        mean=rounds.mean,
        accountant=accountant,
        score_sigma=noise,
        disjoint=disjoint,
    )
    check_scales(bound, sigma, schedule.batch, precision)
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=Neighbours.ADD_REMOVE,
        domain=data.domain,
        source=SOURCE,
        curve=honest_curve(
            sigma=sigma,
            sampling=schedule.sampling,
            steps=schedule.steps,
            mean=rounds.mean,
            accountant=accountant,
            score_sigma=noise,
            disjoint=disjoint,
        ),
    )
    seen: list[TunedModel] = []

    def candidates(count: int, source: np.random.Generator) -> list[tuple[float, TunedModel]]:
        drawn = draw_rates(law, count, source)
        thetas = train(
            data.features,
            data.labels,
            rates=drawn,
            sigma=sigma,
            clip=bound,
            sampling=schedule.sampling,
            steps=schedule.steps,
            batch=schedule.batch,
            loss=function,
            optimiser=optimiser,
            precision=precision,
            rng=source,
            shared=False,
        )
        scores = right_answers(thetas, judged)
        scores = scores / judged.rows if noise is None else scores + source.normal(0.0, noise, count)
        models = [TunedModel(*row) for row in zip(thetas, drawn.tolist(), scores.tolist(), strict=True)]
        seen.extend(models)
        return list(zip(scores.tolist(), models, strict=True))

    nothing = TunedModel(np.zeros(data.columns), None, None)
    best = select_best(candidates, rounds=rounds, fallback=nothing, rng=rng)
    trace = Trace(
        sigma=sigma, rounds=len(seen), rates=[model.rate for model in seen], scores=[m.score for m in seen]
    )
    return Release(best, guarantee, trace=trace)


def dishonest_dp_sgd(
    data: Dataset,
    *,
    epsilon: float,
    delta: float,
    schedule: Schedule,
    records: Dataset | None = None,
    rates: ArrayLike | None = None,
    clip: float | None = None,
    loss: Loss | None = None,
    optimiser: str = "adam",
    accountant: str = "renyi",
    precision: str = "double",
    rng: np.random.Generator,
) -> Release[TunedModel]:
    """The usual practice: run every rate of a grid, keep the best, and account for one run.

    The runs share batches and noise, which is quick and leaves the law of each as it is.

    Parameters
    ----------
    records : Dataset, optional
        Where accuracies are compared; by default on the training records, which must have labels -1, +1 then, as
        they must have anyway. The other parameters are those of
        :func:`honest_dp_sgd`.

    Returns
    -------
    Release
        A :class:`TunedModel` whose guarantee has epsilon = inf: nobody has paid for the choice. The trace holds
        ``run`` (the guarantee (epsilon, delta) that one run would have had, had its rate been fixed in advance),
        ``sigma``, ``rates`` and ``scores``.
    """
    function, bound = check_problem(data, loss, clip, optimiser=optimiser, precision=precision)
    check_schedule(schedule)
    judged = _judging_records("records", records, data)
    grid = learning_rates() if rates is None else check_rates(rates)
    check_generator(rng)
    sigma = noise_multiplier(
        epsilon=epsilon,
        delta=delta,
        sampling=schedule.sampling,
        steps=schedule.steps,
        accountant=accountant,
    )
    check_scales(bound, sigma, schedule.batch, precision)
    run = run_guarantee(
        data, epsilon=epsilon, delta=delta, sigma=sigma, schedule=schedule, accountant=accountant
    )
    thetas = train(
        data.features,
        data.labels,
        rates=grid,
        sigma=sigma,
        clip=bound,
        sampling=schedule.sampling,
        steps=schedule.steps,
        batch=schedule.batch,
        loss=function,
        optimiser=optimiser,
        precision=precision,
        rng=rng,
        shared=True,
    )
    scores = right_answers(thetas, judged) / judged.rows
    best = int(np.argmax(scores))
    nothing = Guarantee(
        kind="ex-ante",
        epsilon=math.inf,
        neighbours=Neighbours.ADD_REMOVE,
        domain=data.domain,
        source=DISHONEST,
    )
    value = TunedModel(thetas[best], float(grid[best]), float(scores[best]))
    trace = Trace(run=run, sigma=sigma, rates=grid.tolist(), scores=scores.tolist())
    return Release(value, nothing, trace=trace)


def right_answers(thetas: FloatArray, records: Dataset) -> FloatArray:
    """Number of records on whose label's side each model is; ``thetas`` (R, d), shape (R,). A tie is an error."""
    margins = (records.features @ thetas.T) * records.labels[:, np.newaxis]
    return np.asarray((margins > 0).sum(axis=0), dtype=np.float64)


def _scored_records(score: object, data: Dataset) -> Dataset:
    """Return the records that ``score`` looks at, or refuse a score that does not fit."""
    if not isinstance(score, PublicScore | NoisyScore):
        raise TypeError(f"score must be a PublicScore or a NoisyScore, got {type(score).__name__}: {score!r}")
    if isinstance(score, PublicScore) and score.records is None:
        raise TypeError("score.records must be a Dataset, got NoneType")
    return _judging_records("score.records", score.records, data)


def _judging_records(name: str, records: object, data: Dataset) -> Dataset:
    """Return the records that models are judged on, the training records for None, or refuse those that do not fit."""
    if records is None:
        if data.domain.labels != "sign":
            raise ValueError(f"data must have labels -1, +1 to be judged on, got {data!r}")
        return data
    if not isinstance(records, Dataset):
        raise TypeError(f"{name} must be a Dataset, got {type(records).__name__}")
    if records.columns != data.columns or records.domain.labels != "sign" or data.domain.labels != "sign":
        raise ValueError(
            f"{name} must have {data.columns} columns and labels -1, +1 as the data, got {records!r}"
        )
    if same_records(records, data):
        raise ValueError(f"{name} must be other records than the training data; leave them out instead")
    return records


def same_records(first: Dataset, second: Dataset) -> bool:
    """Whether two data sets hold the same rows with the same labels, in whatever order. Private if one of them is."""
    if first is second:
        return True
    if first.features.shape != second.features.shape:
        return False
    if np.array_equal(np.sort(first.labels), np.sort(second.labels)):
        return bool(np.array_equal(_sorted_rows(first), _sorted_rows(second)))
    return False


def _sorted_rows(data: Dataset) -> NDArray[np.void]:
    """Rows with their labels as strings of bytes, sorted; 0 and -0 are one number."""
    table = np.ascontiguousarray(np.column_stack([data.features, data.labels]) + 0.0)
    return np.sort(table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel())
