"""The race of Figure 4.2, at tiny sizes, and the tables that are read off it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from adaptive_dp.datasets import Dataset, load_benchmark
from adaptive_dp.objective_perturbation import experiment
from adaptive_dp.objective_perturbation.calibration import analysis_curve
from adaptive_dp.objective_perturbation.experiment import (
    ALGORITHM_7,
    CLIP,
    CURVATURE,
    DISHONEST,
    HONEST,
    HONEST_TRAIN,
    IN_THESIS,
    LESS_NOISE,
    METHODS,
    PRINTED,
    SIGMA_OUT,
    TAU,
    accuracy,
    beside_printed,
    race,
    race_calibration,
    race_settings,
    reference_accuracies,
    verdicts,
)
from adaptive_dp.privacy import Domain

TINY: dict[str, Any] = {"epsilons": (1.0, 8.0), "trials": 2, "rows": 400, "epochs": 2, "seed": 5}
CHEAP = (*IN_THESIS, HONEST_TRAIN, ALGORITHM_7[1])


@pytest.fixture(scope="module")
def tiny() -> pd.DataFrame:
    return race("Synthetic-L", methods=CHEAP, **TINY)


def test_race_has_a_row_a_point(tiny: pd.DataFrame) -> None:
    assert list(zip(tiny["method"], tiny["epsilon"], strict=True)) == [
        (m, e) for m in CHEAP for e in (1.0, 8.0)
    ]
    assert (tiny["data"] == "Synthetic-L").all()
    assert (tiny["count"] == 2).all()
    assert tiny[["mean", "train_accuracy"]].to_numpy().min() > 0.4
    np.testing.assert_allclose(tiny["high"] - tiny["mean"], 1.96 * tiny["standard_error"])
    np.testing.assert_allclose(tiny["mean"] - tiny["low"], 1.96 * tiny["standard_error"])
    assert tiny.attrs["task_seconds"] > 0


def test_race_columns_belong_to_the_methods(tiny: pd.DataFrame) -> None:
    table = tiny.set_index(["method", "epsilon"])
    dishonest, honest, train, ours = (
        table.loc[name] for name in (DISHONEST, HONEST, HONEST_TRAIN, ALGORITHM_7[0])
    )
    assert (dishonest["runs"] == 10).all()
    assert ours[["rate", "runs"]].isna().all(axis=None)
    assert table.loc[[DISHONEST, HONEST], "lam"].isna().all()
    # Honesty costs noise, and a score on private records some more.
    assert (dishonest["sigma"] < honest["sigma"]).all()
    assert (honest["sigma"] < train["sigma"]).all()
    assert (train["sigma"] < 1.2 * honest["sigma"]).all()
    # The same sigma by both analyses, less ridge by the sharper one.
    sharper = table.loc[ALGORITHM_7[1]]
    np.testing.assert_allclose(sharper["sigma"], ours["sigma"])
    assert (sharper["lam"] < ours["lam"]).all()


def test_race_learns_where_there_is_little_noise() -> None:
    # 2,000 records of the easy set at epsilon 8 carry far more than the majority class.
    table = race(
        "Synthetic-L",
        methods=(DISHONEST, ALGORITHM_7[0]),
        epsilons=(8.0,),
        trials=2,
        rows=2_000,
        epochs=8,
        seed=6,
    )
    assert table["mean"].min() > 0.9
    assert table["majority"].iloc[0] == pytest.approx(0.5, abs=0.02)
    assert table["not_private"].iloc[0] > 0.93


def test_race_is_resumed_and_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "race.jsonl"
    settings = {**TINY, "methods": ALGORITHM_7[:1], "results": path}
    first = race("Synthetic-L", **settings)
    lines = path.read_text(encoding="utf-8")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a finished trial ran again")

    monkeypatch.setattr(experiment, "approximate_minima_perturbation", never)
    again = race("Synthetic-L", **settings)
    pd.testing.assert_frame_equal(first, again)
    assert path.read_text(encoding="utf-8") == lines


def test_versions_of_algorithm_7_meet_the_same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def spy(*_: object, rng: np.random.Generator, **__: object) -> None:
        seen.append(float(rng.random()))
        raise KeyError

    monkeypatch.setattr(experiment, "approximate_minima_perturbation", spy)
    for method in ALGORITHM_7[:2]:
        with pytest.raises(RuntimeError, match="run_one failed"):
            race("Synthetic-L", methods=(method,), **{**TINY, "epsilons": (1.0,), "trials": 1})
    assert seen[0] == seen[1]


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("method", ALGORITHM_7)
def test_calibrations_keep_their_promise(method: str, epsilon: float) -> None:
    found = race_calibration(method, epsilon)
    analysis = "numerical" if method == LESS_NOISE else method.removeprefix("Algorithm 7, ")
    curve = analysis_curve(
        analysis,
        mu=CLIP / found.sigma,
        kappa=CURVATURE / found.lam,
        mu_out=2 * TAU / (found.lam * SIGMA_OUT),
    )
    assert 0.95e-5 < curve.delta(epsilon) <= 1e-5 * (1 + 1e-9)


def test_calibrations_are_kept_and_ordered() -> None:
    assert race_calibration(LESS_NOISE, 8.0) is race_calibration(LESS_NOISE, 8.0)
    half, renyi, numerical, less = (race_calibration(method, 8.0) for method in ALGORITHM_7)
    assert half.lam > renyi.lam > numerical.lam
    assert half.sigma == renyi.sigma == numerical.sigma > less.sigma
    assert less.lam == half.lam


# --- references ---------------------------------------------------------------------------------------


def test_accuracy_counts_the_plane_as_positive() -> None:
    people = Dataset(
        [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1, -1, -1, 1], Domain("l2", 1.0, "sign")
    )
    assert accuracy(np.array([1.0, 0.0]), people) == 0.75
    assert accuracy(np.zeros(2), people) == 0.5


def test_references_of_a_benchmark() -> None:
    found = reference_accuracies(load_benchmark("Synthetic-H"))
    assert found["not_private"] == pytest.approx(0.9625, abs=0.006)
    assert 0.49 < found["majority"] < 0.51
    # Whichever label is more frequent among training records is judged on the test records.
    benchmark = load_benchmark("Synthetic-H")
    frequent = np.sign(benchmark.train.labels.sum())
    assert found["majority"] == float(np.mean(benchmark.test.labels == frequent))


# --- tables -------------------------------------------------------------------------------------------


def made_up(means: dict[tuple[str, str, float], float], half: float = 0.01) -> pd.DataFrame:
    """A summary with given means and intervals of one width."""
    rows = [
        {
            "data": d,
            "method": m,
            "epsilon": e,
            "mean": v,
            "low": v - half,
            "high": v + half,
            "not_private": 0.95,
        }
        for (d, m, e), v in means.items()
    ]
    return pd.DataFrame(rows)


def test_beside_printed_compares_the_points_of_the_tables() -> None:
    means = {
        ("Adult", DISHONEST, 0.1): 0.8061,
        ("Adult", ALGORITHM_7[0], 0.1): 0.8237,
        ("Adult", ALGORITHM_7[1], 0.1): 0.9,  # not in the thesis
        ("Adult", HONEST, 0.5): 0.7,  # not in the tables
        ("Synthetic-L", HONEST, 8.0): 0.9517,
    }
    table = beside_printed(made_up(means)).set_index(["data", "method", "epsilon"])
    assert len(table) == 3
    np.testing.assert_allclose(table.loc[("Adult", DISHONEST, 0.1), "difference"], -1.0)
    np.testing.assert_allclose(table.loc[("Adult", ALGORITHM_7[0], 0.1), "difference"], 1.0)
    np.testing.assert_allclose(table.loc[("Synthetic-L", HONEST, 8.0), "difference"], 0.0, atol=1e-12)
    assert table["printed"].tolist() == [0.9517, 0.8161, 0.8137]


def test_printed_values_are_ordered_as_the_thesis_says() -> None:
    for levels in PRINTED.values():
        for dishonest, ours, honest in levels.values():
            assert dishonest > ours > honest


def test_verdicts_count_intervals_that_are_apart() -> None:
    ours = ALGORITHM_7[0]
    gains = {0.1: 0.05, 0.5: 0.015, 1.0: 0.03, 8.0: -0.04}
    means = {("Adult", HONEST, e): 0.8 for e in gains} | {
        ("Adult", ours, e): 0.8 + g for e, g in gains.items()
    }
    (row,) = verdicts(made_up(means)).to_dict("records")
    assert (row["points"], row["better"], row["worse"], row["undecided"], row["higher"]) == (4, 2, 1, 1, 3)
    assert (row["better_small"], row["small"]) == (1, 2)
    assert row["largest_gain"] == pytest.approx(5.0)
    assert row["at_gain"] == 0.1
    assert row["largest_loss"] == pytest.approx(-4.0)
    assert row["at_loss"] == 8.0


def test_verdicts_do_not_depend_on_the_order_of_rows(tiny: pd.DataFrame) -> None:
    shuffled = tiny.sample(frac=1.0, random_state=3)
    expected, found = (verdicts(t).sort_values("method", ignore_index=True) for t in (tiny, shuffled))
    pd.testing.assert_frame_equal(expected, found)
    with pytest.raises(ValueError, match="against must be among the methods of Synthetic-L"):
        verdicts(tiny[tiny["method"] != HONEST])


# --- settings and bad input ---------------------------------------------------------------------------


def test_settings_of_the_profiles() -> None:
    paper = race_settings("paper")
    assert paper["epsilons"] == (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    assert (paper["trials"], paper["epochs"], paper["rows"]) == (10, 60, None)
    assert paper["methods"] == METHODS
    with pytest.raises(ValueError, match="profile must be one of"):
        race_settings("thesis")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"data_name": "Gisette"}, ValueError, "data_name must be one of .* got 'Gisette'"),
        ({"methods": ("DP-SGD",)}, ValueError, "methods must be one of .* got 'DP-SGD'"),
        ({"epsilons": (0.0,)}, ValueError, "epsilons must be positive, got 0"),
        ({"trials": 0}, ValueError, "repetitions must be at least 1, got 0"),
        ({"rows": 1}, ValueError, "rows must be at least 10, got 1"),
        ({"rows": 8_001}, ValueError, "rows must be at most 8000, all there are of Synthetic-L, got 8001"),
        ({"rows": 20.0}, TypeError, "rows must be an integer"),
        ({"epsilons": 1.0}, TypeError, "epsilons must be a list, got float: 1.0"),
        ({"methods": HONEST}, TypeError, "methods must be a list, got str"),
        ({"epochs": 1.5}, TypeError, "epochs must be an integer"),
        ({"delta": 1.0}, ValueError, "delta must lie strictly between 0 and 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ],
)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"data_name": "Synthetic-L", "methods": ALGORITHM_7[:1], **TINY, **change}
    with pytest.raises(error, match=message):
        race(**arguments)


def test_the_public_number_of_records_is_declared() -> None:
    for text in (experiment.__doc__, race.__doc__):
        assert text is not None
        assert "public" in text
    assert "Schedule.of(figure)" in str(experiment.__doc__)


def test_trials_report_what_they_took() -> None:
    row = experiment.run_race(
        np.random.default_rng(1),
        data="Synthetic-L",
        rows=300,
        subset_seed=0,
        delta=1e-5,
        epochs=1,
        method=HONEST,
        epsilon=1.0,
    )
    assert row["runs"] >= 1
    assert 1e-8 <= row["rate"] <= 0.1
    assert math.isnan(row["lam"])
