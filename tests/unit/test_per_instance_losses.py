"""Exact ex-post losses against the brute-force density, 50 digits of mpmath, and the printed recursion."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
import pandas as pd
import pytest
from scipy import integrate

from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import (
    LogisticLoss,
    Loss,
    SmoothDistanceLoss,
    SmoothL1Penalty,
    SmoothLoss,
    SquaredLoss,
)
from adaptive_dp.per_instance import (
    Objective,
    Scope,
    determinant_bound,
    inner_product_width,
    leverage_scores,
    loss_of_person,
    losses_of_members,
    losses_of_outsiders,
    normal_quantile,
)
from adaptive_dp.per_instance.objective import HESSIAN_ENTRIES, records_at
from adaptive_dp.privacy import Domain
from benchmarks import per_instance as bench

DOMAIN = Domain("l2", 1.0, "sign")
LOSSES = [LogisticLoss(), SquaredLoss(), SmoothDistanceLoss(0.7)]


def people_of(rows, columns, seed=1):
    """Random records on the unit sphere."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, columns))
    features /= np.linalg.norm(features, axis=1)[:, np.newaxis] * (1 + 1e-12)
    return Dataset(features, rng.choice([-1.0, 1.0], rows), DOMAIN)


# ---------------------------------------------------------------- brute force


def gradient_written_out(people, loss, lam, penalty):
    """grad J from its definition, analytic in theta, so that complex steps differentiate it exactly."""
    X, y = people.features, people.labels

    def gradient(theta):
        if isinstance(loss, SmoothDistanceLoss):
            differ = theta - X
            total = (differ / np.sqrt(loss.width**2 + (differ**2).sum(axis=1))[:, np.newaxis]).sum(axis=0)
        elif isinstance(loss, LogisticLoss):
            total = (-y / (1 + np.exp(y * (X @ theta)))) @ X
        else:
            total = (X @ theta - y) @ X
        extra = 0 if penalty is None else penalty.weight * theta / np.sqrt(penalty.width**2 + theta**2)
        return total + extra + lam * theta

    return gradient


def log_density(people, loss, lam, penalty, theta, sigma):
    """Log of the density of theta^P by change of variables, with a numerical Jacobian; up to a constant."""
    gradient = gradient_written_out(people, loss, lam, penalty)
    jacobian = np.array([gradient(theta + 1e-30j * e).imag / 1e-30 for e in np.eye(theta.size)])
    b = gradient(theta)
    sign, log_det = np.linalg.slogdet(jacobian)
    assert sign > 0
    return -b @ b / (2 * sigma**2) + log_det


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", [None, SmoothL1Penalty(0.3, 0.5)], ids=["no penalty", "penalty"])
def test_losses_equal_the_brute_force_density(loss, penalty):
    rng = np.random.default_rng(2)
    for trial in range(40):
        rows, columns = int(rng.integers(2, 9)), int(rng.integers(1, 6))
        all_of_them = people_of(rows, columns, seed=1000 + trial)
        lam, sigma = float(rng.uniform(0.05, 3)), float(rng.uniform(0.3, 3))
        theta = rng.standard_normal(columns) * rng.choice([0.1, 1.0, 5.0])
        full = log_density(all_of_them, loss, lam, penalty, theta, sigma)
        members = losses_of_members(Objective(all_of_them, loss, lam, penalty), theta, sigma=sigma)
        for i in range(rows):
            rest = all_of_them.take(np.arange(rows) != i)
            expected = full - log_density(rest, loss, lam, penalty, theta, sigma)
            assert members.signed[i] == pytest.approx(expected, abs=1e-9)
            outsider = losses_of_outsiders(
                Objective(rest, loss, lam, penalty),
                theta,
                features=all_of_them.features[[i]],
                labels=all_of_them.labels[[i]],
                sigma=sigma,
            )
            assert outsider.signed[0] == pytest.approx(-expected, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("sign", [-1, 1], ids=["remove", "add"])
def test_the_printed_recursion_gives_the_same_determinant(loss, sign):
    """Theorem 2.3.1: mu_j with grad b = -H, one eigenvector of her Hessian after the other."""
    rng = np.random.default_rng(3)
    for trial in range(20):
        people, theta = people_of(6, 4, seed=trial), rng.standard_normal(4)
        objective = Objective(people, loss, 0.4)
        x, y = (
            (people.features[:1], people.labels[:1])
            if sign < 0
            else (people_of(1, 4, 99).features, np.ones(1))
        )
        values, vectors = np.linalg.eigh(
            loss.hessians(theta, x, y)[0]
            if isinstance(loss, SmoothLoss)
            else loss.second_derivative(x @ theta, y)[0] * np.outer(x[0], x[0])
        )
        matrix, product = -objective.derivatives(theta)[1], 1.0
        for value, u in zip(values, vectors.T, strict=True):
            mu = value * (u @ np.linalg.solve(matrix, u))
            product *= 1 - sign * mu
            matrix = matrix - sign * value * np.outer(u, u)
        terms = (
            losses_of_members(objective, theta, sigma=1.0)
            if sign < 0
            else losses_of_outsiders(objective, theta, features=x, labels=y, sigma=1.0)
        )
        assert terms.determinant[0] == pytest.approx(-math.log(product), abs=1e-10)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_three_terms_are_those_of_the_theorem(loss):
    people, theta, sigma, lam = people_of(7, 3), np.array([0.4, -1.0, 0.2]), 1.3, 0.5
    objective = Objective(people, loss, lam)
    whole = gradient_written_out(people, loss, lam, None)(theta)
    terms = losses_of_members(objective, theta, sigma=sigma)
    for i in range(people.rows):
        g = gradient_written_out(people.take([i]), loss, 0.0, None)(theta)
        assert terms.gradient[i] == pytest.approx(g @ g / (2 * sigma**2))
        assert terms.inner[i] == pytest.approx(-(whole @ g) / sigma**2)
    outside = losses_of_outsiders(
        objective, theta, features=people.features, labels=people.labels, sigma=sigma
    )
    np.testing.assert_allclose(outside.gradient, terms.gradient)
    np.testing.assert_allclose(outside.inner, -terms.inner)
    assert (outside.determinant <= 0).all()
    assert (terms.determinant >= 0).all()
    frame = terms.to_frame()
    assert list(frame.columns) == ["determinant", "gradient", "inner", "loss"]
    np.testing.assert_array_equal(
        frame["loss"], np.abs(frame[["determinant", "gradient", "inner"]].sum(axis=1))
    )


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_likelihood_ratio_has_mean_one(loss):
    """Integral of p_D exp(-signed) is that of p_{D without her}; and the same for somebody added."""
    people, sigma = people_of(4, 1), 0.8
    objective = Objective(people, loss, 0.6)

    def integrand(t, member):
        point = objective.at([t])
        signed = (
            losses_of_members(point, sigma=sigma).signed[2]
            if member
            else losses_of_outsiders(point, features=[[0.7]], labels=[1], sigma=sigma).signed[0]
        )
        return math.exp(point.log_density(sigma=sigma) - signed)

    for member in (True, False):
        total, _ = integrate.quad(integrand, -14, 14, args=(member,), limit=300)
        assert total == pytest.approx(1, abs=1e-7)


# ---------------------------------------------------------------- mpmath


def reference(people, loss, lam, theta, sigma, *, without=None, added=None):
    """Signed log ratio with 50 digits, as the difference of two whole log densities."""
    mp = mpmath.mp.clone()
    mp.dps = 50
    columns = people.columns
    rows = list(zip(people.features.tolist(), people.labels.tolist(), strict=True))
    other = rows[:without] + rows[without + 1 :] if without is not None else [*rows, added]

    def density(records):
        gradient = [mp.mpf(lam) * mp.mpf(t) for t in theta.tolist()]
        hessian = mp.eye(columns) * mp.mpf(lam)
        for x, y in records:
            u = mp.fsum(mp.mpf(a) * mp.mpf(t) for a, t in zip(x, theta.tolist(), strict=True))
            if isinstance(loss, LogisticLoss):
                slope, bend = -y / (1 + mp.exp(y * u)), 1 / (2 + 2 * mp.cosh(u))
            else:
                slope, bend = u - y, mp.mpf(1)
            for i in range(columns):
                gradient[i] += slope * mp.mpf(x[i])
                for j in range(columns):
                    hessian[i, j] += bend * mp.mpf(x[i]) * mp.mpf(x[j])
        return mp.log(mp.det(hessian)) - mp.fsum(g * g for g in gradient) / (2 * mp.mpf(sigma) ** 2)

    return float(density(rows) - density(other))


@pytest.mark.parametrize("loss", [LogisticLoss(), SquaredLoss()], ids=repr)
@pytest.mark.parametrize("lam", [1e-2, 1e-6, 1e-10, 1e-13])
@pytest.mark.parametrize(
    ("rows", "columns", "twice"),
    [(1, 1, False), (1, 3, False), (4, 4, False), (5, 3, True), (3, 6, True), (6, 6, True)],
)
def test_tiny_ridges_duplicates_and_leverage_near_one(loss, lam, rows, columns, twice):
    people = people_of(rows, columns, seed=rows * columns)
    if twice:
        people = people.take([0, *range(rows - 1)])
    theta = np.random.default_rng(5).standard_normal(columns)
    point = Objective(people, loss, lam).at(theta)
    members = losses_of_members(point, sigma=1.0)
    if rows <= columns and not twice:
        curvature = loss.second_derivative(people.features @ theta, people.labels)
        assert (curvature * leverage_scores(point)).max() > 0.9
    tolerance = 1e-9 if lam > 1e-11 else 1e-8
    for i in range(rows):
        expected = reference(people, loss, lam, theta, 1.0, without=i)
        assert members.signed[i] == pytest.approx(expected, abs=tolerance)
    z = np.full(columns, 0.5 / math.sqrt(columns))
    outsider = losses_of_outsiders(point, features=[z], labels=[1.0], sigma=1.0)
    expected = reference(people, loss, lam, theta, 1.0, added=(z.tolist(), 1.0))
    assert outsider.signed[0] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("lam", [1e-3, 1e-12])
def test_a_penalty_counts_in_a_badly_conditioned_hessian_too(lam):
    people, theta, penalty = people_of(3, 6), np.full(6, 3.0), SmoothL1Penalty(1e-8, 0.01)
    signed = losses_of_members(Objective(people, SquaredLoss(), lam, penalty), theta, sigma=50.0).signed
    mp = mpmath.mp.clone()
    mp.dps = 50
    bend = mp.mpf(1e-8) * mp.mpf(0.01) ** 2 / (mp.mpf(0.01) ** 2 + 9) ** mp.mpf(1.5)

    def log_det(rows):
        hessian = mp.eye(6) * (mp.mpf(lam) + bend)
        for x in rows.tolist():
            hessian += mp.matrix(x) * mp.matrix(x).T
        return mp.log(mp.det(hessian))

    for i in range(3):
        rest = people.features[np.arange(3) != i]
        terms = losses_of_members(Objective(people, SquaredLoss(), lam, penalty), theta, sigma=50.0)
        assert terms.determinant[i] == pytest.approx(
            float(log_det(people.features) - log_det(rest)), abs=1e-8
        )
        assert signed[i] == terms.signed[i]


def test_a_ridge_below_all_digits_is_refused_not_guessed():
    objective = Objective(people_of(2, 4), SquaredLoss(), 1e-22)
    with pytest.raises(ValueError, match=r"singular to rounding: lam = 1e-22"):
        losses_of_members(objective, np.zeros(4), sigma=1.0)
    # With everybody the directions are covered; without record 2 they are not.
    people = Dataset(np.eye(3), np.ones(3), DOMAIN)
    with pytest.raises(ValueError, match=r"without record \d is singular to rounding: lam = 1e-22"):
        losses_of_members(Objective(people, SquaredLoss(), 1e-22), np.zeros(3), sigma=1.0)


# ---------------------------------------------------------------- scaling and other ways to the same numbers


@dataclass(frozen=True)
class Scaled(Loss):
    """A multiple of the logistic loss."""

    factor: float
    self_concordance: ClassVar[float | None] = None
    inner: ClassVar[LogisticLoss] = LogisticLoss()

    @property
    def curvature(self):
        return self.factor * 0.25

    def value(self, prediction, label):
        return self.factor * self.inner.value(prediction, label)

    def derivative(self, prediction, label):
        return self.factor * self.inner.derivative(prediction, label)

    def second_derivative(self, prediction, label):
        return self.factor * self.inner.second_derivative(prediction, label)

    def largest_slope(self, prediction_bound, domain):
        return self.factor * self.inner.largest_slope(prediction_bound, domain)

    def largest_value(self, prediction_bound, domain):
        return self.factor * self.inner.largest_value(prediction_bound, domain)


@pytest.mark.parametrize("factor", [1e-6, 0.3, 70.0])
def test_the_units_of_the_loss_do_not_matter(factor):
    """Loss, lam and sigma times c: the same mechanism."""
    people, theta = people_of(8, 3), np.array([0.5, -1.0, 2.0])
    plain = losses_of_members(Objective(people, LogisticLoss(), 0.7), theta, sigma=1.1)
    scaled = losses_of_members(Objective(people, Scaled(factor), 0.7 * factor), theta, sigma=1.1 * factor)
    np.testing.assert_allclose(scaled.determinant, plain.determinant, rtol=1e-10)
    np.testing.assert_allclose(scaled.gradient, plain.gradient, rtol=1e-10)
    np.testing.assert_allclose(scaled.inner, plain.inner, rtol=1e-10, atol=1e-14)


class AsGeneral(SmoothLoss):
    """A generalised linear loss whose form is kept secret."""

    def __init__(self, inner):
        self.inner = inner

    def values(self, theta, features, labels):
        return self.inner.value(features @ theta, labels)

    def gradients(self, theta, features, labels):
        return self.inner.derivative(features @ theta, labels)[:, np.newaxis] * features

    def hessians(self, theta, features, labels):
        outer = features[:, :, np.newaxis] * features[:, np.newaxis, :]
        return self.inner.second_derivative(features @ theta, labels)[:, np.newaxis, np.newaxis] * outer

    def lipschitz(self, domain):
        return self.inner.lipschitz(domain, math.inf)

    def smoothness(self, domain):
        return self.inner.smoothness(domain)


@pytest.mark.parametrize("inner", [LogisticLoss(), SquaredLoss()], ids=repr)
def test_the_general_formula_agrees_with_the_linear_one(inner):
    people, theta = people_of(5, 4), np.array([0.5, -1.0, 2.0, 0.1])
    linear, general = (Objective(people, loss, 0.01) for loss in (inner, AsGeneral(inner)))
    np.testing.assert_allclose(
        losses_of_members(general, theta, sigma=0.9).signed,
        losses_of_members(linear, theta, sigma=0.9).signed,
        atol=1e-10,
    )
    new = {"features": people_of(5, 4, 7).features, "labels": np.ones(5), "sigma": 0.9}
    np.testing.assert_allclose(
        losses_of_outsiders(general, theta, **new).signed,
        losses_of_outsiders(linear, theta, **new).signed,
        atol=1e-10,
    )


def test_two_hundred_thousand_people_in_blocks_equal_one_pass():
    people, theta = people_of(200_000, 3), np.array([0.3, -2.0, 1.0])
    terms = losses_of_members(Objective(people, LogisticLoss(), 0.5), theta, sigma=2.0)
    u, X, y = people.features @ theta, people.features, people.labels
    slope, bend = -y / (1 + np.exp(y * u)), 1 / (2 + 2 * np.cosh(u))
    H = (X.T * bend) @ X + 0.5 * np.eye(3)
    gradient = X.T @ slope + 0.5 * theta
    leverage = bend * np.einsum("ij,jk,ik->i", X, np.linalg.inv(H), X)
    expected = -np.log1p(-leverage) + slope**2 * (X**2).sum(axis=1) / 8 - slope * (X @ gradient) / 4
    np.testing.assert_allclose(terms.signed, expected, rtol=1e-8, atol=1e-9)


def test_a_general_loss_in_blocks_equals_person_by_person():
    columns = 16
    people, theta = people_of(HESSIAN_ENTRIES // columns**2 + 40, columns), np.linspace(-1, 1, columns)
    point = Objective(people, SmoothDistanceLoss(0.5), 1.0).at(theta)
    terms = losses_of_members(point, sigma=1.0)
    for i in (0, 17, people.rows - 41, people.rows - 40, people.rows - 1):
        one = loss_of_person(
            point, features=people.features[i], label=people.labels[i], member=True, sigma=1.0
        )
        assert terms.loss[i] == pytest.approx(one, rel=1e-12)


def test_leverage_scores():
    people = people_of(30, 4)
    H = people.features.T @ people.features + 0.3 * np.eye(4)
    scores = leverage_scores(Objective(people, SquaredLoss(), 0.3), np.zeros(4))
    np.testing.assert_allclose(scores, [x @ np.linalg.solve(H, x) for x in people.features])
    assert scores.sum() == pytest.approx(4 - 0.3 * np.trace(np.linalg.inv(H)))
    with pytest.raises(ValueError, match=r"loss must be a generalised linear one.*SmoothDistanceLoss"):
        leverage_scores(Objective(people, SmoothDistanceLoss(1.0), 0.3), np.zeros(4))


def test_an_infinitely_certain_model():
    """Huge theta: curvature and half of the slopes vanish, the other half are exactly -y x."""
    people = people_of(10, 3)
    theta = np.array([3e5, -1e6, 2e6])
    terms = losses_of_members(Objective(people, LogisticLoss(), 0.5), theta, sigma=2.0)
    right = people.labels * (people.features @ theta) > 0
    assert 0 < right.sum() < 10
    np.testing.assert_array_equal(terms.determinant, 0.0)
    np.testing.assert_array_equal(terms.loss[right], 0.0)
    np.testing.assert_allclose(terms.gradient[~right], 1 / 8)
    with pytest.raises(ValueError, match="theta is so large"):
        losses_of_members(Objective(people, SquaredLoss(), 0.5), np.full(3, 1e200), sigma=2.0)
    with pytest.raises(ValueError, match="theta is so large"):
        losses_of_members(Objective(people, SquaredLoss(), 0.5), np.full(3, 1e80), sigma=1e-90)


# ---------------------------------------------------------------- input


def test_one_person():
    people, theta = people_of(6, 3), np.array([0.5, -1.0, 2.0])
    objective = Objective(people, LogisticLoss(), 0.7)
    point = objective.at(theta)
    for i in range(6):
        record = {"features": list(people.features[i]), "label": int(people.labels[i])}
        inside = loss_of_person(point, **record, member=True, sigma=1.1)
        assert inside == pytest.approx(losses_of_members(objective, theta, sigma=1.1).loss[i], rel=1e-12)
        outside = loss_of_person(objective, theta, **record, member=False, sigma=1.1)
        assert outside == pytest.approx(
            losses_of_outsiders(
                point, features=[people.features[i]], labels=[people.labels[i]], sigma=1.1
            ).loss[0]
        )
    with pytest.raises(ValueError, match="not in the data"):
        loss_of_person(point, features=people.features[0], label=-people.labels[0], member=True, sigma=1.1)
    with pytest.raises(ValueError, match="not in the data"):
        loss_of_person(point, features=[0.0, 0.0, 0.1], label=1, member=True, sigma=1.1)


def test_frames_lists_and_integers_are_the_same_outsiders():
    point = Objective(people_of(6, 2), LogisticLoss(), 0.7).at([1, -1])
    results = [
        losses_of_outsiders(point, features=x, labels=y, sigma=1).signed
        for x, y in (
            ([[1, 0], [0, -1]], [1, -1]),
            (np.array([[1, 0], [0, -1]], dtype=np.int8), np.array([1, -1], dtype=np.int8)),
            (pd.DataFrame({"a": [1, 0], "b": [0, -1]}), pd.Series([1, -1])),
        )
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"features": [[1.0, 0.0]]}, ValueError, "features must have 3 columns, got 2"),
        ({"features": [1.0, 0.0, 0.0]}, ValueError, "features must have 2 dimension"),
        ({"features": [[1.0, 1.0, 0.0]]}, ValueError, "features: row 0"),
        ({"features": [[math.nan, 0.0, 0.0]]}, ValueError, "features must be finite"),
        ({"features": np.empty((0, 3)), "labels": []}, ValueError, "features must have at least one row"),
        ({"labels": [0.5]}, ValueError, "labels: entry 0"),
        ({"labels": [1, 1]}, ValueError, "labels must have one entry a row"),
        ({"labels": ["yes"]}, TypeError, "labels must be numeric"),
        ({"sigma": 0}, ValueError, "sigma"),
        ({"sigma": -1.0}, ValueError, "sigma"),
        ({"sigma": math.nan}, ValueError, "sigma"),
        ({"theta": [1.0]}, ValueError, "theta must have 3 entries"),
        ({"theta": None}, ValueError, "theta must be given"),
        ({"theta": [0.0, 0.0, math.inf]}, ValueError, "theta must be finite"),
        ({"objective": "J"}, TypeError, "objective must be"),
        ({"objective": Objective(people_of(4, 3), LogisticLoss(), 1.0).at(np.zeros(3))}, ValueError, "theta"),
    ],
)
def test_bad_outsiders_are_refused_by_name(change, error, words):
    good = {
        "objective": Objective(people_of(4, 3), LogisticLoss(), 1.0),
        "theta": np.zeros(3),
        "features": [[1.0, 0.0, 0.0]],
        "labels": [1],
        "sigma": 1.0,
    }
    given = {**good, **change}
    with pytest.raises(error, match=words):
        losses_of_outsiders(given.pop("objective"), given.pop("theta"), **given)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"features": [1.0, 0.0]}, ValueError, "features must have 3 entries"),
        ({"features": [2.0, 0.0, 0.0]}, ValueError, "features"),
        ({"label": 0}, ValueError, "labels"),
        ({"label": "a"}, TypeError, "label"),
        ({"label": None}, TypeError, "label"),
        ({"sigma": 0.0}, ValueError, "sigma"),
    ],
)
def test_a_bad_person_is_refused_by_name(change, error, words):
    good = {"features": [1.0, 0.0, 0.0], "label": 1, "member": False, "sigma": 1.0}
    with pytest.raises(error, match=words):
        loss_of_person(Objective(people_of(4, 3), LogisticLoss(), 1.0), np.zeros(3), **{**good, **change})


# ---------------------------------------------------------------- bounds that need no data


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_determinant_bound_holds_and_is_attained_where_the_data_have_no_influence(loss):
    rng = np.random.default_rng(4)
    for trial in range(50):
        theta, lam = rng.standard_normal(3), float(10 ** rng.uniform(-4, 2))
        people = people_of(4, 3, seed=trial)
        point = Objective(people, loss, lam).at(theta)
        bound = determinant_bound(records_at(loss, theta, people.features, people.labels), lam=lam)
        for terms in (
            losses_of_members(point, sigma=1.0),
            losses_of_outsiders(point, features=people.features, labels=people.labels, sigma=1.0),
        ):
            assert (np.abs(terms.determinant) <= bound * (1 + 1e-12)).all()
    # Alone in the data she is the whole curvature; far below lam the others do not count.
    alone = people_of(1, 3)
    bound = determinant_bound(records_at(loss, theta, alone.features, alone.labels), lam=0.5)
    removed = losses_of_members(Objective(alone, loss, 0.5), theta, sigma=1.0)
    assert removed.determinant[0] == pytest.approx(bound[0], rel=1e-12)
    if isinstance(loss, Loss):
        for influence in (1e-2, 1e-4, 1e-8):
            faint = Dataset(influence * people_of(4, 3).features, np.ones(4), DOMAIN)
            added = losses_of_outsiders(
                Objective(faint, loss, 0.5), theta, features=alone.features, labels=alone.labels, sigma=1.0
            )
            gap = bound[0] + added.determinant[0]
            assert 0 <= gap + 1e-15 <= 20 * influence**2 + 1e-14


def test_quantiles_of_the_inner_product():
    assert normal_quantile(0.05) == pytest.approx(1.9599639845400545)
    assert normal_quantile(1e-300) > 37
    rng = np.random.default_rng(5)
    e = rng.standard_normal((20_000, 4))
    for scope in (Scope.ONE, "one person fixed before the release"):
        width = inner_product_width(0.1, scope=scope, dimension=4)
        assert width.l2 == pytest.approx(normal_quantile(0.1))
        assert width.l1 == math.inf
    many = inner_product_width(0.1, scope=Scope.MANY, dimension=4, people=2)
    assert many.l2 == pytest.approx(normal_quantile(0.05))
    # So many people that the whole ball is cheaper.
    crowd = inner_product_width(0.1, scope=Scope.MANY, dimension=4, people=10**9)
    assert crowd.l2 == pytest.approx(math.sqrt(np.quantile((e**2).sum(axis=1), 0.9)), rel=0.01)
    everyone = inner_product_width(0.1, scope=Scope.EVERYONE, dimension=4)
    held = (np.linalg.norm(e, axis=1) <= everyone.l2) & (np.abs(e).max(axis=1) <= everyone.l1)
    assert 0.9 <= held.mean() < 0.95
    # One coordinate in one dimension: nothing to gain, nothing to lose.
    line = inner_product_width(0.1, scope=Scope.EVERYONE, dimension=1)
    assert line.l2 == pytest.approx(line.l1)
    turning = inner_product_width(0.1, scope=Scope.ONE, dimension=4, fixed_direction=False)
    assert turning == everyone


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"rho": 0.0}, ValueError, "rho"),
        ({"rho": 1.0}, ValueError, "rho"),
        ({"dimension": 0}, ValueError, "dimension"),
        ({"dimension": 2.0}, TypeError, "dimension"),
        ({"scope": "everyone"}, ValueError, "scope must be one of"),
        ({"scope": None}, ValueError, "scope must be one of"),
        ({"people": 0}, ValueError, "people"),
        ({"people": 2.5}, TypeError, "people"),
    ],
)
def test_bad_widths_are_refused_by_name(change, error, words):
    good = {"rho": 0.1, "scope": Scope.MANY, "dimension": 3, "people": 2}
    given = {**good, **change}
    with pytest.raises(error, match=words):
        inner_product_width(given.pop("rho"), **given)


# ---------------------------------------------------------------- benchmarks


def test_the_benchmarks_run_and_their_baselines_agree(tmp_path, capsys):
    """Each comparison refuses to time two computations of different things; no time is asserted."""
    assert bench.main(["--quick", "--record", str(tmp_path / "ratios.json")]) == 0
    record = json.loads((tmp_path / "ratios.json").read_text(encoding="utf-8"))
    assert len(record["ratios"]) == 5
    assert record["parameters"]["columns"] == bench.QUICK.columns
    assert all(each["ratio"] > 0 for each in record["ratios"])
    assert "beyond the data" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="losses must agree"):
        bench.agree("losses", np.zeros(2), np.array([0.0, 1e-3]))
