"""Figure 1 of neel2019 at tiny sizes, its tables and figures, and the program that records it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from adaptive_dp.datasets.files import data_folder
from adaptive_dp.oracle_perturbation import adult_experiment as adult
from adaptive_dp.oracle_perturbation import adult_figures as figures
from adaptive_dp.oracle_perturbation import adult_grids as grids
from adaptive_dp.oracle_perturbation import adult_tables as tables
from adaptive_dp.oracle_perturbation.adult_experiment import (
    LEARNERS,
    METHODS,
    OBJECTIVE,
    OPDISC,
    REGRESSIONS,
    RSPM,
    SGD,
    SGD_TUNED,
    SHORT,
    SIMPLEX,
    TUNED,
    adult_runs,
    adult_settings,
    make_arena,
    reference_accuracies,
)
from adaptive_dp.oracle_perturbation.adult_grids import adult_tuning, tuned_settings
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP
from adaptive_dp.oracle_perturbation.private_regression import Descent, Minibatch
from adaptive_dp.oracle_perturbation.problems import GridCosts, Solution, ThresholdProblem
from tools import paper_beyond_convexity

TINY: dict[str, Any] = {"rows": 120, "seed": 5, "progress": False}
CHOSEN = {
    (TUNED, 1.0): Descent(1.0, 5, 4.0),
    (SGD_TUNED, 1.0): Minibatch(1.0, 40, 1, 4.0),
}


class FewMembers:
    """An oracle that knows 0 and the unit vectors only and claims their best as the optimum: quick, and not private."""

    def __init__(self, problem: ThresholdProblem) -> None:
        size = problem.space.dimension
        self.problem, self.calls = problem, 0
        self.members = np.concatenate([np.zeros((1, size)), np.eye(size), -np.eye(size)]).astype(np.int64)

    def __call__(self, problem: ThresholdProblem, costs: GridCosts, /) -> Solution:
        assert problem is self.problem, "each problem has its own oracle"
        self.calls += 1
        values = problem.objective(self.members, costs)
        best = int(values.argmin())
        return Solution(self.members[best], float(values[best]), float(values[best]), nodes=len(values))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the quick oracle in the place of the real one."""
    monkeypatch.setattr(adult, "BranchAndBound", FewMembers)
    adult.prepared_arena.cache_clear()
    yield
    adult.prepared_arena.cache_clear()


# --- what is learned from ------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", adult.COLUMNS)
def test_all_learners_see_the_same_records(columns: str, few: None) -> None:
    arena = make_arena(columns, None, 0)
    assert arena.plain.features.shape == (15_682, 23)
    assert arena.delta == pytest.approx(1 / 15_682**2)
    assert int((arena.plain.labels > 0).sum()) == 7_841
    for problem in (arena.halfspaces, arena.signs):
        np.testing.assert_array_equal(problem.features / adult.GRID, arena.plain.features)
        np.testing.assert_array_equal(problem.labels, arena.plain.labels)
    lengths = np.linalg.norm(arena.plain.features, axis=1)
    np.testing.assert_allclose(arena.unit.features * lengths[:, np.newaxis], arena.plain.features)
    np.testing.assert_allclose(np.linalg.norm(arena.unit.features, axis=1), 1.0)
    assert arena.plain.domain.feature_bound == pytest.approx(math.sqrt(7))
    assert arena.unit.domain.feature_bound == 1.0
    assert (arena.halfspaces.space.box, arena.halfspaces.space.squared_radius) == (4, 23)
    assert (arena.signs.space.box, arena.signs.space.squared_radius) == (1, 23)
    assert arena.halfspaces.tie == arena.signs.tie == "error"


def test_a_subset_is_a_function_of_its_seed(few: None) -> None:
    first, again, other = (make_arena("code", 100, seed).plain.features for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


# --- runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def every(few: None) -> pd.DataFrame:
    return adult_runs("code", epsilons=(1.0,), runs=2, tuned=CHOSEN, **TINY)


def test_every_method_has_its_rows(every: pd.DataFrame) -> None:
    assert every["method"].tolist() == [method for method in METHODS for _ in range(2)]
    assert every["repetition"].tolist() == [0, 1] * len(METHODS)
    assert every["accuracy"].between(0, 1).all()
    assert (every["seconds"] >= 0).all()
    discrete = every["method"].isin([*OPDISC, *RSPM, SIMPLEX])
    assert (every.loc[discrete, "gap"] < GAP).all()
    assert (every.loc[discrete, "nodes"] == 47).all()
    assert every.loc[~discrete, ["gap", "nodes"]].isna().all(axis=None)
    assert every.attrs["task_seconds"] > 0


def test_rows_carry_the_delta_that_is_proved(every: pd.DataFrame) -> None:
    delta = every.groupby("method")["delta"].first()
    wanted = 1 / 120**2
    assert delta[["OPDisc, norm", "RSPM, Laplace", "RSPM, box", SIMPLEX]].tolist() == [0.0] * 4
    assert delta[["OPDisc, Gaussian", "RSPM, Gaussian", *REGRESSIONS]].tolist() == [wanted] * 7
    # At 23 dimensions the printed scale of Algorithm 1 is not proved, that of Algorithm 3 is twice what is needed.
    assert delta["OPDisc, printed"] > wanted > delta["RSPM, printed"]


def test_runs_do_not_depend_on_who_else_is_there(few: None) -> None:
    together = adult_runs("code", epsilons=(1.0,), methods=(SHORT, SGD), runs=2, **TINY)
    alone = adult_runs("code", epsilons=(1.0,), methods=(SGD,), runs=2, **TINY)
    assert together["accuracy"].iloc[2:].tolist() == alone["accuracy"].tolist()
    draws = adult_runs("code", epsilons=(0.05,), methods=(OBJECTIVE,), runs=3, **TINY)
    assert len(set(draws["accuracy"])) > 1, "repetitions have noise of their own"


def test_contenders_meet_the_same_numbers(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def spy(*_: object, rng: np.random.Generator, **__: object) -> None:
        seen.append(float(rng.random()))
        raise KeyError

    for name in ("noisy_descent", "averaged_dp_sgd", "opdisc", "rspm", "simplex_perturbation"):
        monkeypatch.setattr(adult, name, spy)
    for method in (SHORT, SGD, "OPDisc, norm", "RSPM, box", SIMPLEX):
        with pytest.raises(RuntimeError, match="run_one failed"):
            adult_runs("code", epsilons=(1.0,), methods=(method,), runs=1, **TINY)
    assert len(seen) == 5
    assert len(set(seen)) == 1


def test_runs_are_resumed(few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {
        "epsilons": (1.0,),
        "methods": (SHORT,),
        "runs": 2,
        "results": tmp_path / "runs.jsonl",
        **TINY,
    }
    first = adult_runs("code", **arguments)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a finished run ran again")

    monkeypatch.setattr(adult, "noisy_descent", never)
    pd.testing.assert_frame_equal(adult_runs("code", **arguments), first)


def test_an_answer_without_certificate_stops_the_figure(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsure(FewMembers):
        def __call__(self, problem: ThresholdProblem, costs: GridCosts, /) -> Solution:
            found = super().__call__(problem, costs)
            return Solution(found.point, found.objective, found.objective - 2 * GAP)

    monkeypatch.setattr(adult, "BranchAndBound", Unsure)
    for method in ("OPDisc, norm", "RSPM, box", SIMPLEX):
        with pytest.raises(RuntimeError, match="Uncertified"):
            adult_runs("code", epsilons=(1.0,), methods=(method,), runs=1, **TINY)


def test_the_real_oracle_certifies_small_runs() -> None:
    pytest.importorskip("numba")
    adult.prepared_arena.cache_clear()
    runs = adult_runs("code", epsilons=(8.0,), methods=("OPDisc, norm", "RSPM, box", SIMPLEX), runs=2, **TINY)
    assert (runs["gap"] < GAP).all()
    references = reference_accuracies(make_arena("code", 120, 5))
    # Noise cannot beat the certified optimum, nor the smaller space the larger one.
    for row in runs.itertuples():
        assert row.accuracy <= references["signs" if row.method in RSPM else "halfspaces"]
    assert references["signs"] <= references["halfspaces"]
    adult.prepared_arena.cache_clear()


def test_references_need_a_certificate(few: None) -> None:
    arena = make_arena("code", 150, 1)
    found = reference_accuracies(arena)
    assert 0.6 < found["regression"] <= 1.0
    # One weight of the unit vectors decides: the best single column, with its sign.
    X, y = arena.plain.features, arena.plain.labels
    single = max(float(np.mean(sign * X[:, j] * y > 0)) for j in range(23) for sign in (-1, 1))
    assert found["halfspaces"] == found["signs"] == single


# --- tuning --------------------------------------------------------------------------------------------


def test_tuning_finds_settings_of_the_grids(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "DESCENTS", (Descent(1.0, 1, 1e-6), Descent(1.0, 20, 4.0)))
    monkeypatch.setattr(grids, "MINIBATCHES", (Minibatch(1.0, 40, 2, 2.0),))
    found = adult_tuning("code", epsilons=(1.0, 8.0), **TINY)
    assert found["learner"].tolist() == [learner for learner in LEARNERS for _ in range(2)]
    settings = tuned_settings(found)
    assert set(settings) == {(learner, epsilon) for learner in LEARNERS for epsilon in (1.0, 8.0)}
    assert settings[SGD_TUNED, 8.0] == Minibatch(1.0, 40, 2, 2.0)
    assert settings[TUNED, 8.0] in grids.DESCENTS
    runs = adult_runs("code", epsilons=(1.0, 8.0), methods=LEARNERS, runs=1, tuned=settings, **TINY)
    assert len(runs) == 4


# --- tables and figures --------------------------------------------------------------------------------


def made_up(means: dict[tuple[str, float], float], spread: float = 0.01) -> pd.DataFrame:
    """Three runs of every method at given means."""
    rows = [
        {"method": m, "epsilon": e, "repetition": k, "accuracy": v + spread * (k - 1), "seconds": 0.1 * (k + 1),
         "gap": math.nan if m in REGRESSIONS else 1e-7, "nodes": 10.0 * k, "delta": 0.0}
        for (m, e), v in means.items()
        for k in range(3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


LEVELS = {
    ("OPDisc, norm", 0.5): 0.70, ("OPDisc, norm", 1.0): 0.76, ("OPDisc, norm", 8.0): 0.80,
    (SHORT, 0.5): 0.75, (SHORT, 1.0): 0.76, (SHORT, 8.0): 0.76,
}  # fmt: skip


def test_summaries_are_means_and_deviations() -> None:
    table = tables.summary_of(made_up(LEVELS))
    assert table["mean"].tolist() == pytest.approx(list(LEVELS.values()))
    assert table["sd"].tolist() == pytest.approx([0.01] * 6)
    assert (table["high"] - table["low"]).tolist() == pytest.approx([0.02] * 6)
    frame = tables.accuracy_frame(made_up(LEVELS), epsilons=(0.5, 8.0))
    assert frame.to_dict("records") == [
        {"method": "OPDisc, norm", "0.5": "70.0 ± 1.0", "8": "80.0 ± 1.0"},
        {"method": SHORT, "0.5": "75.0 ± 1.0", "8": "76.0 ± 1.0"},
    ]
    assert tables.at(made_up(LEVELS), SHORT, 0.5) == pytest.approx((75.0, 1.0))
    with pytest.raises(ValueError, match="runs hold nothing of"):
        tables.at(made_up(LEVELS), SHORT, 3.0)


def test_verdicts_count_what_is_more_than_two_standard_errors() -> None:
    found = tables.verdict(made_up(LEVELS), "OPDisc, norm", SHORT)
    # Standard error of a difference of two means of three: 0.0082.
    assert (found["points"], found["better"], found["worse"]) == (3, 1, 1)
    assert (found["largest gain"], found["at"]) == (pytest.approx(4.0), 8.0)
    assert found["largest loss"] == pytest.approx(-5.0)
    close = {**LEVELS, ("OPDisc, norm", 8.0): 0.776}
    assert tables.verdict(made_up(close), "OPDisc, norm", SHORT)["better"] == 0
    steady = pd.concat([made_up({("OPDisc, norm", 1.0): 0.7}, 0.001), made_up({(SHORT, 1.0): 0.7}, 0.01)])
    assert tables.verdict(steady, "OPDisc, norm", SHORT)["steadier"] == 1
    frame = tables.claims_frame({"code": made_up(LEVELS)}, pairs=(("OPDisc, norm", SHORT),))
    assert frame.to_dict("records") == [
        {"method": "OPDisc, norm", "against": SHORT, "code": "1 : 1", "code, gain": pytest.approx(4.0)}
    ]


def test_numbers_of_the_text() -> None:
    every = {(method, epsilon): 0.7 for method in METHODS for epsilon in (1.0, 8.0)} | {(SHORT, 8.0): 0.6}
    runs = made_up(every)
    parameters = {"references": {"regression": 0.78, "halfspaces": 0.77, "signs": 0.76}}
    found = tables.accuracy_numbers(runs, parameters, prefix="adult_code", epsilon=8.0)
    assert found["adult_code_short"] == pytest.approx(60.0)
    assert found["adult_code_norm"] == pytest.approx(70.0)
    assert found["adult_code_best_halfspaces"] == pytest.approx(77.0)
    noisy = pd.concat([runs[runs["method"] != SHORT], made_up({(SHORT, 1.0): 0.7, (SHORT, 8.0): 0.6}, 0.02)])
    claims = tables.claim_numbers(noisy, (("norm", "short"),), prefix="adult_code")
    assert claims == {
        "adult_code_norm_short_better": 1,
        "adult_code_norm_short_worse": 0,
        "adult_code_norm_short_steadier": 2,
        "adult_code_norm_short_gain": pytest.approx(10.0),
        "adult_code_norm_short_loss": pytest.approx(0.0),
    }
    assert set(tables.SHORT_NAMES.values()) <= set(METHODS)
    assert tables.reference_lines(parameters) == {"LR, no noise": 0.78, "best halfspace": 0.77}


def test_numbers_of_the_study() -> None:
    levels = {(method, epsilon): 0.5 + 0.1 * epsilon for method in METHODS for epsilon in (1.0, 2.0)}
    parameters = {
        "runs": 3, "delta": 1e-6, "gap": GAP, "wall_seconds": 90.0,
        "tuned": [{"learner": TUNED, "epsilon": 1.0, "seconds": 2.0}, {"learner": SGD_TUNED, "seconds": 9.0}],
    }  # fmt: skip
    found = tables.study_numbers({"code": (made_up(levels), parameters), "regression": (made_up(levels), {})})
    assert found["adult_code_half"] == found["adult_regression_half"] == pytest.approx(70.0)
    assert (found["adult_runs"], found["adult_minutes"], found["adult_grid"]) == (3, 1.5, 2.0)
    assert found["adult_solves"] == 2 * 8 * 2 * 3, (
        "two readings, eight discrete methods, two epsilons, three runs"
    )
    assert (found["adult_gap_largest"], found["adult_gap_allowed"]) == (1e-7, GAP)
    assert found["adult_spread"] == pytest.approx(1.5)
    assert found["adult_beaten"] == pytest.approx(100 / 3)


def test_weights_are_listed_by_size() -> None:
    frame = tables.weights_frame(("a", "b", "c"), np.array([-2, 0, 3]))
    assert frame.to_dict("records") == [{"column": "c", "weight": 3}, {"column": "a", "weight": -2}]


def test_times_are_by_family() -> None:
    table = tables.time_frame(made_up(LEVELS)).set_index("family")
    assert table.loc["OPDisc", "runs"] == 9
    assert table.loc["OPDisc", "median"] == pytest.approx(0.2)
    assert table.loc["OPDisc", "largest"] == pytest.approx(0.3)
    assert table.loc["regression", "runs"] == 9
    # Of the times 0.1, 0.2, 0.3 one is below the other family's median 0.2.
    assert tables.beaten_in_time(made_up(LEVELS)) == pytest.approx(1 / 3)
    assert set(tables.FAMILIES) == set(METHODS)


def test_figures_describe_themselves() -> None:
    runs = pd.concat([made_up(LEVELS), made_up({("RSPM, box", e): 0.7 for e in (0.5, 1.0, 8.0)})])
    references = {"code": {"not private": 0.785}}
    drawn = figures.draw_accuracy({"code": runs}, ("OPDisc, norm", SHORT), references, name="try-accuracy")
    assert "code: OPDisc, norm from 0.7 to 0.8" in drawn.alt
    assert f"{SHORT} from 0.75 to 0.76" in drawn.alt
    both = figures.draw_accuracy({"code": runs, "other": runs}, (SHORT,), {}, name="try-two")
    assert "other: " in both.alt
    times = figures.draw_times(runs, name="try-times")
    assert "OPDisc median 0.2 s, largest 0.3 s" in times.alt


def test_shown_methods_exist_and_fit_one_figure() -> None:
    for group in (tables.DRAWN, tables.AGAINST):
        assert len(group) == len(set(group)) <= 6
        assert set(group) <= set(METHODS)
    assert {name for pair in tables.PAIRS for name in pair} <= set(METHODS)


# --- recording -----------------------------------------------------------------------------------------


def test_the_figure_is_recorded(few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ("OPDisc, norm", "RSPM, box", SHORT, TUNED)
    small = {"columns": "code", "rows": 120, "epsilons": (1.0,), "methods": methods, "runs": 2}
    monkeypatch.setattr(paper_beyond_convexity, "PAPER", small)
    monkeypatch.setattr(grids, "DESCENTS", (Descent(1.0, 2, 1.0),))
    monkeypatch.setattr(grids, "MINIBATCHES", (Minibatch(1.0, 60, 1, 1.0),))
    path = paper_beyond_convexity.record("code", 1, None, tmp_path / "results", tmp_path / "local")
    assert path.name == "beyond-convexity-code.csv"
    runs, parameters = tables.recorded_runs(tmp_path / "results", "code")
    assert len(runs) == 8
    assert parameters["runs"] == 2
    assert len(parameters["columns"]) == 23
    assert parameters["delta"] == pytest.approx(1 / 120**2)
    assert set(parameters["references"]) == {"regression", "halfspaces", "signs"}
    tuned = tables.tuned_frame(parameters)
    assert set(tuned["learner"]) == set(LEARNERS)
    assert tables.grid_seconds(parameters) > 0
    metadata = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert metadata["seed"] == paper_beyond_convexity.SEED
    with pytest.raises(ValueError, match="columns must be one of code, regression, got 'paper'"):
        tables.recorded_runs(tmp_path, "paper")


@pytest.mark.parametrize("columns", adult.COLUMNS)
def test_recorded_figure_has_the_size_of_the_paper(columns: str) -> None:
    runs, parameters = tables.recorded_runs(data_folder() / "results", columns)
    paper = adult_settings("paper")
    wanted = {(method, epsilon): 15 for method in METHODS for epsilon in paper["epsilons"]}
    assert runs.groupby(["method", "epsilon"]).size().to_dict() == wanted
    assert parameters["data"].endswith("15682 x 23")
    assert parameters["delta"] == pytest.approx(1 / 15_682**2)
    assert parameters["wall_seconds"] <= 600
    discrete = runs[runs["method"].isin(adult.DISCRETE)]
    assert (discrete["gap"] < parameters["gap"]).all()
    best = parameters["references"]
    assert discrete["accuracy"].max() <= best["halfspaces"] + 1e-6
    assert runs.loc[runs["method"].isin(RSPM), "accuracy"].max() <= best["signs"] + 1e-6


def test_recorded_runs_come_out_again() -> None:
    """Some cheap ones of the figure, with its seeds and at its size."""
    pytest.importorskip("numba")
    adult.prepared_arena.cache_clear()
    recorded, _ = tables.recorded_runs(data_folder() / "results", "code")
    again = adult_runs(
        "code", epsilons=(0.1,), methods=(*adult.DISCRETE, SHORT), runs=1, seed=paper_beyond_convexity.SEED
    )
    both = again.merge(recorded, on=["method", "epsilon", "repetition"], suffixes=("", "_recorded"))
    assert len(both) == len(adult.DISCRETE) + 1
    exact = both["method"] != SHORT
    np.testing.assert_allclose(both["accuracy"][exact], both["accuracy_recorded"][exact], atol=1e-6)
    # Of descent a record or two may change sides with the order in which a library adds.
    np.testing.assert_allclose(both["accuracy"], both["accuracy_recorded"], atol=3 / 15_682)
    adult.prepared_arena.cache_clear()


def test_unknown_columns_are_refused_by_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert paper_beyond_convexity.main(["--only", "paper"]) == 2
    assert "unknown columns 'paper', known here: code, regression" in capsys.readouterr().err


# --- settings and bad input ----------------------------------------------------------------------------


def test_settings_of_the_profiles() -> None:
    paper = adult_settings("paper")
    assert paper["epsilons"] == (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    assert (paper["runs"], paper["rows"], paper["methods"]) == (15, None, METHODS)
    assert len(METHODS) == len(set(METHODS)) == 13
    assert not set(adult_settings("book")["methods"]) & set(LEARNERS), "live runs have no grids"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"columns": "paper"}, ValueError, "columns must be one of"),
        ({"methods": ("LR",)}, ValueError, "methods must be one of .* got 'LR'"),
        ({"methods": SHORT}, TypeError, "methods must be a list, got str"),
        (
            {"methods": (TUNED,)},
            ValueError,
            "tuned must hold settings of 'LR, descent, tuned' at epsilon 1.0",
        ),
        ({"epsilons": (0.0,)}, ValueError, "epsilons must be positive"),
        ({"epsilons": 1.0}, TypeError, "epsilons must be a list, got float"),
        ({"runs": 0}, ValueError, "runs must be at least 1"),
        ({"rows": 10}, ValueError, "rows must lie between 50 and 15682, got 10"),
        ({"rows": 15_683}, ValueError, "rows must lie between 50 and 15682, got 15683"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
    ],
)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {
        "columns": "code",
        "epsilons": (1.0,),
        "methods": (SHORT,),
        "runs": 1,
        **TINY,
    }
    arguments |= change
    with pytest.raises(error, match=message):
        adult_runs(arguments.pop("columns"), **arguments)
