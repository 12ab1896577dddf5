"""Cells of the noise plane, and the shift that moves them into the neighbour's."""

import numpy as np
import pytest

from adaptive_dp.oracle_perturbation import cells
from adaptive_dp.oracle_perturbation.problems import TableProblem, enumerate_members
from adaptive_dp.oracle_perturbation.spaces import PointSet


def inside(corners: np.ndarray, point: np.ndarray) -> bool:
    """Whether a point lies in a convex polygon (either orientation)."""
    edges = np.roll(corners, -1, axis=0) - corners
    cross = edges[:, 0] * (point[1] - corners[:, 1]) - edges[:, 1] * (point[0] - corners[:, 0])
    return bool((cross >= -1e-9).all() or (cross <= 1e-9).all())


def test_cells_hold_exactly_the_noise_that_leads_to_their_member():
    problem, _ = cells.swing_pair([-2, -1, 0, 1, 2])
    pieces = [cells.cell(problem, k, 50.0) for k in range(5)]
    rng = np.random.default_rng(0)
    for noise in rng.uniform(-50, 50, (300, 2)):
        answer = enumerate_members(problem, problem.lifted_costs(noise)).point[0]
        owners = [k for k, corners in enumerate(pieces) if len(corners) and inside(corners, noise)]
        assert owners == [int(answer) + 2]


def test_four_is_enough_for_every_pair_and_needed_for_one():
    rng = np.random.default_rng(1)
    space = PointSet(np.array([[-2.0], [-1.0], [0.0], [1.5], [2.5]]))
    unit = space.radius**2 / space.separation**2
    for _ in range(30):
        common = rng.random((4, 5))
        first, second = (TableProblem(np.vstack([common, rng.random((1, 5))]), space) for _ in range(2))
        assert cells.excess_outside(first, second, 4 * unit, 1000.0).max() <= 1e-9
    two = PointSet(np.array([[-1.0], [1.0]]))
    first, second = TableProblem(np.array([[0.0, 1.0]]), two), TableProblem(np.array([[1.0, 0.0]]), two)
    table = cells.shift_table(first, second, [2.0, 3.0, 3.99, 4.0]).set_index("c")
    assert (table.loc[[2.0, 3.0, 3.99], "outside"] == 1).all()
    assert table.loc[4.0, "outside"] == 0
    assert table.loc[2.0, "excess"] == pytest.approx(1.0)


def test_figure_says_how_many_cells_stay_inside():
    problem, neighbour = cells.swing_pair([-3, -2, -1, 0, 1, 2, 3])
    drawn = cells.draw_cells(problem, neighbour, 36.0, name="cells")
    assert "7 of 7 lie inside" in drawn.alt
    assert "5 of 7 lie inside" in cells.draw_cells(problem, neighbour, 18.0, name="cells-two").alt


def test_cells_are_for_numbers_and_members():
    plane = TableProblem(np.zeros((1, 2)), PointSet(np.eye(2)))
    with pytest.raises(ValueError, match="problem must be over numbers, got 2 dimensions"):
        cells.cell(plane, 0, 1.0)
    line, _ = cells.swing_pair([0, 1])
    with pytest.raises(ValueError, match="member must lie between 0 and 1, got 2"):
        cells.cell(line, 2, 1.0)
    with pytest.raises(ValueError, match="extent must be positive"):
        cells.cell(line, 0, 0.0)
