"""The baselines of Section 3.6.1: exact guarantees on many neighbours, and AdaSSP against the authors' code."""

import math

import numpy as np
import pytest

from adaptive_dp.accounting import GaussianCurve, gaussian_delta
from adaptive_dp.datasets import Dataset
from adaptive_dp.privacy import Domain, Neighbours, Refused
from adaptive_dp.ptr import flaws_regression as flaws
from adaptive_dp.ptr.ops_curve import plan_by_curve
from adaptive_dp.ptr.ops_ptr import PosteriorSample
from adaptive_dp.ptr.posterior_sampling import posterior_delta
from adaptive_dp.ptr.regression import (
    ada_ops,
    ada_ssp,
    nonprivate_ridge,
    ops_balanced,
    output_perturbation,
    ridge_sensitivity,
    spread,
    ssp_solution,
)
from adaptive_dp.ptr.spectrum import Spectrum

DOMAIN = Domain("l2", 1.0, "real", 1.0)


def people(rows=300, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.clip(x @ rng.uniform(-0.6, 0.6, columns) + 0.1 * rng.standard_normal(rows), -1, 1)
    return Dataset(x, y, DOMAIN)


def adversarial_pair(rng, rows, lam, columns):
    """A set of rows - 1 records and one more, with labels that push the residual as far as they can."""
    x = rng.standard_normal((rows - 1, columns)) * 10 ** rng.uniform(-1.2, 0.5, columns)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    new = rng.standard_normal(columns)
    new /= np.linalg.norm(new)
    y = -np.sign(x @ np.linalg.solve(x.T @ x + lam * np.eye(columns), new))
    return x, y, new, 1.0


# --- output perturbation ------------------------------------------------------------------------------


def test_sensitivity_covers_all_neighbours_and_is_almost_attained():
    # 8,000 pairs of adversarial neighbours in one to three dimensions.
    rng = np.random.default_rng(1)
    ratios = []
    for lam, rows in ((0.5, 3), (2.0, 5), (1.0, 12), (5.0, 40), (30.0, 20)):
        bound = ridge_sensitivity(DOMAIN, lam=lam, largest_rows=rows)
        largest = 0.0
        for _ in range(1_600):
            d = int(rng.integers(1, 4))
            x, y, new, label = adversarial_pair(rng, rows, lam, d)
            hessian = x.T @ x + lam * np.eye(d)
            theta = np.linalg.solve(hessian, x.T @ y)
            moved = np.linalg.solve(hessian + np.outer(new, new), x.T @ y + label * new)
            largest = max(largest, float(np.linalg.norm(theta - moved)))
        assert largest <= bound
        ratios.append(largest / bound)
    assert min(ratios) > 0.8
    assert max(ratios) > 0.99


def test_sensitivity_of_the_first_record_is_known():
    # Against the empty set theta* = x y / (|x|^2 + lam), largest at |x| = min(1, sqrt(lam)).
    for lam in (0.09, 4.0):
        length = min(1.0, math.sqrt(lam))
        assert ridge_sensitivity(DOMAIN, lam=lam, largest_rows=1) == pytest.approx(length / (length**2 + lam))


def test_output_perturbation_is_the_ridge_solution_with_calibrated_noise():
    data = people()
    releases = [
        output_perturbation(
            data, epsilon=1.0, delta=1e-6, largest_rows=400, lam=20.0, rng=np.random.default_rng(i)
        )
        for i in range(600)
    ]
    promise = releases[0].guarantee
    assert (promise.epsilon, promise.delta, promise.neighbours) == (1.0, 1e-6, Neighbours.ADD_REMOVE)
    sigma = releases[0].trace["sigma"]
    sensitivity = ridge_sensitivity(DOMAIN, lam=20.0, largest_rows=400)
    assert gaussian_delta(1.0, sensitivity / sigma) == pytest.approx(1e-6, rel=1e-6)
    noise = np.array([r.value - r.trace["solution"] for r in releases]) / sigma
    assert np.all(np.abs(noise.mean(axis=0)) < 5 / math.sqrt(600))
    assert noise.std() == pytest.approx(1.0, abs=0.06)
    np.testing.assert_allclose(releases[0].trace["solution"], Spectrum.of(data).ridge(20.0))


# --- OPS-Balanced -------------------------------------------------------------------------------------


def test_ops_balanced_holds_on_all_neighbours():
    # 2,000 adversarial pairs, both directions, with the lam and gamma that are really used.
    rng = np.random.default_rng(2)
    for rows, epsilon, delta in ((4, 1.0, 1e-3), (30, 0.5, 1e-2)):
        data = people(rows, 2)
        release = ops_balanced(data, epsilon=epsilon, delta=delta, largest_rows=rows, rng=rng)
        lam, gamma = release.trace["lam"], release.trace["gamma"]
        largest = 0.0
        for _ in range(1_000):
            d = int(rng.integers(1, 4))
            x, y, new, label = adversarial_pair(rng, rows, lam, d)
            hessian = x.T @ x + lam * np.eye(d)
            h = float(new @ np.linalg.solve(hessian, new))
            r = float(label - new @ np.linalg.solve(hessian, x.T @ y))
            mean = math.sqrt(gamma * h) * r / (1 + h)
            for sampled in ("without", "with"):
                largest = max(largest, posterior_delta(epsilon, h, mean, sampled=sampled))
        assert 0.05 * delta < largest <= delta
        assert release.guarantee.curve.delta(epsilon) <= delta


def test_ops_balanced_picks_a_sensible_ridge():
    data = people(500)
    rng = np.random.default_rng(3)
    common = {"epsilon": 1.0, "delta": 1e-6, "largest_rows": 500, "rng": rng}
    chosen = ops_balanced(data, **common).trace
    cost = spread(4) / chosen["gamma"] + chosen["lam"] / 2
    for factor in (0.5, 2.0):
        other = ops_balanced(data, lam=factor * chosen["lam"], **common).trace
        assert spread(4) / other["gamma"] + other["lam"] / 2 > cost


# --- AdaOPS -------------------------------------------------------------------------------------------


def test_ada_ops_releases_a_sample_under_the_guarantee_of_ops_ptr():
    data = people(2_000)
    release = ada_ops(data, epsilon=1.0, delta=1e-6, rng=np.random.default_rng(4))
    assert isinstance(release.value, PosteriorSample)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)
    plan = plan_by_curve(DOMAIN, epsilon=1.0, delta=1e-6)
    one = plan.guarantee
    sharper = ada_ops(data, epsilon=one.epsilon, delta=one.delta, plan=plan, rng=np.random.default_rng(4))
    assert sharper.guarantee.curve is one.curve
    # A larger released eigenvalue asks for a smaller ridge.
    rng = np.random.default_rng(5)
    values = [ada_ops(people(), epsilon=2.0, delta=1e-6, rng=rng).value for _ in range(30)]
    assert np.corrcoef([v.smallest_eigenvalue for v in values], [v.lam for v in values])[0, 1] < -0.9


def test_ada_ops_with_hardly_any_budget_still_answers_or_refuses():
    value = ada_ops(people(5), epsilon=1e-3, delta=1e-9, rng=np.random.default_rng(6)).value
    assert isinstance(value, PosteriorSample | Refused)


# --- AdaSSP -------------------------------------------------------------------------------------------


def reference_data():
    x = np.sin(np.arange(1.0, 1501.0)).reshape(500, 3, order="F")
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return Dataset(x, x @ np.array([0.5, -0.2, 0.1]), DOMAIN)


def test_ada_ssp_without_noise_is_that_of_the_authors():
    # Value adassp.zero_noise.eps1.0: the authors' code with its Gaussian draws set to zero, epsilon 1, delta 1e-6.
    tail = math.log(6 / 1e-6)
    theta, lam = ssp_solution(
        Spectrum.of(reference_data()),
        0.0,
        np.zeros((3, 3)),
        np.zeros(3),
        scale=math.sqrt(tail) * 3,
        tail=tail,
    )
    np.testing.assert_allclose(theta, [0.368584756099, -0.249163433892, 0.0718610839235], rtol=1e-6)
    assert lam > 0


def test_scales_of_ada_ssp():
    data = reference_data()
    rng = np.random.default_rng(7)
    printed = ada_ssp(data, epsilon=1.0, delta=1e-6, calibration="wang2018", rng=rng)
    exact = ada_ssp(data, epsilon=1.0, delta=1e-6, rng=rng)
    assert printed.trace["scale"] == pytest.approx(3 * math.sqrt(math.log(6e6)))
    assert exact.trace["scale"] < 0.65 * printed.trace["scale"]
    assert exact.guarantee.curve.delta(1.0) == pytest.approx(1e-6, rel=1e-6)


def test_ada_ssp_holds_on_all_neighbours():
    # 3,000 pairs: the squares of mu of the three releases, for the record itself, never exceed those of the plan.
    rng = np.random.default_rng(8)
    scale = ada_ssp(people(10), epsilon=1.0, delta=1e-6, rng=rng).trace["scale"]
    goe_sigma = scale / math.sqrt(2)
    total = GaussianCurve(math.sqrt(3) / scale).mu
    largest = 0.0
    for _ in range(3_000):
        n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        x = rng.standard_normal((n, d))
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
        new, label = x[-1] / max(np.linalg.norm(x[-1]), 1e-9), rng.choice([-1.0, 1.0])
        square = x[:-1].T @ x[:-1]
        moved = np.linalg.eigvalsh(square + np.outer(new, new))[0] - np.linalg.eigvalsh(square)[0]
        # A symmetric matrix of Frobenius norm F seen by a GOE of scale sigma: mu = F / (sqrt(2) sigma).
        parts = (
            moved / scale,
            np.linalg.norm(np.outer(new, new)) / (math.sqrt(2) * goe_sigma),
            np.linalg.norm(new * label) / scale,
        )
        largest = max(largest, math.hypot(*parts))
    assert largest <= total * (1 + 1e-9)
    assert largest > 0.99 * total


def test_ada_ssp_is_close_to_ridge_with_a_large_budget():
    data = people(5_000)
    ridge = nonprivate_ridge(data, lam=1.0)
    assert math.isinf(ridge.guarantee.epsilon)
    theta = ada_ssp(data, epsilon=50.0, delta=1e-3, rng=np.random.default_rng(9)).value
    np.testing.assert_allclose(theta, ridge.value, atol=0.01)


def test_constants_of_wang2018_hold_together_but_not_one_by_one():
    table = flaws.ada_ssp_constants()
    assert (table["one_delta"][1:] > table["one_claimed"][1:]).all()
    assert (table["joint_delta"][:4] < table["claimed_delta"][:4]).all()
    with pytest.raises(ValueError, match="epsilon is too large"):
        ada_ssp(people(10), epsilon=40.0, delta=1e-6, calibration="wang2018", rng=np.random.default_rng(0))


# --- bad input ----------------------------------------------------------------------------------------

ROWS = {"largest_rows": 20}


@pytest.mark.parametrize(
    ("method", "change", "error", "words"),
    [
        (output_perturbation, {"largest_rows": 5}, ValueError, "largest_rows"),
        (output_perturbation, {"largest_rows": 20.0}, TypeError, "largest_rows"),
        (output_perturbation, {**ROWS, "lam": 0.0}, ValueError, "lam"),
        (output_perturbation, {**ROWS, "epsilon": 0.0}, ValueError, "epsilon"),
        (output_perturbation, {**ROWS, "norm_guess": 0.0}, ValueError, "norm_guess"),
        (ops_balanced, {**ROWS, "lam": 1e-3}, ValueError, "lam is too small"),
        (ops_balanced, {**ROWS, "delta": 0.0}, ValueError, "delta"),
        (ops_balanced, {**ROWS, "rng": 1}, TypeError, "rng"),
        (ada_ops, {"epsilon": True}, TypeError, "epsilon"),
        (ada_ops, {"plan": plan_by_curve(DOMAIN, epsilon=2.0, delta=1e-5)}, ValueError, "plan"),
        (ada_ssp, {"calibration": "loose"}, ValueError, "calibration"),
        (ada_ssp, {"ridge": -1.0}, ValueError, "ridge"),
        (ada_ssp, {"rng": None}, TypeError, "rng"),
    ],
)
def test_bad_input(method, change, error, words):
    arguments = {"epsilon": 1.0, "delta": 1e-6, "rng": np.random.default_rng(0), **change}
    with pytest.raises(error, match=words):
        method(people(10), **arguments)


def test_labels_must_be_real():
    data = Dataset([[1.0], [0.5]], [0, 1], Domain("l2", 1.0, "class", 2.0))
    with pytest.raises(ValueError, match="real labels"):
        ada_ssp(data, epsilon=1.0, delta=1e-6, rng=np.random.default_rng(0))
