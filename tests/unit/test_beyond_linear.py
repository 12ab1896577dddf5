"""Losses that are no generalised linear ones: what objective perturbation of them costs, exact and by bounds."""

from __future__ import annotations

import math

import mpmath
import pytest
from scipy import stats

from adaptive_dp.per_instance import SmoothPerturbationCurve
from adaptive_dp.per_instance.calibration import log_chi_mgf

# ---------------------------------------------------------------- the law of the noise's length


def reference_log_mgf(t, d):
    """log E e^(t R) from Kummer's functions, with 40 digits."""
    with mpmath.workdps(40):
        t, half = mpmath.mpf(t), mpmath.mpf(d) / 2
        odd = t * mpmath.sqrt(2) * mpmath.gammaprod([half + 0.5], [half])
        even = mpmath.hyp1f1(half, 0.5, t * t / 2)
        return float(mpmath.log(even + odd * mpmath.hyp1f1(half + 0.5, 1.5, t * t / 2)))


@pytest.mark.parametrize("d", [1, 2, 3, 10, 100, 10_000])
@pytest.mark.parametrize("t", [1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0, 60.0])
def test_the_generating_function_of_the_chi_law_has_all_its_digits(t, d):
    assert log_chi_mgf(t, d) == pytest.approx(reference_log_mgf(t, d), rel=1e-13)


def test_the_generating_function_at_zero_and_bad_input():
    assert log_chi_mgf(0.0, 7) == 0
    with pytest.raises(ValueError, match="t must be nonnegative, got -1"):
        log_chi_mgf(-1.0, 3)
    with pytest.raises(ValueError, match="dimension"):
        log_chi_mgf(1.0, 0)


def test_the_renyi_curve_of_a_smooth_loss():
    curve = SmoothPerturbationCurve(0.3, 0.2, 5)
    chi = stats.chi(5)
    moment = chi.expect(lambda r: math.exp(0.75 * r), ub=60.0)
    expected = 5 * math.log(1.2) + 0.3**2 / 2 + math.log(moment) / 2.5
    assert curve.renyi(3.5) == pytest.approx(expected, rel=1e-9)
    assert curve.renyi(1.0) == pytest.approx(5 * math.log(1.2) + 0.3**2 / 2 + 0.3 * chi.mean(), rel=1e-12)
    assert curve.renyi(1 + 1e-9) == pytest.approx(curve.renyi(1.0), rel=1e-8)
    with pytest.raises(ValueError, match=r"order must be at least 1, got 0\.9"):
        curve.renyi(0.9)
