"""The certified oracle: branch and bound against enumeration, with its certificate checked in exact arithmetic."""

from __future__ import annotations

import _thread
import functools
import itertools
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest

from adaptive_dp.datasets import load_adult
from adaptive_dp.noise import norm_exponential
from adaptive_dp.oracle_perturbation import branch_and_bound_kernels as kernels
from adaptive_dp.oracle_perturbation import branch_and_bound_plan
from adaptive_dp.oracle_perturbation.branch_and_bound import BranchAndBound, branch_and_bound
from adaptive_dp.oracle_perturbation.branch_and_bound_kernels import TOLERANCE, Work, compiled
from adaptive_dp.oracle_perturbation.branch_and_bound_plan import (
    largest_sums,
    make_plan,
    make_prices,
    most_even_group,
    one_hot_groups,
)
from adaptive_dp.oracle_perturbation.branch_and_bound_tables import (
    certificate_table,
    difficulty_table,
    halfspaces_on,
    oracle_sizes,
)
from adaptive_dp.oracle_perturbation.problems import (
    LARGEST_COUNT,
    LARGEST_SCORE,
    TIES,
    GridCosts,
    TableProblem,
    ThresholdProblem,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, PointSet

# Spaces of few members, small boxes and large ones; the last two have more squared norms than the tables have budgets.
SPACES = (
    *(IntegerBall.halfspaces(d) for d in (1, 2, 3, 4, 5, 6)),
    *(IntegerBall.signs(d) for d in (1, 3, 5)),
    IntegerBall(4, 1, 2),
    IntegerBall(3, 2, 11),
    IntegerBall(2, 8, 65),
    IntegerBall(3, 5, 67),
)


def random_problem(rng: np.random.Generator, space: IntegerBall, tie: str) -> ThresholdProblem:
    """Few different records and many ties: numeric columns, groups of indicators, loose indicators, empty columns."""
    n, d = int(rng.integers(1, 80)), space.dimension
    unit = int(rng.integers(1, 4))
    columns: list[np.ndarray] = []
    while len(columns) < d:
        kind = rng.choice(["numeric", "group", "indicator", "other unit", "empty", "negative"])
        if kind == "numeric":
            columns.append(rng.integers(-3, 4, n))
        elif kind == "group":
            level = rng.integers(0, 5, n)
            columns += [unit * (level == c) for c in range(rng.integers(1, 5))]
        elif kind == "indicator":
            columns.append(unit * rng.integers(0, 2, n))
        elif kind == "other unit":
            columns.append((unit + 1) * rng.integers(0, 2, n))
        elif kind == "negative":
            columns.append(-unit * rng.integers(0, 2, n))
        else:
            columns.append(np.zeros(n, dtype=np.int64))
    features = np.stack(columns[:d], axis=1)[:, rng.permutation(d)]
    labels = np.where(features.sum(axis=1) + rng.normal(scale=3, size=n) > 0, 1, -1)
    return ThresholdProblem(features, labels, space, tie)


def random_costs(rng: np.random.Generator, space: IntegerBall) -> GridCosts:
    """None, small, of the size of the loss, or larger; whole numbers, so that members tie, or not."""
    size, norm_size = rng.choice([0.0, 0.3, 3.0, 30.0], size=2)
    per_value = size * rng.normal(size=(space.dimension, 2 * space.box + 1))
    per_squared_norm = norm_size * rng.normal(size=space.squared_radius + 1)
    if rng.random() < 0.4:
        per_value, per_squared_norm = np.rint(per_value), np.rint(per_squared_norm)
    return GridCosts(per_value, per_squared_norm)


def random_oracle(rng: np.random.Generator, problem: ThresholdProblem) -> BranchAndBound:
    """Choices left to the oracle, a group or none named, any order."""
    groups = one_hot_groups(problem.features)
    choice = rng.choice(["auto", "none", "part"])
    eliminate: tuple[int, ...] | None = None
    if choice == "none":
        eliminate = ()
    elif choice == "part" and groups:
        group = groups[rng.integers(len(groups))]
        eliminate = group[: rng.integers(1, len(group) + 1)]
    rest = np.setdiff1d(np.arange(problem.space.dimension), eliminate or ())
    order = rng.permutation(rest) if eliminate is not None and rng.random() < 0.5 else None
    return BranchAndBound(problem, eliminate=eliminate, order=order)


def cases(count: int, seed: int):
    for case in range(count):
        rng = np.random.default_rng([seed, case])
        space = SPACES[case % len(SPACES)]
        problem = random_problem(rng, space, TIES[case % 3])
        yield rng, problem, random_costs(rng, space)


def exact_minimum(problem: ThresholdProblem, costs: GridCosts) -> Fraction:
    """The minimum in rational arithmetic: doubles are rational numbers."""
    box = problem.space.box
    points = problem.space.points()
    errors = problem.errors(points)
    return min(
        Fraction(int(loss))
        + sum((Fraction(costs.per_value[j, w + box]) for j, w in enumerate(point)), Fraction(0))
        + Fraction(costs.per_squared_norm[int(np.sum(point**2))])
        for point, loss in zip(points, errors, strict=True)
    )


@functools.cache
def adult(columns: str) -> ThresholdProblem:
    return halfspaces_on(load_adult("neel", columns=columns, scaling="none"))


def test_optimum_equals_enumeration():
    for rng, problem, costs in cases(520, 1):
        expected = enumerate_members(problem, costs)
        oracle = random_oracle(rng, problem)
        answer = oracle.solve(costs)
        assert answer.objective == pytest.approx(expected.objective, abs=2e-7)
        assert answer.objective == problem.objective(answer.point, costs)
        assert problem.space.contains(answer.point)
        assert answer.lower_bound <= expected.objective + 1e-12
        assert answer.gap < 2e-7
        # Warm: from the optimum, and from any other member.
        members = problem.space.points()
        for start in (answer.point, members[rng.integers(len(members))]):
            warm = oracle.solve(costs, start=start)
            assert warm.objective == pytest.approx(expected.objective, abs=2e-7)
            assert warm.gap < 2e-7


def test_bounds_of_both_stages_are_bounds():
    # Of every node, also of those that a search would never visit; exact at the leaves.
    for _, problem, costs in cases(39, 13):
        plan = make_plan(problem, None, None)
        prices, ball = make_prices(plan, costs), plan.ball
        members = problem.space.points()
        values = problem.objective(members, costs)
        columns = [*plan.first, *plan.second]
        work = Work(
            np.zeros((len(plan.group) + 1, 2 * ball.box + 1), dtype=np.int64),
            np.zeros(ball.squared_radius + 1),
            np.zeros(ball.squared_radius + 1),
        )
        losses = np.zeros(plan.loss_shape, dtype=np.uint16)
        changes = np.zeros((plan.loss_shape[1], plan.loss_shape[2] + 1), dtype=np.int64)
        for level in range(len(columns) + 1):
            prefixes, place = np.unique(members[:, columns[:level]], axis=0, return_inverse=True)
            least = np.full(len(prefixes), np.inf)
            np.minimum.at(least, place.reshape(-1), values)
            for prefix, minimum in zip(prefixes[:60], least, strict=False):
                head, tail = prefix[: len(plan.first)], prefix[len(plan.first) :]
                used = int(np.sum(prefix**2))
                margins = (head @ plan.records.margins[: head.size]).astype(np.int16)
                spent = prices.first[np.arange(head.size), head + ball.box].sum()
                if level <= len(plan.first):
                    bound = spent + kernels.bound_records(
                        plan.records, ball, margins, level, used, prices.first_tail
                    )
                    assert bound <= minimum + 1e-9
                if level == len(columns) == len(plan.first) and not plan.group:
                    assert bound == pytest.approx(minimum, abs=1e-9)
                if level >= len(plan.first) and plan.loss_shape[1]:
                    kernels.fill_losses(plan.records, plan.patterns, ball, margins, losses, changes)
                    sums = tail @ plan.patterns.member[: tail.size].astype(np.int64)
                    spent += prices.second[np.arange(tail.size), tail + ball.box].sum()
                    bound = spent + kernels.bound_patterns(
                        plan.patterns, prices, ball, losses, sums, tail.size, used, work
                    )
                    assert bound <= minimum + 1e-9
                    if level == len(columns):
                        assert bound == pytest.approx(minimum, abs=1e-9)


def test_rescue_tables_are_upper_bounds():
    # Tight where each squared norm has its budget; rounded up, and never down, where it has not.
    rng = np.random.default_rng(14)
    for space in (IntegerBall.halfspaces(3), IntegerBall(3, 3, 11), IntegerBall(3, 8, 65)):
        features = rng.integers(-9, 10, size=(12, 3))
        records = make_plan(ThresholdProblem(features, np.ones(12), space), (), (0, 1, 2)).records
        assert records.step == (2 if space.squared_radius > 64 else 1)
        points, size = space.points(), np.abs(np.unique(features, axis=0))
        for t, s in itertools.product(range(4), range(records.rescue.shape[1])):
            reached = points[np.square(points[:, t:]).sum(axis=1) <= s * records.step]
            exact = (np.abs(reached[:, t:]) @ size[:, t:].T).max(axis=0)
            assert (records.rescue[t, s] >= exact).all()
            if records.step == 1:
                assert np.array_equal(records.rescue[t, s], exact)


def test_budget_is_rounded_up():
    # Squared norm 16 is used, 49 is left: the second weight may be 7, which rescues the record, while 6 does not.
    problem = ThresholdProblem([[-17, 10]], [1], IntegerBall(2, 8, 65))
    plan = make_plan(problem, (), (0, 1))
    margins = np.array([4 * -17], dtype=np.int16)
    assert plan.records.step == 2
    assert kernels.bound_records(plan.records, plan.ball, margins, 1, 16, np.zeros((3, 66))) == 0
    assert problem.errors([4, 7]) == 0
    assert problem.errors([4, 6]) == 1


def test_bound_holds_wherever_the_search_stops():
    open_gaps = 0
    for rng, problem, costs in cases(130, 2):
        minimum = enumerate_members(problem, costs).objective
        oracle = random_oracle(rng, problem)
        whole = oracle.solve(costs).nodes
        for budget in sorted({1, 2, 5, 20, max(1, whole // 2), whole}):
            answer = oracle.solve(costs, max_nodes=budget)
            assert answer.lower_bound <= minimum + 1e-12
            assert answer.objective >= minimum - 1e-9
            # A node is looked at with all its children.
            assert answer.nodes <= budget + 2 * problem.space.box
            open_gaps += answer.gap > 1e-3
        assert oracle.solve(costs, max_nodes=whole).gap < 2e-7
    assert open_gaps > 50


def test_bound_holds_in_portions(monkeypatch):
    # So few leaves at a time that the first stage is left and resumed, with every kind of stop.
    monkeypatch.setattr("adaptive_dp.oracle_perturbation.branch_and_bound.LEAVES", 1)
    for rng, problem, costs in cases(65, 3):
        minimum = enumerate_members(problem, costs).objective
        oracle = random_oracle(rng, problem)
        assert oracle.solve(costs).objective == pytest.approx(minimum, abs=2e-7)
        for budget in (1, 10, 40, 100):
            assert oracle.solve(costs, max_nodes=budget).lower_bound <= minimum + 1e-12


@pytest.mark.parametrize("size", [1.0, 1e4, 1e9])
def test_certificate_survives_rounding(size):
    # Costs up to the largest allowed, of one sign and of both, against the minimum in exact arithmetic.
    for case in range(6):
        rng = np.random.default_rng([4, case])
        problem = random_problem(rng, IntegerBall.halfspaces(4), TIES[case % 3])
        shift = (case % 2) * 0.5
        costs = GridCosts(
            size * (rng.uniform(-0.5, 0.5, size=(4, 5)) + shift), size * rng.uniform(-1, 1, size=5)
        )
        minimum = exact_minimum(problem, costs)
        answer = branch_and_bound(problem, costs)
        # The tolerance is below half a unit in the last place of the largest costs: the allowance has to do the work.
        assert Fraction(answer.lower_bound) <= minimum
        assert answer.gap <= 2 * TOLERANCE + 1e-13 * size
        assert Fraction(answer.objective) >= minimum - Fraction(1e-14 * size)


def test_answer_is_a_function_of_problem_and_costs():
    for rng, problem, costs in cases(26, 5):
        oracle = random_oracle(rng, problem)
        first = oracle.solve(costs)
        oracle.solve(random_costs(rng, problem.space))
        for again in (oracle.solve(costs), pickle.loads(pickle.dumps(oracle)).solve(costs)):
            assert np.array_equal(first.point, again.point)
            assert (first.objective, first.lower_bound, first.nodes) == (
                again.objective,
                again.lower_bound,
                again.nodes,
            )


def test_adult_parts_equal_enumeration():
    for columns, chosen in (
        ("code", ("hours_per_week", "capital_loss", "relationship")),
        ("regression", ("age", "education_num", "race", "sex")),
    ):
        data = load_adult("neel", columns=columns, scaling="none")
        for records, tie in ((60, "error"), (300, "plus")):
            problem = halfspaces_on(data, features=chosen, records=records, tie=tie)
            d = problem.space.dimension
            space = IntegerBall(d, 2, 5)
            problem = ThresholdProblem(problem.features, problem.labels, space, tie)
            oracle = BranchAndBound(problem)
            for scale in (0.0, 2.0, 20.0):
                costs = problem.lifted_costs(scale * np.random.default_rng(d).normal(size=d + 1))
                expected = enumerate_members(problem, costs)
                answer = oracle(problem, costs)
                assert answer.objective == pytest.approx(expected.objective, abs=2e-7)
                assert answer.lower_bound <= expected.objective


@pytest.mark.parametrize("columns", ["code", "regression"])
def test_paper_size_does_not_depend_on_the_search(columns):
    # 23 columns and 15,682 records: three different trees, one optimum.
    problem = adult(columns)
    groups = [group for group in one_hot_groups(problem.features) if len(group) > 5]
    assert [len(group) for group in groups] == [7, 6]
    noise = np.random.default_rng(6).normal(size=24) * 300
    for costs in (problem.lifted_costs(noise), problem.lifted_costs(0 * noise)):
        answers = [BranchAndBound(problem, eliminate=group).solve(costs) for group in groups]
        assert all(answer.gap < 2e-7 for answer in answers)
        assert answers[0].objective == pytest.approx(answers[1].objective, abs=2e-7)
        stopped = BranchAndBound(problem).solve(costs, max_nodes=1000)
        assert stopped.lower_bound <= answers[0].objective <= stopped.objective + 2e-7
    assert BranchAndBound(problem).merged[1] == 182


def test_separator_noise_at_paper_size():
    problem = halfspaces_on(load_adult("neel", scaling="none"), space=IntegerBall.signs(23), features=None)
    rng = np.random.default_rng(7)
    per_value = rng.laplace(scale=92.0, size=(23, 3)) * [1, 0, 1]
    costs = GridCosts(per_value, np.zeros(24))
    groups = [group for group in one_hot_groups(problem.features) if len(group) > 5]
    first, second = (BranchAndBound(problem, eliminate=group).solve(costs) for group in groups)
    assert first.objective == pytest.approx(second.objective, abs=2e-7)
    assert np.abs(first.point).max() == 1


def test_counts_reach_the_largest_number_of_records():
    # 16-bit counts: all records alike, with one that is not.
    features = np.full((LARGEST_COUNT, 2), (3, 1))
    features[0] = (-1, 1)
    problem = ThresholdProblem(features, np.ones(LARGEST_COUNT), IntegerBall.halfspaces(2))
    costs = GridCosts(np.array([[0.0, 5.0, 5.0], [0.0, 0.0, 1.0]]), np.zeros(3))
    expected = enumerate_members(problem, costs)
    answer = branch_and_bound(problem, costs)
    assert answer.objective == expected.objective
    assert BranchAndBound(problem).merged == (2, 1)
    # Everything is lost at the only point that the costs leave open.
    costs = GridCosts(np.array([[0.0, 1e6, 1e6], [1e6, 0.0, 1e6]]), np.zeros(3))
    assert branch_and_bound(problem, costs).objective == LARGEST_COUNT - 1


def test_scores_reach_the_largest_number():
    # As large as 16 bits allow, and more squared norms than budgets: tables are rounded up beyond the largest score.
    rng = np.random.default_rng(8)
    for space in (IntegerBall(2, 10, 100), IntegerBall(2, 7, 99)):
        largest = int(LARGEST_SCORE / (space.radius + space.box))
        small = rng.integers(-largest // 2, largest // 2, size=(40, 2))
        features = np.concatenate([largest * np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]), small])
        for tie, scale in itertools.product(TIES, (0.0, 10.0)):
            problem = ThresholdProblem(features, rng.choice([-1, 1], 44), space, tie)
            costs = problem.lifted_costs(scale * rng.normal(size=3))
            expected = enumerate_members(problem, costs).objective
            assert branch_and_bound(problem, costs).objective == pytest.approx(expected, abs=2e-7)


def test_groups_of_coded_categories_are_found():
    rng = np.random.default_rng(9)
    first, second = rng.integers(0, 4, 200), rng.integers(0, 3, 200)
    features = np.column_stack(
        [
            7 * (first[:, np.newaxis] == np.arange(4)),
            rng.integers(-5, 6, 200),
            7 * (second[:, np.newaxis] == [0, 1]),
        ]
    )
    assert one_hot_groups(features) == [(0, 1, 2, 3), (5, 6)]
    # Four even parts beat three.
    assert most_even_group(features, [(0, 1, 2, 3), (5, 6)]) == (0, 1, 2, 3)
    assert one_hot_groups(features[:, [4]]) == []
    assert most_even_group(features, []) == ()
    # Indicators with another entry belong to no group, and are branched on first like numbers.
    mixed = np.column_stack([features, 3 * (second == 2)])
    problem = ThresholdProblem(mixed, rng.choice([-1, 1], 200), IntegerBall.halfspaces(8))
    oracle = BranchAndBound(problem)
    assert oracle.eliminated == (0, 1, 2, 3)
    assert set(oracle.stages[0]) == {4, 7}
    assert set(oracle.stages[1]) == {5, 6}
    assert BranchAndBound(problem, eliminate=(5, 6), order=[7, 4, 3, 2, 1, 0]).stages == (
        (7, 4),
        (3, 2, 1, 0),
    )


def test_patterns_merge_records():
    rng = np.random.default_rng(10)
    level, number = rng.integers(0, 3, 500), rng.integers(0, 4, 500)
    features = np.column_stack([number, 5 * (level[:, np.newaxis] == np.arange(3))])
    labels = rng.choice([-1, 1], 500)
    plan = make_plan(ThresholdProblem(features, labels, IntegerBall.halfspaces(4)), (), None)
    assert plan.records.weight.sum() == 500
    assert plan.records.weight.size == len(np.unique(np.column_stack([features, labels]), axis=0))
    assert plan.patterns.category.size == 3
    assert plan.records.positive == np.count_nonzero(
        np.unique(np.column_stack([features, labels]), axis=0)[:, -1] > 0
    )


def test_largest_sums_equal_enumeration():
    space = IntegerBall(3, 2, 9)
    table = largest_sums(3, space)
    for f, k in itertools.product(range(4), range(10)):
        sums = [sum(w) for w in itertools.product(range(-2, 3), repeat=f) if sum(v * v for v in w) <= k]
        assert table[f, k] == max(sums)


def test_certificate_table_closes():
    problem = halfspaces_on(load_adult("neel", scaling="none"), features=("hours_per_week", "race", "sex"))
    costs = problem.lifted_costs(100 * np.random.default_rng(11).normal(size=9))
    table = certificate_table(BranchAndBound(problem), costs, (1, 20, 200))
    assert table["certified"].iloc[0] == "no"
    assert table["certified"].iloc[-1] == "yes"
    assert table["gap"].is_monotonic_decreasing
    assert (table["bound"] <= table["objective"].iloc[-1]).all()


def test_difficulty_table_is_certified():
    data = load_adult("neel", scaling="none")
    oracle = BranchAndBound(halfspaces_on(data, features=("hours_per_week", "race", "sex"), records=400))
    table = difficulty_table(oracle, (0.1, 1.0, 8.0), np.random.default_rng(15))
    assert (table["gap"] < 1e-6).all()
    assert table["errors"].between(1, 400).all()
    # D^2 = 8 and losses in [0, 1]: a shift of 32, and the gap's millionth of it.
    first = norm_exponential(32 / 0.1, 9, np.random.default_rng(15))
    assert table["noise"].iloc[0] == pytest.approx(np.linalg.norm(first), rel=2e-6)
    assert (table["nodes"] > 1).all()
    assert oracle_sizes("quick").epsilons == (0.1, 1.0, 8.0)
    with pytest.raises(ValueError, match="profile"):
        oracle_sizes("slow")


def test_bad_input_is_refused():
    rng = np.random.default_rng(12)
    problem = random_problem(rng, IntegerBall.halfspaces(5), "error")
    costs = random_costs(rng, problem.space)
    oracle = BranchAndBound(problem)
    twin = ThresholdProblem(problem.features, problem.labels, problem.space)
    with pytest.raises(ValueError, match="the one that this oracle was prepared for"):
        oracle(twin, costs)
    with pytest.raises(TypeError, match="ThresholdProblem"):
        BranchAndBound(TableProblem(np.zeros((1, 2)), PointSet([[0.0], [1.0]])))
    with pytest.raises(TypeError, match="GridCosts"):
        oracle.solve(costs.per_value)
    with pytest.raises(ValueError, match="per_value must have shape"):
        oracle.solve(GridCosts(costs.per_value[:4], costs.per_squared_norm))
    with pytest.raises(ValueError, match="per_squared_norm must have shape"):
        oracle.solve(GridCosts(costs.per_value, costs.per_squared_norm[:3]))
    with pytest.raises(ValueError, match="start must be a member"):
        oracle.solve(costs, start=[3, 0, 0, 0, 0])
    with pytest.raises(ValueError, match="start must be a member"):
        oracle.solve(costs, start=[0, 0, 0])
    with pytest.raises(ValueError, match="max_nodes must be at least 1"):
        oracle.solve(costs, max_nodes=0)
    with pytest.raises(TypeError, match="max_nodes"):
        oracle.solve(costs, max_nodes=1e6)


def test_bad_columns_are_refused(monkeypatch):
    features = np.array([[5, 0, 1, 0], [0, 5, 2, 5], [5, 0, 3, 5]])
    problem = ThresholdProblem(features, [1, -1, 1], IntegerBall.halfspaces(4))
    with pytest.raises(ValueError, match="one-hot"):
        BranchAndBound(problem, eliminate=[0, 3])
    with pytest.raises(ValueError, match="one positive entry"):
        BranchAndBound(problem, eliminate=[2])
    with pytest.raises(ValueError, match="different columns"):
        BranchAndBound(problem, eliminate=[4])
    for order in ([0, 1, 2], [2, 3, 3], [2, 3, 0, 1], []):
        with pytest.raises(ValueError, match="order must name each column that is not eliminated once"):
            BranchAndBound(problem, eliminate=[0, 1], order=order)
    # Refused before any table is made.
    monkeypatch.setattr(branch_and_bound_plan, "LARGEST_TABLES", 2**20)
    wide = ThresholdProblem(np.eye(3, dtype=int), [1, 1, -1], IntegerBall(3, 1000, 1000**2))
    with pytest.raises(ValueError, match="tables of"):
        BranchAndBound(wide)


def test_columns_and_records_of_data_are_named():
    data = load_adult("neel", columns="regression", scaling="none")
    problem = halfspaces_on(data, features=("age", "marital_status"), records=50)
    assert problem.features.shape == (50, 8)
    assert set(np.unique(problem.features[:, 1:])) == {0, 1000}
    assert (problem.features[:, 1:].sum(axis=1) == 1000).all()
    assert problem.space == IntegerBall.halfspaces(8)
    with pytest.raises(ValueError, match="features must name"):
        halfspaces_on(data, features=("salary",))
    with pytest.raises(ValueError, match="records must be at most 15682"):
        halfspaces_on(data, records=20_000)


def test_missing_numba_is_said(monkeypatch):
    monkeypatch.setattr(kernels, "numba", None)
    problem = ThresholdProblem([[1, 0]], [1], IntegerBall.halfspaces(2))
    with pytest.raises(ImportError, match=r"adaptive-dp\[fast\].*enumerate_group"):
        BranchAndBound(problem)

    def kernel(x: int) -> int:
        return x + 1

    assert compiled(kernel) is kernel


def test_a_disagreement_is_an_error_without_private_values(monkeypatch):
    """The message of a failed self-check shows neither the point nor an objective."""
    problem = random_problem(np.random.default_rng(5), IntegerBall.halfspaces(3), "error")
    costs = problem.lifted_costs(np.random.default_rng(6).normal(0, 20, 4))
    wrong = np.array([1, 0, 0])
    if np.array_equal(enumerate_members(problem, costs).point, wrong):
        wrong = -wrong
    monkeypatch.setattr(
        "adaptive_dp.oracle_perturbation.branch_and_bound._complete",
        lambda *arguments: wrong.astype(np.int64),
    )
    with pytest.raises(RuntimeError, match="disagree") as caught:
        branch_and_bound(problem, costs)
    assert not any(character.isdigit() for character in str(caught.value))


def test_an_interrupt_ends_the_search():
    """Compiled code sees no signals: the search runs in a thread, and stops soon after the interrupt."""
    rng = np.random.default_rng(5)
    hard = ThresholdProblem(
        rng.integers(-500, 501, (1500, 18)), rng.choice([-1, 1], 1500), IntegerBall.signs(18)
    )
    oracle = BranchAndBound(hard)
    costs = hard.lifted_costs(np.zeros(19))
    oracle.solve(costs, max_nodes=10)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        oracle.solve(costs)
    assert oracle.solve(costs, max_nodes=50).gap > 0


def test_any_sequence_of_columns_is_a_group():
    problem = ThresholdProblem([[1000, 0], [0, 1000]], [1, -1], IntegerBall.signs(2))
    assert BranchAndBound(problem, eliminate=(j for j in (0, 1))).eliminated == (0, 1)
    costs = problem.lifted_costs(np.ones(3))
    assert BranchAndBound(problem).solve(costs, max_nodes=2**80).gap < 1e-6
