"""Lists of privacy levels: the implicit geometric list behaves as the listed one, at any length."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from adaptive_dp.accuracy_first import GeometricLevels, ListedLevels
from adaptive_dp.accuracy_first.levels import as_levels, as_prefix_costs


def random_geometric(rng):
    first = 10 ** rng.uniform(-9, 3)
    ratio = 10 ** rng.uniform(-6, 6)
    return GeometricLevels(first, first * (1 + ratio), int(rng.integers(2, 3000)))


def assert_below_is_right(levels, bound, index):
    """The definition itself: index is the largest with level < bound, or -1."""
    known = index >= 0
    assert (levels.at(index[known]) < bound[known]).all()
    following = index + 1 < len(levels)
    assert (levels.at(index[following] + 1) >= bound[following]).all()
    assert index.min() >= -1
    assert index.max() < len(levels)


def test_geometric_below_equals_searching_the_listed_levels_with_exact_ties():
    """200 random lists, about 1000 bounds each: levels themselves, their neighbouring doubles, points between."""
    rng = np.random.default_rng(11)
    for _ in range(200):
        geometric = random_geometric(rng)
        values = geometric.at(np.arange(len(geometric)))
        listed = ListedLevels(values)
        ties = rng.choice(values, 200)
        between = values[0] * np.exp(rng.uniform(-1, geometric.log_ratio * len(values) + 1, 400))
        bound = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf), between, [0.0]])
        index = geometric.below(bound)
        np.testing.assert_array_equal(index, listed.below(bound))
        assert_below_is_right(geometric, bound, index)


@pytest.mark.parametrize("ends", [(1e-5, 80.0), (1.0, 1.0 + 1e-4), (1e-100, 1e100)])
def test_a_million_levels_behave_as_listed_ones(ends):
    """T = 10^6: 20000 bounds, half of them exact ties; nothing of length T is stored."""
    levels = GeometricLevels(*ends, 10**6)
    rng = np.random.default_rng(12)
    ties = levels.at(rng.integers(0, 10**6, 10_000))
    bound = np.concatenate([ties, np.exp(rng.uniform(math.log(ends[0]) - 1, math.log(ends[1]) + 1, 10_000))])
    index = levels.below(bound)
    np.testing.assert_array_equal(index, ListedLevels(levels.at(np.arange(10**6))).below(bound))
    assert len(pickle.dumps(levels)) < 1000


def test_geometric_levels_are_strictly_increasing_and_keep_both_ends_exactly():
    """Both ends are the numbers that were given, and neighbours never collide (erratum AF-2)."""
    rng = np.random.default_rng(13)
    for _ in range(100):
        levels = random_geometric(rng)
        values = levels.at(np.arange(len(levels)))
        assert (np.diff(values) > 0).all()
        assert (values[0], values[-1]) == (levels.first, levels.last)
        ratios = values[1:] / values[:-1]
        np.testing.assert_allclose(ratios, math.exp(levels.log_ratio), rtol=1e-12)


def test_paper_grid_is_increasing_from_one_over_n_to_four_e():
    """The list that the released code uses, not the decreasing one of Appendix B.1 (erratum AF-2)."""
    rows, largest, count = 100_000, 13.5, 1000
    levels = GeometricLevels(1 / rows, 4 * largest, count)
    printed_backwards = (1 / rows) * (4 * largest * rows) ** (np.arange(count) / (count - 1))
    np.testing.assert_allclose(levels.at(np.arange(count)), printed_backwards, rtol=1e-12)


def test_levels_are_sequences():
    """Length, items from both ends, iteration and the printed form."""
    for levels in (GeometricLevels(1, 16, 5), ListedLevels([1, 2, 4, 8, 16])):
        assert list(levels) == [1.0, 2.0, 4.0, 8.0, 16.0]
        assert len(levels) == 5
        assert levels[-1] == 16.0
        assert repr(levels) == "<5 privacy levels from 1 to 16>"
        for index in (5, -6):
            with pytest.raises(IndexError, match="of 5"):
                levels[index]


def test_listed_levels_are_a_copy():
    """A caller that changes the array afterwards does not change the promise."""
    array = np.array([1.0, 2.0, 3.0])
    levels = ListedLevels(array)
    array[0] = 99.0
    assert levels[0] == 1.0


def test_as_levels_passes_levels_through():
    """Levels stay what they are; lists become listed levels."""
    levels = GeometricLevels(1, 2, 3)
    assert as_levels(levels) is levels
    assert list(as_levels([1, 2])) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("first", "last", "count", "error", "message"),
    [
        (0.0, 1.0, 3, ValueError, "first must be positive"),
        (-1.0, 1.0, 3, ValueError, "first must be positive"),
        (1.0, 1.0, 3, ValueError, "last must exceed first"),
        (4.0, 0.1, 3, ValueError, "last must exceed first"),
        (1.0, math.inf, 3, ValueError, "last must be finite"),
        (1.0, math.nan, 3, ValueError, "last must be finite"),
        (1.0, 2.0, 1, ValueError, "count must be at least 2"),
        (1.0, 2.0, 10.0, TypeError, "count must be an integer"),
        (1.0, 2.0, 10**13, ValueError, "count is too large"),
        ("1", 2.0, 3, TypeError, "first must be a real number"),
        (True, 2.0, 3, TypeError, "first must be a real number"),
    ],
)
def test_bad_geometric_levels_are_refused(first, last, count, error, message):
    """Errors name the argument."""
    with pytest.raises(error, match=message):
        GeometricLevels(first, last, count)


@pytest.mark.parametrize(
    ("epsilons", "error", "message"),
    [
        ([1.0], ValueError, "epsilons must hold at least 2 levels, got 1"),
        ([], ValueError, "epsilons must hold at least 2 levels"),
        ([0.0, 1.0], ValueError, "epsilons must be positive"),
        ([1.0, 1.0], ValueError, "epsilons must be strictly increasing"),
        ([4.0, 2.0, 1.0], ValueError, "epsilons must be strictly increasing"),
        ([1.0, math.nan], ValueError, "epsilons must be finite"),
        ([[1.0, 2.0]], ValueError, "epsilons must have 1 dimension"),
        (["1", "2"], TypeError, "epsilons must be numeric"),
        (np.ma.masked_array([1.0, 2.0], [False, True]), TypeError, "epsilons must not be a masked array"),
    ],
)
def test_bad_lists_are_refused(epsilons, error, message):
    """The decreasing list that the paper prints is among them (erratum AF-2)."""
    with pytest.raises(error, match=message):
        as_levels(epsilons)


def test_prefix_costs_may_stand_still_but_not_fall():
    """Costs of prefixes are nonnegative and nondecreasing; zeros are public queries."""
    assert as_prefix_costs([0, 0, 1]).tolist() == [0.0, 0.0, 1.0]
    for bad in ([], [1.0, 0.5], [-1.0, 0.0]):
        with pytest.raises(ValueError, match="prefix_epsilons must be nonnegative and nondecreasing"):
            as_prefix_costs(bad)
    with pytest.raises(ValueError, match="prefix_epsilons must be finite"):
        as_prefix_costs([0.0, math.nan])


def test_ends_of_any_size_are_kept():
    """The ratio of the ends may overflow; its logarithm does not."""
    levels = GeometricLevels(1e-300, 1e300, 5)
    assert (levels[0], levels[-1]) == (1e-300, 1e300)
    assert np.isfinite(levels.at(np.arange(5))).all()


@pytest.mark.parametrize("levels", [GeometricLevels(1.0, 16.0, 5), ListedLevels([1.0, 2.0, 4.0, 8.0, 16.0])])
@pytest.mark.parametrize("index", [-1, 5, 1.5])
def test_indices_outside_the_list_are_refused(levels, index):
    """No extrapolation, and never the least private level for -1."""
    with pytest.raises(IndexError, match="index"):
        levels.at(index)
