"""Objective perturbation: the minimiser, its derivatives, its density, its guarantee, and what it refuses."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, stats
from scipy.special import ndtr

from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import (
    LogisticLoss,
    SmoothDistanceLoss,
    SmoothL1Penalty,
    SquaredLoss,
    row_blocks,
)
from adaptive_dp.per_instance import (
    LinearPerturbationCurve,
    Objective,
    SmoothPerturbationCurve,
    perturb_objective,
)
from adaptive_dp.per_instance.objective import records_at
from adaptive_dp.privacy import Domain, Neighbours

DOMAIN = Domain("l2", 1.0, "sign")
LOSSES = [LogisticLoss(), SquaredLoss(), SmoothDistanceLoss(0.7)]
PENALTIES = [None, SmoothL1Penalty(0.3, 0.5)]


def people_of(rows, columns, seed=1, domain=DOMAIN):
    """Random records in the unit ball, some of them on its surface."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, columns))
    features /= np.maximum(np.linalg.norm(features, axis=1), rng.uniform(1, 2, rows))[:, np.newaxis]
    return Dataset(features, rng.choice([-1.0, 1.0], rows), domain)


def written_out(people, loss, lam, penalty):
    """J as a sum of terms, from the definitions of the losses alone; theta may be complex."""

    def value(theta):
        if isinstance(loss, SmoothDistanceLoss):
            terms = np.sqrt(loss.width**2 + ((theta - people.features) ** 2).sum(axis=1))
        elif isinstance(loss, LogisticLoss):
            terms = np.log(1 + np.exp(-people.labels * (people.features @ theta)))
        else:
            terms = (people.labels - people.features @ theta) ** 2 / 2
        extra = 0 if penalty is None else penalty.weight * np.sqrt(penalty.width**2 + theta**2).sum()
        return terms.sum() + extra + lam / 2 * (theta @ theta)

    return value


def complex_step(value, theta):
    """Gradient of a real-analytic function to full accuracy: Im f(theta + i h e_j) / h."""
    return np.array([value(theta + 1e-30j * e).imag / 1e-30 for e in np.eye(theta.size)])


def differences(gradient, theta, h=1e-3):
    """Derivative of a gradient by a central difference of sixth order."""
    weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
    return np.array(
        [
            sum(w * (gradient(theta + k * h * e) - gradient(theta - k * h * e)) for k, w in weights.items())
            / h
            for e in np.eye(theta.size)
        ]
    )


# ---------------------------------------------------------------- the objective


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", PENALTIES, ids=["no penalty", "penalty"])
def test_value_and_derivatives_are_those_of_the_sum_written_out(loss, penalty):
    rng = np.random.default_rng(3)
    people = people_of(9, 4)
    objective = Objective(people, loss, 0.7, penalty)
    value = written_out(people, loss, 0.7, penalty)
    for _ in range(5):
        theta = 2 * rng.standard_normal(4)
        gradient, hessian = objective.derivatives(theta)
        assert objective.value(theta) == pytest.approx(value(theta), rel=1e-13)
        np.testing.assert_allclose(gradient, complex_step(value, theta), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(
            hessian, differences(lambda t: complex_step(value, t), theta), rtol=1e-9, atol=1e-10
        )
        point = objective.at(theta)
        np.testing.assert_allclose(point.factor @ point.factor.T, hessian, rtol=1e-12)
        assert (np.diag(point.factor) > 0).all()
        assert (np.triu(point.factor, 1) == 0).all()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", PENALTIES, ids=["no penalty", "penalty"])
def test_the_minimiser_is_that_of_a_general_optimiser(loss, penalty):
    people, b = people_of(12, 3), np.array([0.8, -1.3, 2.0])
    value = written_out(people, loss, 0.4, penalty)
    expected = optimize.minimize(
        lambda t: value(t) + b @ t, np.zeros(3), jac=lambda t: complex_step(value, t) + b, tol=1e-9
    )
    fit = Objective(people, loss, 0.4, penalty).minimise(b)
    np.testing.assert_allclose(fit.theta, expected.x, atol=1e-6)
    assert np.linalg.norm(complex_step(value, fit.theta) + b) < 2e-10


def test_without_noise_the_minimiser_of_squared_loss_is_ridge_regression():
    people = people_of(12, 3)
    X, y = people.features, people.labels
    expected = np.linalg.solve(X.T @ X + 0.4 * np.eye(3), X.T @ y)
    np.testing.assert_allclose(Objective(people, SquaredLoss(), 0.4).minimise().theta, expected, rtol=1e-12)


@pytest.mark.parametrize("loss", [LogisticLoss(), SquaredLoss()], ids=repr)
def test_two_hundred_thousand_rows_in_blocks_equal_one_pass(loss):
    people, theta = people_of(200_000, 3), np.array([0.3, -2.0, 1.0])
    assert len(list(row_blocks(people.rows, people.columns))) > 1
    gradient, hessian = Objective(people, loss, 0.5).derivatives(theta)
    u, X, y = people.features @ theta, people.features, people.labels
    if isinstance(loss, LogisticLoss):
        slope, bend = -y / (1 + np.exp(y * u)), 1 / (2 + 2 * np.cosh(u))
    else:
        slope, bend = u - y, np.ones(y.size)
    np.testing.assert_allclose(gradient, X.T @ slope + 0.5 * theta, rtol=1e-10)
    np.testing.assert_allclose(hessian, (X.T * bend) @ X + 0.5 * np.eye(3), rtol=1e-11, atol=1e-8)


def test_a_general_loss_in_blocks_equals_one_pass():
    people, theta, loss = people_of(20_000, 8), np.linspace(-1, 1, 8), SmoothDistanceLoss(0.5)
    differ = theta - people.features
    size = np.sqrt(0.25 + (differ**2).sum(axis=1))
    g = differ / size[:, np.newaxis]
    gradient, hessian = Objective(people, loss, 0.5).derivatives(theta)
    np.testing.assert_allclose(gradient, g.sum(axis=0) + 0.5 * theta, rtol=1e-11)
    expected = (1 / size).sum() * np.eye(8) - (g.T / size) @ g + 0.5 * np.eye(8)
    np.testing.assert_allclose(hessian, expected, rtol=1e-11, atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_contributions_of_records(loss):
    """Norms, inner products and (relative) eigenvalues against matrices that are written out."""
    people, theta = people_of(6, 3), np.array([0.3, -1.0, 0.5])
    records = records_at(loss, theta, people.features, people.labels)
    rng = np.random.default_rng(0)
    vector, square = rng.standard_normal(3), rng.standard_normal((3, 3))
    metric = square @ square.T + np.eye(3)
    for i in range(people.rows):
        value = written_out(people.take([i]), loss, 0.0, None)
        g = complex_step(value, theta)
        A = differences(lambda t, value=value: complex_step(value, t), theta)
        close = {"rel": 1e-9, "abs": 1e-10}
        assert records.inner_products(vector)[i] == pytest.approx(g @ vector, **close)
        assert records.gradient_norms[i] == pytest.approx(np.linalg.norm(g), **close)
        assert records.gradient_l1_norms[i] == pytest.approx(np.abs(g).sum(), **close)
        assert records.hessian_norms[i] == pytest.approx(np.linalg.norm(A, "fro"), **close)
        assert records.hessian_spectral_norms[i] == pytest.approx(np.linalg.norm(A, 2), **close)
        for found, matrix in (
            (records.eigenvalues[i], A),
            (records.relative_eigenvalues(np.linalg.cholesky(metric))[i], np.linalg.solve(metric, A)),
        ):
            expected = np.sort(np.linalg.eigvals(matrix).real)[-found.size :]
            np.testing.assert_allclose(np.sort(found), expected, atol=1e-9)


# ---------------------------------------------------------------- the release and its law


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_each_theta_belongs_to_one_noise_vector(loss):
    people = people_of(15, 4)
    penalty = SmoothL1Penalty(0.2, 0.3)
    release = perturb_objective(
        people, loss, lam=0.6, sigma=1.7, delta=1e-5, rng=np.random.default_rng(5), penalty=penalty
    )
    gradient = complex_step(written_out(people, loss, 0.6, penalty), release.value)
    np.testing.assert_allclose(release.trace["noise"], -gradient, atol=2e-10)
    assert release.trace["gradient_norm"] <= 1e-10
    np.testing.assert_array_equal(
        release.trace["noise"], np.random.default_rng(5).normal(0, 1.7, 4), err_msg="noise is drawn once"
    )


def test_the_noise_has_the_wanted_scale_in_each_coordinate():
    people, rng = people_of(3, 2), np.random.default_rng(6)
    objective = Objective(people, LogisticLoss(), 0.5)
    noise = np.array(
        [
            -objective.derivatives(
                perturb_objective(people, LogisticLoss(), lam=0.5, sigma=2.5, delta=1e-2, rng=rng).value
            )[0]
            for _ in range(60)
        ]
    )
    assert stats.kstest(noise.ravel() / 2.5, "norm").pvalue > 1e-4
    assert stats.kstest(noise.ravel() / 2.5 * 2, "norm").pvalue < 1e-3  # the test has power


def test_theta_in_one_dimension_has_its_exact_distribution_function():
    """theta <= t exactly if b >= -J'(t): P = Phi(J'(t) / sigma)."""
    people, rng = people_of(4, 1), np.random.default_rng(7)
    objective = Objective(people, LogisticLoss(), 0.5)
    thetas = [objective.minimise(rng.normal(0, 1.5, 1)).theta[0] for _ in range(400)]

    def cdf(t):
        return np.array([ndtr(objective.derivatives(np.array([x]))[0][0] / 1.5) for x in np.atleast_1d(t)])

    assert stats.kstest(thetas, cdf).pvalue > 1e-4


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", PENALTIES, ids=["no penalty", "penalty"])
def test_the_density_integrates_to_one(loss, penalty):
    line = Objective(people_of(5, 1), loss, 0.8, penalty)
    total, _ = integrate.quad(lambda t: math.exp(line.at([t]).log_density(sigma=0.9)), -12, 12, limit=200)
    assert total == pytest.approx(1, abs=1e-7)


def test_the_density_integrates_to_one_in_the_plane():
    plane = Objective(people_of(5, 2), LogisticLoss(), 1.0)
    grid = np.linspace(-7, 7, 57)
    values = [math.exp(plane.at([s, t]).log_density(sigma=1.0)) for s in grid for t in grid]
    assert sum(values) * (grid[1] - grid[0]) ** 2 == pytest.approx(1, abs=1e-6)


def test_one_record_one_feature_and_more_features_than_records():
    rng = np.random.default_rng(8)
    for rows, columns in ((1, 1), (1, 5), (3, 40)):
        people = people_of(rows, columns)
        release = perturb_objective(people, LogisticLoss(), lam=0.1, sigma=1.0, delta=1e-6, rng=rng)
        gradient = complex_step(written_out(people, LogisticLoss(), 0.1, None), release.value)
        np.testing.assert_allclose(gradient, -release.trace["noise"], atol=2e-10)


@pytest.mark.parametrize("lam", [1e-4, 1e-7, 1e-10])
def test_a_tiny_ridge_leaves_the_minimiser_exact(lam):
    people = people_of(60, 3)
    fit = Objective(people, LogisticLoss(), lam).minimise([2.0, -1.0, 0.5])
    gradient = complex_step(written_out(people, LogisticLoss(), lam, None), fit.theta)
    np.testing.assert_allclose(gradient, [-2.0, 1.0, -0.5], atol=2e-10)


def test_what_double_precision_cannot_solve_is_an_error():
    with pytest.raises(RuntimeError, match="tolerance"):
        Objective(people_of(2, 4), SquaredLoss(), 1e-12).minimise([3.0, -1.0, 2.0, 5.0])


# ---------------------------------------------------------------- the guarantee


@pytest.mark.parametrize(
    ("domain", "slope", "curvature"),
    [(DOMAIN, 1.0, 0.25), (Domain("l2", 0.5, "sign"), 0.5, 0.0625), (Domain("linf", 0.5, "sign"), 1.0, 0.25)],
)
def test_the_guarantee_follows_from_the_domain(domain, slope, curvature):
    people = Dataset(people_of(5, 4).features / 2, np.ones(5), domain)
    release = perturb_objective(
        people, LogisticLoss(), lam=2.0, sigma=3.0, delta=1e-4, rng=np.random.default_rng(1)
    )
    curve = release.guarantee.curve
    assert isinstance(curve, LinearPerturbationCurve)
    assert (curve.mu, curve.kappa) == pytest.approx((slope / 3, curvature / 2))
    assert release.guarantee.epsilon == curve.epsilon(1e-4)
    assert release.guarantee.delta == 1e-4
    assert release.guarantee.neighbours is Neighbours.ADD_REMOVE
    assert release.guarantee.kind == "ex-ante"


def test_a_general_loss_has_the_dearer_guarantee_and_squared_loss_has_none():
    people, rng = people_of(5, 3), np.random.default_rng(1)
    curve = perturb_objective(
        people, SmoothDistanceLoss(0.5), lam=4.0, sigma=3.0, delta=1e-4, rng=rng
    ).guarantee.curve
    assert isinstance(curve, SmoothPerturbationCurve)
    assert (curve.mu, curve.kappa, curve.dimension) == pytest.approx((1 / 3, 0.5, 3))
    guarantee = perturb_objective(people, SquaredLoss(), lam=4.0, sigma=3.0, delta=1e-4, rng=rng).guarantee
    assert guarantee.epsilon == math.inf
    assert guarantee.curve is None


def test_little_noise_has_a_large_but_finite_epsilon():
    """Where exp(epsilon) is beyond the floats."""
    release = perturb_objective(
        people_of(5, 3), LogisticLoss(), lam=4.0, sigma=1e-3, delta=1e-4, rng=np.random.default_rng(1)
    )
    assert 5e5 < release.guarantee.epsilon < 5.1e5


def test_the_release_keeps_its_noise_out_of_files():
    release = perturb_objective(
        people_of(5, 3), LogisticLoss(), lam=4.0, sigma=1.0, delta=1e-4, rng=np.random.default_rng(1)
    )
    with pytest.raises(TypeError, match="private trace"):
        pickle.dumps(release)
    copy = pickle.loads(pickle.dumps(release.public()))
    np.testing.assert_array_equal(copy.value, release.value)
    assert copy.guarantee == release.guarantee


# ---------------------------------------------------------------- input


def test_lists_frames_and_integers_are_the_same_data():
    domain = Domain("l2", 2.0, "sign")
    rows, labels = [[1, 0], [0, -1], [1, 1]], [1, -1, 1]
    results = [
        perturb_objective(
            Dataset(x, y, domain), LogisticLoss(), lam=1, sigma=2, delta=0.01, rng=np.random.default_rng(4)
        ).value
        for x, y in (
            (rows, labels),
            (np.array(rows, dtype=np.int8), np.array(labels, dtype=np.int8)),
            (pd.DataFrame(rows), pd.Series(labels)),
            (np.array(rows, dtype=float), np.array(labels, dtype=float)),
        )
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


GOOD = {"people": people_of(5, 3), "loss": LogisticLoss(), "lam": 1.0, "sigma": 1.0, "delta": 1e-3}
BAD = [
    ({"lam": 0}, ValueError, "lam"),
    ({"lam": -1.0}, ValueError, "lam"),
    ({"lam": math.nan}, ValueError, "lam"),
    ({"lam": math.inf}, ValueError, "lam"),
    ({"lam": "1"}, TypeError, "lam"),
    ({"sigma": 0.0}, ValueError, "sigma"),
    ({"sigma": -2}, ValueError, "sigma"),
    ({"sigma": math.inf}, ValueError, "sigma"),
    ({"sigma": None}, TypeError, "sigma"),
    ({"delta": 0.0}, ValueError, "delta"),
    ({"delta": 1.0}, ValueError, "delta"),
    ({"delta": -0.1}, ValueError, "delta"),
    ({"people": [[1.0, 2.0]]}, TypeError, "people"),
    ({"loss": "logistic"}, TypeError, "loss"),
    ({"loss": LogisticLoss}, TypeError, "loss"),
    ({"penalty": 0.5}, TypeError, "penalty"),
    ({"people": people_of(5, 3, domain=Domain("l2", 1.0, "real"))}, ValueError, "labels in"),
]


@pytest.mark.parametrize(
    ("change", "error", "name"), BAD, ids=[f"{next(iter(c))}-{i}" for i, (c, *_) in enumerate(BAD)]
)
def test_bad_input_is_refused_before_any_noise(change, error, name):
    rng = np.random.default_rng(9)
    before = rng.bit_generator.state
    with pytest.raises(error, match=name):
        perturb_objective(**{**GOOD, **change}, rng=rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("rng", [None, 3, np.random.RandomState(3)])
def test_only_a_generator_is_a_source_of_chance(rng):
    with pytest.raises(TypeError, match="rng"):
        perturb_objective(**GOOD, rng=rng)


@pytest.mark.parametrize(
    ("theta", "error", "words"),
    [
        ([1.0, 2.0], ValueError, "theta must have 3 entries"),
        ([1.0, 2.0, math.nan], ValueError, "theta must be finite"),
        ([1.0, 2.0, math.inf], ValueError, "theta must be finite"),
        ([[1.0, 2.0, 3.0]], ValueError, "theta must have 1 dimension"),
        (["a", "b", "c"], TypeError, "theta must be numeric"),
        (1.0, ValueError, "theta must have 1 dimension"),
    ],
)
def test_bad_theta_is_named(theta, error, words):
    with pytest.raises(error, match=words):
        Objective(people_of(5, 3), LogisticLoss(), 1.0).at(theta)


def test_a_hessian_that_is_singular_to_rounding_is_an_error():
    objective = Objective(people_of(2, 4), SquaredLoss(), 1e-20)
    with pytest.raises(ValueError, match=r"singular.*lam"):
        objective.at(np.zeros(4))
    far = Objective(people_of(2, 4), SmoothDistanceLoss(1e-7), 1e-17)
    with pytest.raises(ValueError, match=r"singular.*lam"):
        far.at(np.full(4, 1e6))


def test_bad_linear_term_and_sigma_of_a_density():
    objective = Objective(people_of(5, 3), LogisticLoss(), 1.0)
    with pytest.raises(ValueError, match="linear must have 3 entries"):
        objective.minimise([1.0])
    with pytest.raises(ValueError, match="tolerance"):
        objective.minimise(tolerance=0.0)
    with pytest.raises(ValueError, match="sigma"):
        objective.at(np.zeros(3)).log_density(sigma=0.0)
