"""Which sets of losses tell all members of W apart, and how many losses that takes."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_dp.oracle_perturbation.problems import TIES, ThresholdProblem
from adaptive_dp.oracle_perturbation.separators import (
    check_separates,
    count_table,
    fewest_separators,
    grid_separators,
    most_cells,
    sign_losses,
    sign_separators,
    threshold_losses,
)
from adaptive_dp.oracle_perturbation.spaces import IntegerBall


def separates_by_definition(table):
    """Definition A.1, pair by pair."""
    return all((a != b).any() for a, b in combinations(np.asarray(table).T, 2))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(2, 12), st.integers(0, 10**6))
def test_the_check_is_the_definition(m, size, seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 2, (m, size))
    points = np.arange(size, dtype=float)[:, None]
    if separates_by_definition(table):
        np.testing.assert_array_equal(check_separates(points, table), table)
        return
    with pytest.raises(ValueError, match="losses do not separate members") as refusal:
        check_separates(points, table)
    words = str(refusal.value).split()
    first, second = int(words[words.index("members") + 1]), int(words[words.index("and") + 1].rstrip(":"))
    assert first < second
    assert (table[:, first] == table[:, second]).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 5))
def test_thresholds_separate_every_ball_with_2_d_box_losses(dimension, box, extra):
    space = IntegerBall(dimension, box, box * box + extra)
    table = grid_separators(space.points(), box)
    assert table.shape == (2 * dimension * box, space.size)
    check_separates(space.points(), table)


@pytest.mark.parametrize(("dimension", "steps"), [(1, 2), (1, 7), (2, 2), (2, 4), (3, 4)])
def test_they_are_the_losses_of_section_three_on_the_grid(dimension, steps):
    """x = +-e_j / (t tau) on the grid of step tau = 1 / steps in the unit ball."""
    space = IntegerBall(dimension, steps, steps * steps)
    features = [
        side * np.eye(dimension)[j] * steps / t
        for j in range(dimension)
        for side in (1, -1)
        for t in range(1, steps + 1)
    ]
    table = threshold_losses(space.points() / steps, features)
    np.testing.assert_array_equal(table, grid_separators(space.points(), steps))
    assert len(features) == 2 * dimension * steps


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("tie", TIES)
def test_sign_losses_separate_signs_with_the_right_records(dimension, tie):
    space = IntegerBall.signs(dimension)
    features, labels = sign_separators(dimension, tie)
    table = sign_losses(space.points(), features, labels, tie)
    assert check_separates(space.points(), table).shape == (2 * dimension, space.size)
    for row, x, y in zip(table, features, labels, strict=True):
        single = ThresholdProblem(x[None], [y], space, tie)
        np.testing.assert_array_equal(row, single.errors(space.points()))


@pytest.mark.parametrize("tie", ["plus", "minus"])
def test_both_labels_of_one_record_do_not_separate_where_a_tie_has_a_label(tie):
    space = IntegerBall.signs(2)
    features, labels = sign_separators(2, "error")
    with pytest.raises(ValueError, match="do not separate"):
        check_separates(space.points(), sign_losses(space.points(), features, labels, tie))


def test_each_coordinate_needs_both_of_its_separators():
    """Any 2 d - 1 of the 2 d fail: one coordinate is left with two values that look alike."""
    space = IntegerBall.signs(3)
    table = grid_separators(space.points(), 1)
    for left_out in range(len(table)):
        with pytest.raises(ValueError, match="do not separate"):
            check_separates(space.points(), np.delete(table, left_out, axis=0))


@pytest.mark.parametrize("tie", TIES)
def test_sign_losses_cannot_tell_a_vector_from_its_double(tie):
    """All sign losses of a grid of records at once: OPDisc's space has no separator set among them."""
    space = IntegerBall.halfspaces(4)
    records = np.array(list(product((-2, -1, 0, 1, 3), repeat=4)), dtype=float)
    for label in (1.0, -1.0):
        table = sign_losses(space.points(), records, np.full(len(records), label), tie)
        with pytest.raises(ValueError, match="do not separate members") as refusal:
            check_separates(space.points(), table)
        assert "have the same 625 losses" in str(refusal.value)
    points = space.points()
    single = [int(np.flatnonzero((points == [k, 0, 0, 0]).all(axis=1))[0]) for k in (1, 2)]
    assert (table[:, single[0]] == table[:, single[1]]).all()


def test_cells_are_the_most_that_lines_can_make():
    assert [most_cells(m, 1) for m in range(4)] == [1, 2, 3, 4]
    assert [most_cells(m, 2) for m in range(5)] == [1, 2, 4, 7, 11]
    assert most_cells(3, 5) == 8
    assert fewest_separators(49, 2) == 10
    for size in range(1, 60):
        m = fewest_separators(size, 3)
        assert most_cells(m, 3) >= size
        assert m == 0 or most_cells(m - 1, 3) < size


def test_cells_are_met_by_random_lines():
    """Signs of random affine functions on a fine grid: never more cells than the bound, which few lines reach."""
    rng = np.random.default_rng(1)
    grid = np.array(list(product(np.linspace(-30, 30, 301), repeat=2)))
    for m in (1, 2, 3, 4):
        normals, offsets = rng.normal(size=(m, 2)), rng.normal(size=m)
        cells = len(np.unique(grid @ normals.T > offsets, axis=0))
        assert cells <= most_cells(m, 2)
        assert cells >= most_cells(m, 2) - 1


def test_the_printed_number_is_impossible_in_one_and_two_dimensions():
    """Errata: 1 < 5, 11 < 13, 37 < 49, 211 < 317, and no contradiction from d = 3 on."""
    table = count_table([(1, 2), (2, 2), (2, 4), (2, 10), (3, 4), (3, 10), (4, 10)])
    assert table["members"].tolist() == [5, 13, 49, 317, 257, 4169, 49689]
    assert table["cells"].tolist() == [1, 11, 37, 211, 697, 10701, 523686]
    assert (table["cells"] < table["members"]).tolist() == [True] * 4 + [False] * 3
    assert (table["needed"] <= table["ours"]).all()
    assert ((table["needed"] > table["printed"]) == (table["cells"] < table["members"])).all()
    small = table[table["d"] <= 2]
    assert (small["needed"] > small["printed"]).all()


@pytest.mark.parametrize("steps", range(1, 30))
@pytest.mark.parametrize("dimension", [1, 2])
def test_impossible_at_every_step_width(dimension, steps):
    row = count_table([(dimension, steps)]).iloc[0]
    assert row["cells"] < row["members"]


@pytest.mark.parametrize(
    ("points", "losses", "message"),
    [
        ([[0.0], [1.0]], [[0, 2]], "losses of separators must be 0 or 1"),
        ([[0.0], [1.0]], [[0, 1, 1]], r"losses must have shape \(m, 2\)"),
        ([[0.0], [1.0]], np.zeros((0, 2)), "with m >= 1"),
        ([[0.0], [1.0]], [[0, np.nan]], "losses must be finite"),
        ([[0.0], [1.0]], [[1, 1]], r"members 0 and 1: \[0.0\] and \[1.0\]"),
    ],
)
def test_bad_tables_are_refused(points, losses, message):
    with pytest.raises(ValueError, match=message):
        check_separates(points, losses)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="points must be whole numbers of at most 1"):
        grid_separators([[2.0]], 1)
    with pytest.raises(ValueError, match="points must be whole numbers"):
        grid_separators([[0.5]], 1)
    with pytest.raises(ValueError, match="tie must be"):
        sign_separators(2, "none")
    with pytest.raises(ValueError, match="dimension must be at least 1"):
        sign_separators(0)
