"""Hessian-shaped output perturbation: exact neighbours, the smallest eigenvalue, the printed versions, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.accounting import gaussian_delta
from adaptive_dp.datasets import Dataset, simulate_unit_rows
from adaptive_dp.losses import LogisticLoss, SquaredLoss
from adaptive_dp.per_instance import Objective
from adaptive_dp.privacy import Domain, Neighbours, Refused
from adaptive_dp.ptr import flaws_glm, glm_experiment
from adaptive_dp.ptr.eigenvalue import (
    GlmConstants,
    glm_constants,
    private_smallest_eigenvalue,
    split_of,
)
from adaptive_dp.ptr.glm import (
    GlmCurve,
    calibrate_gamma,
    glm_ptr,
    logistic_ptr,
    movement,
    ridge_only,
    sample_around,
)
from adaptive_dp.ptr.glm_experiment import CONSTANTS, DOMAIN, gaussian_pair_delta, optimum

LOSS = LogisticLoss()


def crowd(seed=0, rows=4_000, columns=2):
    """People with random labels, whose Hessian has a smallest eigenvalue of about rows / (4 columns)."""
    rng = np.random.default_rng(seed)
    people = simulate_unit_rows(rows, columns, rng)
    return Dataset(people.features, rng.choice([-1.0, 1.0], rows), DOMAIN)


# --- constants ----------------------------------------------------------------------------------------


def test_constants_of_the_logistic_loss():
    assert glm_constants(LOSS, DOMAIN) == GlmConstants(1.0, 1.0, 0.25, 1.0)
    assert glm_constants(LOSS, Domain("l2", 2.0, "sign")) == GlmConstants(2.0, 2.0, 1.0, 4.0)
    u = np.linspace(-40, 40, 4001)
    sums = np.abs(LOSS.derivative(u, 1.0)) + LOSS.second_derivative(u, 1.0)
    assert 1 - 1e-9 < sums.max() <= 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((-1.0, 1.0, 1.0, 0.5), "concordance must be nonnegative"),
        ((1.0, 0.0, 1.0, 0.5), "slope must be positive"),
        ((1.0, 1.0, 0.25, 1.5), "joint must be at most"),
    ],
)
def test_impossible_constants_are_refused(arguments, error):
    with pytest.raises(ValueError, match=error):
        GlmConstants(*arguments)


def test_losses_without_constants_are_refused():
    with pytest.raises(ValueError, match="bounded slope"):
        glm_constants(SquaredLoss(), Domain("l2", 1.0, "real"))
    with pytest.raises(TypeError, match="loss must be a Loss"):
        glm_constants("logistic", DOMAIN)


# --- the exact profile of two Gaussians ---------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 0.3, -2.0])
@pytest.mark.parametrize("precision", [0.5, 0.999999, 1.0, 1.3])
@pytest.mark.parametrize("epsilon", [-0.5, 0.0, 0.4, 2.0])
def test_the_profile_on_the_line_is_the_integral(mean, precision, epsilon):
    w = np.linspace(-14, 14, 400_001)
    p = stats.norm.pdf(w)
    q = stats.norm.pdf(w, mean, 1 / math.sqrt(precision))
    brute = float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), w))
    assert gaussian_pair_delta(epsilon, [mean], [precision]) == pytest.approx(brute, abs=2e-9)


def test_the_profile_in_the_plane_and_in_space():
    means, precisions, epsilon = [0.4, 0.9, 0.2], [0.8, 1.2, 1.1], 0.7
    for d in (2, 3):
        w = np.linspace(-9, 9, 1501 if d == 2 else 181)
        density = np.array([stats.norm.pdf(w)] * d)
        other = np.array(
            [stats.norm.pdf(w, m, s**-0.5) for m, s in zip(means[:d], precisions[:d], strict=True)]
        )
        letters = "abc"[:d]
        p, q = (np.einsum(",".join(letters) + "->" + letters, *rows) for rows in (density, other))
        brute = float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) * (w[1] - w[0]) ** d
        assert gaussian_pair_delta(epsilon, means[:d], precisions[:d]) == pytest.approx(brute, rel=2e-3)


def test_equal_covariances_are_the_gaussian_mechanism():
    assert gaussian_pair_delta(1.0, [0.6, 0.8], [1.0, 1.0]) == pytest.approx(
        gaussian_delta(1.0, 1.0), rel=1e-6
    )


def test_bad_pairs_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        gaussian_pair_delta(1.0, [0.0] * 4, [1.0] * 4)
    with pytest.raises(ValueError, match="precisions must be positive"):
        gaussian_pair_delta(1.0, [0.0], [-1.0])


# --- Theorem B.3.6, repaired --------------------------------------------------------------------------


def test_exact_delta_never_exceeds_the_claimed_one():
    """Thousands of directed pairs: records added and removed, lam from 1e-2 to 1e3, d = 1 and 2."""
    frame = glm_experiment.neighbour_check(600, rng=np.random.default_rng(1))
    assert len(frame) == 2_400
    assert frame["ratio"].max() <= 1
    for change in ("added", "removed"):  # and not by a wide margin everywhere
        assert frame.loc[(frame["change"] == change) & (frame["claimed"] == 1e-2), "ratio"].max() > 0.2
    assert (frame["epsilon"] <= frame["closed"]).all()


def test_exact_delta_in_space():
    frame = glm_experiment.neighbour_check(60, rng=np.random.default_rng(2), dimensions=(3,), deltas=(1e-2,))
    assert frame["ratio"].max() <= 1


def test_the_closed_form_holds_as_well():
    """Its epsilon is larger than that of the curve, on which the exact check rests."""
    for alpha in (2.0, 50.0, 5e4):
        for gamma in (1e-3 * alpha, alpha):
            curve = GlmCurve(alpha, 1.0, gamma, CONSTANTS)
            assert curve.epsilon(1e-6) <= curve.closed_epsilon(1e-6)
    leading = 1.0 / 5e6 * (math.sqrt(math.log(2e6)) + math.log(2e6)) + math.sqrt(2 * math.log(2e6)) + 0.5
    assert GlmCurve(5e6, 1.0, 5e6, CONSTANTS).closed_epsilon(1e-6) == pytest.approx(leading, rel=1e-5)


def test_minimisers_move_no_further_than_the_bound():
    rng = np.random.default_rng(3)
    largest = 0.0
    for _ in range(200):
        lam = 10 ** rng.uniform(-2, 1)
        before, after = glm_experiment.random_neighbours(
            rng, dimension=int(rng.integers(1, 4)), crowd=10 ** rng.uniform(0, 3), lam=lam
        )
        moved = float(np.linalg.norm(after.theta - before.theta))
        for hand in (before, after):
            ratio = moved / movement(max(hand.smallest, lam), lam, CONSTANTS)
            largest = max(largest, ratio)
    assert 0.5 < largest <= 1


def test_the_change_of_the_hessian_has_no_factor_of_the_dimension():
    """||S - I||_F <= e^r K / alpha for d up to 30."""
    rng = np.random.default_rng(4)
    for d in (5, 30):
        for _ in range(20):
            x = rng.standard_normal((40 * d, d))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            y = np.where(x @ rng.standard_normal(d) > 0, 1.0, -1.0)
            before = optimum(x[1:], y[1:], np.ones(len(x) - 1), 0.5)
            after = optimum(x, y, np.ones(len(x)), 0.5)
            for hand, other in ((before, after), (after, before)):
                inverse = np.linalg.inv(np.linalg.cholesky(hand.hessian))
                change = np.linalg.norm(inverse @ other.hessian @ inverse.T - np.eye(d))
                alpha = hand.smallest
                assert change <= math.exp(movement(alpha, 0.5, CONSTANTS)) / alpha


def test_gamma_is_the_largest_one():
    for alpha, epsilon in ((50.0, 1.0), (300.0, 0.5), (1e5, 3.0)):
        gamma = calibrate_gamma(alpha=alpha, lam=2.0, constants=CONSTANTS, epsilon=epsilon, delta=1e-6)
        assert GlmCurve(alpha, 2.0, gamma, CONSTANTS).delta(epsilon) == pytest.approx(1e-6, rel=1e-6)
        assert GlmCurve(alpha, 2.0, 1.01 * gamma, CONSTANTS).delta(epsilon) > 1e-6
        assert GlmCurve(alpha, 2.0, gamma, CONSTANTS).epsilon(1e-6) == pytest.approx(epsilon, rel=1e-6)
    assert calibrate_gamma(alpha=3.0, lam=1.0, constants=CONSTANTS, epsilon=0.5, delta=1e-6) == 0
    assert calibrate_gamma(alpha=0.02, lam=0.01, constants=CONSTANTS, epsilon=0.5, delta=1e-6) == 0


def test_hopeless_curves_say_so():
    curve = GlmCurve(0.02, 0.01, 1.0, CONSTANTS)
    assert curve.delta(5.0) == 1
    assert curve.epsilon(1e-6) == curve.closed_epsilon(1e-6) == math.inf


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0.5, 1.0, 1.0), "alpha must be at least lam"),
        ((1.0, 0.0, 1.0), "lam must be positive"),
        ((1.0, 1.0, -1.0), "gamma must be positive"),
    ],
)
def test_impossible_curves_are_refused(arguments, error):
    with pytest.raises(ValueError, match=error):
        GlmCurve(*arguments, CONSTANTS)


def test_bad_arguments_of_curves():
    curve = GlmCurve(100.0, 1.0, 1.0, CONSTANTS)
    with pytest.raises(ValueError, match="epsilon must be nonnegative"):
        curve.delta(-1.0)
    with pytest.raises(ValueError, match="delta must lie"):
        curve.epsilon(0.0)


# --- Theorem B.3.11 -----------------------------------------------------------------------------------


def test_one_record_moves_the_smallest_eigenvalue_by_at_most_one():
    frame = glm_experiment.eigenvalue_check(1_000, rng=np.random.default_rng(5))
    assert frame["change"].max() <= 1 + 1e-9
    assert frame["change"].min() >= -1 - 1e-9
    assert (frame["lam"] < 1).sum() > 500  # where the printed condition lam >= R L fails
    assert frame["change"].max() > 0.9


def test_the_sensitivity_cannot_be_improved():
    frame = flaws_glm.eigenvalue_extremes()
    assert frame["change"].max() > 0.999
    assert (frame["change"] <= 1).all()
    assert (frame["library"] == 1).all()


def test_the_eigenvalue_release():
    people = crowd()
    objective = Objective(people, LOSS, 1.0)
    hessian = objective.minimise().hessian
    smallest = np.linalg.eigvalsh(hessian)[0]
    releases = [
        private_smallest_eigenvalue(
            people, LOSS, lam=1.0, epsilon=1.0, delta=1e-6, failure=0.1, rng=np.random.default_rng(s),
            hessian=hessian,
        )
        for s in range(200)
    ]  # fmt: skip
    wrong = sum(release.value.lower > smallest for release in releases)
    assert stats.binomtest(wrong, 200, 0.1).pvalue > 1e-4
    one = releases[0]
    assert one.trace["smallest"] == pytest.approx(smallest)
    assert gaussian_delta(1.0, 1 / one.value.sigma) == pytest.approx(1e-6, rel=1e-9)
    assert one.guarantee.neighbours is Neighbours.ADD_REMOVE
    assert one.guarantee.curve.delta(1.0) <= 1e-6
    low = private_smallest_eigenvalue(
        people, LOSS, lam=1e4, epsilon=0.01, delta=1e-6, failure=1e-6, rng=np.random.default_rng(0)
    )
    assert low.value.lower == 1e4  # never below the ridge


# --- the mechanism ------------------------------------------------------------------------------------


def test_the_release_and_its_guarantee():
    people = crowd()
    release = logistic_ptr(people, lam=1.0, epsilon=1.0, delta=1e-6, rng=np.random.default_rng(6))
    guarantee = release.guarantee
    assert release.value.shape == (2,)
    assert (guarantee.epsilon, guarantee.delta) == (1.0, pytest.approx(1e-6))
    assert dict(guarantee.parts) == {"eigenvalue": 0.5, "theta": 0.5}
    split = split_of(1.0, 1e-6, 0.5)
    assert split.delta_test + split.failure + split.delta_release == pytest.approx(
        1e-6
    )  # a sum, not a maximum
    bound, gamma = release.trace["bound"], release.trace["gamma"]
    assert GlmCurve(bound.lower, 1.0, gamma, CONSTANTS).delta(0.5) <= split.delta_release * (1 + 1e-9)


def test_published_gammas_are_private_for_the_data_at_hand():
    """The whole chain on small data: whenever the bound holds, the exact delta of theta is within its part."""
    rng, tested = np.random.default_rng(7), 0
    split = split_of(4.0, 1e-2, 0.5)
    for _ in range(60):
        x = rng.standard_normal((400, 1)) / 4
        x = np.clip(x, -1, 1)
        people = Dataset(x, rng.choice([-1.0, 1.0], 400), DOMAIN)
        release = logistic_ptr(people, lam=1.0, epsilon=4.0, delta=1e-2, rng=rng)
        if release.refused or release.trace["bound"].lower > release.trace["smallest"]:
            continue
        tested += 1
        hand = optimum(people.features, people.labels, np.ones(400), 1.0)
        for z in ((1.0, 1.0), (1.0, -1.0)):
            more = optimum(np.vstack([x, [[z[0]]]]), np.append(people.labels, z[1]), np.ones(401), 1.0)
            delta = glm_experiment.pair_delta(
                hand, more, gamma=release.trace["gamma"], epsilon=split.epsilon_release
            )
            assert delta <= split.delta_release
        less = optimum(x[1:], people.labels[1:], np.ones(399), 1.0)
        delta = glm_experiment.pair_delta(
            hand, less, gamma=release.trace["gamma"], epsilon=split.epsilon_release
        )
        assert delta <= split.delta_release
    assert tested > 20


def test_theta_has_the_promised_law():
    hessian, theta = np.array([[4.0, 1.0], [1.0, 2.0]]), np.array([1.0, -1.0])
    rng = np.random.default_rng(8)
    draws = np.array([sample_around(theta, hessian, 3.0, rng) for _ in range(4_000)])
    squares = np.einsum("ij,jk,ik->i", draws - theta, 3 * hessian, draws - theta)
    assert stats.kstest(squares, stats.chi2(2).cdf).pvalue > 1e-3


def test_a_refusal_is_a_value_with_the_same_guarantee():
    people = crowd(rows=3)
    release = logistic_ptr(people, lam=0.5, epsilon=0.5, delta=1e-6, rng=np.random.default_rng(9))
    assert isinstance(release.value, Refused)
    assert "smallest eigenvalue" in release.value.reason
    assert (release.guarantee.epsilon, release.guarantee.delta) == (0.5, pytest.approx(1e-6))


def test_no_test_is_needed_for_a_large_ridge():
    people = crowd(rows=50)
    release = ridge_only(people, LOSS, lam=200.0, epsilon=1.0, delta=1e-6, rng=np.random.default_rng(10))
    assert release.guarantee.curve.delta(1.0) <= 1e-6
    with pytest.raises(ValueError, match="too small for epsilon"):
        ridge_only(people, LOSS, lam=1.0, epsilon=0.1, delta=1e-6, rng=np.random.default_rng(10))


class Untouchable:
    """Stands for noise that must not be drawn."""


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"lam": 0.0}, ValueError, "lam must be positive"),
        ({"lam": "1"}, TypeError, "lam must be a real number"),
        ({"epsilon": -1.0}, ValueError, "epsilon must be positive"),
        ({"delta": 0.0}, ValueError, "delta must lie strictly"),
        ({"delta": 1.0}, ValueError, "delta must lie strictly"),
        ({"share": 1.0}, ValueError, "share must lie strictly"),
        ({"rng": 7}, TypeError, "rng must be a numpy.random.Generator"),
        ({"rng": Untouchable()}, TypeError, "rng must be a numpy.random.Generator"),
    ],
)
def test_bad_input_is_refused(change, error, match):
    arguments = {"lam": 1.0, "epsilon": 1.0, "delta": 1e-6, "rng": np.random.default_rng(0)} | change
    with pytest.raises(error, match=match):
        logistic_ptr(crowd(rows=10), **arguments)


def test_no_noise_is_drawn_on_bad_input():
    rng = np.random.default_rng(11)
    state = rng.bit_generator.state
    with pytest.raises(ValueError, match="share"):
        logistic_ptr(crowd(rows=10), lam=1.0, epsilon=1.0, delta=1e-6, share=0.0, rng=rng)
    people = Dataset([[0.5]], [0.2], Domain("l2", 1.0, "real"))
    with pytest.raises(ValueError, match="bounded slope"):
        glm_ptr(people, SquaredLoss(), lam=1.0, epsilon=1.0, delta=1e-6, rng=rng)
    with pytest.raises(ValueError, match="hessian must have shape"):
        private_smallest_eigenvalue(
            crowd(rows=10), LOSS, lam=1.0, epsilon=1.0, delta=1e-6, failure=0.1, rng=rng, hessian=np.eye(3)
        )
    with pytest.raises(TypeError, match="people must be a Dataset"):
        logistic_ptr(np.eye(2), lam=1.0, epsilon=1.0, delta=1e-6, rng=rng)
    assert rng.bit_generator.state == state


# --- the experiment -----------------------------------------------------------------------------------


def test_methods_compared_on_real_data():
    people = glm_experiment.small_adult()
    assert (people.rows, people.columns) == (45_220, 7)
    rng = np.random.default_rng(12)
    train, test = people.split(0.8, rng)
    frame = glm_experiment.compare_methods(train, test, epsilons=(2.0,), lams=(1.0, 100.0), trials=2, rng=rng)
    cell = frame.set_index(["method", "lam"])
    assert cell.loc[("Hessian noise, no test", 1.0), "refused"] == 1
    assert cell.loc[("propose-test-release", 1.0), "refused"] == 0
    # At a small ridge the test pays: noise for the curvature of the data, not for that of the ridge.
    distance = cell["distance"].xs(1.0, level="lam")
    assert distance["propose-test-release"] < distance["output perturbation"] / 5
    assert set(frame.attrs["accuracy"]) == {1.0, 100.0}


def test_selection_of_the_ridge():
    people, rng = crowd(rows=20_000, columns=2), np.random.default_rng(13)
    train, validation = people.split(0.8, rng)
    release = glm_experiment.select_ridge(
        train, validation, lams=[1.0, 10.0], epsilon=3.0, delta=1e-6, rng=rng
    )
    assert release.guarantee.epsilon <= 3.0
    assert release.guarantee.delta <= 1e-6
    assert release.refused or release.index in (0, 1)
    with pytest.raises(ValueError, match="increasing"):
        glm_experiment.select_ridge(train, validation, lams=[2.0, 1.0], epsilon=3.0, delta=1e-6, rng=rng)
    with pytest.raises(ValueError, match="method must be one of"):
        glm_experiment.is_possible("magic", train, lam=1.0, epsilon=1.0, delta=1e-6)


# --- false as printed ---------------------------------------------------------------------------------


def test_the_printed_theorem_is_violated():
    frame = flaws_glm.crowd_violations()
    assert frame.loc[frame["slope"] == "local", "violated"].all()
    assert frame["delta"].max() == pytest.approx(2.518e-6, rel=1e-3)
    assert (frame["library_delta"] <= 1e-6).all()


def test_the_printed_units_are_wrong():
    frame = flaws_glm.quadratic_instance()
    last = frame.iloc[-1]
    assert last["printed"] < 1e-3
    assert last["delta"] == pytest.approx(0.04404, abs=1e-5)
    assert (frame["library_delta"] <= 1e-6).all()


def test_the_printed_definition_and_segment():
    frame = flaws_glm.concordance_convention()
    assert list(frame["holds"]) == [True, False]
    assert frame["smallest"][1] == pytest.approx(0.2231, abs=1e-4)
    row = flaws_glm.segment_instance().iloc[0]
    assert row["point"] < row["moved"] <= row["library"]


def test_the_printed_noise_of_the_eigenvalue():
    frame = flaws_glm.eigenvalue_noise()
    assert (frame["delta"] > frame["promised"]).all()
    assert (frame["root_two"] < frame["promised"]).all()
    assert frame["delta"][1] == pytest.approx(1.83e-6, rel=1e-2)
    assert frame["delta"][3] == pytest.approx(7.49e-5, rel=1e-2)
