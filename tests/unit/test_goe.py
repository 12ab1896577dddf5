"""The law of the largest GOE eigenvalue: two independent computations, closed forms, simulation, and safe sides.

Simulations run on fixed seeds: they cannot fail by chance, only by change. Each states what it would notice.
"""

import functools
import json
import math
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import stats

from adaptive_dp import goe
from benchmarks import goe as bench

TAILS = [0.5, 0.02, 1e-3, 1e-6, 1e-12, 1e-15, 1e-20, 1e-100, 1e-300]


# ---------------------------------------------------------------- closed forms


def two_by_two_survival(t):
    """lambda_1 of a 2 x 2 matrix is a standard normal plus an independent Rayleigh variable."""
    return stats.norm.sf(t) + np.exp(-(t**2) / 4) * stats.norm.cdf(t / math.sqrt(2)) / math.sqrt(2)


def test_one_dimension_is_a_normal_with_variance_two():
    law = stats.norm(scale=math.sqrt(2))
    t = np.linspace(-12, 12, 97)
    assert goe.cdf(t, 1) == pytest.approx(law.cdf(t), rel=0, abs=1e-15)
    far = np.linspace(-3, 52, 111)
    assert goe.survival(far, 1) == pytest.approx(law.sf(far), rel=1e-12, abs=0)
    for probability in (1e-9, 0.3, 0.5, 0.97, 1 - 1e-13):
        assert goe.quantile(probability, 1) == pytest.approx(law.isf(1 - probability), rel=1e-6)


def test_two_dimensions_have_a_closed_form():
    t = np.linspace(-9, 12, 85)
    assert goe.cdf(t, 2) == pytest.approx(1 - two_by_two_survival(t), rel=0, abs=1e-15)
    far = np.linspace(-3, 50, 107)
    assert goe.survival(far, 2) == pytest.approx(two_by_two_survival(far), rel=1e-12, abs=0)


# ---------------------------------------------------------------- two independent computations


@functools.cache
def digits(t, dimension, count):
    """Distribution function and its complement, to ``count`` digits of the first."""
    below = goe.cdf_mpmath(t, dimension, count)
    with mpmath.workdps(count + 5):
        return float(below), float(1 - below)


@pytest.mark.parametrize("dimension", [*range(1, 13), 20])
def test_against_mpmath(dimension):
    edge = 2 * math.sqrt(dimension)
    for t in (-2.0, 0.25, edge - 2, edge - 0.5, edge + 0.5, edge + 1.5, edge + 3):
        below, above = digits(t, dimension, 30)
        assert goe.cdf(t, dimension) == pytest.approx(below, rel=0, abs=2e-15)
        if above < 0.5:
            assert goe.survival(t, dimension) == pytest.approx(above, rel=1e-12, abs=0)
    for t in (edge + 7, edge + 11, edge + 15):  # tails down to 1e-60
        above = digits(t, dimension, 90)[1]
        assert goe.survival(t, dimension) == pytest.approx(above, rel=1e-12, abs=0)


def test_against_mpmath_in_fifty_dimensions():
    for t in (13.0, 14.5, 12 * math.sqrt(2)):
        below, above = digits(t, 50, 25)
        assert goe.cdf(t, 50) == pytest.approx(below, rel=0, abs=1e-14)
        assert goe.survival(t, 50) == pytest.approx(above, rel=1e-11, abs=0)
    above = digits(24.0, 50, 50)[1]
    assert above < 1e-27
    assert goe.survival(24.0, 50) == pytest.approx(above, rel=1e-12, abs=0)


@pytest.mark.parametrize("dimension", [3, 50, 51, 100, 199, 200, goe.MAX_DIMENSION])
def test_against_the_ratio_of_pfaffians(dimension):
    """The whole matrix up to x over the whole matrix at infinity, both by quadrature."""
    edge = 2 * math.sqrt(dimension)
    for t in edge + (
        np.array([-0.4, 0.5]) if dimension > 200 else np.array([-2.0, -1.0, -0.4, 0.0, 0.7, 2.0])
    ):
        expected = bench.straightforward_cdf(float(t), dimension)
        assert goe.cdf(t, dimension) == pytest.approx(expected, rel=0, abs=5e-13)


def expected_number(t, dimension):
    """Expected number of eigenvalues beyond t: the integral of the one-point density (Mehta, Random Matrices)."""
    x = t / math.sqrt(2)
    edges = np.linspace(x, max(x, math.sqrt(2 * dimension)) + 9, 200)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    points = (edges[:-1, None] + half * (1 + nodes)).ravel()
    values, integrals = bench.functions_and_integrals(dimension + 1, points)
    total = bench.functions_and_integrals(dimension + 1, np.array([40.0]))[1][:, 0]
    last = values[dimension - 1]
    density = (values[:dimension] ** 2).sum(axis=0)
    density += math.sqrt(dimension / 2) * last * (integrals[dimension] - total[dimension] / 2)
    if dimension % 2:
        density += last / total[dimension - 1]
    return float(density @ (half * weights).ravel())


@pytest.mark.parametrize("dimension", [1, 2, 9, 50, 199, 200])
def test_the_expected_number_of_eigenvalues_bounds_the_tail(dimension):
    assert expected_number(-2 * math.sqrt(dimension) - 14, dimension) == pytest.approx(dimension, rel=1e-10)
    for t in 2 * math.sqrt(dimension) + np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 4.0]):
        number, tail = expected_number(t, dimension), goe.survival(t, dimension)
        assert number * (1 - number) - 1e-12 * number <= tail <= number * (1 + 1e-11)
        if dimension > 1:
            assert number > tail


@pytest.mark.parametrize("dimension", [1, 2, 9, 50, 199, 200])
def test_far_left_nothing_of_the_matrix_is_left(dimension):
    """K is the identity there, which holds only if the inverse at infinity is the right one."""
    constants = goe._constants(dimension)
    kernel = goe._kernel(-constants.top, constants)
    assert kernel == pytest.approx(np.eye(len(kernel)), rel=0, abs=1e-12)


def test_mpmath_is_only_needed_for_its_own_function(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpmath", None)
    assert 0 < goe.cdf(3.0, 3) < 1
    with pytest.raises(ImportError):
        goe.cdf_mpmath(3.0, 3)


def test_mpmath_keeps_the_digits_that_were_asked_for():
    """d = 1: every digit is known; and more digits refine fewer."""
    with mpmath.workdps(60):
        known = mpmath.ncdf(mpmath.mpf(1.25) / mpmath.sqrt(2))
        assert abs(goe.cdf_mpmath(1.25, 1, 50) / known - 1) < mpmath.mpf(10) ** -49
        few, many = goe.cdf_mpmath(-4.0, 9, 15), goe.cdf_mpmath(-4.0, 9, 40)
        assert 0 < many < 1e-20
        assert abs(few / many - 1) < 1e-14


def test_mpmath_notices_when_its_first_precision_was_too_low():
    """Far left the incomplete gamma recursion cancels dozens of digits."""
    with mpmath.workdps(42):
        first_try = goe._monomial_pfaffian(mpmath, -60.0, 12)
    few, many = goe.cdf_mpmath(-60.0, 12, 10), goe.cdf_mpmath(-60.0, 12, 40)
    assert abs(few / many - 1) < 1e-9
    assert abs(first_try / many) > 1e9


# ---------------------------------------------------------------- simulation


def simulate(dimension, draws, seed):
    """Largest eigenvalues and operator norms, two arrays (draws,)."""
    rng = np.random.default_rng(seed)
    square = rng.standard_normal((draws, dimension, dimension))
    spectrum = np.linalg.eigvalsh((square + square.swapaxes(1, 2)) / math.sqrt(2))
    return spectrum[:, -1], np.abs(spectrum[:, [0, -1]]).max(axis=1)


@pytest.mark.parametrize(("dimension", "draws"), [(2, 40_000), (3, 40_000), (8, 20_000), (21, 5_000)])
def test_simulated_eigenvalues_follow_the_law(dimension, draws):
    largest, _ = simulate(dimension, draws, seed=dimension)
    grid = np.linspace(largest.min() - 0.5, largest.max() + 0.5, 400)
    table = goe.cdf(grid, dimension)

    def law(values):
        return np.interp(values, grid, table)

    assert stats.kstest(largest, law).pvalue > 1e-3
    # It has power: the variances of Chiani's normalisation, or a tenth of a unit, are seen.
    assert stats.kstest(largest / math.sqrt(2), law).pvalue < 1e-6
    assert stats.kstest(largest + 0.1, law).pvalue < 1e-6


@pytest.mark.parametrize(("dimension", "draws"), [(1, 100_000), (2, 40_000), (8, 20_000), (21, 5_000)])
@pytest.mark.parametrize("rho", [0.2, 0.02])
def test_the_norm_stays_below_its_bound(dimension, draws, rho):
    """Clopper-Pearson at level 1e-6; the union over both ends is nearly exact, so a bound for twice rho would fail."""
    _, norms = simulate(dimension, draws, seed=100 + dimension)
    failures = int((norms > goe.operator_norm_bound(rho, dimension)).sum())
    interval = stats.binomtest(failures, draws).proportion_ci(1 - 1e-6, method="exact")
    assert interval.low <= rho
    assert interval.high >= 0.8 * rho
    loose = int((norms > goe.operator_norm_bound(min(2 * rho, 0.9), dimension)).sum())
    assert stats.binomtest(loose, draws).proportion_ci(1 - 1e-6, method="exact").low > rho


# ---------------------------------------------------------------- the thesis


def test_the_number_of_the_thesis_is_in_another_normalisation():
    """Erratum 7: 12 for d = 50 and rho = 8.465e-6 belongs to half the variance."""
    rho = 8.465e-6
    tau = goe.operator_norm_bound(rho, 50)
    assert tau == pytest.approx(12 * math.sqrt(2), abs=1e-4)
    assert goe.quantile(1 - rho / 2, 50) == pytest.approx(tau, abs=1e-8)
    assert goe.cdf(12.0, 50) < 0.01  # as printed, the bound fails in more than 99 of 100 runs


@pytest.mark.parametrize("dimension", [1, 2, 3, 21, 50, 199, 200, goe.MAX_DIMENSION])
def test_the_explicit_bound_is_larger(dimension):
    for rho in (5e-324, 1e-300, 1e-20, 1e-12, 1e-6, 0.01, 0.3, 0.9, 0.999999):
        exact, explicit = goe.operator_norm_bound(rho, dimension), goe.explicit_bound(rho, dimension)
        assert exact < explicit
        assert explicit == pytest.approx(
            2 * math.sqrt(dimension) + 2 * math.sqrt(math.log(2) - math.log(rho)), rel=1e-14
        )


def test_answers_that_are_remembered_are_remembered_for_checked_arguments_alone():
    first = goe.operator_norm_bound(0.0123, 1)
    assert goe.operator_norm_bound(np.float64(0.0123), np.int64(1)) == first
    assert first == pytest.approx(goe.upper_quantile(0.0123 / 2, 1), rel=1e-12)
    with pytest.raises(TypeError, match="dimension"):  # True == 1, but it is no dimension
        goe.operator_norm_bound(0.0123, True)


@pytest.mark.parametrize("function", [goe.operator_norm_bound, goe.explicit_bound])
def test_dimensions_beyond_the_floats_overflow(function):
    with pytest.raises(OverflowError):
        function(0.01, 10**400)


def test_the_explicit_bound_stands_in_beyond_the_largest_dimension():
    beyond = goe.MAX_DIMENSION + 1
    assert goe.operator_norm_bound(0.01, beyond) == goe.explicit_bound(0.01, beyond)
    for function in (goe.cdf, goe.survival, goe.quantile, goe.upper_quantile):
        with pytest.raises(ValueError, match=rf"dimension must be at most {goe.MAX_DIMENSION}.*{beyond}"):
            function(0.5, beyond)


# ---------------------------------------------------------------- roots, sides, shape


@pytest.mark.parametrize("dimension", [1, 2, 3, 21, 50, 199, 200])
def test_upper_quantiles_are_on_the_safe_side_and_close(dimension):
    for tail in (5e-324, *TAILS, 0.9, 1 - 1e-9, 1 - 2**-53):
        t = goe.upper_quantile(tail, dimension)
        assert goe.survival(t, dimension) <= tail
        if 1e-300 <= tail <= 0.9:
            assert goe.survival(t - 1e-8, dimension) > tail


@pytest.mark.parametrize("dimension", [1, 2, 7, 20])
def test_upper_quantiles_are_on_the_safe_side_of_all_digits(dimension):
    for tail, count in ((0.3, 30), (1e-6, 40), (1e-12, 45), (1e-20, 55)):
        t = goe.upper_quantile(tail, dimension)
        assert digits(t, dimension, count)[1] <= tail
        assert digits(t - 1e-8, dimension, count)[1] > tail


@pytest.mark.parametrize("rho", [1e-12, 1e-20, 5e-324])
def test_the_norm_bound_halves_even_the_least_failure_probability(rho):
    tau = goe.operator_norm_bound(rho, 5)
    assert goe.survival(tau, 5) <= rho / 2
    if rho > 1e-300:
        assert tau == goe.upper_quantile(rho / 2, 5)
    else:  # its half is no float any more
        assert tau > goe.upper_quantile(rho, 5)


@pytest.mark.parametrize("dimension", [1, 2, 3, 50, 199, 200])
def test_quantiles_invert_the_distribution_function(dimension):
    levels = [1e-10, 1e-4, 0.1, 0.5, math.nextafter(0.5, 1), 0.9, 1 - 1e-9, 1 - 2**-53]
    found = [goe.quantile(level, dimension) for level in levels]
    assert goe.cdf(found, dimension) == pytest.approx(levels, rel=0, abs=1e-12)
    assert found[3] == pytest.approx(found[4], abs=1e-9)
    assert (np.diff(np.delete(found, 4)) > 0).all()


@pytest.mark.parametrize("dimension", [1, 2, 3, 50, 51])
def test_monotone_on_a_fine_grid(dimension):
    edge = 2 * math.sqrt(dimension)
    t = np.linspace(-edge - 3, edge + 9, 500)
    below, above = goe.cdf(t, dimension), goe.survival(t, dimension)
    assert np.diff(below).min() > -1e-13
    assert (np.diff(above) <= 0).all()
    assert below + above == pytest.approx(1.0, abs=1e-15)
    near = goe.upper_quantile(1e-6, dimension) + np.arange(100) * 1e-9
    assert (np.diff(goe.survival(near, dimension)) < 0).all()


@pytest.mark.parametrize("dimension", [1, 2, 50, 199, 200])
def test_no_step_where_the_formula_changes(dimension):
    """log survival is smooth across the change to the series, and across the change to the leading term."""
    change = [
        goe.upper_quantile(goe.SERIES, dimension),
        math.sqrt(2) * goe._constants(dimension).top,
    ]
    for centre in change:
        offsets = np.linspace(-1e-7, 1e-7, 41)
        logs = np.log(goe.survival(centre + offsets, dimension))
        slope = (logs[-1] - logs[0]) / (offsets[-1] - offsets[0])
        assert slope < 0
        assert logs - logs[0] == pytest.approx(slope * (offsets - offsets[0]), abs=1.5e-12)


@pytest.mark.parametrize("dimension", [1, 2, 50, 199, 200, goe.MAX_DIMENSION])
def test_extreme_arguments_give_the_limits(dimension):
    assert goe.cdf([-1e308, -1e3, 1e3, 1e308], dimension).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert goe.survival([-1e308, -1e3, 1e3, 1e308], dimension).tolist() == [1.0, 1.0, 0.0, 0.0]


def test_shapes():
    t = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for function in (goe.cdf, goe.survival):
        values = function(t, 4)
        assert values.shape == (2, 3)
        assert values[1, 0] == function(4.0, 4)
        assert isinstance(function(4, 4), float)
        assert function([], 4).shape == (0,)
    for function in (goe.quantile, goe.upper_quantile, goe.operator_norm_bound, goe.explicit_bound):
        assert type(function(np.float64(0.25), np.int64(4))) is float


# ---------------------------------------------------------------- bad input


FUNCTIONS = {
    goe.cdf: "t",
    goe.survival: "t",
    goe.cdf_mpmath: "t",
    goe.quantile: "probability",
    goe.upper_quantile: "tail",
    goe.operator_norm_bound: "rho",
    goe.explicit_bound: "rho",
}
each = pytest.mark.parametrize(
    ("function", "name"), FUNCTIONS.items(), ids=lambda item: getattr(item, "__name__", "")
)


@each
@pytest.mark.parametrize(
    ("dimension", "error"),
    [
        (0, ValueError),
        (-3, ValueError),
        (2.5, TypeError),
        (2.0, TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_bad_dimensions(function, name, dimension, error):
    with pytest.raises(error, match=rf"dimension must be .*{dimension}"):
        function(0.5, dimension)


@each
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite(function, name, number):
    with pytest.raises(ValueError, match=f"{name} must be finite, got {number}"):
        function(number, 3)


@each
@pytest.mark.parametrize("number", [True, "1", None, 1j])
def test_numbers_that_are_not_real(function, name, number):
    with pytest.raises(TypeError, match=f"{name} must be a real number"):
        function(number, 3)


@pytest.mark.parametrize(
    "function", [goe.quantile, goe.upper_quantile, goe.operator_norm_bound, goe.explicit_bound]
)
@pytest.mark.parametrize("number", [0, 1, 0.0, 1.0, -0.1, 1.1])
def test_probabilities_outside_the_open_interval(function, number):
    with pytest.raises(ValueError, match=rf"{FUNCTIONS[function]} must lie strictly .*{float(number)}"):
        function(number, 3)


def test_arrays_with_gaps_and_levels_below_the_resolution():
    with pytest.raises(ValueError, match=r"t must be finite, got .*nan.* at index \(1,\)"):
        goe.cdf([0.0, math.nan], 3)
    with pytest.raises(ValueError, match="probability must be at least 1e-10, got 1e-11"):
        goe.quantile(1e-11, 3)
    with pytest.raises(ValueError, match="digits must be at least 1, got 0"):
        goe.cdf_mpmath(0.0, 3, 0)


# ---------------------------------------------------------------- benchmark


def test_the_baseline_finds_the_same_bound():
    for dimension in (2, 21):
        assert bench.bisect_norm_bound(1e-4, dimension) == pytest.approx(
            goe.operator_norm_bound(1e-4, dimension), abs=1e-7
        )
    norms = bench.simulate_norms(5, 2_000, np.random.default_rng(3))
    share = float((norms <= goe.operator_norm_bound(0.1, 5)).mean())
    assert share == pytest.approx(0.9, abs=0.03)


def test_the_benchmark_runs_and_records(tmp_path):
    target = tmp_path / "found.json"
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "benchmarks.goe", "--quick", "--record", str(target)]
    finished = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert "operator norm bound, d = 21" in finished.stdout
    assert len(json.loads(target.read_text(encoding="utf-8"))["ratios"]) == 4
