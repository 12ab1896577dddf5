"""Generalized propose-test-release: guarantees against exact suprema, classic as a special case, Rényi, bad input."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from dp_accounting.rdp import compute_epsilon
from scipy import integrate, stats

from adaptive_dp.accuracy_first.above_threshold import halting_probability
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release
from adaptive_dp.ptr import (
    classic,
    flaws_framework,
    framework,
    private_bounds,
    proposals,
    renyi,
    uniform_bound,
    variants,
)
from adaptive_dp.ptr.distances import Median, Mode, Pairs

MEDIAN = Median(0, 7)


# --- the deltas of Algorithm 4 ----------------------------------------------------------------------------


def test_extremal_composition():
    table = flaws_framework.composition_table()
    exact = table[["over", "within"]].max(axis=1)
    assert len(table) == 72
    assert (exact <= table["claimed"] * (1 + 1e-12)).all()
    # attained for tests without a delta of their own, and almost attained otherwise
    plain = table["delta_hat"] == 0
    assert exact[plain].to_numpy() == pytest.approx(table["claimed"][plain].to_numpy(), rel=1e-9)
    assert (exact / table["claimed"])[~plain].max() > 0.999
    # the printed sum is loose by the smaller of delta and delta'
    assert (table["printed"] - table["claimed"]).to_numpy() == pytest.approx(
        np.minimum(table["delta"], table["delta_prime"]).to_numpy()
    )


def random_law(rng, outcomes):
    """A law on a few outcomes, often with zeros: adversarial probabilities."""
    weights = rng.exponential(size=outcomes) ** rng.choice([1, 4]) * (rng.random(outcomes) < 0.8)
    return weights / weights.sum() if weights.sum() else np.eye(outcomes)[0]


@functools.cache
def pass_pairs(epsilon, delta, at_most):
    return flaws_framework.pass_pairs(epsilon, delta, at_most=at_most)


def random_test(rng, epsilon, delta, at_most):
    """Pass probabilities of an (epsilon, delta)-private test, the first limited: on the border as often as not."""
    points = pass_pairs(epsilon, delta, at_most)
    weights = rng.dirichlet(np.full(len(points), 0.2))
    return weights @ points


def test_adversarial_mechanisms_never_exceed_the_claim():
    """Losses are defined one-sided, by the exact divergence from the data set at hand: that suffices (S8)."""
    rng, cases, highest = np.random.default_rng(7), [0, 0], 0.0
    points = itertools.product((0.05, 0.7), (0.0, 2e-2), (0.1, 1.0), (1e-2, 0.1), (1e-2, 0.1))
    for hat, delta_hat, epsilon, delta, prime in points:
        claimed = framework.ptr_delta(delta, delta_hat, prime)
        for _ in range(150):
            p, q = (random_law(rng, rng.integers(2, 4)) for _ in range(2))
            if len(p) != len(q):
                continue
            over = flaws_framework.hockey_stick(p, q, epsilon) > delta
            tau, other = random_test(rng, hat, delta_hat, prime if over else 1.0)
            laws = np.append(tau * p, 1 - tau), np.append(other * q, 1 - other)
            exact = flaws_framework.hockey_stick(*laws, epsilon + hat)
            assert exact <= claimed + 1e-12
            cases[over] += 1
            highest = max(highest, exact / claimed)
    assert min(cases) > 500
    assert highest > 0.9


def test_pass_pairs_are_private_and_extreme():
    for hat, delta_hat, at_most in itertools.product((0.0, 0.3, 2.0), (0.0, 0.05), (0.01, 1.0)):
        points = flaws_framework.pass_pairs(hat, delta_hat, at_most=at_most)
        for tau, other in points:
            assert tau <= at_most + 1e-12
            pair = np.array([tau, 1 - tau]), np.array([other, 1 - other])
            assert flaws_framework.hockey_stick(*pair, hat) <= delta_hat + 1e-9
            assert flaws_framework.hockey_stick(*pair[::-1], hat) <= delta_hat + 1e-9
        assert points[:, 0].max() == pytest.approx(at_most)
    p, q = flaws_framework.worst_pair(0.7, 0.01)
    for epsilon, delta in ((0.7, 0.01), (2.0, 0.01)):
        assert flaws_framework.hockey_stick(p, q, epsilon) == pytest.approx(delta)
        assert flaws_framework.hockey_stick(q, p, epsilon) == pytest.approx(delta)
    assert p.sum() == pytest.approx(1)


def test_uniform_bound_needs_the_sum():
    table = flaws_framework.uniform_bound_table()
    assert (table["exact"] <= table["claimed"] * (1 + 1e-12)).all()
    assert (table["exact"] > table["maximum"]).sum() >= len(table) - 1
    plain = table["delta_hat"] == 0
    assert table["exact"][plain].to_numpy() == pytest.approx(table["claimed"][plain].to_numpy(), rel=1e-12)
    assert (table["claimed"] < table["printed"]).all()


# --- classic propose-test-release as a special case -------------------------------------------------------


@pytest.mark.parametrize("calibration", classic.CALIBRATIONS)
@pytest.mark.parametrize("query", [MEDIAN, Pairs(3)])
def test_classic_is_a_special_case(query, calibration):
    """The same draws give the same outcomes, so the two laws are one law."""
    epsilon, delta, bound = 0.8, 0.2, 0.9
    check = framework.distance_test(query, epsilon=epsilon, false_pass=delta, calibration=calibration)
    mechanism = framework.laplace_mechanism(query)
    outcomes = set()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        data = rng.integers(0, 3, rng.integers(0, 8)).astype(float)
        general = framework.generalized_ptr(
            data,
            proposal=bound / epsilon,
            mechanism=mechanism,
            check=check,
            epsilon=epsilon,
            rng=np.random.default_rng([seed, 1]),
        )
        old = classic.propose_test_release(
            data,
            query,
            bound=bound,
            epsilon=epsilon,
            delta=delta,
            calibration=calibration,
            rng=np.random.default_rng([seed, 1]),
        )
        assert general.refused == old.refused
        if not old.refused:
            assert general.value == old.value
        assert general.guarantee.epsilon == old.guarantee.epsilon
        assert general.guarantee.delta == old.guarantee.delta
        # over budget exactly when the local sensitivity exceeds the proposed bound
        assert (general.trace["loss"] > epsilon) == (query.local_sensitivity(data) > bound)
        outcomes.add(old.refused)
    assert outcomes == {True, False}


def test_stability_is_a_special_case():
    query, epsilon, delta = Mode(3), 0.8, 0.2
    check = framework.stability_test(query, epsilon=epsilon, false_pass=delta)
    outcomes = set()
    for seed in range(100):
        rng = np.random.default_rng(seed)
        data = rng.integers(0, 3, rng.integers(0, 12))
        pair = [np.random.default_rng([seed, 1]) for _ in range(2)]
        general = framework.generalized_ptr(
            data,
            proposal=None,
            mechanism=framework.exact_answer(query),
            check=check,
            epsilon=0.0,
            rng=pair[0],
        )
        old = classic.release_if_stable(data, query, epsilon=epsilon, delta=delta, rng=pair[1])
        assert general.refused == old.refused
        if not old.refused:
            assert general.value == old.value
        assert (general.guarantee.epsilon, general.guarantee.delta) == (epsilon, delta)
        assert (general.trace["loss"] == 0) == (query.stability(data) > 0)
        outcomes.add(old.refused)
    assert outcomes == {True, False}


# --- private bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta_hat", [0.0, 1e-3])
@pytest.mark.parametrize("prime", [1e-12, 0.02, 0.7])
def test_quantile_and_pass_probability_are_exact(delta_hat, prime):
    noise = private_bounds.BoundNoise(2.0, 0.5, prime, delta_hat)
    law = stats.laplace(scale=noise.scale) if delta_hat == 0 else stats.norm(scale=noise.scale)
    assert noise.tail(noise.shift) <= prime
    assert noise.tail(noise.shift) == pytest.approx(prime, rel=1e-9)
    assert noise.shift == pytest.approx(law.isf(prime), rel=1e-9)
    for value, threshold in ((1.0, 30.0), (3.0, 3.0), (0.0, -5.0)):
        exact = private_bounds.pass_probability(value, 2.0, 0.5, prime, threshold, delta_hat=delta_hat)
        assert exact == pytest.approx(law.cdf(threshold - value - noise.shift), rel=1e-7, abs=1e-300)
    # a value just over the threshold passes with probability delta', the largest there is
    at = private_bounds.pass_probability(3.0, 2.0, 0.5, prime, 3.0, delta_hat=delta_hat)
    assert at == pytest.approx(prime, rel=1e-9)
    assert at <= prime


@pytest.mark.parametrize("delta_hat", [0.0, 1e-3])
def test_bounds_and_tests_do_what_they_say(delta_hat):
    rng, runs = np.random.default_rng(1), 1500
    options = {"sensitivity": 1.0, "epsilon_hat": 1.0, "delta_prime": 0.1, "delta_hat": delta_hat}
    upper = [private_bounds.private_bound(5.0, rng=rng, **options).value for _ in range(runs)]
    lower = [private_bounds.private_bound(5.0, rng=rng, side="lower", **options).value for _ in range(runs)]
    tests = [
        private_bounds.upper_bound_test(5.0, 1.0, 1.0, 0.1, 7.0, rng, delta_hat=delta_hat).value
        for _ in range(runs)
    ]
    exact = private_bounds.pass_probability(5.0, 1.0, 1.0, 0.1, 7.0, delta_hat=delta_hat)
    for hits, p in ((np.less(upper, 5), 0.1), (np.greater(lower, 5), 0.1), (tests, exact)):
        assert stats.binomtest(int(np.sum(hits)), runs, p).pvalue > 1e-4
    one = private_bounds.private_bound(5.0, rng=rng, **options)
    assert (one.guarantee.epsilon, one.guarantee.delta) == (1.0, delta_hat)
    assert (one.guarantee.curve is None) == (delta_hat == 0)


def test_exact_privacy_with_a_private_upper_bound():
    """Algorithm 4 with a noisy bound of the loss of Laplace noise, on all neighbours: claimed, and almost attained."""
    query, epsilon, hat, prime, scale = Pairs(2), 1.0, 0.5, 0.05, 4.0
    sensitivity, worst = 1 / scale, 0.0
    for a, b in itertools.product(range(12), range(12)):
        first = [0] * a + [1] * b
        loss = query.local_sensitivity(first) / scale
        p = private_bounds.pass_probability(loss, sensitivity, hat, prime, epsilon)
        if loss > epsilon:
            assert p <= prime
        for second in ([*first, 0], [*first, 1], first[1:], first[:-1]):
            q_loss = query.local_sensitivity(second) / scale
            q = private_bounds.pass_probability(q_loss, sensitivity, hat, prime, epsilon)
            laws = classic.PtrLaw(p, query.value(first), scale), classic.PtrLaw(q, query.value(second), scale)
            exact = classic.ptr_law_delta(*laws, epsilon + hat)
            assert exact <= framework.ptr_delta(0.0, 0.0, prime)
            worst = max(worst, exact)
    assert worst > 0.001


def test_composition_of_the_pieces():
    scale = 4.0
    mechanism = framework.laplace_mechanism(Pairs(2))
    bound = framework.loss_bound(
        mechanism.loss, lambda phi: 1 / phi, epsilon_hat=0.5, delta_prime=1e-3, delta_hat=1e-4
    )
    rng = np.random.default_rng(0)
    few, many = [0, 1], [0] * 100
    arguments = {"proposal": scale, "mechanism": mechanism, "check": bound, "epsilon": 30.0, "rng": rng}
    good = framework.generalized_ptr(few, **arguments)
    assert isinstance(good.value, float)
    assert good.guarantee.epsilon == 30.5
    assert good.guarantee.delta == 1e-4 + 1e-3  # not + delta: the larger of 0 and 1e-3
    assert dict(good.guarantee.parts) == {"test": 0.5, "release": 30.0}
    assert good.trace["loss"] == 1 / scale
    bad = framework.generalized_ptr(many, **(arguments | {"epsilon": 1.0}))
    assert isinstance(bad.value, Refused)
    assert bad.guarantee.delta == good.guarantee.delta
    wide = framework.PrivateUpperBound(bound.release, 0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="delta must lie"):
        framework.generalized_ptr(few, **(arguments | {"check": wide}))


# --- Algorithm 12 -----------------------------------------------------------------------------------------


def test_uniform_bound_exact_privacy():
    """The published bound and the number, on neighbours: one integral over the bound of exact Laplace divergences."""
    query, epsilon, hat, delta = Pairs(2), 1.0, 0.5, 0.05
    noise = private_bounds.BoundNoise(1.0, hat, delta)
    total, worst = epsilon + hat, 0.0
    for a, b in ((0, 0), (1, 1), (3, 0), (6, 2), (20, 20)):
        first = [0] * a + [1] * b
        for second in ([*first, 0], *([first[1:]] if first else [])):
            for x, y in ((first, second), (second, first)):
                values, tops = [query.value(d) for d in (x, y)], [query.local_sensitivity(d) for d in (x, y)]

                def part(r, values=values, tops=tops):
                    densities = [math.exp(-abs(r - noise.shift - t) * hat) * hat / 2 for t in tops]
                    loss = abs(values[0] - values[1]) / (max(r, 1.0) / epsilon)
                    shifted = total + math.log(densities[1] / densities[0])
                    return densities[0] * classic.laplace_delta(shifted, loss)

                centre = noise.shift + tops[0]
                edges = sorted({centre - 60, *(noise.shift + t for t in tops), *tops, 1.0, centre + 60})
                exact = sum(integrate.quad(part, *cut, limit=200)[0] for cut in itertools.pairwise(edges))
                assert exact <= delta * (1 + 1e-9)
                worst = max(worst, exact)
    assert worst > delta / 20


def test_uniform_bound_never_refuses():
    rng = np.random.default_rng(5)
    options = {"epsilon": 1.0, "epsilon_hat": 0.5, "delta": 1e-6, "smallest": 1.0, "rng": rng}
    for data in ([], [0], [0, 1, 1], [1] * 500):
        release = uniform_bound.release_with_private_bound(data, Pairs(2), **options)
        assert not release.refused
        assert release.value.bound <= 1.0
        assert release.value.bound == pytest.approx(1.0)
        assert release.value.proposal >= Pairs(2).local_sensitivity(data)
        assert release.guarantee.epsilon == 1.5
        assert release.guarantee.delta == 1e-6
        assert dict(release.guarantee.parts) == {"bound": 0.5, "release": 1.0}
    assert uniform_bound.uniform_delta(0.1, 0.01, 0.2) == pytest.approx(0.01 + 0.2 + 0.8 * 0.1)


def test_uniform_bound_checks_the_choice():
    mechanism = framework.laplace_mechanism(Pairs(2))
    guarantee = Guarantee("ex-ante", 0.5, Neighbours.ADD_REMOVE)
    released = lambda data, rng: Release(uniform_bound.InverseScaleBound(3.0), guarantee)  # noqa: E731
    bound = uniform_bound.PrivateUniformBound(released, 0.5, 0.0, 0.1)
    arguments = {"mechanism": mechanism, "bound": bound, "epsilon": 1.0, "rng": np.random.default_rng(0)}
    with pytest.raises(ValueError, match="bound of at most"):
        uniform_bound.ptr_with_uniform_bound([0], choose=lambda f, e: 2.0, **arguments)
    good = uniform_bound.ptr_with_uniform_bound([0], choose=lambda f, e: f(1.0) / e, **arguments)
    assert (good.value.proposal, good.value.bound) == (3.0, 1.0)
    cheap = uniform_bound.PrivateUniformBound(released, 0.4, 0.0, 0.1)
    with pytest.raises(ValueError, match="declares"):
        uniform_bound.ptr_with_uniform_bound([0], choose=lambda f, e: 3.0, **(arguments | {"bound": cheap}))


# --- lists of proposals, and the table of variants ---------------------------------------------------------


def test_list_of_proposals_exact_privacy():
    query, bounds, epsilon, hat, delta = Pairs(2), [2.0, 5.0, 9.0], 0.5, 0.5, 0.05
    threshold = proposals.search_threshold(proposals=3, epsilon=hat, delta=delta)

    @functools.cache
    def law(size):
        """Chances of each bound, of a refusal, and the value: one class of ``size`` members."""
        distances = [query.distance([0] * size, b) for b in bounds]
        chances = [
            halting_probability(distances[: t + 1], threshold=threshold, sensitivity=1.0, epsilon=hat)
            for t in range(3)
        ]
        return chances, 1 - sum(chances), query.value([0] * size)

    worst = 0.0
    for size in range(14):
        for first, second in ((size, size + 1), (size + 1, size)):
            (p, refused, value), (q, refused_too, other) = law(first), law(second)
            exact = max(0.0, refused - math.exp(epsilon + hat) * refused_too)
            for a, b, bound in zip(p, q, bounds, strict=True):
                loss = abs(value - other) / (bound / epsilon)
                exact += a * classic.laplace_delta(epsilon + hat + math.log(b / a), loss)
            assert exact <= delta
            worst = max(worst, exact)
    assert worst > delta / 10


def test_list_of_proposals():
    options = {"epsilon": 1.0, "epsilon_hat": 1.0, "delta": 1e-6, "rng": np.random.default_rng(0)}
    run = lambda size, bounds: proposals.propose_list_test_release(  # noqa: E731
        [0] * size, Pairs(1), bounds=bounds, **options
    )
    good = run(100, [10, 50, 200, 1000])
    assert good.index in (2, 3)
    assert (good.guarantee.epsilon, good.guarantee.delta) == (2.0, 1e-6)
    assert run(100, [10, 50]).refused
    assert run(100, [10, 50]).guarantee.delta == 1e-6
    for bounds, match in (
        ([], "at least 1"),
        ([2, 1], "increasing"),
        ([-1, 1], "positive"),
        ([0, 1], "positive"),
    ):
        with pytest.raises(ValueError, match=match):
            run(3, bounds)
    with pytest.raises(ValueError, match="delta"):
        proposals.propose_list_test_release([0], Pairs(1), bounds=[1], **(options | {"delta": 1.0}))


def test_every_name_in_the_table_of_variants_exists():
    table = variants.variants_table()
    assert list(table["variant"]) == [
        "private test", "private pointwise bound", "private uniform bound", "stability-based", "what to propose",
    ]  # fmt: skip
    assert (table["classic"] == "").tolist() == [False, True, False, False, False]  # "no analogous algorithm"
    for side in ("classic", "generalized"):
        assert ((table[side] == "") == (table[f"{side}_functions"] == "")).all()
        for names in table[f"{side}_functions"]:
            for name in filter(None, names.split(", ")):
                assert callable(variants.implementation(name))
    with pytest.raises(ValueError, match="name must start"):
        variants.implementation("os.system")
    with pytest.raises(AttributeError):
        variants.implementation("adaptive_dp.ptr.classic.nothing")


# --- Rényi --------------------------------------------------------------------------------------------------


def test_printed_renyi_theorem_is_false():
    table = flaws_framework.renyi_table().set_index("neighbour_pass")
    assert list(table["holds"]) == [True, False, False, False, False]
    numbers = {8e-4: (0.941, 0.737), 1e-4: (3.000, 0.968), 1e-5: (5.303, 3.040)}
    for other, (exact, printed) in numbers.items():
        assert table.loc[other, "exact"] == pytest.approx(exact, abs=5e-4)
        assert table.loc[other, "printed"] == pytest.approx(printed, abs=5e-4)
    # the right bound is attained by this very mechanism
    assert (table["right"] >= table["exact"]).all()
    assert table["right"].to_numpy() == pytest.approx(table["exact"].to_numpy(), rel=1e-9)


def divergence_of_tests(order, tau, other):
    first = tau**order * other ** (1 - order)
    return np.log(first + (1 - tau) ** order * (1 - other) ** (1 - order)) / (order - 1)


@pytest.mark.parametrize("order", [1.05, 2.0, 4.0, 30.0])
def test_right_renyi_bound_over_all_tests(order):
    """A fine grid of test pairs and the worst mechanisms: never exceeded, and reached up to the grid."""
    prime, budget, worst = 0.02, 0.05, 1.5
    for hat in (1e-4, 0.01, 0.3, 2.0):
        bound = renyi.renyi_ptr_epsilon(order, budget=budget, worst=worst, epsilon_hat=hat, false_pass=prime)
        corner = renyi.smallest_neighbour_pass(order, hat, prime) * (1 + 1e-9) / prime
        passes = np.concatenate([np.geomspace(1e-6, 0.5, 40), [prime], 1 - np.geomspace(1e-6, 0.4, 20)])
        ratios = np.concatenate([np.geomspace(1e-4, 1, 400), 1 / np.geomspace(0.01, 1, 100), [corner]])
        tau, ratio = (x.ravel() for x in np.meshgrid(passes, ratios))
        tau, other = tau[tau * ratio < 1], (tau * ratio)[tau * ratio < 1]
        allowed = (
            np.maximum(divergence_of_tests(order, tau, other), divergence_of_tests(order, other, tau)) <= hat
        )
        tau, other = tau[allowed], other[allowed]
        assert tau.size > 100
        power = np.where(tau <= prime, math.exp((order - 1) * worst), math.exp((order - 1) * budget))
        first = tau**order * other ** (1 - order) * power
        exact = np.log(first + (1 - tau) ** order * (1 - other) ** (1 - order)) / (order - 1)
        assert (exact <= bound * (1 + 1e-9)).all()
        if bound > (hat + budget) * (1 + 1e-9):  # data sets over budget decide
            assert exact.max() > 0.9999 * bound


def test_tilted_weight():
    assert renyi.tilted_weight(4.0, 0.0, 1e-3) == pytest.approx(1e-3, rel=1e-9)
    weights = [renyi.tilted_weight(4.0, hat, 1e-3) for hat in (0.0, 0.01, 0.1, 1.0, 10.0, 700.0)]
    assert weights == sorted(weights)
    assert weights[-1] <= 1
    for order, hat, tau in itertools.product((1.01, 3.0, 200.0), (1e-6, 0.1, 5.0), (1e-12, 1e-3, 0.6)):
        other = renyi.smallest_neighbour_pass(order, hat, tau)
        assert 0 <= other <= tau
        if other > 1e-300:
            assert renyi.bernoulli_renyi(order, tau, other) == pytest.approx(hat, rel=1e-5, abs=1e-9)
    assert renyi.renyi_ptr_epsilon(3, budget=1, worst=math.inf, epsilon_hat=1, false_pass=0.1) == math.inf


def test_approximate_renyi_needs_a_little_budget():
    table = flaws_framework.refusal_table()
    # eps_hat alone does not cover the refusal, as "eps_hat + budget" would have it for budget 0
    assert table["excess"].max() > 0.3 * table["allowance"].max()
    assert (table["excess"] <= table["allowance"]).all()
    allowance = table["allowance"].iloc[0]
    for budget in (0.0, 0.2):
        epsilon = renyi.approximate_renyi_epsilon(4.0, budget=budget, epsilon_hat=0.1, false_pass=1e-3)
        assert epsilon == pytest.approx(0.1 + max(budget, allowance))


def test_conversion_agrees_with_dp_accounting():
    for order, loss, delta in itertools.product((2.0, 5.0, 40.0), (0.1, 1.0), (1e-3, 1e-8)):
        theirs, _ = compute_epsilon([order], [loss], delta)
        assert renyi.renyi_to_epsilon(order, loss, delta) == pytest.approx(theirs, rel=1e-12)
    split = renyi.renyi_to_epsilon(5.0, 1.0, 1e-3, delta_prime=4e-4)
    assert split == pytest.approx(renyi.renyi_to_epsilon(5.0, 1.0, 6e-4 / (1 - 4e-4)))
    assert renyi.renyi_to_epsilon(2.0, math.inf, 0.1) == math.inf
    with pytest.raises(ValueError, match="delta_prime"):
        renyi.renyi_to_epsilon(5.0, 1.0, 1e-3, delta_prime=1e-3)


def gaussian_pieces(order, prime=1e-6, mu=0.3):
    """f(X) + N(0, phi^2) for the number of pairs; its data-dependent Rényi loss is order LS^2 / (2 phi^2).

    The square of a sensitivity has no global sensitivity, and so the test bounds its root.
    """
    query = Pairs(2)
    run = lambda data, phi, rng: query.value(data) + phi * rng.standard_normal()  # noqa: E731
    loss = lambda data, phi: order * query.local_sensitivity(data) ** 2 / (2 * phi**2)  # noqa: E731
    inner = renyi.gaussian_renyi_test(
        lambda data, phi: query.local_sensitivity(data), lambda phi: 1.0, mu=mu, false_pass=prime
    )
    test = renyi.RenyiTest(
        lambda data, phi, budget, rng: inner.decide(data, phi, phi * math.sqrt(2 * budget / order), rng),
        inner.renyi,
        prime,
    )
    return framework.DataDependentMechanism(run, loss), test


def test_renyi_mechanism():
    order, prime = 12.0, 1e-6
    mechanism, test = gaussian_pieces(order, prime)
    options = {
        "proposal": 100.0, "mechanism": mechanism, "test": test, "order": order, "budget": 0.5, "delta": 1e-5,
        "rng": np.random.default_rng(0),
    }  # fmt: skip
    good = renyi.renyi_ptr([0] * 3, worst=math.inf, **options)
    assert isinstance(good.value, float)
    approximate = renyi.renyi_to_epsilon(order, 0.5 + order * 0.045, 1e-5, delta_prime=prime)
    assert good.guarantee.epsilon == pytest.approx(approximate)
    assert good.guarantee.delta == 1e-5
    assert renyi.renyi_ptr([0] * 100, worst=math.inf, **options).refused
    # without a delta above delta' only the data-independent loss is left
    late = renyi.renyi_ptr([0], worst=2.0, **(options | {"delta": 1e-7}))
    whole = renyi.renyi_ptr_epsilon(order, budget=0.5, worst=2.0, epsilon_hat=order * 0.045, false_pass=prime)
    assert late.guarantee.epsilon == pytest.approx(renyi.renyi_to_epsilon(order, whole, 1e-7))
    assert late.trace["loss"] == order / 20000
    with pytest.raises(ValueError, match="mechanism must have delta 0"):
        renyi.renyi_ptr(
            [0],
            worst=1.0,
            **(options | {"mechanism": framework.DataDependentMechanism(mechanism.run, mechanism.loss, 0.1)}),
        )


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"epsilon": math.inf}, ValueError, "epsilon"),
        ({"rng": 1}, TypeError, "rng"),
        ({"check": lambda: True}, TypeError, "check"),
        ({"mechanism": None}, TypeError, "mechanism"),
        ({"proposal": 0.0}, ValueError, "scale"),
        ({"proposal": -2.0}, ValueError, "scale"),
        ({"data": [9.0]}, ValueError, "data"),
    ],
)
def test_bad_input_before_any_noise(changes, error, match):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    arguments = {
        "data": [1.0], "proposal": 1.0, "mechanism": framework.laplace_mechanism(MEDIAN), "epsilon": 1.0,
        "check": framework.distance_test(MEDIAN, epsilon=1.0, false_pass=0.1), "rng": rng,
    }  # fmt: skip
    arguments |= changes
    with pytest.raises(error, match=match):
        framework.generalized_ptr(arguments.pop("data"), **arguments)
    assert rng.bit_generator.state == state


def test_bad_pieces():
    run, loss = (lambda data, phi, rng: 0.0), (lambda data, phi: 0.0)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            framework.DataDependentMechanism(run, loss, delta)
        with pytest.raises(ValueError, match="false_pass"):
            framework.PrivateTest(run, 1.0, 0.0, delta)
        with pytest.raises(ValueError, match="failure"):
            framework.PrivateUpperBound(run, 1.0, 0.0, delta)
        with pytest.raises(ValueError, match="failure"):
            uniform_bound.PrivateUniformBound(run, 1.0, 0.0, delta)
    with pytest.raises(ValueError, match="epsilon"):
        framework.PrivateTest(run, -1.0, 0.0, 0.1)
    for name, value in (
        ("sensitivity", 0.0),
        ("epsilon_hat", -1.0),
        ("delta_prime", 0.0),
        ("delta_hat", 1.0),
    ):
        arguments = {"sensitivity": 1.0, "epsilon_hat": 1.0, "delta_prime": 0.1} | {name: value}
        with pytest.raises(ValueError, match=name):
            private_bounds.BoundNoise(**arguments)
    with pytest.raises(ValueError, match="side"):
        private_bounds.private_bound(
            1.0, sensitivity=1, epsilon_hat=1, delta_prime=0.1, side="both", rng=np.random.default_rng(0)
        )
    with pytest.raises(ValueError, match="smallest"):
        uniform_bound.release_with_private_bound(
            [0], Pairs(2), epsilon=1, epsilon_hat=1, delta=0.1, smallest=0.0, rng=np.random.default_rng(0)
        )
    for order in (1.0, 0.5, math.inf, 1e7):
        with pytest.raises(ValueError, match="order"):
            renyi.tilted_weight(order, 0.1, 0.1)
    with pytest.raises(ValueError, match="false_pass"):
        renyi.tilted_weight(2.0, 0.1, 0.0)
    # a check that is about other neighbours, and one that costs more than it declares
    with pytest.raises(ValueError, match="neighbours"):
        framework.generalized_ptr(
            [1.0],
            proposal=1.0,
            mechanism=framework.laplace_mechanism(MEDIAN),
            check=framework.distance_test(MEDIAN, epsilon=1.0, false_pass=0.1),
            epsilon=1.0,
            rng=np.random.default_rng(0),
            neighbours=Neighbours.REPLACE_ONE,
        )
    dear = framework.PrivateTest(
        lambda data, phi, budget, rng: Release(True, Guarantee("ex-ante", 2.0, Neighbours.ADD_REMOVE)),
        1.0,
        0.0,
        0.1,
    )
    with pytest.raises(ValueError, match="declares"):
        framework.generalized_ptr(
            [1.0],
            proposal=1.0,
            mechanism=framework.laplace_mechanism(MEDIAN),
            check=dear,
            epsilon=1.0,
            rng=np.random.default_rng(0),
        )
