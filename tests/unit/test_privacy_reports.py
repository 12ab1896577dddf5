"""The additional releases, and reports: what they promise, what they cost, and that they hold nothing private."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from adaptive_dp import goe
from adaptive_dp.accounting import GaussianCurve, gaussian_delta, gaussian_epsilon
from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import LogisticLoss, SmoothDistanceLoss, SmoothL1Penalty, SquaredLoss
from adaptive_dp.per_instance import (
    Objective,
    PrivacyReport,
    Scope,
    adaptive_report,
    data_dependent_report,
    data_independent_report,
    losses_of_members,
    losses_of_outsiders,
    normal_quantile,
    perturb_objective,
    release_gradient,
    release_hessian,
    release_smallest_eigenvalue,
)
from adaptive_dp.per_instance.bounds import Width
from adaptive_dp.per_instance.noisy_objective import NoisyHessian
from adaptive_dp.per_instance.objective import records_at
from adaptive_dp.per_instance.releases import (
    gradient_sensitivity,
    hessian_frobenius_sensitivity,
    hessian_sensitivity,
)
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Refused, Release

DOMAIN = Domain("l2", 1.0, "sign")
LOSSES = [LogisticLoss(), SquaredLoss(), SmoothDistanceLoss(0.7)]
THETA = np.array([0.5, -1.0, 0.8])


def people_of(rows, columns=3, seed=1):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, columns))
    features /= np.linalg.norm(features, axis=1)[:, np.newaxis] * (1 + 1e-12)
    return Dataset(features, rng.choice([-1.0, 1.0], rows), DOMAIN)


PEOPLE = people_of(25)
OUTSIDERS = people_of(15, seed=2)
OBJECTIVE = Objective(PEOPLE, LogisticLoss(), 0.8)
SCALES = {"sigma": 1.5, "sigma_gradient": 2.0, "sigma_hessian": 0.1}


def report_of(kind="dependent", objective=OBJECTIVE, theta=THETA, seed=3, **changes):
    common = {"rho": 0.01, "delta": 1e-4, "rng": np.random.default_rng(seed), **SCALES, **changes}
    if kind == "dependent":
        return data_dependent_report(objective, theta, **common)
    if kind == "adaptive":
        return adaptive_report(objective, theta, sigma_eigenvalue=0.3, **common)
    for name in ("sigma_gradient", "sigma_hessian", "delta", "rng"):
        common.pop(name)
    return data_independent_report(
        theta, objective.loss, objective.people.domain, lam=objective.lam, **common
    )


KINDS = ("independent", "dependent", "adaptive")


# ---------------------------------------------------------------- sensitivities


def random_records(count, seed=4):
    """Records all over the domain, on its surface, and the ones that theta points at."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, 3))
    features /= np.linalg.norm(features, axis=1)[:, np.newaxis]
    features[: count // 2] *= rng.uniform(0, 1, (count // 2, 1))
    features[-2:] = np.array([THETA, -THETA]) / np.linalg.norm(THETA)
    features[-4:-2] = features[-2:]
    labels = rng.choice([-1.0, 1.0], count)
    labels[-4:] = [1, 1, -1, -1]
    return features * (1 - 1e-12), labels


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_sensitivities_by_brute_force(loss):
    """How far one record moves what is released; the supremum is met for the generalised linear losses."""
    features, labels = random_records(4000)
    records = records_at(loss, THETA, features, labels)
    slope = gradient_sensitivity(loss, DOMAIN, THETA, dimension=3)
    bend = hessian_sensitivity(loss, DOMAIN, dimension=3)
    frobenius = hessian_frobenius_sensitivity(loss, DOMAIN, dimension=3)
    assert records.gradient_norms.max() <= slope
    assert records.hessian_spectral_norms.max() <= bend
    assert records.hessian_norms.max() <= frobenius
    if loss != SmoothDistanceLoss(0.7):
        assert records.gradient_norms.max() >= slope * (1 - 1e-9)
        assert records.hessian_norms.max() >= bend * 0.9
        assert frobenius == bend
    else:
        at_theta = records_at(loss, np.array([0.1, 0.2, 0.3]), np.array([[0.1, 0.2, 0.3]]), np.ones(1))
        assert at_theta.hessian_norms[0] == pytest.approx(frobenius)


def test_at_the_origin_the_slope_of_logistic_loss_is_one_half():
    assert gradient_sensitivity(LogisticLoss(), DOMAIN, np.zeros(3), dimension=3) == pytest.approx(0.5)
    assert gradient_sensitivity(SquaredLoss(), DOMAIN, np.zeros(3), dimension=3) == pytest.approx(1.0)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_record_moves_the_symmetric_release_by_her_frobenius_norm_over_root_two(loss):
    """In the coordinates in which GOE noise is N(0, sigma^2) each: diagonal / sqrt 2 and strict upper triangle."""
    upper = np.triu_indices(3, 1)
    coordinates = lambda H: np.concatenate([np.diag(H) / math.sqrt(2), H[upper]])  # noqa: E731
    records = records_at(loss, THETA, PEOPLE.features, PEOPLE.labels)
    whole = Objective(PEOPLE, loss, 0.8).at(THETA).hessian
    for i in range(PEOPLE.rows):
        rest = Objective(PEOPLE.take(np.arange(25) != i), loss, 0.8).at(THETA).hessian
        moved = np.linalg.norm(coordinates(whole) - coordinates(rest))
        assert moved == pytest.approx(records.hessian_norms[i] / math.sqrt(2), abs=1e-12)


# ---------------------------------------------------------------- releases


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("penalty", [None, SmoothL1Penalty(0.3, 0.5)], ids=["no penalty", "penalty"])
def test_releases_are_the_truth_plus_the_noise_of_their_mechanism(loss, penalty):
    point = Objective(PEOPLE, loss, 0.8, penalty).at(THETA)
    rng = np.random.default_rng(5)
    gradient = release_gradient(point, sigma=2.0, delta=1e-5, rng=rng)
    hessian = release_hessian(point, sigma=3.0, delta=1e-5, rng=rng)
    eigenvalue = release_smallest_eigenvalue(point, sigma=4.0, delta=1e-5, rng=rng)
    np.testing.assert_allclose(gradient.value, point.gradient + gradient.trace["noise"])
    np.testing.assert_allclose(hessian.value, point.hessian + hessian.trace["noise"])
    np.testing.assert_array_equal(hessian.value, hessian.value.T)
    smallest = np.linalg.eigvalsh(point.hessian)[0]
    assert eigenvalue.value == pytest.approx(smallest + eigenvalue.trace["noise"])
    slope = gradient_sensitivity(loss, DOMAIN, THETA, dimension=3)
    bend = hessian_sensitivity(loss, DOMAIN, dimension=3)
    frobenius = hessian_frobenius_sensitivity(loss, DOMAIN, dimension=3)
    for release, mu in (
        (gradient, slope / 2),
        (hessian, frobenius / 3 / math.sqrt(2)),
        (eigenvalue, bend / 4),
    ):
        guarantee = release.guarantee
        assert isinstance(guarantee.curve, GaussianCurve)
        assert guarantee.curve.mu == pytest.approx(mu)
        assert guarantee.epsilon == pytest.approx(gaussian_epsilon(1e-5, mu))
        assert gaussian_delta(guarantee.epsilon, mu) <= 1e-5 * (1 + 1e-9)
        assert guarantee.neighbours is Neighbours.ADD_REMOVE
        assert guarantee.kind == "ex-ante"


def test_the_law_of_the_noise():
    point, rng = OBJECTIVE.at(THETA), np.random.default_rng(6)
    draws = {"g": [], "off": [], "on": [], "l": []}
    for _ in range(100):
        draws["g"].append(release_gradient(point, sigma=2.0, delta=0.1, rng=rng).trace["noise"])
        noise = release_hessian(point, sigma=3.0, delta=0.1, rng=rng).trace["noise"]
        draws["off"].append(noise[np.triu_indices(3, 1)])
        draws["on"].append(np.diag(noise))
        draws["l"].append(release_smallest_eigenvalue(point, sigma=4.0, delta=0.1, rng=rng).trace["noise"])
    for name, scale in (("g", 2.0), ("off", 3.0), ("on", 3.0 * math.sqrt(2)), ("l", 4.0)):
        sample = np.ravel(draws[name])
        assert stats.kstest(sample / scale, "norm").pvalue > 1e-4, name
        assert stats.kstest(sample / scale * 3, "norm").pvalue < 1e-2, name


def test_the_operator_norm_of_the_noise_keeps_its_bound():
    rng = np.random.default_rng(7)
    point = Objective(people_of(5, 6), LogisticLoss(), 0.5).at(np.zeros(6))
    norms = [
        np.linalg.norm(release_hessian(point, sigma=0.7, delta=0.1, rng=rng).trace["noise"], 2)
        for _ in range(150)
    ]
    inside = int((np.array(norms) <= 0.7 * goe.operator_norm_bound(0.2, 6)).sum())
    assert stats.binomtest(inside, 150, 0.8, "less").pvalue > 1e-4
    assert (
        stats.binomtest(int((np.array(norms) <= 0.7 * 1.7 * math.sqrt(6)).sum()), 150, 0.8, "less").pvalue
        < 1e-4
    )


# ---------------------------------------------------------------- the family of leverage bounds


def noisy_hessians(floor_share=1.0, count=40, columns=4, t=0.6, lam=0.7):
    """True Hessians, noisy ones within operator norm t, and records."""
    rng = np.random.default_rng(8)
    for _ in range(count):
        people = people_of(int(rng.integers(1, 30)), columns, seed=int(rng.integers(10**6)))
        weights = rng.uniform(0, 3, people.rows)
        H = (people.features.T * weights) @ people.features + lam * np.eye(columns)
        noise = rng.standard_normal((columns, columns))
        noise = noise + noise.T
        noise *= t * rng.choice([0.3, 1.0]) / np.linalg.norm(noise, 2)
        yield H, H + noise, people


@pytest.mark.parametrize("loss", [LogisticLoss(), SmoothDistanceLoss(0.7)], ids=repr)
@pytest.mark.parametrize("t", [0.05, 0.3, 0.7, 5.0])
def test_every_member_bounds_every_leverage_and_the_family_is_never_worse_than_the_printed_rules(loss, t):
    lam = 0.7
    for H, noisy, people in noisy_hessians(t=t, lam=lam):
        records = records_at(loss, np.linspace(-1, 1, 4), people.features, people.labels)
        exact = records.relative_eigenvalues(np.linalg.cholesky(H))
        family = NoisyHessian(noisy, 1.0, t, lam, "family")
        upper, lower = family.relative_upper(records), family.relative_lower(records)
        assert (np.sort(upper, axis=1) >= np.sort(exact, axis=1) - 1e-10).all()
        assert (np.sort(lower, axis=1) <= np.sort(exact, axis=1) + 1e-10).all()
        for spectrum in family.lower_bounds():
            gap = np.linalg.eigvalsh(H - (family.basis * spectrum) @ family.basis.T)
            assert gap[0] >= -1e-9
        # Never worse than lam alone, nor than what is printed.
        assert (upper.sum(axis=1) <= records.eigenvalues.sum(axis=1) / lam * (1 + 1e-9)).all()
        printed = ["standard", "three-halves"] if lam >= 2 * t else ["standard"]
        for rule in printed:
            other = NoisyHessian(noisy, 1.0, t, lam, rule).relative_upper(records)
            assert (np.sort(other, axis=1) >= np.sort(exact, axis=1) - 1e-10).all()
            better, worse = (np.log1p(bounds).sum(axis=1) for bounds in (upper, other))
            assert (better <= worse * (1 + 1e-10)).all(), rule


def test_the_printed_rules_as_they_are_printed():
    """3/2 x'Hhat^-1 x; (lb + t) / lb x'Hhat^-1 x, and (lb + 2 t) / lb x'(Hhat + t I)^-1 x where lb < 2 t."""
    rng = np.random.default_rng(9)
    x = people_of(6, 4)
    records = records_at(SquaredLoss(), np.zeros(4), x.features, x.labels)
    square = rng.standard_normal((4, 4))
    H = square @ square.T + 3 * np.eye(4)

    def leverage(matrix):
        return np.einsum("ij,jk,ik->i", x.features, np.linalg.inv(matrix), x.features)

    cap = (x.features**2).sum(axis=1)
    for rule, t, lb, expected in (
        ("three-halves", 0.5, 1.0, 1.5 * leverage(H)),
        ("standard", 0.4, 1.0, 1.4 * leverage(H)),
        ("standard", 2.0, 1.0, 5.0 * leverage(H + 2 * np.eye(4))),
    ):
        found = NoisyHessian(H, 1.0, t, lb, rule).relative_upper(records)[:, 0]
        np.testing.assert_allclose(found, np.minimum(expected, cap / lb))


# ---------------------------------------------------------------- reports: bounds


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_with_tiny_failure_probability_everything_is_bounded(kind, loss):
    """All scopes, members and outsiders, both ways to combine, each term: none of these runs may fail."""
    rng = np.random.default_rng(10)
    penalty = SmoothL1Penalty(0.2, 0.3)
    objective = Objective(PEOPLE, loss, 0.8, penalty)
    for scope in Scope:
        theta = objective.minimise(rng.normal(0, 1.5, 3)).theta
        people = 40 if scope is Scope.MANY else 1
        report = report_of(kind, objective, theta, rho=1e-9, scope=scope, people=people)
        point = objective.at(theta)
        members = losses_of_members(point, sigma=1.5)
        added = losses_of_outsiders(point, features=OUTSIDERS.features, labels=OUTSIDERS.labels, sigma=1.5)
        for data, exact, member in ((PEOPLE, members, True), (OUTSIDERS, added, False)):
            frames = {
                (known, combine): report.to_frame(data.features, data.labels, member=known, combine=combine)
                for known in (member, None)
                for combine in ("interval", "sum")
            }
            for frame in frames.values():
                assert (frame["bound"] >= exact.loss).all()
                assert (frame["determinant"] >= np.abs(exact.determinant) - 1e-12).all()
                assert (frame["inner"] >= np.abs(exact.inner)).all()
                np.testing.assert_allclose(frame["gradient"], exact.gradient, rtol=1e-12)
            for known in (member, None):
                assert (
                    frames[known, "interval"]["bound"] <= frames[known, "sum"]["bound"] * (1 + 1e-12)
                ).all()
            for combine in ("interval", "sum"):
                assert (
                    frames[member, combine]["bound"] <= frames[None, combine]["bound"] * (1 + 1e-12)
                ).all()
        other = report.to_frame(PEOPLE.features, PEOPLE.labels, member=False)["bound"]
        own = report.to_frame(PEOPLE.features, PEOPLE.labels, member=True)["bound"]
        both = report.to_frame(PEOPLE.features, PEOPLE.labels)["bound"]
        np.testing.assert_array_equal(both, np.maximum(own, other))


def test_the_independent_report_is_algorithm_two():
    report = report_of("independent", rho=0.02)
    frame = report.to_frame(PEOPLE.features, PEOPLE.labels, combine="sum")
    u = PEOPLE.features @ THETA
    slope, bend = 1 / (1 + np.exp(PEOPLE.labels * u)), 1 / (2 + 2 * np.cosh(u))
    square = (PEOPLE.features**2).sum(axis=1)
    np.testing.assert_allclose(frame["determinant"], np.log(1 + bend * square / 0.8))
    np.testing.assert_allclose(frame["gradient"], slope**2 * square / (2 * 1.5**2))
    np.testing.assert_allclose(
        frame["inner"], slope * np.sqrt(square) * stats.norm.ppf(1 - 0.01) / 1.5, rtol=1e-10
    )
    np.testing.assert_allclose(frame["bound"], frame[["determinant", "gradient", "inner"]].sum(axis=1))
    assert (frame["overhead"] == 0).all()
    assert report.guarantee.epsilon == 0
    assert report.guarantee.delta == 0
    assert report.confidence == pytest.approx(0.98)


@pytest.mark.parametrize("member", [True, False])
def test_the_dependent_report_written_out(member):
    """Interval of each signed term from what is published, the worse end of their sum; one record after the other."""
    theta = OBJECTIVE.minimise([1.6, -0.8, 1.2]).theta
    report = report_of("dependent", theta=theta, rho=0.02, sigma_hessian=0.02, sigma_gradient=0.4)
    frame = report.to_frame(PEOPLE.features, PEOPLE.labels, member=member)
    total = report.to_frame(PEOPLE.features, PEOPLE.labels, member=member, combine="sum")
    q = stats.norm.ppf(1 - 0.01)
    t = 0.02 * goe.operator_norm_bound(0.02, 3)
    upper = np.linalg.inv(report.hessian.matrix + t * np.eye(3))
    members = [
        np.linalg.inv(w * (report.hessian.matrix - t * np.eye(3)) + (1 - w) * 0.8 * np.eye(3))
        for w in [2 / 3, 0.8 / (0.8 + t), 0.8 / (0.8 + 2 * t), *np.linspace(0, 1, 65)]
        if np.linalg.eigvalsh(w * (report.hessian.matrix - t * np.eye(3)) + (1 - w) * 0.8 * np.eye(3))[0] > 0
    ]
    sides = set()
    for i, (x, y) in enumerate(zip(PEOPLE.features, PEOPLE.labels, strict=True)):
        u = x @ theta
        g, bend = -y / (1 + math.exp(y * u)) * x, 1 / (2 + 2 * math.cosh(u))
        length = np.linalg.norm(g)
        gradient = length**2 / (2 * 1.5**2)
        centre = report.gradient.vector @ g
        low = max(-1.5 * q * length, centre - 0.4 * q * length) / 1.5**2
        high = min(1.5 * q * length, centre + 0.4 * q * length) / 1.5**2
        least, most = bend * (x @ upper @ x), bend * min(x @ M @ x for M in members)
        cap = math.log(1 + bend * (x @ x) / 0.8)
        if member:
            determinant = (-math.log(1 - least), cap if most >= 1 else min(-math.log(1 - most), cap))
            ends = (determinant[0] + gradient - high, determinant[1] + gradient - low)
        else:
            determinant = (-min(math.log(1 + most), cap), -math.log(1 + least))
            ends = (determinant[0] + gradient + low, determinant[1] + gradient + high)
        assert frame["inner"][i] == pytest.approx(max(abs(low), abs(high)))
        assert frame["determinant"][i] == pytest.approx(max(map(abs, determinant)))
        assert frame["bound"][i] == pytest.approx(max(map(abs, ends)))
        assert total["bound"][i] == pytest.approx(
            max(map(abs, determinant)) + gradient + max(abs(low), abs(high))
        )
        sides.add(abs(ends[0]) > abs(ends[1]))
    assert sides == {True, False}  # both ends decide for somebody


def test_much_data_makes_the_dependent_report_sharper():
    people = people_of(3000)
    objective = Objective(people, LogisticLoss(), 0.8)
    theta = objective.minimise(np.array([1.0, -2.0, 0.5])).theta
    plain = report_of("independent", objective, theta).to_frame(people.features, people.labels)
    rich = report_of("dependent", objective, theta, sigma_gradient=0.3).to_frame(
        people.features, people.labels
    )
    assert (rich["bound"] < plain["bound"]).all()
    assert (rich["determinant"] < 0.1 * plain["determinant"]).all()


def test_a_released_eigenvalue_helps_where_lam_is_tiny():
    people = people_of(3000)
    objective = Objective(people, LogisticLoss(), 1e-9)
    theta = objective.minimise(np.array([1.0, -2.0, 0.5])).theta
    bounds = {
        (kind, rule): report_of(kind, objective, theta, sigma_hessian=40.0, rule=rule)
        .to_frame(people.features, people.labels)["determinant"]
        .median()
        for kind in ("dependent", "adaptive")
        for rule in ("family", "standard")
    }
    assert bounds["adaptive", "family"] < 0.1 * bounds["dependent", "family"]
    for kind in ("dependent", "adaptive"):
        assert bounds[kind, "family"] <= bounds[kind, "standard"]


def test_hopeless_noise_still_gives_finite_valid_bounds():
    plain = report_of("independent", rho=0.3).to_frame(PEOPLE.features, PEOPLE.labels)
    for seed in range(5):  # at this rho some of the events fail, and the noisy gradient lies far off
        report = report_of("dependent", sigma_hessian=1e6, sigma_gradient=1e6, rho=0.3, seed=seed)
        frame = report.to_frame(PEOPLE.features, PEOPLE.labels)
        assert np.isfinite(frame.to_numpy()).all()
        assert (frame["inner"] <= plain["inner"] * (1 + 1e-12)).all()
        assert (frame["bound"] <= plain["bound"] * (1 + 1e-12)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_one_record_equals_her_row_of_the_table(kind):
    report = report_of(kind)
    for member in (None, True, False):
        for combine in ("interval", "sum"):
            frame = report.to_frame(PEOPLE.features, PEOPLE.labels, member=member, combine=combine)
            for i in (0, 11, 24):
                entry = report(
                    list(PEOPLE.features[i]), int(PEOPLE.labels[i]), member=member, combine=combine
                )
                assert entry.bound == pytest.approx(frame["bound"][i], rel=1e-12)
                assert entry.overhead == pytest.approx(frame["overhead"][i], rel=1e-9)


def test_blocks_of_people_equal_one_pass():
    people = people_of(30_000, 40)
    objective = Objective(people.take(np.arange(50)), LogisticLoss(), 0.8)
    report = report_of("dependent", objective, np.full(40, 0.1))
    frame = report.to_frame(people.features, people.labels)
    assert len(frame) == 30_000
    part = report.to_frame(people.features[26_000:26_010], people.labels[26_000:26_010])
    np.testing.assert_allclose(frame["bound"][26_000:26_010], part["bound"], rtol=1e-11)
    assert list(frame.index) == list(range(30_000))


def test_scopes_are_ordered_and_may_be_text():
    bounds = []
    for scope, people in ((Scope.ONE, 1), (Scope.MANY, 25), (Scope.EVERYONE, 1)):
        as_member = report_of("independent", scope=scope, people=people)
        as_text = report_of("independent", scope=str(scope), people=people)
        assert as_text.scope is scope
        assert as_text.width == as_member.width
        bounds.append(as_member.to_frame(PEOPLE.features, PEOPLE.labels)["bound"])
    assert (bounds[0] < bounds[1]).all()
    assert (bounds[0] < bounds[2]).all()


# ---------------------------------------------------------------- reports: cost and contents


def test_the_overhead_is_the_joint_gaussian_of_each_person():
    records = records_at(LogisticLoss(), THETA, PEOPLE.features, PEOPLE.labels)
    square = (records.gradient_norms / 2.0) ** 2 + (records.hessian_norms / 0.1) ** 2 / 2
    for kind, more in (("dependent", 0.0), ("adaptive", (records.hessian_norms / 0.3) ** 2)):
        report = report_of(kind)
        mu = np.sqrt(square + more)
        frame = report.to_frame(PEOPLE.features, PEOPLE.labels)
        np.testing.assert_allclose(frame["overhead"], gaussian_epsilon(1e-4, mu), rtol=1e-9)
        assert (frame["overhead"] <= report.guarantee.epsilon).all()
        assert report.delta == report.guarantee.delta == 1e-4


def test_the_guarantee_is_the_exact_composition_of_the_releases():
    slope = gradient_sensitivity(LogisticLoss(), DOMAIN, THETA, dimension=3)
    square = (slope / 2.0) ** 2 + (0.25 / 0.1) ** 2 / 2
    for kind, more, failures in (("dependent", 0.0, 3), ("adaptive", (0.25 / 0.3) ** 2, 4)):
        report = report_of(kind)
        mu = math.sqrt(square + more)
        assert report.guarantee.curve.mu == pytest.approx(mu)
        assert report.guarantee.epsilon == pytest.approx(gaussian_epsilon(1e-4, mu))
        assert report.confidence == pytest.approx(1 - failures * 0.01)


def test_a_joint_guarantee_adds_up():
    training = perturb_objective(
        PEOPLE, LogisticLoss(), lam=0.8, sigma=1.5, delta=1e-5, rng=np.random.default_rng(1)
    )
    report = report_of("dependent", theta=training)
    joint = report.joint_guarantee(training.guarantee)
    worst = gaussian_epsilon(1e-4, math.hypot(1 / 2.0, 0.25 / 0.1 / math.sqrt(2)))
    assert joint.epsilon == pytest.approx(training.guarantee.epsilon + worst)
    assert joint.parts["report"] >= report.guarantee.epsilon
    assert joint.delta == pytest.approx(1e-5 + 1e-4)
    # A promise about the pair (theta, report) is the same whatever theta came out.
    other_theta = report_of("dependent", theta=np.zeros(3))
    assert other_theta.guarantee.epsilon < report.guarantee.epsilon
    assert other_theta.joint_guarantee(training.guarantee) == joint
    adaptive = report_of("adaptive", theta=training).joint_guarantee(training.guarantee)
    worst = gaussian_epsilon(1e-4, math.hypot(1 / 2.0, 0.25 / 0.1 / math.sqrt(2), 0.25 / 0.3))
    assert adaptive.epsilon == pytest.approx(training.guarantee.epsilon + worst)
    for loss, finite in ((SquaredLoss(), False), (SmoothDistanceLoss(0.7), True)):
        of_loss = report_of("dependent", Objective(PEOPLE, loss, 0.8)).joint_guarantee(training.guarantee)
        assert math.isfinite(of_loss.epsilon) is finite
    # So much noise that epsilon is 0 still has the delta.
    faint = report_of("dependent", sigma_gradient=1e6, sigma_hessian=1e6).joint_guarantee(training.guarantee)
    assert (faint.epsilon, faint.delta) == (training.guarantee.epsilon, pytest.approx(1e-5 + 1e-4))
    free = report_of("independent", theta=training).joint_guarantee(training.guarantee)
    assert (free.epsilon, free.delta) == (training.guarantee.epsilon, 1e-5)
    other = Guarantee("ex-ante", 1.0, Neighbours.REPLACE_ONE)
    elsewhere = dataclasses.replace(training.guarantee, domain=Domain("l2", 0.5, "sign"))
    for wrong in (other, elsewhere):
        with pytest.raises(ValueError, match="training"):
            report.joint_guarantee(wrong)


def test_squared_loss_has_a_report_of_finite_cost():
    objective = Objective(PEOPLE, SquaredLoss(), 0.8)
    report = report_of("dependent", objective, THETA)
    slope = 1 + np.linalg.norm(THETA)
    assert report.guarantee.curve.mu == pytest.approx(math.hypot(slope / 2, 1 / 0.1 / math.sqrt(2)))


PUBLIC = {
    "theta", "loss", "domain", "lam", "sigma", "rho", "confidence", "scope", "people", "width", "delta",
    "guarantee", "gradient", "hessian", "sigma_eigenvalue",
}  # fmt: skip


def parts_of(value, seen=None):
    """Every object that can be reached from ``value`` through attributes, fields and containers."""
    seen = {} if seen is None else seen
    if id(value) in seen or isinstance(value, str | int | float | bool | type | type(None)):
        return seen
    seen[id(value)] = value
    children = []
    if dataclasses.is_dataclass(value):
        children += [getattr(value, each.name) for each in dataclasses.fields(value)]
    if hasattr(value, "__dict__") and not isinstance(value, Scope):
        children += list(vars(value).values())
    if isinstance(value, dict | list | tuple):
        children += list(value.values() if isinstance(value, dict) else value)
    for child in children:
        parts_of(child, seen)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_a_report_is_private(kind):
    """It is what theta, the noisy releases and public constants say, and no object leads back to the data."""
    training = perturb_objective(
        PEOPLE, LogisticLoss(), lam=0.8, sigma=1.5, delta=1e-5, rng=np.random.default_rng(1)
    )
    report = report_of(kind, theta=training)
    assert {each.name for each in dataclasses.fields(report)} == PUBLIC
    parts = list(parts_of(report).values())
    names = {type(each).__name__ for each in parts}
    assert not names & {"Dataset", "Objective", "ObjectiveAt", "Trace", "Release", "Generator", "function"}
    assert len(parts) > 3
    point = OBJECTIVE.at(training.value)
    private = [point.gradient, point.hessian, point.factor, training.trace["noise"]]
    for each in parts:
        if isinstance(each, np.ndarray):
            assert each.shape in {(3,), (3, 3)}  # nothing with a row a person
            assert not any(each.shape == x.shape and np.allclose(each, x) for x in private)
            assert each.base is None or each.base.shape in {(3,), (3, 3)}


def test_the_releases_in_a_report_are_drawn_in_a_fixed_order_and_once():
    report, rng = report_of("adaptive"), np.random.default_rng(3)
    point = OBJECTIVE.at(THETA)
    np.testing.assert_array_equal(
        report.gradient.vector, release_gradient(point, sigma=2.0, delta=1e-4, rng=rng).value
    )
    np.testing.assert_array_equal(
        report.hessian.matrix, release_hessian(point, sigma=0.1, delta=1e-4, rng=rng).value
    )
    eigenvalue = release_smallest_eigenvalue(point, sigma=0.3, delta=1e-4, rng=rng).value
    assert report.hessian.floor == max(0.8, eigenvalue - 0.3 * normal_quantile(0.02))
    assert report.hessian.noise_bound == pytest.approx(0.1 * goe.operator_norm_bound(0.01, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [LogisticLoss(), SmoothDistanceLoss(0.7)], ids=repr)
def test_a_report_can_be_sent(kind, loss):
    report = report_of(kind, Objective(PEOPLE, loss, 0.8))
    copy = pickle.loads(pickle.dumps(report))
    assert isinstance(copy, PrivacyReport)
    pd.testing.assert_frame_equal(
        copy.to_frame(PEOPLE.features, PEOPLE.labels), report.to_frame(PEOPLE.features, PEOPLE.labels)
    )
    assert copy.guarantee == report.guarantee
    assert copy.width == report.width
    assert isinstance(copy.width, Width)


def test_a_release_stands_for_its_theta():
    release = Release(THETA, Guarantee("ex-ante", 1.0, Neighbours.ADD_REMOVE))
    for kind in KINDS:
        pd.testing.assert_frame_equal(
            report_of(kind, theta=release).to_frame(PEOPLE.features, PEOPLE.labels),
            report_of(kind, theta=list(THETA)).to_frame(PEOPLE.features, PEOPLE.labels),
        )
    with pytest.raises(TypeError, match="refused: no"):
        report_of("independent", theta=Release(Refused("no"), release.guarantee))


def test_theta_is_copied():
    theta = THETA.copy()
    report = report_of("independent", theta=theta)
    before = report(PEOPLE.features[0], PEOPLE.labels[0])
    theta[:] = 100.0
    assert report(PEOPLE.features[0], PEOPLE.labels[0]) == before


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (1, 4), (3, 8)], ids=["one person, one feature", "one person", "d > n"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_few_people_and_many_features(kind, rows, columns):
    people = people_of(rows, columns)
    objective = Objective(people, LogisticLoss(), 1e-3)
    theta = np.full(columns, 0.3)
    report = report_of(kind, objective, theta, rho=1e-9, sigma=100.0)
    exact = losses_of_members(objective, theta, sigma=100.0)
    frame = report.to_frame(people.features, people.labels, member=True)
    assert np.isfinite(frame.to_numpy()).all()
    assert (frame["determinant"] >= exact.determinant - 1e-9).all()


# ---------------------------------------------------------------- input


def test_frames_lists_and_integers_are_the_same_records():
    report = report_of("dependent")
    rows, labels = [[1, 0, 0], [0, -1, 0]], [1, -1]
    frames = [
        report.to_frame(x, y)
        for x, y in (
            (rows, labels),
            (np.array(rows, dtype=np.int16), np.array(labels, dtype=np.int8)),
            (pd.DataFrame(rows, index=[7, 9]), pd.Series(labels, index=[7, 9])),
            (np.array(rows, dtype=np.float32), np.array(labels)),
        )
    ]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame, frames[0])
    assert report(pd.Series(rows[0]), 1) == report(np.array(rows[0]), np.float64(1.0))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"features": [[1.0, 0.0]]}, ValueError, "features must have 3 columns, got 2"),
        ({"features": [1.0, 0.0, 0.0]}, ValueError, "features must have 2 dimension"),
        ({"features": [[1.0, 1.0, 0.0]]}, ValueError, "features: row 0"),
        ({"features": [[1.0, math.nan, 0.0]]}, ValueError, "features must be finite"),
        ({"features": np.empty((0, 3)), "labels": []}, ValueError, "features must have at least one row"),
        ({"features": [["a", "b", "c"]]}, TypeError, "features must be numeric"),
        ({"labels": [0.0]}, ValueError, "labels: entry 0"),
        ({"labels": [1, 1]}, ValueError, "labels must have one entry a row"),
        ({"member": "yes"}, TypeError, "member"),
        ({"member": 1}, TypeError, "member"),
        ({"combine": "max"}, ValueError, "combine"),
    ],
)
def test_bad_records_are_refused_by_name(change, error, words):
    good = {"features": [[1.0, 0.0, 0.0]], "labels": [1]}
    with pytest.raises(error, match=words):
        report_of("dependent").to_frame(**{**good, **change})


@pytest.mark.parametrize(
    ("features", "label", "error", "words"),
    [
        ([1.0, 0.0], 1, ValueError, "features must have 3 entries"),
        ([[1.0, 0.0, 0.0]], 1, ValueError, "features must have 1 dimension"),
        ([1.0, 1.0, 0.0], 1, ValueError, "features"),
        ([1.0, 0.0, 0.0], 0.5, ValueError, "labels"),
        ([1.0, 0.0, 0.0], "1", TypeError, "label"),
        ([1.0, 0.0, 0.0], [1], TypeError, "label"),
    ],
)
def test_a_bad_record_is_refused_by_name(features, label, error, words):
    with pytest.raises(error, match=words):
        report_of("dependent")(features, label)


BAD = [
    ({"sigma": 0.0}, ValueError, "sigma"),
    ({"sigma": -1.0}, ValueError, "sigma"),
    ({"sigma_gradient": 0.0}, ValueError, "sigma_gradient"),
    ({"sigma_gradient": "1"}, TypeError, "sigma_gradient"),
    ({"sigma_hessian": math.nan}, ValueError, "sigma_hessian"),
    ({"rho": 0.0}, ValueError, "rho"),
    ({"rho": 1.0}, ValueError, "rho"),
    ({"rho": -0.1}, ValueError, "rho"),
    ({"rho": 0.34}, ValueError, "rho must be below 1/[34]"),
    ({"delta": 0.0}, ValueError, "delta"),
    ({"delta": 1.5}, ValueError, "delta"),
    ({"scope": "everyone"}, ValueError, "scope must be one of"),
    ({"scope": 3}, ValueError, "scope must be one of"),
    ({"people": 5}, ValueError, "people must be left at 1 unless scope is Scope.MANY"),
    ({"people": 5, "scope": Scope.EVERYONE}, ValueError, "people must be left at 1"),
    ({"people": 0, "scope": Scope.MANY}, ValueError, "people"),
    ({"people": 2.0, "scope": Scope.MANY}, TypeError, "people"),
    ({"rule": "best"}, ValueError, "rule"),
    ({"theta": [1.0]}, ValueError, "theta must have 3 entries"),
    ({"theta": [1.0, math.nan, 0.0]}, ValueError, "theta must be finite"),
    ({"theta": []}, ValueError, "theta must have at least one entry"),
    ({"theta": "abc"}, TypeError, "theta must be numeric"),
    ({"objective": PEOPLE}, TypeError, "objective must be an Objective"),
    ({"objective": OBJECTIVE.at(THETA)}, TypeError, "objective must be an Objective"),
    ({"rng": 3}, TypeError, "rng"),
]


@pytest.mark.parametrize("kind", ["dependent", "adaptive"])
@pytest.mark.parametrize(("change", "error", "words"), BAD)
def test_bad_reports_are_refused_before_any_noise(kind, change, error, words):
    rng = np.random.default_rng(11)
    before = rng.bit_generator.state
    common = {
        "rho": 0.01,
        "delta": 1e-4,
        "rng": rng,
        "theta": THETA,
        "objective": OBJECTIVE,
        **SCALES,
        **change,
    }
    make = data_dependent_report if kind == "dependent" else adaptive_report
    if kind == "adaptive":
        common["sigma_eigenvalue"] = 0.3
    with pytest.raises(error, match=words):
        make(common.pop("objective"), common.pop("theta"), **common)
    assert rng.bit_generator.state == before


def test_three_halves_needs_its_lam_and_says_so_before_any_noise():
    tau = goe.operator_norm_bound(0.01, 3)
    rng = np.random.default_rng(11)
    before = rng.bit_generator.state
    with pytest.raises(ValueError, match="lam must be at least 2 sigma_hessian tau"):
        report_of("dependent", rng=rng, sigma_hessian=0.8 / (2 * tau) * 1.001, rule="three-halves")
    with pytest.raises(ValueError, match="rule must be 'family' or 'standard'"):
        report_of("adaptive", rng=rng, rule="three-halves")
    with pytest.raises(ValueError, match="sigma_eigenvalue"):
        adaptive_report(OBJECTIVE, THETA, rho=0.01, delta=1e-4, rng=rng, sigma_eigenvalue=0.0, **SCALES)
    assert rng.bit_generator.state == before
    report = report_of("dependent", sigma_hessian=0.8 / (2 * tau) * 0.999, rule="three-halves")
    assert report.hessian.rule == "three-halves"


def test_a_singular_hessian_is_refused_before_any_noise():
    rng = np.random.default_rng(11)
    before = rng.bit_generator.state
    objective = Objective(people_of(1), SquaredLoss(), 1e-22)
    with pytest.raises(ValueError, match=r"singular.*lam"):
        report_of("dependent", objective, rng=rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"loss": "logistic"}, TypeError, "loss"),
        ({"domain": Domain("l2", 1.0, "real")}, ValueError, "domain must have labels in"),
        ({"domain": None}, TypeError, "domain must be a Domain"),
        ({"domain": "l2", "loss": SmoothDistanceLoss(1.0)}, TypeError, "domain must be a Domain"),
        ({"lam": 0.0}, ValueError, "lam"),
        ({"lam": -1.0}, ValueError, "lam"),
        ({"sigma": 0.0}, ValueError, "sigma"),
        ({"rho": 0.0}, ValueError, "rho"),
        ({"rho": 1.0}, ValueError, "rho"),
        ({"scope": "anybody"}, ValueError, "scope must be one of"),
        ({"people": 3}, ValueError, "people must be left at 1"),
        ({"theta": []}, ValueError, "theta must have at least one entry"),
        ({"theta": [[1.0, 2.0]]}, ValueError, "theta must have 1 dimension"),
    ],
)
def test_bad_independent_reports_are_refused_by_name(change, error, words):
    good = {"theta": THETA, "loss": LogisticLoss(), "domain": DOMAIN, "lam": 0.8, "sigma": 1.5, "rho": 0.01}
    given = {**good, **change}
    with pytest.raises(error, match=words):
        data_independent_report(given.pop("theta"), given.pop("loss"), given.pop("domain"), **given)


@pytest.mark.parametrize("release", [release_gradient, release_hessian, release_smallest_eigenvalue])
@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"sigma": 0.0}, ValueError, "sigma"),
        ({"sigma": -1.0}, ValueError, "sigma"),
        ({"sigma": math.inf}, ValueError, "sigma"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
    ],
)
def test_bad_releases_are_refused_before_any_noise(release, change, error, name):
    rng = np.random.default_rng(11)
    before = rng.bit_generator.state
    with pytest.raises(error, match=name):
        release(OBJECTIVE.at(THETA), **{"sigma": 1.0, "delta": 1e-3, **change}, rng=rng)
    assert rng.bit_generator.state == before
    with pytest.raises(TypeError, match="rng"):
        release(OBJECTIVE.at(THETA), sigma=1.0, delta=1e-3, rng=7)
    with pytest.raises(
        TypeError, match=r"point must be an ObjectiveAt, objective.at\(theta\), got Objective"
    ):
        release(OBJECTIVE, sigma=1.0, delta=1e-3, rng=rng)


def test_a_huge_theta_is_refused_not_warned_about():
    with pytest.raises(ValueError, match="theta is so large"):
        report_of("independent", Objective(PEOPLE, SquaredLoss(), 0.8), [1e200, 0.0, 0.0]).to_frame(
            PEOPLE.features, PEOPLE.labels
        )
    frame = report_of("independent", theta=[1e200, 0.0, 0.0]).to_frame(PEOPLE.features, PEOPLE.labels)
    assert np.isfinite(frame.to_numpy()).all()
