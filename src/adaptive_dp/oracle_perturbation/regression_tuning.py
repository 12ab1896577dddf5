"""Settings of private logistic regression found by trial on the records themselves: what neel2019 does, not private.

"For each target privacy parameters we run a grid search to identify the triplet of parameters that give the highest
accuracy" (section 5): each setting that is tried is another look at the records, and none of them is charged. A learner
with settings from here is an upper bound of what an honest one can reach.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.oracle_perturbation.private_regression import (
    Descent,
    Minibatch,
    accuracy,
    averaged_dp_sgd,
    check_learnable,
    noisy_descent_runs,
)
from adaptive_dp.privacy import Refused, Release
from adaptive_dp.validation import FloatArray, check_count

Settings = TypeVar("Settings", Descent, Minibatch)

# Few steps for small epsilons, many for large ones, where logistic regression on indicators is slow to converge.
DESCENTS = tuple(
    Descent(clip, steps, rate)
    for steps, rate, clip in itertools.product((20, 100, 300, 1000), (4.0, 16.0, 64.0), (1.0, 0.3))
)
# The three parameters of the paper, and the number of passes, which it does not give.
MINIBATCHES = tuple(
    Minibatch(clip, batch, epochs, rate)
    for epochs, batch, rate, clip in itertools.product((5, 20), (256, 1024), (0.5, 4.0, 32.0), (1.0, 0.3))
)


def tune_descent(
    data: Dataset,
    *,
    epsilon: float,
    delta: float,
    grid: Sequence[Descent],
    runs: int,
    rng: np.random.Generator,
) -> tuple[Descent, pd.DataFrame]:
    """Try every setting of ``grid`` for :func:`~.private_regression.noisy_descent`. **Not private**: see the module.

    Parameters
    ----------
    data, epsilon, delta, rng
        As there.
    grid : sequence of Descent
    runs : int
        Runs of each setting.

    Returns
    -------
    best : Descent
        The one with the highest mean accuracy, the first of equals.
    trials : DataFrame
        ``clip``, ``steps``, ``rate``, ``mean`` (accuracy), one row a setting.
    """
    check_learnable(data)
    count = check_count("runs", runs)

    def trial(settings: Descent) -> float:
        weights, _ = noisy_descent_runs(
            data, epsilon=epsilon, delta=delta, settings=settings, runs=count, rng=rng
        )
        return float(accuracy(weights, data.features, data.labels).mean())

    return _best(grid, Descent, trial)


def tune_dp_sgd(
    data: Dataset,
    *,
    epsilon: float,
    delta: float,
    grid: Sequence[Minibatch],
    runs: int,
    rng: np.random.Generator,
) -> tuple[Minibatch, pd.DataFrame]:
    """The same for :func:`~.private_regression.averaged_dp_sgd`; ``trials`` has its four parameters and ``mean``."""
    check_learnable(data)
    count = check_count("runs", runs)

    def trial(settings: Minibatch) -> float:
        weights = [
            _value(averaged_dp_sgd(data, epsilon=epsilon, delta=delta, settings=settings, rng=rng))
            for _ in range(count)
        ]
        return float(accuracy(weights, data.features, data.labels).mean())

    return _best(grid, Minibatch, trial)


def _best(
    grid: Sequence[Settings], kind: type[Settings], trial: Callable[[Settings], float]
) -> tuple[Settings, pd.DataFrame]:
    choices = list(grid)
    if not choices or not all(isinstance(settings, kind) for settings in choices):
        raise TypeError(f"grid must be a non-empty list of {kind.__name__}, got {grid!r}")
    names = kind.__slots__
    rows = [
        {**{name: getattr(settings, name) for name in names}, "mean": trial(settings)} for settings in choices
    ]
    trials = pd.DataFrame(rows)
    return choices[int(np.argmax(trials["mean"].to_numpy()))], trials


def _value(release: Release[FloatArray]) -> FloatArray:
    """What was released; these mechanisms never refuse."""
    if isinstance(release.value, Refused):
        raise RuntimeError(f"nothing was released: {release.value.reason}")
    return release.value
