"""Figure 4.2 of redberg2023: objective perturbation against DP-SGD whose learning rate must be chosen.

Four data sets (:func:`~adaptive_dp.datasets.load_benchmark`), nine epsilons at delta 1e-5, neighbours add or remove one
record, rows of norm sqrt 2 with a bias among the columns, logistic loss. The contenders:

``DP-SGD, dishonest``
    Ten learning rates between 1e-8 and 1e-1; the guarantee is that of *one* run, the rate that is best on the test
    records is reported. **Not private** at the epsilon beside it.
``DP-SGD, honest``
    Poisson(15.4) runs with random rates, accounted for by Papernot and Steinke (2022); the best on the *test* records
    is reported, as in the thesis. Private towards the training records; but the test records chose, so that they must
    be public and the accuracy on them is optimistic.
``DP-SGD, honest, train``
    The same with the choice made on the training records, which the guarantee covers, so that the test records only
    judge. The number of right answers that ranks a run then gets noise of ten times the scale that would make it
    private by itself, and the runs pay for it with a little more of their own.
``Algorithm 7, half-normal``
    Approximate minima perturbation, calibrated by Theorem 4.4.1 with curvature 1/2 (erratum 26), sigma = 1.3 times that
    of the Gaussian mechanism and the smallest ridge. Nothing is chosen by looking at records.
``Algorithm 7, reduced-renyi`` and ``Algorithm 7, numerical``
    The same rule with sharper analyses (errata, S1): the same sigma, a smaller ridge.
``Algorithm 7, less noise``
    The ridge of the half-normal analysis, and the smallest sigma that the numerical one certifies beside it.

**The number of records is taken as public**, as in the thesis: DP-SGD's sampling probability 256 / n, its number of
steps and its batch size are :meth:`~adaptive_dp.objective_perturbation.dp_sgd.Schedule.of` the actual n. Under
add/remove n is private, and a schedule computed from it differs between neighbours, which no accountant allows for: the
epsilons beside DP-SGD hold for the schedule as a public constant. To publish a model of one's own records, declare a
figure without looking (a past year's count, say) and hand ``Schedule.of(figure)`` to the mechanism; its guarantee holds
whatever n then is. Algorithm 7 never looks at n.

At one repetition all contenders start from the same random numbers, so that the versions of Algorithm 7 differ by their
calibration alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from adaptive_dp.accounting import gaussian_sigma
from adaptive_dp.datasets import Benchmark, Dataset, load_benchmark
from adaptive_dp.datasets.benchmarks import BENCHMARKS
from adaptive_dp.experiments import product, profile_settings, summarise, sweep
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.objective_perturbation.approximate_minima import approximate_minima_perturbation
from adaptive_dp.objective_perturbation.calibration import (
    Calibration,
    OutputNoise,
    calibrate_approximate,
    smallest_sigma,
)
from adaptive_dp.objective_perturbation.dp_sgd import Schedule
from adaptive_dp.objective_perturbation.tuning import (
    NoisyScore,
    PublicScore,
    dishonest_dp_sgd,
    honest_dp_sgd,
)
from adaptive_dp.privacy import Refused, Release
from adaptive_dp.validation import FloatArray, check_choice, check_count, check_positive, check_probability

Value = TypeVar("Value")

EPSILONS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
# Section 4.5: gradient norm at which a solver may stop, noise on its answer, noise over the Gaussian mechanism's.
TAU, SIGMA_OUT, FACTOR = 0.01, 0.15, 1.3
CLIP = math.sqrt(2.0)
# sup f'' ||x||^2 of the logistic loss on rows of norm sqrt 2.
CURVATURE = 0.5
BATCH, EPOCHS = 256, 60
# The reference is fitted to four fifths of the records and judged on the rest.
FEWEST_ROWS = 10
# Noise on a private score, over that of the Gaussian mechanism: about an eighth of a candidate's mu squared.
SCORE_FACTOR = 10.0

DISHONEST, HONEST, HONEST_TRAIN = "DP-SGD, dishonest", "DP-SGD, honest", "DP-SGD, honest, train"
ALGORITHM_7 = tuple(
    f"Algorithm 7, {analysis}" for analysis in ("half-normal", "reduced-renyi", "numerical", "less noise")
)
LESS_NOISE = ALGORITHM_7[-1]
METHODS = (DISHONEST, HONEST, HONEST_TRAIN, *ALGORITHM_7)
IN_THESIS = (DISHONEST, ALGORITHM_7[0], HONEST)
# Tables 4.1 and 4.2, accuracy: columns as in IN_THESIS.
PRINTED: dict[str, dict[float, tuple[float, float, float]]] = {
    "Synthetic-L": {
        0.1: (0.9385, 0.9005, 0.7734),
        1.0: (0.9525, 0.9450, 0.9315),
        8.0: (0.9543, 0.9530, 0.9517),
    },
    "Adult": {0.1: (0.8161, 0.8137, 0.7832), 1.0: (0.8354, 0.8318, 0.8240), 8.0: (0.8419, 0.8399, 0.8366)},
}


def race_settings(profile: str) -> dict[str, Any]:
    """Arguments of :func:`race` at a profile: ``"quick"`` (seconds), ``"book"`` (15 seconds), ``"paper"``.

    ``data`` (names), ``rows`` (training records, None for all), ``epsilons``, ``trials``, ``epochs``, ``methods``.
    """
    small = {"data": ("Synthetic-L",), "methods": (*IN_THESIS, HONEST_TRAIN)}
    return profile_settings(
        profile,
        quick={**small, "rows": 500, "epsilons": (1.0,), "trials": 2, "epochs": 4},
        book={**small, "rows": 2_000, "epsilons": (0.1, 0.5, 1.0, 8.0), "trials": 3, "epochs": 20},
        paper={
            "data": BENCHMARKS,
            "methods": METHODS,
            "rows": None,
            "epsilons": EPSILONS,
            "trials": 10,
            "epochs": EPOCHS,
        },
    )


def accuracy(theta: FloatArray, people: Dataset) -> float:
    """Share of records on the side of the plane that their label says; a record on the plane counts as +1."""
    return float(np.mean((people.features @ theta >= 0) == (people.labels > 0)))


# --- references ---------------------------------------------------------------------------------------

INVERSE_RIDGES = (1.0, 10.0, 100.0, 1000.0)


def reference_accuracies(benchmark: Benchmark) -> dict[str, float]:
    """What needs no noise: test accuracies of the majority class and of logistic regression.

    Returns
    -------
    dict
        ``majority`` (the more frequent label of the training records, for everybody), ``not_private`` (ridge chosen on
        the last fifth of the training records, then fitted to all of them), ``ridge`` (beside the sum of losses).
    """
    train, test = benchmark.train, benchmark.test
    frequent = 1.0 if float(np.mean(train.labels > 0)) >= 0.5 else -1.0
    cut = round(0.8 * train.rows)
    fitting, judging = np.arange(cut), np.arange(cut, train.rows)

    def fit(inverse: float, rows: NDArray[np.int64]) -> FloatArray:
        model = LogisticRegression(C=inverse, fit_intercept=False, max_iter=5_000)
        return np.asarray(model.fit(train.features[rows], train.labels[rows]).coef_[0], dtype=np.float64)

    held = train.take(judging)
    best = max(INVERSE_RIDGES, key=lambda inverse: accuracy(fit(inverse, fitting), held))
    return {
        "majority": float(np.mean(test.labels == frequent)),
        "not_private": accuracy(fit(best, np.arange(train.rows)), test),
        "ridge": 1 / best,
    }


# --- calibration --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def race_calibration(method: str, epsilon: float, delta: float = DELTA) -> Calibration:
    """Noise and ridge of a version of Algorithm 7; kept, because the numerical analysis takes seconds.

    Parameters
    ----------
    method : str
        Of :data:`ALGORITHM_7`.
    epsilon, delta : float
    """
    wanted = {"epsilon": epsilon, "delta": delta, "slope": CLIP, "curvature": CURVATURE}
    if check_choice("method", method, ALGORITHM_7) == LESS_NOISE:
        lam = race_calibration(ALGORITHM_7[0], epsilon, delta).lam
        output = OutputNoise(SIGMA_OUT, TAU)
        return Calibration(smallest_sigma(**wanted, lam=lam, analysis="numerical", output=output), lam)
    analysis = method.removeprefix("Algorithm 7, ")
    return calibrate_approximate(**wanted, sigma_out=SIGMA_OUT, tau=TAU, analysis=analysis, factor=FACTOR)


# --- one run ------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _arena(data: str, rows: int | None, seed: int) -> Benchmark:
    """The benchmark, or what is left of it; one at a time is kept in a worker."""
    benchmark = load_benchmark(data)
    if rows is None or rows >= benchmark.train.rows:
        return benchmark
    return benchmark.subset(rows, np.random.default_rng(seed))


def run_race(
    rng: np.random.Generator,
    *,
    data: str,
    rows: int | None,
    subset_seed: int,
    delta: float,
    epochs: int,
    method: str,
    epsilon: float,
) -> dict[str, float]:
    """One trial of one contender.

    Returns
    -------
    dict
        ``accuracy`` (test), ``train_accuracy``, ``sigma`` (noise on the sum of gradients: of every step, or b),
        ``lam``, ``rate`` (learning rate that was taken) and ``runs``; the last three are nan where there is none.
    """
    benchmark = _arena(data, rows, subset_seed)
    theta, found = _contend(method, benchmark, epsilon, delta, epochs, rng)
    train_accuracy = accuracy(theta, benchmark.train)
    return {"accuracy": accuracy(theta, benchmark.test), "train_accuracy": train_accuracy, **found}


def _contend(
    method: str, benchmark: Benchmark, epsilon: float, delta: float, epochs: int, rng: np.random.Generator
) -> tuple[FloatArray, dict[str, float]]:
    """The released parameter, and what belongs to it in a row of results."""
    train = benchmark.train
    if check_choice("method", method, METHODS) in ALGORITHM_7:
        calibration = race_calibration(method, epsilon, delta)
        # The statement that comes with the release is not read here, so the cheap analysis writes it.
        released = approximate_minima_perturbation(
            train,
            loss=LogisticLoss(),
            calibration=calibration,
            tau=TAU,
            sigma_out=SIGMA_OUT,
            clip=CLIP,
            delta=delta,
            rng=rng,
        )
        return _value(released), _found(calibration.sigma, lam=calibration.lam)
    # Single precision halves the time; its error is a millionth of the noise.
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "schedule": Schedule.of(train.rows, batch=BATCH, epochs=epochs),
        "clip": CLIP,
        "precision": "single",
        "rng": rng,
    }
    if method == DISHONEST:
        tuned = dishonest_dp_sgd(train, records=benchmark.test, **common)
        runs = len(tuned.trace["rates"])
    else:
        noisy = NoisyScore(SCORE_FACTOR * gaussian_sigma(epsilon, delta, 1.0))
        tuned = honest_dp_sgd(
            train, score=PublicScore(benchmark.test) if method == HONEST else noisy, **common
        )
        runs = tuned.trace["rounds"]
    model = _value(tuned)
    return model.theta, _found(CLIP * tuned.trace["sigma"], rate=model.rate, runs=runs)


def _found(
    sigma: float, *, lam: float = math.nan, rate: float | None = None, runs: float = math.nan
) -> dict[str, float]:
    """Columns of a trial; nan where a method has no such thing."""
    return {"sigma": sigma, "lam": lam, "rate": math.nan if rate is None else rate, "runs": float(runs)}


def _value(release: Release[Value]) -> Value:
    """What was released; these mechanisms never refuse."""
    if isinstance(release.value, Refused):
        raise RuntimeError(f"nothing was released: {release.value.reason}")
    return release.value


# --- the figure ---------------------------------------------------------------------------------------


def race(
    data_name: str,
    *,
    epsilons: Sequence[float] = EPSILONS,
    methods: Sequence[str] = METHODS,
    trials: int = 10,
    seed: int = 2026,
    jobs: int | None = None,
    rows: int | None = None,
    epochs: int = EPOCHS,
    delta: float = DELTA,
    results: str | Path | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """One panel of Figure 4.2.

    The schedules of DP-SGD are computed from the number of training records, which counts as public here, as in the
    thesis: see the module for what to do with records of one's own.

    Parameters
    ----------
    data_name : {"Adult", "Synthetic-L", "Synthetic-H", "Gisette-like"}
    epsilons : sequence of float
    methods : sequence of str
        Of :data:`METHODS`.
    trials : int
        Per point.
    seed : int
    jobs : int, optional
    rows : int, optional
        Train on a random subset of so many records, at least 10 and at most all; all of them by default.
    epochs : int
        Passes of DP-SGD.
    delta : float
    results : path, optional
        File of finished trials, to resume.
    progress : bool, optional

    Returns
    -------
    DataFrame
        ``data``, ``method``, ``epsilon``, ``count``, ``mean`` (test accuracy), ``standard_error``, ``low``, ``high``
        (mean minus and plus 1.96 standard errors, as in the thesis: with ten trials it covers about 92 %),
        ``train_accuracy`` (mean), ``sigma``, ``lam``, ``rate`` (medians), ``runs`` (mean), and the constants
        ``majority``, ``not_private`` of :func:`reference_accuracies`. ``attrs``: ``task_seconds``.

    Raises
    ------
    TypeError, ValueError
        An argument out of range, before anything is run.
    """
    check_choice("data_name", data_name, BENCHMARKS)
    for method in _listed("methods", methods):
        check_choice("methods", method, METHODS)
    for epsilon in _listed("epsilons", epsilons):
        check_positive("epsilons", epsilon)
    if rows is not None:
        available = load_benchmark(data_name).train.rows
        if check_count("rows", rows, minimum=FEWEST_ROWS) > available:
            raise ValueError(f"rows must be at most {available}, all there are of {data_name}, got {rows}")
    shared = {
        "data": data_name,
        "rows": rows,
        "subset_seed": check_count("seed", seed, minimum=0),
        "delta": check_probability("delta", delta),
        "epochs": check_count("epochs", epochs),
    }
    finished = sweep(
        run_race,
        product(method=list(methods), epsilon=[float(epsilon) for epsilon in epsilons]),
        seed=seed,
        repetitions=trials,
        shared=shared,
        paired=["method"],
        n_jobs=jobs,
        results=results,
        recipe="objective perturbation against DP-SGD, version 1",
        progress=progress,
        description=data_name,
    )
    table = summary_of(finished)
    table.insert(0, "data", data_name)
    reference = reference_accuracies(_arena(data_name, shared["rows"], seed))
    table = table.assign(majority=reference["majority"], not_private=reference["not_private"])
    table.attrs["task_seconds"] = finished.attrs["task_seconds"]
    return table


def _listed(name: str, values: object) -> list[Any]:
    """Return ``values`` as a list, or refuse a single one."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, got {type(values).__name__}: {values!r}")
    return list(values)


def summary_of(trials: pd.DataFrame) -> pd.DataFrame:
    """Means of the trials at each point, as :func:`race` describes them; an interval is missing for one trial."""
    by = ["method", "epsilon"]
    table = summarise(trials, by, "accuracy")
    half = 1.96 * table["standard_error"]
    table["low"], table["high"] = table["mean"] - half, table["mean"] + half
    groups = trials.groupby(by, sort=False)
    more = groups.agg(
        train_accuracy=("train_accuracy", "mean"),
        sigma=("sigma", "median"),
        lam=("lam", "median"),
        rate=("rate", "median"),
        runs=("runs", "mean"),
    )
    return table.merge(more.reset_index(), on=by)


def beside_printed(summary: pd.DataFrame) -> pd.DataFrame:
    """Tables 4.1 and 4.2 beside what was measured.

    Parameters
    ----------
    summary : DataFrame
        One or several of :func:`race` with all training records; points that the tables do not hold are left out.

    Returns
    -------
    DataFrame
        ``data``, ``epsilon``, ``method``, ``printed``, ``mean``, ``low``, ``high``, ``not_private``,
        ``difference`` (measured less printed, in points of per cent).
    """
    keys = ["data", "epsilon", "method"]
    printed = pd.DataFrame(
        [
            (data, epsilon, method, value)
            for data, levels in PRINTED.items()
            for epsilon, values in levels.items()
            for method, value in zip(IN_THESIS, values, strict=True)
        ],
        columns=[*keys, "printed"],
    )
    table = printed.merge(summary[[*keys, "mean", "low", "high", "not_private"]], on=keys)
    table["difference"] = 100 * (table["mean"] - table["printed"])
    return table


def verdicts(summary: pd.DataFrame, against: str = HONEST) -> pd.DataFrame:
    """At how many epsilons Algorithm 7 beats a rival: what the thesis says in words of Figure 4.2.

    Parameters
    ----------
    summary : DataFrame
        One or several of :func:`race`, with intervals.
    against : str
        A method of ``summary``.

    Returns
    -------
    DataFrame
        One row for each data set and version of Algorithm 7. ``points``; ``better``, ``worse``: epsilons at which the
        intervals are apart; ``undecided``; ``higher``: at which the mean is larger; ``better_small``: ``better`` among
        epsilons up to 0.5, of ``small`` (where the thesis finds the effect "especially pronounced"); ``largest_gain``
        and ``largest_loss`` of the mean, in points of per cent, with ``at_gain`` and ``at_loss``.
    """
    check_choice("against", against, METHODS)
    rows = []
    for data, part in summary.groupby("data", sort=False):
        table = part.set_index(["method", "epsilon"])
        known = list(dict.fromkeys(part["method"]))
        if against not in known:
            raise ValueError(f"against must be among the methods of {data}, got {against!r}")
        rival = table.loc[against]
        for method in ALGORITHM_7:
            if method not in known:
                continue
            ours = table.loc[method].reindex(rival.index)
            gain = 100 * (ours["mean"] - rival["mean"]).to_numpy()
            better, worse = ours["low"] > rival["high"], ours["high"] < rival["low"]
            levels = rival.index.to_numpy(dtype=np.float64)
            small = levels <= 0.5
            rows.append(
                {
                    "data": data,
                    "method": method,
                    "against": against,
                    "points": len(rival),
                    "better": int(better.sum()),
                    "worse": int(worse.sum()),
                    "undecided": int((~better & ~worse).sum()),
                    "higher": int((gain > 0).sum()),
                    "better_small": int((better & small).sum()),
                    "small": int(small.sum()),
                    "largest_gain": float(gain.max()),
                    "at_gain": float(levels[gain.argmax()]),
                    "largest_loss": float(gain.min()),
                    "at_loss": float(levels[gain.argmin()]),
                }
            )
    return pd.DataFrame(rows)
