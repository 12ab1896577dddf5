"""OPDisc: the right minimiser, the right law, honest guarantees, and nothing released that is not certified."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adaptive_dp.oracle_perturbation.discrete_privacy import (
    GAP,
    ProvedGaussianCurve,
    printed_sigma,
    shift,
    smallest_sigma,
)
from adaptive_dp.oracle_perturbation.exact_release import hockey_stick, output_law
from adaptive_dp.oracle_perturbation.opdisc import LiftedNoise, certify, opdisc, plan, rounding
from adaptive_dp.oracle_perturbation.problems import (
    Solution,
    TableProblem,
    ThresholdProblem,
    Uncertified,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, PointSet, lift
from adaptive_dp.privacy import Neighbours

LINE = PointSet([[-1.0], [-0.25], [0.5], [1.0]])
TABLE = TableProblem(np.random.default_rng(0).random((30, 4)), LINE)


def halfspaces(dimension=3, records=60, seed=0, space=None):
    rng = np.random.default_rng(seed)
    x = rng.integers(-20, 21, (records, dimension))
    y = np.where(x[:, 0] - x[:, -1] + 8 * rng.normal(size=records) > 0, 1, -1)
    return ThresholdProblem(x, y, space or IntegerBall.halfspaces(dimension))


PROBLEMS = {"table": TABLE, "halfspaces": halfspaces()}
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))
each_noise = pytest.mark.parametrize(
    ("noise", "delta"), [("norm", None), ("gaussian", 1e-4), ("printed", 1e-4)]
)


def totals(problem):
    if isinstance(problem, TableProblem):
        return problem.space.members, problem.total
    points = problem.space.points()
    return points, problem.errors(points)


# --- the mechanism ------------------------------------------------------------------------------------


@each_problem
@each_noise
@pytest.mark.parametrize("fold", [True, False])
def test_the_answer_minimises_the_perturbed_objective(problem, noise, delta, fold):
    points, losses = totals(problem)
    rng = np.random.default_rng(3)
    for _ in range(8):
        release = opdisc(problem, epsilon=2.0, delta=delta, noise=noise, fold=fold, rng=rng)
        eta = release.trace["noise"]
        assert eta.shape == (problem.space.dimension + 1,)
        assert eta[-1] >= 0 or not fold
        objective = losses - lift(points, problem.space.radius) @ eta
        np.testing.assert_array_equal(release.value, points[np.argmin(objective)])
        assert release.trace["solution"].objective == pytest.approx(objective.min(), abs=1e-9)
        assert release.trace["certified"]


@each_problem
def test_norm_noise_has_a_pure_guarantee(problem):
    release = opdisc(problem, epsilon=0.7, rng=np.random.default_rng(0))
    guarantee = release.guarantee
    assert (guarantee.kind, guarantee.epsilon, guarantee.delta) == ("ex-ante", 0.7, 0.0)
    assert guarantee.neighbours is Neighbours.REPLACE_ONE
    assert "neel2019" in guarantee.source
    assert "erratum" in guarantee.source


@each_problem
@pytest.mark.parametrize("fold", [True, False])
def test_gaussian_noise_states_the_proved_curve(problem, fold):
    law, guarantee = plan(problem, epsilon=0.7, delta=1e-5, noise="gaussian", fold=fold)
    assert law.scale == smallest_sigma(problem, epsilon=0.7, delta=1e-5, fold=fold)
    assert (guarantee.epsilon, guarantee.delta) == (0.7, 1e-5)
    space = problem.space
    assert guarantee.curve == ProvedGaussianCurve(
        shift(problem) / law.scale, space.dimension + 1, space.size, fold
    )
    assert guarantee.curve.delta(0.7) == pytest.approx(1e-5, rel=1e-6)


def test_the_printed_scale_states_what_is_proved_and_says_so():
    few = plan(TABLE, epsilon=1.0, delta=1e-6, noise="printed", fold=False)
    assert few[0].scale == printed_sigma(TABLE, epsilon=1.0, delta=1e-6)
    assert few[1].delta < 1e-6
    assert "1e-06 is proved for so few dimensions" in few[1].source
    many = halfspaces(23, 5)
    law, guarantee = plan(many, epsilon=1.0, delta=15682.0**-2, noise="printed", fold=False)
    assert law.scale == pytest.approx(707.7, abs=0.05)
    assert guarantee.delta == pytest.approx(2.85e-6, rel=1e-2)
    assert "not proved" in guarantee.source
    with pytest.raises(ValueError, match="none is proved"):
        plan(halfspaces(8, 5), epsilon=500.0, delta=0.9, noise="printed")


def test_the_scale_of_norm_noise():
    law, _ = plan(halfspaces(23, 5), epsilon=1.0)
    assert law == LiftedNoise("norm", shift(IntegerBall.halfspaces(23)), 24, True)
    assert law.scale == pytest.approx(92, rel=1e-5)
    lipschitz = TableProblem(TABLE.losses, LINE, lipschitz=4.0)
    assert plan(lipschitz, epsilon=2.0)[0].scale == pytest.approx(2 * 4 / 0.5, rel=1e-5)


@pytest.mark.parametrize("fold", [True, False])
def test_releases_follow_the_exact_law(fold):
    """Chi-square with 3,000 runs of the mechanism; fixed seed."""
    rng, runs = np.random.default_rng(5), 3000
    law, _ = plan(TABLE, epsilon=4.0, fold=fold)
    drawn = [float(opdisc(TABLE, epsilon=4.0, fold=fold, rng=rng).value[0]) for _ in range(runs)]
    counts = [drawn.count(float(w)) for w in LINE.members[:, 0]]
    assert stats.chisquare(counts, runs * output_law(TABLE, law)).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["norm", "gaussian"])
def test_lengths_of_the_noise(kind):
    noise = LiftedNoise(kind, 2.0, 4, True)
    lengths = np.linalg.norm(noise.draw(np.random.default_rng(0), draws=50_000), axis=1)
    for tail in (0.5, 0.01):
        assert np.mean(lengths > noise.length(tail)) == pytest.approx(tail, abs=0.01)
    assert noise.draw(np.random.default_rng(0)).shape == (4,)


def test_reproducible_and_read_only_trace():
    first, again = (opdisc(TABLE, epsilon=1.0, rng=np.random.default_rng(8)) for _ in range(2))
    np.testing.assert_array_equal(first.value, again.value)
    np.testing.assert_array_equal(first.trace["noise"], again.trace["noise"])
    assert set(first.trace) == {"noise", "solution", "certified"}
    assert not first.public().trace
    first.value[0] = 9.0  # the release owns its value
    assert LINE.members.max() == 1.0


def test_integer_points_stay_integers():
    release = opdisc(halfspaces(), epsilon=1.0, rng=np.random.default_rng(1))
    assert release.value.dtype.kind == "i"
    assert halfspaces().space.contains(release.value)


# --- certificates -------------------------------------------------------------------------------------


def changed(**changes):
    """An oracle that enumerates and then answers something else."""

    def oracle(problem, costs):
        found = enumerate_members(problem, costs)
        return dataclasses.replace(found, **{k: v(found) if callable(v) else v for k, v in changes.items()})

    return oracle


@each_problem
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"point": lambda s: s.point + 0.125}, ValueError, "outside W"),
        ({"point": lambda s: s.point * 50}, ValueError, "outside W"),
        ({"point": lambda s: s.point[:0]}, ValueError, "outside W"),
        ({"point": lambda s: np.full(s.point.shape, np.nan)}, ValueError, "must be finite"),
        ({"point": lambda s: s.point[np.newaxis]}, ValueError, "outside W"),
        ({"objective": lambda s: s.objective - 1.0}, ValueError, "objective that is not that of its point"),
        ({"objective": math.nan}, ValueError, "objective that is not that of its point"),
        ({"objective": math.inf}, ValueError, "objective that is not that of its point"),
        ({"lower_bound": lambda s: s.objective + 1.0}, ValueError, "lower bound above"),
        ({"lower_bound": math.inf}, ValueError, "lower bound above"),
        ({"lower_bound": math.nan}, Uncertified, "nothing is released"),
        ({"lower_bound": -math.inf}, Uncertified, "nothing is released"),
        ({"lower_bound": lambda s: s.objective - GAP}, Uncertified, "nothing is released"),
        ({"lower_bound": lambda s: s.objective - 1.0}, Uncertified, "nothing is released"),
    ],
)
def test_a_broken_or_uncertain_oracle_releases_nothing(problem, changes, error, message):
    with pytest.raises(error, match=message):
        opdisc(problem, epsilon=1.0, oracle=changed(**changes), rng=np.random.default_rng(0))


@each_problem
def test_a_gap_below_the_allowed_one_is_accepted(problem):
    oracle = changed(lower_bound=lambda s: s.objective - 0.9 * GAP)
    assert opdisc(problem, epsilon=1.0, oracle=oracle, rng=np.random.default_rng(0)).trace["certified"]
    wide = changed(lower_bound=lambda s: s.objective - 0.9)
    opdisc(problem, epsilon=1.0, oracle=wide, gap=1.0, rng=np.random.default_rng(0))


@each_problem
def test_an_answer_far_from_the_best_is_seen_whatever_it_claims(problem):
    """A worse member with its own objective and the true bound: the gap is recomputed, not believed."""

    def worst(problem, costs):
        best = enumerate_members(problem, costs)
        values = {}
        points, losses = totals(problem)
        for place, w in enumerate(points):
            cost = (
                costs[place]
                if isinstance(problem, TableProblem)
                else problem.objective(w, costs) - losses[place]
            )
            values[place] = float(losses[place] + cost)
        place = max(values, key=values.get)
        return Solution(points[place], values[place], best.lower_bound)

    with pytest.raises(Uncertified):
        opdisc(problem, epsilon=1.0, oracle=worst, rng=np.random.default_rng(0))


@pytest.mark.parametrize("answer", [None, (np.zeros(1), 0.0), 1.0])
def test_an_oracle_must_answer_with_a_solution(answer):
    with pytest.raises(TypeError, match="oracle must return a Solution"):
        opdisc(TABLE, epsilon=1.0, oracle=lambda problem, costs: answer, rng=np.random.default_rng(0))


def test_certify_by_itself():
    costs = TABLE.lifted_costs(np.array([3.0, 1.0]))
    found = enumerate_members(TABLE, costs)
    np.testing.assert_array_equal(certify(TABLE, costs, found, gap=1e-6, length=3.2), found.point)
    with pytest.raises(Uncertified):
        certify(TABLE, costs, found, gap=1e-6, length=1e9)  # rounding could hide more than the gap


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(-2, 6).map(lambda x: 10.0**x))
def test_rounding_covers_what_rounding_does(seed, size):
    """The objective in double precision against extended precision."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 8))
    problem = halfspaces(d, 40, seed)
    eta = size * rng.normal(size=d + 1)
    costs, points = problem.lifted_costs(eta), problem.space.points()[:50]
    wide = points.astype(np.longdouble)
    last = np.sqrt(np.longdouble(d) - np.square(wide).sum(axis=1))
    exact = problem.errors(points) - (wide @ eta[:-1] + last * eta[-1]) / np.sqrt(np.longdouble(d))
    error = np.abs(problem.objective(points, costs) - exact).max()
    assert error <= rounding(problem, float(np.linalg.norm(eta)))


# --- the fallback -------------------------------------------------------------------------------------


def failing(problem, costs):
    raise Uncertified("out of time")


@each_problem
@pytest.mark.parametrize("oracle", [failing, changed(lower_bound=-math.inf)])
def test_without_a_fallback_a_failure_is_an_exception(problem, oracle):
    with pytest.raises(Uncertified):
        opdisc(problem, epsilon=1.0, oracle=oracle, rng=np.random.default_rng(0))


@each_problem
@each_noise
def test_with_a_fallback_the_guarantee_states_its_price(problem, noise, delta):
    member, phi = totals(problem)[0][0], 1e-3
    common = {"epsilon": 1.0, "delta": delta, "noise": noise, "rng": np.random.default_rng(0)}
    paid = opdisc(problem, oracle=failing, fallback=member, failure_bound=phi, **common)
    np.testing.assert_array_equal(paid.value, member)
    assert not paid.trace["certified"]
    plain = opdisc(problem, **common)
    assert paid.guarantee.epsilon == plain.guarantee.epsilon
    assert paid.guarantee.delta == pytest.approx(plain.guarantee.delta + (1 + math.e) * phi)
    assert "fallback" in paid.guarantee.source
    # The guarantee is that of the mechanism: the same where the oracle happens to succeed.
    lucky = opdisc(problem, fallback=member, failure_bound=phi, **common)
    assert lucky.guarantee == paid.guarantee
    assert lucky.trace["certified"]


def test_the_price_of_a_fallback_is_enough_and_of_the_right_size():
    """Exact laws of a tight pair; failures of probability phi fall where they hurt most."""
    two, epsilon, phi = PointSet([[-1.0], [1.0]]), 1.0, 0.02
    noise = LiftedNoise("norm", shift(two, gap=0.0) / epsilon, 2, False)
    p, q = (output_law(two, noise, total=[m, 0.0]) for m in (200.0, 202.0))
    allowed = (1 + math.exp(epsilon)) * phi
    for member in (0, 1):
        fallback = np.eye(2)[member]
        failed = p - phi * np.eye(2)[1 - member] + phi * fallback
        assert hockey_stick(failed, q, epsilon) <= allowed
        assert hockey_stick(q, failed, epsilon) <= allowed
    worst = p - phi * np.eye(2)[1] + phi * np.eye(2)[0]
    assert hockey_stick(worst, q, epsilon) > 0.95 * phi  # without a price the claim would be false


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fallback": [0.5]}, ValueError, "failure_bound must be declared"),
        ({"failure_bound": 0.1}, ValueError, "failure_bound goes with a fallback"),
        ({"fallback": [0.3], "failure_bound": 0.1}, ValueError, "fallback must be a member of W"),
        ({"fallback": [0.5, 0.5], "failure_bound": 0.1}, ValueError, "fallback must be a member of W"),
        ({"fallback": [math.nan], "failure_bound": 0.1}, ValueError, "fallback must be finite"),
        ({"fallback": [0.5], "failure_bound": -0.1}, ValueError, "failure_bound must lie"),
        ({"fallback": [0.5], "failure_bound": math.nan}, ValueError, "failure_bound must be finite"),
        ({"fallback": [0.5], "failure_bound": "no"}, TypeError, "failure_bound must be a real number"),
        ({"fallback": [0.5], "failure_bound": 0.5}, ValueError, "leaves no guarantee"),
        ({"epsilon": 800.0, "fallback": [0.5], "failure_bound": 1e-9}, ValueError, "leaves no guarantee"),
    ],
)
def test_bad_fallbacks(arguments, error, message):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    with pytest.raises(error, match=message):
        opdisc(TABLE, **{"epsilon": 1.0, "rng": rng, **arguments})
    assert rng.bit_generator.state == state


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": -1.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": math.nan}, ValueError, "epsilon must be finite"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be finite"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a real number"),
        ({"epsilon": 1e-12}, ValueError, "epsilon is too small"),
        ({"epsilon": 1e-99}, ValueError, "epsilon is too small"),
        ({"epsilon": 1e-300}, ValueError, "epsilon must lie between"),
        ({"noise": "gaussian"}, ValueError, "delta must be given"),
        ({"noise": "printed"}, ValueError, "delta must be given"),
        ({"noise": "gaussian", "delta": 0.0}, ValueError, "delta must lie strictly"),
        ({"noise": "gaussian", "delta": math.nan}, ValueError, "delta must be finite"),
        ({"noise": "gaussian", "delta": 1e-5, "epsilon": 1e-12}, ValueError, "epsilon is too small"),
        ({"delta": 1e-5}, ValueError, "delta must be None for norm noise"),
        ({"noise": "laplace"}, ValueError, "noise must be one of"),
        ({"gap": 0.0}, ValueError, "gap must be positive"),
        ({"gap": math.nan}, ValueError, "gap must be finite"),
        ({"gap": 1e-13}, ValueError, "too small"),
        ({"fold": 1}, TypeError, "fold must be True or False"),
        ({"oracle": None}, TypeError, "oracle must be callable"),
    ],
)
@each_problem
def test_bad_input_is_refused_before_noise_is_drawn(problem, arguments, error, message):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    asked = []

    def watching(problem, costs):
        asked.append(1)
        return enumerate_members(problem, costs)

    with pytest.raises(error, match=message):
        opdisc(problem, **{"epsilon": 1.0, "rng": rng, "oracle": watching, **arguments})
    assert rng.bit_generator.state == state
    assert not asked


@pytest.mark.parametrize("seed", [3, None, np.random.RandomState(3)])
def test_rng_must_be_a_generator(seed):
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        opdisc(TABLE, epsilon=1.0, rng=seed)


def test_the_problem_must_be_one():
    with pytest.raises(TypeError, match="problem must be"):
        opdisc(LINE, epsilon=1.0, rng=np.random.default_rng(0))


def test_a_wider_gap_allows_a_smaller_epsilon():
    """The limit is rounding beside the gap; what it refuses by default it takes when the gap is widened."""
    with pytest.raises(ValueError, match="epsilon is too small"):
        opdisc(TABLE, epsilon=1e-6, rng=np.random.default_rng(0))
    opdisc(TABLE, epsilon=1e-6, gap=1e-3, rng=np.random.default_rng(0))


def test_a_space_smaller_than_its_members_is_refused():
    with pytest.raises(ValueError, match="bound must be at least the largest norm"):
        PointSet(LINE.members, bound=0.9)
