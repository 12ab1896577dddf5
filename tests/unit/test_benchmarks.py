"""Benchmarks of chapter 1: the baselines compute what the library computes, and the timing does its sums.

Nothing here asserts a time: a test that fails on a busy machine finds no fault.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.accuracy_first import noise_reduction, noise_reduction_marginal, output_nr, prepare
from adaptive_dp.accuracy_first.mechanisms import laplace_statistic, search_path
from adaptive_dp.datasets import Dataset
from adaptive_dp.privacy import Domain
from benchmarks import accuracy_first as bench
from benchmarks.timing import Comparison, compare, record, show, three_digits

ROOT = Path(__file__).resolve().parents[2]
SETTING = bench.Setting(rows=600, levels=30, sample=3, lam=0.05, alpha=0.1)
EPSILONS = 0.05 * 1.5 ** np.arange(12)


def case_of(task: str, seed: int = 1) -> bench.Case:
    """Six hundred random records with three features, posed as the named problem."""
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.ones(3), SETTING.rows) * rng.choice([-1.0, 1.0], (SETTING.rows, 3))
    score = features @ np.array([0.9, -0.6, 0.3])
    if task == "ridge":
        labels, domain = np.clip(score + rng.normal(0, 0.1, SETTING.rows), -1, 1), Domain()
    else:
        labels = np.where(rng.random(SETTING.rows) < 1 / (1 + np.exp(-9 * score)), 1.0, -1.0)
        domain = Domain(labels="sign")
    data = Dataset(features, labels, domain)
    return bench.Case(data, prepare(data, lam=SETTING.lam))


# ---------------------------------------------------------------- the same law


def by_moves(rng, epsilons):
    path = noise_reduction(np.full(20_000, 3.0), sensitivity=2.0, epsilons=epsilons, rng=rng)
    return np.array([values.copy() for values in path.walk()])


def baseline(rng, epsilons):
    return bench.step_by_step(np.full(20_000, 3.0), sensitivity=2.0, epsilons=epsilons, rng=rng)


@pytest.mark.parametrize("draw", [by_moves, baseline])
def test_both_noise_paths_have_the_law_of_the_theorem(draw):
    """Laplace marginals, and coordinates that stand still with probability (epsilon_s / epsilon_t)^2."""
    rows = draw(np.random.default_rng(7), EPSILONS)
    assert rows.shape == (EPSILONS.size, 20_000)
    for level in (0, 5, 11):
        law = noise_reduction_marginal(EPSILONS[level], sensitivity=2.0, value=3.0)
        assert stats.kstest(rows[level], law.cdf).pvalue > 1e-4
    for coarse, fine in ((0, 1), (3, 8), (10, 11)):
        still = int((rows[coarse] == rows[fine]).sum())
        chance = (EPSILONS[coarse] / EPSILONS[fine]) ** 2
        assert stats.binomtest(still, 20_000, chance).pvalue > 1e-4


def test_steps_of_both_noise_paths_have_the_same_law():
    """Two-sample test of what one step adds; levels drawn afresh, with the right marginals, fail it."""
    rng = np.random.default_rng(8)
    library, step_by_step, afresh = by_moves(rng, EPSILONS), baseline(rng, EPSILONS), baseline(rng, EPSILONS)
    steps = library[6] - library[7]
    assert stats.ks_2samp(steps, step_by_step[6] - step_by_step[7]).pvalue > 1e-4
    assert stats.ks_2samp(steps, afresh[6] - step_by_step[7]).pvalue < 1e-4


@pytest.mark.parametrize("task", ["ridge", "logistic"])
@pytest.mark.parametrize("calibration", bench.CALIBRATIONS)
def test_whole_trials_stop_at_the_same_law(task, calibration, monkeypatch):
    """Two-sample test of the accepted level, -1 for none; a baseline with a quarter of the noise fails it."""
    case, count, rng = case_of(task), 120, np.random.default_rng(3)

    def library():
        index = bench.library_trial(case, SETTING, calibration=calibration, rng=rng).index
        return -1 if index is None else index

    def straightforward():
        found = bench.straightforward_trial(case, SETTING, calibration=calibration, rng=rng)
        return -1 if found is None else found[0]

    expected = [library() for _ in range(count)]
    assert len(set(expected)) > 3, "a trial that always stops at one level would compare nothing"
    assert stats.ks_2samp(expected, [straightforward() for _ in range(count)]).pvalue > 1e-4
    original = bench.step_by_step
    monkeypatch.setattr(
        bench,
        "step_by_step",
        lambda value, *, sensitivity, **rest: original(value, sensitivity=sensitivity / 4, **rest),
    )
    assert stats.ks_2samp(expected, [straightforward() for _ in range(count)]).pvalue < 1e-4


# ---------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_risk_over_rows_is_the_excess_risk(task):
    case, rng = case_of(task), np.random.default_rng(5)
    risk = bench.risk_over_rows(case)
    for scale in (0.01, 1.0, 10.0):
        theta = case.problem.minimiser + scale * rng.normal(size=3)
        assert risk(theta) == pytest.approx(case.problem.excess_risk(theta), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("task", ["ridge", "logistic"])
@pytest.mark.parametrize("calibration", bench.CALIBRATIONS)
def test_searches_agree_on_one_path_and_one_stream(task, calibration):
    """The same noisy statistics and the same noise of the test: the same level and hypothesis."""
    case = case_of(task)
    levels = bench.levels_of(case.problem, SETTING, calibration)
    statistic = laplace_statistic(case.problem, bench.MECHANISM[task], calibration)
    accepted = set()
    for seed in range(12):
        noisy = bench.step_by_step(
            statistic.value,
            sensitivity=statistic.sensitivity,
            epsilons=np.array(list(levels)),
            rng=np.random.default_rng([seed, 1]),
        )
        found = bench.first_above_threshold(
            bench.hypotheses_of(noisy, case.problem, calibration),
            bench.risk_over_rows(case),
            alpha=SETTING.alpha,
            rng=np.random.default_rng([seed, 2]),
            **bench.query_parameters(case.problem, SETTING, calibration),
        )
        release = search_path(
            iter(noisy),
            statistic,
            case.problem,
            levels,
            alpha=SETTING.alpha,
            failure=SETTING.failure,
            calibration=calibration,
            rng=np.random.default_rng([seed, 2]),
        )
        assert (found is None) == release.refused
        if found is not None:
            assert found[0] == release.index
            np.testing.assert_allclose(found[1], release.value, rtol=1e-8, atol=1e-10)
            accepted.add(found[0])
    assert len(accepted) > 1


@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_levels_are_those_of_the_library(task):
    """A benchmark on another grid than the mechanisms use by default would measure something else."""
    case = case_of(task)
    setting = dataclasses.replace(SETTING, levels=1_000)
    first = bench.library_trial(case, setting, calibration="sharp", rng=np.random.default_rng(9))
    search = bench.cov_nr if task == "ridge" else output_nr
    default = search(case.problem, alpha=setting.alpha, failure=setting.failure, rng=np.random.default_rng(9))
    assert first.guarantee == default.guarantee
    assert first.index == default.index


def test_ball_problems_are_what_the_search_solves():
    """Off the sphere's certificate, and the warm multiplier is that of a neighbour: not far from the right one."""
    case = case_of("ridge")
    problems = bench.ball_problems(case.problem, SETTING, np.random.default_rng(2))
    assert {each.definite for each in problems} == {True, False}
    for each in problems:
        cold = bench.minimise_quadratic_in_ball(each.matrix, each.vector, each.radius)
        warm = bench.minimise_quadratic_in_ball(
            each.matrix, each.vector, each.radius, multiplier=each.multiplier
        )
        eigen = bench.minimise_quadratic_in_ball_eigen(each.matrix, each.vector, each.radius)
        assert cold.value == pytest.approx(eigen.value, rel=1e-9)
        assert warm.value == pytest.approx(eigen.value, rel=1e-9)
        assert np.diag(each.matrix).min() >= 0


@pytest.mark.parametrize("calibration", bench.CALIBRATIONS)
def test_risk_decisions_end_with_the_accepted_one(calibration):
    case = case_of("logistic")
    queries = bench.risk_decisions(case.problem, SETTING, calibration, np.random.default_rng(3))
    answers = [case.problem.excess_risk(theta) <= level for theta, level in queries]
    assert len(answers) > 1
    assert answers == [False] * (len(answers) - 1) + [True]


# ---------------------------------------------------------------- the timing itself


class Ticks:
    """A clock that only tasks move on, and what was called when."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self):
        return self.now

    def task(self, name, *seconds):
        left = list(seconds)

        def run():
            self.calls.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


def compare_ticks(ticks, first, second, **options):
    options = {"repetitions": 3, "block": 1.0, **options}
    return compare("name", ("a", first), ("b", second), clock=ticks, **options)


def test_ratio_is_seconds_of_the_second_over_the_first():
    ticks = Ticks()
    found = compare_ticks(ticks, ticks.task("a", 2.0), ticks.task("b", 6.0))
    assert found.ratios == (3.0, 3.0, 3.0)
    assert (found.seconds, found.seconds_against) == (2.0, 6.0)
    # one call that is not counted and one that counts, then in turn, the first one first every other time
    assert "".join(ticks.calls) == "aabb" + "ab" + "ba" + "ab"


def test_first_call_is_not_counted_and_short_tasks_fill_a_block():
    ticks = Ticks()
    found = compare_ticks(ticks, ticks.task("a", 100.0, 0.25), ticks.task("b", 0.5))
    assert found.ratios == pytest.approx((2.0, 2.0, 2.0))
    assert ticks.calls.count("a") == 2 + 3 * 4
    assert ticks.calls.count("b") == 2 + 3 * 2


def test_a_slow_baseline_runs_once():
    ticks = Ticks()
    first = ticks.task("a", 9.0, 9.0, 1.0, 2.0, 4.0)
    found = compare_ticks(ticks, first, ticks.task("b", 8.0), against_once=True)
    assert ticks.calls.count("b") == 1
    assert found.ratios == (8.0, 4.0, 2.0)


def test_summary_has_three_digits():
    found = Comparison("name", "a", "b", (1.23456, 123.456, 12.3456), 0.5, 6.0)
    assert found.summary() == {"ratio": 12.3, "low": 1.23, "high": 123.0}
    text = show(found)
    assert "12.3 x  (1.23 to 123, 3 repetitions)" in text
    assert "a: 500 ms; b: 6,000 ms" in text


def test_record_refuses_a_ratio_that_is_no_number(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        record([Comparison("name", "a", "b", (math.nan,), 1.0, 1.0)], tmp_path / "x.json", {})
    assert not (tmp_path / "x.json").exists()


def test_thin_keeps_both_ends():
    assert bench.thin(list(range(100)), 4) == [0, 33, 66, 99]
    assert bench.thin([1, 2], 4) == [1, 2]
    with pytest.raises(ValueError, match="items"):
        bench.thin([], 4)


def test_the_script_runs(tmp_path):
    """Tiny sizes: every comparison prints a finite ratio, and the record names no machine and no path."""
    target = tmp_path / "out" / "ratios.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.accuracy_first", "--quick", "--record", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    text = target.read_text(encoding="utf-8")
    stored = json.loads(text)
    assert set(stored) == {"parameters", "date", "versions", "ratios"}
    assert "/" not in text.replace("/remove", "")
    assert stored["parameters"]["rows"] == bench.QUICK.rows
    assert len(stored["ratios"]) == 13
    for each in stored["ratios"]:
        assert 0 < each["low"] <= each["ratio"] <= each["high"] < math.inf
        assert f"{three_digits(each['ratio'])} x" in done.stdout
        assert each["name"] in done.stdout
    assert "nan" not in done.stdout
