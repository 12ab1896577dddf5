"""Private selection: exact laws of finite mechanisms against every bound, calibration, rounds, the mechanism itself."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from adaptive_dp import audit
from adaptive_dp.accounting import GaussianCurve, gaussian_delta
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release
from adaptive_dp.ptr import flaws_selection as flaws
from adaptive_dp.ptr.selection import (
    check_disjoint,
    gaussian_run_sigma,
    liu_talwar_pair,
    pair_bound,
    private_selection,
    selection_guarantee,
)
from adaptive_dp.ptr.selection_bounds import GeometricRounds, PairCurve, SelectionCurve, selection_law
from adaptive_dp.ptr.selection_renyi import (
    NegativeBinomialRounds,
    PoissonRounds,
    RenyiSelectionCurve,
    calibration_table,
    negative_binomial_renyi,
    poisson_renyi,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def renyi(p, q, order):
    with np.errstate(divide="ignore"):
        return math.log(np.sum(p**order * q ** (1 - order))) / (order - 1)


class FiniteCurve:
    """Exact profile and Rényi divergences of a pair of finite laws, both directions."""

    def __init__(self, p, q):
        self.p, self.q = p, q

    def delta(self, epsilon):
        return max(hockey_stick(self.p, self.q, epsilon), hockey_stick(self.q, self.p, epsilon))

    def epsilon(self, delta):
        if self.delta(0.0) <= delta:
            return 0.0
        if delta == 0:
            with np.errstate(divide="ignore"):
                return float(np.abs(np.log(self.p) - np.log(self.q)).max())
        low, high = 0.0, 60.0
        if self.delta(high) > delta:
            return math.inf
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def renyi(self, order):
        return max(renyi(self.p, self.q, order), renyi(self.q, self.p, order))


def random_pair(generator, positive=False):
    """One round on two neighbouring data sets, with scores that have ties and a refusal."""
    m, k = int(generator.integers(2, 8)), int(generator.integers(1, 4))
    p = generator.dirichlet(np.full(m, generator.uniform(0.2, 3)), size=k) + 1e-6 * positive
    q = p * np.exp(generator.uniform(-1, 1, (k, m)) * generator.uniform(0, 2))
    if not positive and generator.random() < 0.5:
        q[0, generator.integers(m)] = 0
    scores = generator.integers(0, 4, size=k * m).astype(float)
    scores[:: int(generator.integers(2, 6))] = -np.inf
    if generator.random() < 0.5:
        scores = generator.permutation(k * m).astype(float)
    p, q = (law / law.sum(axis=1, keepdims=True) / k for law in (p, q))
    return p.ravel(), q.ravel(), scores


# --- the exact law ------------------------------------------------------------------------------------


def test_law_of_two_outcomes_by_hand():
    # The better outcome of probability a wins unless all rounds give the other: 1 - f(1 - a).
    law = selection_law([0.3, 0.7], [1.0, -np.inf], GeometricRounds(0.2))
    worse = 0.2 * 0.7 / (1 - 0.8 * 0.7)
    np.testing.assert_allclose(law, [1 - worse, worse], rtol=1e-14)


def test_law_by_enumeration_of_all_sequences_of_rounds():
    p, scores = np.array([0.2, 0.1, 0.4, 0.3]), np.array([1.0, 2.0, 1.0, -np.inf])
    for rounds, longest in ((GeometricRounds(0.4, cutoff=4), 4), (GeometricRounds(0.5, cutoff=6), 6)):
        expected = np.zeros(4)
        for k in range(1, longest + 1):
            chance = 0.4 if rounds.tau == 0.4 else 0.5
            of_k = chance * (1 - chance) ** (k - 1) if k < longest else (1 - chance) ** (k - 1)
            for sequence in np.ndindex(*[4] * k):
                best = max(sequence, key=lambda i: scores[i])  # the first among ties
                expected[best] += of_k * np.prod(p[list(sequence)])
        np.testing.assert_allclose(selection_law(p, scores, rounds), expected, rtol=1e-12)


@pytest.mark.parametrize("rounds", [GeometricRounds(0.3), NegativeBinomialRounds(1.0, 0.3)])
def test_geometric_is_the_negative_binomial_of_shape_one(rounds):
    p, _, scores = random_pair(rng(4))
    np.testing.assert_allclose(
        selection_law(p, scores, rounds),
        selection_law(p, scores, GeometricRounds(0.3)),
        rtol=1e-9,
        atol=1e-15,
    )
    assert rounds.mean == pytest.approx(1 / 0.3)


def test_the_mechanism_has_the_exact_law():
    """Frequencies of 2,000 runs; chi-square with a false-fail rate of 1e-6."""
    laws = {1.0: [0.5, 0.3, 0.2], 2.0: [0.2, 0.2, 0.6]}  # outcomes 0, 1, refusal
    one = Guarantee("ex-ante", 1.0, Neighbours.ADD_REMOVE)

    def run(data, proposal, generator):
        outcome = generator.choice(3, p=laws[proposal])
        return Release(Refused("no") if outcome == 2 else int(outcome), one)

    exact = selection_law(
        np.concatenate([np.array(laws[1.0]), np.array(laws[2.0])]) / 2,
        [0, 1, -np.inf, 0, 1, -np.inf],
        GeometricRounds(0.4, cutoff=5),
    )
    exact = np.append(exact[[0, 1, 3, 4]], exact[2] + exact[5])
    counts, generator = np.zeros(5), rng(5)
    for _ in range(2000):
        release = private_selection(
            None,
            run=run,
            proposals=[1.0, 2.0],
            score=float,
            guarantee=one,
            tau=0.4,
            delta=0.1,
            cutoff=5,
            rng=generator,
        )
        counts[4 if release.refused else 2 * release.index + release.value] += 1
    statistic = np.sum((counts - 2000 * exact) ** 2 / (2000 * exact))
    assert statistic < 33.4  # chi-square with 4 degrees of freedom: P(larger) = 1e-6


# --- every bound against exact laws -------------------------------------------------------------------


def test_profile_holds_on_random_finite_mechanisms():
    """900 pairs, three epsilons, with and without cut-off, ties and refusals included."""
    generator = rng(1)
    used = 0
    for trial in range(900):
        p, q, scores = random_pair(generator)
        tau = 10 ** generator.uniform(-3, -0.1)
        cutoff = None if trial % 3 else int(generator.integers(1, 40))
        rounds = GeometricRounds(tau, cutoff)
        exact = FiniteCurve(selection_law(p, scores, rounds), selection_law(q, scores, rounds))
        bound = SelectionCurve(FiniteCurve(p, q), tau, cutoff)
        for epsilon in (0.2, 1.0, 3.0, 6.0):
            claimed = bound.delta(epsilon)
            assert exact.delta(epsilon) <= claimed + 1e-13
            used += claimed < 1
    assert used > 400  # the bound says something often enough


def test_every_first_epsilon_is_valid_and_the_chosen_one_is_best():
    generator = rng(2)
    for _ in range(100):
        p, q, _ = random_pair(generator)
        tau, curve = 10 ** generator.uniform(-3, -0.1), FiniteCurve(p, q)
        bound = SelectionCurve(curve, tau)
        firsts = np.linspace(0, 8, 200)
        shifts = [2 * math.log(math.exp(e) + (1 - tau) / tau * curve.delta(e)) for e in firsts]
        assert bound.shift <= min(shifts) * (1 + 1e-9) + 1e-9
        at = 2 * math.log(math.exp(bound.first) + (1 - tau) / tau * curve.delta(bound.first))
        assert bound.shift == pytest.approx(at, rel=1e-9, abs=1e-12)


def test_pairs_and_the_quoted_theorem_hold_and_follow_from_the_profile():
    generator = rng(3)
    for _ in range(600):
        p, q, scores = random_pair(generator)
        tau, epsilon = 10 ** generator.uniform(-2, -0.1), generator.uniform(0.1, 2)
        delta = FiniteCurve(p, q).delta(epsilon)
        if not 0 <= delta < 1:
            continue
        exact = FiniteCurve(*(selection_law(law, scores, GeometricRounds(tau)) for law in (p, q)))
        total, failing = pair_bound(epsilon=epsilon, delta=delta, tau=tau)
        assert exact.delta(total) <= failing + 1e-13
        assert SelectionCurve(PairCurve(epsilon, delta), tau).delta(total * (1 + 1e-12)) <= min(
            failing, 1
        ) * (1 + 1e-9)
        delta2 = 10 ** generator.uniform(-4, -1)
        cutoff = math.ceil(math.log(1 / delta2) / tau)
        cut = FiniteCurve(*(selection_law(law, scores, GeometricRounds(tau, cutoff)) for law in (p, q)))
        total, failing = liu_talwar_pair(epsilon=epsilon, delta=delta, tau=tau, delta2=delta2)
        assert cut.delta(total) <= failing + 1e-13
        if failing < 1:
            assert SelectionCurve(PairCurve(epsilon, delta), tau, cutoff).delta(total) <= failing


def test_pure_rounds_cost_three_epsilon():
    curve = SelectionCurve(PairCurve(0.5), 0.01)
    assert curve.shift == pytest.approx(1.0)
    assert curve.epsilon(0.0) == pytest.approx(1.5)
    assert curve.delta(curve.epsilon(0.0)) == 0
    # Where most selections are of one round, less.
    assert SelectionCurve(PairCurve(0.5), 0.9).shift < 0.06


def test_three_epsilon_is_nearly_attained():
    # Outcomes: a rare best one that the record doubles, and one that is best of the rest.
    e, tau = 0.5, 1e-3
    rare = 1e-7
    p = np.array([rare * math.exp(e), 1 - rare * math.exp(e)])
    q = np.array([rare, 1 - rare])
    scores = [1.0, 0.0]
    exact = FiniteCurve(*(selection_law(law, scores, GeometricRounds(tau)) for law in (p, q)))
    assert exact.epsilon(0.0) == pytest.approx(e, rel=1e-3)  # the best outcome alone shows e ...
    p = np.array([0.02 * math.exp(-e), 1e-9 * math.exp(e), 1 - 0.02 * math.exp(-e) - 1e-9 * math.exp(e)])
    q = np.array([0.02, 1e-9, 1 - 0.02 - 1e-9])
    exact = FiniteCurve(*(selection_law(law, [2.0, 1.0, 0.0], GeometricRounds(1e-4)) for law in (p, q)))
    assert exact.epsilon(0.0) > 2.95 * e  # ... the second best nearly 3 e
    assert exact.epsilon(0.0) <= SelectionCurve(FiniteCurve(p, q), 1e-4).epsilon(0.0) <= 3 * e * (1 + 1e-9)


def test_profile_is_valid_and_close_on_adversarial_mechanisms():
    """300 rounds whose best outcome shrinks and whose second best grows; the bound is attained within 1 %."""
    generator, closest = rng(13), math.inf
    for _ in range(300):
        e, tau = generator.uniform(0.1, 1.5), 10 ** generator.uniform(-6, -1)
        top, second = tau * 10 ** generator.uniform(0, 3), tau * 10 ** generator.uniform(-3, 0)
        if top > 0.1:
            continue
        p = np.array([top * math.exp(-e), second * math.exp(e), 0.0])
        q = np.array([top, second, 0.0])
        p[2], q[2] = 1 - p.sum(), 1 - q.sum()
        exact = FiniteCurve(*(selection_law(law, [2.0, 1.0, 0.0], GeometricRounds(tau)) for law in (p, q)))
        bound = SelectionCurve(FiniteCurve(p, q), tau)
        for delta in (0.0, float(exact.delta(0.0)) / 2):
            assert exact.epsilon(delta) <= bound.epsilon(delta) * (1 + 1e-9)
        closest = min(closest, bound.epsilon(0.0) / exact.epsilon(0.0))
    assert closest < 1.01


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.5, 1.0, 4.0])
def test_negative_binomial_bound_holds(shape):
    generator = rng(10)
    orders = (1.2, 1.5, 2.0, 4.0, 16.0)
    for _ in range(300):
        p, q, scores = random_pair(generator, positive=True)
        rounds = NegativeBinomialRounds(shape, 10 ** generator.uniform(-2, -0.1))
        curve = FiniteCurve(p, q)
        exact = FiniteCurve(*(selection_law(law, scores, rounds) for law in (p, q)))
        bound = negative_binomial_renyi(curve.renyi, rounds=rounds, orders=orders)
        assert all(exact.renyi(a) <= b + 1e-6 for a, b in zip(orders, bound, strict=True))


def test_poisson_bound_holds():
    generator = rng(11)
    orders = (1.5, 2.0, 4.0, 16.0)
    for _ in range(1000):
        p, q, scores = random_pair(generator, positive=True)
        rounds = PoissonRounds(10 ** generator.uniform(0, 1.4))
        curve = FiniteCurve(p, q)
        exact = []
        for law in (p, q):
            selected = selection_law(law, scores, rounds)
            exact.append(np.append(selected, 1 - selected.sum()))  # no round at all
            assert exact[-1][-1] == pytest.approx(math.exp(-rounds.mean), abs=1e-12)
            exact[-1][-1] = math.exp(-rounds.mean)
        bound = poisson_renyi(curve.renyi, curve.delta, rounds=rounds, orders=orders)
        assert all(FiniteCurve(*exact).renyi(a) <= b + 1e-6 for a, b in zip(orders, bound, strict=True))


# --- dp-accounting ------------------------------------------------------------------------------------

ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 19.0, 32.0, 64.0, 128.0)


@pytest.mark.parametrize(("shape", "mean"), [(1.0, 5.0), (0.0, 5.0), (0.5, 5.0), (5.0, 15.4)])
def test_renyi_bound_agrees_with_dp_accounting(shape, mean):
    from scipy.optimize import brentq

    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(4.0), mean, shape)
    accountant = RdpAccountant(ORDERS).compose(event)
    gamma = brentq(lambda g: NegativeBinomialRounds(shape, g).mean - mean, 1e-6, 1 - 1e-9)
    rounds = NegativeBinomialRounds(shape, gamma)
    curve = RenyiSelectionCurve(GaussianCurve(0.25), rounds, ORDERS)
    assert curve.epsilon(1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)
    assert curve.delta(2.0) >= accountant.get_delta(2.0) * (1 - 1e-9)  # theirs tries a second conversion
    assert curve.delta(curve.epsilon(1e-5)) == pytest.approx(1e-5, rel=1e-6)


def test_poisson_bound_agrees_with_dp_accounting():
    """They derive the delta of one round from the Rényi divergences; with that delta the numbers agree."""
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(4.0), 5.0, math.inf)
    theirs = RdpAccountant(ORDERS).compose(event).get_epsilon(1e-5)
    gaussian, one = GaussianCurve(0.25), RdpAccountant(ORDERS).compose(dp_accounting.GaussianDpEvent(4.0))
    same = poisson_renyi(gaussian.renyi, one.get_delta, rounds=PoissonRounds(5.0), orders=ORDERS)
    a = np.array(ORDERS)
    converted = np.min(same + np.log1p(-1 / a) - (math.log(1e-5) + np.log(a)) / (a - 1))
    assert converted == pytest.approx(theirs, rel=1e-6)
    assert RenyiSelectionCurve(gaussian, PoissonRounds(5.0), ORDERS).epsilon(1e-5) < theirs


# --- calibration --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposals", "factor", "expected"),
    [(30, 0.1, (26.18, 15.13, 11.06)), (30, 0.05, (26.64, 15.49, 11.59)), (10, 0.1, (25.44, 14.53, 10.16))],
)
def test_calibration_of_erratum_13(proposals, factor, expected):
    found = [
        gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=factor / proposals, bound=bound)
        for bound in ("liu-talwar", "pair", "profile")
    ]
    np.testing.assert_allclose(found, expected, atol=0.0055)  # 15.125 is printed as 15.13


def test_table_of_calibrations():
    row = calibration_table([(30, 0.1)]).iloc[0]
    # The Rényi bound with the same law of the number of rounds lies between the profile and the pair.
    assert row["profile"] < row["renyi"] < row["pair"] < row["liu_talwar"]
    assert row["renyi"] == pytest.approx(12.07, abs=0.01)
    poisson = PoissonRounds(row["poisson_mean"])
    assert float(poisson.generating(1 - 1 / 30)) == pytest.approx(1 - row["tried"], rel=1e-9)


def test_calibrated_noise_is_just_enough():
    for cutoff in (None, 6000):
        sigma = gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=0.1 / 30, cutoff=cutoff)
        assert SelectionCurve(GaussianCurve(1 / sigma), 0.1 / 30, cutoff).delta(1.0) <= 1e-6
        assert SelectionCurve(GaussianCurve(1.001 / sigma), 0.1 / 30, cutoff).delta(1.0) > 1e-6
        one = Guarantee("ex-ante", 1.0, Neighbours.ADD_REMOVE, 1e-3, curve=GaussianCurve(1 / sigma))
        total = selection_guarantee(one, tau=0.1 / 30, delta=1e-6, cutoff=cutoff)
        assert total.epsilon == pytest.approx(1.0, rel=1e-6)
    # A single round costs nothing.
    assert gaussian_delta(1.0, 1 / gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=1.0)) == pytest.approx(
        1e-6
    )
    wide = gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=0.01, sensitivity=3.0)
    assert wide == pytest.approx(3 * gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=0.01))


def test_pair_curve_is_the_worst_of_its_pair():
    generator = rng(12)
    for _ in range(500):
        p, q, _ = random_pair(generator)
        curve, level = FiniteCurve(p, q), generator.uniform(0, 2)
        if curve.delta(level) >= 1:
            continue
        pair = PairCurve(level, curve.delta(level))
        for epsilon in (-1.0, 0.0, level / 2, level, level + 1):
            assert curve.delta(epsilon) <= pair.delta(epsilon) + 1e-12
        for delta in (pair.failure, (1 + pair.failure) / 2, 1.0):
            assert pair.delta(pair.epsilon(delta)) <= delta * (1 + 1e-12)
    assert PairCurve(1.0, 0.1).epsilon(0.05) == math.inf


# --- Theorem B.2.3 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.9999, 0.5, 0.05, 1 / 300])
def test_expected_quantile_against_the_sum(tau):
    k = np.arange(1, 200_000 if tau < 0.1 else 3000)
    expected = np.sum(tau * (1 - tau) ** (k - 1) * (1 - 1 / (k + 1)))
    assert GeometricRounds(tau).expected_quantile() == pytest.approx(expected, rel=1e-12)
    for cutoff in (1, 2, 7, 500):
        law = tau * (1 - tau) ** (np.arange(1, cutoff + 1) - 1)
        law[-1] = (1 - tau) ** (cutoff - 1)
        expected = np.sum(law * (1 - 1 / (np.arange(1, cutoff + 1) + 1)))
        assert GeometricRounds(tau, cutoff).expected_quantile() == pytest.approx(expected, rel=1e-12)
        assert GeometricRounds(tau, cutoff).mean == pytest.approx(np.sum(law * np.arange(1, cutoff + 1)))


def test_expected_quantile_by_simulation():
    generator = rng(6)
    rounds = GeometricRounds(0.05, cutoff=30)
    runs = 20_000
    k = np.array([rounds.draw(generator) for _ in range(runs)])
    best = generator.random(runs) ** (1 / k)  # law of the largest of k uniform numbers
    assert abs(best.mean() - rounds.expected_quantile()) < 5 * best.std() / math.sqrt(runs)  # 6e-7


def test_probability_that_the_best_is_tried():
    assert GeometricRounds(0.1 / 30).probability_tried(30) == pytest.approx(0.9119, abs=5e-5)
    assert GeometricRounds(0.05 / 30).probability_tried(30) == pytest.approx(0.9539, abs=5e-5)
    tau, k = 0.02, 7
    formula = 1 - tau * (1 - 1 / k) / (1 - (1 - tau) * (1 - 1 / k))
    assert GeometricRounds(tau).probability_tried(k) == pytest.approx(formula, rel=1e-13)
    generator, hits = rng(7), 0
    for _ in range(5000):
        hits += bool((generator.integers(k, size=GeometricRounds(tau, 10).draw(generator)) == 0).any())
    exact = GeometricRounds(tau, 10).probability_tried(k)
    assert abs(hits / 5000 - exact) < 5 * math.sqrt(exact * (1 - exact) / 5000)


def test_first_order_step_is_no_probability():
    frame = flaws.first_order_step()
    at = frame[(frame.proposals == 30) & (frame.factor == 0.1)].iloc[0]
    assert at.printed_missed == pytest.approx(-9.0)
    assert at.missed == pytest.approx(1 - 0.9119, abs=5e-5)
    assert (frame.missed.between(0, 1)).all()


def test_a_refusal_must_have_the_worst_score():
    frame = flaws.refusal_scores()
    worst, zero = frame.set_index("refusal_score").published_refusal.loc[["worst", "zero"]]
    assert worst == pytest.approx(0.1 / 30 * 0.3 / (1 - (1 - 0.1 / 30) * 0.3))
    assert zero > 0.99


@pytest.mark.parametrize(
    "rounds", [PoissonRounds(3.0), NegativeBinomialRounds(0.0, 0.1), NegativeBinomialRounds(2.5, 0.3)]
)
def test_laws_of_rounds(rounds):
    generator = rng(8)
    k = np.array([rounds.draw(generator) for _ in range(20_000)])
    assert abs(k.mean() - rounds.mean) < 5 * k.std() / math.sqrt(k.size)
    for x in (0.0, 0.5, 0.9, 1.0):
        sampled = x**k
        assert abs(sampled.mean() - rounds.generating(x)) < 5 * sampled.std() / math.sqrt(k.size) + 1e-12
    step = 1e-6
    slope = (rounds.generating(1.0) - rounds.generating(1 - step)) / step
    assert slope == pytest.approx(rounds.mean, rel=1e-3)


# --- the mechanism ------------------------------------------------------------------------------------

ONE = Guarantee("ex-ante", 0.5, Neighbours.ADD_REMOVE, 1e-9)


def answer(value, guarantee=ONE):
    return lambda data, proposal, generator: Release(value, guarantee)


def select(**changes):
    arguments = {
        "run": answer(1.0),
        "proposals": [1.0, 2.0],
        "score": float,
        "guarantee": ONE,
        "tau": 0.1,
        "delta": 1e-6,
        "rng": rng(),
    }
    return private_selection(None, **{**arguments, **changes})


def test_release_of_a_selection():
    release = select()
    assert release.value == 1.0
    assert release.index in (0, 1)
    assert release.guarantee.delta == 1e-6
    assert ONE.epsilon < release.guarantee.epsilon < 1.6
    assert release.guarantee.curve.delta(release.guarantee.epsilon) <= 1e-6
    assert len(release.trace["scores"]) == release.trace["rounds"]


def test_all_refused_is_a_refusal_with_its_guarantee():
    release = select(run=answer(Refused("failed")))
    assert release.refused
    assert release.index is None
    assert release.guarantee == select().guarantee
    assert release.trace["refusals"] == release.trace["rounds"]


def test_any_answer_beats_a_refusal():
    def run(data, proposal, generator):
        return Release(-5.0 if proposal == "good" else Refused("failed"), ONE)

    found = [
        select(run=run, proposals=("bad", "good"), score=lambda v: math.nan, tau=0.01, rng=rng(i))
        for i in range(20)
    ]
    assert all(
        release.value == -5.0 and release.index == 1 for release in found if release.trace["rounds"] > 40
    )
    assert any(release.trace["rounds"] > 40 for release in found)


@pytest.mark.audit
def test_audit_of_selected_randomised_response():
    """A pure round at 0.7 and its selection at most 2.1; false-fail rate below 1e-6."""
    one = Guarantee("ex-ante", 0.7, Neighbours.ADD_REMOVE)
    truth = math.exp(0.7) / (1 + math.exp(0.7))

    def run(data, proposal, generator):
        return Release(int(data if generator.random() < truth else 1 - data), one)

    def once(data, generator):
        return private_selection(
            data, run=run, proposals=["only"], score=float, guarantee=one, tau=0.3, delta=0.0, rng=generator
        ).value

    result = audit.lower_bound(
        audit.one_by_one(once),
        (0, 1),
        events=audit.for_each(lambda value: value == 1),
        runs=4000,
        confidence=1 - 1e-6,
        rng=rng(9),
    )
    claim = selection_guarantee(one, tau=0.3, delta=0.0).epsilon
    assert result.passes(claim)
    assert result.lower > 0.7  # selection costs something: one round's guarantee is refuted


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"proposals": []}, ValueError, "proposals"),
        ({"proposals": [2.0, 1.0]}, ValueError, "increasing"),
        ({"proposals": [1.0, 1.0]}, ValueError, "increasing"),
        ({"proposals": [-1.0, 1.0]}, ValueError, "positive"),
        ({"proposals": "ab"}, TypeError, "proposals"),
        ({"proposals": 3}, TypeError, "proposals"),
        ({"tau": 0.0}, ValueError, "tau"),
        ({"tau": 1.5}, ValueError, "tau"),
        ({"tau": "x"}, TypeError, "tau"),
        ({"cutoff": 0}, ValueError, "cutoff"),
        ({"cutoff": 2.5}, TypeError, "cutoff"),
        ({"delta": 1e-9}, ValueError, "delta"),
        ({"delta": 1e-6, "cutoff": 5}, ValueError, "delta"),
        ({"delta": -1.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"rng": 3}, TypeError, "rng"),
        ({"run": None}, TypeError, "run"),
        ({"score": 1}, TypeError, "score"),
        ({"guarantee": 1.0}, TypeError, "Guarantee"),
        ({"guarantee": Guarantee("ex-post", 0.5, Neighbours.ADD_REMOVE)}, ValueError, "ex-ante"),
        ({"guarantee": Guarantee("ex-ante", math.inf, Neighbours.ADD_REMOVE)}, ValueError, "infinite"),
    ],
)
def test_bad_input_before_any_round(changes, error, words):
    def never(data, proposal, generator):
        raise AssertionError("a round was run")

    with pytest.raises(error, match=words):
        select(**{"run": never, **changes})


def test_a_round_that_breaks_the_declared_guarantee_is_an_error():
    curve = GaussianCurve(0.05)
    declared = Guarantee("ex-ante", 0.3, Neighbours.ADD_REMOVE, 1e-6, curve=curve)
    worse = Guarantee("ex-ante", 0.4, Neighbours.ADD_REMOVE, 1e-6, curve=GaussianCurve(0.06))
    for promised, found in (
        (ONE, Guarantee("ex-ante", 0.6, Neighbours.ADD_REMOVE, 1e-9)),
        (ONE, Guarantee("ex-ante", 0.5, Neighbours.ADD_REMOVE, 1e-8)),
        (ONE, Guarantee("ex-ante", 0.5, Neighbours.REPLACE_ONE, 1e-9)),
        (declared, worse),
        (declared, Guarantee("ex-ante", 0.3, Neighbours.ADD_REMOVE, 1e-6)),
    ):
        with pytest.raises(ValueError, match="declared guarantee"):
            select(run=answer(1.0, found), guarantee=promised)
    with pytest.raises(TypeError, match="Release"):
        select(run=lambda data, proposal, generator: 1.0)
    assert select(run=answer(1.0, declared), guarantee=declared).value == 1.0
    better = Guarantee("ex-ante", 0.3, Neighbours.ADD_REMOVE, 1e-6, curve=GaussianCurve(0.04))
    assert select(run=answer(1.0, better), guarantee=declared).value == 1.0


def test_validation_rows_must_not_be_training_rows():
    check_disjoint([0, 1, 2], [3, 4])
    with pytest.raises(ValueError, match="overlap training_rows: 1 in both, such as 2"):
        check_disjoint([0, 1, 2], [2, 4])
    with pytest.raises(ValueError, match="validation_rows"):
        check_disjoint([0], [])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: gaussian_run_sigma(epsilon=0.0, delta=1e-6, tau=0.1), ValueError),
        (lambda: gaussian_run_sigma(epsilon=1.0, delta=0.0, tau=0.1), ValueError),
        (lambda: gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=0.1, bound="best"), ValueError),
        (lambda: gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=0.1, cutoff=3), ValueError),
        (lambda: gaussian_run_sigma(epsilon=1.0, delta=1e-6, tau=0.1, cutoff=300, bound="pair"), ValueError),
        (lambda: PairCurve(-1.0), ValueError),
        (lambda: PairCurve(1.0, 1.0), ValueError),
        (lambda: SelectionCurve(GaussianCurve, 0.1), TypeError),
        (lambda: SelectionCurve(GaussianCurve(1.0), 0.0), ValueError),
        (lambda: selection_law([0.5, 0.4], [1, 2], GeometricRounds(0.1)), ValueError),
        (lambda: selection_law([0.5, 0.5], [1, math.nan], GeometricRounds(0.1)), ValueError),
        (lambda: selection_law([0.5, 0.5], [1], GeometricRounds(0.1)), ValueError),
        (lambda: PoissonRounds(0.5), ValueError),
        (lambda: NegativeBinomialRounds(-1.0, 0.5), ValueError),
        (lambda: NegativeBinomialRounds(1.0, 1.0), ValueError),
        (lambda: RenyiSelectionCurve(PairCurve(1.0), GeometricRounds(0.1)), TypeError),
        (lambda: RenyiSelectionCurve(GaussianCurve(1.0), GeometricRounds(0.1, 5)), ValueError),
        (lambda: RenyiSelectionCurve(GaussianCurve(1.0), GeometricRounds(0.1), (1.0, 2.0)), ValueError),
        (lambda: GeometricRounds(0.1).probability_tried(0), ValueError),
    ],
)
def test_bad_input_of_the_calculators(call, error):
    with pytest.raises(error):
        call()
