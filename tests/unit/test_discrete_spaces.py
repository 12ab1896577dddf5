"""Finite spaces, their lift, and the two kinds of problem over them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_dp.oracle_perturbation.problems import (
    GridCosts,
    Solution,
    TableProblem,
    ThresholdProblem,
    enumerate_members,
    integer_features,
)
from adaptive_dp.oracle_perturbation.spaces import FiniteSpace, IntegerBall, PointSet, lift


def members_by_product(space: IntegerBall) -> np.ndarray:
    """The same set from the definition."""
    every = np.array(list(itertools.product(range(-space.box, space.box + 1), repeat=space.dimension)))
    return every[(every**2).sum(axis=1) <= space.squared_radius]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 6))
def test_members_of_a_ball_are_those_of_the_definition(dimension, box, extra):
    space = IntegerBall(dimension, box, box * box + extra)
    expected = members_by_product(space)
    np.testing.assert_array_equal(space.points(), expected)
    assert space.size == len(expected)
    assert all(space.contains(point) for point in expected)
    assert np.linalg.norm(expected, axis=1).max() <= space.radius


def test_spaces_of_the_experiments():
    ours, theirs = IntegerBall.halfspaces(23), IntegerBall.signs(23)
    assert (ours.box, ours.squared_radius, theirs.box) == (4, 23, 1)
    assert theirs.size == 3**23
    assert IntegerBall.signs(5).points().shape == (243, 5)
    assert isinstance(ours, FiniteSpace)
    assert isinstance(PointSet(np.array([[0.0], [1.0]])), FiniteSpace)
    with pytest.raises(ValueError, match="too many to list"):
        ours.points()
    assert not ours.contains([5.0] + [0.0] * 22)
    assert not ours.contains([0.5] + [0.0] * 22)
    assert not ours.contains([0.0] * 22)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.floats(1.0, 3.0), st.integers(0, 10**6))
def test_lift_reaches_the_sphere_and_keeps_distances(dimension, slack, seed):
    points = np.random.default_rng(seed).normal(size=(12, dimension))
    radius = slack * float(np.linalg.norm(points, axis=1).max())
    lifted = lift(points, radius)
    np.testing.assert_allclose(np.linalg.norm(lifted, axis=1), 1.0, rtol=1e-12)
    assert (lifted[:, -1] >= 0).all()
    before = np.linalg.norm(points[:, None] - points[None], axis=2)
    after = np.linalg.norm(lifted[:, None] - lifted[None], axis=2)
    assert (after >= before / radius * (1 - 1e-9)).all()


def test_members_on_the_rim_have_no_height():
    for squared in (2, 3, 5, 6, 23):
        space = IntegerBall(min(squared, 5), 1, squared)
        members = space.points()
        on_rim = (members**2).sum(axis=1) == squared
        heights = lift(members, space.radius)[:, -1]
        np.testing.assert_array_equal(heights[on_rim], 0.0)
        assert (heights[~on_rim] > 0.1).all()


def test_separation_and_radius_of_a_list():
    space = PointSet(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), bound=7.0)
    assert (space.separation, space.radius, space.dimension, space.size) == (1.0, 7.0, 2, 3)
    assert PointSet(np.array([[0.0, 0.0], [3.0, 4.0]])).radius == 5.0


@pytest.mark.parametrize(
    ("members", "bound", "message"),
    [
        ([[0.0], [0.0]], None, "members must be different points"),
        ([[0.0]], None, "members must be at least two points"),
        (np.zeros((0, 2)), None, "members must be at least two points"),
        ([[0.0], [2.0]], 1.5, "bound must be at least the largest norm 2"),
        ([[0.0], [np.nan]], None, "members must be finite"),
    ],
)
def test_impossible_lists_are_refused(members, bound, message):
    with pytest.raises(ValueError, match=message):
        PointSet(np.asarray(members), bound=bound)


def test_impossible_balls_and_lifts_are_refused():
    with pytest.raises(ValueError, match="box must be at most 2"):
        IntegerBall(3, 3, 8)
    with pytest.raises(ValueError, match="squared_radius must be at least 1"):
        IntegerBall(3, 1, 0)
    with pytest.raises(TypeError, match="dimension must be an integer"):
        IntegerBall(2.0, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="radius must be at least the largest norm 5"):
        lift([[3.0, 4.0]], 4.9)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["error", "plus", "minus"]), st.integers(0, 10**6))
def test_errors_follow_the_tie_rule(tie, seed):
    rng = np.random.default_rng(seed)
    space = IntegerBall.halfspaces(3)
    x, y = rng.integers(-2, 3, (30, 3)), rng.choice([-1, 1], 30)
    problem = ThresholdProblem(x, y, space, tie)
    for w in space.points():
        sign_at_tie = {"error": 0, "plus": 1, "minus": -1}[tie]
        predicted = np.where(x @ w == 0, sign_at_tie, np.sign(x @ w))
        assert problem.errors(w) == (predicted != y).sum()
    assert problem.accuracy(space.points()).max() <= 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_lifted_costs_are_the_inner_product_for_either_sign(seed):
    rng = np.random.default_rng(seed)
    space = IntegerBall(3, 1, 4)
    problem = ThresholdProblem(rng.integers(-2, 3, (10, 3)), rng.choice([-1, 1], 10), space)
    noise = rng.normal(scale=5.0, size=4)
    members = space.points()
    expected = problem.errors(members) - lift(members, space.radius) @ noise
    np.testing.assert_allclose(problem.objective(members, problem.lifted_costs(noise)), expected, atol=1e-9)
    listed = PointSet(members.astype(float), bound=space.radius)
    losses = np.array(
        [
            ThresholdProblem(x[None], y[None], space).errors(members)
            for x, y in zip(problem.features, problem.labels, strict=True)
        ],
        dtype=float,
    )
    table = TableProblem(losses, listed)
    one = enumerate_members(problem, problem.lifted_costs(noise))
    other = enumerate_members(table, table.lifted_costs(noise))
    np.testing.assert_array_equal(one.point, other.point)
    assert one.objective == pytest.approx(other.objective)
    assert one.gap < 1e-12


def test_gap_of_an_answer_without_a_bound_is_infinite():
    assert Solution(np.zeros(1), 1.0, np.nan).gap == np.inf
    assert Solution(np.zeros(1), 1.0, -np.inf).gap == np.inf
    assert Solution(np.zeros(1), 1.0, 1.5).gap == 0.0


GOOD = {"features": [[1, 2], [0, -1]], "labels": [1, -1], "space": IntegerBall.halfspaces(2)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"features": [[0.5, 1], [1, 1]]}, ValueError, "features must be whole numbers"),
        ({"features": [[20_000, 20_000], [1, 1]]}, ValueError, "features must keep scores"),
        ({"features": [[1, 2, 3], [1, 2, 3]]}, ValueError, "features must have 2 columns"),
        ({"features": [[1, np.inf], [1, 1]]}, ValueError, "features must be finite"),
        ({"labels": [1, 0]}, ValueError, "labels must be -1 or"),
        ({"labels": [1, -1, 1]}, ValueError, "labels must have one entry a record"),
        ({"features": np.zeros((0, 2)), "labels": []}, ValueError, "labels must have one entry a record"),
        ({"features": np.ones((65_535, 2)), "labels": np.ones(65_535)}, ValueError, "at most 65534 rows"),
        ({"tie": "zero"}, ValueError, "tie must be one of"),
        ({"space": PointSet(np.eye(2))}, TypeError, "space must be an IntegerBall"),
    ],
)
def test_impossible_threshold_problems_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        ThresholdProblem(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("losses", "lipschitz", "message"),
    [
        ([[0.0, 1.5]], None, r"losses must lie in \[0, 1\]"),
        ([[0.0, 2.0]], 1.0, "record 0 breaks lipschitz = 1"),
        ([[0.0, 1.0, 0.0]], None, r"losses must have shape \(n, 2\)"),
        (np.zeros((0, 2)), None, r"losses must have shape \(n, 2\)"),
        ([[0.0, 1.0]], -1.0, "lipschitz must be positive"),
    ],
)
def test_impossible_tables_are_refused(losses, lipschitz, message):
    with pytest.raises(ValueError, match=message):
        TableProblem(np.asarray(losses), PointSet(np.array([[0.0], [1.0]])), lipschitz)


def test_costs_must_fit_and_leave_room_for_counts():
    problem = ThresholdProblem(**GOOD)
    with pytest.raises(ValueError, match="per_value must have shape"):
        problem.check_costs(GridCosts(np.zeros((2, 5)), np.zeros(3)))
    with pytest.raises(ValueError, match="per_squared_norm must have shape"):
        problem.check_costs(GridCosts(np.zeros((2, 3)), np.zeros(4)))
    with pytest.raises(ValueError, match="per_value must stay within"):
        GridCosts(np.full((2, 3), 1e12), np.zeros(3))
    with pytest.raises(ValueError, match="noise must have 3 entries, got 2"):
        problem.lifted_costs([1.0, 2.0])
    with pytest.raises(TypeError, match="costs must be GridCosts"):
        problem.check_costs(np.zeros(3))  # type: ignore[arg-type]
    table = TableProblem(np.array([[0.0, 1.0]]), PointSet(np.array([[0.0], [1.0]])))
    with pytest.raises(ValueError, match="costs must have one entry a member"):
        table.check_costs(np.zeros(3))
    with pytest.raises(ValueError, match="noise must have 2 entries"):
        table.lifted_costs(np.zeros(3))


def test_features_are_rounded_on_a_public_grid():
    np.testing.assert_array_equal(integer_features([[0.1234, -1.0]], 1000), [[123, -1000]])
    with pytest.raises(ValueError, match=r"features must lie in \[-1, 1\], got -1.5"):
        integer_features([[0.1, -1.5]])
    with pytest.raises(ValueError, match="grid must be at least 1, got 0"):
        integer_features([[0.1]], 0)
    with pytest.raises(ValueError, match="grid must lie between 1 and 10000"):
        integer_features([[0.1]], 20_000)
    with pytest.raises(TypeError, match="grid must be an integer"):
        integer_features([[0.1]], 1.5)  # type: ignore[arg-type]


def test_points_are_not_cut_off_to_whole_numbers():
    problem = ThresholdProblem(**GOOD)
    with pytest.raises(ValueError, match="points must be whole numbers"):
        problem.errors([[0.9, -0.9]])
    with pytest.raises(ValueError, match="points must have 2 coordinates"):
        problem.errors([1, 1, 1])
    costs = problem.lifted_costs(np.ones(3))
    with pytest.raises(ValueError, match="points must be members of the space"):
        problem.objective([2, 0], costs)
    assert problem.errors([[1.0, 0.0]]).shape == (1,)


def test_a_tiny_lipschitz_constant_is_checked_too():
    """Noise is proportional to the declared constant: an absolute slack would be unbounded loss of privacy."""
    pair = PointSet(np.array([[-1.0], [1.0]]))
    for losses in ([[0.0, 9e-10]], [[9e-10, 0.0]]):
        with pytest.raises(ValueError, match="breaks lipschitz"):
            TableProblem(np.array(losses), pair, lipschitz=1e-12)
    fine = TableProblem(np.array([[0.0, 2e-12]]), pair, lipschitz=1e-12)
    assert fine.total[1] == pytest.approx(2e-12)


def test_totals_of_unbounded_losses_are_differences_and_cannot_be_written():
    pair = PointSet(np.array([[-1.0], [1.0]]))
    large = TableProblem(np.array([[0.0, 1.0], [1e12, 1e12]]), pair, lipschitz=1.0)
    np.testing.assert_array_equal(large.total, [0.0, 1.0])
    with pytest.raises(ValueError, match="read-only"):
        large.total[0] = 1.0


def test_spaces_of_impossible_size_are_refused_at_once():
    with pytest.raises(ValueError, match="squared_radius must be at most 1000000"):
        IntegerBall(2, 1, 10**7)
    for members in ([[0.0], [1e-120]], [[0.0], [1e120]], [[-1e200], [1e200]]):
        with pytest.raises(ValueError, match=r"distance between members|largest norm of members"):
            PointSet(np.array(members))
