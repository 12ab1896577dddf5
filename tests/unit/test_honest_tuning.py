"""Tuning DP-SGD: the number of candidates, Theorem 6 on exact laws, scores that are paid for, honest labels."""

from __future__ import annotations

import itertools
import logging
import math
import pickle

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import HuberLoss
from adaptive_dp.objective_perturbation import tuning
from adaptive_dp.objective_perturbation.dp_sgd import Schedule
from adaptive_dp.objective_perturbation.sampled_gaussian import SampledGaussianCurve
from adaptive_dp.objective_perturbation.tuning import (
    LogUniform,
    NoisyScore,
    PublicScore,
    dishonest_dp_sgd,
    draw_rates,
    honest_curve,
    honest_dp_sgd,
    honest_noise_multiplier,
    learning_rates,
    noise_multiplier,
    noise_table,
    poisson_mean,
    right_answers,
    same_records,
    select_best,
)
from adaptive_dp.objective_perturbation.tuning_accounting import CandidateCurve
from adaptive_dp.privacy import Domain
from adaptive_dp.ptr.selection_renyi import PoissonRounds, poisson_renyi

DOMAIN = Domain("l2", 1.0, "sign", 1.0)
ADULT = {"sampling": 256 / 36_176, "steps": 8520}


def dataset(rows=300, columns=4, seed=0):
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Dataset(X, np.where(X @ np.arange(1, columns + 1) > 0, 1.0, -1.0), DOMAIN)


# --- candidates ---------------------------------------------------------------------------------------


def test_mean_of_the_thesis():
    assert poisson_mean() == pytest.approx(15.4066, abs=5e-5)
    for grid, probability in ((10, 0.9), (0, 0.5), (5, 0.99)):
        assert stats.poisson.sf(grid, poisson_mean(grid, probability)) == pytest.approx(
            probability, rel=1e-12
        )


def test_grid_of_the_thesis_and_draws_with_replacement():
    grid = learning_rates()
    assert grid.size == 10
    np.testing.assert_allclose(grid[[0, -1]], [1e-8, 0.1])
    np.testing.assert_allclose(np.diff(np.log(grid)), math.log(1e7) / 9)
    drawn = draw_rates(grid, 20_000, np.random.default_rng(0))
    counts = (drawn[:, np.newaxis] == grid).sum(axis=0)
    assert counts.sum() == 20_000
    assert stats.chisquare(counts).pvalue > 1e-4  # false alarm 1e-4, seed fixed
    pairs = (drawn[::2] == drawn[1::2]).sum()
    assert stats.binomtest(int(pairs), 10_000, 0.1).pvalue > 1e-4


def test_log_uniform_law():
    drawn = LogUniform(1e-6, 0.1).draw(20_000, np.random.default_rng(0))
    assert stats.kstest(np.log(drawn), stats.uniform(math.log(1e-6), math.log(1e5)).cdf).pvalue > 1e-4
    with pytest.raises(ValueError, match="low"):
        LogUniform(0.1, 1e-6)


# --- the law of the winner, exactly -------------------------------------------------------------------


class Fixed:
    """A number of candidates that is known."""

    def __init__(self, count):
        self.count = count

    def draw(self, rng):
        return self.count


def winner_law(law, scores, mean):
    """Exhaustive over K and over all tuples of K outcomes while they are few; ``select_best`` does the choosing."""
    total = np.zeros(len(law) + 1)
    for k in range(7):
        weight = math.exp(-mean) * mean**k / math.factorial(k)
        for outcomes in itertools.product(range(len(law)), repeat=k):
            listed = [(scores[i], i) for i in outcomes]
            winner = select_best(
                lambda count, rng, listed=listed: listed,
                rounds=Fixed(k),
                fallback=len(law),
                rng=np.random.default_rng(0),
            )
            total[winner] += weight * math.prod(law[i] for i in outcomes)
    return total


def closed_law(law, scores, mean):
    """The same for all K: e^{m (F - 1)} at the ends of each block of tied scores, shared in proportion."""
    total = np.zeros(len(law) + 1)
    total[-1] = math.exp(-mean)
    below = 0.0
    for level in sorted(set(scores)):
        block = [i for i, s in enumerate(scores) if s == level]
        weight = sum(law[i] for i in block)
        gain = math.exp(-mean) * math.exp(mean * below) * math.expm1(mean * weight)
        for i in block:
            total[i] = gain * law[i] / weight
        below += weight
    return total


def test_select_best_has_the_closed_law_ties_included():
    law, scores, mean = [0.2, 0.5, 0.3], [1.0, 1.0, 0.5], 1.2
    found, closed = winner_law(law, scores, mean), closed_law(law, scores, mean)
    missing = stats.poisson.sf(6, mean)
    assert closed.sum() == pytest.approx(1, abs=1e-14)
    assert (found <= closed + 1e-15).all()
    assert closed.sum() - found.sum() == pytest.approx(missing, rel=1e-9)
    assert (closed - found).max() <= missing


def renyi(p, q, order):
    return float(np.log(np.sum(p**order * q ** (1 - order))) / (order - 1))


class Finite:
    """Both directions of two finite laws."""

    def __init__(self, p, q):
        self.p, self.q = np.asarray(p), np.asarray(q)

    def renyi(self, order):
        return max(renyi(self.p, self.q, order), renyi(self.q, self.p, order))

    def delta(self, epsilon):
        e = math.exp(epsilon)
        return max(
            float(np.maximum(self.p - e * self.q, 0).sum()), float(np.maximum(self.q - e * self.p, 0).sum())
        )


@pytest.mark.parametrize("mean", [1.0, 3.0, 15.4])
def test_the_winner_never_exceeds_the_theorem(mean):
    """200 finite mechanisms, public scores with ties: the exact law, K = 0 included."""
    rng = np.random.default_rng(4)
    orders = (1.2, 2.0, 5.0, 20.0)
    tightest = math.inf
    for _ in range(200):
        size = int(rng.integers(2, 6))
        p = rng.dirichlet(np.ones(size))
        q = p * np.exp(rng.uniform(-0.3, 0.3, size))
        q /= q.sum()
        scores = rng.integers(0, 3, size).astype(float)
        one = Finite(p, q)
        exact = Finite(closed_law(p, scores, mean), closed_law(q, scores, mean))
        bound = poisson_renyi(one.renyi, one.delta, rounds=PoissonRounds(mean), orders=orders)
        for order, limit in zip(orders, bound, strict=True):
            assert exact.renyi(order) <= limit * (1 + 1e-9) + 1e-12
            tightest = min(tightest, limit - exact.renyi(order))
    assert tightest < 1.0


def test_a_score_that_looks_at_private_records_is_not_free():
    """Candidates that ignore the data, compared by a private score: the loss is far above the theorem's bound."""
    law = [0.5, 0.5]
    exact = Finite(closed_law(law, [1.0, 0.0], 15.4), closed_law(law, [0.0, 1.0], 15.4))
    one = Finite(law, law)
    (bound,) = poisson_renyi(one.renyi, one.delta, rounds=PoissonRounds(15.4), orders=(20.0,))
    assert bound < 0.15
    assert exact.renyi(20.0) > 40 * bound


# --- accounting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.025, 1.0, 8.0])
def test_honest_noise_is_on_the_safe_side_and_larger(epsilon):
    sigma = honest_noise_multiplier(epsilon=epsilon, delta=1e-5, **ADULT)
    spent = honest_curve(sigma=sigma, **ADULT).epsilon(1e-5)
    assert epsilon * (1 - 1e-9) <= spent <= epsilon
    assert sigma > 1.5 * noise_multiplier(epsilon=epsilon, delta=1e-5, **ADULT)


def test_honest_bound_agrees_with_dp_accounting():
    """At whole orders, where their divergences are exact; the grids of orders differ."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    sigma = honest_noise_multiplier(epsilon=1.0, delta=1e-5, **ADULT)
    step = dp_accounting.PoissonSampledDpEvent(ADULT["sampling"], dp_accounting.GaussianDpEvent(sigma))
    run = dp_accounting.SelfComposedDpEvent(step, ADULT["steps"])
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(run, tuning.MEAN, math.inf)
    theirs = RdpAccountant(list(range(2, 64))).compose(event).get_epsilon(1e-5)
    assert theirs == pytest.approx(1.0, rel=1e-3)


def test_numerical_profile_saves_noise():
    case = {"epsilon": 1.0, "delta": 1e-5, "sampling": 0.1, "steps": 50}
    sigma = honest_noise_multiplier(**case, accountant="numerical")
    assert 0.6 < sigma / honest_noise_multiplier(**case) < 0.9
    curve = honest_curve(sigma=sigma, sampling=0.1, steps=50, accountant="numerical")
    assert curve.delta(1.0) <= 1e-5 * (1 + 1e-9)


def test_noisy_scores_are_paid_for():
    """On the training records losses add; on other people's the larger one counts."""
    case = {"epsilon": 1.0, "delta": 1e-5, **ADULT}
    public = honest_noise_multiplier(**case)
    assert honest_noise_multiplier(**case, score_sigma=30.0) > public * 1.01
    assert honest_noise_multiplier(**case, score_sigma=1e6) == pytest.approx(public, rel=1e-3)
    assert honest_noise_multiplier(**case, score_sigma=100.0, disjoint=True) == public
    with pytest.raises(ValueError, match="noise multiplier"):
        honest_noise_multiplier(**case, score_sigma=1.0)
    with pytest.raises(ValueError, match="noise multiplier"):
        honest_noise_multiplier(**case, score_sigma=1.0, disjoint=True)
    run = SampledGaussianCurve(0.1, 2.0, 10)
    both = SampledGaussianCurve(0.1, 2.0, 10, 0.5)
    score = GaussianCurve(0.5)
    apart = CandidateCurve(run, 0.5)
    for order in (1.5, 3.0, 40.0):
        assert both.renyi(order) == pytest.approx(run.renyi(order) + score.renyi(order))
        assert apart.renyi(order) == max(run.renyi(order), score.renyi(order))
    assert apart.delta(0.3) == max(run.delta(0.3), score.delta(0.3))
    assert apart.epsilon(1e-5) == max(run.epsilon(1e-5), score.epsilon(1e-5))


def test_table():
    table = noise_table(**ADULT, analysis=None)
    assert table["epsilon"].tolist() == [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert (np.diff(table["single"]) < 0).all()
    assert (np.diff(table["honest"]) < 0).all()
    assert (np.diff(table["price"]) < 0).all()
    assert table["price"].between(1.6, 3.2).all()
    np.testing.assert_allclose(table["public_code"], math.sqrt(2) * table["honest"])
    with_algorithm_7 = noise_table((1.0,), **ADULT)
    assert with_algorithm_7["lam"].item() > 0
    assert with_algorithm_7["sigma"].item() > 0


# --- mechanisms ---------------------------------------------------------------------------------------

SCHEDULE = Schedule.of(300, batch=30, epochs=4)
OPTIONS = {"epsilon": 2.0, "delta": 1e-5, "schedule": SCHEDULE}


@pytest.mark.parametrize(
    "score", [PublicScore(dataset(80, seed=5)), NoisyScore(20.0), NoisyScore(20.0, dataset(80, seed=5))]
)
def test_honest_release(score):
    data = dataset()
    release = honest_dp_sgd(data, **OPTIONS, score=score, mean=6.0, rng=np.random.default_rng(1))
    promise, best = release.guarantee, release.value
    assert (promise.kind, promise.epsilon, promise.delta) == ("ex-ante", 2.0, 1e-5)
    assert promise.curve.delta(2.0) == pytest.approx(1e-5, rel=1e-6)
    scores, rates = release.trace["scores"], release.trace["rates"]
    assert release.trace["rounds"] == len(scores) > 1
    assert best.score == max(scores)
    assert best.rate == rates[int(np.argmax(scores))]
    assert set(rates) <= set(learning_rates().tolist())
    assert best.theta.shape == (4,)
    if isinstance(score, PublicScore):
        assert best.score == right_answers(best.theta[np.newaxis], score.records)[0] / 80
        assert release.trace["sigma"] == honest_noise_multiplier(
            epsilon=2.0, delta=1e-5, sampling=0.1, steps=40, mean=6.0
        )
    else:
        assert best.score != round(best.score)
    assert "rounds" not in release.public().trace
    assert pickle.loads(pickle.dumps(release.public())).guarantee.epsilon == 2.0


def test_candidates_are_independent_runs():
    """With a grid of one rate all candidates differ: shared batches or noise would give equal models."""
    release = honest_dp_sgd(
        dataset(),
        **OPTIONS,
        score=NoisyScore(1e-3 * 1e6),
        rates=[0.01],
        mean=8.0,
        rng=np.random.default_rng(2),
    )
    assert len(set(release.trace["scores"])) == release.trace["rounds"] > 2
    public = honest_dp_sgd(
        dataset(),
        **OPTIONS,
        score=PublicScore(dataset(3000, seed=6)),
        rates=[0.01],
        mean=8.0,
        rng=np.random.default_rng(2),
    )
    assert len(set(public.trace["scores"])) > 1


def test_no_candidate_gives_a_constant():
    """K = 0 under mean 1 in a third of the runs; the answer is the same whatever the data."""
    values = []
    for seed in range(40):
        release = honest_dp_sgd(
            dataset(seed=seed),
            **OPTIONS,
            score=PublicScore(dataset(50, seed=99)),
            mean=1.0,
            rng=np.random.default_rng(seed),
        )
        if release.trace["rounds"] == 0:
            values.append(release.value)
    assert 5 < len(values) < 30
    for value in values:
        assert value.rate is None
        assert value.score is None
        assert value.theta.tolist() == [0.0] * 4


def test_dishonest_release_says_so():
    data = dataset()
    release = dishonest_dp_sgd(data, **OPTIONS, records=dataset(80, seed=5), rng=np.random.default_rng(1))
    assert release.guarantee.epsilon == math.inf
    assert release.guarantee.curve is None
    assert "nothing" in release.guarantee.source
    run = release.trace["run"]
    assert (run.epsilon, run.delta) == (2.0, 1e-5)
    assert run.curve.delta(2.0) <= 1e-5
    assert release.trace["sigma"] == noise_multiplier(epsilon=2.0, delta=1e-5, sampling=0.1, steps=40)
    assert len(release.trace["scores"]) == 10
    assert release.value.score == max(release.trace["scores"])
    assert release.value.score > 0.8


@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"score": None}, TypeError, "score"),
        ({"score": PublicScore(None)}, TypeError, "score"),
        ({"score": PublicScore(dataset(20, columns=3))}, ValueError, "score"),
        ({"mean": 0.5}, ValueError, "mean"),
        ({"rates": []}, ValueError, "rates"),
        ({"rates": [-1.0]}, ValueError, "rates"),
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"schedule": None}, TypeError, "schedule"),
        ({"accountant": "gdp"}, ValueError, "accountant"),
        ({"optimiser": "x"}, ValueError, "optimiser"),
        ({"precision": "x"}, ValueError, "precision"),
        ({"score": NoisyScore(0.5)}, ValueError, "noise multiplier"),
        ({"clip": 1e-30, "precision": "single"}, ValueError, "clip must lie between 1e-20"),
        ({"clip": 1e90, "schedule": Schedule(0.1, 5, 1e-90)}, ValueError, "batch must not be so small"),
        ({"rng": 3}, TypeError, "rng"),
    ],
)
def test_honest_refuses_before_any_draw(change, error, name):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    arguments = {**OPTIONS, "score": PublicScore(dataset(20)), "rng": rng, **change}
    with pytest.raises(error, match=name):
        honest_dp_sgd(dataset(), **arguments)
    assert rng.bit_generator.state == state


def test_scores_refuse():
    with pytest.raises(ValueError, match="sigma"):
        NoisyScore(0.0)
    data = dataset()
    with pytest.raises(ValueError, match="other records"):
        honest_dp_sgd(data, **OPTIONS, score=PublicScore(data), rng=np.random.default_rng(0))


@pytest.mark.parametrize("disjoint", ["False", math.nan, None, 1])
def test_disjoint_is_a_truth_value(disjoint):
    with pytest.raises(TypeError, match="disjoint"):
        honest_noise_multiplier(
            epsilon=1.0, delta=1e-5, sampling=0.1, steps=10, score_sigma=5.0, disjoint=disjoint
        )


def copied(data, order=slice(None)):
    return Dataset(data.features[order].copy(), data.labels[order].copy(), data.domain)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["same order", "reversed"])
def test_the_same_people_under_another_name_are_refused(order):
    data = dataset()
    again = copied(data, order)
    assert same_records(data, again)
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    for score in (PublicScore(again), NoisyScore(20.0, again)):
        with pytest.raises(ValueError, match=r"score\.records must be other records"):
            honest_dp_sgd(data, **OPTIONS, score=score, rng=rng)
    with pytest.raises(ValueError, match=r"^records must be other records"):
        dishonest_dp_sgd(data, **OPTIONS, records=again, rng=rng)
    assert rng.bit_generator.state == state


def test_people_who_look_alike_are_not_refused():
    """Single rows may coincide; and the same rows with other labels are other people."""
    data = dataset()
    mixed = Dataset(
        np.vstack([data.features[:10], dataset(290, seed=9).features]),
        np.concatenate([data.labels[:10], dataset(290, seed=9).labels]),
        DOMAIN,
    )
    flipped = Dataset(data.features, np.roll(data.labels, 1), DOMAIN)
    signed = Dataset([[0.0], [1.0]], [1.0, -1.0], DOMAIN)
    assert not same_records(mixed, data)
    assert not same_records(flipped, data)
    assert not same_records(data.take(np.arange(20)), data)
    assert same_records(signed, Dataset([[1.0], [-0.0]], [-1.0, 1.0], DOMAIN))
    release = honest_dp_sgd(data, **OPTIONS, score=PublicScore(mixed), mean=6.0, rng=np.random.default_rng(1))
    assert release.trace["rounds"] >= 1


@pytest.mark.parametrize("records", [None, dataset(20, seed=5), np.eye(4)], ids=["own", "others", "array"])
def test_dishonest_tuning_judges_by_sign_labels_and_names_its_argument(records):
    real = Dataset(dataset().features, np.linspace(-1, 1, 300), Domain("l2", 1.0, "real", 1.0))
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    with pytest.raises((TypeError, ValueError), match=r"^(data|records) must .*(labels -1|be a Dataset)"):
        dishonest_dp_sgd(real, **OPTIONS, loss=HuberLoss(0.5), records=records, rng=rng)
    assert rng.bit_generator.state == state


def test_a_score_that_is_not_a_number_never_beats_one():
    for scores, winner in (
        ([math.nan, 1.0, 2.0], 2),
        ([math.nan, -math.inf], 1),
        ([1.0, math.nan], 0),
        ([math.nan, math.nan], 0),
    ):
        found = select_best(
            lambda count, rng, scores=scores: [(score, i) for i, score in enumerate(scores)],
            rounds=Fixed(len(scores)),
            fallback=None,
            rng=np.random.default_rng(0),
        )
        assert found == winner


def test_arguments_are_named():
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    with pytest.raises(TypeError, match="rounds must be a law"):
        select_best(lambda count, rng: [], rounds=5, fallback=None, rng=rng)
    with pytest.raises(TypeError, match="candidates must be callable"):
        select_best([], rounds=PoissonRounds(2.0), fallback=None, rng=rng)
    for draw in (
        lambda n, g: draw_rates([0.1], n, g),
        LogUniform().draw,
        lambda n, g: draw_rates(LogUniform(), n, g),
    ):
        with pytest.raises(TypeError, match="rng must be"):
            draw(3, 3)
        with pytest.raises(TypeError, match="count must be an integer"):
            draw(1.5, rng)
        with pytest.raises(ValueError, match="count must be at least 0"):
            draw(-1, rng)
    assert rng.bit_generator.state == state
