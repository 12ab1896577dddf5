"""Dominating pairs of objective perturbation, their composition, and the figures of appendix C.

Laws on the line give exact checks: by the one-dimensional reduction every nonincreasing s with |s| <= mu and slope at
least -kappa is an instance, P = N(0, 1) in t and Q the law of t with t - s(t) ~ N(0, 1). On cells of t both have exact
masses, and by data processing the divergence of the cells is a lower bound of the instance's.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, rdp
from scipy import integrate
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from adaptive_dp.accounting import GaussianCurve, compose_gaussian, gaussian_delta, gaussian_epsilon
from adaptive_dp.objective_perturbation.calibration import calibrate_approximate
from adaptive_dp.objective_perturbation.composition import (
    ApproximateMinimaCurve,
    ComposedCurve,
    Perturbation,
    calibrate_numerically,
)
from adaptive_dp.objective_perturbation.composition_figures import (
    FIGURE_C3,
    composition_table,
    crossing_table,
    renyi_crossing,
    renyi_curves,
)
from adaptive_dp.objective_perturbation.dominating import (
    HalfNormalPair,
    absent_delta,
    absent_sharp,
    certified_pld,
    convex_minorant,
    discretise,
    half_normal_deltas,
    half_normal_pld,
    loss_grid,
    present_closed,
    present_delta,
    reduced_pld,
)
from adaptive_dp.objective_perturbation.flaws_dominating import (
    half_normal_mechanism_delta,
    printed_delta,
    printed_lower_mass,
    printed_pair_table,
)
from adaptive_dp.objective_perturbation.profiles import HockeyStickCurve
from adaptive_dp.objective_perturbation.sharper import sharper_absent_delta
from adaptive_dp.per_instance.calibration import half_normal_delta
from adaptive_dp.privacy import PrivacyCurve

PAIRS = ((0.2, 0.05), (0.125, 0.1), (1.0, 0.2), (1.0, 5.0), (0.1, 0.02), (0.5, 0.5), (3.0, 1.5))
EPSILONS = np.array([-3.0, -1.0, -0.3, -0.1, -0.02, 0.0, 0.02, 0.07, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0])


# ---------------------------------------------------------------- instances


def instance(s, size=1500):
    """Masses of P (without the record) and Q (with it) on cells of t."""
    edges = np.concatenate([[-np.inf], np.linspace(-8, 8, size - 1), [np.inf]])
    inner = edges[1:-1]
    moved = np.concatenate([[-np.inf], inner - s(inner), [np.inf]])
    return masses(edges), masses(moved)


def masses(edges):
    low, high = edges[:-1], edges[1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def huber(mu, kappa):
    return lambda t: np.clip(-kappa * t, -mu, mu)


def linear(mu, kappa):
    return lambda t: np.full_like(t, mu)


def random_slope(mu, kappa, rng):
    knots = np.sort(rng.normal(0, 2, 12))
    steps = np.diff(knots, prepend=-8.0) * kappa * rng.uniform(0, 1, 12) ** 0.3
    values = rng.uniform(-mu, mu) - np.cumsum(steps) + steps[:6].sum()
    return lambda t: np.clip(np.interp(t, knots, values), -mu, mu)


def instances(mu, kappa):
    rng = np.random.default_rng(5)
    return [huber(mu, kappa), linear(mu, kappa), *(random_slope(mu, kappa, rng) for _ in range(12))]


def divergence(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


# ---------------------------------------------------------------- the half-normal pair


@pytest.mark.parametrize(("mu", "kappa"), [(0.2, 0.05), (1.0, 0.5), (0.125, 0.1), (3.0, 0.9)])
def test_half_normal_pair_has_mass_one_and_the_divergence_of_theorem_4_3_1(mu, kappa):
    pair = HalfNormalPair(mu, kappa)
    assert integrate.quad(pair.upper_density, 0, np.inf)[0] == pytest.approx(1, abs=1e-9)
    assert integrate.quad(pair.lower_density, 0, np.inf)[0] == pytest.approx(pair.lower_mass, abs=1e-9)
    assert 0 < pair.lower_mass < 1
    assert pair.lower_mass + pair.lower_atom == 1
    assert pair.upper_density(-0.1) == pair.lower_density(-0.1) == 0
    x = np.linspace(0, 5, 7)
    assert np.log(pair.upper_density(x) / pair.lower_density(x)) == pytest.approx(pair.loss(x), rel=1e-12)
    for epsilon in (-2.0, -0.5, 0.0, 0.3, 1.0, 2.0):
        end = max(0.0, (epsilon - float(pair.loss(0.0))) / mu)
        found, _ = integrate.quad(
            lambda u, e=epsilon: pair.upper_density(u) - math.exp(e) * pair.lower_density(u), end, np.inf
        )
        assert float(pair.delta(epsilon)) == pytest.approx(found, abs=1e-9)
        assert float(pair.delta(epsilon)) == pytest.approx(
            HockeyStickCurve(mu, kappa).delta(epsilon), rel=1e-9
        )


def test_half_normal_deltas_agree_with_the_one_by_one_form():
    for mu in (0.05, 0.5, 4.0):
        ours = half_normal_deltas(EPSILONS, mu)
        assert ours == pytest.approx([half_normal_delta(float(e), mu) for e in EPSILONS], rel=1e-10)


# ---------------------------------------------------------------- the reduced pair


@pytest.mark.parametrize("mu", [0.05, 0.4, 1.0, 2.5, 8.0])
def test_direction_b_is_largest_at_an_end(mu):
    # h(r) = E (1 - e^(a - r N))_+ on a fine grid of r in (0, mu], for a on both sides of -1 and of 0
    r = np.linspace(mu / 400, mu, 400)
    for a in np.concatenate([-np.geomspace(1e-3, 30, 60), [0.0, 0.3, 2.0]]):
        cut = a / r
        h = ndtr(-cut) - np.exp(a + 0.5 * r * r + log_ndtr(-cut - r))
        ends = max(h[-1], -math.expm1(min(a, 0.0)))
        assert h.max() <= ends + 1e-14
        rest = a + 0.5 * mu * mu
        closed = float(present_closed(rest + math.log1p(0.3), mu, 0.3))
        assert closed == pytest.approx(h[-1] if rest >= 0 else ends, rel=1e-9, abs=1e-14)


def test_direction_b_is_below_the_one_sided_form():
    # E (1 - e^(a - mu t_+))_+ with t normal, from loss <= log(1 + kappa) + mu^2/2 + mu t_+
    for mu, kappa in PAIRS:
        a = EPSILONS - math.log1p(kappa) - 0.5 * mu * mu
        tail = np.maximum(a / mu, 0.0)
        one_sided = ndtr(-tail) - np.exp(a + 0.5 * mu * mu + log_ndtr(-tail - mu))
        one_sided += np.where(a < 0, -0.5 * np.expm1(np.minimum(a, 0.0)), 0.0)
        assert (present_closed(EPSILONS, mu, kappa) <= one_sided * (1 + 1e-9) + 1e-15).all()


@pytest.mark.parametrize(("mu", "kappa"), PAIRS)
def test_sharper_bound_of_direction_a_is_a_supremum(mu, kappa):
    t = np.linspace(-12, 12, 12001)
    weight = norm.pdf(t) * (t[1] - t[0])
    found = absent_sharp(EPSILONS, mu, kappa)
    for at, epsilon in enumerate(EPSILONS):
        best = 0.0
        for s in np.linspace(0, mu, 9):
            loss = 0.5 * mu * mu + np.abs(t) * np.minimum(mu, kappa * np.abs(t) - s * np.sign(t))
            best = max(best, float(weight @ np.maximum(-np.expm1(np.minimum(epsilon - loss, 1.0)), 0.0)))
        assert found[at] >= best * (1 - 1e-5) - 1e-9
        assert found[at] >= sharper_absent_delta(float(epsilon), mu, kappa) * (1 - 2e-5)
        assert found[at] <= sharper_absent_delta(float(epsilon), mu, kappa) * 1.05 + 1e-15
    nested = absent_sharp(EPSILONS, mu, kappa, cells=480)
    assert (nested <= found * (1 + 1e-9) + 1e-30).all()


@pytest.mark.parametrize(("mu", "kappa"), PAIRS)
def test_both_directions_bound_every_instance_at_every_epsilon(mu, kappa):
    absent, present = absent_delta(EPSILONS, mu, kappa), present_delta(EPSILONS, mu, kappa)
    for s in instances(mu, kappa):
        p, q = instance(s)
        assert p.sum() == pytest.approx(1)
        assert q.min() >= 0
        for at, epsilon in enumerate(EPSILONS):
            assert divergence(p, q, epsilon) <= absent[at] + 1e-14
            assert divergence(q, p, epsilon) <= present[at] + 1e-14


def test_huber_attains_direction_a():
    mu, kappa, epsilon = 0.2, 0.5, 0.5
    p, q = instance(huber(mu, kappa), 4000)
    assert divergence(p, q, epsilon) == pytest.approx(float(absent_delta(epsilon, mu, kappa)), rel=1e-4)


def test_reflection_is_used_and_consistent():
    for mu, kappa in PAIRS:
        absent, present = absent_delta(EPSILONS, mu, kappa), present_delta(-EPSILONS, mu, kappa)
        near = np.abs(EPSILONS) <= 2
        turned = -np.expm1(EPSILONS) + np.exp(EPSILONS) * present
        assert absent[near] == pytest.approx(turned[near], abs=1e-12)
        assert (absent <= half_normal_deltas(EPSILONS, mu) * (1 + 1e-12)).all()
        assert (present_delta(EPSILONS, mu, kappa) <= present_closed(EPSILONS, mu, kappa) * (1 + 1e-12)).all()
    # The total variation of a nearly linear loss is that of the Gaussian mechanism, not twice it.
    assert float(present_delta(0.0, 0.2, 1e-3)) < 1.01 * gaussian_delta(0.0, 0.2)


# ---------------------------------------------------------------- discretisation


def test_convex_minorant_against_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(20):
        e = np.sort(rng.uniform(-2, 2, 25))
        d = np.minimum.accumulate(np.clip(-np.expm1(np.minimum(e, 0)) + rng.uniform(0, 0.4, 25), 0, 1))
        d = np.maximum(d, -np.expm1(np.minimum(e, 0)))
        x, y = np.append(0, np.exp(e)), np.append(1, d)
        corners = []
        for i in range(1, 26):  # a corner is strictly below every chord over it
            chords = [
                y[j] + (y[k] - y[j]) * (x[i] - x[j]) / (x[k] - x[j])
                for j in range(i)
                for k in range(i + 1, 26)
            ]
            if all(y[i] < chord - 1e-13 for chord in chords):
                corners.append(i - 1)
        found = convex_minorant(e, d).tolist()
        assert found[-1] == 24
        assert set(corners) <= set(found)
        line = np.interp(x, x[[0, *(np.array(found) + 1)]], y[[0, *(np.array(found) + 1)]])
        assert (line <= y + 1e-13).all()


def test_minorant_survives_huge_epsilons_and_flat_pieces():
    e = np.array([-800.0, -1.0, 0.0, 1.0, 800.0])
    kept = convex_minorant(e, np.array([1.0, 0.9, 0.3, 0.3, 0.0]))
    assert kept.tolist() == [0, 2, 4] or kept.tolist() == [2, 4]
    with pytest.raises(ValueError, match="increase"):
        convex_minorant([0.0, 0.0], [1.0, 0.5])


def test_discretised_gaussian_profile_is_above_it_and_exact_on_the_grid():
    mu, interval = 0.7, 0.05
    grid = loss_grid(interval, -6.0, 6.6)
    pmf = discretise(gaussian_delta(grid * interval, np.full(grid.shape, mu)), interval=interval, grid=grid)
    for epsilon in np.linspace(-2, 4, 41):
        exact = gaussian_delta(float(epsilon), mu)
        assert pmf.get_delta_for_epsilon(float(epsilon)) >= exact * (1 - 1e-9) - 1e-15
    for epsilon in (0.0, 0.5, 2.0):
        assert pmf.get_delta_for_epsilon(epsilon) == pytest.approx(gaussian_delta(epsilon, mu), rel=1e-9)
    with pytest.raises(ValueError, match="interval"):
        loss_grid(1e-9, -1.0, 1.0)


def test_directions_are_those_of_dp_accounting():
    # "remove": the data set with the record is the upper distribution, our direction B.
    mu, kappa, interval = 0.2, 0.5, 0.002
    pld = reduced_pld(mu, kappa, interval=interval)
    for epsilon in (0.6, 0.8, 1.0):
        remove = pld._pmf_remove.get_delta_for_epsilon(epsilon)
        add = pld._pmf_add.get_delta_for_epsilon(epsilon)
        assert remove == pytest.approx(float(present_delta(epsilon, mu, kappa)), rel=1e-3)
        assert add == pytest.approx(float(absent_delta(epsilon, mu, kappa)), rel=1e-3)
        assert remove > 2 * add
        assert pld.get_delta_for_epsilon(epsilon) == remove


def test_half_normal_distribution_reproduces_its_pair_from_above():
    mu, kappa = 0.125, 0.1
    pld, pair = half_normal_pld(mu, kappa, interval=mu / 100), HalfNormalPair(mu, kappa)
    for epsilon in (-1.0, 0.0, 0.1, 0.13, 0.3, 0.5, 0.8):
        exact = float(pair.delta(epsilon))
        assert exact * (1 - 1e-9) - 1e-17 <= pld.get_delta_for_epsilon(epsilon) <= exact * (1 + 1e-3)


# ---------------------------------------------------------------- composition


def minorant_at(epsilon, epsilons, deltas):
    kept = convex_minorant(epsilons, deltas)
    return float(np.interp(math.exp(epsilon), np.exp(epsilons[kept]), deltas[kept]))


@pytest.mark.parametrize(("mu", "kappa"), PAIRS)
def test_one_round_is_the_single_profile(mu, kappa):
    curve = ComposedCurve((Perturbation(mu, kappa),))
    worst = [
        max((divergence(*instance(s), 0.3), divergence(*instance(s)[::-1], 0.3)))
        for s in instances(mu, kappa)
    ]
    assert curve.delta(0.3) >= max(worst)
    for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0):
        single = max(float(absent_delta(epsilon, mu, kappa)), float(present_delta(epsilon, mu, kappa)))
        assert curve.delta(epsilon) <= single * (1 + 2e-3) + 2 * curve.slack
    # The proved bounds are minima of convex curves: what is composed is their convex minorant.
    beyond = math.log1p(kappa) + 0.5 * mu * mu + 2 * mu
    dense = np.linspace(-beyond - 8 * mu, beyond + 8 * mu, 8001)
    single = max(
        minorant_at(beyond, dense, bound(dense, mu, kappa)) for bound in (absent_delta, present_delta)
    )
    assert curve.delta(beyond) == pytest.approx(single, rel=1e-2)


@pytest.mark.parametrize(("mu", "kappa"), [(0.2, 0.05), (0.125, 0.1), (1.0, 0.5), (0.5, 3.0)])
def test_two_rounds_bound_composed_instances(mu, kappa):
    curve = ComposedCurve((Perturbation(mu, kappa, 2),))
    printed = ComposedCurve((Perturbation(mu, kappa, 2, "half-normal"),)) if kappa < 1 else None
    chosen = instances(mu, kappa)[:4]
    for first, second in [(s, s) for s in chosen] + [(chosen[0], chosen[1])]:
        p, q = (
            np.outer(a, b).ravel() for a, b in zip(instance(first, 400), instance(second, 400), strict=True)
        )
        for epsilon in (0.0, 0.15, 0.5, 1.0, 2.0):
            exact = max(divergence(p, q, epsilon), divergence(q, p, epsilon))
            assert exact <= curve.delta(epsilon) + 1e-14
            assert printed is None or exact <= printed.delta(epsilon) + 1e-14


def test_certified_pair_is_between_the_composed_huber_loss_and_the_reduced_pair():
    mu, kappa, interval = 0.125, 0.1, 0.125 / 50
    reduced = reduced_pld(mu, kappa, interval=interval).self_compose(2)
    certified = certified_pld(
        mu, kappa, interval=interval, points=9, smallest=1e-4, tolerance=0.2
    ).self_compose(2)
    laws = [instance(s, 400) for s in instances(mu, kappa)[:4]]
    for epsilon in (0.0, 0.1, 0.2, 0.3, 0.4):
        worst = 0.0
        for law in laws:
            p, q = (np.outer(mass, mass).ravel() for mass in law)
            worst = max(worst, divergence(p, q, epsilon), divergence(q, p, epsilon))
        assert worst <= certified.get_delta_for_epsilon(epsilon) + 1e-13
        assert certified.get_delta_for_epsilon(epsilon) <= reduced.get_delta_for_epsilon(epsilon) * (1 + 1e-9)
    assert certified.get_delta_for_epsilon(0.3) < 0.7 * reduced.get_delta_for_epsilon(0.3)
    # The Huber loss, twice, is the worst case at small delta but for the chords between nine points.
    p, q = (np.outer(mass, mass).ravel() for mass in laws[0])
    assert divergence(p, q, 0.4) > 0.8 * certified.get_delta_for_epsilon(0.4)


def test_composition_is_above_the_gaussian_mechanism_and_tends_to_it():
    for rounds in (1, 4, 16):
        gaussian = GaussianCurve(0.125 * math.sqrt(rounds))
        for kappa, most in ((0.1, math.inf), (1e-3, 1.35), (1e-5, 1.03)):
            curve = ComposedCurve((Perturbation(0.125, kappa, rounds),))
            for epsilon in (0.0, 0.2, 0.6):
                ratio = curve.delta(epsilon) / gaussian.delta(epsilon)
                assert 1 - 1e-9 <= ratio <= (most if epsilon < 0.5 or rounds > 1 else 2 * most)


def test_gaussian_parts_compose_exactly():
    curve = ComposedCurve((GaussianCurve(0.3), GaussianCurve(0.4), GaussianCurve(0.0)))
    for epsilon in (-0.5, 0.0, 1.0, 2.0):
        exact = gaussian_delta(epsilon, 0.5)
        assert exact <= curve.delta(epsilon) <= exact * (1 + 1e-3) + 1e-13
    assert curve.epsilon(1e-6) == pytest.approx(gaussian_epsilon(1e-6, 0.5), rel=1e-4)
    assert curve.epsilon(1e-6) >= gaussian_epsilon(1e-6, 0.5)
    assert curve.renyi(3.0) == compose_gaussian(GaussianCurve(0.3), GaussianCurve(0.4)).renyi(3.0)
    assert ComposedCurve((GaussianCurve(0.0),)).delta(0.0) <= 1e-13


def test_output_noise_against_quadrature():
    # Given the Gaussian's loss y, the rest must lose epsilon - y: delta(epsilon) = E delta_1(epsilon - y).
    mu, kappa, mu_out = 0.3, 0.2, 0.15
    pair = HalfNormalPair(mu, kappa)
    t = np.linspace(-9, 9, 4001)
    weight = norm.pdf(t) * (t[1] - t[0])
    both = ComposedCurve((Perturbation(mu, kappa, pair="half-normal"), GaussianCurve(mu_out)))
    for epsilon in (0.0, 0.5, 1.0, 1.5):
        exact = float(weight @ pair.delta(epsilon - 0.5 * mu_out**2 - mu_out * t))
        assert exact * (1 - 1e-6) <= both.delta(epsilon) <= exact * (1 + 1e-3)
    reduced = ApproximateMinimaCurve(mu, kappa, mu_out)
    for epsilon in (0.0, 0.5, 1.0, 1.5):
        rest = epsilon - 0.5 * mu_out**2 - mu_out * t
        sides = [float(weight @ bound(rest, mu, kappa)) for bound in (absent_delta, present_delta)]
        assert reduced.delta(epsilon) <= max(sides) * (1 + 1e-3)
        assert reduced.delta(epsilon) >= gaussian_delta(epsilon, math.hypot(mu, mu_out))
    assert ApproximateMinimaCurve(mu, kappa, 0.0).delta(0.5) == pytest.approx(
        ComposedCurve((Perturbation(mu, kappa),)).delta(0.5), rel=1e-6
    )


@pytest.mark.parametrize("rounds", [1, 4])
def test_epsilon_inverts_delta_on_the_safe_side(rounds):
    curve = ComposedCurve((Perturbation(0.3, 0.1, rounds), GaussianCurve(0.05)))
    assert isinstance(curve, PrivacyCurve)
    for level in (0.05, 1e-3, 1e-6, 1e-10, 1e-15):
        epsilon = curve.epsilon(level)
        assert curve.delta(epsilon) <= level
        assert curve.delta(epsilon * (1 - 1e-3)) > level
        assert epsilon <= curve.renyi_curve().epsilon(level) * (1 + 1e-12)
    assert curve.epsilon(0.0) == math.inf
    assert curve.epsilon(1.0) == 0.0


def test_what_does_not_fit_into_floats_is_still_answered():
    curve = ApproximateMinimaCurve(50.0, 1e9, 1e4)
    assert curve.delta(1.0) == 1.0
    assert math.isfinite(curve.epsilon(1e-6))
    assert 0 < ApproximateMinimaCurve(1e-6, 1e-3, 1e-9).epsilon(1e-8) < 2e-3
    assert ApproximateMinimaCurve(0.1, 1e6, 0.0).delta(1.0) <= 2 * ndtr(0.1) - 1 + 1e-3


def test_renyi_divergences_add_up_and_agree_with_dp_accounting():
    curve = ComposedCurve((Perturbation(0.2, 0.05, 3), GaussianCurve(0.4)))
    orders = [1.5, 2.0, 4.0, 16.0, 64.0]
    absent = [3 * Perturbation(0.2, 0.05).renyi(a)[0] + 0.08 * a for a in orders]
    present = [3 * Perturbation(0.2, 0.05).renyi(a)[1] + 0.08 * a for a in orders]
    assert [curve.renyi(a) for a in orders] == pytest.approx(np.maximum(absent, present), rel=1e-12)
    gaussians = ComposedCurve((GaussianCurve(0.5),) * 10)
    accountant = rdp.RdpAccountant(orders).compose(GaussianDpEvent(2.0), 10)
    assert [gaussians.renyi(a) for a in orders] == pytest.approx(list(accountant._rdp), rel=1e-9)
    # Reference values: 8.84687 and .584162 on dp-accounting's grid of orders, 8.84589 on the best order.
    assert gaussians.renyi_curve().epsilon(1e-6) == pytest.approx(8.84588934846, abs=2e-6)
    assert gaussians.renyi_curve().delta(1.0) == pytest.approx(0.5841617157128314, rel=1e-3)
    for sigma, lam, expected in (
        (
            10.0,
            5.0,
            [
                0.30884960161074326,
                0.3097857217591288,
                0.3137225576380311,
                0.34474379964405716,
                0.5541458875112117,
            ],
        ),
        (
            5.0,
            20.0,
            [
                0.23457763527738865,
                0.23843612122472171,
                0.2554910305783594,
                0.4174130524272305,
                1.342295630586915,
            ],
        ),
    ):
        part = Perturbation(1 / sigma, 1 / lam, pair="half-normal")
        assert [part.renyi(a)[0] for a in orders] == pytest.approx(expected, rel=1e-9)


def test_renyi_bounds_hold_for_instances():
    for mu, kappa in PAIRS:
        part = Perturbation(mu, kappa)
        for s in instances(mu, kappa):
            p, q = instance(s)
            keep = (p > 0) & (q > 0)
            for order in (1.2, 2.0, 5.0):
                absent = math.log(np.sum(p[keep] ** order * q[keep] ** (1 - order))) / (order - 1)
                present = math.log(np.sum(q[keep] ** order * p[keep] ** (1 - order))) / (order - 1)
                assert absent <= part.renyi(order)[0] + 1e-9
                assert present <= part.renyi(order)[1] + 1e-9


# ---------------------------------------------------------------- calibration

TASK = {"slope": math.sqrt(2), "curvature": 0.5, "sigma_out": 0.15, "tau": 0.01}


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.01, 1e-8), (8.0, 1e-5), (300.0, 1e-6)])
def test_numerical_calibration_is_safe_and_smallest(epsilon, delta):
    sigma, lam = calibrate_numerically(epsilon=epsilon, delta=delta, **TASK)

    def curve(ridge):
        return ApproximateMinimaCurve(TASK["slope"] / sigma, 0.5 / ridge, 0.02 / (ridge * 0.15))

    assert curve(lam).delta(epsilon) <= delta
    if epsilon < 100:  # above, the calibration is one for 150
        assert curve(lam * (1 - 2e-3)).delta(epsilon) > delta
        assert sigma == pytest.approx(1.3 * TASK["slope"] / _gaussian_mu(epsilon, delta), rel=1e-6)
    if epsilon == 1.0:
        by_renyi = calibrate_approximate(epsilon=epsilon, delta=delta, analysis="reduced-renyi", **TASK)
        assert by_renyi.sigma == pytest.approx(sigma)
        assert 0.95 * by_renyi.lam < lam < by_renyi.lam


def _gaussian_mu(epsilon, delta):
    low, high = 1e-9, 100.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gaussian_delta(epsilon, middle) <= delta else (low, middle)
    return low


def test_numerical_calibration_without_a_solver_error_and_with_much_noise():
    exact = calibrate_numerically(epsilon=1.0, delta=1e-5, **{**TASK, "tau": 0.0})
    assert exact.lam < calibrate_numerically(epsilon=1.0, delta=1e-5, **TASK).lam
    much = calibrate_numerically(epsilon=1.0, delta=0.2, **{**TASK, "tau": 0.0}, factor=50.0)
    assert much.lam < 0.3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"factor": 1.0}, ValueError, "factor"),
        ({"tau": -1.0}, ValueError, "tau"),
        ({"delta": 1e-13}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"sigma_out": "1"}, TypeError, "sigma_out"),
        ({"slope": math.inf}, ValueError, "slope"),
    ],
)
def test_calibration_refuses(change, error, message):
    with pytest.raises(error, match=message):
        calibrate_numerically(**{"epsilon": 1.0, "delta": 1e-5, **TASK, **change})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: HalfNormalPair(0.1, 1.0), ValueError, "kappa"),
        (lambda: HalfNormalPair(0.0, 0.1), ValueError, "mu"),
        (lambda: Perturbation(0.1, 1.0, pair="half-normal"), ValueError, "kappa"),
        (lambda: Perturbation(0.1, 0.1, 0), ValueError, "rounds"),
        (lambda: Perturbation(0.1, 0.1, 1.5), TypeError, "rounds"),
        (lambda: Perturbation(0.1, 0.1, pair="other"), ValueError, "pair"),
        (lambda: Perturbation(-0.1, 0.1), ValueError, "mu"),
        (lambda: ComposedCurve(()), ValueError, "parts"),
        (lambda: ComposedCurve((0.1,)), TypeError, "parts"),
        (lambda: ComposedCurve((GaussianCurve(1.0),), 0.0), ValueError, "resolution"),
        (lambda: ComposedCurve((GaussianCurve(1.0),)).delta(math.nan), ValueError, "epsilon"),
        (lambda: ComposedCurve((GaussianCurve(1.0),)).epsilon(2.0), ValueError, "delta"),
        (lambda: ApproximateMinimaCurve(0.1, 0.1, -0.1), ValueError, "mu"),
        (lambda: absent_delta(math.inf, 0.1, 0.1), ValueError, "epsilon"),
        (lambda: present_delta(0.0, 0.1, -0.1), ValueError, "kappa"),
        (lambda: renyi_curves(sigma=0.0, beta=1.0, lam=2.0, orders=(2.0,)), ValueError, "sigma"),
        (lambda: half_normal_mechanism_delta(-1.0, 0.1), ValueError, "epsilon"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---------------------------------------------------------------- figures


def test_figure_c1_curves():
    table = renyi_curves(sigma=5.0, beta=1.0, lam=20.0, orders=(1.0, 1.5, 2.0, 16.0, 1e4))
    gap = table["objective_perturbation"] - table["half_normal"]
    assert gap.to_numpy() == pytest.approx(-math.log(0.95), rel=1e-9)
    assert (table["half_normal"] > table["normal"]).all()
    assert (table["reduced"] < table["objective_perturbation"]).all()
    assert (table["reduced"] >= table["normal"]).all()
    assert table["half_normal"].iloc[-1] == pytest.approx(table["normal"].iloc[-1], rel=1e-6)
    # The half-normal curve by quadrature of the law that names it: Q = L + |N| against |N|, order 2.
    squared, _ = integrate.quad(lambda x: 2 * norm.pdf(x - 0.2) ** 2 / norm.pdf(x), 0.2, 20, epsabs=1e-13)
    assert table["half_normal"].iloc[2] == pytest.approx(math.log(squared), rel=1e-8)


def test_figure_c2_table():
    table = composition_table(rounds=(1, 4, 16), epsilons=(0.5, 1.0, 2.0, 3.0))
    assert (table["gaussian"] < table["reduced"]).all()
    assert (table["reduced"] <= table["numerical"]).all()
    assert (table["numerical"] <= table["renyi"]).all()
    assert (table["reduced"] <= table["reduced_renyi"]).all()
    row = table[(table["rounds"] == 16) & (table["epsilon"] == 3.0)].iloc[0]
    assert row["numerical"] > 1e3 * row["reduced"]  # the half-normal's mean loss adds up, 16 times


def test_figure_c2_one_round_is_theorem_4_3_1():
    row = composition_table(rounds=(1,), epsilons=(0.5,)).iloc[0]
    assert row["numerical"] == pytest.approx(HockeyStickCurve(0.125, 0.1).delta(0.5), rel=1e-3)


def test_figure_c3_one_step_starts_on_the_gaussian_mechanism_and_ends_above():
    for sigma, sampling, multiplier in FIGURE_C3:
        assert sampling / multiplier == pytest.approx(1 / sigma)
        table = renyi_crossing(
            sigma=sigma, sampling=sampling, multiplier=multiplier, kappa=1e-2, orders=(1.1, 2.0, 5.0, 2e4)
        )
        assert table["dp_sgd"].iloc[:3].to_numpy() == pytest.approx(table["gaussian"].iloc[:3], rel=1e-2)
        assert (table["dp_sgd"] >= table["gaussian"]).all()
        assert table["dp_sgd"].iloc[-1] > 0.9 * 0.5 * 2e4 / multiplier**2
        assert table["objective_perturbation"].iloc[-1] < table["dp_sgd"].iloc[-1]
        orders = [2, 5, 16, 64]
        event = PoissonSampledDpEvent(sampling, GaussianDpEvent(multiplier))
        accountant = rdp.RdpAccountant(orders).compose(event)
        ours = renyi_crossing(
            sigma=sigma, sampling=sampling, multiplier=multiplier, kappa=1e-2, orders=orders, steps=3
        )
        assert ours["dp_sgd"].to_numpy() / 3 == pytest.approx(list(accountant._rdp), rel=2e-9)


def test_figure_c3_crossings():
    table = crossing_table(kappas=(1e-2,))
    assert table["order"].to_numpy() == pytest.approx([367.08, 271.85, 238.73, 148.29], rel=1e-3)
    for _, row in table.iterrows():
        case = {key: row[key] for key in ("sigma", "sampling", "multiplier", "kappa")}
        around = renyi_crossing(**case, orders=(0.99 * row["order"], row["order"], 1.01 * row["order"]))
        difference = (around["dp_sgd"] - around[row["bound"]]).to_numpy()
        assert difference[0] < 0 < difference[2]
        assert difference[1] == pytest.approx(0, abs=1e-6 * row["divergence"])


# ---------------------------------------------------------------- flaws


def test_printed_pair_has_more_than_all_the_mass():
    assert printed_lower_mass(1.0, 0.05) == pytest.approx(1.599, abs=5e-4)
    assert HalfNormalPair(1.0, 0.05).lower_mass == pytest.approx(0.301, abs=5e-4)
    table = printed_pair_table()
    assert table["violated"].all()
    assert (table["printed_atom"] < 0).sum() == 8
    assert (table["atom"] > 0).all()
    for mu, kappa, epsilon in ((1.0, 0.05, 0.2), (1.0, 0.5, -0.4), (0.2, 0.05, 0.01)):
        pair = HalfNormalPair(mu, kappa)

        def gap(x, mu=mu, kappa=kappa, e=epsilon):
            return max(2 * norm.pdf(x) - math.exp(e) * (1 - kappa) * 2 * norm.pdf(x - mu), 0.0)

        end = (pair.shift + 0.5 * mu * mu - epsilon) / mu
        assert printed_delta(epsilon, mu, kappa) == pytest.approx(integrate.quad(gap, 0, end)[0], abs=1e-9)


def test_half_normal_mechanism_is_not_private_one_way():
    mu = 0.4
    for epsilon in (0.0, 1.0, 20.0):
        gap, _ = integrate.quad(
            lambda x, e=epsilon: max(2 * norm.pdf(x) - math.exp(e) * 2 * norm.pdf(x - mu) * (x >= mu), 0.0),
            0,
            9,
            points=[mu],
        )
        assert half_normal_mechanism_delta(epsilon, mu) == pytest.approx(gap, abs=1e-8)
