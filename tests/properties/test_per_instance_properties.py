"""Properties of per-instance losses, curves and reports, for data that nobody chose."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import LogisticLoss, SmoothDistanceLoss, SmoothL1Penalty, SquaredLoss
from adaptive_dp.per_instance import (
    LinearPerturbationCurve,
    Objective,
    Scope,
    SmoothPerturbationCurve,
    adaptive_report,
    data_dependent_report,
    data_independent_report,
    determinant_bound,
    inner_product_width,
    kifer_calibration,
    losses_of_members,
    losses_of_outsiders,
    sharp_sigma,
)
from adaptive_dp.per_instance.noisy_objective import NoisyHessian
from adaptive_dp.per_instance.objective import records_at
from adaptive_dp.privacy import Domain

PROFILE = settings(max_examples=40, deadline=None, derandomize=True)
DOMAIN = Domain("l2", 1.0, "sign")
LOSSES = st.sampled_from([LogisticLoss(), SquaredLoss(), SmoothDistanceLoss(0.7)])
PENALTIES = st.sampled_from([None, SmoothL1Penalty(0.3, 0.5)])


def powers(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@st.composite
def scenes(draw):
    """An objective, a theta and sigma; features on a coarse grid, so that duplicates and zeros occur."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    cells = st.lists(st.integers(-4, 4), min_size=rows * columns, max_size=rows * columns)
    features = np.array(draw(cells), dtype=float).reshape(rows, columns) / 4
    features /= np.maximum(np.linalg.norm(features, axis=1), 1)[:, np.newaxis]
    labels = draw(st.lists(st.sampled_from([-1, 1]), min_size=rows, max_size=rows))
    theta = np.array(draw(st.lists(st.floats(-5, 5), min_size=columns, max_size=columns)))
    objective = Objective(
        Dataset(features, labels, DOMAIN), draw(LOSSES), draw(powers(-3, 2)), draw(PENALTIES)
    )
    return objective, theta, draw(powers(-1, 2))


@given(scenes())
@PROFILE
def test_losses_are_differences_of_log_densities(scene):
    """log p_D is linear in neither, and yet: with her minus without her, from two whole objectives."""
    objective, theta, sigma = scene
    people = objective.people
    point = objective.at(theta)
    terms = losses_of_members(point, sigma=sigma)
    for i in range(people.rows if people.rows > 1 else 0):
        rest = people.take(np.arange(people.rows) != i)
        other = Objective(rest, objective.loss, objective.lam, objective.penalty)
        expected = point.log_density(sigma=sigma) - other.at(theta).log_density(sigma=sigma)
        scale = 1 + np.abs(point.gradient).max() ** 2 / sigma**2
        assert abs(terms.signed[i] - expected) <= 1e-9 * scale
        back = losses_of_outsiders(
            other, theta, features=people.features[[i]], labels=people.labels[[i]], sigma=sigma
        )
        assert abs(back.signed[0] + terms.signed[i]) <= 1e-9 * scale


@given(scenes())
@PROFILE
def test_signs_and_the_bound_of_the_determinant(scene):
    objective, theta, sigma = scene
    people = objective.people
    point = objective.at(theta)
    bound = determinant_bound(point.records(people.features, people.labels), lam=objective.lam)
    removed = losses_of_members(point, sigma=sigma)
    added = losses_of_outsiders(point, features=people.features, labels=people.labels, sigma=sigma)
    assert (removed.determinant >= 0).all()
    assert (added.determinant <= 0).all()
    for terms in (removed, added):
        assert (np.abs(terms.determinant) <= bound * (1 + 1e-9) + 1e-13).all()
        assert (terms.gradient >= 0).all()
        np.testing.assert_array_equal(terms.loss, np.abs(terms.signed))
    # Removing somebody from the data costs at least as much determinant as adding her twin.
    assert (removed.determinant >= -added.determinant - 1e-12).all()


@given(scenes())
@PROFILE
def test_nobody_feels_the_order_of_the_records(scene):
    objective, theta, sigma = scene
    people = objective.people
    turned = Objective(
        people.take(np.arange(people.rows)[::-1]), objective.loss, objective.lam, objective.penalty
    )
    np.testing.assert_allclose(
        losses_of_members(turned, theta, sigma=sigma).signed[::-1],
        losses_of_members(objective, theta, sigma=sigma).signed,
        rtol=1e-7,
        atol=1e-9,
    )


@given(scenes())
@PROFILE
def test_a_rotation_of_all_records_changes_no_loss(scene):
    objective, theta, sigma = scene
    if objective.penalty is not None:
        objective = Objective(objective.people, objective.loss, objective.lam)
    people, d = objective.people, objective.columns
    turn = np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]
    turned = Objective(
        Dataset(people.features @ turn * (1 - 1e-15), people.labels, DOMAIN), objective.loss, objective.lam
    )
    np.testing.assert_allclose(
        losses_of_members(turned, theta @ turn, sigma=sigma).signed,
        losses_of_members(objective, theta, sigma=sigma).signed,
        rtol=1e-7,
        atol=1e-9,
    )


@given(scenes(), st.integers(0, 2**32 - 1), powers(-3, 1), powers(-3, 1), st.sampled_from(list(Scope)))
@PROFILE
def test_reports_hold_when_nothing_fails_and_are_ordered(scene, seed, sigma_gradient, sigma_hessian, scope):
    """At rho = 1e-10 no event fails in the lifetime of this test; theta comes from the mechanism."""
    objective, _, sigma = scene
    rng = np.random.default_rng(seed)
    theta = objective.minimise(rng.normal(0, sigma, objective.columns), tolerance=1e-7).theta
    point = objective.at(theta)
    common = {
        "sigma": sigma, "sigma_gradient": sigma_gradient, "sigma_hessian": sigma_hessian, "rho": 1e-10,
        "delta": 1e-5, "rng": rng, "scope": scope,
    }  # fmt: skip
    independent = data_independent_report(
        theta, objective.loss, DOMAIN, lam=objective.lam, sigma=sigma, rho=1e-10, scope=scope
    )
    reports = [
        independent,
        data_dependent_report(objective, theta, **common),
        adaptive_report(objective, theta, sigma_eigenvalue=sigma_hessian, **common),
    ]
    people = objective.people
    removed = losses_of_members(point, sigma=sigma)
    added = losses_of_outsiders(point, features=people.features, labels=people.labels, sigma=sigma)
    plain = {
        combine: independent.to_frame(people.features, people.labels, combine=combine)
        for combine in ("interval", "sum")
    }
    slack = 1e-9 * (1 + removed.loss + added.loss)
    for report in reports:
        for exact, member in ((removed, True), (added, False)):
            for combine in ("interval", "sum"):
                frame = report.to_frame(people.features, people.labels, member=member, combine=combine)
                assert (frame["bound"] >= exact.loss - slack).all()
                assert (frame["bound"] <= plain[combine]["bound"] * (1 + 1e-9)).all()
                assert (frame["overhead"] <= report.guarantee.epsilon).all()
        both = report.to_frame(people.features, people.labels)
        total = report.to_frame(people.features, people.labels, combine="sum")
        assert (both["bound"] <= total["bound"] * (1 + 1e-12)).all()
        assert np.isfinite(both[["bound", "determinant", "inner"]].to_numpy()).all()


@given(scenes(), st.integers(0, 2**32 - 1), powers(-3, 2), st.floats(0, 1))
@PROFILE
def test_the_family_bounds_leverage_and_is_never_worse_than_a_printed_rule(scene, seed, t, share):
    """Any noise within its bound t, whatever its direction."""
    objective, theta, _ = scene
    point, d = objective.at(theta), objective.columns
    noise = np.random.default_rng(seed).standard_normal((d, d))
    noise = noise + noise.T
    noise *= share * t / np.linalg.norm(noise, 2)
    records = records_at(objective.loss, theta, objective.people.features, objective.people.labels)
    exact = records.relative_eigenvalues(point.factor)
    bounds = {
        rule: NoisyHessian(point.hessian + noise, 1.0, t, objective.lam, rule)
        for rule in ("family", "standard", "three-halves")
        if rule != "three-halves" or objective.lam >= 2 * t
    }
    upper = {rule: bound.relative_upper(records) for rule, bound in bounds.items()}
    for found in upper.values():
        assert (found >= exact * (1 - 1e-8) - 1e-12).all()
        assert (upper["family"] <= found * (1 + 1e-8) + 1e-12).all()
    assert (bounds["family"].relative_lower(records) <= exact * (1 + 1e-8) + 1e-12).all()


@given(powers(-4, 2), powers(-6, 4), st.floats(0, 50), st.integers(1, 30), st.floats(1, 3), st.floats(1, 3))
@PROFILE
def test_curves_are_monotone(mu, kappa, epsilon, dimension, more_mu, more_kappa):
    for make in (
        LinearPerturbationCurve,
        lambda mu, kappa: SmoothPerturbationCurve(mu, kappa, dimension),
    ):
        value = make(mu, kappa).delta(epsilon)
        assert 0 <= value <= 1
        assert make(mu * more_mu, kappa).delta(epsilon) >= value - 1e-12
        assert make(mu, kappa * more_kappa).delta(epsilon) >= value - 1e-12
        assert make(mu, kappa).delta(epsilon * more_mu) <= value + 1e-12
    one_more = SmoothPerturbationCurve(mu, kappa, dimension + 1).delta(epsilon)
    assert one_more >= SmoothPerturbationCurve(mu, kappa, dimension).delta(epsilon) - 1e-12


@given(powers(-3, 1.5), powers(-4, 2), powers(-9, -0.5), st.integers(1, 10))
@PROFILE
def test_epsilon_inverts_delta_on_the_safe_side(mu, kappa, delta, dimension):
    for curve in (LinearPerturbationCurve(mu, kappa), SmoothPerturbationCurve(mu, kappa, dimension)):
        epsilon = curve.epsilon(delta)
        assert curve.delta(epsilon) <= delta
        assert epsilon == 0 or curve.delta(epsilon * (1 - 1e-8)) > delta


@given(powers(-1.5, 1), powers(-8, -1), powers(-3, 3), powers(-3, 3))
@PROFILE
def test_calibrations_keep_what_they_are_asked_for(epsilon, delta, slope, curvature):
    sigma, lam = kifer_calibration(epsilon=epsilon, delta=delta, slope=slope, curvature=curvature)
    assert LinearPerturbationCurve(slope / sigma, curvature / lam).delta(epsilon) <= delta
    sharp = sharp_sigma(epsilon=epsilon, delta=delta, slope=slope, curvature=curvature, lam=lam)
    assert sharp <= sigma
    assert LinearPerturbationCurve(slope / sharp, curvature / lam).delta(epsilon) <= delta
    larger = sharp_sigma(epsilon=epsilon, delta=delta, slope=slope, curvature=curvature, lam=2 * lam)
    assert larger <= sharp * (1 + 1e-9)


@given(powers(-9, -0.3), st.integers(1, 60), st.integers(1, 10**6))
@PROFILE
def test_widths_are_ordered(rho, dimension, people):
    one = inner_product_width(rho, scope=Scope.ONE, dimension=dimension)
    many = inner_product_width(rho, scope=Scope.MANY, dimension=dimension, people=people)
    everyone = inner_product_width(rho, scope=Scope.EVERYONE, dimension=dimension)
    assert 0 < one.l2 <= many.l2 <= everyone.l2 * (1 + 1e-12)
    assert everyone.l1 <= everyone.l2 * (1 + 1e-12)
    smaller = inner_product_width(rho / 2, scope=Scope.EVERYONE, dimension=dimension)
    assert smaller.l2 > everyone.l2
    assert math.isinf(one.l1)
