"""The exact oracle in plain numpy: equal to full enumeration, whatever the costs, the ties and the group."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from adaptive_dp.oracle_perturbation import group_enumeration
from adaptive_dp.oracle_perturbation.flaws_programs import Listed
from adaptive_dp.oracle_perturbation.group_enumeration import (
    cheapest_by_squared_norm,
    check_group,
    enumerate_group,
    find_group,
)
from adaptive_dp.oracle_perturbation.problems import (
    TIES,
    GridCosts,
    ThresholdProblem,
    enumerate_members,
    rounding_allowance,
)
from adaptive_dp.oracle_perturbation.solver_comparison import adult_problem, opdisc_noise
from adaptive_dp.oracle_perturbation.spaces import IntegerBall


def random_problem(rng, tie, *, others=None, size=None):
    """Small integers, so that ties abound; the columns in random order, and which of them are the group."""
    others = int(rng.integers(0, 4)) if others is None else others
    size = int(rng.integers(1, 4)) if size is None else size
    d, n, unit = others + size, int(rng.integers(1, 40)), int(rng.integers(1, 4))
    radius = int(rng.integers(1, 8))
    box = int(rng.integers(1, math.isqrt(radius) + 1))
    hot = np.zeros((n, size + 1), dtype=int)
    hot[np.arange(n), rng.integers(0, size + 1, n)] = unit  # the last level has no column
    order = rng.permutation(d)
    features = np.column_stack([rng.integers(-3, 4, (n, others)), hot[:, :size]])[:, order]
    group = [int(np.flatnonzero(order == others + c)[0]) for c in range(size)]
    labels = rng.choice([-1, 1], n)
    return ThresholdProblem(features, labels, IntegerBall(d, box, radius), tie), group


def random_costs(rng, problem, kind):
    shapes = (problem.space.dimension, 2 * problem.space.box + 1), problem.space.squared_radius + 1
    if kind == "opdisc":
        return problem.lifted_costs(rng.normal(0, 3, problem.space.dimension + 1))
    if kind == "tables":
        return GridCosts(rng.normal(0, 2, shapes[0]), rng.normal(0, 2, shapes[1]))
    return GridCosts(rng.integers(-2, 3, shapes[0]), rng.integers(-1, 2, shapes[1]))  # ties of the objective


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("kind", ["opdisc", "tables", "integers"])
def test_equal_to_full_enumeration(tie, kind):
    rng = np.random.default_rng([1, TIES.index(tie), len(kind)])
    for _ in range(40):
        problem, group = random_problem(rng, tie)
        costs = random_costs(rng, problem, kind)
        truth = enumerate_members(problem, costs)
        found = enumerate_group(problem, costs, group=group)
        assert problem.space.contains(found.point)
        assert found.objective == pytest.approx(truth.objective, abs=1e-11)
        assert found.objective == float(problem.objective(found.point, costs))
        assert found.lower_bound <= truth.objective
        assert 0 <= found.gap < 1e-11


def test_both_signs_of_the_last_coordinate_and_separators():
    """OPDisc with a large last coordinate of either sign, and RSPM's tables: cost of +1 and of -1, none of 0."""
    rng = np.random.default_rng(2)
    for last in (-40.0, 40.0):
        problem, group = random_problem(rng, "error", others=2, size=3)
        costs = problem.lifted_costs(np.append(rng.normal(0, 3, 5), last))
        assert enumerate_group(problem, costs, group=group).objective == pytest.approx(
            enumerate_members(problem, costs).objective, abs=1e-11
        )
    labels = rng.choice([-1, 1], 30)
    features = np.column_stack([rng.integers(-3, 4, (30, 2)), np.eye(3, dtype=int)[rng.integers(0, 3, 30)]])
    problem = ThresholdProblem(features, labels, IntegerBall.signs(5), "plus")
    table = rng.laplace(0, 5, (5, 3))
    table[:, 1] = 0.0
    costs = GridCosts(table, np.zeros(6))
    assert enumerate_group(problem, costs).objective == pytest.approx(
        enumerate_members(problem, costs).objective, abs=1e-11
    )


def test_any_group_gives_the_same_minimum():
    """Found or named, whole or a part, even one column."""
    rng = np.random.default_rng(3)
    problem, group = random_problem(rng, "minus", others=2, size=3)
    costs = random_costs(rng, problem, "tables")
    truth = enumerate_members(problem, costs).objective
    for columns in (None, group, group[:2], group[1:], group[:1]):
        assert enumerate_group(problem, costs, group=columns).objective == pytest.approx(truth, abs=1e-11)
    assert enumerate_group(problem, costs, group=group).nodes < enumerate_members(problem, costs).nodes


def test_only_a_group():
    """No column outside: one weight is enumerated, the empty one."""
    rng = np.random.default_rng(4)
    problem, group = random_problem(rng, "error", others=0, size=3)
    costs = random_costs(rng, problem, "opdisc")
    found = enumerate_group(problem, costs, group=group)
    assert found.nodes == 1
    assert found.objective == pytest.approx(enumerate_members(problem, costs).objective, abs=1e-12)


def test_blocks_do_not_matter(monkeypatch):
    rng = np.random.default_rng(5)
    problem, group = random_problem(rng, "error", others=3, size=2)
    costs = random_costs(rng, problem, "opdisc")
    whole = enumerate_group(problem, costs, group=group)
    monkeypatch.setattr(group_enumeration, "BLOCK_ENTRIES", 3 * problem.records)
    parts = enumerate_group(problem, costs, group=group)
    assert np.array_equal(whole.point, parts.point)
    assert (whole.lower_bound, whole.nodes) == (parts.lower_bound, parts.nodes)


def test_the_lower_bound_holds_in_exact_arithmetic():
    """Costs from 1e-3 to 1e9, whose sums round: the bound against rational arithmetic over all members."""
    rng = np.random.default_rng(6)
    for _ in range(10):
        problem, group = random_problem(rng, "error", others=1, size=2)
        shapes = (3, 2 * problem.space.box + 1), problem.space.squared_radius + 1
        size = 10.0 ** rng.integers(-3, 9)
        costs = GridCosts(rng.normal(0, size, shapes[0]) / 10, rng.normal(0, 1, shapes[1]))
        exact = min(
            Fraction(int(problem.errors(w)))
            + sum(Fraction(float(costs.per_value[j, w[j] + problem.space.box])) for j in range(3))
            + Fraction(float(costs.per_squared_norm[int(w @ w)]))
            for w in problem.space.points()
        )
        found = enumerate_group(problem, costs, group=group)
        assert Fraction(found.lower_bound) <= exact
        assert Fraction(found.objective) - exact <= Fraction(found.gap)
        assert found.gap <= 2 * rounding_allowance(problem, costs)


def test_adult_at_the_size_of_the_page():
    """n = 2,000, 21,697 members, OPDisc's noise with a last coordinate of both signs."""
    problem = adult_problem(8, records=2_000)
    noise = opdisc_noise(problem, 1.0, np.random.default_rng(7), draws=6)
    assert len(set(np.sign(noise[:, -1]))) == 2
    listed = Listed(problem)
    for eta in noise:
        found = enumerate_group(problem, problem.lifted_costs(eta))
        objective = listed.errors("error") - listed.lifted @ eta
        assert found.objective == pytest.approx(float(objective.min()), abs=1e-9)
        assert found.gap < 1e-9
        assert found.nodes == 25


def test_ten_columns_take_569_weights():
    """The teaching size; the answer is below that of every neighbour on the grid and of 20,000 random members."""
    problem = adult_problem(10, records=2_000, tie="plus")
    rng = np.random.default_rng(8)
    costs = problem.lifted_costs(opdisc_noise(problem, 4.0, rng, draws=1)[0])
    found = enumerate_group(problem, costs)
    assert (found.nodes, problem.space.dimension) == (569, 10)
    members = rng.integers(-1, 2, (20_000, 10))
    steps = found.point + np.concatenate([np.eye(10, dtype=int), -np.eye(10, dtype=int)])
    tried = [w for w in (*steps, *members[:2_000]) if problem.space.contains(w)]
    assert problem.objective(np.array(tried), costs).min() >= found.lower_bound


def test_knapsack_over_the_squared_norm():
    """Against all combinations of values."""
    rng = np.random.default_rng(9)
    values = np.arange(-2, 3)
    table = rng.normal(size=(4, 3, 5))
    cheapest = cheapest_by_squared_norm(table, values, 6)
    grid = np.stack(np.meshgrid(*[values] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    for block in range(4):
        sums = table[block, np.arange(3), grid + 2].sum(axis=1)
        for k in range(7):
            of_norm = sums[np.sum(grid**2, axis=1) == k]
            expected = of_norm.min() if of_norm.size else math.inf
            assert cheapest[block, -1, k] == pytest.approx(expected, abs=1e-12)


def test_find_group_finds_the_largest_of_several():
    rng = np.random.default_rng(10)
    three, five = np.eye(3)[rng.integers(0, 3, 60)], np.eye(5)[rng.integers(0, 5, 60)]
    empty, numbers = np.zeros((60, 1)), rng.integers(-5, 6, (60, 2))
    features = np.hstack([numbers, 1000 * three, 1000 * five, empty]).astype(np.int16)
    # The column without entries fits as well.
    assert find_group(features) == (5, 6, 7, 8, 9, 10)
    assert check_group(features, (2, 3, 4)) == (2, 3, 4)


@pytest.mark.parametrize(
    ("features", "group", "message"),
    [
        ([[1, 1], [1, 0]], (0, 1), "one-hot: record 0 has 2"),
        ([[1, 0], [0, 2]], (0, 1), "one positive entry"),
        ([[-1, 0], [0, -1]], (0, 1), "one positive entry"),
        ([[1, 0], [0, 1]], (), "different columns from 0 to 1"),
        ([[1, 0], [0, 1]], (0, 0), "different columns"),
        ([[1, 0], [0, 1]], (0, 2), "different columns"),
        ([[1, 0], [0, 1]], (-1,), "group must be at least 0"),
    ],
)
def test_what_is_no_group_is_refused(features, group, message):
    problem = ThresholdProblem(features, [1, -1], IntegerBall(2, 1, 2))
    costs = problem.lifted_costs(np.zeros(3))
    with pytest.raises(ValueError, match=message):
        enumerate_group(problem, costs, group=group)


def test_other_bad_input():
    problem = ThresholdProblem([[1, -2], [-1, 1]], [1, -1], IntegerBall(2, 1, 2))
    costs = problem.lifted_costs(np.zeros(3))
    with pytest.raises(ValueError, match="must have a column of indicators"):
        enumerate_group(problem, costs)
    with pytest.raises(TypeError, match="ThresholdProblem"):
        enumerate_group("problem", costs)
    with pytest.raises(TypeError, match="GridCosts"):
        enumerate_group(problem, np.zeros(3))
    with pytest.raises(ValueError, match="per_value must have shape"):
        enumerate_group(problem, GridCosts(np.zeros((2, 5)), np.zeros(3)))
    with pytest.raises(TypeError, match="group must be an integer"):
        enumerate_group(problem, costs, group=(0.5,))


def test_too_many_weights_are_refused():
    """Four groups of indicators: what is outside the largest cannot be listed."""
    problem = adult_problem(23, records=200)
    with pytest.raises(ValueError, match="weights to enumerate"):
        enumerate_group(problem, problem.lifted_costs(np.zeros(24)))
