"""The certified oracle at the size of the paper: branch and bound that knows about indicators.

A general solver sees n records; this search sees what is left of them. It goes depth first over the weights, in
two stages:

1. Columns that are not indicators (ages, amounts, hours) are few. Their weights are chosen first. A record is counted
   as an error at a node if no completion within the norm that is left rescues it.
2. Then a record's score is a known integer plus M times the *sum* of the weights of its categories. Records with the
   same categories share that sum: they are merged into a pattern, a table of its errors by the sum. The bound takes
   the best reachable sum for each pattern, for both labels at once, and solves one group of indicators exactly, by a
   knapsack over the squared norm: given the other weights, the loss is a sum over its categories.

The costs of the free columns and of the norm are minimised exactly, beside that. After the last column both bounds are
the value itself. Nothing is drawn at random: the answer is a function of the problem and the costs.

The extra ``numba`` is needed (``pip install "adaptive-dp[fast]"``); without it,
:mod:`~adaptive_dp.oracle_perturbation.group_enumeration` is exact at smaller sizes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.oracle_perturbation import branch_and_bound_kernels as kernels
from adaptive_dp.oracle_perturbation.branch_and_bound_kernels import TOLERANCE, Prices, Stack, Work
from adaptive_dp.oracle_perturbation.branch_and_bound_plan import Plan, make_plan, make_prices
from adaptive_dp.oracle_perturbation.problems import GridCosts, Solution, ThresholdProblem, rounding_allowance
from adaptive_dp.oracle_perturbation.spaces import IntArray
from adaptive_dp.validation import as_finite_array, check_count

LEAVES = 16_384  # of the first stage, kept before the second begins: the best of them are entered first
UNLIMITED = 2**62


class BranchAndBound:
    """An oracle for one problem, prepared once and asked for as many costs as one likes.

    Parameters
    ----------
    problem : ThresholdProblem
        Any features, any tie rule, any space. The time depends on how many records and patterns merging leaves.
    eliminate : sequence of int or None
        Group of columns that is solved for exactly in each bound of the second stage: at most one nonzero entry per
        record, always the same positive one. None chooses the group that splits the records most evenly; () solves for
        none. A matter of time only.
    order : sequence of int or None
        Order of the other columns in the search. None puts indicators last and, among both kinds, the column with the
        largest sum of squares first. The second stage begins after the last column that is not an indicator. A matter
        of time only.

    Raises
    ------
    ImportError
        ``numba`` is not installed.
    TypeError
        ``problem`` is not a ThresholdProblem.
    ValueError
        ``eliminate`` is not one-hot, ``order`` does not name the other columns once, or tables beyond two gigabytes.
    """

    def __init__(
        self,
        problem: ThresholdProblem,
        *,
        eliminate: Sequence[int] | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        if not isinstance(problem, ThresholdProblem):
            raise TypeError(f"problem must be a ThresholdProblem, got {type(problem).__name__}")
        if kernels.numba is None:
            raise ImportError(
                'BranchAndBound needs numba: pip install "adaptive-dp[fast]"; without it, use '
                "group_enumeration.enumerate_group, exact in plain numpy at smaller sizes"
            )
        self.problem = problem
        self._plan = make_plan(problem, eliminate, order)

    @property
    def eliminated(self) -> tuple[int, ...]:
        """Columns of the group that is solved for exactly."""
        return self._plan.group

    @property
    def stages(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Columns of the two stages, in the order in which they are branched on."""
        return self._plan.first, self._plan.second

    @property
    def merged(self) -> tuple[int, int]:
        """Distinct labelled records, and patterns of the second stage."""
        return int(self._plan.records.weight.size), int(self._plan.patterns.category.size)

    def __call__(self, problem: ThresholdProblem, costs: GridCosts, /) -> Solution:
        """Answer as an oracle of the mechanisms; a problem other than the own one is refused with a ``ValueError``."""
        if problem is not self.problem:
            raise ValueError("problem must be the one that this oracle was prepared for")
        return self.solve(costs)

    def solve(
        self, costs: GridCosts, *, max_nodes: int | None = None, start: ArrayLike | None = None
    ) -> Solution:
        """Minimise errors plus costs, and prove it.

        Parameters
        ----------
        costs : GridCosts
            Any tables that fit the space, of any signs.
        max_nodes : int or None
            Stop soon after so many nodes, at an unproved optimum. A budget of nodes, unlike one of seconds, gives the
            same answer on every machine.
        start : array_like, shape (d,), or None
            A member of W to begin with, say the answer to similar costs. The proof is the same; where several members
            are optimal within the tolerance, another one may come out.

        Returns
        -------
        Solution
            ``lower_bound`` is proved. It is the objective less 1e-7, the tolerance with which branches are closed, if
            the search came to its end, and otherwise the smallest bound of what is left; in both cases less twice
            :func:`~adaptive_dp.oracle_perturbation.problems.rounding_allowance`, since bounds are sums of
            doubles. ``nodes`` counts the bounds that were computed.

        Raises
        ------
        TypeError
            ``costs`` are not GridCosts.
        ValueError
            Tables that do not fit, a budget below 1, or a start outside W.
        """
        began = time.perf_counter()
        tables = self.problem.check_costs(costs)
        most = UNLIMITED if max_nodes is None else min(check_count("max_nodes", max_nodes), UNLIMITED)
        point = self._first_point(start, tables)
        search = _Search(self._plan, make_prices(self._plan, tables), most)
        search.incumbent = float(self.problem.objective(point, tables))
        found = _interruptible(search)
        if found is not None:
            point = _complete(self._plan, tables, self.problem, found)
        objective = float(self.problem.objective(point, tables))
        rounding = 2 * rounding_allowance(self.problem, tables)
        if abs(objective - search.incumbent) > rounding:
            # Neither the point nor an objective is shown: both are private.
            raise RuntimeError(
                "the search and the objective of its answer disagree by more than rounding: a defect of the search, "
                "nothing is certified"
            )
        bound = min(search.incumbent - TOLERANCE, search.open_bound) - rounding
        return Solution(point, objective, bound, search.nodes, time.perf_counter() - began)

    def _first_point(self, start: ArrayLike | None, costs: GridCosts) -> IntArray:
        """The better one of 0, which is always a member, and ``start``."""
        zero = np.zeros(self.problem.space.dimension, dtype=np.int64)
        if start is None:
            return zero
        if not self.problem.space.contains(start):
            raise ValueError(f"start must be a member of the space, got {np.asarray(start).tolist()!r}")
        given = np.rint(as_finite_array("start", start)).astype(np.int64)
        both = self.problem.objective(np.stack([zero, given]), costs)
        return given if both[1] < both[0] else zero


def branch_and_bound(problem: ThresholdProblem, costs: GridCosts, /) -> Solution:
    """Prepare and solve once; an oracle. :class:`BranchAndBound` prepares once for many costs."""
    return BranchAndBound(problem).solve(costs)


@dataclass(slots=True)
class _Search:
    """The state of one search: the incumbent, and the smallest bound of what was left open."""

    plan: Plan
    prices: Prices
    most_nodes: int
    incumbent: float = math.inf
    open_bound: float = math.inf
    nodes: int = 0
    best: tuple[IntArray, IntArray] | None = None
    work: Work = field(init=False)
    losses: NDArray[np.uint16] = field(init=False)
    changes: IntArray = field(init=False)
    stop: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    def __post_init__(self) -> None:
        box, largest = self.plan.ball.box, self.plan.ball.squared_radius
        _, patterns, sums = self.plan.loss_shape
        self.work = Work(
            np.zeros((len(self.plan.group) + 1, 2 * box + 1), dtype=np.int64),
            np.zeros(largest + 1),
            np.zeros(largest + 1),
        )
        self.losses = np.zeros(self.plan.loss_shape, dtype=np.uint16)
        self.changes = np.zeros((patterns, sums + 1), dtype=np.int64)

    def run(self) -> tuple[IntArray, IntArray] | None:
        """Search; return the values of both stages at the incumbent, or None if the first one was not improved."""
        plan = self.plan
        if plan.first:
            self._search_records()
        elif plan.second:
            self._search_patterns(np.zeros(0, dtype=np.int64), -math.inf)
        else:
            self._solve_group()
        return self.best

    def _search_records(self) -> None:
        """First stage, in portions of so many leaves; the second one begins at the best of each portion."""
        plan, p = self.plan, len(self.plan.first)
        stack = _new_stack(p, plan.ball.box, self.stop)
        margins = np.zeros((p + 1, plan.records.weight.size), dtype=np.int16)
        size = max(LEAVES, 2 * plan.ball.box + 1)
        best, leaves, bounds = np.zeros(p, np.int64), np.zeros((size, p), np.int64), np.zeros(size)
        while stack.depth[0] >= 0 and self.nodes < self.most_nodes and not self.stop[0]:
            before = self.incumbent
            self.incumbent, nodes, found = kernels.search_records(
                plan.records,
                plan.patterns,
                self.prices,
                plan.ball,
                stack,
                margins,
                self.losses,
                self.changes,
                self.work,
                before,
                self.most_nodes - self.nodes,
                best,
                leaves,
                bounds,
            )
            self.nodes += nodes
            if self.incumbent < before:
                self.best = best.copy(), np.zeros(0, dtype=np.int64)
            for at in np.argsort(bounds[:found], kind="stable"):
                if bounds[at] >= self.incumbent - TOLERANCE:
                    break
                if self.nodes >= self.most_nodes:
                    self.open_bound = min(self.open_bound, float(bounds[at]))
                    break
                self._search_patterns(leaves[at], float(bounds[at]))
        self.open_bound = min(self.open_bound, kernels.open_bound(stack))

    def _search_patterns(self, prefix: IntArray, bound: float) -> None:
        """Second stage below the values ``prefix`` of the first; ``bound`` is what is known of it."""
        plan, column = self.plan, np.arange(prefix.size)
        stack = _new_stack(len(plan.second), plan.ball.box, self.stop)
        stack.own[0], stack.used[0] = bound, np.sum(prefix**2)
        stack.spent[0] = self.prices.first[column, prefix + plan.ball.box].sum()
        best = np.zeros(len(plan.second), dtype=np.int64)
        self.incumbent, nodes, improved = kernels.search_patterns(
            plan.records,
            plan.patterns,
            self.prices,
            plan.ball,
            stack,
            (prefix @ plan.records.margins).astype(np.int16),
            self.losses,
            self.changes,
            self.work,
            self.incumbent,
            self.most_nodes - self.nodes,
            best,
        )
        self.nodes += nodes
        self.open_bound = min(self.open_bound, kernels.open_bound(stack))
        if improved:
            self.best = prefix.copy(), best

    def _solve_group(self) -> None:
        """Nothing but the group: its knapsack is the whole problem."""
        plan = self.plan
        margins = np.zeros(plan.records.weight.size, dtype=np.int16)
        sums = np.zeros(plan.patterns.category.size, dtype=np.int64)
        kernels.fill_losses(plan.records, plan.patterns, plan.ball, margins, self.losses, self.changes)
        value = kernels.bound_patterns(
            plan.patterns, self.prices, plan.ball, self.losses, sums, 0, 0, self.work
        )
        self.nodes += 1
        if value < self.incumbent - TOLERANCE:
            self.incumbent, self.best = value, (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _interruptible(search: _Search) -> tuple[IntArray, IntArray] | None:
    """Run a search in a thread of its own, so that an interrupt (Ctrl-C) ends it: compiled code would not notice."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(search.run)
        try:
            while not future.done():
                wait([future], timeout=0.2)  # in pieces: a wait without end would not notice either
        except BaseException:
            search.stop[0] = 1
            raise
        return future.result()


def _new_stack(length: int, box: int, stop: IntArray) -> Stack:
    """A search over so many columns that stands at its root."""
    return Stack(
        depth=np.zeros(1, dtype=np.int64),
        used=np.zeros(length + 1, dtype=np.int64),
        spent=np.zeros(length + 1),
        own=np.full(length + 1, -np.inf),
        kept=np.full(length + 1, -1, dtype=np.int64),
        entered=np.zeros(length + 1, dtype=np.int64),
        chosen=np.zeros(length, dtype=np.int64),
        values=np.zeros((length + 1, 2 * box + 1), dtype=np.int64),
        bounds=np.zeros((length + 1, 2 * box + 1)),
        stop=stop,
    )


def _complete(
    plan: Plan, costs: GridCosts, problem: ThresholdProblem, found: tuple[IntArray, IntArray]
) -> IntArray:
    """Add the best weights of the group to those of the other columns: its knapsack once more, with its choices.

    Written without the tables of the search, from the records as they were given: an error in either shows as a
    disagreement.
    """
    space, values = problem.space, problem.space.values
    point = np.zeros(space.dimension, dtype=np.int64)
    point[[*plan.first, *plan.second]] = np.concatenate(found)
    used = int(np.sum(point**2))
    room = space.squared_radius - used
    labels = problem.labels.astype(np.int64)
    margins = labels * (problem.features.astype(np.int64) @ point)
    limit = np.where(labels > 0, *problem.thresholds)
    cheapest, choices = np.full(room + 1, np.inf), []
    cheapest[0] = 0.0
    for column in plan.group:
        rows = problem.features[:, column] != 0
        gained = labels[rows] * problem.features[rows, column]
        extended = np.full((values.size, room + 1), np.inf)
        for at, value in enumerate(values):
            if value**2 <= room:
                errors = np.count_nonzero(margins[rows] + gained * value <= limit[rows])
                price = errors + costs.per_value[column, at]
                extended[at, value**2 :] = cheapest[: room + 1 - value**2] + price
        choices.append(np.argmin(extended, axis=0))
        cheapest = extended.min(axis=0)
    left = int(np.argmin(cheapest + costs.per_squared_norm[used:]))
    for column, choice in zip(reversed(plan.group), reversed(choices), strict=True):
        point[column] = values[choice[left]]
        left -= int(point[column] ** 2)
    return point
