"""Losses: tails, derivatives, and constants that are attained and never exceeded."""

import math
import pickle
import tracemalloc

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from adaptive_dp import losses
from adaptive_dp.losses import (
    LogisticLoss,
    Loss,
    Penalty,
    SmoothDistanceLoss,
    SmoothL1Penalty,
    SmoothLoss,
    SquaredLoss,
    l2_feature_bound,
    weighted_gram,
)
from adaptive_dp.privacy import Domain

LOSSES = [SquaredLoss(), LogisticLoss()]
each = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


@pytest.fixture
def rng():
    return np.random.default_rng(20261)


def sign_data(rng, n=60, d=4):
    return rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)


def test_values_by_hand():
    assert SquaredLoss().value(3.0, 1.0) == 2.0
    assert SquaredLoss().derivative(3.0, 1.0) == 2.0
    assert LogisticLoss().value(0.0, 1.0) == pytest.approx(math.log(2))
    assert LogisticLoss().derivative(0.0, -1.0) == 0.5
    assert LogisticLoss().second_derivative(0.0, -1.0) == 0.25


def test_logistic_tails_keep_their_relative_accuracy():
    loss = LogisticLoss()
    for margin in (50.0, 300.0, 700.0):
        small = math.exp(-margin)
        for label in (-1.0, 1.0):
            u = label * margin
            assert float(loss.value(u, label)) == pytest.approx(small, rel=1e-12)
            assert float(loss.value(-u, label)) == pytest.approx(margin, rel=1e-12)
            assert float(loss.derivative(u, label)) == pytest.approx(-label * small, rel=1e-12)
            assert float(loss.derivative(-u, label)) == pytest.approx(-label)
            for v in (u, -u):
                assert float(loss.second_derivative(v, label)) == pytest.approx(small, rel=1e-12)
    assert np.isfinite(loss.value(np.array([-1e300, 1e300]), 1.0)).all()


@each
def test_derivatives_match_differences_and_shapes_broadcast(loss, rng):
    u, y, h = rng.normal(size=(7, 5)) * 3, rng.choice([-1.0, 1.0], 5), 1e-5
    assert isinstance(loss, Loss)
    first = (loss.value(u + h, y) - loss.value(u - h, y)) / (2 * h)
    second = (loss.derivative(u + h, y) - loss.derivative(u - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(u, y), first, atol=1e-8)
    np.testing.assert_allclose(loss.second_derivative(u, y), second, atol=1e-8)
    third = np.abs(loss.second_derivative(u + h, y) - loss.second_derivative(u - h, y)) / (2 * h)
    assert (third <= loss.self_concordance * loss.second_derivative(u, y) + 1e-8).all()


def test_self_concordance_is_attained_in_the_tail():
    u, h = 30.0, 1e-4
    loss = LogisticLoss()
    third = (loss.second_derivative(u + h, 1) - loss.second_derivative(u - h, 1)) / (2 * h)
    assert abs(float(third)) == pytest.approx(
        loss.self_concordance * float(loss.second_derivative(u, 1)), rel=1e-6
    )


@each
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("radius", [0.3, 5.0])
def test_constants_bound_every_record_and_are_attained(loss, norm, radius, rng):
    d, bound = 3, 1.7
    domain = Domain(norm=norm, feature_bound=bound, labels="sign")
    X = rng.normal(size=(4_000, d))
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    X *= bound / np.linalg.norm(X, ord=order, axis=1, keepdims=True)
    # The extreme record: the longest row in l2, and the parameter along it.
    X[0] = np.full(d, bound) if norm == "linf" else [bound, 0, 0]
    thetas = rng.normal(size=X.shape)
    thetas[0] = X[0]
    thetas *= radius / np.linalg.norm(thetas, axis=1, keepdims=True)
    y = rng.choice([-1.0, 1.0], len(X))
    y[0] = -1.0
    u, lengths = np.einsum("nd,nd->n", X, thetas), np.linalg.norm(X, axis=1)

    lipschitz = loss.lipschitz(domain, radius, dimension=d)
    slopes = np.abs(loss.derivative(u, y)) * lengths
    assert slopes.max() == pytest.approx(slopes[0]) == pytest.approx(lipschitz)

    reach = radius * l2_feature_bound(domain, d)
    values = loss.value(u, y)
    assert values.max() == pytest.approx(values[0]) == pytest.approx(loss.largest_value(reach, domain))

    curvatures = loss.second_derivative(u, y) * lengths**2
    smoothness = loss.smoothness(domain, dimension=d)
    assert curvatures.max() <= smoothness * (1 + 1e-12)
    assert float(loss.second_derivative(0.0, 1.0)) * lengths[0] ** 2 == pytest.approx(smoothness)


def test_constants_of_the_papers():
    radius = 2.5
    ridge = Domain(norm="l2", labels="real")
    assert SquaredLoss().lipschitz(ridge, radius) == radius + 1  # wu2015, without the half: 2 R + 2
    assert SquaredLoss().largest_value(radius, ridge) == (radius + 1) ** 2 / 2  # ligett2017, Claim A.5
    assert SquaredLoss().lipschitz(Domain(label_bound=3.0), radius) == radius + 3
    assert SquaredLoss().lipschitz(ridge, math.inf) == math.inf
    sign = Domain(norm="l2", labels="sign")
    assert LogisticLoss().lipschitz(sign, math.inf) == 1.0
    assert LogisticLoss().lipschitz(sign, radius) == pytest.approx(float(expit(radius)))
    assert LogisticLoss().smoothness(Domain(norm="l1", feature_bound=2.0, labels="sign")) == 1.0


def test_constants_refuse():
    sign, real, classes = Domain(labels="sign"), Domain(), Domain(labels="class", label_bound=3)
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="radius"):
            SquaredLoss().lipschitz(real, bad)
    with pytest.raises(TypeError, match="radius must be a real number"):
        SquaredLoss().lipschitz(real, "1")
    with pytest.raises(ValueError, match="dimension must be given"):
        LogisticLoss().smoothness(Domain(norm="linf", labels="sign"))
    with pytest.raises(ValueError, match="domain must have labels in"):
        LogisticLoss().lipschitz(real, 1.0)
    with pytest.raises(ValueError, match="domain must have labels in"):
        LogisticLoss().largest_value(1.0, classes)
    with pytest.raises(ValueError, match="domain must have real or sign labels"):
        SquaredLoss().lipschitz(classes, 1.0)
    with pytest.raises(ValueError, match="prediction_bound must be positive"):
        LogisticLoss().largest_slope(-1.0, sign)


def test_mean_risk_against_scikit_learn_and_by_hand(rng):
    X, y = sign_data(rng)
    theta = rng.normal(size=4)
    half_norm = 0.5 * float(theta @ theta)
    expected = log_loss(y, expit(X @ theta)) + 0.3 * half_norm
    assert float(LogisticLoss().mean_risk(theta, X, y, 0.3)) == pytest.approx(expected)
    squared = float(np.mean((y - X @ theta) ** 2) / 2) + 0.3 * half_norm
    assert float(SquaredLoss().mean_risk(theta, X, y, 0.3)) == pytest.approx(squared)
    # lam multiplies the *mean*: twice the same records, the same risk.
    twice = LogisticLoss().mean_risk(theta, np.vstack([X, X]), np.append(y, y), 0.3)
    assert float(twice) == pytest.approx(expected)


@each
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_and_hessian_of_the_mean_risk(loss, weighted, rng, monkeypatch):
    monkeypatch.setattr(losses, "BLOCK_ENTRIES", 28)  # blocks of 7 rows, the last one shorter
    X, y = sign_data(rng)
    theta, lam, h = rng.normal(size=4), 0.2, 1e-5
    weights = rng.integers(0, 4, 60).astype(float) if weighted else None
    gradient = loss.gradient(theta, X, y, lam, weights=weights)
    hessian = loss.hessian(theta, X, y, lam, weights=weights)
    np.testing.assert_array_equal(hessian, hessian.T)
    for j, e in enumerate(np.eye(4)):
        up, down = theta + h * e, theta - h * e
        slope = loss.mean_risk(up, X, y, lam, weights=weights) - loss.mean_risk(
            down, X, y, lam, weights=weights
        )
        assert float(slope) / (2 * h) == pytest.approx(gradient[j], abs=1e-8)
        bend = loss.gradient(up, X, y, lam, weights=weights) - loss.gradient(down, X, y, lam, weights=weights)
        np.testing.assert_allclose(bend / (2 * h), hessian[j], atol=1e-8)
    if weights is not None:
        copies = weights.astype(int)
        expanded = np.repeat(X, copies, axis=0), np.repeat(y, copies)
        np.testing.assert_allclose(gradient, loss.gradient(theta, *expanded, lam), rtol=1e-10)
        np.testing.assert_allclose(hessian, loss.hessian(theta, *expanded, lam), rtol=1e-10)


@each
def test_mean_risk_of_a_stack(loss, rng, monkeypatch):
    monkeypatch.setattr(losses, "BLOCK_ENTRIES", 50)
    X, y = sign_data(rng)
    stack = rng.normal(size=(6, 4))
    risks = loss.mean_risk(stack, X, y, 0.1)
    assert risks.shape == (6,)
    np.testing.assert_allclose(
        risks, [float(loss.mean_risk(theta, X, y, 0.1)) for theta in stack], rtol=1e-12
    )


def test_weighted_gram(rng):
    X, w = rng.normal(size=(30, 3)), rng.uniform(size=30)
    np.testing.assert_allclose(weighted_gram(X, w), X.T @ np.diag(w) @ X, rtol=1e-10)


def test_no_copy_of_the_features_is_made(rng):
    X, y = sign_data(rng, 200_000, 20)
    theta, loss = rng.normal(size=20), LogisticLoss()
    tracemalloc.start()
    try:
        loss.mean_risk(theta, X, y, 0.1)
        loss.gradient(theta, X, y, 0.1)
        loss.hessian(theta, X, y, 0.1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 2


@each
def test_losses_are_values(loss):
    assert pickle.loads(pickle.dumps(loss)) == loss == type(loss)()
    with pytest.raises(AttributeError):
        loss.curvature = 3.0


# --- losses that are no function of <theta, x>, and penalties ---------------------------------------

WIDTHS = pytest.mark.parametrize("width", [1e-3, 1.0, 40.0])


def complex_step(function, theta, h=1e-30):
    """Derivatives without cancellation: the imaginary part at theta + i h e_j, over h; last axis j."""
    return np.stack([np.imag(function(theta + 1j * h * e)) / h for e in np.eye(theta.size)], axis=-1)


@WIDTHS
def test_smooth_distance_by_the_complex_step(width, rng):
    X, theta, y, loss = rng.normal(size=(20, 3)), rng.normal(size=3), np.zeros(20), SmoothDistanceLoss(width)
    assert isinstance(loss, SmoothLoss)

    def values(point):
        return np.sqrt(width**2 + ((point - X) ** 2).sum(axis=1))

    def gradients(point):
        return (point - X) / values(point)[:, np.newaxis]

    np.testing.assert_allclose(loss.values(theta, X, y), values(theta), rtol=1e-14)
    np.testing.assert_allclose(loss.gradients(theta, X, y), complex_step(values, theta), rtol=1e-12)
    np.testing.assert_allclose(
        loss.hessians(theta, X, y), complex_step(gradients, theta), rtol=1e-11, atol=1e-13
    )


@WIDTHS
def test_smooth_distance_is_convex_and_its_constants_are_sharp(width, rng):
    loss, domain = SmoothDistanceLoss(width), Domain("l2", labels="sign")
    X, y = rng.normal(size=(200, 4)), rng.choice([-1.0, 1.0], 200)
    X[0] = 0
    for reach in (0.0, 1.0, 1e3, 1e9):
        theta = reach * rng.normal(size=4)
        slopes = np.linalg.norm(loss.gradients(theta, X, y), axis=1)
        bends = np.linalg.eigvalsh(loss.hessians(theta, X, y))
        assert slopes.max() <= loss.lipschitz(domain) * (1 + 1e-15)
        assert bends.max() <= loss.smoothness(domain) * (1 + 1e-14)
        # The exact eigenvalues: 1 / l across, width^2 / l^3 along the difference.
        sizes = loss.values(theta, X, y)
        np.testing.assert_allclose(bends[:, -1], 1 / sizes, rtol=1e-12)
        smallest = width**2 / sizes**3
        np.testing.assert_allclose(bends[:, 0], smallest, atol=1e-15 * float((1 / sizes).max()), rtol=1e-6)
        if reach == 0:
            np.testing.assert_array_equal(loss.hessians(theta, X, y)[0], np.eye(4) * loss.smoothness(domain))
    assert slopes.max() == pytest.approx(loss.lipschitz(domain), rel=1e-12)


def test_smooth_distance_ignores_labels_and_takes_whole_numbers(rng):
    loss, X = SmoothDistanceLoss(), rng.integers(-3, 4, (6, 2))
    for function in (loss.values, loss.gradients, loss.hessians):
        expected = function(np.array([1.0, 2.0]), X.astype(float), np.ones(6))
        np.testing.assert_array_equal(function([1, 2], X.astype(np.int8), -np.ones(6, dtype=int)), expected)
    np.testing.assert_allclose(SmoothDistanceLoss(4).values([3], [[0]], [0]), [5.0])
    # Nobody: empty answers of the right shape.
    nobody = np.empty((0, 2)), np.empty(0)
    assert loss.values([0.0, 0.0], *nobody).shape == (0,)
    assert loss.gradients([0.0, 0.0], *nobody).shape == (0, 2)
    assert loss.hessians([0.0, 0.0], *nobody).shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.0], [[1.0, 2.0]], [0.0]), ValueError, "features must have shape"),
        (([[0.0, 0.0]], [[1.0, 2.0]], [0.0]), ValueError, "theta must have 1 dimension"),
        (([0.0, 0.0], [1.0, 2.0], [0.0]), ValueError, "features must have shape"),
        (([0.0, 0.0], [[1.0, 2.0]], [0.0, 1.0]), ValueError, "labels must have shape"),
        (([0.0, 0.0], [[1.0, 2.0]], 1.0), ValueError, "labels must have shape"),
        (([0.0, math.nan], [[1.0, 2.0]], [0.0]), ValueError, "theta must be finite"),
        (([], np.empty((1, 0)), [0.0]), ValueError, "theta must have at least one entry"),
        ((["a"], [[1.0]], [0.0]), TypeError, "theta must be numeric"),
        (([0.0], [["a"]], [0.0]), TypeError, "features must be numeric"),
    ],
)
def test_smooth_distance_refuses(arguments, error, message):
    loss = SmoothDistanceLoss()
    for function in (loss.values, loss.gradients, loss.hessians):
        with pytest.raises(error, match=message):
            function(*arguments)
    with pytest.raises(TypeError, match="domain must be a Domain"):
        loss.lipschitz("l2")
    with pytest.raises(TypeError, match="domain must be a Domain"):
        loss.smoothness(None)


@WIDTHS
def test_smooth_l1_by_the_complex_step_and_its_limits(width, rng):
    weight, theta = 0.3, rng.normal(size=5)
    penalty = SmoothL1Penalty(weight, width)
    assert isinstance(penalty, Penalty)

    def value(point):
        return weight * np.sqrt(width**2 + point**2).sum()

    def gradient(point):
        return weight * point / np.sqrt(width**2 + point**2)

    assert penalty.value(theta) == pytest.approx(value(theta), rel=1e-14)
    np.testing.assert_allclose(penalty.gradient(theta), complex_step(value, theta), rtol=1e-12)
    np.testing.assert_allclose(penalty.hessian(theta), complex_step(gradient, theta), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(penalty.hessian(np.zeros(2)), np.eye(2) * (weight / width))
    far = np.array([1e12, -1e12])
    np.testing.assert_allclose(penalty.gradient(far), [weight, -weight])
    bends = np.diag(penalty.hessian(far))
    assert (bends > 0).all()
    assert abs(penalty.value(theta) - weight * np.abs(theta).sum()) <= weight * width * theta.size


def test_smooth_l1_takes_whole_numbers_and_refuses(rng):
    penalty = SmoothL1Penalty(1, 4)
    assert penalty.value([3, 0]) == 9.0
    assert type(penalty.value(np.array([3, 0], dtype=np.int8))) is float
    for function in (penalty.value, penalty.gradient, penalty.hessian):
        with pytest.raises(ValueError, match="theta must be finite"):
            function([math.nan])
        with pytest.raises(ValueError, match="theta must have 1 dimension"):
            function(3.0)
        with pytest.raises(ValueError, match="theta must have at least one entry"):
            function([])
    for bad in (0.0, -1.0, math.nan, math.inf, 1e-200):
        with pytest.raises(ValueError, match="weight"):
            SmoothL1Penalty(bad, 1.0)
        with pytest.raises(ValueError, match="width"):
            SmoothL1Penalty(1.0, bad)
        with pytest.raises(ValueError, match="width"):
            SmoothDistanceLoss(bad)
    for bad in (True, "1", None, [1.0]):
        with pytest.raises(TypeError, match="width must be a real number"):
            SmoothL1Penalty(1.0, bad)
        with pytest.raises(TypeError, match="width must be a real number"):
            SmoothDistanceLoss(bad)


@pytest.mark.parametrize("thing", [SmoothDistanceLoss(0.5), SmoothL1Penalty(0.1, 0.2)])
def test_smooth_losses_and_penalties_are_values(thing):
    assert pickle.loads(pickle.dumps(thing)) == thing
    with pytest.raises(AttributeError):
        thing.width = 3.0
