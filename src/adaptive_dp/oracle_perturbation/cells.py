"""The picture behind the privacy proof: which noise leads to which answer, for numbers w and noise in the plane.

With a perturbation -<eta, pi(w)> the noise vectors that make w the answer form a convex cell, cut out by one line for
each other member. The proof moves the cell of w along pi(w) until it lies inside the cell of w for the neighbour.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.oracle_perturbation.problems import TableProblem
from adaptive_dp.oracle_perturbation.spaces import PointSet, lift
from adaptive_dp.plots.figure import Figure, figure
from adaptive_dp.plots.numbers import format_number
from adaptive_dp.plots.theme import Theme
from adaptive_dp.validation import FloatArray, as_finite_array, check_positive


def cell(problem: TableProblem, member: int, extent: float) -> FloatArray:
    """Noise vectors in a square for which one member is a minimiser, as the corners of a polygon.

    Parameters
    ----------
    problem : TableProblem
        Over a space of numbers (d = 1), so that the noise has two entries.
    member : int
        Index of w.
    extent : float
        The square is [-extent, extent]^2.

    Returns
    -------
    ndarray, shape (k, 2)
        Corners in order; k = 0 if the cell misses the square.

    Raises
    ------
    ValueError
        The space is not one of numbers, or ``member`` is no index.
    """
    if problem.space.dimension != 1:
        raise ValueError(f"problem must be over numbers, got {problem.space.dimension} dimensions")
    if not 0 <= member < problem.space.size:
        raise ValueError(f"member must lie between 0 and {problem.space.size - 1}, got {member}")
    side = check_positive("extent", extent)
    lifted = lift(problem.space.members, problem.space.radius)
    corners = side * np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    for other in range(problem.space.size):
        if other != member:
            # w beats v where <eta, pi(w) - pi(v)> >= L(w) - L(v)
            normal = lifted[member] - lifted[other]
            corners = _clip(corners, normal, float(problem.total[member] - problem.total[other]))
    return corners


def _clip(corners: FloatArray, normal: FloatArray, level: float) -> FloatArray:
    """Cut a convex polygon with the half-plane <x, normal> >= level (one step of Sutherland and Hodgman)."""
    heights = corners @ normal - level
    kept: list[FloatArray] = []
    for k in range(len(corners)):
        here, there = heights[k - 1], heights[k]
        if here * there < 0:
            kept.append(corners[k - 1] + (corners[k] - corners[k - 1]) * here / (here - there))
        if there >= 0:
            kept.append(corners[k])
    return np.array(kept) if kept else np.zeros((0, 2))


def excess_outside(problem: TableProblem, neighbour: TableProblem, move: float, extent: float) -> FloatArray:
    """How far each cell, moved by ``move`` along pi(w), sticks out of the neighbour's cell; shape (N,).

    The unit is that of the perturbed objective; zero or less means inside. A cell without a corner in the square counts
    as inside.
    """
    space, excess = problem.space, np.full(problem.space.size, -np.inf)
    lifted = lift(space.members, space.radius)
    for member in range(space.size):
        corners = cell(problem, member, extent) + move * lifted[member]
        for other in range(space.size):
            if other != member and len(corners):
                gain = corners @ (lifted[member] - lifted[other])
                wanted = neighbour.total[member] - neighbour.total[other]
                excess[member] = max(excess[member], float((wanted - gain).max()))
    return excess


def swing_pair(members: ArrayLike) -> tuple[TableProblem, TableProblem]:
    """Two neighbours over numbers: five common records, and one whose loss changes its mind at every second member."""
    space = PointSet(as_finite_array("members", members, ndim=1)[:, np.newaxis])
    index = np.arange(space.size)
    common = [(index == k % space.size).astype(float) for k in (1, 3, 3, 0, 5)]
    last = (index % 2).astype(float)
    return (
        TableProblem(np.array([*common, last]), space),
        TableProblem(np.array([*common, 1 - last]), space),
    )


def shift_table(problem: TableProblem, neighbour: TableProblem, multiples: ArrayLike) -> pd.DataFrame:
    """For each multiple c of G D^2 / tau: how many cells, moved by it, leave the neighbour's cell, and how far.

    Columns ``c``, ``outside`` (a count), ``excess`` (in units of a loss, zero where all are inside). The lemma of
    neel2019 asks for c = 4; its text and the appendix also use 2 (erratum).
    """
    space = problem.space
    unit = (problem.lipschitz or 1 / space.separation) * space.radius**2 / space.separation
    rows = []
    for c in as_finite_array("multiples", multiples, ndim=1):
        excess = excess_outside(problem, neighbour, c * unit, 50 * unit)
        rows.append({"c": c, "outside": int((excess > 1e-9).sum()), "excess": max(0.0, float(excess.max()))})
    return pd.DataFrame(rows)


def draw_cells(problem: TableProblem, neighbour: TableProblem, move: float, *, name: str) -> Figure:
    """Cells of one data set, and those of its neighbour with the first ones moved along pi(w) drawn inside."""
    space = problem.space
    extent = 4 * move
    lifted = lift(space.members, space.radius)
    pieces = [(cell(problem, k, extent), cell(neighbour, k, extent)) for k in range(space.size)]

    def label(place: Any, theme: Theme, corners: FloatArray, member: int) -> None:
        if len(corners) and np.ptp(corners, axis=0).min() > 0.08 * extent:
            place.annotate(
                f"{space.members[member, 0]:g}",
                corners.mean(axis=0),
                ha="center",
                va="center",
                color=theme.text,
            )

    def draw(axes: Any, theme: Theme) -> None:
        first, second = np.ravel(axes)
        for member, (mine, theirs) in enumerate(pieces):
            for place, corners in ((first, mine), (second, theirs)):
                if len(corners):
                    place.fill(
                        *corners.T, facecolor="none", edgecolor=theme.text, linewidth=1.2, linestyle="solid"
                    )
            label(first, theme, mine, member)
            if len(mine):
                moved = mine + move * lifted[member]
                second.fill(*moved.T, facecolor=theme.colour(0), alpha=0.3, linewidth=0)
                label(second, theme, np.clip(moved, -extent, extent), member)
        first.set_title("answers for Z")
        second.set_title("for Z', and cells of Z moved")
        for place in (first, second):
            place.set_xlim(-extent, extent)
            place.set_ylim(-extent, extent)
            place.set_aspect("equal")
            place.grid(visible=False)
            place.set_xlabel("first noise coordinate")
        first.set_ylabel("second noise coordinate")

    inside = int((excess_outside(problem, neighbour, move, 50 * move) <= 1e-9).sum())
    return figure(
        draw,
        name=name,
        size=(6.4, 3.6),
        panels=(1, 2),
        sharey=True,
        alt=(
            "Two maps of the noise plane, cut into convex cells, one an answer. On the right the cells of the first "
            f"data set are moved by {format_number(move)} along the lifted answer; "
            f"{inside} of {space.size} lie inside the neighbour's cell of the same answer."
        ),
    )
