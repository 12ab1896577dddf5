"""OPSamp: plans that prove their sensitivity, the stated draws, certificates before noise, two oracles that agree."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adaptive_dp.oracle_perturbation import sampled_oracles, sampled_tables
from adaptive_dp.oracle_perturbation.concentration import bernstein_average
from adaptive_dp.oracle_perturbation.opsamp import opsamp, plan, plan_for, printed_plan, rounding_gap
from adaptive_dp.oracle_perturbation.problems import Uncertified
from adaptive_dp.oracle_perturbation.sampled_exact import LinePair, ReleasedProfile, sum_law
from adaptive_dp.oracle_perturbation.sampled_oracles import Answers, CuttingPlanes, cut_planes, list_grid
from adaptive_dp.oracle_perturbation.sampled_problems import (
    CONVEX,
    LOSSES,
    STEEPER,
    BoxGrid,
    GridLosses,
    ScoreLosses,
    objective,
    rounding_error,
)
from adaptive_dp.oracle_perturbation.stability import stability_bound
from adaptive_dp.privacy import Neighbours

BUDGET = {"epsilon": 1.0, "delta": 1e-3}
FACTS = BUDGET | {"records": 1_000, "dimension": 2, "diameter": 2.0, "lipschitz": 0.5}


def people(records=300, seed=1):
    return sampled_tables.live_records(records, np.random.default_rng(seed))


def small_grid(loss="ramp", records=300, side=9):
    return ScoreLosses(*people(records), loss).on_grid(side)


class Recorder(np.random.Generator):
    """A generator that writes down what was asked of it."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64(seed))
        self.calls = []

    def exponential(self, scale=1.0, size=None):
        self.calls.append(("exponential", float(scale), size))
        return super().exponential(scale, size)

    def laplace(self, loc=0.0, scale=1.0, size=None):
        self.calls.append(("laplace", float(np.unique(scale)[0]), size))
        return super().laplace(loc, scale, size)


# ---------------------------------------------------------------- plans


@settings(max_examples=12, deadline=None)
@given(st.floats(-1, 1), st.floats(-9, -1), st.integers(50, 10**6), st.integers(1, 8), st.floats(-1, 1))
def test_plans_prove_their_sensitivity(log_epsilon, log_delta, records, d, log_slope):
    facts = {"records": records, "dimension": d, "diameter": 2.0, "lipschitz": 10.0**log_slope}
    gap = 1e-5
    chosen = plan(epsilon=10.0**log_epsilon, delta=10.0**log_delta, gap=gap, **facts)
    steepest = 10.0**log_slope * (1 + STEEPER)
    s = stability_bound(eta=chosen.eta, dimension=d, diameter=2.0, lipschitz=steepest, gap=gap)
    assert chosen.stability == s
    assert chosen.sensitivity == bernstein_average(
        mean=s, largest=2.0 * d, calls=chosen.calls, failure=chosen.delta
    )
    assert chosen.sensitivity <= min(2.0 * d, 13 / 6 * s * (1 + 1e-9))
    assert chosen.scale == pytest.approx(chosen.sensitivity / 10.0**log_epsilon)
    assert chosen.guarantee.neighbours is Neighbours.REPLACE_ONE
    assert chosen.guarantee.epsilon == 10.0**log_epsilon
    # The rate is the best for the bound: neighbours are no better, up to its three digits.
    if chosen.excess(0.05).tilt < 0.3 * min(1.0, chosen.lipschitz * chosen.spread):
        for factor in (0.8, 1.25):
            other = plan(
                epsilon=10.0**log_epsilon, delta=10.0**log_delta, gap=gap, eta=factor * chosen.eta, **facts
            )
            assert other.excess(0.05).total >= chosen.excess(0.05).total * (1 - 1e-4)


def test_a_plan_that_is_not_proved_cannot_be_made():
    chosen = plan(**FACTS)
    for name, value, words in (
        ("stability", 0.9 * chosen.stability, "stability must be at least"),
        ("sensitivity", 0.9 * chosen.sensitivity, "sensitivity must be at least"),
        ("calls", chosen.calls // 2, "sensitivity must be at least"),
        ("eta", 2 * chosen.eta, "stability must be at least"),
        ("lipschitz", 2 * chosen.lipschitz, "stability must be at least"),
        ("diameter", 2 * chosen.diameter, "stability must be at least"),
        ("delta", chosen.delta / 100, "sensitivity must be at least"),
        ("gap", 1.0, "stability must be at least"),
        ("gap", 0.0, "gap must be at least"),
        ("calls", 10**9, "calls must be at most"),
    ):
        with pytest.raises(ValueError, match=words):
            dataclasses.replace(chosen, **{name: value})


def test_oversampling_buys_sensitivity_and_centring_a_smaller_bound():
    few, many = (plan(**FACTS, oversampling=r) for r in (2.0, 50.0))
    assert many.sensitivity / many.stability == pytest.approx(1 + 0.2 + 1 / 150, rel=1e-3)
    assert many.excess(0.05).total < few.excess(0.05).total
    assert many.calls > 10 * few.calls
    one_sided = plan(**FACTS, centred=False)
    assert one_sided.eta > few.eta  # less noise, as it costs more
    assert one_sided.excess(0.05, centred=False).total > 1.4 * few.excess(0.05).total


def test_printed_plan_is_algorithm_2():
    found = printed_plan(
        epsilon=1.0, delta=1e-8, records=10_000, dimension=2, diameter=2.0, euclidean_diameter=2 * math.sqrt(2),
        lipschitz=0.5,
    )  # fmt: skip
    assert found.gamma == pytest.approx(0.04)
    assert found.calls == 6190
    assert found.eta == pytest.approx(3.47e-4, rel=2e-3)
    assert found.sensitivity == pytest.approx(0.320 + 0.695, abs=1e-3)
    with_alpha = printed_plan(
        epsilon=1.0, delta=1e-8, records=10_000, dimension=2, diameter=2.0, euclidean_diameter=2 * math.sqrt(2),
        lipschitz=0.5, alpha=0.1,
    )  # fmt: skip
    assert with_alpha.sensitivity == pytest.approx(found.sensitivity + 0.02)


# ---------------------------------------------------------------- the mechanism


@pytest.mark.parametrize("centred", [True, False])
def test_exactly_the_stated_draws(centred):
    grid, recorder = small_grid(), Recorder(5)
    release = opsamp(grid, **BUDGET, rng=recorder, centred=centred)
    chosen = release.trace["plan"]
    assert recorder.calls == [
        ("exponential", 1 / chosen.eta, (chosen.calls, 2)),
        ("laplace", chosen.scale, (2,)),
    ]
    again = np.random.default_rng(np.random.PCG64(5))
    tilts = again.exponential(1 / chosen.eta, (chosen.calls, 2)) - (1 / chosen.eta if centred else 0.0)
    answers = list_grid(grid, tilts)
    noise = again.laplace(0.0, chosen.scale, 2)
    assert recorder.bit_generator.state == again.bit_generator.state
    np.testing.assert_array_equal(release.trace["points"], answers.points)
    np.testing.assert_array_equal(release.value, np.clip(answers.points.mean(axis=0) + noise, -1, 1))
    assert release.guarantee == chosen.guarantee
    assert release.guarantee.delta == BUDGET["delta"]
    assert (release.trace["gaps"] <= chosen.gap).all()


def test_noise_is_a_vector():
    """Algorithm 2 prints one Laplace number; then w_1 - w_2 would be published without noise."""
    grid = small_grid()
    chosen = plan_for(grid, epsilon=4.0, delta=0.1)
    rng = np.random.default_rng(6)
    draws = [opsamp(grid, epsilon=4.0, delta=0.1, chosen=chosen, rng=rng).trace["noise"] for _ in range(200)]
    pooled = np.array(draws) / chosen.scale
    assert stats.kstest(pooled.ravel(), stats.laplace.cdf).pvalue > 1e-6
    assert abs(np.corrcoef(pooled.T)[0, 1]) < 4.9 / math.sqrt(200)


def lying(problem, tilts, /, *, gap):
    """Claims to be exact."""
    return Answers(np.ones(tilts.shape), np.full(len(tilts), -math.inf))


def outside(problem, tilts, /, *, gap):
    return dataclasses.replace(list_grid(problem, tilts), points=np.full(tilts.shape, 1.7))


def silent(problem, tilts, /, *, gap):
    answers = list_grid(problem, tilts)
    bounds = answers.lower_bounds.copy()
    bounds[3] = math.nan
    return dataclasses.replace(answers, lower_bounds=bounds)


def short(problem, tilts, /, *, gap):
    answers = list_grid(problem, tilts)
    return Answers(answers.points[1:], answers.lower_bounds[1:])


def second_best(problem, tilts, /, *, gap):
    """Correct lower bounds, but one point is a neighbour of the best."""
    answers = list_grid(problem, tilts)
    points = answers.points.copy()
    points[0, 0] += problem.grid.spacing if points[0, 0] < 0.5 else -problem.grid.spacing
    return dataclasses.replace(answers, points=points)


@pytest.mark.parametrize("oracle", [lying, outside, silent, short, second_best])
def test_an_answer_without_a_certificate_is_refused_before_the_laplace_noise(oracle):
    recorder = Recorder(7)
    with pytest.raises(Uncertified, match="nothing is released"):
        opsamp(small_grid(), **BUDGET, oracle=oracle, rng=recorder)
    assert [name for name, *_ in recorder.calls] == ["exponential"]


def test_an_oracle_that_errs_within_the_gap_is_accepted_and_the_plan_pays_for_it():
    grid = small_grid()

    def sloppy(problem, tilts, /, *, gap):
        values = problem.total - tilts @ problem.grid.points().T
        allowed = values <= values.min(axis=1, keepdims=True) + 0.9 * gap
        last = allowed.shape[1] - 1 - np.argmax(allowed[:, ::-1], axis=1)
        return Answers(problem.grid.points()[last], values.min(axis=1) - rounding_error(problem, tilts))

    release = opsamp(grid, **BUDGET, oracle=sloppy, gap=2.0, rng=np.random.default_rng(8))
    assert release.trace["gaps"].max() > 0.01
    assert release.trace["plan"].stability > plan_for(grid, **BUDGET, eta=release.trace["plan"].eta).stability
    with pytest.raises(TypeError, match="oracle must return Answers"):
        opsamp(grid, **BUDGET, oracle=lambda problem, tilts, gap: None, rng=np.random.default_rng(8))


def test_a_bound_above_the_value_is_a_broken_oracle():
    def boasting(problem, tilts, /, *, gap):
        honest = list_grid(problem, tilts, gap=gap)
        return Answers(honest.points, honest.lower_bounds + 1.0)

    with pytest.raises(ValueError, match="it is broken"):
        opsamp(small_grid(), **BUDGET, oracle=boasting, rng=np.random.default_rng(9))


def test_an_oracle_cannot_change_the_tilts():
    def greedy(problem, tilts, /, *, gap):
        tilts[0] = 0
        return list_grid(problem, tilts)

    with pytest.raises(ValueError, match="read-only"):
        opsamp(small_grid(), **BUDGET, oracle=greedy, rng=np.random.default_rng(9))


def test_the_trace_stays_private():
    release = opsamp(small_grid(), **BUDGET, rng=np.random.default_rng(10))
    assert "private trace" in repr(release.trace)
    assert not release.public().trace


# ---------------------------------------------------------------- problems


def table_of(loss, features, labels, points):
    rows = []
    for x, y in zip(features, labels, strict=True):
        u = points @ x
        rows.append(
            {
                "hinge": np.maximum(1 - y * u, 0) / 3,
                "absolute": np.abs(y - u) / 3,
                "ramp": np.clip((1 - y * u) / 2, 0, 1),
                "folded": np.maximum(1 - np.abs(u), 0),
            }[loss]
        )
    return np.array(rows)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_what_they_say(loss, monkeypatch):
    features, labels = people(60)
    problem, grid = ScoreLosses(features, labels, loss), BoxGrid(2, 7)
    table = table_of(loss, features, labels, grid.points())
    assert table.min() >= 0
    assert table.max() <= 1
    direct = GridLosses(table, grid, problem.lipschitz)  # checks G and the range
    assert direct.records == problem.records == 60
    np.testing.assert_allclose(direct.total, table.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(problem.on_grid(7).total, direct.total, rtol=1e-12)
    np.testing.assert_allclose(problem.values(grid.points()), direct.total, rtol=1e-12)
    np.testing.assert_array_equal(direct.values(grid.points()[[5, 0, 5]]), direct.total[[5, 0, 5]])
    assert problem.on_grid(7).records == 60
    # The same in pieces, from a callable.
    monkeypatch.setattr("adaptive_dp.oracle_perturbation.sampled_problems.BLOCK", 500)
    pieces = GridLosses(lambda rows: table[rows], grid, problem.lipschitz, rows=60)
    np.testing.assert_allclose(pieces.total, direct.total, rtol=1e-13)
    np.testing.assert_allclose(problem.values(grid.points()), direct.total, rtol=1e-12)


def test_the_lipschitz_constants_are_attained():
    for loss, slope in (("hinge", 1 / 3), ("absolute", 1 / 3), ("ramp", 0.5), ("folded", 1.0)):
        problem = ScoreLosses([[1.0, 1.0]], [1.0], loss)
        assert problem.lipschitz == slope
        steps = np.abs(np.diff(problem.values(np.column_stack([np.linspace(-1, 1, 21), np.zeros(21)]))))
        assert steps.max() == pytest.approx(0.1 * slope)
        assert problem.convex == (loss in CONVEX)


@pytest.mark.parametrize("loss", CONVEX)
def test_subgradients_support_the_loss(loss):
    problem, rng = ScoreLosses(*people(50), loss), np.random.default_rng(11)
    points = rng.uniform(-1, 1, (40, 2))
    values = problem.values(points)
    for point, value in zip(points, values, strict=True):
        found, slope = problem.value_and_subgradient(point)
        assert found == pytest.approx(value)
        assert (values >= found + (points - point) @ slope - 1e-9).all()


def test_sums_are_accurate_to_what_the_certificates_allow():
    rng = np.random.default_rng(12)
    table = rng.random((20_000, 4)) * 0.1 + 0.3
    problem = GridLosses(table, BoxGrid(1, 4), 1.0)
    exact = np.array([math.fsum(column) for column in table.T])
    assert np.abs(problem.total - exact).max() <= rounding_error(problem, np.zeros((1, 1)))[0]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"losses": np.full((2, 3), 1.2)}, ValueError, r"losses must lie in \[0, 1\]"),
        (
            {"losses": np.array([[0.0, 0.9, 0.0]])},
            ValueError,
            "a step along axis 0 changes a loss by more than",
        ),
        ({"losses": np.zeros((2, 4))}, ValueError, "losses must have shape"),
        ({"losses": np.zeros((0, 3))}, ValueError, "rows must be 0"),
        ({"losses": np.full((2, 3), math.nan)}, ValueError, "losses must be finite"),
        ({"losses": lambda rows: np.zeros((1, 3))}, TypeError, "rows must be an integer"),
        ({"grid": 3}, TypeError, "grid must be a BoxGrid"),
        ({"lipschitz": 0.0}, ValueError, "lipschitz must be positive"),
        ({"weights": [1.0, 0.5]}, ValueError, "weights must be 2 positive whole numbers"),
        ({"rows": 5}, ValueError, "rows must be 2"),
    ],
)
def test_bad_tables_are_refused(change, error, words):
    good = {"losses": np.zeros((2, 3)), "grid": BoxGrid(1, 3), "lipschitz": 0.5}
    GridLosses(**good)
    with pytest.raises(error, match=words):
        GridLosses(**(good | change))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ScoreLosses([[1.5, 0.0]], [1.0]), ValueError, r"features must lie in \[-1, 1\]"),
        (lambda: ScoreLosses([[0.5, 0.0]], [0.5]), ValueError, "labels must be -1 or"),
        (lambda: ScoreLosses([[0.5, 0.0]], [1.0, 1.0]), ValueError, "labels must have one entry"),
        (lambda: ScoreLosses(np.zeros((0, 2)), []), ValueError, "labels must have one entry"),
        (lambda: ScoreLosses([[0.5, 0.0]], [1.0], "logistic"), ValueError, "loss must be one of"),
        (lambda: ScoreLosses([[0.5, 0.0]], [1.0]).values(np.array([[2.0, 0.0]])), ValueError, "points must lie"),
        (lambda: ScoreLosses([[0.5]], [1.0], "ramp").value_and_subgradient(np.zeros(1)), ValueError, "not convex"),
        (lambda: BoxGrid(2, 1), ValueError, "side must be at least 2"),
        (lambda: BoxGrid(3, 200), ValueError, "side must give at most"),
        (lambda: BoxGrid(1, 3).indices(np.array([[0.5]])), ValueError, "points must lie on the grid"),
        (lambda: BoxGrid(1, 3).indices(np.array([[2.0]])), ValueError, "points must lie on the grid"),
    ],
)  # fmt: skip
def test_bad_problems_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


# ---------------------------------------------------------------- oracles


def test_listing_a_grid_in_pieces_changes_nothing(monkeypatch):
    grid, tilts = small_grid(side=11), np.random.default_rng(13).exponential(20, (50, 2)) - 20
    whole = list_grid(grid, tilts)
    values = np.array([[grid.total[j] - t @ w for j, w in enumerate(grid.grid.points())] for t in tilts])
    np.testing.assert_allclose(objective(grid, whole.points, tilts), values.min(axis=1))
    assert (whole.lower_bounds < values.min(axis=1)).all()
    monkeypatch.setattr(sampled_oracles, "LISTED", 300)
    pieces = list_grid(grid, tilts)
    np.testing.assert_array_equal(pieces.points, whole.points)
    np.testing.assert_array_equal(pieces.lower_bounds, whole.lower_bounds)


@pytest.mark.parametrize("loss", CONVEX)
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_cutting_planes_against_a_linear_programme_over_all_records(loss, dimension):
    """The whole problem as one linear programme (a slack for each record) is another way to the same number."""
    from scipy.optimize import linprog

    rng, n, d = np.random.default_rng(14), 40, dimension
    features, labels = rng.uniform(-1, 1, (n, d)), rng.choice([-1.0, 1.0], n)
    problem, gap = ScoreLosses(features, labels, loss), 1e-7
    oracle = CuttingPlanes(problem)
    for tilt in rng.normal(size=(15, d)) * 3:
        found = oracle.solve(tilt, gap=gap)
        # slack_i >= each of the two pieces of the loss
        pieces = (
            [(-labels[:, None] * features, np.ones(n)), (0 * features, np.zeros(n))]
            if loss == "hinge"
            else [(-features, labels), (features, -labels)]
        )
        best = linprog(
            np.concatenate([-tilt, np.full(n, 1 / (1 + d))]),
            A_ub=np.vstack([np.hstack([slope, -np.eye(n)]) for slope, _ in pieces]),
            b_ub=np.concatenate([-height for _, height in pieces]),
            bounds=[(-1, 1)] * d + [(None, None)] * n,
        )
        assert found.lower_bound <= best.fun + 1e-9
        assert found.objective >= best.fun - 1e-9
        assert found.gap <= gap
        exact = objective(problem, found.point[np.newaxis], tilt[np.newaxis])[0]
        assert found.objective == pytest.approx(exact, abs=1e-10)


def test_cutting_planes_depend_on_the_past_only():
    """Answers do not change when later tilts do, nor with another object: what the theorem allows."""
    problem, rng = ScoreLosses(*people(), "absolute"), np.random.default_rng(15)
    tilts = rng.exponential(40, (30, 2)) - 40
    first = cut_planes(problem, tilts, gap=1e-6)
    changed = tilts.copy()
    changed[20:] *= -1
    second = cut_planes(problem, changed, gap=1e-6)
    np.testing.assert_array_equal(first.points[:20], second.points[:20])
    assert not np.array_equal(first.points[20:], second.points[20:])
    again = cut_planes(problem, tilts, gap=1e-6)
    np.testing.assert_array_equal(again.points, first.points)
    np.testing.assert_array_equal(again.lower_bounds, first.lower_bounds)


def test_few_planes_are_enough_and_impatience_is_an_error():
    problem, rng = ScoreLosses(*people(), "hinge"), np.random.default_rng(16)
    tilts = rng.exponential(40, (60, 2)) - 40
    many, few = CuttingPlanes(problem), CuttingPlanes(problem, planes=8)
    for tilt in tilts:
        a, b = many.solve(tilt, gap=1e-6), few.solve(tilt, gap=1e-6)
        assert a.objective == pytest.approx(b.objective, abs=2e-6)
    with pytest.raises(Uncertified, match="stopped after 1 evaluations"):
        CuttingPlanes(problem, effort=1).solve([3.0, -2.0], gap=1e-6)
    with pytest.raises(Uncertified, match=r"stopped after|repeats a point"):
        CuttingPlanes(problem, effort=20).solve([3.0, -2.0], gap=0.0)  # below rounding: no certificate
    with pytest.raises(ValueError, match="convex losses"):
        CuttingPlanes(ScoreLosses(*people(), "ramp"))
    with pytest.raises(TypeError, match="must have subgradients"):
        CuttingPlanes(small_grid())
    with pytest.raises(ValueError, match="planes must be at least 6"):
        CuttingPlanes(problem, planes=3)
    with pytest.raises(ValueError, match="tilts must have 2 columns"):
        many.solve([1.0, 2.0, 3.0], gap=1e-6)


def test_a_solver_that_errs_costs_work_but_no_certificate(monkeypatch):
    """Multipliers from a broken linear programme still combine planes into a valid lower bound."""
    problem, tilt = ScoreLosses(*people(), "absolute"), np.array([7.0, -12.0])
    honest = CuttingPlanes(problem).solve(tilt, gap=1e-6)
    solver, rng = sampled_oracles.linprog, np.random.default_rng(17)

    def noisy(*arguments, **keywords):
        found = solver(*arguments, **keywords)
        marginals = found.ineqlin.marginals
        found.ineqlin.marginals = marginals - 0.05 * rng.random(marginals.shape)
        return found

    monkeypatch.setattr(sampled_oracles, "linprog", noisy)
    oracle = CuttingPlanes(problem, effort=30)
    with pytest.raises(Uncertified):
        oracle.solve(tilt, gap=1e-6)
    loose = CuttingPlanes(problem).solve(tilt, gap=30.0)
    assert loose.lower_bound <= honest.objective <= loose.objective + 1e-9


def test_both_oracles_serve_the_mechanism_and_agree():
    problem = ScoreLosses(*people(2_000), "hinge")
    grid, rng = problem.on_grid(41), np.random.default_rng(18)
    chosen = plan_for(problem, epsilon=8.0, delta=0.01)
    assert chosen == plan_for(grid, epsilon=8.0, delta=0.01)
    quiet = functools.partial(cut_planes, progress=False)
    state = rng.bit_generator.state
    planes = opsamp(problem, epsilon=8.0, delta=0.01, oracle=quiet, chosen=chosen, rng=rng)
    rng.bit_generator.state = state
    listed = opsamp(grid, epsilon=8.0, delta=0.01, chosen=chosen, rng=rng)
    np.testing.assert_array_equal(planes.trace["noise"], listed.trace["noise"])
    # On the box the minimum is lower, by at most the Lipschitz constant of the sum times half a step a coordinate.
    tilts = np.random.default_rng()
    tilts.bit_generator.state = state
    noise = tilts.exponential(1 / chosen.eta, (chosen.calls, 2)) - 1 / chosen.eta
    below = objective(problem, listed.trace["points"], noise) - objective(
        problem, planes.trace["points"], noise
    )
    assert below.min() >= -1e-6
    assert (below <= (2_000 / 3 * 2 + np.abs(noise).sum(axis=1)) / 40).all()
    assert np.abs(planes.trace["average"] - listed.trace["average"]).max() < 0.1


def test_progress_is_shown_on_request(capsys):
    problem = ScoreLosses(*people(), "hinge")
    tilts = np.random.default_rng(19).normal(size=(5, 2))
    cut_planes(problem, tilts, gap=1e-6, progress=True)
    assert "oracle calls" in capsys.readouterr().err
    cut_planes(problem, tilts, gap=1e-6)
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------- exact laws on a line


def test_law_of_an_answer_against_enumeration():
    points, rng = np.linspace(-1, 1, 6), np.random.default_rng(20)
    first, second = rng.normal(size=6) * 4, rng.normal(size=6) * 4
    for centred in (True, False):
        pair = LinePair(points, first, second, 0.2, centred=centred)
        assert pair.probabilities.sum() == pytest.approx(1.0)
        sigma = np.random.default_rng(21).exponential(5.0, 100_000)
        tilt = sigma - 5.0 * centred
        picks = [np.argmin(total - np.outer(tilt, points), axis=1) for total in (first, second)]
        for side in (0, 1):
            share = np.bincount(picks[side], minlength=6) / sigma.size
            assert np.abs(share - pair.marginal(side)).max() < 5 * 0.5 / math.sqrt(sigma.size)
        assert np.abs(points[picks[0]] - points[picks[1]]).mean() == pytest.approx(
            pair.mean_distance, abs=0.02
        )


def test_law_of_a_sum():
    law = np.array([0.2, 0.5, 0.0, 0.3])
    expected = np.zeros(10)
    for draw in itertools.product(range(4), repeat=3):
        expected[sum(draw)] += math.prod(law[list(draw)])
    np.testing.assert_allclose(sum_law(law, 3), expected, atol=1e-14)
    np.testing.assert_allclose(sum_law([0.6, 0.4], 500), stats.binom.pmf(range(501), 500, 0.4), atol=1e-13)
    with pytest.raises(ValueError, match="calls must give at most"):
        sum_law(law, 10**8)


def test_released_profile_against_closed_form_and_quadrature():
    # Two Laplace laws at distance 1: delta = 1 - exp((epsilon - 1 / b) / 2).
    plain = ReleasedProfile(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 1.0, 0.5)
    for epsilon in (0.0, 0.7, 1.9, 2.0, 3.0):
        exact = max(0.0, 1 - math.exp((epsilon - 2.0) / 2))
        assert plain.delta(epsilon) == pytest.approx(exact, abs=1e-14)
    assert plain.epsilon(0.1) == pytest.approx(2.0 + 2 * math.log(0.9))
    rng = np.random.default_rng(22)
    mixture = ReleasedProfile(rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6)), 0.3, 0.5)
    z = np.linspace(-15, 17, 320_001)
    f, g = mixture.density(z, 0), mixture.density(z, 1)
    for epsilon in (0.0, 0.05, 0.3):
        sums = [np.maximum(a - math.exp(epsilon) * b, 0).sum() * (z[1] - z[0]) for a, b in ((f, g), (g, f))]
        assert mixture.delta(epsilon) == pytest.approx(max(sums), rel=1e-5)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a real number"),
        ({"delta": 0.0}, ValueError, "delta must lie strictly"),
        ({"delta": 1.0}, ValueError, "delta must lie strictly"),
        ({"gap": 1e-15}, ValueError, "gap must be at least"),
        ({"gap": -1.0}, ValueError, "gap must lie"),
        ({"beta": 1.0}, ValueError, "beta must lie strictly"),
        ({"oversampling": 0.0}, ValueError, "oversampling must be positive"),
        ({"oversampling": 1e12}, ValueError, "calls must be at most|oversampling asks for"),
        ({"centred": 1}, TypeError, "centred must be True or False"),
        ({"oracle": "grid"}, TypeError, "oracle must be callable"),
        ({"chosen": "plan"}, TypeError, "chosen must be a Plan"),
        ({"rng": 3}, TypeError, "rng must be a numpy.random.Generator"),
        ({"problem": np.zeros((3, 3))}, TypeError, "problem must be GridLosses"),
        ({"problem": ScoreLosses([[0.5, 0.5]], [1.0])}, TypeError, "oracle must be given"),
    ],
)
def test_bad_input_is_refused_before_any_noise(change, error, words):
    rng = np.random.default_rng(23)
    before = rng.bit_generator.state
    arguments = {"problem": small_grid(), "rng": rng} | BUDGET | change
    with pytest.raises(error, match=words):
        opsamp(arguments.pop("problem"), **arguments)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"records": 301}, "records"), ({"dimension": 3}, "dimension"), ({"diameter": 1.0}, "diameter"),
        ({"lipschitz": 0.25}, "lipschitz"), ({"epsilon": 2.0}, "epsilon"), ({"delta": 0.01}, "delta"),
    ],
)  # fmt: skip
def test_a_plan_for_another_problem_is_refused(change, name):
    facts = BUDGET | {"records": 300, "dimension": 2, "diameter": 2.0, "lipschitz": 0.5}
    rng = np.random.default_rng(24)
    with pytest.raises(ValueError, match=f"chosen must have {name}"):
        opsamp(small_grid(), **BUDGET, chosen=plan(**(facts | change)), rng=rng)


def test_rounding_gap_grows_with_the_numbers_that_are_added():
    facts = {"records": 1_000, "dimension": 2, "diameter": 2.0, "eta": 1e-3}
    base = rounding_gap(**facts)
    assert 0 < base < 1e-8
    assert rounding_gap(**(facts | {"records": 10**8})) > 500 * base
    assert rounding_gap(**(facts | {"eta": 1e-6})) > 100 * base
    with pytest.raises(ValueError, match="gap must be at least"):
        plan(**(FACTS | {"records": 10**9}), gap=1e-6)


def test_a_constant_too_small_for_rounding_is_refused():
    """An absolute slack would let any table pass: here two neighbours differ by a thousand times G."""
    for losses in ([0.0, 2e-9], [2e-9, 0.0]):
        with pytest.raises(ValueError, match="lipschitz"):
            GridLosses([losses], BoxGrid(1, 2), 1e-12)
        with pytest.raises(ValueError, match="lipschitz"):
            GridLosses([losses], BoxGrid(1, 2), 9.5e-10)
    with pytest.raises(ValueError, match=r"lipschitz must be at least .* checked"):
        GridLosses([[0.0, 0.0]], BoxGrid(1, 2), 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(-8, 0), st.floats(-7, 1), st.integers(2, 2_000))
def test_no_loss_is_steeper_than_a_plan_provides_for(log_slope, log_excess, side):
    grid, slope = BoxGrid(1, side), 10.0**log_slope
    if slope * grid.spacing < 1e-8:
        return
    step = slope * grid.spacing * (1 + 10.0**log_excess)
    losses = np.zeros(side)
    losses[-1] = min(step, 1.0)
    try:
        GridLosses([losses], grid, slope)
    except ValueError:
        return
    assert np.diff(losses).max() <= slope * (1 + STEEPER) * grid.spacing


def test_plans_provide_for_losses_that_are_steeper_by_rounding():
    chosen = plan(**FACTS)
    exact = stability_bound(eta=chosen.eta, dimension=2, diameter=2.0, lipschitz=0.5, gap=chosen.gap)
    assert exact * (1 + 0.5 * STEEPER) < chosen.stability < exact * (1 + 2 * STEEPER)


@pytest.mark.parametrize(
    ("make", "secret", "words"),
    [
        (lambda: GridLosses([[0.0, 1.23456]], BoxGrid(1, 2), 1.0), "1.23", r"losses must lie in \[0, 1\]"),
        (lambda: GridLosses([[0.0, 0.98765]], BoxGrid(1, 2), 0.25), "0.98", "lipschitz = 0.25"),
        (lambda: ScoreLosses([[1.23456]], [1.0]), "1.23", r"features must lie in \[-1, 1\]"),
        (lambda: ScoreLosses([[0.5]], [1.23456], "absolute"), "1.23", r"labels must lie in \[-1, 1\]"),
    ],
)
def test_messages_show_the_bound_and_no_private_value(make, secret, words):
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert secret not in str(caught.value)


def test_parameters_are_checked_with_a_plan_too():
    grid, rng = small_grid(), np.random.default_rng(25)
    before = rng.bit_generator.state
    chosen = plan_for(grid, **BUDGET)
    with pytest.raises(TypeError, match="epsilon must be a real number"):
        opsamp(grid, epsilon=True, delta=BUDGET["delta"], chosen=chosen, rng=rng)
    with pytest.raises(TypeError, match="delta must be a real number"):
        opsamp(grid, epsilon=1.0, delta=False, chosen=chosen, rng=rng)
    for call in (plan, functools.partial(plan, eta=0.1)):
        with pytest.raises(ValueError, match="delta must lie strictly"):
            call(**(FACTS | {"delta": 2.0}))
    assert rng.bit_generator.state == before


def test_answers_beside_the_grid_are_moved_onto_it():
    grid = small_grid()

    def beside(problem, tilts, /, *, gap):
        answers = list_grid(problem, tilts)
        return dataclasses.replace(answers, points=answers.points + 4e-10)

    exact, moved = (
        opsamp(grid, **BUDGET, oracle=oracle, rng=np.random.default_rng(26)) for oracle in (list_grid, beside)
    )
    np.testing.assert_array_equal(moved.trace["points"], exact.trace["points"])
    np.testing.assert_array_equal(moved.value, exact.value)


def test_answers_beside_the_box_are_moved_into_it():
    problem = ScoreLosses(*people(), "hinge")

    def beside(problem, tilts, /, *, gap):
        answers = cut_planes(problem, tilts, gap=gap)
        return dataclasses.replace(answers, points=answers.points * (1 + 5e-10))

    def far(problem, tilts, /, *, gap):
        return Answers(np.full(tilts.shape, 1e300), np.zeros(len(tilts)))

    chosen = plan_for(problem, **BUDGET, gap=1e-5)
    release = opsamp(problem, **BUDGET, oracle=beside, chosen=chosen, rng=np.random.default_rng(27))
    assert np.abs(release.trace["points"]).max() == 1.0
    for losses in (problem, problem.on_grid(5)):
        with pytest.raises(Uncertified, match="outside W"):
            opsamp(losses, **BUDGET, oracle=far, chosen=chosen, rng=np.random.default_rng(28))


def test_slopes_are_summed_in_pairs():
    """Low bits that always round the same way: a running sum would err by more than the certificates allow for."""
    n = 2**18
    features = (0.5 + np.arange(n) * 2.0**-22 + 0.9 * 2.0**-37)[:, np.newaxis]
    problem = ScoreLosses(features, np.ones(n), "absolute")
    _, slope = problem.value_and_subgradient(np.zeros(1))
    exact = -problem.lipschitz * math.fsum(features[:, 0])
    assert abs(slope[0] - exact) < 1e-9


def test_cutting_planes_reach_the_gap_of_the_mechanism_with_many_records():
    rng = np.random.default_rng(3)
    features = rng.uniform(-1, 1, (20_000, 3))
    problem = ScoreLosses(features, rng.choice([-1.0, 1.0], 20_000), "hinge")
    planes = CuttingPlanes(problem)
    for _ in range(3):
        tilt = rng.exponential(200.0, 3) * rng.choice([-1, 1], 3)
        assert planes.solve(tilt, gap=5e-7).gap <= 5e-7


def test_one_tilt_at_a_time():
    planes = CuttingPlanes(ScoreLosses(np.ones((3, 2)) / 2, np.ones(3), "absolute"))
    with pytest.raises(ValueError, match="tilt must have 1 dimension"):
        planes.solve(np.eye(2), gap=1e-6)
