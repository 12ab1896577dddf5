"""Classic propose-test-release: exact distances against a search over all data sets, exact laws on all neighbours."""

from __future__ import annotations

import collections
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from adaptive_dp.noise import laplace_log_density
from adaptive_dp.privacy import Neighbours, Refused
from adaptive_dp.ptr import classic, flaws_framework
from adaptive_dp.ptr.distances import Median, Mode, Pairs

GRIDS = [(0.0, 1.0, 2.0, 3.0), (0.0, 0.5, 3.0, 4.0, 7.0), (-1.0, 0.0, 4.0)]


def all_multisets(values, size):
    """Every data set of at most ``size`` records, with its neighbours (which may have one record more)."""
    sets = [t for n in range(size + 1) for t in itertools.combinations_with_replacement(values, n)]
    return {
        s: {tuple(sorted((*s, v))) for v in values} | {s[:i] + s[i + 1 :] for i in range(len(s))}
        for s in sets
    }


def distances_by_search(neighbours, bad):
    """Fewest records to add or remove to reach a bad data set, by breadth-first search through all of them."""
    distance = dict.fromkeys(bad, 0)
    queue = collections.deque(bad)
    while queue:
        here = queue.popleft()
        for there in neighbours[here]:
            if there in neighbours and there not in distance:
                distance[there] = distance[here] + 1
                queue.append(there)
    return distance


# --- distances ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS)
def test_median_by_search_over_all_data_sets(grid):
    query, size = Median(grid[0], grid[-1]), 9
    graph = all_multisets(grid, size)
    value = {s: query.value(s) for s in set(graph).union(*graph.values())}
    local = {s: max(abs(value[s] - value[t]) for t in near) for s, near in graph.items()}
    for s, sensitivity in local.items():
        assert query.local_sensitivity(s) == sensitivity
    for bound in (0.0, 0.25, 0.6, 1.0, 1.5, 1.9, 2.0, 3.5):
        found = distances_by_search(graph, [s for s in graph if local[s] > bound])
        # a shortest way from at most 5 records does not need more than 9
        for s in (s for s in graph if len(s) <= 5):
            assert query.distance(s, bound) == found.get(s, math.inf)


def test_median_is_the_usual_one():
    rng = np.random.default_rng(0)
    for n in range(1, 12):
        values = rng.uniform(-2, 5, n)
        assert Median(-2, 5).value(values) == pytest.approx(np.median(values), abs=1e-15)
    assert Median(-2, 5).value([]) == 1.5


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_mode_and_pairs_by_search_over_all_data_sets(classes):
    mode, pairs = Mode(classes), Pairs(classes)
    graph = all_multisets(tuple(range(classes)), 9 if classes < 4 else 8)
    everything = set(graph).union(*graph.values())
    winner, count = {s: mode.value(s) for s in everything}, {s: pairs.value(s) for s in everything}
    unstable = [s for s, near in graph.items() if any(winner[t] != winner[s] for t in near)]
    found = distances_by_search(graph, unstable)
    small = [s for s in graph if len(s) <= 5]
    for s in small:
        assert mode.stability(s) == found[s]
        assert count[s] == len([1 for a, b in itertools.combinations(s, 2) if a == b])
    for c in range(classes):
        change = distances_by_search(graph, [s for s in graph if winner[s] != c])
        for s in (s for s in small if winner[s] == c):
            assert mode.distance_to_change(s) == change[s]
    local = {s: max(abs(count[s] - count[t]) for t in near) for s, near in graph.items()}
    for s in small:
        assert pairs.local_sensitivity(s) == local[s]
    for bound in (0.0, 1.0, 2.5, 4.0):
        found = distances_by_search(graph, [s for s in graph if local[s] > bound])
        for s in small:
            assert pairs.distance(s, bound) == found[s]


records = st.lists(st.floats(0, 10, allow_nan=False), max_size=25)


@settings(deadline=None, max_examples=200)
@given(records, st.floats(0, 10), st.floats(0, 6))
def test_distance_moves_by_at_most_one(values, new, bound):
    query = Median(0, 10)
    with_it, without = query.distance([*values, new], bound), query.distance(values, bound)
    assert with_it == without or abs(with_it - without) <= 1
    assert (query.distance(values, bound) == 0) == (query.local_sensitivity(values) > bound) or math.isclose(
        query.local_sensitivity(values), bound, rel_tol=1e-12
    )
    assert query.distance(values, bound) <= query.distance(values, bound + 0.5)
    assert abs(query.value([*values, new]) - query.value(values)) <= query.local_sensitivity(values) + 1e-14


# --- calibration ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-18, 1e-6, 0.1, 0.5, 0.9])
def test_failure_probability_of_both_thresholds(epsilon, delta):
    sharp = classic.ptr_threshold(epsilon, delta)
    printed = classic.ptr_threshold(epsilon, delta, calibration="printed")
    failure = classic.false_pass_probability(sharp, epsilon=epsilon)
    assert failure <= delta
    assert failure == pytest.approx(delta, rel=1e-11)
    if delta < 0.5:
        assert sharp == pytest.approx(math.log(1 / (2 * delta)) / epsilon, rel=1e-9)
    assert classic.false_pass_probability(printed, epsilon=epsilon) == pytest.approx(delta / 2, rel=1e-11)
    assert classic.false_pass_probability(sharp, epsilon=epsilon, distance=max(sharp, 0.0)) >= 0.5
    assert classic.false_pass_probability(sharp, epsilon=epsilon, distance=math.inf) == 1.0


def test_thresholds_in_circulation():
    table = flaws_framework.threshold_table(0.1, 1e-9).set_index("rule")
    assert list(table.index[table["holds"]]) == [
        "log(1 / (2 delta)) / epsilon (sharp)",
        "log(1 / delta) / epsilon (printed)",
        "1 / (delta epsilon), logarithm forgotten",  # private, and no data set ever passes
    ]
    textbook = table.loc["log(2 / delta) / (2 epsilon)"]
    assert textbook["failure"] == pytest.approx(math.sqrt(1e-9 / 8), rel=1e-9)
    assert 1e4 < textbook["ratio"] < 1.2e4  # four orders of magnitude
    assert table.loc["inequality reversed (display of section 3.5)", "failure"] == pytest.approx(1 - 5e-10)
    assert flaws_framework.reversed_false_pass_probability(0.1, 1e-3) == pytest.approx(0.9995)
    # what each rule lets through, by a draw of the same noise
    noise = stats.laplace.rvs(scale=1, size=200_000, random_state=1)
    at = flaws_framework.threshold_table(1.0, 0.01).set_index("rule")
    for rule in at.index[:3]:
        seen = np.mean(noise > at.loc[rule, "threshold"])
        assert seen == pytest.approx(at.loc[rule, "failure"], abs=5 * math.sqrt(0.02 / noise.size))


# --- the data-dependent loss of the Laplace mechanism -------------------------------------------------------


@pytest.mark.parametrize(("first", "second", "scale"), [(0.0, 1.0, 0.5), (2.0, -1.0, 4.0), (1.0, 1.0, 2.0)])
def test_laplace_loss_and_divergence_by_densities(first, second, scale):
    y = np.concatenate([np.linspace(-60, 60, 20_001), [first, second]])
    ratio = laplace_log_density(y - first, scale) - laplace_log_density(y - second, scale)
    loss = classic.laplace_loss(first - second, scale)
    assert np.abs(ratio).max() == pytest.approx(loss, abs=1e-12)
    for epsilon in (-1.0, 0.0, 0.3, 1.0, 2.5):

        def excess(x, e=epsilon):
            p = math.exp(float(laplace_log_density(x - first, scale)))
            return max(0.0, p - math.exp(e) * math.exp(float(laplace_log_density(x - second, scale))))

        # the integrand has kinks at the centres and where the ratio of the densities is e^epsilon
        between = 0.5 * (first + second)
        cuts = sorted(
            {first, second, between - epsilon * scale / 2, between + epsilon * scale / 2, -200.0, 200.0}
        )
        area = sum(integrate.quad(excess, a, b, limit=200)[0] for a, b in itertools.pairwise(cuts))
        assert classic.laplace_delta(epsilon, loss) == pytest.approx(area, abs=1e-8)


def test_data_dependent_loss_is_local_sensitivity_over_scale():
    query = Median(0, 7)
    for s, near in all_multisets(GRIDS[1], 5).items():
        losses = [classic.laplace_loss(query.value(s) - query.value(t), 0.7) for t in near]
        assert max(losses) == classic.laplace_loss(query.local_sensitivity(s), 0.7)


# --- the mechanism: exact privacy on all neighbours -----------------------------------------------------


@pytest.mark.parametrize(("query", "grid"), [(Median(0, 7), GRIDS[1]), (Pairs(3), (0, 1, 2))])
def test_exact_privacy_on_all_neighbours(query, grid):
    epsilon, delta, pairs, worst = 0.5, 0.05, 0, {"sharp": 0.0, "printed": 0.0}
    graph = all_multisets(grid, 5 if isinstance(query, Median) else 8)
    for bound, calibration in itertools.product((0.01, 0.3, 1.0, 2.0), worst):
        parameters = {"bound": bound, "epsilon": epsilon, "delta": delta, "calibration": calibration}
        law = {s: classic.ptr_law(s, query, **parameters) for s in set(graph).union(*graph.values())}
        for s, near in graph.items():
            for t in near:
                pairs += 1
                worst[calibration] = max(
                    worst[calibration], classic.ptr_law_delta(law[s], law[t], 2 * epsilon)
                )
                assert classic.ptr_law_delta(law[s], law[t], 2 * epsilon) <= delta * (1 + 1e-12)
    assert pairs > 1000
    # sharp is attained where a bad data set and its neighbour are far apart; the printed threshold wastes half
    assert worst["sharp"] > 0.99 * delta
    assert 0.99 * delta / 2 < worst["printed"] <= delta / 2 * (1 + 1e-12)


def test_wrong_thresholds_break_privacy():
    """The reversed display and the textbook's threshold on the same neighbours: planted faults are seen."""
    query, bound, epsilon, delta = Median(0, 7), 0.01, 0.5, 1e-3
    first, second = (0.0, 7.0), (0.0, 7.0, 7.0)  # at distance 0
    assert query.distance(first, bound) == 0
    laws = []
    for data in (first, second):
        distance = query.distance(data, bound)
        p = classic.false_pass_probability(
            math.log(2 / delta) / (2 * epsilon), epsilon=epsilon, distance=distance
        )
        laws.append(classic.PtrLaw(p, query.value(data), bound / epsilon))
    assert classic.ptr_law_delta(*laws, 2 * epsilon) > 10 * delta
    threshold = math.log(1 / delta) / epsilon
    turned = [
        classic.PtrLaw(
            1 - classic.false_pass_probability(threshold, epsilon=epsilon, distance=query.distance(d, bound)),
            query.value(d),
            bound / epsilon,
        )
        for d in (first, second)
    ]
    assert classic.ptr_law_delta(*turned, 2 * epsilon) > 0.99


def test_law_is_what_the_mechanism_does():
    query, data = Median(0, 7), [0.5, 3, 3, 3, 4, 4]
    parameters = {"bound": 0.6, "epsilon": 1.0, "delta": 0.1}
    law, rng = classic.ptr_law(data, query, **parameters), np.random.default_rng(3)
    runs = [classic.propose_test_release(data, query, rng=rng, **parameters) for _ in range(4000)]
    numbers = np.array([r.value for r in runs if not r.refused])
    low, high = stats.binomtest(len(numbers), len(runs)).proportion_ci(0.9999)
    assert low <= law.passes <= high
    assert 0.1 < law.passes < 0.9
    assert stats.kstest(numbers, stats.laplace(law.value, law.scale).cdf).pvalue > 1e-4


def test_guarantees_and_refusals():
    rng = np.random.default_rng(0)
    release = classic.propose_test_release([3.0], Median(0, 7), bound=0.1, epsilon=1, delta=1e-9, rng=rng)
    assert isinstance(release.value, Refused)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (2, 1e-9)
    assert dict(release.guarantee.parts) == {"test": 1, "release": 1}
    assert release.guarantee.neighbours is Neighbours.ADD_REMOVE
    # a bound that no data set exceeds always passes
    assert not classic.propose_test_release(
        [], Median(0, 7), bound=3.5, epsilon=1, delta=1e-9, rng=rng
    ).refused
    stable = classic.release_if_stable([1] * 100 + [0] * 3, Mode(3), epsilon=1, delta=1e-9, rng=rng)
    assert stable.value == 1
    assert (stable.guarantee.epsilon, stable.guarantee.delta) == (1, 1e-9)
    assert classic.release_if_stable([1, 0], Mode(3), epsilon=1, delta=1e-9, rng=rng).refused
    with pytest.raises(TypeError, match="private trace"):
        release.__getstate__()


def test_exact_privacy_of_the_stable_mode():
    epsilon, delta, mode, worst = 0.7, 0.02, Mode(3), 0.0
    threshold = classic.ptr_threshold(epsilon, delta)
    graph = all_multisets((0, 1, 2), 8)
    for s, near in graph.items():
        p = classic.false_pass_probability(threshold, epsilon=epsilon, distance=mode.stability(s))
        for t in near:
            q = classic.false_pass_probability(threshold, epsilon=epsilon, distance=mode.stability(t))
            same = mode.value(s) == mode.value(t)
            passed = max(0.0, p - math.exp(epsilon) * q) if same else p
            excess = passed + max(0.0, (1 - p) - math.exp(epsilon) * (1 - q))
            worst = max(worst, excess)
            assert excess <= delta * (1 + 1e-12) + 1e-15
    assert worst == pytest.approx(delta, rel=1e-9)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"bound": 0.0}, ValueError, "bound"),
        ({"bound": -1.0}, ValueError, "bound"),
        ({"bound": math.nan}, ValueError, "bound"),
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"epsilon": "1"}, TypeError, "epsilon"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"calibration": "loose"}, ValueError, "calibration"),
        ({"rng": 3}, TypeError, "rng"),
        ({"data": [1.0, 8.0]}, ValueError, "index 1"),
        ({"data": [1.0, math.nan]}, ValueError, "data"),
        ({"data": [[1.0]]}, ValueError, "dimension"),
    ],
)
def test_bad_input_before_any_noise(changes, error, match):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    arguments = {"data": [1.0, 2.0], "bound": 0.5, "epsilon": 1.0, "delta": 1e-3, "rng": rng} | changes
    with pytest.raises(error, match=match):
        classic.propose_test_release(arguments.pop("data"), Median(0, 7), **arguments)
    assert rng.bit_generator.state == state


def test_bad_queries():
    for lower, upper in ((1, 1), (2, 1), (0, math.inf), (-1e308, 1e308)):
        with pytest.raises(ValueError, match=r"upper|lower"):
            Median(lower, upper)
    with pytest.raises(ValueError, match="classes must be at least 2"):
        Mode(1)
    with pytest.raises(ValueError, match="index 0"):
        Mode(2).value([2])
    with pytest.raises(ValueError, match="index 1"):
        Pairs(2).value([0, 0.5])
    with pytest.raises(ValueError, match="bound"):
        Median(0, 1).distance([0.5], -1)
    with pytest.raises(ValueError, match="distance"):
        classic.false_pass_probability(1.0, epsilon=1.0, distance=-1)
    with pytest.raises(ValueError, match="loss"):
        classic.laplace_delta(1.0, -1)
    with pytest.raises(ValueError, match="one scale"):
        classic.ptr_law_delta(classic.PtrLaw(0.5, 0, 1), classic.PtrLaw(0.5, 0, 2), 1.0)
