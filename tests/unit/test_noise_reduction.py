"""NoiseReduction: exact marginals, the law of the whole sequence, cost, and what may leave the room.

Every statistical check is a function, and a planted fault of the algorithm has to fail it.
"""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.accuracy_first import (
    GeometricLevels,
    noise_reduction,
    noise_reduction_marginal,
    step_characteristic_function,
)
from adaptive_dp.privacy import Domain, Neighbours

SENSITIVITY = 1.7
VALUE = 3.0
EPSILONS = 0.05 * 1.3 ** np.arange(20)


def by_moves(rng, *, epsilons=EPSILONS, size=20_000):
    """The library, all levels as rows: shape (T, size)."""
    path = noise_reduction(np.full(size, VALUE), sensitivity=SENSITIVITY, epsilons=epsilons, rng=rng)
    return np.array([values.copy() for values in path.walk()])


def step_by_step(rng, *, epsilons=EPSILONS, size=20_000, exponent=2.0, fine_noise=False, independent=False):
    """Algorithm 1 as printed, one coin for each coordinate and level; the options plant faults."""
    current = VALUE + rng.laplace(scale=SENSITIVITY / epsilons[-1], size=size)
    rows = [current]
    for coarse, fine in zip(epsilons[-2::-1], epsilons[:0:-1], strict=True):
        keep = rng.random(size) < (coarse / fine) ** exponent
        noise = rng.laplace(scale=SENSITIVITY / (fine if fine_noise else coarse), size=size)
        current = np.where(keep, current, current + noise)
        if independent:
            current = VALUE + rng.laplace(scale=SENSITIVITY / coarse, size=size)
        rows.append(current)
    return np.array(rows[::-1])


# ---------------------------------------------------------------- marginals


def largest_characteristic_error(step):
    """Largest difference between cf(step) cf(finer) and cf(coarser) over frequencies and neighbouring levels."""
    frequency = np.linspace(-300, 300, 20_001)
    worst = 0.0
    for coarse, fine in [
        *itertools.pairwise(EPSILONS),
        (0.1, 1.0),
        (1e-6, 50.0),
        (1.0, 1.0 + 1e-9),
    ]:
        law = 1 / (1 + (SENSITIVITY / np.array([[coarse], [fine]]) * frequency) ** 2)
        product = step(frequency, coarse_epsilon=coarse, fine_epsilon=fine, sensitivity=SENSITIVITY) * law[1]
        worst = max(worst, float(np.abs(product - law[0]).max()))
    return worst


def test_marginals_are_exact_by_characteristic_functions():
    """Theorem 2.7 in one line: cf of a step times cf of the finer law is the cf of the coarser, to 1e-14."""
    assert largest_characteristic_error(step_characteristic_function) < 1e-14


@pytest.mark.parametrize("fault", ["exponent 1", "noise of the finer level"])
def test_characteristic_function_check_finds_planted_faults(fault):
    """Keep probability without the square, or noise Lap(Delta / eps_{t+1}): errors above .05 (erratum AF-4)."""

    def faulty(frequency, *, coarse_epsilon, fine_epsilon, sensitivity):
        ratio = coarse_epsilon / fine_epsilon
        keep = ratio if fault == "exponent 1" else ratio**2
        scale = sensitivity / (coarse_epsilon if fault == "exponent 1" else fine_epsilon)
        return keep + (1 - keep) / (1 + (scale * frequency) ** 2)

    assert largest_characteristic_error(faulty) > 0.05


def assert_marginals_are_laplace(sample, epsilons=EPSILONS):
    """Kolmogorov-Smirnov at each level, Bonferroni: false-fail rate 1e-6 in all."""
    for epsilon, values in zip(epsilons, sample, strict=True):
        law = noise_reduction_marginal(epsilon, sensitivity=SENSITIVITY, value=VALUE)
        assert stats.kstest(values, law.cdf).pvalue > 1e-6 / len(sample)


@pytest.mark.parametrize("epsilons", [EPSILONS, np.array([0.1, 1.0]), np.array([0.5, 0.5001, 0.6, 30.0])])
def test_every_level_has_exactly_the_laplace_marginal(epsilons):
    """AF-02: level t is Laplace(Delta / epsilon_t) around the value, at each of the levels (false-fail 1e-6)."""
    assert_marginals_are_laplace(by_moves(np.random.default_rng(1), epsilons=epsilons), epsilons)


@pytest.mark.parametrize("fault", [{"exponent": 1.0}, {"fine_noise": True}])
def test_marginal_check_finds_planted_faults(fault):
    """The same check refuses the exponent 1 and the noise of the finer level; the printed algorithm passes it."""
    assert_marginals_are_laplace(step_by_step(np.random.default_rng(2)))
    with pytest.raises(AssertionError):
        assert_marginals_are_laplace(step_by_step(np.random.default_rng(2), **fault))


def test_marginal_law_is_the_laplace_mechanism():
    """Scale Delta / epsilon around the value, from the exact law object."""
    law = noise_reduction_marginal(0.5, sensitivity=2.0, value=-1.0)
    assert law.mean() == pytest.approx(-1.0)
    assert law.std() == pytest.approx(np.sqrt(2) * 4.0)


# ---------------------------------------------------------------- the law of the whole sequence


def move_count_law(epsilons):
    """Exact law of the number of moves of one coordinate: sum of independent coins 1 - (eps_t/eps_{t+1})^2."""
    law = np.ones(1)
    for keep in (epsilons[:-1] / epsilons[1:]) ** 2:
        law = np.convolve(law, [keep, 1 - keep])
    return law


def assert_sequence_law(sample, epsilons=EPSILONS):
    """Joint law of the levels against exact values; false-fail rate below 1e-5 in all.

    Number of moves (chi-square); fraction of equal pairs (eps_s / eps_t)^2 for all s < t (binomial tests);
    independent coins (moves at t and at u); cov(v_s, v_t) = var(v_t) = 2 (Delta / eps_t)^2 (five sigma);
    v_s - v_t given a move s = t - 1 is Laplace(Delta / eps_s) and uncorrelated with v_t (KS, five sigma).
    """
    count, size = sample.shape
    moved = sample[:-1] != sample[1:]
    law = move_count_law(epsilons)
    seen = np.bincount(moved.sum(axis=0), minlength=count).astype(float)
    order = np.argsort(law)
    rare = order[np.cumsum(law[order]) * size < 20]
    common = np.setdiff1d(np.arange(count), rare)
    observed = np.append(seen[common], seen[rare].sum())
    expected = np.append(law[common], law[rare].sum()) * size
    observed, expected = observed[expected > 0], expected[expected > 0]
    if expected.size > 1:
        assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-6
    tests = count * (count - 1) / 2
    for s in range(count - 1):
        for t in range(s + 1, count):
            equal = int(np.count_nonzero(sample[s] == sample[t]))
            chance = (epsilons[s] / epsilons[t]) ** 2
            assert stats.binomtest(equal, size, chance).pvalue > 1e-6 / tests
    for s in range(count - 2):
        both = moved[s] & moved[s + 1]
        chance = np.prod(1 - (epsilons[s : s + 2] / epsilons[s + 1 : s + 3]) ** 2)
        assert stats.binomtest(int(both.sum()), size, float(chance)).pvalue > 1e-6 / tests
    noise = sample - VALUE
    for s in range(count - 1):
        for t in (s + 1, count - 1):
            product = noise[s] * noise[t]
            expected_covariance = 2 * (SENSITIVITY / epsilons[t]) ** 2
            assert abs(product.mean() - expected_covariance) < 5.5 * product.std() / np.sqrt(size)
        step = (sample[s] - sample[s + 1])[moved[s]]
        law_of_step = stats.laplace(scale=SENSITIVITY / epsilons[s])
        assert stats.kstest(step, law_of_step.cdf).pvalue > 1e-6 / count
        cross = step * noise[s + 1][moved[s]]
        assert abs(cross.mean()) < 5.5 * cross.std() / np.sqrt(cross.size)


@pytest.mark.parametrize("geometric", [False, True])
def test_sequence_law_is_that_of_the_printed_step_by_step_algorithm(geometric):
    """AF-01: drawing moves directly changes no joint law: 20 levels, 20000 coordinates (false-fail 1e-5)."""
    levels = GeometricLevels(EPSILONS[0], EPSILONS[-1], 20) if geometric else EPSILONS
    assert_sequence_law(by_moves(np.random.default_rng(3), epsilons=levels))
    assert_sequence_law(step_by_step(np.random.default_rng(3)))


@pytest.mark.parametrize("fault", [{"exponent": 1.0}, {"fine_noise": True}, {"independent": True}])
def test_sequence_check_finds_planted_faults(fault):
    """Exponent 1, noise of the finer level, and independent draws with the right marginals are all refused."""
    with pytest.raises(AssertionError):
        assert_sequence_law(step_by_step(np.random.default_rng(4), **fault))


def assert_coordinates_are_independent(draw):
    """Both coordinates of a pair keep together with chance k^2, not k: 40000 pairs, false-fail 1e-6."""
    epsilons = np.array([0.5, 1.0])
    sample = draw(epsilons)
    both = (sample[0] == sample[1]).all(axis=1)
    keep = (epsilons[0] / epsilons[1]) ** 2
    assert stats.binomtest(int(both.sum()), both.size, keep**2).pvalue > 1e-6


def test_coins_are_per_coordinate_and_one_shared_coin_is_found():
    """Erratum AF-4: the coordinates of one array flip their own coins."""

    def library(epsilons):
        path = noise_reduction(
            np.zeros((40_000, 2)), sensitivity=1.0, epsilons=epsilons, rng=np.random.default_rng(5)
        )
        return np.array([path.at(0), path.at(1)])

    def one_coin(epsilons):
        rng = np.random.default_rng(5)
        fine = rng.laplace(scale=1 / epsilons[1], size=(40_000, 2))
        keep = rng.random((40_000, 1)) < (epsilons[0] / epsilons[1]) ** 2
        return np.array(
            [np.where(keep, fine, fine + rng.laplace(scale=1 / epsilons[0], size=fine.shape)), fine]
        )

    assert_coordinates_are_independent(library)
    with pytest.raises(AssertionError):
        assert_coordinates_are_independent(one_coin)


# ---------------------------------------------------------------- one shared coin breaks privacy: exact densities


def two_level_log_density(point, epsilons, *, shared):
    """Exact log density at ``point`` (d,) of the coarse level of T = 2 around 0, Delta = 1."""
    coarse, fine = 1 / epsilons[0], 1 / epsilons[1]
    keep = (epsilons[0] / epsilons[1]) ** 2
    size = np.abs(point)
    kept = -size / fine - np.log(2 * fine)
    # density of the sum of two independent Laplace variables of different scales
    moved = np.log(coarse * np.exp(-size / coarse) - fine * np.exp(-size / fine)) - np.log(
        2 * (coarse**2 - fine**2)
    )
    if shared:
        return np.logaddexp(np.log(keep) + kept.sum(), np.log1p(-keep) + moved.sum())
    return np.logaddexp(np.log(keep) + kept, np.log1p(-keep) + moved).sum()


def two_level_loss(dimension, epsilons, *, shared):
    """Largest log density ratio between values 0 and e_1 over a line of outcomes through both."""
    shift = np.zeros(dimension)
    shift[0] = 1.0

    def loss(z):
        point = z * shift
        return two_level_log_density(point, epsilons, shared=shared) - two_level_log_density(
            point - shift, epsilons, shared=shared
        )

    return max(abs(loss(z)) for z in np.linspace(-3, 4, 701))


@pytest.mark.parametrize("dimension", [1, 2, 3, 5, 10, 77])
@pytest.mark.parametrize("epsilons", [(0.1, 1.0), (0.5, 2.0)])
def test_per_coordinate_coins_cost_exactly_the_coarse_epsilon(dimension, epsilons):
    """Exact density: publishing the coarse level costs epsilon_1 in every dimension (Theorem 2.7)."""
    assert two_level_loss(dimension, epsilons, shared=False) == pytest.approx(epsilons[0], abs=1e-9)


@pytest.mark.parametrize(("dimension", "loss"), [(1, 0.1), (2, 0.452), (3, 0.894), (5, 0.999), (10, 1.0)])
def test_one_shared_coin_costs_up_to_the_fine_epsilon(dimension, loss):
    """Erratum AF-4: eps_1 = .1, eps_2 = 1; one coin for the vector loses .452, .894, .999, ... instead of .1."""
    assert two_level_loss(dimension, (0.1, 1.0), shared=True) == pytest.approx(loss, abs=6e-4)


# ---------------------------------------------------------------- the object


def test_walk_equals_at():
    """Walking and asking give the same values at each level, also for many levels and arrays of any shape."""
    rng = np.random.default_rng(6)
    for shape in ((), (1,), (7,), (3, 4), (2, 3, 4), (0,), (3, 0)):
        for levels in (EPSILONS, np.array([0.1, 1.0]), GeometricLevels(1e-4, 10.0, 300)):
            path = noise_reduction(np.ones(shape), sensitivity=1.0, epsilons=levels, rng=rng)
            values = [view.copy() for view in path.walk()]
            assert len(values) == path.levels == len(levels)
            for level, value in enumerate(values):
                assert value.shape == shape
                np.testing.assert_array_equal(value, path.at(level))


def test_moves_tell_all_changes():
    """`moves` counts the changes between neighbouring levels, and they are sorted by level."""
    path = noise_reduction(np.zeros(500), sensitivity=1.0, epsilons=EPSILONS, rng=np.random.default_rng(7))
    values = np.array([view.copy() for view in path.walk()])
    assert path.moves == int((values[1:] != values[:-1]).sum())
    assert (np.diff(path.level) >= 0).all()
    assert path.level.min() >= 1
    assert path.level.max() <= path.levels - 1


def test_order_of_entries_is_kept_for_any_memory_layout():
    """At a nearly exact level each entry sits at its place: Fortran order, strides, integers."""
    base = np.arange(12).reshape(3, 4) * 1000
    for array in (np.asfortranarray(base), base[::-1, ::2], base.T, base.tolist()):
        path = noise_reduction(array, sensitivity=1.0, epsilons=[10.0, 100.0], rng=np.random.default_rng(8))
        for level in (0, 1):
            np.testing.assert_allclose(path.at(level), np.asarray(array), atol=10)


@pytest.mark.parametrize("count", [10, 1000, 10**6])
def test_number_of_moves_does_not_grow_with_the_number_of_levels(count):
    """Mean moves a coordinate: sum of 1 - r^2, at most 2 log(eps_T / eps_1); 2000 coordinates, false-fail 1e-6."""
    first, last, size = 1e-5, 50.0, 2000
    levels = GeometricLevels(first, last, count)
    path = noise_reduction(np.zeros(size), sensitivity=1.0, epsilons=levels, rng=np.random.default_rng(9))
    move = -np.expm1(-2 * levels.log_ratio)
    expected = size * (count - 1) * move
    spread = np.sqrt(expected * (1 - move))
    assert abs(path.moves - expected) < 5 * spread
    assert expected <= size * 2 * np.log(last / first)
    # nothing of length T is stored
    assert sum(part.size for part in (path.coarse, path.level, path.coordinate, path.value)) < 4 * size * 35


def test_walk_gives_a_read_only_view_of_one_buffer():
    """The walker cannot be disturbed by accident, and `at` gives fresh arrays."""
    path = noise_reduction(np.zeros(3), sensitivity=1.0, epsilons=EPSILONS, rng=np.random.default_rng(10))
    walk = path.walk()
    view = next(walk)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1.0
    assert next(walk) is view
    before = path.at(0)
    path.at(0)[:] = 99.0
    np.testing.assert_array_equal(path.at(0), before)


def test_the_path_is_private_and_only_a_release_leaves():
    """Pickling and copying are refused, printing shows no value, a release carries its own epsilon."""
    path = noise_reduction(
        np.array([123.25]), sensitivity=1.0, epsilons=[1.0, 1e6], rng=np.random.default_rng(11)
    )
    assert "private" in repr(path)
    assert "123" not in repr(path)
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="private"):
            leave(path)
    domain = Domain()
    release = path.release(1, neighbours=Neighbours.ADD_REMOVE, domain=domain)
    np.testing.assert_array_equal(release.value, path.at(1))
    assert release.index == 1
    guarantee = release.guarantee
    assert (guarantee.kind, guarantee.epsilon, guarantee.delta) == ("ex-ante", 1e6, 0.0)
    assert (guarantee.neighbours, guarantee.domain) == (Neighbours.ADD_REMOVE, domain)
    assert dict(guarantee.parts) == {"generate": 1e6}
    assert len(release.trace) == 0
    assert pickle.loads(pickle.dumps(release)).value == release.value
    assert path.release(0).guarantee.epsilon == 1.0
    assert path.release(0).guarantee.neighbours is Neighbours.REPLACE_ONE


def test_all_chance_comes_from_the_generator():
    """Same seed, same path; the same generator used again gives another one."""
    draw = lambda rng: noise_reduction(np.zeros(4), sensitivity=1.0, epsilons=EPSILONS, rng=rng)  # noqa: E731
    np.testing.assert_array_equal(draw(np.random.default_rng(1)).at(3), draw(np.random.default_rng(1)).at(3))
    rng = np.random.default_rng(1)
    assert (draw(rng).at(3) != draw(rng).at(3)).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"value": [np.nan]}, ValueError, "value must be finite"),
        ({"value": [np.inf]}, ValueError, "value must be finite"),
        ({"value": ["a"]}, TypeError, "value must be numeric"),
        ({"value": [1j]}, TypeError, "value must be numeric"),
        ({"value": np.ma.masked_array([1.0], [True])}, TypeError, "value must not be a masked array"),
        ({"sensitivity": 0.0}, ValueError, "sensitivity must be positive"),
        ({"sensitivity": -1.0}, ValueError, "sensitivity must be positive"),
        ({"sensitivity": np.inf}, ValueError, "sensitivity must be finite"),
        ({"sensitivity": [1.0, 2.0]}, TypeError, "sensitivity must be a real number"),
        ({"epsilons": [1.0]}, ValueError, "epsilons must hold at least 2 levels"),
        ({"epsilons": [2.0, 1.0]}, ValueError, "epsilons must be strictly increasing"),
        ({"rng": 5}, TypeError, "rng must be a numpy.random.Generator"),
        ({"rng": np.random.RandomState(5)}, TypeError, "rng must be a numpy.random.Generator"),
        ({"rng": None}, TypeError, "rng must be a numpy.random.Generator"),
    ],
)
def test_bad_input_is_refused_before_any_noise_is_drawn(change, error, message):
    """Errors name the argument, and the generator has not been used."""
    rng = np.random.default_rng(1)
    arguments = {"value": [0.0], "sensitivity": 1.0, "epsilons": [1.0, 2.0], "rng": rng} | change
    with pytest.raises(error, match=message):
        noise_reduction(arguments.pop("value"), **arguments)
    assert rng.random() == np.random.default_rng(1).random()


@pytest.mark.parametrize(
    ("level", "error", "message"),
    [
        (-1, ValueError, "level must be at least 0"),
        (2, ValueError, "level must be below 2, got 2"),
        (1.0, TypeError, "level must be an integer"),
        (True, TypeError, "level must be an integer"),
    ],
)
def test_levels_outside_the_list_are_refused(level, error, message):
    """A negative level would silently publish the least private value."""
    path = noise_reduction([0.0], sensitivity=1.0, epsilons=[1.0, 2.0], rng=np.random.default_rng(1))
    for ask in (path.at, path.release):
        with pytest.raises(error, match=message):
            ask(level)


def test_path_cannot_be_changed_after_the_draw():
    """The moves are read-only: a path that is edited would release something nobody analysed."""
    rng = np.random.default_rng(1)
    path = noise_reduction(np.zeros(3), sensitivity=1.0, epsilons=[0.5, 1.0], rng=rng)
    with pytest.raises(ValueError, match="read-only"):
        path.coarse[0] = 1.0


def test_noise_that_overflows_is_refused_before_it_is_drawn():
    """A scale beyond the largest float names the argument."""
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    with pytest.raises(ValueError, match="epsilons must not be so small"):
        noise_reduction([0.0], sensitivity=1e10, epsilons=[1e-305, 1.0], rng=rng)
    assert rng.bit_generator.state == before


def test_step_needs_increasing_levels():
    """A coarser level after a finer one has no step."""
    with pytest.raises(ValueError, match="strictly increasing"):
        step_characteristic_function([1.0], coarse_epsilon=1.0, fine_epsilon=0.5, sensitivity=1.0)
