"""What the mixed-integer programs of neel2019 (Appendix D.2, Figure 2) get wrong, executed.

Nothing here may be used to release anything. Errata 11 and 12:

* the auxiliary variable lambda is bounded above by sqrt(D^2 - |w|^2) and by nothing from below, so that a negative last
  noise coordinate does not meet the objective that the mechanism is about;
* no solver has strict inequalities, and read as weak ones every record is right at w = 0;
* what a tie means decides the output, and the paper, its programs and its code have three different rules;
* a solver that stops at a relative gap has not found the minimum.

Figure 3, the program for RSPM, is not here. The right program is
:func:`~adaptive_dp.oracle_perturbation.halfspace_program.halfspace_program`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack, vstack

from adaptive_dp.oracle_perturbation.halfspace_program import Program, halfspace_program, merge_records
from adaptive_dp.oracle_perturbation.problems import TIES, GridCosts, ThresholdProblem
from adaptive_dp.oracle_perturbation.solvers import solve_program
from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall
from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_positive

FORMS = ("as meant", "lambda >= 0", "lambda free")
RELATIVE_GAP = 1e-4  # the default of Gurobi, and of HiGHS
SAME = 1e-9  # objectives that are closer are one value, computed twice
BLOCK_ENTRIES = 4_000_000


class Listed:
    """All members of W with their errors and ties, counted once: for many draws of the noise on one problem.

    Parameters
    ----------
    problem : ThresholdProblem
        Its tie rule is ignored: all of them are counted. W must be small enough to list.

    Attributes
    ----------
    points : ndarray of int, shape (N, d)
    wrong : ndarray of int, shape (N,)
        Records on the wrong side of the plane.
    ties : ndarray of int, shape (N, 2)
        Records on the plane, with label +1 and with label -1.
    lifted : ndarray, shape (N, d + 1)
        pi(w).
    """

    def __init__(self, problem: ThresholdProblem) -> None:
        self.problem = problem
        self.points: IntArray = problem.space.points()
        # From whole numbers: D^2 - |w|^2 in doubles misses 0 by an ulp, and its root by 1e-8.
        left = problem.space.squared_radius - np.square(self.points).sum(axis=1, keepdims=True)
        self.lifted: FloatArray = np.hstack([self.points, np.sqrt(left)]) / problem.space.radius
        patterns = merge_records(problem)
        rows = patterns.rows.T.astype(np.float32)  # scores stay below 2^15: exact in single precision
        labels = np.column_stack([patterns.positive, patterns.negative]).astype(np.float32)
        size = max(1, BLOCK_ENTRIES // rows.shape[1])
        wrong, ties = [], []
        for at in range(0, len(self.points), size):
            scores = self.points[at : at + size].astype(np.float32) @ rows
            low, high = ((side.astype(np.float32) @ labels) for side in (scores < 0, scores > 0))
            wrong.append(low[:, 0] + high[:, 1])
            ties.append((scores == 0).astype(np.float32) @ labels)
        self.wrong = np.concatenate(wrong).astype(np.int64)
        self.ties = np.concatenate(ties).astype(np.int64)

    def errors(self, tie: str) -> IntArray:
        """Errors of each member, (N,): by a tie rule, or with ``"free"`` where a tie is right for both labels."""
        check_choice("tie", tie, (*TIES, "free"))
        counted = {"error": (1, 1), "plus": (0, 1), "minus": (1, 0), "free": (0, 0)}[tie]
        return np.asarray(self.wrong + self.ties @ np.array(counted))

    def minimisers(self, losses: ArrayLike, noise: FloatArray) -> IntArray:
        """Index of the minimiser of losses - <noise, pi(w)> for each row of ``noise`` (draws, d + 1)."""
        parts = [np.argmin(values, axis=1) for values in self.objectives(losses, noise)]
        return np.concatenate(parts)

    def objectives(self, losses: ArrayLike, noise: FloatArray) -> Iterator[FloatArray]:
        """Yield the objectives of all members in blocks of draws, (block, N)."""
        size = max(1, BLOCK_ENTRIES // len(self.points))
        for at in range(0, len(noise), size):
            yield np.asarray(losses, dtype=np.float64) - noise[at : at + size] @ self.lifted.T


def _check_draws(problem: ThresholdProblem | Listed, noise: ArrayLike) -> tuple[Listed, FloatArray]:
    """The listed members, and the draws if there are some and they fit."""
    draws = as_finite_array("noise", noise, ndim=2)
    space = (problem.problem if isinstance(problem, Listed) else problem).space
    if draws.shape[0] == 0 or draws.shape[1] != space.dimension + 1:
        raise ValueError(f"noise must have shape (draws, {space.dimension + 1}), got {draws.shape}")
    return problem if isinstance(problem, Listed) else Listed(problem), draws


def _best_two(values: FloatArray) -> FloatArray:
    """Smallest and second smallest entry of each row, (rows, 2); ``values`` is overwritten."""
    rows, at = np.arange(len(values)), np.argmin(values, axis=1)
    best = values[rows, at]
    values[rows, at] = np.inf
    return np.column_stack([best, values.min(axis=1)])


# --- the sign of the last coordinate -------------------------------------------------------------------


def printed_last_coordinate(last: ArrayLike, form: str) -> FloatArray:
    """Noise that the program of Figure 2 puts in the place of the last coordinate.

    It minimises -eta lambda / D over lambda <= sqrt(D^2 - |w|^2). For a nonnegative eta that is what was meant. For
    a negative one, lambda >= 0 (what solvers make of a variable without bounds) gives lambda = 0 and the noise 0; a
    free lambda, which the quadratic constraint bounds by -sqrt(D^2 - |w|^2), gives the noise |eta|.
    """
    eta = np.asarray(last, dtype=np.float64)
    kind = check_choice("form", form, FORMS)
    return eta if kind == "as meant" else np.maximum(eta, 0.0) if kind == "lambda >= 0" else np.abs(eta)


def solve_printed(problem: ThresholdProblem, noise: ArrayLike, *, free: bool) -> tuple[IntArray, float]:
    """Solve Figure 2 as printed with HiGHS, apart from its strict inequalities: the point and the program's value.

    The quadratic constraint lambda^2 + |w|^2 <= D^2 is, for integer w, a choice of k = |w|^2 and of lambda between
    -sqrt(D^2 - k) and sqrt(D^2 - k), which is linear in the one-hot variables of k: the feasible set is the printed
    one.
    """
    eta = as_finite_array("noise", noise, ndim=1)
    space = problem.space
    tables = problem.lifted_costs(eta)
    meant = GridCosts(tables.per_value, np.zeros(space.squared_radius + 1))
    program = halfspace_program(problem, meant, merge_records(problem))
    columns = program.cost.size
    roots = np.zeros((1, columns))
    at = space.dimension * (2 * space.box + 1)
    roots[0, at : at + space.squared_radius + 1] = np.sqrt(np.arange(space.squared_radius, -1, -1))
    above = hstack([csr_array(-roots), csr_array([[1.0]])])  # lambda - sum_k sqrt(K - k) z_k <= 0
    below = hstack([csr_array(roots), csr_array([[1.0]])])  # and for a free lambda, lambda + the same >= 0
    wide = hstack([program.matrix, csr_array((program.matrix.shape[0], 1))])
    lower = np.concatenate([program.lower, [-np.inf, 0.0]])
    upper = np.concatenate([program.upper, [0.0, np.inf]])
    floor = -space.radius if free else 0.0
    answer = milp(
        np.append(program.cost, -eta[-1] / space.radius),
        integrality=np.append(np.ones(columns, dtype=np.int64), 0),
        bounds=Bounds(np.append(np.zeros(columns), floor), np.append(np.ones(columns), space.radius)),
        constraints=LinearConstraint(csr_array(vstack([wide, above, below])), lower, upper),
        options={"mip_rel_gap": 0.0},
    )
    if answer.x is None or answer.fun is None:
        raise RuntimeError(f"HiGHS failed on a program that has solutions: {answer.message}")
    return program.point(answer.x[:-1]), float(answer.fun) + program.constant


def sign_example() -> tuple[ThresholdProblem, FloatArray]:
    """Two records and a noise vector at which Figure 2 answers wrongly: W = {-1, 0, 1}^2, D^2 = 2, ties are errors."""
    return (
        ThresholdProblem(
            np.array([[2, 1], [-2, 1]], dtype=np.int16), np.ones(2, dtype=np.int8), IntegerBall.signs(2)
        ),
        np.array([0.2, 0.3, -3.0]),
    )


def sign_table(problem: ThresholdProblem | None = None, noise: ArrayLike | None = None) -> pd.DataFrame:
    """What each reading of the program answers at one noise vector (default: :func:`sign_example`).

    Returns
    -------
    DataFrame
        ``program``, ``answer`` (the point, as text), ``value``: what the program believes, by enumeration,
        ``solver``: the same from HiGHS, ``objective``: the true one at the answer, ``excess`` over the true
        minimum.
    """
    example = sign_example()
    task = example[0] if problem is None else problem
    given = as_finite_array("noise", example[1] if noise is None else noise, ndim=1)
    listed, eta = _check_draws(task, given[np.newaxis])
    losses = listed.errors(task.tie)
    true = next(listed.objectives(losses, eta[:1]))[0]
    rows = []
    for form in FORMS:
        changed = eta[:1].copy()
        changed[:, -1] = printed_last_coordinate(changed[:, -1], form)
        values = next(listed.objectives(losses, changed))[0]
        at = int(np.argmin(values))
        if form == FORMS[0]:
            program = halfspace_program(task, task.lifted_costs(eta[0]), merge_records(task))
            solver = float(solve_program(program).fun) + program.constant
        else:
            solver = solve_printed(task, eta[0], free=form == FORMS[2])[1]
        answer = "(" + ", ".join(str(int(value)) for value in listed.points[at]) + ")"
        rows.append((form, answer, float(values[at]), solver, float(true[at]), float(true[at] - true.min())))
    return pd.DataFrame(rows, columns=["program", "answer", "value", "solver", "objective", "excess"])


def sign_rates(problem: ThresholdProblem | Listed, noise: ArrayLike) -> pd.DataFrame:
    """How often the programs of Figure 2 answer wrongly, by the sign of the last noise coordinate.

    Parameters
    ----------
    problem : ThresholdProblem or Listed
        Over a W that can be listed.
    noise : array_like, shape (draws, d + 1)

    Returns
    -------
    DataFrame
        ``sign``, ``program``, ``draws``, ``wrong``: share of draws at which the answer is not a minimiser,
        ``excess``: mean excess of its objective where it is wrong, ``largest``. Rows of a sign without draws are
        left out.
    """
    listed, draws = _check_draws(problem, noise)
    losses = listed.errors(listed.problem.tie)
    found = {}
    for form in FORMS:
        changed = draws.copy()
        changed[:, -1] = printed_last_coordinate(changed[:, -1], form)
        at = listed.minimisers(losses, changed)
        found[form] = losses[at] - np.sum(draws * listed.lifted[at], axis=1)
    rows = []
    for sign, chosen in (("negative", draws[:, -1] < 0), ("nonnegative", draws[:, -1] >= 0)):
        for form in FORMS[1:] if chosen.any() else ():
            excess = (found[form] - found[FORMS[0]])[chosen]
            wrong = excess > SAME
            mean = float(excess[wrong].mean()) if wrong.any() else 0.0
            rows.append((sign, form, int(chosen.sum()), float(wrong.mean()), mean, float(excess.max())))
    return pd.DataFrame(rows, columns=["sign", "program", "draws", "wrong", "excess", "largest"])


# --- strict inequalities, and ties ---------------------------------------------------------------------


def weak_program(problem: ThresholdProblem, costs: GridCosts) -> Program:
    """Figure 2's constraints with >= in the place of >, as a solver takes them: a tie is right for both labels."""
    return halfspace_program(problem, costs, merge_records(problem), thresholds=(-1, -1))


def strict_table(problem: ThresholdProblem | Listed, noise: ArrayLike, names: list[str]) -> pd.DataFrame:
    """What is gained by reading > as >=, at some noise vectors, each with a name.

    Parameters
    ----------
    problem : ThresholdProblem or Listed
        Over a W that can be listed. Its tie rule is the true one.
    noise : array_like, shape (draws, d + 1)
        A row of zeros asks for the empirical minimiser.
    names : list of str
        One a row of ``noise``.

    Returns
    -------
    DataFrame
        ``noise``, ``squared_norm`` of the answer, ``counted`` errors in the program, ``ties``, ``errors`` by the
        problem's own rule, and ``least``: those of the true minimiser at that noise.
    """
    listed, draws = _check_draws(problem, noise)
    if len(names) != len(draws):
        raise ValueError(f"names must have one entry a row of noise, {len(draws)}, got {len(names)}")
    weak, true = listed.errors("free"), listed.errors(listed.problem.tie)
    # Of several minimisers of the weak program the one with the most ties: w = 0 where there is no noise.
    at = listed.minimisers(weak - listed.ties.sum(axis=1) * SAME, draws)
    best = listed.minimisers(true, draws)
    columns: dict[str, object] = {
        "noise": names,
        "squared_norm": np.square(listed.points[at]).sum(axis=1),
        "counted": weak[at],
        "ties": listed.ties[at].sum(axis=1),
        "errors": true[at],
        "least": true[best],
    }
    return pd.DataFrame(columns)


def tie_rates(problem: ThresholdProblem | Listed, noise: ArrayLike) -> pd.DataFrame:
    """How often two rules for a tie lead to different outputs at the same noise.

    Returns
    -------
    DataFrame
        ``rules`` (two of them), ``draws``, ``different``: share of draws with different minimisers, ``ties``: mean
        number of records on the plane of the first rule's minimiser.
    """
    listed, draws = _check_draws(problem, noise)
    found: dict[str, NDArray[np.int64]] = {tie: listed.minimisers(listed.errors(tie), draws) for tie in TIES}
    on_plane = listed.ties.sum(axis=1)
    rows = [
        (f"{a}, {b}", len(draws), float((found[a] != found[b]).mean()), float(on_plane[found[a]].mean()))
        for a, b in itertools.combinations(TIES, 2)
    ]
    return pd.DataFrame(rows, columns=["rules", "draws", "different", "ties"])


# --- a relative gap ------------------------------------------------------------------------------------


def near_ties(
    problem: ThresholdProblem | Listed,
    noise: ArrayLike,
    *,
    constant: bool = False,
    relative: float = RELATIVE_GAP,
    absolute: float = 1e-6,
) -> dict[str, float]:
    """How often the second best member is so close to the best that a solver may stop at either.

    Parameters
    ----------
    problem : ThresholdProblem or Listed
        Over a W that can be listed.
    noise : array_like, shape (draws, d + 1)
    constant : bool
        Replace the errors by n / 2 everywhere: data that tell nothing, where close calls are most frequent.
    relative : float
        A solver's relative gap: its answer may be above the minimum by that times |objective|.
    absolute : float
        An additive gap.

    Returns
    -------
    dict
        ``objective`` and ``margin``: medians of |best| and of second best less best, ``allowed``: median of what
        the relative gap allows, ``relative``: share of draws with a margin within it, ``absolute``: probability of
        a margin within the additive gap, extrapolated from the smallest twentieth of the margins, whose density
        near 0 is flat.
    """
    share, step = check_positive("relative", relative), check_positive("absolute", absolute)
    listed, draws = _check_draws(problem, noise)
    whole = listed.problem
    losses = np.full(len(listed.points), whole.records // 2) if constant else listed.errors(whole.tie)
    best = np.concatenate([_best_two(values) for values in listed.objectives(losses, draws)])
    margin, size = best[:, 1] - best[:, 0], np.abs(best[:, 0])
    low = float(np.quantile(margin, 0.05))
    return {
        "objective": float(np.median(size)),
        "margin": float(np.median(margin)),
        "allowed": share * float(np.median(size)),
        "relative": float((margin <= share * size).mean()),
        "absolute": 0.05 * step / low if low > 0 else 1.0,
    }
