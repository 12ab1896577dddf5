"""InteractiveAboveThreshold: exact law, exact privacy loss, accuracy constants, laziness, what is paid."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from adaptive_dp.accuracy_first import (
    GeometricLevels,
    ValueQuery,
    accuracy_margin,
    false_acceptance_probability,
    halting_probability,
    interactive_above_threshold,
)
from adaptive_dp.privacy import Domain, Neighbours, Refused

SETTING = {"threshold": 0.3, "sensitivity": 0.5, "epsilon": 2.0}
VALUES = [-0.9, 0.2, -2.0, 1.1]


def run(values, rng, **setting):
    costs = setting.pop("prefix_epsilons", np.zeros(len(values)))
    return interactive_above_threshold(
        [ValueQuery(v) for v in values], prefix_epsilons=costs, rng=rng, **(SETTING | setting)
    )


def refusal_probability(values, *, threshold, sensitivity, epsilon):
    """All queries fail: adaptive quadrature over the threshold's noise, independent of the library's rule."""
    unit = sensitivity / epsilon
    distances = [v - threshold for v in values]
    kinks = sorted({0.0, *distances})
    ends = [kinks[0] - 80 * unit, *kinks, kinks[-1] + 80 * unit]

    def below(x):
        tail = math.exp(-abs(x) / (4 * unit)) / 2
        return tail if x < 0 else 1 - tail

    def density(x):
        return math.exp(-abs(x) / (2 * unit)) / (4 * unit) * math.prod(below(x - d) for d in distances)

    return sum(integrate.quad(density, *piece, epsabs=1e-10)[0] for piece in itertools.pairwise(ends))


# ---------------------------------------------------------------- the exact law


@pytest.mark.parametrize(
    "values", [VALUES, [0.3], [0.3, 0.3, 0.3], [5.0, -5.0], [-3.0] * 7, list(np.linspace(-2, 1, 30))]
)
def test_halting_probabilities_and_refusal_sum_to_one(values):
    """AF-03: the exact law of the stopping index is a law (refusal by an independent quadrature)."""
    halts = [halting_probability(values[: t + 1], **SETTING) for t in range(len(values))]
    assert min(halts) >= 0
    assert sum(halts) + refusal_probability(values, **SETTING) == pytest.approx(1.0, abs=1e-8)


def test_halting_probability_of_one_query_has_a_closed_form():
    """P(nu - xi >= a) = (16 e^{-a/4} - 4 e^{-a/2})/24 in units of Delta/epsilon (erratum AF-7e), both signs of a."""
    for a in (0.0, 0.7, 3.0, 20.0):
        closed = (16 * math.exp(-a / 4) - 4 * math.exp(-a / 2)) / 24
        below = halting_probability([-a], threshold=0.0, sensitivity=1.0, epsilon=1.0)
        above = halting_probability([a], threshold=0.0, sensitivity=1.0, epsilon=1.0)
        assert below == pytest.approx(closed, abs=1e-13)
        assert above == pytest.approx(1 - closed, abs=1e-13)


def test_halting_probability_depends_on_scaled_distances_alone():
    """Units: values and threshold in units of Delta / epsilon."""
    base = halting_probability(VALUES, **SETTING)
    scaled = halting_probability(
        [1e6 * (v - 0.3) for v in VALUES], threshold=0.0, sensitivity=0.5e6 / 1e3, epsilon=2e-3
    )
    assert scaled == pytest.approx(base, rel=1e-10)


def assert_stops_as_the_exact_law_says(stop, *, size=8000):
    """Chi-square of the stopping index against the exact law; false-fail rate 1e-6. ``stop`` gives T for refusals."""
    halts = [halting_probability(VALUES[: t + 1], **SETTING) for t in range(len(VALUES))]
    expected = size * np.array([*halts, 1 - sum(halts)])
    observed = np.bincount([stop() for _ in range(size)], minlength=len(VALUES) + 1)
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_simulation_agrees_with_the_exact_law():
    """AF-03: 8000 runs of the mechanism stop where the integral says (false-fail rate 1e-6)."""
    rng = np.random.default_rng(21)

    def stop():
        index = run(VALUES, rng).index
        return len(VALUES) if index is None else index

    assert_stops_as_the_exact_law_says(stop)


@pytest.mark.parametrize("factors", [(2.0, 2.0), (1.0, 2.0), (1.0, 4.0), (0.0, 4.0)])
def test_simulation_check_finds_planted_noise_scales(factors):
    """Lap(2 Delta/eps) on the queries, half the scales, an exact threshold: the same check refuses them."""
    rng = np.random.default_rng(22)
    unit = SETTING["sensitivity"] / SETTING["epsilon"]

    def stop():
        level = SETTING["threshold"] + rng.laplace(scale=factors[0] * unit)
        noisy = np.array(VALUES) + rng.laplace(scale=factors[1] * unit, size=len(VALUES))
        return int(np.argmax(noisy >= level)) if (noisy >= level).any() else len(VALUES)

    with pytest.raises(AssertionError):
        assert_stops_as_the_exact_law_says(stop)


# ---------------------------------------------------------------- exact privacy loss


def worst_loss(*, two_sided, factors=(2.0, 4.0), epsilon=1.0, sensitivity=1.0):
    """Largest |log ratio| of halting at t over a grid of worst cases (erratum AF-7a).

    m equal queries fail and move by +-Delta, the last one is accepted and moves the same way or the other.
    """
    unit = sensitivity / epsilon
    worst = 0.0
    for sign in (1, -1):
        for many in (0, 1, 10, 1000):
            for before in (-8.0, -4.0, 0.0, 4.0):
                for last in (-30.0, -6.0, 0.0, 6.0):
                    law = []
                    for move in (0.0, sign * sensitivity):
                        end = last * unit + (-move if two_sided else move)
                        values = [before * unit + move] * many + [end]
                        law.append(
                            halting_probability(
                                values,
                                threshold=0.0,
                                sensitivity=sensitivity,
                                epsilon=epsilon,
                                threshold_factor=factors[0],
                                query_factor=factors[1],
                            )
                        )
                    if min(law) > 1e-200:
                        worst = max(worst, abs(math.log(law[0] / law[1])))
    return worst


def assert_private(claim, **case):
    """The exact loss over the grid stays within the claim."""
    assert worst_loss(**case) <= claim * (1 + 1e-9)


def test_loss_is_exactly_epsilon_for_queries_that_move_both_ways():
    """AF-03: 1.0000 at eps = 1, attained, so both noise scales are needed (erratum AF-7a)."""
    assert_private(1.0, two_sided=True)
    assert worst_loss(two_sided=True) == pytest.approx(1.0, abs=1e-9)


def test_loss_is_half_of_epsilon_for_queries_that_move_one_way():
    """0.5 at eps = 1: monotone queries could do with half the noise, excess risks are not (erratum AF-7a)."""
    assert worst_loss(two_sided=False) == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize(("factors", "loss"), [((2.0, 2.0), 1.5), ((1.0, 2.0), 2.0)])
def test_loss_check_finds_planted_noise_scales(factors, loss):
    """Lap(2D/e) on the queries loses 1.5 epsilon, half of both scales 2 epsilon: refused by the same check."""
    with pytest.raises(AssertionError):
        assert_private(1.0, two_sided=True, factors=factors)
    assert worst_loss(two_sided=True, factors=factors) == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.01, 1.0), (0.3, 7.0), (3.0, 1e-4)])
def test_loss_follows_epsilon_and_sensitivity(epsilon, sensitivity):
    """The claim holds and is attained in other units."""
    loss = worst_loss(two_sided=True, epsilon=epsilon, sensitivity=sensitivity)
    assert loss <= epsilon * (1 + 1e-6)
    assert loss > 0.98 * epsilon


def test_random_moves_within_the_sensitivity_never_lose_more_than_epsilon():
    """80 random pairs of up to 12 queries, halting anywhere or refusing: loss <= epsilon, refusal <= epsilon/2."""
    rng = np.random.default_rng(23)
    worst = 0.0
    for _ in range(80):
        count = int(rng.integers(1, 13))
        values = rng.normal(scale=4, size=count)
        moved = values + rng.choice([-1.0, 1.0, 0.3], size=count)
        laws = []
        for case in (values, moved):
            halts = [
                halting_probability(case[: t + 1], threshold=0.0, sensitivity=1.0, epsilon=1.0)
                for t in range(count)
            ]
            laws.append(np.array([*halts, 1 - sum(halts)]))
        ratio = np.abs(np.log(laws[0] / laws[1]))
        enough = np.minimum(*laws) > 1e-6
        worst = max(worst, float(ratio[enough].max()))
        if enough[-1]:
            assert ratio[-1] <= 0.5 + 1e-6
    assert 0.5 < worst <= 1 + 1e-9


# ---------------------------------------------------------------- accuracy (Theorem A.1)

PAPER_CASE = {"levels": 1000, "sensitivity": 1.0, "epsilon": 1.0}


@pytest.mark.parametrize(
    ("calibration", "margin", "failure"),
    [("printed", 79.23, 1.7e-6), ("sharp", 35.22, 0.0894), ("exact", 34.72, 0.1)],
)
def test_margins_and_their_true_failure_probability_are_those_of_the_erratum(calibration, margin, failure):
    """AF-04 at T = 1000, gamma = .1: 79.23 fails with 1.7e-6, 35.22 with .0894, the exact one is 34.72 (AF-7e)."""
    found = accuracy_margin(failure=0.1, calibration=calibration, **PAPER_CASE)
    assert found == pytest.approx(margin, abs=6e-3)
    true = false_acceptance_probability(found, **PAPER_CASE)
    assert true == pytest.approx(failure, rel=0.03)
    assert true <= 0.1


def test_false_acceptance_is_the_chance_that_some_query_halts():
    """Theorem A.1's worst case equals the sum of exact halting probabilities of T equal queries."""
    for margin in (-3.0, 0.0, 2.0, 15.0):
        setting = {"sensitivity": 0.5, "epsilon": 2.0}
        halts = sum(halting_probability([-margin] * (t + 1), threshold=0.0, **setting) for t in range(6))
        found = false_acceptance_probability(margin, levels=6, **setting)
        assert found == pytest.approx(halts, abs=1e-12)


@pytest.mark.parametrize("levels", [1, 2, 20, 1000, 10**6])
@pytest.mark.parametrize("failure", [1e-6, 0.01, 0.1, 0.4])
def test_every_margin_is_valid_and_sharper_ones_are_smaller(levels, failure):
    """AF-04: exact <= sharp <= printed, each with true failure at most gamma."""
    setting = {"levels": levels, "sensitivity": 3.0, "epsilon": 0.7}
    margins = [
        accuracy_margin(failure=failure, calibration=c, **setting) for c in ("exact", "sharp", "printed")
    ]
    assert margins == sorted(margins)
    for margin in margins:
        assert false_acceptance_probability(margin, **setting) <= failure * (1 + 1e-9)


def test_half_the_sharp_margin_would_be_too_small():
    """The validity check finds a planted constant: 2 Delta log(2T/(3 gamma)) / epsilon fails far too often."""
    margin = accuracy_margin(failure=0.1, **PAPER_CASE) / 2
    assert false_acceptance_probability(margin, **PAPER_CASE) > 0.9


def test_bad_acceptances_of_the_mechanism_stay_within_gamma():
    """AF-04 on the mechanism itself: 50 queries at the sharp margin, 1500 runs (false-fail rate below 1e-6)."""
    margin = accuracy_margin(levels=50, sensitivity=1.0, epsilon=1.0, failure=0.1)
    exact = false_acceptance_probability(margin, levels=50, sensitivity=1.0, epsilon=1.0)
    rng = np.random.default_rng(24)
    setting = {"threshold": 5.0, "sensitivity": 1.0, "epsilon": 1.0}
    bad = sum(not run([5.0 - margin] * 50, rng, **setting).refused for _ in range(1500))
    assert exact <= 0.1
    assert stats.binomtest(bad, 1500, exact).pvalue > 1e-6


def test_margins_are_refused_where_the_formula_is_not_positive():
    """The sharp form needs gamma < 2T/3 (referee, section C)."""
    with pytest.raises(ValueError, match="failure must be below 2 T / 3"):
        accuracy_margin(levels=1, sensitivity=1.0, epsilon=1.0, failure=0.9)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"levels": 0}, ValueError, "levels must be at least 1"),
        ({"levels": 10.0}, TypeError, "levels must be an integer"),
        ({"sensitivity": 0.0}, ValueError, "sensitivity must be positive"),
        ({"epsilon": -1.0}, ValueError, "epsilon must be positive"),
        ({"failure": 0.0}, ValueError, "failure must lie strictly between 0 and 1"),
        ({"failure": 1.0}, ValueError, "failure must lie strictly between 0 and 1"),
        ({"calibration": "tight"}, ValueError, "calibration must be one of"),
    ],
)
def test_bad_margin_arguments_are_refused(change, error, message):
    """Errors name the argument."""
    with pytest.raises(error, match=message):
        accuracy_margin(**({"failure": 0.1, **PAPER_CASE} | change))


# ---------------------------------------------------------------- what is asked, what is paid


def sure(answer):
    """A value that is accepted (or refused) with probability 1 for all practical purposes."""
    return 1e9 if answer else -1e9


def test_later_queries_are_never_asked():
    """AF-03: queries are produced one at a time; after an acceptance the iterator is left alone."""
    produced, asked = [], []

    class Recorded:
        def __init__(self, index):
            self.index = index

        def reaches(self, level):
            asked.append(self.index)
            return sure(self.index == 3) >= level

    def queries():
        for index in range(10):
            produced.append(index)
            yield Recorded(index)

    release = interactive_above_threshold(
        queries(), prefix_epsilons=np.arange(1.0, 11.0), rng=np.random.default_rng(1), **SETTING
    )
    assert produced == asked == [0, 1, 2, 3]
    assert release.index == 3
    assert release.value.index == 3


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_accepted_prefix_costs_test_plus_prefix(accepted):
    """Lemma 2.8: ex-post loss epsilon_A + epsilon_t, split into its two parts, pure."""
    costs = np.array([0.1, 0.3, 0.7, 1.9])
    values = [sure(t == accepted) for t in range(4)]
    domain = Domain(norm="l2")
    release = run(
        values,
        np.random.default_rng(1),
        prefix_epsilons=costs,
        neighbours=Neighbours.ADD_REMOVE,
        domain=domain,
    )
    guarantee = release.guarantee
    assert release.value == ValueQuery(sure(True))
    assert release.index == accepted
    assert guarantee.kind == "ex-post"
    assert guarantee.epsilon == pytest.approx(2.0 + costs[accepted])
    assert dict(guarantee.parts) == {"test": 2.0, "generate": costs[accepted]}
    assert (guarantee.delta, guarantee.neighbours, guarantee.domain) == (0.0, Neighbours.ADD_REMOVE, domain)


def test_refusal_is_a_value_with_the_guarantee_of_the_whole_prefix():
    """Erratum AF-7g: no exact minimiser, no infinite loss; epsilon_A + epsilon_T, and no index that collides."""
    release = run([sure(False)] * 4, np.random.default_rng(1), prefix_epsilons=[0.1, 0.3, 0.7, 1.9])
    assert isinstance(release.value, Refused)
    assert release.refused
    assert release.index is None
    assert release.guarantee.epsilon == pytest.approx(2.0 + 1.9)
    assert release.guarantee.neighbours is Neighbours.REPLACE_ONE


def test_prefix_costs_may_be_implicit_levels():
    """A geometric list pays as its numbers do."""
    levels = GeometricLevels(0.5, 8.0, 5)
    release = run([sure(t == 2) for t in range(5)], np.random.default_rng(1), prefix_epsilons=levels)
    assert release.guarantee.epsilon == pytest.approx(2.0 + 2.0)


def test_the_search_ends_where_the_prefixes_end():
    """No query beyond those that are paid for is even asked; whether one would follow depends on the data."""
    asked = []

    def queries():
        for number in range(4):
            asked.append(number)
            yield ValueQuery(sure(False))

    release = interactive_above_threshold(
        queries(), prefix_epsilons=[0.1, 0.2, 0.3], rng=np.random.default_rng(1), **SETTING
    )
    assert release.refused
    assert asked == [0, 1, 2]
    assert release.guarantee.parts["generate"] == 0.3


def test_a_short_list_of_queries_costs_the_last_prefix_that_was_asked_for():
    """Two of four paid queries: the refusal names two and costs the second prefix."""
    release = run([sure(False)] * 2, np.random.default_rng(1), prefix_epsilons=[0.1, 0.2, 0.3, 0.4])
    assert release.refused
    assert "2 queries" in release.value.reason
    assert release.guarantee.parts["generate"] == 0.2
    assert release.trace["tested"] == 2
    with pytest.raises(ValueError, match="queries must produce at least one"):
        run([], np.random.default_rng(1), prefix_epsilons=[0.1])


def test_exact_margin_holds_for_tiny_failure_probabilities():
    """The tail is summed in logarithms: at gamma = 1e-12 and T = 10^6 the exact margin is near the sharp one."""
    common = {"levels": 10**6, "sensitivity": 1.0, "epsilon": 1.0}
    margin = accuracy_margin(failure=1e-12, calibration="exact", **common)
    assert accuracy_margin(failure=1e-12, calibration="sharp", **common) - 1e-3 <= margin
    assert false_acceptance_probability(margin, **common) <= 1e-12
    assert accuracy_margin(levels=1, sensitivity=1.0, epsilon=1.0, failure=0.6, calibration="exact") == 0.0


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": [1e5, 0.0], "epsilon": 1.0},
        {"values": [1.0, 1.0], "epsilon": 1e5},
        {"values": [1.0, 1.0], "epsilon": 1.0, "query_factor": 1e-3},
    ],
)
def test_exact_law_has_no_warnings_far_out(arguments):
    """Chances too small for a float are zero, not a warning."""
    chance = halting_probability(arguments.pop("values"), threshold=0.0, sensitivity=1.0, **arguments)
    assert 0.0 <= chance <= 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": []}, "values must hold"),
        ({"query_factor": 0}, "query_factor"),
        ({"query_factor": -4}, "query_factor"),
    ],
)
def test_exact_law_refuses_what_has_no_law(change, message):
    """An empty list and scales that are not positive are named."""
    arguments = {"values": [0.0], "threshold": 0.0, "sensitivity": 1.0, "epsilon": 1.0} | change
    with pytest.raises(ValueError, match=message):
        halting_probability(arguments.pop("values"), **arguments)


def test_value_query_refuses_nan():
    """A query that can never be accepted is an error, not a silent refusal."""
    with pytest.raises(ValueError, match="value must be finite"):
        ValueQuery(math.nan)


def test_a_query_at_the_noisy_level_is_accepted():
    """Algorithm 2 halts at >=; an exact value query says so."""
    assert ValueQuery(1.0).reaches(1.0)
    assert not ValueQuery(np.nextafter(1.0, 0)).reaches(1.0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"threshold": math.nan}, ValueError, "threshold must be finite"),
        ({"threshold": "0"}, TypeError, "threshold must be a real number"),
        ({"sensitivity": 0.0}, ValueError, "sensitivity must be positive"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be finite"),
        ({"prefix_epsilons": []}, ValueError, "prefix_epsilons must be nonnegative and nondecreasing"),
        (
            {"prefix_epsilons": [2.0, 1.0]},
            ValueError,
            "prefix_epsilons must be nonnegative and nondecreasing",
        ),
        ({"prefix_epsilons": [-1.0, 1.0]}, ValueError, "prefix_epsilons must be nonnegative"),
        ({"prefix_epsilons": [math.nan]}, ValueError, "prefix_epsilons must be finite"),
        ({"rng": 3}, TypeError, "rng must be a numpy.random.Generator"),
    ],
)
def test_bad_input_is_refused_before_any_query_is_asked(change, error, message):
    """Errors name the argument; no noise is drawn and no query touched."""

    def queries():
        raise AssertionError("a query was asked for")
        yield

    rng = np.random.default_rng(1)
    arguments = {**SETTING, "prefix_epsilons": [1.0], "rng": rng} | change
    with pytest.raises(error, match=message):
        interactive_above_threshold(queries(), **arguments)
    assert rng.random() == np.random.default_rng(1).random()
