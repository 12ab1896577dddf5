"""Properties of the exact solvers that hold for every input hypothesis can find."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adaptive_dp.losses import LogisticLoss, SquaredLoss
from adaptive_dp.privacy import Domain
from adaptive_dp.solvers import (
    ball_certificate,
    logistic_regression,
    minimise_quadratic_in_ball,
    minimise_quadratic_in_ball_eigen,
    project_to_ball,
    ridge_regression,
)

reproducible = settings(deadline=None, max_examples=80, derandomize=True)

entries = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-8, -1e8, 1e-300]),
    st.floats(-1e3, 1e3, allow_nan=False),
)
radii = st.one_of(st.floats(1e-6, 1e6), st.sampled_from([1e-100, 1.0, 1e100]))
sizes = st.integers(1, 6)


@st.composite
def quadratics(draw):
    p = draw(sizes)
    A = draw(hnp.arrays(float, (p, p), elements=entries))
    return (A + A.T) / 2, draw(hnp.arrays(float, p, elements=entries)), draw(radii)


@reproducible
@given(quadratics())
def test_every_ball_minimum_has_a_certificate(problem):
    A, b, R = problem
    for solve in (minimise_quadratic_in_ball, minimise_quadratic_in_ball_eigen):
        found = solve(A, b, R)
        certificate = ball_certificate(A, b, R, found.theta, found.multiplier)
        assert certificate.holds(1e-11), (solve, found, certificate)
        assert found.multiplier == 0 or found.on_boundary
        assert found.value <= 0 or found.value <= 1e-12 * np.abs(A).max() * R * R  # theta = 0 is allowed


@reproducible
@given(quadratics(), st.floats(0, 1e6), st.data())
def test_no_point_of_the_ball_is_better(problem, guess, data):
    A, b, R = problem
    found = minimise_quadratic_in_ball(A, b, R, multiplier=guess)
    point = project_to_ball(R * data.draw(hnp.arrays(float, b.size, elements=st.floats(-1, 1))), R)
    # Entries, not norms: the square of 1e-300 is 0.
    size = np.abs(A).max() * b.size * R * R + np.abs(b).max() * b.size * R
    assert found.value <= 0.5 * point @ A @ point - b @ point + 1e-12 * size


@reproducible
@given(quadratics(), st.integers(-20, 20), st.integers(-20, 20))
def test_units_do_not_matter(problem, k, m):
    A, b, R = problem
    s, t = 2.0**k, 2.0**m
    assume(np.abs(A[A != 0]).min(initial=1) > 1e-290)
    assume(np.abs(b[b != 0]).min(initial=1) > 1e-290)
    found = minimise_quadratic_in_ball(A, b, R)
    scaled = minimise_quadratic_in_ball(s * A, s * t * b, t * R)
    np.testing.assert_allclose(
        scaled.value, found.value * s * t * t, rtol=1e-9, atol=1e-12 * s * t * t * R * R
    )


@reproducible
@given(st.integers(1, 4), st.data(), st.floats(1e-3, 1e3))
def test_projection_is_idempotent_and_does_not_expand(p, data, radius):
    pair = data.draw(hnp.arrays(float, (2, p), elements=st.floats(-1e6, 1e6)))
    image = project_to_ball(pair, radius)
    assert (np.linalg.norm(image, axis=-1) <= radius * (1 + 1e-14)).all()
    np.testing.assert_allclose(project_to_ball(image, radius), image, rtol=1e-14, atol=0)
    before, after = (np.linalg.norm(v[0] - v[1]) for v in (pair, image))
    assert after <= before * (1 + 1e-12) + 1e-12 * radius


@st.composite
def records(draw, labels):
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    X = draw(hnp.arrays(float, (n, d), elements=st.floats(-1, 1)))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    return X, draw(hnp.arrays(float, n, elements=labels))


@reproducible
@given(records(st.sampled_from([-1.0, 1.0])), st.floats(1e-4, 1e2))
def test_logistic_minimiser_is_stationary_and_inside_the_ball_of_the_theorem(data, lam):
    X, y = data
    fit = logistic_regression(X, y, lam)
    assert np.linalg.norm(LogisticLoss().gradient(fit.theta, X, y, lam)) <= 2e-10
    # lam ||theta||^2 <= max of m / (1 + e^m) = W(1/e) = 0.278464542...
    assert lam * fit.theta @ fit.theta <= 0.2784645427610738 * (1 + 1e-9) + 1e-9
    np.testing.assert_array_equal(fit.hessian, fit.hessian.T)
    assert np.linalg.eigvalsh(fit.hessian)[0] >= lam * (1 - 1e-9)


@reproducible
@given(records(st.sampled_from([-1.0, 1.0])), st.floats(1e-3, 1e2), st.data())
def test_weights_are_repetitions(data, lam, draw):
    X, y = data
    counts = draw.draw(hnp.arrays(int, len(y), elements=st.integers(0, 3)))
    assume(counts.any())
    weighted = logistic_regression(X, y, lam, weights=counts).theta
    expanded = logistic_regression(np.repeat(X, counts, axis=0), np.repeat(y, counts), lam).theta
    np.testing.assert_allclose(weighted, expanded, atol=3e-10 / lam)


@reproducible
@given(records(st.floats(-1, 1)), st.floats(1e-4, 1e2))
def test_ridge_minimiser_is_stationary_and_inside_the_ball_of_the_theorem(data, lam):
    X, y = data
    theta = ridge_regression(X.T @ X, X.T @ y, len(y), lam)
    assert np.linalg.norm(SquaredLoss().gradient(theta, X, y, lam)) <= 1e-12
    assert np.linalg.norm(theta) <= 1 / (2 * math.sqrt(lam)) * (1 + 1e-9)
    # So the ball of that radius does not bind, and the ball solver agrees.
    A, b = X.T @ X / len(y) + lam * np.eye(X.shape[1]), X.T @ y / len(y)
    found = minimise_quadratic_in_ball((A + A.T) / 2, b, 1 / (2 * math.sqrt(lam)) * 1.01)
    np.testing.assert_allclose(found.theta, theta, atol=1e-10)
    assert found.multiplier == 0


@reproducible
@given(st.floats(-800, 800), st.sampled_from([-1.0, 1.0]))
def test_logistic_loss_never_overflows_and_is_convex(u, y):
    loss = LogisticLoss()
    value, slope, bend = (float(f(u, y)) for f in (loss.value, loss.derivative, loss.second_derivative))
    assert 0 <= value <= abs(u) + math.log(2)
    assert 0 <= -y * slope <= 1
    assert 0 <= bend <= 0.25 * (1 + 1e-15)
    assert float(loss.value(-u, -y)) == value


@reproducible
@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.sampled_from(["l1", "l2"]))
def test_lipschitz_constants_grow_with_the_ball(bound, radius, norm):
    for loss, labels in ((SquaredLoss(), "real"), (LogisticLoss(), "sign")):
        domain = Domain(norm=norm, feature_bound=bound, labels=labels)
        small, large = loss.lipschitz(domain, radius), loss.lipschitz(domain, 2 * radius)
        assert 0 < small <= large <= loss.lipschitz(domain, math.inf)
        # A slope cannot change by more than the curvature allows.
        assert large - small <= loss.smoothness(domain) * radius * (1 + 1e-9) + 1e-12
