"""Properties of chapter 1 for any data and any parameters, with examples sought by hypothesis."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from adaptive_dp.accuracy_first import LogisticProblem, cov_nr, doubling, output_nr, prepare
from adaptive_dp.accuracy_first.calibration import (
    above_threshold_epsilon,
    default_levels,
    doubling_levels,
    doubling_test_epsilon,
    minimiser_radius,
    minimiser_sensitivity,
    risk_query_sensitivity,
)
from adaptive_dp.accuracy_first.moments import MomentCoding
from adaptive_dp.accuracy_first.theory import expected_excess_risk, invert_theory
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.privacy import Domain, Refused

Array = NDArray[np.float64]
# Fixed examples on every run: a failure in continuous integration can be repeated.
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)

unit = st.floats(-1, 1, allow_subnormal=False)
ridges = st.floats(-5, 3).map(lambda z: 10.0**z)
goals = st.floats(-4, 3).map(lambda z: 10.0**z)
calibrations = st.sampled_from(["printed", "sharp"])
tasks = st.sampled_from([("ridge", "covariance"), ("ridge", "output"), ("logistic", "output")])


@st.composite
def datasets(draw: st.DrawFn, labels: str | None = None) -> Dataset:
    """Up to 6 records with up to 4 features, any signs, zeros and ties; l1 or l2 rows."""
    kind = labels or draw(st.sampled_from(["real", "sign"]))
    norm = "l1" if labels == "real" else draw(st.sampled_from(["l1", "l2"]))
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 4)))
    X = draw(hnp.arrays(np.float64, shape, elements=unit))
    X = X / np.maximum(1.0, np.linalg.norm(X, ord=1 if norm == "l1" else 2, axis=1, keepdims=True))
    element = unit if kind == "real" else st.sampled_from([-1.0, 1.0])
    return Dataset(X, draw(hnp.arrays(np.float64, shape[0], elements=element)), Domain(norm, 1.0, kind))


@given(datasets(), ridges)
@SETTINGS
def test_minimiser_is_stationary_and_inside_both_balls(data: Dataset, lam: float) -> None:
    """AF-14: gradient zero by the definition, norm within the sharp and the printed radius."""
    problem = prepare(data, lam=lam)
    theta = problem.minimiser
    prediction = data.features @ theta
    if problem.task == "ridge":
        slope = prediction - data.labels
    else:
        slope = -data.labels / (1 + np.exp(data.labels * prediction))
    gradient = slope @ data.features / data.rows + lam * theta
    assert np.abs(gradient).max() < 1e-9
    for calibration in ("printed", "sharp"):
        radius = minimiser_radius(problem.task, lam=lam, calibration=calibration)
        assert np.linalg.norm(theta) <= radius * (1 + 1e-9) + 1e-9 / lam


@given(datasets("sign"), ridges, hnp.arrays(np.float64, 4, elements=st.floats(-50, 50)), st.floats(-8, 0))
@SETTINGS
def test_logistic_bounds_and_comparison_agree_with_the_exact_excess(
    data: Dataset, lam: float, direction: Array, size: float
) -> None:
    """excess_bounds contain the excess and excess_at_most equals the plain comparison away from ties."""
    problem = prepare(data, lam=lam)
    assert isinstance(problem, LogisticProblem)
    theta = problem.minimiser + 10.0**size * direction[: problem.columns]
    exact = problem.excess_risk(theta)
    lower, upper = problem.excess_bounds(theta)
    room = 1e-14 * (1 + problem.risk(theta)) + 1e-10 * float(np.linalg.norm(theta - problem.minimiser))
    assert lower <= exact + room
    assert exact <= upper + room
    for level in (0.0, exact / 2, exact * 2, exact + 1, -1.0, lower, upper):
        if math.isfinite(level) and abs(level - exact) > room:
            assert problem.excess_at_most(theta, level) == (exact <= level)


@given(datasets(), ridges, hnp.arrays(np.float64, 4, elements=st.floats(-5, 5)))
@SETTINGS
def test_order_and_multiplicity_of_records_do_not_matter(data: Dataset, lam: float, theta: Array) -> None:
    """Field report 5: reversing and repeating the records leaves every risk alone."""
    other = Dataset(np.vstack([data.features[::-1]] * 3), np.tile(data.labels[::-1], 3), data.domain)
    one, three = prepare(data, lam=lam), prepare(other, lam=lam)
    point = theta[: one.columns]
    assert math.isclose(one.risk(point), three.risk(point), rel_tol=1e-12, abs_tol=1e-13)


@given(
    st.integers(1, 6),
    st.sampled_from(["printed", "sharp", "gaussian"]),
    st.integers(0, 2**32 - 1),
)
@SETTINGS
def test_decoding_is_linear_and_inverts_encoding(columns: int, kind: str, seed: int) -> None:
    """decode(encode(G, m) + noise) = (G, m) + decode(noise)."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((columns, columns))
    gram, moment = half + half.T, rng.standard_normal(columns)
    coding = MomentCoding(columns, kind)
    noise = rng.standard_normal(coding.size)
    matrix, vector = coding.decode(coding.encode(gram, moment) + noise)
    noise_matrix, noise_vector = coding.decode(noise)
    np.testing.assert_allclose(matrix, gram + noise_matrix, rtol=0, atol=1e-13)
    np.testing.assert_allclose(vector, moment + noise_vector, rtol=0, atol=1e-13)


@given(tasks, calibrations, goals, st.integers(1, 10**7), st.integers(1, 300), ridges)
@SETTINGS
def test_inversion_is_safe_and_tight_and_the_sharp_one_is_never_dearer(
    pair: tuple[str, str], calibration: str, alpha: float, rows: int, columns: int, lam: float
) -> None:
    """AF-13: bound(E) within 1e-9 below alpha; the sharp E is at most the printed one."""
    sizes = {"rows": rows, "columns": columns, "lam": lam}
    epsilon = invert_theory(*pair, alpha=alpha, calibration=calibration, **sizes)
    bound = expected_excess_risk(*pair, epsilon=epsilon, calibration=calibration, **sizes)
    assert alpha * (1 - 1e-9) < bound <= alpha
    assert expected_excess_risk(*pair, epsilon=2 * epsilon, calibration=calibration, **sizes) < bound


@given(st.sampled_from(["ridge", "logistic"]), st.integers(1, 10**7), st.integers(1, 300), ridges)
@SETTINGS
def test_sharp_constants_are_never_above_the_printed_ones(
    task: str, rows: int, columns: int, lam: float
) -> None:
    """Errata AF-1d, AF-3a, AF-7: radius and both sensitivities."""
    for constant in (
        lambda c: minimiser_radius(task, lam=lam, calibration=c),
        lambda c: risk_query_sensitivity(task, rows=rows, lam=lam, calibration=c),
        lambda c: minimiser_sensitivity(task, rows=rows, columns=columns, lam=lam, calibration=c),
    ):
        assert 0 < constant("sharp") <= constant("printed")


@given(goals, st.floats(0.001, 0.999), st.integers(2, 10**6), calibrations)
@SETTINGS
def test_budgets_of_the_tests_are_positive_and_ordered(
    alpha: float, failure: float, levels: int, calibration: str
) -> None:
    """More levels, a smaller gamma or a smaller alpha cost more; the sharp budget is below the printed one."""
    for budget in (above_threshold_epsilon, doubling_test_epsilon):
        base = {"sensitivity": 0.1, "alpha": alpha, "failure": failure, "levels": levels}
        value = budget(**base, calibration=calibration)
        assert value > 0
        assert budget(**{**base, "levels": levels + 1}, calibration=calibration) > value
        assert budget(**{**base, "failure": failure / 2}, calibration=calibration) > value
        assert budget(**{**base, "alpha": alpha / 2}, calibration=calibration) > value
        assert budget(**base, calibration="sharp") <= budget(**base, calibration="printed")


@given(st.integers(1, 10**6), st.floats(-6, 6).map(lambda z: 10.0**z))
@SETTINGS
def test_default_grids_increase_from_one_over_n(rows: int, largest: float) -> None:
    """Erratum AF-2: both grids start at 1/n, increase and reach 4 E."""
    for levels in (
        default_levels(rows=rows, largest=largest, count=50),
        doubling_levels(rows=rows, largest=largest),
    ):
        values = np.array(list(levels))
        assert math.isclose(values[0], 1 / rows, rel_tol=1e-14)
        assert (np.diff(values) > 0).all()
        assert values[-1] >= 4 * largest * (1 - 1e-12)


@given(datasets("real"), ridges, goals, calibrations, st.integers(0, 2**32 - 1))
@SETTINGS
def test_ridge_searches_publish_theta_in_the_ball_at_the_price_of_its_index(
    data: Dataset, lam: float, alpha: float, calibration: str, seed: int
) -> None:
    """AF-06, AF-11: whatever the data, the outcome is a theta in the ball or a refusal, with matching parts."""
    assert_searches_are_sound(data, lam, alpha, calibration, seed)


@given(datasets("sign"), ridges, goals, calibrations, st.integers(0, 2**32 - 1))
@SETTINGS
def test_logistic_searches_publish_theta_in_the_ball_at_the_price_of_its_index(
    data: Dataset, lam: float, alpha: float, calibration: str, seed: int
) -> None:
    """AF-08, AF-11: the same for logistic regression."""
    assert_searches_are_sound(data, lam, alpha, calibration, seed)


def assert_searches_are_sound(data: Dataset, lam: float, alpha: float, calibration: str, seed: int) -> None:
    problem = prepare(data, lam=lam)
    epsilons = [0.1, 1.0, 10.0, 1000.0]
    radius = minimiser_radius(problem.task, lam=lam, calibration=calibration)
    common = {"alpha": alpha, "failure": 0.2, "epsilons": epsilons, "calibration": calibration}
    rng = np.random.default_rng(seed)
    covariance = problem.task == "ridge"
    for release in (
        (cov_nr if covariance else output_nr)(problem, **common, rng=rng),
        doubling(problem, mechanism="covariance" if covariance else "output", **common, rng=rng),
    ):
        assert math.isclose(sum(release.guarantee.parts.values()), release.guarantee.epsilon, rel_tol=1e-12)
        if isinstance(release.value, Refused):
            assert release.index is None
            assert release.guarantee.parts["generate"] >= epsilons[-1]
        else:
            assert release.index is not None
            assert release.guarantee.parts["generate"] >= epsilons[release.index]
            assert np.linalg.norm(release.value) <= radius * (1 + 1e-12)
