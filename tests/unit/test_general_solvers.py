"""General solvers: the formulation is exact, answers are right, and every certificate holds."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

from adaptive_dp.experiments import load_results
from adaptive_dp.oracle_perturbation import solver_comparison, solvers
from adaptive_dp.oracle_perturbation.group_enumeration import enumerate_group
from adaptive_dp.oracle_perturbation.halfspace_program import (
    halfspace_program,
    largest_scores,
    merge_records,
)
from adaptive_dp.oracle_perturbation.problems import (
    TIES,
    GridCosts,
    Solution,
    ThresholdProblem,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.solver_comparison import (
    adult_problem,
    agreement_table,
    compare_oracles,
    opdisc_noise,
    power_above,
    programs_settings,
    recorded_numbers,
    recorded_table,
    relaxation_table,
)
from adaptive_dp.oracle_perturbation.solvers import cp_sat, highs, least_cost, solve_program
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from tools import paper_beyond_convexity_solvers as tool

SOLVERS = [cp_sat, highs]


@pytest.fixture(autouse=True)
def _needs_the_extra():
    pytest.importorskip("ortools")


def random_problem(rng, tie):
    d, n, radius = int(rng.integers(1, 4)), int(rng.integers(1, 25)), int(rng.integers(1, 8))
    box = int(rng.integers(1, math.isqrt(radius) + 1))
    features = rng.integers(-3, 4, (n, d))
    return ThresholdProblem(features, rng.choice([-1, 1], n), IntegerBall(d, box, radius), tie)


def random_costs(rng, problem, kind):
    shapes = (problem.space.dimension, 2 * problem.space.box + 1), problem.space.squared_radius + 1
    if kind == 0:
        return problem.lifted_costs(rng.normal(0, 3, problem.space.dimension + 1))
    if kind == 1:
        return GridCosts(rng.normal(0, 2, shapes[0]), rng.normal(0, 2, shapes[1]))
    return GridCosts(rng.integers(-2, 3, shapes[0]), rng.integers(-1, 2, shapes[1]))


# --- the formulation -----------------------------------------------------------------------------------


def completions(problem, program, patterns, w):
    """The program's variables at w, with every success that the tie rule grants."""
    values, squares = problem.space.values, np.arange(problem.space.squared_radius + 1)
    chosen = [np.concatenate([(values == weight).astype(float) for weight in w]), squares == w @ w]
    positive, negative = problem.thresholds
    successes = []
    for row, plus, minus, reach in zip(
        patterns.rows, patterns.positive, patterns.negative, patterns.reach, strict=True
    ):
        score = int(w @ row)
        if plus and reach >= positive + 1:
            successes.append(score > positive)
        if minus and reach >= negative + 1:
            successes.append(-score > negative)
    z = np.concatenate([*chosen, np.array(successes, dtype=float)])
    assert z.size == program.cost.size
    return z, z.size - len(successes)


def feasible(program, z):
    sides = program.matrix @ z
    return bool((sides >= program.lower).all() and (sides <= program.upper).all())


@pytest.mark.parametrize("tie", TIES)
def test_the_program_is_the_problem(tie):
    """Every member has a solution with its objective, and none with a success that it does not have."""
    rng = np.random.default_rng([1, TIES.index(tie)])
    for _ in range(12):
        problem = random_problem(rng, tie)
        costs = random_costs(rng, problem, int(rng.integers(3)))
        patterns = merge_records(problem)
        program = halfspace_program(problem, costs, patterns)
        for w in problem.space.points():
            z, first = completions(problem, program, patterns, w)
            assert feasible(program, z)
            value = program.cost @ z + program.constant
            assert value == pytest.approx(float(problem.objective(w, costs)), abs=1e-12)
            assert np.array_equal(program.point(z), w)
            for at in range(first, z.size):
                if z[at] == 0:
                    z[at] = 1.0
                    assert not feasible(program, z)
                    z[at] = 0.0


def test_a_solution_of_the_program_is_a_member():
    """One value a coordinate and the right squared norm: anything else is cut off."""
    problem = ThresholdProblem([[1, 2], [2, -1]], [1, -1], IntegerBall(2, 1, 1))
    program = halfspace_program(problem, problem.lifted_costs(np.zeros(3)), merge_records(problem))
    kept = {
        tuple(program.point(z))
        for bits in itertools.product((0.0, 1.0), repeat=8)
        if feasible(program, z := np.concatenate([bits, np.zeros(program.cost.size - 8)]))
    }
    assert kept == {tuple(w) for w in problem.space.points()}


def test_merging_keeps_the_errors():
    rng = np.random.default_rng(2)
    problem = random_problem(rng, "plus")
    doubled = ThresholdProblem(
        np.concatenate([problem.features, 2 * problem.features]),
        np.concatenate([problem.labels, problem.labels]),
        problem.space,
        "plus",
    )
    patterns = merge_records(doubled)
    assert patterns.rows.shape == merge_records(problem).rows.shape
    assert patterns.positive.sum() + patterns.negative.sum() == doubled.records
    points = problem.space.points()
    scores = points @ patterns.rows.T
    errors = (scores <= -1) @ patterns.positive + (scores >= 0) @ patterns.negative
    assert np.array_equal(errors, doubled.errors(points))


def test_reach_is_the_largest_score():
    rng = np.random.default_rng(3)
    for space in (
        IntegerBall(3, 2, 5),
        IntegerBall.signs(4),
        IntegerBall.halfspaces(2),
        IntegerBall(1, 1, 3),
    ):
        rows = rng.integers(-9, 10, (20, space.dimension))
        assert np.array_equal(largest_scores(rows, space), (space.points() @ rows.T).max(axis=0))


# --- the answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("tie", TIES)
def test_equal_to_full_enumeration(solver, tie):
    """Many ties, both signs, any tables; the gap covers the difference and the bound is below the truth."""
    rng = np.random.default_rng([4, TIES.index(tie)])
    for trial in range(12):
        problem = random_problem(rng, tie)
        costs = random_costs(rng, problem, trial % 3)
        truth = enumerate_members(problem, costs)
        found = solver(problem, costs)
        assert problem.space.contains(found.point)
        assert found.objective == float(problem.objective(found.point, costs))
        assert found.objective == pytest.approx(truth.objective, abs=1e-6)
        assert found.lower_bound <= truth.objective <= found.objective + 1e-12
        assert found.gap < (1e-6 if solver is cp_sat else 1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_large_last_coordinate_of_either_sign(solver):
    rng = np.random.default_rng(5)
    problem = random_problem(rng, "error")
    for last in (-60.0, 60.0):
        costs = problem.lifted_costs(np.append(rng.normal(0, 1, problem.space.dimension), last))
        expected = enumerate_members(problem, costs).objective
        assert solver(problem, costs).objective == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("solver", "scale", "allowed"), [(cp_sat, 1e9, 1e-3), (highs, 9e6, 0.2)])
def test_huge_costs_widen_the_gap_and_nothing_else(solver, scale, allowed):
    rng = np.random.default_rng(6)
    problem = random_problem(rng, "error")
    shapes = (problem.space.dimension, 2 * problem.space.box + 1), problem.space.squared_radius + 1
    costs = GridCosts(rng.uniform(-scale, scale, shapes[0]), rng.uniform(-scale, scale, shapes[1]))
    truth = enumerate_members(problem, costs).objective
    found = solver(problem, costs)
    assert found.lower_bound <= truth <= found.objective
    assert found.gap < allowed


def test_rows_without_a_chance_and_zero_rows():
    """A zero row is a tie at every w; a record that no member can get right has no variable."""
    space = IntegerBall(2, 1, 1)
    for tie, solver in itertools.product(TIES, SOLVERS):
        problem = ThresholdProblem([[0, 0], [0, 0], [3, 0]], [1, -1, 1], space, tie)
        costs = GridCosts(np.zeros((2, 3)), np.zeros(2))
        expected = enumerate_members(problem, costs).objective
        assert solver(problem, costs).objective == pytest.approx(expected, abs=1e-9)


def stopped_problem():
    """Adult at ten columns: enumeration is exact here, and no general solver is through within a moment."""
    problem = adult_problem(10, records=400)
    noise = opdisc_noise(problem, 8.0, np.random.default_rng(7), draws=1)[0]
    return problem, problem.lifted_costs(noise)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seconds", [1e-6, 0.15])
def test_a_time_limit_leaves_a_gap_and_a_valid_certificate(solver, seconds):
    problem, costs = stopped_problem()
    truth = enumerate_group(problem, costs)
    found = solver(problem, costs, seconds=seconds)
    assert problem.space.contains(found.point)
    assert found.lower_bound <= truth.objective <= found.objective + 1e-9
    assert math.isfinite(found.gap)
    assert found.lower_bound >= least_cost(problem, costs)


def test_when_nothing_was_found_it_is_the_zero_vector(monkeypatch):
    """With the bound that needs no solver; HiGHS also with a dual bound of its own."""
    problem, costs = stopped_problem()
    nothing = cp_sat(problem, costs, seconds=1e-6)
    assert not nothing.point.any()
    assert nothing.lower_bound == least_cost(problem, costs)
    for bound in (None, -math.inf, -50.0, -1e6):
        answer = OptimizeResult(status=1, x=None, fun=None, mip_node_count=None, mip_dual_bound=bound)
        monkeypatch.setattr(solvers, "milp", lambda *_, answer=answer, **__: answer)
        found = highs(problem, costs)
        assert not found.point.any()
        own = -50.0 + problem.records if bound == -50.0 else -math.inf
        assert found.lower_bound == pytest.approx(max(own, least_cost(problem, costs)), abs=1e-3)
        assert found.gap > 1


def test_the_bound_without_a_solver_is_the_least_noise():
    rng = np.random.default_rng(8)
    for trial in range(6):
        problem = random_problem(rng, "error")
        costs = random_costs(rng, problem, trial % 3)
        points = problem.space.points()
        noise = problem.objective(points, costs) - problem.errors(points)
        assert least_cost(problem, costs) == pytest.approx(float(noise.min()), abs=1e-11)
        assert least_cost(problem, costs) < noise.min()


def test_the_same_question_has_the_same_answer():
    problem, costs = random_problem(np.random.default_rng(9), "error"), None
    costs = random_costs(np.random.default_rng(9), problem, 2)
    for solver in SOLVERS:
        first, second = solver(problem, costs), solver(problem, costs)
        assert np.array_equal(first.point, second.point)
        assert (first.lower_bound, first.nodes) == (second.lower_bound, second.nodes)


def test_a_missing_package_names_its_extra(monkeypatch):
    problem = random_problem(np.random.default_rng(10), "error")
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    with pytest.raises(ImportError, match=r"adaptive-dp\[solvers\]"):
        cp_sat(problem, random_costs(np.random.default_rng(0), problem, 0))


def test_bad_input_is_refused():
    problem = random_problem(np.random.default_rng(11), "error")
    costs = random_costs(np.random.default_rng(0), problem, 0)
    for solver in SOLVERS:
        with pytest.raises(TypeError, match="ThresholdProblem"):
            solver(None, costs)
        with pytest.raises(TypeError, match="GridCosts"):
            solver(problem, None)
        with pytest.raises(ValueError, match="per_value must have shape"):
            solver(problem, GridCosts(np.zeros((9, 99)), np.zeros(3)))
        for seconds in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="seconds"):
                solver(problem, costs, seconds=seconds)
    with pytest.raises(ValueError, match="workers"):
        cp_sat(problem, costs, workers=0)


def test_a_program_without_a_solution_is_an_error_and_not_an_answer():
    problem = ThresholdProblem([[1, 2]], [1], IntegerBall(2, 1, 1))
    program = halfspace_program(problem, problem.lifted_costs(np.zeros(3)), merge_records(problem))
    program.lower[0] = program.upper[0] = 4.0  # four of three values
    with pytest.raises(RuntimeError, match="HiGHS failed"):
        solve_program(program)


# --- the comparison ------------------------------------------------------------------------------------


def test_adult_problems_are_balanced_and_one_hot():
    for columns, numeric in ((8, 2), (10, 4), (23, 3)):
        problem = adult_problem(columns, records=300)
        assert problem.features.shape == (300, columns)
        assert problem.labels.sum() == 0
        groups = problem.features[:, numeric:]
        assert set(np.unique(groups)) == {0, 1000}
        assert np.array_equal(groups.sum(axis=1), np.full(300, 1000 * (4 if columns == 23 else 1)))
    whole = adult_problem(8)
    assert whole.records == 15_682
    assert np.array_equal(
        np.sort(adult_problem(8, records=15_682).features, axis=0), np.sort(whole.features, axis=0)
    )
    for arguments, message in (((9,), "columns"), ((8, 301), "records"), ((8, 15_684), "records")):
        with pytest.raises(ValueError, match=message):
            adult_problem(arguments[0], records=arguments[1] if len(arguments) > 1 else None)


def test_all_oracles_agree_on_adult():
    problem = adult_problem(8, records=200)
    found = compare_oracles(problem, (1.0, 8.0), np.random.default_rng(12))
    assert list(found["oracle"][:4]) == ["all members", "one group", "CP-SAT", "HiGHS"]
    assert (found["excess"] <= 1e-6).all()
    assert (found["gap"] < 1e-3).all()
    table = agreement_table(found)
    assert table["agrees"].all()
    assert set(table["gap below"]) <= {"0", "10⁻¹¹", "10⁻¹⁰", "10⁻⁷", "10⁻⁵", "10⁻⁴"}


def test_an_oracle_that_is_wrong_does_not_agree():
    problem = adult_problem(8, records=200)

    def lazy(problem, costs, /):
        zero = np.zeros(problem.space.dimension, dtype=np.int64)
        return Solution(zero, float(problem.objective(zero, costs)), least_cost(problem, costs))

    found = compare_oracles(
        problem, (1.0,), np.random.default_rng(13), oracles={"lazy": lazy, "exact": enumerate_group}
    )
    assert list(agreement_table(found)["agrees"]) == [False, True]


@pytest.mark.parametrize(
    ("gap", "text"), [(0.0, "0"), (2e-8, "10⁻⁷"), (1e-7, "10⁻⁶"), (0.5, "10⁰"), (3000.0, "10⁴")]
)
def test_power_above(gap, text):
    assert power_above(gap) == text


def test_the_relaxation_knows_the_twins_and_little_more():
    """Rows that are the same with different labels; with a free choice of fractions all others are all but right."""
    table = relaxation_table((8, 10), records=400).set_index("d")
    for columns in (8, 10):
        problem = adult_problem(columns, records=400)
        rows, place = np.unique(problem.features, axis=0, return_inverse=True)
        labels = [problem.labels[place.ravel() == i] for i in range(len(rows))]
        twins = sum(min((part > 0).sum(), (part < 0).sum()) for part in labels)
        row = table.loc[columns]
        assert row["twins"] >= twins  # multiples are merged as well
        assert row["twins"] - 1e-6 <= row["relaxation"] < row["twins"] + 3
        assert row["relaxation"] < row["least"] - 20
        assert row["patterns"] <= len(rows)


def test_numbers_of_the_recorded_runs():
    table, _ = load_results(tool.RESULTS / f"{tool.NAME}.csv")
    facts, shown = recorded_numbers(table), recorded_table(table).set_index("d; n")
    assert facts["ten_cpsat"] == shown.loc["10; 2,000", "CP-SAT, s"].max()
    assert facts["ten_highs"] == shown.loc["10; 2,000", "HiGHS gap"].min()
    assert facts["full_exact"] == shown.loc["10; 15,682", "exact, s"].max()
    large = shown.loc[["10; 15,682", "23; 15,682"], ["CP-SAT gap", "HiGHS gap"]]
    assert facts["full_gap"] == large.min(axis=None)
    assert facts["stopped"] == (shown["CP-SAT gap"] > 1e-6).sum() >= facts["held"]


def test_profiles_have_the_same_names():
    sizes = [programs_settings(profile)["draws"] for profile in ("quick", "book", "paper")]
    assert sizes == sorted(sizes)
    with pytest.raises(ValueError, match="profile"):
        programs_settings("large")


def test_the_tool_records_what_it_ran(tmp_path, monkeypatch):
    monkeypatch.setattr(solver_comparison, "CASES", ((8, 100, (8.0,)),))
    path = tool.record(5.0, results=tmp_path)
    table, metadata = load_results(path)
    assert list(table["oracle"]) == ["exact", "CP-SAT", "HiGHS"]
    assert metadata["parameters"]["limit in seconds"] == 5.0
    shown = recorded_table(table)
    assert shown.shape == (1, 7)
    assert shown["d; n"][0] == "8; 100"
    assert tool.main(["--seconds", "0"]) == 2


def test_the_recorded_comparison_holds_together():
    """Bounds below the minimum everywhere; certified answers equal it; ten columns and all records are too many."""
    table, metadata = load_results(tool.RESULTS / f"{tool.NAME}.csv")
    assert metadata["parameters"]["threads"] == 1
    for _, part in table.groupby(["columns", "records", "epsilon"]):
        exact = part.set_index("oracle").loc["exact"]
        assert exact["gap"] < 1e-6
        assert (part["lower_bound"] <= exact["objective"] + 1e-2).all()  # six digits are kept
        certified = part["gap"] < 1e-3
        assert (part["excess"][certified] == 0).all()
    shown = recorded_table(table).set_index("d; n")
    assert (shown.loc[["8; 2,000", "8; 15,682"], ["CP-SAT gap", "HiGHS gap"]] < 1e-3).all(axis=None)
    assert (shown.loc["10; 2,000", "CP-SAT gap"] < 1e-6).all()
    assert (shown.loc["10; 2,000", "HiGHS gap"] > 100).all()
    assert (shown.loc[["10; 15,682", "23; 15,682"], ["CP-SAT gap", "HiGHS gap"]] > 1_000).all(axis=None)


def test_costs_beyond_the_tolerances_of_highs_are_refused():
    problem = ThresholdProblem([[1, 0], [0, 1]], [1, -1], IntegerBall.signs(2))
    with pytest.raises(ValueError, match="per_value must stay within 1e"):
        highs(problem, GridCosts(np.full((2, 3), 1e8), np.zeros(3)))
    with pytest.raises(ValueError, match="per_squared_norm must stay within 1e"):
        highs(problem, GridCosts(np.zeros((2, 3)), np.full(3, 1e8)))


def test_the_bound_of_highs_gives_way_to_its_relative_error():
    rng = np.random.default_rng(8)
    problem = ThresholdProblem(rng.integers(-5, 6, (20, 5)), rng.choice([-1, 1], 20), IntegerBall(5, 2, 4))
    for scale in (1.0, 1e5, 9e6):
        costs = GridCosts(rng.uniform(-scale, scale, (5, 5)), rng.uniform(-scale, scale, 5))
        exact = enumerate_members(problem, costs).objective
        assert highs(problem, costs).lower_bound <= exact - 1e-9 * scale
