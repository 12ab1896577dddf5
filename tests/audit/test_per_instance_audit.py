"""Coverage of every published bound, and what an attacker can prove against objective perturbation and its releases.

Coverage: rho is large, so that a bound that fails too often would be seen; each count is compared with its nominal
level by an exact binomial tail, at 1e-4. Audits run at confidence .999 with fixed seeds. Each kind of test has a
planted fault that it refutes.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import pytest
from scipy import stats

from adaptive_dp import audit, goe
from adaptive_dp.accounting import GaussianCurve, gaussian_epsilon
from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import LogisticLoss, SmoothDistanceLoss, SquaredLoss
from adaptive_dp.per_instance import (
    LinearPerturbationCurve,
    Objective,
    Scope,
    SmoothPerturbationCurve,
    adaptive_report,
    data_dependent_report,
    data_independent_report,
    losses_of_members,
    losses_of_outsiders,
    perturb_objective,
    release_gradient,
    release_hessian,
    release_smallest_eigenvalue,
)
from adaptive_dp.per_instance import report as report_module
from adaptive_dp.per_instance.calibration import perturbation_guarantee
from adaptive_dp.privacy import Domain

pytestmark = pytest.mark.audit
DOMAIN = Domain("l2", 1.0, "sign")
RHO, SIGMA, LAM, COLUMNS = 0.1, 0.6, 1.0, 3
RUNS = 90
TAIL = 1e-4
LOSSES = {"logistic": LogisticLoss(), "squared": SquaredLoss(), "distance": SmoothDistanceLoss(0.7)}


def people_of(rows, columns=COLUMNS, seed=1):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, columns))
    features /= np.linalg.norm(features, axis=1)[:, np.newaxis] * (1 + 1e-12)
    return Dataset(features, rng.choice([-1.0, 1.0], rows), DOMAIN)


PEOPLE, OUTSIDERS = people_of(8), people_of(4, seed=2)


def undercovers(count, runs, level):
    """Whether so few successes refute a probability of at least ``level``, by the Clopper-Pearson bound."""
    _, high = audit.clopper_pearson(int(count), runs, TAIL)
    return high < level


def published(objective, rng):
    """theta^P, without the guarantee that each release computes."""
    return objective.minimise(rng.normal(0, SIGMA, objective.columns)).theta


def make_report(kind, objective, theta, rng, *, scope, people, rho=RHO):
    if kind == "independent":
        return data_independent_report(
            theta, objective.loss, DOMAIN, lam=LAM, sigma=SIGMA, rho=rho, scope=scope, people=people
        )
    common = {
        "sigma": SIGMA, "sigma_gradient": 0.3, "sigma_hessian": 0.05, "rho": rho, "delta": 0.01, "rng": rng,
        "scope": scope, "people": people,
    }  # fmt: skip
    if kind == "dependent":
        return data_dependent_report(objective, theta, **common)
    return adaptive_report(objective, theta, sigma_eigenvalue=0.2, **common)


def chosen_afterwards(b):
    """Somebody whose record points along the noise, found by whoever knows it."""
    x = b / np.linalg.norm(b) * (1 - 1e-12)
    return np.vstack([x, -x, x, -x]), np.array([1.0, 1.0, -1.0, -1.0])


@pytest.fixture
def free_overhead(monkeypatch):
    """Coverage does not ask for the cost of the report, which takes most of the time, nor for a quantile twice."""
    monkeypatch.setattr(report_module, "gaussian_epsilon", lambda delta, mu: np.zeros_like(mu))
    monkeypatch.setattr(GaussianCurve, "epsilon", lambda self, delta: math.inf)
    monkeypatch.setattr(goe, "operator_norm_bound", functools.cache(goe.operator_norm_bound))


@pytest.mark.usefixtures("free_overhead")
@pytest.mark.parametrize("scope", list(Scope), ids=[each.name for each in Scope])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in ("independent", "dependent", "adaptive")
        for name in LOSSES
        if kind != "adaptive" or name != "squared"
    ],
)
def test_reports_cover_at_their_nominal_level(kind, scope, name):
    """Members and outsiders. Counted are the sharpest bounds; in some runs the others are seen to lie above."""
    objective, rng = Objective(PEOPLE, LOSSES[name], LAM), np.random.default_rng(3)
    runs = RUNS if name != "distance" else RUNS // 2
    covered = []
    for run in range(runs):
        theta = published(objective, rng)
        point = objective.at(theta)
        count = PEOPLE.rows + OUTSIDERS.rows if scope is Scope.MANY else 1
        report = make_report(kind, objective, theta, rng, scope=scope, people=count)
        features, labels = OUTSIDERS.features, OUTSIDERS.labels
        if scope is Scope.EVERYONE:
            extra = chosen_afterwards(point.gradient)
            features, labels = np.vstack([features, extra[0]]), np.concatenate([labels, extra[1]])
        exact = [
            losses_of_members(point, sigma=SIGMA).loss,
            losses_of_outsiders(point, features=features, labels=labels, sigma=SIGMA).loss,
        ]
        bound = [
            report.to_frame(PEOPLE.features, PEOPLE.labels, member=True)["bound"].to_numpy(),
            report.to_frame(features, labels, member=False)["bound"].to_numpy(),
        ]
        covered.append(np.concatenate(bound) >= np.concatenate(exact) - 1e-12)
        if run < 3:
            everybody = np.vstack([PEOPLE.features, features]), np.concatenate([PEOPLE.labels, labels])
            for other in with_other_rules(report):
                for combine in ("interval", "sum"):
                    frame = other.to_frame(*everybody, combine=combine)
                    assert (frame["bound"] >= np.concatenate(bound) * (1 - 1e-9)).all()
    table = np.array(covered)
    for successes in table.sum(axis=0) if scope is Scope.ONE else [table.all(axis=1).sum()]:
        assert not undercovers(successes, runs, report.confidence), (successes, runs, report.confidence)


def with_other_rules(report):
    """The same published numbers, read with each rule that allows it."""
    if report.hessian is None:
        return [report]
    allowed = ["family", "standard"]
    if report.lam >= 2 * report.hessian.noise_bound and report.sigma_eigenvalue is None:
        allowed.append("three-halves")
    return [
        dataclasses.replace(report, hessian=dataclasses.replace(report.hessian, rule=rule))
        for rule in allowed
    ]


@pytest.mark.usefixtures("free_overhead")
@pytest.mark.parametrize("rule", ["family", "three-halves", "standard"])
def test_leverage_is_covered_by_each_rule(rule):
    """The determinant alone, for everybody: one event, the spectral norm of the noise, with 1 - rho."""
    objective, rng = Objective(PEOPLE, SquaredLoss(), LAM), np.random.default_rng(14)
    exact = losses_of_members(objective, np.zeros(COLUMNS), sigma=SIGMA).determinant
    covered, runs = 0, 100
    for _ in range(runs):
        report = data_dependent_report(
            objective, np.zeros(COLUMNS), sigma=SIGMA, sigma_gradient=1.0, sigma_hessian=0.11, rho=RHO,
            delta=0.01, rng=rng, rule=rule,
        )  # fmt: skip
        frame = report.to_frame(PEOPLE.features, PEOPLE.labels, member=True)
        covered += int((frame["determinant"] >= exact).all())
    assert not undercovers(covered, runs, 1 - RHO)


@pytest.mark.parametrize("kind", ["independent", "dependent"])
@pytest.mark.parametrize("name", ["logistic", "squared"])
def test_the_bound_of_the_inner_product_is_exact_for_one_person(name, kind):
    """For a record fixed before the release |<b, g>| is half-normal: not too few, and not too many."""
    objective, rng, runs = Objective(PEOPLE, LOSSES[name], LAM), np.random.default_rng(4), 500
    hits = np.zeros(2)
    for _ in range(runs):
        theta = published(objective, rng)
        point = objective.at(theta)
        if kind == "independent":
            report = make_report("independent", objective, theta, rng, scope=Scope.ONE, people=1)
            inner = report.width.of(point.records(PEOPLE.features[:2], PEOPLE.labels[:2])) * SIGMA
            truth = point.records(PEOPLE.features[:2], PEOPLE.labels[:2]).inner_products(point.gradient)
        else:
            # The fresh noise of a released gradient; the width is the report's.
            report = make_report("independent", objective, theta, rng, scope=Scope.ONE, people=1)
            noise = rng.normal(0, 0.3, COLUMNS)
            records = point.records(PEOPLE.features[:2], PEOPLE.labels[:2])
            inner, truth = report.width.of(records) * 0.3, records.inner_products(noise)
        hits += np.abs(truth) <= inner
    for count in hits:
        assert stats.binomtest(int(count), runs, 1 - RHO).pvalue > TAIL


def test_bounds_at_the_edge_of_their_scope_would_be_seen_to_fail():
    """Planted faults: bounds of one person used for everybody, and half of the noise of theta."""
    objective, rng, runs = Objective(PEOPLE, LogisticLoss(), LAM), np.random.default_rng(5), 150
    failures = {"everybody": 0, "half the noise": 0}
    for _ in range(runs):
        theta = published(objective, rng)
        point = objective.at(theta)
        report = make_report("independent", objective, theta, rng, scope=Scope.ONE, people=1)
        features, labels = chosen_afterwards(point.gradient)
        exact = losses_of_outsiders(point, features=features, labels=labels, sigma=SIGMA)
        frame = report.to_frame(features, labels, member=False)
        failures["everybody"] += int((frame["inner"] < np.abs(exact.inner)).any())
        records = point.records(PEOPLE.features[:1], PEOPLE.labels[:1])
        width = 0.5 * SIGMA * report.width.of(records)
        failures["half the noise"] += int((np.abs(records.inner_products(point.gradient)) > width).any())
    for name, count in failures.items():
        assert undercovers(runs - count, runs, 1 - RHO), name


def test_one_direction_is_not_enough_for_a_loss_whose_gradient_turns():
    """Why general losses take the bound of the whole ball even for one person: her gradient follows the noise.

    Where the noise outweighs everything else theta points against b, and so does the gradient of the distance to a
    record at the origin.
    """
    lam, rng, runs, columns = 1e-3, np.random.default_rng(6), 200, 8
    loss, faraway = SmoothDistanceLoss(0.01), np.zeros((1, columns))
    objective = Objective(Dataset(faraway, [1.0], DOMAIN), loss, lam)
    inside = {"ball": 0, "direction": 0}
    for _ in range(runs):
        theta = objective.minimise(rng.normal(0, 5.0, columns), tolerance=1e-7).theta
        point = objective.at(theta)
        records = point.records(faraway, np.ones(1))
        inner = abs(records.inner_products(point.gradient)[0])
        report = data_independent_report(theta, loss, DOMAIN, lam=lam, sigma=5.0, rho=RHO)
        inside["ball"] += int(inner <= 5.0 * report.width.of(records)[0])
        direction = data_independent_report(theta, LogisticLoss(), DOMAIN, lam=lam, sigma=5.0, rho=RHO)
        inside["direction"] += int(inner <= 5.0 * direction.width.of(records)[0])
    assert not undercovers(inside["ball"], runs, 1 - RHO)
    assert undercovers(inside["direction"], runs, 1 - RHO)


@pytest.mark.usefixtures("free_overhead")
def test_the_floor_of_an_adaptive_report_is_exact():
    """P(lower bound of the smallest eigenvalue holds) = 1 - rho, where lam does not help."""
    objective, rng, runs = Objective(people_of(200), SquaredLoss(), LAM), np.random.default_rng(7), 200
    smallest = np.linalg.eigvalsh(objective.at(np.zeros(COLUMNS)).hessian)[0]
    assert smallest > 20
    below = 0
    for _ in range(runs):
        report = make_report("adaptive", objective, np.zeros(COLUMNS), rng, scope=Scope.ONE, people=1)
        below += int(report.hessian.floor <= smallest)
    assert stats.binomtest(below, runs, 1 - RHO).pvalue > TAIL


# ---------------------------------------------------------------- attacks on the releases


CONFIDENCE = 0.999
ALONE = Dataset(np.array([[0.1, 0.0]]), [1.0], DOMAIN)
WITH_HER = Dataset(np.array([[0.1, 0.0], [1.0, 0.0]]), [1.0, -1.0], DOMAIN)


def batch(loss, lam, sigma):
    """theta^P, ``runs`` times, by the library's minimiser: what `perturb_objective` publishes."""

    def mechanism(people, runs, rng):
        objective = Objective(people, loss, lam)
        return np.array([objective.minimise(rng.normal(0, sigma, people.columns)).theta for _ in range(runs)])

    return mechanism


@pytest.mark.parametrize("loss", [LogisticLoss(), SmoothDistanceLoss(1.0)], ids=repr)
def test_objective_perturbation_keeps_its_claim(loss):
    lam, sigma, delta = 1.0, 1.0, 1e-3
    guarantee = perturbation_guarantee(loss, DOMAIN, dimension=2, lam=lam, sigma=sigma, delta=delta)
    events = audit.half_lines(lambda thetas: thetas[:, 0], [-1.0, -0.5, 0.0, 0.5, 1.0])
    result = audit.lower_bound(
        batch(loss, lam, sigma), (WITH_HER, ALONE), events=events, runs=800, confidence=CONFIDENCE,
        delta=delta, rng=np.random.default_rng(8),
    )  # fmt: skip
    assert result.passes(guarantee)
    assert result.lower > 0.05  # the attack sees something
    assert result.ceiling > 3


def test_the_library_publishes_the_minimiser_that_was_audited():
    """The batches above leave the guarantee out, nothing else."""
    for people in (ALONE, WITH_HER):
        release = perturb_objective(
            people, LogisticLoss(), lam=1.0, sigma=1.0, delta=0.01, rng=np.random.default_rng(9)
        )
        (theta,) = batch(LogisticLoss(), 1.0, 1.0)(people, 1, np.random.default_rng(9))
        np.testing.assert_array_equal(release.value, theta)


def test_half_the_noise_is_caught():
    """Where the claim is sharp: a large ridge, a gradient near its bound, and a delta that few runs can resolve."""
    loss, lam, sigma, delta = SmoothDistanceLoss(0.1), 1000.0, 1.0, 0.1
    claim = perturbation_guarantee(loss, DOMAIN, dimension=1, lam=lam, sigma=sigma, delta=delta)
    assert claim.epsilon < 1.6
    pair = (Dataset([[0.0], [1.0]], [1, 1], DOMAIN), Dataset([[0.0]], [1], DOMAIN))
    events = audit.half_lines(lambda thetas: lam * thetas[:, 0], [0.9])
    found = {
        scale: audit.lower_bound(
            batch(loss, lam, scale), pair, events=events, runs=1200, confidence=CONFIDENCE, delta=delta,
            rng=np.random.default_rng(11),
        )
        for scale in (sigma, sigma / 2)
    }  # fmt: skip
    assert found[sigma].passes(claim)
    assert not found[sigma / 2].passes(claim)


def releases(kind, scale):
    """`runs` noisy statistics at theta = 0, one number each: the direction in which the two data sets differ."""

    def mechanism(people, runs, rng):
        point = Objective(people, SquaredLoss(), 1.0).at(np.zeros(2))
        make = {
            "gradient": release_gradient,
            "hessian": release_hessian,
            "eigenvalue": release_smallest_eigenvalue,
        }
        values = [make[kind](point, sigma=scale, delta=0.1, rng=rng).value for _ in range(runs)]
        if kind == "eigenvalue":
            return np.array(values)
        return np.array([value[0] if kind == "gradient" else value[0, 0] for value in values])

    return mechanism


@pytest.mark.usefixtures("free_overhead")
@pytest.mark.parametrize(
    ("kind", "factor"), [("gradient", 1.0), ("hessian", math.sqrt(0.5)), ("eigenvalue", 1.0)]
)
def test_the_three_releases_keep_their_exact_claim_and_no_better_one(kind, factor):
    """Worst pairs at theta = 0: squared loss, x of length 1, y = 1. A fourth of the scale is refuted."""
    if kind == "eigenvalue":
        # Both eigenvalues move only if she fills the smaller one.
        rest = np.array([[0.0, 1.0], [0.0, 1.0]])
        pair = tuple(Dataset(x, np.ones(len(x)), DOMAIN) for x in (np.vstack([rest, [1.0, 0.0]]), rest))
    else:
        pair = tuple(Dataset(x, np.ones(len(x)), DOMAIN) for x in ([[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0]]))
    scale, delta = factor, 0.1
    point = Objective(pair[0], SquaredLoss(), 1.0).at(np.zeros(2))
    make = {
        "gradient": release_gradient,
        "hessian": release_hessian,
        "eigenvalue": release_smallest_eigenvalue,
    }
    guarantee = make[kind](point, sigma=scale, delta=delta, rng=np.random.default_rng(1)).guarantee
    assert guarantee.curve.mu == pytest.approx(1.0)
    claim = gaussian_epsilon(delta, guarantee.curve.mu)
    middle = -0.5 if kind == "gradient" else 1.5
    found = {}
    for name, used in (("right", scale), ("a fourth", scale / 4)):
        found[name] = audit.lower_bound(
            releases(kind, used), pair, events=audit.half_lines(lambda x: x, [middle]), runs=400,
            confidence=CONFIDENCE, delta=delta, rng=np.random.default_rng(12),
        )  # fmt: skip
    assert found["right"].passes(claim)
    assert not found["a fourth"].passes(claim)


def test_the_general_curve_is_needed_for_a_general_loss():
    """Full-rank Hessians: the exact losses exceed what the curve of linear losses would allow."""
    columns, lam, sigma, width = 12, 1.0, 50.0, 1.0
    loss, rng = SmoothDistanceLoss(width), np.random.default_rng(13)
    origin = np.zeros((1, columns))
    objective = Objective(Dataset(origin, [1.0], DOMAIN), loss, lam)
    linear = LinearPerturbationCurve(1 / sigma, 1 / (width * lam))
    general = SmoothPerturbationCurve(1 / sigma, 1 / (width * lam), columns)
    small = objective.at(0.01 * rng.standard_normal(columns))
    worst = losses_of_members(small, sigma=sigma).signed[0]
    assert worst > linear.epsilon(1e-9)
    assert worst <= general.epsilon(1e-9)
