"""The two problems of chapter 1 against naive formulas; the fast comparisons never change an answer."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from adaptive_dp.accuracy_first import LogisticProblem, RidgeProblem, prepare
from adaptive_dp.accuracy_first.calibration import minimiser_radius
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.privacy import Domain

Array = NDArray[np.float64]
# Risks are of order 1: a difference of two of them is right to about this.
ROUNDING = 3e-15


def make(
    rows: int,
    columns: int,
    labels: str,
    rng: np.random.Generator,
    norm: str = "l1",
    distinct: int | None = None,
) -> Dataset:
    X = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.8)
    order = 1 if norm == "l1" else 2
    X /= np.maximum(np.linalg.norm(X, ord=order, axis=1, keepdims=True), 1e-12)
    X[::3] *= rng.random((len(X[::3]), 1))
    if distinct is not None:
        X = X[rng.integers(0, distinct, rows)]
    y = np.sign(X @ rng.standard_normal(columns) + 0.3 * rng.standard_normal(rows) + 1e-9)
    if labels == "real":
        y *= rng.random(rows)
    return Dataset(X, y, Domain(norm, 1.0, labels))


def naive_risk(data: Dataset, lam: float, theta: Array) -> float:
    """The definition, with numpy's own sum in extended precision."""
    X, y, t = (np.asarray(part, dtype=np.longdouble) for part in (data.features, data.labels, theta))
    prediction = X @ t
    if data.domain.labels == "sign":
        loss = np.logaddexp(np.longdouble(0), -y * prediction)
    else:
        loss = (y - prediction) ** 2 / 2
    return loss.mean() + np.longdouble(lam) / 2 * (t @ t)  # type: ignore[no-any-return]


def hypotheses(problem: Any, count: int, rng: np.random.Generator) -> list[Array]:
    """Steps from theta* over twelve orders of magnitude, dense and along an axis."""
    p = problem.columns
    steps = rng.standard_normal((count, p))
    axis = rng.random(count) < 0.3
    steps[axis] = np.eye(p)[rng.integers(0, p, axis.sum())] * rng.choice([-1.0, 1.0], (axis.sum(), 1))
    lengths = 10 ** rng.uniform(-9, 3, (count, 1))
    return list(problem.minimiser + steps * lengths)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(("rows", "columns", "lam"), [(1, 1, 1.0), (7, 3, 0.1), (40, 5, 0.005), (3, 8, 0.05)])
@pytest.mark.parametrize("labels", ["real", "sign"])
def test_risks_and_excess_risks_are_those_of_the_definition(
    labels: str, rows: int, columns: int, lam: float, norm: str
) -> None:
    """L(theta) and L(theta) - L(theta*) against extended-precision sums, also for p > n."""
    rng = np.random.default_rng(1)
    data = make(rows, columns, labels, rng, norm)
    problem = prepare(data, lam=lam)
    least = naive_risk(data, lam, problem.minimiser)
    for theta in hypotheses(problem, 60, rng):
        exact = naive_risk(data, lam, theta)
        assert problem.risk(theta) == pytest.approx(float(exact), rel=1e-13)
        tolerance = ROUNDING * max(1.0, float(exact)) * 4
        assert problem.excess_risk(theta) == pytest.approx(float(exact - least), rel=1e-9, abs=tolerance)


@pytest.mark.parametrize("labels", ["real", "sign"])
@pytest.mark.parametrize("lam", [0.005, 0.3, 3.0])
def test_minimiser_is_that_of_a_general_optimiser(labels: str, lam: float) -> None:
    """theta* has no gradient and no better point near it (scipy's BFGS from zero ends within 1e-5)."""
    data = make(30, 4, labels, np.random.default_rng(2))
    problem = prepare(data, lam=lam)
    found = minimize(problem.risk, np.zeros(4), method="BFGS", options={"gtol": 1e-7}).x
    assert found == pytest.approx(problem.minimiser, abs=1e-4)
    assert problem.risk(problem.minimiser) <= problem.risk(found) + ROUNDING
    assert np.linalg.norm(problem.minimiser) <= minimiser_radius(problem.task, lam=lam) * (1 + 1e-9)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("lam", [0.002, 0.05, 1.0])
@pytest.mark.parametrize("shape", [(25, 4), (2, 6), (1, 1)])
def test_logistic_bounds_contain_the_exact_excess_risk(norm: str, lam: float, shape: tuple[int, int]) -> None:
    """Self-concordance bounds on 300 hypotheses a case, steps from 1e-9 to 1e3 in length."""
    rng = np.random.default_rng(3)
    data = make(*shape, "sign", rng, norm)
    problem = prepare(data, lam=lam)
    assert isinstance(problem, LogisticProblem)
    least = naive_risk(data, lam, problem.minimiser)
    narrow = 0
    for theta in hypotheses(problem, 300, rng):
        lower, upper = problem.excess_bounds(theta)
        exact = float(naive_risk(data, lam, theta) - least)
        # the gradient at theta* is zero up to 1e-10 and moves the excess by that much a unit of length
        slack = 1e-18 + 1e-10 * float(np.linalg.norm(theta - problem.minimiser))
        assert lower <= exact * (1 + 1e-12) + slack
        assert exact * (1 - 1e-12) <= upper + slack
        narrow += upper < 1.01 * lower + 1e-30
    assert narrow > 20  # the bounds are not trivial


def test_planted_fault_the_quadratic_term_alone_is_no_bound() -> None:
    """Without the self-concordance factors the containment check fails on both sides."""
    rng = np.random.default_rng(4)
    data = make(25, 4, "sign", rng)
    problem = prepare(data, lam=0.002)
    assert isinstance(problem, LogisticProblem)
    below = above = 0
    for theta in hypotheses(problem, 300, rng):
        step = theta - problem.minimiser
        quadratic = float(step @ problem.data_hessian @ step / 2 + problem.lam * (step @ step) / 2)
        exact = float(naive_risk(data, 0.002, theta) - naive_risk(data, 0.002, problem.minimiser))
        below += quadratic < exact * (1 - 1e-3) - 1e-9
        above += quadratic > exact * (1 + 1e-3) + 1e-9
    assert below > 0
    assert above > 0


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("labels", ["real", "sign"])
@pytest.mark.parametrize("lam", [0.003, 0.3])
def test_fast_comparison_never_changes_an_answer(labels: str, lam: float, norm: str) -> None:
    """excess_at_most equals the naive comparison for levels around the excess, at it, zero and negative."""
    rng = np.random.default_rng(5)
    data = make(30, 3, labels, rng, norm)
    problem = prepare(data, lam=lam)
    least = naive_risk(data, lam, problem.minimiser)
    for theta in hypotheses(problem, 250, rng):
        exact = float(naive_risk(data, lam, theta) - least)
        room = 1e-14 * max(1.0, float(naive_risk(data, lam, theta)))  # a tie is a matter of rounding
        for factor in (0.2, 0.9, 1 - 1e-4, 1 - 1e-7, 1 + 1e-9, 1 + 1e-7, 1 + 1e-4, 1.1, 5.0):
            if abs(exact * factor - exact) > 2 * room:
                assert problem.excess_at_most(theta, exact * factor) == (factor > 1)
        assert not problem.excess_at_most(theta, -room)
        assert problem.excess_at_most(theta, math.inf)
        assert not problem.excess_at_most(theta, -math.inf)
        level = rng.normal(scale=max(exact, 1e-3))
        if abs(level - exact) > 2 * room:
            assert problem.excess_at_most(theta, level) == (exact <= level)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("shape", [(30, 3), (200, 40), (2, 90)])
def test_single_precision_excess_is_within_its_own_error_bound(norm: str, shape: tuple[int, int]) -> None:
    """rough_excess_risk errs by less than it says, and not by a hopelessly small part of it."""
    rng = np.random.default_rng(15)
    data = make(*shape, "sign", rng, norm)
    problem = prepare(data, lam=0.01)
    assert isinstance(problem, LogisticProblem)
    least = naive_risk(data, 0.01, problem.minimiser)
    worst = 0.0
    for theta in hypotheses(problem, 200, rng):
        rough, bound = problem.rough_excess_risk(theta)
        room = ROUNDING * float(naive_risk(data, 0.01, theta))
        error = abs(rough - float(naive_risk(data, 0.01, theta) - least))
        assert error <= bound + room
        worst = max(worst, error / bound)
    assert worst > 1e-5


@pytest.mark.parametrize("labels", ["real", "sign"])
def test_the_minimiser_itself_has_no_excess(labels: str) -> None:
    """At theta* the excess is zero and any positive level is met."""
    problem = prepare(make(12, 3, labels, np.random.default_rng(6)), lam=0.1)
    assert problem.excess_risk(problem.minimiser) == 0
    assert problem.excess_at_most(problem.minimiser, 0.0)
    assert not problem.excess_at_most(problem.minimiser, -1e-9)


@pytest.mark.parametrize("labels", ["real", "sign"])
def test_sphere_certificate_is_below_every_excess_on_the_sphere(labels: str) -> None:
    """lam (R - |theta*|)^2 / 2 bounds the excess of 500 points of the sphere from below."""
    rng = np.random.default_rng(7)
    problem = prepare(make(30, 3, labels, rng), lam=0.05)
    for radius in (0.5 * float(np.linalg.norm(problem.minimiser)), 2.0, 20.0):
        directions = rng.standard_normal((500, 3))
        points = radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        least = min(problem.excess_risk(point) for point in points)
        certificate = problem.least_excess_on_sphere(radius)
        assert 0 <= certificate <= least * (1 + 1e-12) + 1e-12
    assert problem.least_excess_on_sphere(20.0) > 0


def test_equal_signed_rows_are_kept_once_and_counted() -> None:
    """y x decides the loss: duplicates, sign-flipped records and +-0.0 are one row."""
    X = np.array(
        [[0.5, 0.0], [-0.5, -0.0], [0.5, -0.0], [0.0, 0.0], [-0.0, 0.0], [0.5, 1e-300], [0.25, 0.25]]
    )
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0])
    problem = prepare(Dataset(X, y, Domain("l1", 1.0, "sign")), lam=0.1)
    assert isinstance(problem, LogisticProblem)
    assert problem.counts.tolist() == [3.0, 2.0, 1.0, 1.0]
    assert np.array_equal(problem.signed[[0, 2, 3]], X[[0, 5, 6]])
    assert problem.rows == 7


@pytest.mark.parametrize("distinct", [1, 3, 50])
def test_collapsing_rows_changes_no_risk(distinct: int) -> None:
    """Risks of a table with many repeated rows against those of the definition."""
    rng = np.random.default_rng(8)
    data = make(200, 3, "sign", rng, distinct=distinct)
    problem = prepare(data, lam=0.02)
    assert isinstance(problem, LogisticProblem)
    assert len(problem.counts) <= min(200, 2 * distinct)
    assert problem.counts.sum() == 200
    assert len({row.tobytes() for row in problem.signed}) == len(problem.signed)
    for theta in rng.standard_normal((20, 3)):
        assert problem.risk(theta) == pytest.approx(float(naive_risk(data, 0.02, theta)), rel=1e-13)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("labels", ["real", "sign"])
def test_one_class_only_is_an_ordinary_problem(labels: str, sign: float) -> None:
    """The ridge term keeps the minimiser finite and inside the ball."""
    rng = np.random.default_rng(9)
    X = np.abs(make(20, 2, "real", rng).features)
    problem = prepare(Dataset(X, np.full(20, sign), Domain("l1", 1.0, labels)), lam=0.01)
    assert np.isfinite(problem.minimiser).all()
    assert (sign * problem.minimiser > 0).all()
    assert np.linalg.norm(problem.minimiser) <= minimiser_radius(problem.task, lam=0.01)


@pytest.mark.parametrize("labels", ["real", "sign"])
def test_repeating_all_records_changes_nothing(labels: str) -> None:
    """Field report 5: the ridge stands beside a mean, so n doubled by repetition gives the same theta*."""
    data = make(15, 3, labels, np.random.default_rng(10))
    twice = Dataset(np.vstack([data.features] * 2), np.tile(data.labels, 2), data.domain)
    one, two = prepare(data, lam=0.05), prepare(twice, lam=0.05)
    assert two.minimiser == pytest.approx(one.minimiser, rel=1e-9, abs=1e-12)
    assert two.risk(np.ones(3)) == pytest.approx(one.risk(np.ones(3)), rel=1e-13)


@pytest.mark.parametrize("labels", ["real", "sign"])
def test_zero_data_and_constant_columns_are_ordinary_problems(labels: str) -> None:
    """All-zero rows: theta* = 0; a constant column is a feature like others."""
    zero = prepare(Dataset(np.zeros((4, 2)), np.ones(4), Domain("l1", 1.0, labels)), lam=0.5)
    assert np.array_equal(zero.minimiser, np.zeros(2))
    assert zero.excess_risk(np.array([1.0, 0.0])) == pytest.approx(0.25, rel=1e-14)
    X = np.column_stack([np.full(6, 0.5), np.linspace(-0.5, 0.5, 6)])
    constant = prepare(Dataset(X, np.sign(X[:, 1] + 0.01), Domain("l1", 1.0, labels)), lam=0.1)
    assert np.isfinite(constant.minimiser).all()


@pytest.mark.parametrize("labels", ["real", "sign"])
def test_layout_and_type_of_the_input_do_not_matter(labels: str) -> None:
    """Field reports 3 and 17: integers, frames, Fortran order and strided views give the same theta*."""
    X = np.array([[1, 0], [0, 1], [0, -1], [1, 0], [0, 0]])
    y = np.array([1, -1, 1, 1, -1])
    domain = Domain("l1", 1.0, labels)
    wide = np.zeros((5, 4))
    wide[:, ::2] = X
    versions = [
        (X.astype(float), y.astype(float)),
        (X, y),
        (X.tolist(), y.tolist()),
        (pd.DataFrame(X, columns=["a", "b"]), pd.Series(y)),
        (np.asfortranarray(X.astype(float)), y.astype(np.int8)),
        (wide[:, ::2], y.astype(np.float32)),
        (X[::-1][::-1], y[::-1][::-1]),
    ]
    first, *others = (prepare(Dataset(A, b, domain), lam=0.1).minimiser for A, b in versions)
    for other in others:
        assert np.array_equal(first, other)


@pytest.mark.parametrize(
    ("domain", "word"),
    [
        (Domain("linf", 1.0, "real"), "domain"),
        (Domain("l1", 2.0, "real"), "domain"),
        (Domain("l2", 1.5, "sign"), "domain"),
        (Domain("l1", 1.0, "real", 3.0), "domain"),
        (Domain("l1", 1.0, "class", 2.0), "domain"),
    ],
)
def test_domains_without_a_proof_are_refused(domain: Domain, word: str) -> None:
    """Field reports 1 and 4: constants proved for unit rows and labels are not used at other bounds."""
    data = Dataset(np.array([[0.5], [0.2]]), np.array([1.0, 1.0]), domain)
    with pytest.raises(ValueError, match=word):
        prepare(data, lam=0.1)


def test_smaller_bounds_are_covered_by_the_unit_domain() -> None:
    """A domain inside the unit one is accepted."""
    data = Dataset(np.array([[0.1], [0.2]]), np.array([0.1, -0.3]), Domain("l2", 0.5, "real", 0.5))
    assert isinstance(prepare(data, lam=0.1), RidgeProblem)


@pytest.mark.parametrize(
    ("lam", "error"),
    [
        (0.0, ValueError),
        (-1.0, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (None, TypeError),
        ("1", TypeError),
        (True, TypeError),
        (np.array([1.0]), TypeError),
    ],
)
def test_prepare_refuses_an_impossible_ridge(lam: Any, error: type[Exception]) -> None:
    """lam must be a positive real number, and the error names it."""
    data = Dataset(np.array([[0.5]]), np.array([1.0]), Domain())
    with pytest.raises(error, match="lam"):
        prepare(data, lam=lam)


@pytest.mark.parametrize("data", [None, np.eye(2), (np.eye(2), np.ones(2)), "adult"])
def test_prepare_refuses_what_has_no_domain(data: Any) -> None:
    """Arrays without declared bounds are not data."""
    with pytest.raises(TypeError, match="data"):
        prepare(data, lam=0.1)


def test_a_prepared_problem_passes_through_and_keeps_its_lam() -> None:
    """The same object comes back; another lam is refused by name."""
    problem = prepare(Dataset(np.array([[0.5]]), np.array([1.0]), Domain()), lam=0.1)
    assert prepare(problem) is problem
    assert prepare(problem, lam=0.1) is problem
    with pytest.raises(ValueError, match=r"lam.*0\.2"):
        prepare(problem, lam=0.2)


@pytest.mark.parametrize("labels", ["real", "sign"])
def test_a_problem_shows_no_data_when_printed(labels: str) -> None:
    """A problem holds private data: its printed form shows no number of it."""
    data = Dataset(np.array([[0.123456]]), np.array([1.0]), Domain("l1", 1.0, labels))
    assert "0.123" not in repr(prepare(data, lam=0.1))
    assert pickle.loads(pickle.dumps(prepare(data, lam=0.1))).lam == 0.1


def test_hessian_does_not_overflow_on_separable_data() -> None:
    """Huge margins have curvature zero, not a warning."""
    features = np.random.default_rng(3).dirichlet(np.ones(3) * 0.2, 500)
    labels = np.where(features[:, 0] > features[:, 1], 1.0, -1.0)
    problem = prepare(Dataset(features, labels, Domain("l1", 1.0, "sign", 1.0)), lam=1e-9)
    assert np.isfinite(problem.data_hessian).all()


def test_private_statistics_cannot_be_edited() -> None:
    """An edited minimiser would void every later release."""
    features = np.eye(3)
    for labels, kind in ((np.array([1.0, -1.0, 1.0]), "sign"), (np.array([0.5, -0.5, 0.2]), "real")):
        problem = prepare(Dataset(features, labels, Domain("l1", 1.0, kind, 1.0)), lam=0.1)
        with pytest.raises(ValueError, match="read-only"):
            problem.minimiser[0] = 0.0
