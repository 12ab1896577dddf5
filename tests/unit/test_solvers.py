"""Exact solvers against brute force, scipy, scikit-learn and the conditions of optimality."""

import math
import warnings
from itertools import product

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.linear_model import LogisticRegression, Ridge

from adaptive_dp.losses import LogisticLoss, SmoothDistanceLoss, SmoothL1Penalty, weighted_gram
from adaptive_dp.solvers import (
    BallMinimum,
    ball_certificate,
    logistic_regression,
    minimise_newton,
    minimise_quadratic_in_ball,
    minimise_quadratic_in_ball_eigen,
    project_to_ball,
    ridge_regression,
)

SOLVERS = [minimise_quadratic_in_ball, minimise_quadratic_in_ball_eigen]
both = pytest.mark.parametrize("solve", SOLVERS)


@pytest.fixture
def rng():
    return np.random.default_rng(20261)


def objective(A, b, theta):
    return 0.5 * theta @ A @ theta - b @ theta


def size_of(A, b, R):
    """The largest |objective| that entries of this size allow: errors are relative to it."""
    return np.abs(A).max() * R * R + np.linalg.norm(b) * R


def symmetric(rng, p, kind="any"):
    A = rng.normal(size=(p, p))
    A = A @ A.T / p if kind == "definite" else A + A.T
    return (A + A.T) / 2


def assert_optimal(A, b, R, found, tolerance=1e-10):
    certificate = ball_certificate(A, b, R, found.theta, found.multiplier)
    assert certificate.holds(tolerance), (certificate, found.method)
    norm = np.linalg.norm(found.theta)
    assert norm <= R * (1 + 1e-12)
    assert found.multiplier >= 0
    if found.multiplier > 0:
        assert found.on_boundary
    if found.on_boundary:
        assert abs(norm - R) <= 1e-10 * R
    assert found.value == pytest.approx(objective(A, b, found.theta), abs=1e-12 * size_of(A, b, R))


# --- the ball ---------------------------------------------------------------------------------------


@both
def test_one_dimension_against_a_fine_grid(solve, rng):
    grid = np.linspace(-1, 1, 20_001)
    for _ in range(500):
        a, c = rng.normal(size=2) * rng.choice([0, 1e-3, 1, 10], 2)
        R = rng.choice([0.1, 1.0, 30.0])
        found = solve([[a]], [c], R)
        points = R * grid
        best = (0.5 * a * points**2 - c * points).min()
        assert found.value <= best + 1e-12 * (abs(a) * R * R + abs(c) * R)
        assert found.value >= best - (abs(a) * R + abs(c)) * R * 1e-4
        assert_optimal(np.array([[a]]), np.array([c]), R, found)


@both
def test_two_dimensions_against_a_fine_grid(solve, rng):
    angle = np.linspace(0, 2 * np.pi, 1_441)
    disc = np.concatenate(
        [r * np.array([np.cos(angle), np.sin(angle)]) for r in np.linspace(0, 1, 21)], axis=1
    )
    for _ in range(300):
        A = symmetric(rng, 2) * rng.choice([1e-2, 1.0, 10.0])
        b = rng.normal(size=2) * rng.choice([0.0, 0.1, 1.0, 10.0])
        R = rng.choice([0.5, 1.0, 3.0])
        points = R * disc
        best = (0.5 * np.einsum("ik,ij,jk->k", points, A, points) - b @ points).min()
        found = solve(A, b, R)
        assert found.value <= best + 1e-12 * size_of(A, b, R)
        assert found.value >= best - 0.05 * size_of(A, b, R)
        assert_optimal(A, b, R, found)


@both
def test_against_a_general_purpose_optimiser_from_many_starts(solve, rng):
    for p in (1, 2, 3, 5, 8, 12):
        for kind in ("any", "definite"):
            for _ in range(3):
                A, b, R = symmetric(rng, p, kind), rng.normal(size=p), rng.uniform(0.3, 3)
                found = solve(A, b, R)
                runs = [
                    optimize.minimize(
                        lambda t, A=A, b=b: objective(A, b, t),
                        start * R / max(R, np.linalg.norm(start)),
                        jac=lambda t, A=A, b=b: A @ t - b,
                        method="SLSQP",
                        constraints={
                            "type": "ineq",
                            "fun": lambda t, R=R: R * R - t @ t,
                            "jac": lambda t: -2 * t,
                        },
                        options={"ftol": 1e-13, "maxiter": 500},
                    )
                    for start in rng.normal(size=(6, p)) * R
                ]
                feasible = [run for run in runs if np.linalg.norm(run.x) <= R * (1 + 1e-7)]
                assert feasible
                best = min(feasible, key=lambda run: run.fun)
                # SLSQP may leave the ball by 1e-7 of it, and gain that much.
                assert found.value <= best.fun + 1e-5 * size_of(A, b, R)
                assert found.value == pytest.approx(best.fun, abs=1e-5 * size_of(A, b, R))


def test_thousands_of_random_problems_agree_with_the_eigendecomposition(rng):
    methods = set()
    for _ in range(2_000):
        p = int(rng.integers(1, 13))
        A = symmetric(rng, p, rng.choice(["any", "definite"])) * 10.0 ** rng.integers(-8, 9)
        b = rng.normal(size=p) * 10.0 ** rng.integers(-8, 9)
        R = 10.0 ** rng.uniform(-6, 6)
        fast, plain = minimise_quadratic_in_ball(A, b, R), minimise_quadratic_in_ball_eigen(A, b, R)
        assert_optimal(A, b, R, fast)
        assert_optimal(A, b, R, plain)
        assert fast.value == pytest.approx(plain.value, rel=1e-10, abs=1e-13 * size_of(A, b, R))
        methods.add(fast.method)
    assert {"cholesky", "newton"} <= methods


@pytest.mark.parametrize("noise", [1.0, 30.0, 300.0, 1e4, 1e6])
def test_noisy_ridge_problems_of_the_paper(noise, rng):
    """p = 77, n = 100 000, lam = 0.005: the problems that covariance perturbation poses."""
    p, n, lam = 77, 100_000, 0.005
    X = rng.dirichlet(np.full(p, 0.3), 2_000) * rng.choice([-1, 1], (2_000, p))
    gram, moment = X.T @ X * n / 2_000, X.T @ rng.uniform(-1, 1, 2_000) * n / 2_000
    B = np.triu(rng.laplace(scale=noise, size=(p, p)))
    A = (gram + B + np.triu(B, 1).T) / n + lam * np.eye(p)
    A, b = (A + A.T) / 2, (moment + rng.laplace(scale=noise, size=p)) / n
    for R in (0.05, 1 / (2 * math.sqrt(lam))):
        found, plain = minimise_quadratic_in_ball(A, b, R), minimise_quadratic_in_ball_eigen(A, b, R)
        assert found.method in {"cholesky", "newton"}
        assert found.factorisations <= 10
        assert_optimal(A, b, R, found)
        assert found.theta == pytest.approx(plain.theta, abs=1e-8 * R)
        assert found.multiplier == pytest.approx(plain.multiplier, rel=1e-9, abs=1e-14)
        assert (found.multiplier > 0) == (plain.multiplier > 0)


def test_a_guess_of_the_multiplier_changes_the_time_only(rng):
    for _ in range(100):
        p = int(rng.integers(1, 30))
        A, b, R = symmetric(rng, p), rng.normal(size=p), rng.uniform(0.1, 10)
        cold = minimise_quadratic_in_ball(A, b, R)
        for guess in (0, cold.multiplier, 1.05 * cold.multiplier, 0.9 * cold.multiplier, 1e-12, 1e12, 1e308):
            warm = minimise_quadratic_in_ball(A, b, R, multiplier=guess)
            assert_optimal(A, b, R, warm)
            assert warm.value == pytest.approx(cold.value, rel=1e-10)
    p = 77
    A, b = symmetric(rng, p), rng.normal(size=p)
    cold = minimise_quadratic_in_ball(A, b, 1.0)
    exact = minimise_quadratic_in_ball(A, b, 1.0, multiplier=cold.multiplier)
    assert exact.factorisations <= 2 <= cold.factorisations


def rotation(rng, p):
    return np.linalg.qr(rng.normal(size=(p, p)))[0]


@both
@pytest.mark.parametrize("multiplicity", [1, 3])
@pytest.mark.parametrize("rotated", [False, True])
def test_hard_case(solve, multiplicity, rotated, rng):
    """b orthogonal to the bottom eigenspace, and (A + mu I)^+ b inside: at least two minimisers."""
    p = 8
    w = np.concatenate([np.full(multiplicity, -2.0), rng.uniform(-1, 3, p - multiplicity)])
    c = np.concatenate([np.zeros(multiplicity), rng.normal(size=p - multiplicity)])
    V = rotation(rng, p) if rotated else np.eye(p)
    A = V @ np.diag(w) @ V.T
    A, b = (A + A.T) / 2, V @ c
    inner = np.linalg.norm(c[multiplicity:] / (w[multiplicity:] + 2))
    R = 2 * inner
    found = solve(A, b, R)
    assert_optimal(A, b, R, found)
    assert found.hard_case
    assert found.method == "eigen"
    assert found.multiplier == pytest.approx(2.0, rel=1e-12)
    # Reflected in the bottom eigenspace, the point has the same value.
    bottom = V[:, :multiplicity]
    mirrored = found.theta - 2 * bottom @ (bottom.T @ found.theta)
    assert np.linalg.norm(mirrored - found.theta) > 0.1 * R
    assert objective(A, b, mirrored) == pytest.approx(found.value, rel=1e-10)
    # The same b with a small ball is not hard: no eigenvector is needed to reach the sphere.
    easy = solve(A, b, 0.9 * inner)
    assert_optimal(A, b, 0.9 * inner, easy)
    assert not easy.hard_case
    assert easy.multiplier > 2.0


@both
@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("tilt", [1e-300, 1e-100, 1e-17, 1e-15, 1e-13, 1e-11, 1e-10, 1e-8, 1e-6, 1e-3])
def test_nearly_hard_case(solve, tilt, rotated, rng):
    p = 6
    w = np.array([-2.0, -1.5, -1, 0, 1, 2])
    c = np.array([-tilt, 1, -1, 1, 1, 1])
    V = rotation(rng, p) if rotated else np.eye(p)
    A = V @ np.diag(w) @ V.T
    A, b = (A + A.T) / 2, V @ c
    for R in (0.5, 2.2, 5.0, 1e4):
        found = solve(A, b, R)
        assert_optimal(A, b, R, found)
        if R == 5.0 and not rotated:
            assert found.theta[0] < 0  # the side that b points to, however little


def test_spectra_over_many_orders_of_magnitude_with_repeated_eigenvalues(rng):
    methods = set()
    for _ in range(800):
        p = int(rng.choice([2, 3, 10, 25]))
        w = rng.choice([-1, 1], p) * 10.0 ** rng.uniform(-rng.choice([1, 6, 12]), 0, p)
        if rng.random() < 0.3:
            w = np.abs(w)
        if rng.random() < 0.5:
            w[: max(1, p // 3)] = w.min()
        c = rng.choice([-1, 1], p) * 10.0 ** rng.uniform(-rng.choice([1, 6, 14]), 0, p)
        if rng.random() < 0.5:
            c[w == w.min()] *= 10.0 ** rng.uniform(-16, 0)
        V = rotation(rng, p)
        A = V @ np.diag(w) @ V.T
        A, b, R = (A + A.T) / 2, V @ c, 10.0 ** rng.uniform(-6, 8)
        guess = None if rng.random() < 0.5 else 10.0 ** rng.uniform(-12, 3)
        fast, plain = (
            minimise_quadratic_in_ball(A, b, R, multiplier=guess),
            minimise_quadratic_in_ball_eigen(A, b, R),
        )
        assert_optimal(A, b, R, fast, 1e-11)
        assert_optimal(A, b, R, plain, 1e-11)
        assert fast.value == pytest.approx(plain.value, rel=1e-10, abs=1e-13 * size_of(A, b, R))
        methods.add(fast.method)
    assert methods == {"cholesky", "newton", "eigen"}


@both
def test_degenerate_problems(solve):
    zero = np.zeros((3, 3))
    nothing = solve(zero, np.zeros(3), 2.0)
    assert (nothing.multiplier, nothing.value, nothing.on_boundary) == (0.0, 0.0, False)
    assert not nothing.theta.any()

    linear = solve(zero, [3.0, 0.0, 4.0], 2.0)
    assert linear.theta == pytest.approx([1.2, 0, 1.6])
    assert linear.multiplier == pytest.approx(2.5)

    definite = solve(np.eye(3), np.zeros(3), 2.0)
    assert not definite.theta.any()
    assert not definite.on_boundary

    saddle = solve(np.diag([1.0, -4.0]), np.zeros(2), 3.0)
    assert saddle.hard_case
    assert np.abs(saddle.theta) == pytest.approx([0, 3])
    assert (saddle.multiplier, saddle.value) == (pytest.approx(4), pytest.approx(-18))

    hill = solve(-np.eye(4), np.zeros(4), 1.0)
    assert hill.hard_case
    assert np.linalg.norm(hill.theta) == pytest.approx(1)

    # Singular, b in the range: the shortest of the minimisers; b outside it: the sphere.
    flat = solve(np.diag([2.0, 0.0]), [2.0, 0.0], 5.0)
    assert flat.theta == pytest.approx([1, 0])
    assert (flat.multiplier, flat.on_boundary) == (0.0, False)
    slope = solve(np.diag([2.0, 0.0]), [2.0, 1e-3], 5.0)
    assert_optimal(np.diag([2.0, 0.0]), np.array([2.0, 1e-3]), 5.0, slope)
    assert slope.on_boundary

    touching = solve(np.eye(2), [3.0, 4.0], 5.0)
    assert touching.theta == pytest.approx([3, 4])
    assert touching.multiplier == pytest.approx(0, abs=1e-10)
    assert touching.on_boundary


@both
@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e-20])
def test_a_matrix_that_hardly_matters(solve, size):
    for A in (np.array([[size]]), -np.diag([size, 0.0]), np.diag([size, 2 * size]), size * np.ones((3, 3))):
        b = np.array([1e-200, 3.0, 4.0][-len(A) :])
        found = solve(A, b, 2.0)
        assert_optimal(A, b, 2.0, found)
        np.testing.assert_allclose(found.theta, 2 * b / np.linalg.norm(b), rtol=1e-10, atol=1e-12)
    # Only the smallest eigenvalue is tiny.
    A, b = np.diag([1.0, size]), np.array([0.0, 5 * size])
    assert_optimal(A, b, 2.0, solve(A, b, 2.0))


@both
def test_singular_matrices(solve, rng):
    for p, rank in product((2, 5, 12), (1, 2)):
        for _ in range(50):
            F = rng.normal(size=(p, rank))
            A = F @ F.T
            A = (A + A.T) / 2
            for b in (F @ rng.normal(size=rank), rng.normal(size=p), np.zeros(p)):
                for R in (1e-3, 1.0, 1e3):
                    found = solve(A, b, R)
                    assert_optimal(A, b, R, found)
                    if rank < p and found.multiplier == 0:
                        # Of all minimisers the shortest: rounding along the null space is not let in.
                        shortest = np.linalg.pinv(A, rcond=1e-12, hermitian=True) @ b
                        np.testing.assert_allclose(
                            found.theta, shortest, atol=1e-5 * (1 + np.linalg.norm(shortest))
                        )


@both
@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1.0, 1e8, 1e150])
@pytest.mark.parametrize("radius", [1e-100, 1e-9, 1.0, 1e9, 1e100])
def test_scales(solve, scale, radius, rng):
    for kind, ratio in product(("any", "definite"), (1e-12, 1e-3, 1.0, 1e3, 1e12)):
        A = scale * symmetric(rng, 7, kind)
        b = scale * radius * ratio * rng.normal(size=7)
        found = solve(A, b, radius)
        assert ball_certificate(A, b, radius, found.theta, found.multiplier).holds()
        assert np.isfinite(found.theta).all()


def test_normal_equations_do_not_solve_the_ball_problem():
    """Reference value af.solve.indefinite: a stationary point, rescaled, is not the minimiser."""
    Z, z = np.array([[3.0, 2.0], [-1.0, -2.0]]), np.array([1.0, 4.0])
    published = np.array([0.6097107608496923, -0.7926239891046001])
    A = (Z + Z.T) / 2
    found = minimise_quadratic_in_ball(A, z, 1.0)
    assert_optimal(A, z, 1.0, found)
    # Theirs is what solving and rescaling gives, and the objective only sees (Z + Z') / 2.
    stationary = np.linalg.solve(Z, z)
    assert published == pytest.approx(stationary / np.linalg.norm(stationary))
    assert found.value < objective(A, z, published) - 1
    assert not ball_certificate(A, z, 1.0, published, 0.0).holds(1e-3)


def test_normal_equations_may_give_the_maximum():
    """Erratum AF-5c: L(t) = -t^2 - t on [-1, 1]."""
    found = minimise_quadratic_in_ball([[-2.0]], [1.0], 1.0)
    assert found.theta == pytest.approx([1.0])
    assert found.value == pytest.approx(-2.0)


def test_certificate_refuses_what_is_not_the_global_minimiser(rng):
    A, b = np.diag([-2.0, 1.0, 3.0]), np.array([0.5, 1.0, -1.0])
    found = minimise_quadratic_in_ball(A, b, 1.0)
    good = ball_certificate(A, b, 1.0, found.theta, found.multiplier)
    assert good.holds()
    assert not ball_certificate(A, b, 1.0, found.theta * 1.001, found.multiplier).holds()
    assert not ball_certificate(A, b, 1.0, found.theta, found.multiplier + 1e-3).holds()
    # A local minimiser on the sphere, on the other side: stationary, but A + mu I is indefinite.
    mu = optimize.brentq(lambda m: np.linalg.norm(b / (np.diag(A) + m)) - 1, 1.0, 1.999)
    other = ball_certificate(A, b, 1.0, b / (np.diag(A) + mu), mu)
    assert other.stationarity < 1e-9
    assert other.smallest_eigenvalue < -1e-3
    assert not other.holds()
    # A stationary point in the interior with negative curvature, and a maximum with mu < 0.
    assert not ball_certificate(A, b, 10.0, np.linalg.solve(A, b), 0.0).holds()
    assert not ball_certificate(np.eye(1), [0.5], 1.0, [-1.0], -1.5).holds()


@both
def test_bad_problems_are_refused(solve):
    eye = np.eye(2)
    with pytest.raises(ValueError, match=r"matrix must be symmetric.*\(A \+ A\.T\) / 2"):
        solve([[1.0, 1.0], [0.0, 1.0]], [1, 1], 1.0)
    with pytest.raises(ValueError, match="matrix must be square"):
        solve(np.ones((2, 3)), [1, 1], 1.0)
    with pytest.raises(ValueError, match="matrix must be square and not empty"):
        solve(np.ones((0, 0)), [], 1.0)
    with pytest.raises(ValueError, match="vector must have 2 entries"):
        solve(eye, [1, 1, 1], 1.0)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="radius"):
            solve(eye, [1, 1], bad)
    with pytest.raises(ValueError, match="matrix must be finite"):
        solve(eye * math.nan, [1, 1], 1.0)
    with pytest.raises(ValueError, match="vector must be finite"):
        solve(eye, [1, math.inf], 1.0)
    with pytest.raises(ValueError, match="radius must not be so small"):
        solve(eye, [1e200, 1], 1e-200)
    with pytest.raises(TypeError, match="matrix must be dense"):
        solve(sparse.eye(2), [1, 1], 1.0)
    with pytest.raises(TypeError, match="matrix must be numeric"):
        solve([["a"]], [1], 1.0)


def test_bad_guesses_are_refused():
    for bad in (-1.0, math.nan):
        with pytest.raises(ValueError, match="multiplier"):
            minimise_quadratic_in_ball(np.eye(2), [1, 1], 1.0, multiplier=bad)
    with pytest.raises(ValueError, match="theta must have shape"):
        ball_certificate(np.eye(2), [1, 1], 1.0, [1.0], 0.0)


@both
def test_arguments_are_left_alone_and_layouts_do_not_matter(solve, rng):
    A, b = symmetric(rng, 5), rng.normal(size=5)
    copies = A.copy(), b.copy()
    expected = solve(A, b, 1.0)
    assert isinstance(expected, BallMinimum)
    np.testing.assert_array_equal(A, copies[0])
    np.testing.assert_array_equal(b, copies[1])
    wide = np.zeros((10, 10))
    wide[::2, ::2] = A
    for same in (np.asfortranarray(A), A.tolist(), wide[::2, ::2]):
        np.testing.assert_allclose(solve(same, b, 1.0).theta, expected.theta, rtol=1e-12)
    # Asymmetry by rounding only is accepted.
    A[0, 1] *= 1 + 2e-16
    np.testing.assert_allclose(solve(A, b, 1.0).theta, expected.theta, rtol=1e-10)


# --- projection -------------------------------------------------------------------------------------


def test_projection(rng):
    stack = rng.normal(size=(4, 3, 5)) * rng.choice([1e-3, 1.0, 10.0, 1e200, 1e-200], (4, 3, 1))
    projected = project_to_ball(stack, 2.0)
    assert projected.shape == stack.shape
    for point, image in zip(stack.reshape(-1, 5), projected.reshape(-1, 5), strict=True):
        norm = math.hypot(*point)
        if norm <= 2:
            np.testing.assert_array_equal(image, point)
        else:
            np.testing.assert_allclose(image, 2 * (point / norm), rtol=1e-14)
    np.testing.assert_array_equal(project_to_ball([0.0, 0.0], 1.0), [0, 0])
    np.testing.assert_array_equal(project_to_ball(np.empty((0, 3)), 1.0), np.empty((0, 3)))


def test_projection_refuses():
    with pytest.raises(ValueError, match="theta must have at least one dimension"):
        project_to_ball(1.0, 1.0)
    with pytest.raises(ValueError, match="radius must be positive"):
        project_to_ball([1.0], 0.0)
    with pytest.raises(ValueError, match="theta must be finite"):
        project_to_ball([math.nan], 1.0)


# --- ridge ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(50, 4), (5, 20), (1, 1)])
def test_ridge_against_scikit_learn(n, d, rng):
    X, y, lam = rng.normal(size=(n, d)), rng.normal(size=n), 0.03
    theta = ridge_regression(X.T @ X, X.T @ y, n, lam)
    # scikit-learn minimises ||y - X w||^2 + alpha ||w||^2: alpha = n lam.
    expected = Ridge(alpha=n * lam, fit_intercept=False, solver="svd").fit(X, y).coef_
    np.testing.assert_allclose(theta, expected, rtol=1e-9, atol=1e-12)


def test_ridge_is_the_ball_minimum_when_the_ball_is_large(rng):
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    A, b = X.T @ X / 30 + 0.1 * np.eye(4), X.T @ y / 30
    found = minimise_quadratic_in_ball(A, b, 1e3)
    np.testing.assert_allclose(ridge_regression(X.T @ X, X.T @ y, 30, 0.1), found.theta, rtol=1e-10)


def test_ridge_refuses(rng):
    with pytest.raises(ValueError, match=r"positive definite.*minimise_quadratic_in_ball"):
        ridge_regression(-np.eye(2), [1, 1], 1, 0.5)
    with pytest.raises(ValueError, match="gram must be symmetric"):
        ridge_regression([[1.0, 1.0], [0.0, 1.0]], [1, 1], 1, 0.5)
    with pytest.raises(ValueError, match="moment must have 2 entries"):
        ridge_regression(np.eye(2), [1], 1, 0.5)
    with pytest.raises(ValueError, match="lam must be positive"):
        ridge_regression(np.eye(2), [1, 1], 1, 0.0)
    with pytest.raises(TypeError, match="rows must be an integer"):
        ridge_regression(np.eye(2), [1, 1], 1.0, 0.5)


# --- logistic regression ----------------------------------------------------------------------------


def logistic_data(rng, n, d, noise=1.0):
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(3 * X @ rng.normal(size=d) + noise * rng.logistic(size=n) > 0, 1.0, -1.0)
    y[:2] = 1, -1
    return X, y


@pytest.mark.parametrize(
    ("n", "d", "lam"), [(500, 5, 0.005), (500, 5, 1e-4), (20, 60, 0.01), (200, 3, 100.0), (2, 1, 0.1)]
)
def test_logistic_against_scikit_learn_and_scipy(n, d, lam, rng):
    X, y = logistic_data(rng, n, d)
    fit = logistic_regression(X, y, lam)
    assert fit.gradient_norm <= 1e-10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn may say that its line search reached rounding
        model = LogisticRegression(C=1 / (n * lam), fit_intercept=False, tol=1e-12, max_iter=10_000)
        expected = model.fit(X, y).coef_[0]
    np.testing.assert_allclose(fit.theta, expected, atol=2e-6 / lam**0.5)
    loss = LogisticLoss()
    other = optimize.minimize(
        lambda t: float(loss.mean_risk(t, X, y, lam)),
        np.zeros(d),
        jac=lambda t: loss.gradient(t, X, y, lam),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    np.testing.assert_allclose(fit.theta, other.x, atol=1e-7 / lam)
    assert fit.risk <= other.fun + 1e-14
    assert fit.risk == pytest.approx(float(loss.mean_risk(fit.theta, X, y, lam)), rel=1e-13)
    np.testing.assert_allclose(fit.hessian, loss.hessian(fit.theta, X, y, lam), rtol=1e-10, atol=1e-14)


def test_logistic_with_one_class_and_with_separable_data(rng):
    X, _ = logistic_data(rng, 50, 3)
    one = logistic_regression(X, np.ones(50), 0.01)
    assert one.gradient_norm <= 1e-10
    x = np.array([[1.0]])
    fit = logistic_regression(x, [1], 0.2)
    assert 0.2 * fit.theta[0] == pytest.approx(1 / (1 + math.exp(fit.theta[0])), rel=1e-9)
    separable = logistic_regression(X * 100, np.sign(X[:, 0]), 1e-6, tolerance=1e-9)
    assert separable.gradient_norm <= 1e-9


def test_logistic_weights_count_duplicates(rng):
    X, y = logistic_data(rng, 40, 4)
    counts = rng.integers(0, 5, 40)
    weighted = logistic_regression(X, y, 0.01, weights=counts)
    expanded = logistic_regression(np.repeat(X, counts, axis=0), np.repeat(y, counts), 0.01)
    np.testing.assert_allclose(weighted.theta, expanded.theta, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(weighted.hessian, expanded.hessian, rtol=1e-8)
    assert weighted.risk == pytest.approx(expanded.risk, rel=1e-12)


def test_logistic_refuses(rng):
    X, y = logistic_data(rng, 10, 2)
    with pytest.raises(ValueError, match=r"labels must be -1 or \+1, got .*0\.0.* at index 3"):
        logistic_regression(X, np.where(np.arange(10) == 3, 0.0, y), 0.1)
    with pytest.raises(ValueError, match="labels must have 10 entries"):
        logistic_regression(X, y[:9], 0.1)
    with pytest.raises(ValueError, match="features must have at least one row"):
        logistic_regression(np.empty((0, 2)), [], 0.1)
    with pytest.raises(ValueError, match="lam must be positive"):
        logistic_regression(X, y, 0.0)
    with pytest.raises(ValueError, match="tolerance must be positive"):
        logistic_regression(X, y, 0.1, tolerance=0.0)
    for bad, message in (
        ([-1.0] * 10, "whole numbers"),
        ([0.5] * 10, "whole numbers"),
        ([0] * 10, "all be 0"),
    ):
        with pytest.raises(ValueError, match=f"weights must.*{message}"):
            logistic_regression(X, y, 0.1, weights=bad)
    with pytest.raises(RuntimeError, match="above the tolerance"):
        logistic_regression(X * 1e8, y, 1e-12, tolerance=1e-30)


def test_a_vector_near_the_smallest_float_does_not_overflow():
    """A = -1e8, b = 1e-300: the minimum is on the sphere on b's side, and no warning is raised."""
    for solve in (minimise_quadratic_in_ball, minimise_quadratic_in_ball_eigen):
        minimum = solve([[-1e8]], [1e-300], 2.0)
        assert minimum.theta == pytest.approx([2.0])
        assert minimum.multiplier == pytest.approx(1e8)


# --- Newton's method --------------------------------------------------------------------------------


def perturbed_logistic(X, y, lam, linear, offset=0.0):
    """The sum of the losses + lam / 2 ||theta||^2 + <linear, theta> + offset, and its derivatives."""
    loss = LogisticLoss()

    def value(theta):
        ridge = 0.5 * lam * float(theta @ theta)
        return float(loss.value(X @ theta, y).sum()) + ridge + float(linear @ theta) + offset

    def derivatives(theta):
        u = X @ theta
        gradient = loss.derivative(u, y) @ X + lam * theta + linear
        return gradient, weighted_gram(X, loss.second_derivative(u, y)) + lam * np.eye(X.shape[1])

    return value, derivatives


@pytest.mark.parametrize("noise", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_newton_reaches_the_tolerance_on_a_sum_of_30_000_losses(noise, offset, rng):
    """With the offset the value is rounded to 1e-7, and its last digits say nothing: the slope decides."""
    X, y = logistic_data(rng, 30_000, 21)
    value, derivatives = perturbed_logistic(X, y, 1.0, noise * rng.normal(size=21), offset)
    fit = minimise_newton(value, derivatives, np.zeros(21))
    assert np.linalg.norm(derivatives(fit.theta)[0]) == fit.gradient_norm <= 1e-10
    assert fit.iterations < 25
    assert fit.value == value(fit.theta)
    np.testing.assert_array_equal(fit.hessian, derivatives(fit.theta)[1])
    other = optimize.minimize(
        lambda t: value(t) - offset, np.zeros(21), jac=lambda t: derivatives(t)[0], method="L-BFGS-B"
    )
    np.testing.assert_allclose(fit.theta, other.x, atol=0.05)
    assert value(fit.theta) - offset <= other.fun + 1e-6


def test_newton_does_not_trust_the_last_digits_of_the_value(rng):
    """Where large terms cancel in the value, its error is far above its own last place; the gradient is still good."""
    X, y = logistic_data(rng, 3_000, 8)
    value, derivatives = perturbed_logistic(X, y, 1.0, 30.0 * rng.normal(size=8))
    clean = minimise_newton(value, derivatives, np.zeros(8))
    errors = np.random.default_rng(3)
    for _ in range(20):
        fit = minimise_newton(lambda t: value(t) + 1e-6 * errors.normal(), derivatives, np.zeros(8))
        assert fit.gradient_norm <= 1e-10
        np.testing.assert_allclose(fit.theta, clean.theta, atol=1e-10)


def test_newton_in_the_sum_and_in_the_mean_agree_with_logistic_regression(rng):
    X, y = logistic_data(rng, 3_000, 5)
    fit = minimise_newton(*perturbed_logistic(X, y, 3.0, np.zeros(5)), np.ones(5), tolerance=1e-9)
    mean = logistic_regression(X, y, 3.0 / 3_000)
    np.testing.assert_allclose(fit.theta, mean.theta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(fit.hessian, 3_000 * mean.hessian, rtol=1e-8)


def test_newton_damps_where_the_full_step_diverges():
    """sqrt(1 + t^2) + tiny ridge: from t = 10 the undamped step lands near -1000."""
    fit = minimise_newton(
        lambda t: math.hypot(1.0, t[0]) + 5e-9 * t[0] ** 2,
        lambda t: (t / np.hypot(1.0, t) + 1e-8 * t, np.diag(np.hypot(1.0, t) ** -3.0 + 1e-8)),
        [10],
    )
    assert abs(fit.theta[0]) <= 1e-10
    assert fit.iterations > 2


def test_newton_on_a_quadratic_takes_one_step(rng):
    A, b = symmetric(rng, 6, "definite") + np.eye(6), rng.normal(size=6)
    fit = minimise_newton(lambda t: objective(A, b, t), lambda t: (A @ t - b, A), np.zeros(6, dtype=int))
    np.testing.assert_allclose(fit.theta, np.linalg.solve(A, b), rtol=1e-12)
    assert fit.iterations == 1
    # Where it starts at the minimum, it stays.
    stay = minimise_newton(lambda t: objective(A, 0 * b, t), lambda t: (A @ t, A), np.zeros(6))
    assert stay.iterations == 0


def test_newton_on_a_smoothed_median_with_a_penalty(rng):
    """A sum of losses that are no function of <theta, x>, plus a smoothed l1 norm, against scipy."""
    X, y, lam = rng.normal(size=(400, 4)) + 2.0, np.zeros(400), 0.7
    loss, penalty = SmoothDistanceLoss(0.05), SmoothL1Penalty(30.0, 0.01)

    def value(t):
        return float(loss.values(t, X, y).sum()) + penalty.value(t) + 0.5 * lam * float(t @ t)

    def derivatives(t):
        gradient = loss.gradients(t, X, y).sum(axis=0) + penalty.gradient(t) + lam * t
        return gradient, loss.hessians(t, X, y).sum(axis=0) + penalty.hessian(t) + lam * np.eye(4)

    fit = minimise_newton(value, derivatives, np.zeros(4))
    assert fit.gradient_norm <= 1e-10
    other = optimize.minimize(value, np.ones(4), jac=lambda t: derivatives(t)[0], method="BFGS")
    np.testing.assert_allclose(fit.theta, other.x, atol=1e-4)
    assert fit.value <= other.fun + 1e-9


def test_newton_says_when_the_tolerance_is_not_reached(rng):
    X, y = logistic_data(rng, 1_000, 3)
    value, derivatives = perturbed_logistic(X, y, 1.0, np.full(3, 0.1))
    with pytest.raises(RuntimeError, match="above the tolerance 1e-40"):
        minimise_newton(value, derivatives, np.zeros(3), tolerance=1e-40)
    # A slope without a minimum: x, with a Hessian that is nothing in double precision.
    with pytest.raises(RuntimeError, match="above the tolerance 1e-10"):
        minimise_newton(lambda t: float(t[0]), lambda t: (np.ones(1), np.zeros((1, 1))), [0.0])
    # A gradient of the wrong sign: no step leads downhill.
    with pytest.raises(RuntimeError, match="above the tolerance 1e-10"):
        minimise_newton(lambda t: float(t @ t), lambda t: (-2 * t, np.eye(2)), [1.0, 1.0])


def test_newton_refuses():
    def value(t):
        return float(t @ t)

    def derivatives(t):
        return 2 * t, 2 * np.eye(t.size)

    for bad, error in (([], ValueError), (1.0, ValueError), ([math.nan], ValueError), (["a"], TypeError)):
        with pytest.raises(error, match="start must"):
            minimise_newton(value, derivatives, bad)
    for bad, error in ((0.0, ValueError), (-1.0, ValueError), (math.nan, ValueError), (True, TypeError)):
        with pytest.raises(error, match="tolerance must"):
            minimise_newton(value, derivatives, [1.0], tolerance=bad)
    with pytest.raises(ValueError, match=r"value\(start\) must be finite"):
        minimise_newton(lambda _: math.nan, derivatives, [1.0])
    with pytest.raises(ValueError, match=r"derivatives must return shapes \(2,\) and \(2, 2\)"):
        minimise_newton(value, lambda t: (t, np.eye(3)), [1.0, 1.0])
    with pytest.raises(ValueError, match="derivatives must be finite"):
        minimise_newton(value, lambda t: (t * math.nan, np.eye(2)), [1.0, 1.0])


@pytest.mark.parametrize("solve", [minimise_quadratic_in_ball, minimise_quadratic_in_ball_eigen])
def test_a_slope_that_vanishes_beside_the_radius_still_counts(solve):
    """A = 0 and b / R below the smallest float: the minimum is -R |b|, small as it is."""
    found = solve(np.zeros((2, 2)), [3e-300, 4e-300], 1e100)
    np.testing.assert_allclose(found.theta, [0.6e100, 0.8e100])
    assert found.value == pytest.approx(-5e-200, rel=1e-12, abs=0.0)
    assert found.on_boundary
    assert solve(np.zeros((2, 2)), [0.0, 0.0], 1e100).value == 0
