"""Classic propose-test-release: test privately that the local sensitivity is small, then add little noise.

Source: redberg2023, Algorithm 3 and Theorem 3.3.4 (Dwork and Lei 2009), Example 3.5.2; erratum 11. Stability:
Thakurta and Smith 2013.

The test adds Laplace noise of scale 1 / epsilon to the distance D of :mod:`adaptive_dp.ptr.distances` and passes where
the sum exceeds a threshold. A data set that must not pass has D = 0, so that it passes with probability
exp(-epsilon threshold) / 2: the printed threshold log(1 / delta) / epsilon lets it through with probability delta / 2,
and log(1 / (2 delta)) / epsilon, with delta, suffices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.noise import laplace
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.distances import LocalQuery, StableQuery
from adaptive_dp.validation import (
    check_choice,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

Answer = TypeVar("Answer")
CALIBRATIONS = ("sharp", "printed")
SOURCE = "redberg2023, Algorithm 3 and Theorem 3.3.4; erratum 11"


def ptr_threshold(epsilon: float, delta: float, *, calibration: str = "sharp") -> float:
    """What distance plus Laplace(1 / epsilon) noise has to exceed for the test to pass.

    ``"sharp"``: the upper delta quantile of the noise, log(1 / (2 delta)) / epsilon for delta up to 1/2; a data set at
    distance 0 passes with probability delta. ``"printed"``: log(1 / delta) / epsilon, with probability delta / 2.

    Raises
    ------
    TypeError, ValueError
        ``epsilon`` not between 1e-100 and 1e100, ``delta`` not in (0, 1), an unknown calibration.
    """
    kind, tail = check_choice("calibration", calibration, CALIBRATIONS), check_probability("delta", delta)
    budget = check_ordinary("epsilon", epsilon)
    if kind == "printed":
        return -math.log(tail) / budget
    # Written out, not laplace_quantile: the mechanism then takes microseconds.
    level = (-math.log(2 * tail) if tail <= 0.5 else math.log(2 * (1 - tail))) / budget
    return level + 4 * float(np.finfo(np.float64).eps) * abs(level)  # rounded to the safe side


def false_pass_probability(threshold: float, *, epsilon: float, distance: float = 0.0) -> float:
    """Exact probability that ``distance`` + Laplace(1 / epsilon) exceeds ``threshold``.

    At distance 0 this is the delta' of the test: what a data set that must not pass has as its chance.

    Parameters
    ----------
    threshold : float
        Any finite number.
    epsilon : float
    distance : float
        Nonnegative; infinity is allowed and passes always.
    """
    level, budget = check_real("threshold", threshold), check_ordinary("epsilon", epsilon)
    if distance == math.inf:
        return 1.0
    away = check_real("distance", distance)
    if away < 0:
        raise ValueError(f"distance must be nonnegative, got {away!r}")
    x = (level - away) * budget
    return 0.5 * math.exp(-x) if x > 0 else 1 - 0.5 * math.exp(x)


def propose_test_release(
    data: ArrayLike,
    query: LocalQuery,
    *,
    bound: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    calibration: str = "sharp",
) -> Release[float]:
    """Release f(X) + Laplace(bound / epsilon) if a private test says that the local sensitivity is at most ``bound``.

    Parameters
    ----------
    data : array_like, shape (n,)
        Checked by the query against its declared domain.
    query : LocalQuery
        Such as :class:`~adaptive_dp.ptr.distances.Median` or :class:`~adaptive_dp.ptr.distances.Pairs`.
    bound : float
        beta, the proposal; positive, and chosen without looking at the data.
    epsilon : float
        Of the test, and again of the release.
    delta : float
        In (0, 1).
    rng : numpy.random.Generator
    calibration : {"sharp", "printed"}
        See :func:`ptr_threshold`.

    Returns
    -------
    Release
        A number or ``Refused``, under one (2 epsilon, delta) guarantee for adding and removing a record. With
        ``"printed"`` the same run is in fact (2 epsilon, delta / 2)-private.

    Raises
    ------
    TypeError, ValueError
        A parameter out of range or data outside the query's domain; no noise has been drawn then.
    """
    beta = check_ordinary("bound", bound)
    threshold = ptr_threshold(epsilon, delta, calibration=calibration)
    check_generator(rng)
    guarantee = Guarantee(
        "ex-ante",
        2 * epsilon,
        Neighbours.ADD_REMOVE,
        delta=delta,
        parts={"test": epsilon, "release": epsilon},
        source=SOURCE,
    )
    distance, value = query.distance(data, beta), query.value(data)
    noisy = distance + float(laplace(1 / epsilon, 1, rng)[0])
    trace = Trace(distance=distance, noisy_distance=noisy, threshold=threshold, value=value)
    if not noisy > threshold:
        return Release(
            Refused(f"the test did not confirm that the local sensitivity is at most {beta:g}"),
            guarantee,
            trace=trace,
        )
    return Release(value + float(laplace(beta / epsilon, 1, rng)[0]), guarantee, trace=trace)


def release_if_stable(
    data: ArrayLike,
    query: StableQuery[Answer],
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    calibration: str = "sharp",
) -> Release[Answer]:
    """Release the exact answer if a private test says that no neighbour's answer differs.

    The stability-based variant (redberg2023, Table B.1; Thakurta and Smith 2013). The answer itself costs nothing
    where the local sensitivity is 0, so the guarantee is (epsilon, delta): only the test is paid for.

    Parameters
    ----------
    query : StableQuery
        Such as :class:`~adaptive_dp.ptr.distances.Mode`.
    data, epsilon, delta, rng, calibration
        As in :func:`propose_test_release`.
    """
    threshold = ptr_threshold(epsilon, delta, calibration=calibration)
    check_generator(rng)
    guarantee = Guarantee(
        "ex-ante",
        epsilon,
        Neighbours.ADD_REMOVE,
        delta=delta,
        parts={"test": epsilon, "release": 0.0},
        source="redberg2023, Table B.1 (stability-based); erratum 11",
    )
    stability, value = query.stability(data), query.value(data)
    noisy = stability + float(laplace(1 / epsilon, 1, rng)[0])
    trace = Trace(stability=stability, noisy_stability=noisy, threshold=threshold, value=value)
    if noisy > threshold:
        return Release(value, guarantee, trace=trace)
    return Release(Refused("the test did not confirm that the answer is stable"), guarantee, trace=trace)


# --- exact laws -----------------------------------------------------------------------------------------


def laplace_loss(difference: float, scale: float) -> float:
    """Largest log ratio of the densities of v + Lap(scale) and v' + Lap(scale): |v - v'| / scale (Example 3.5.2).

    With the local sensitivity for ``difference`` this is the data-dependent loss of the Laplace mechanism, with the
    global sensitivity its usual epsilon.
    """
    return abs(check_real("difference", difference)) / check_positive("scale", scale)


def laplace_delta(epsilon: float, loss: float) -> float:
    """Exact hockey-stick divergence sup_S P(S) - e^epsilon Q(S) of two Laplace laws with ``loss`` = shift / scale.

    0 above the loss, 1 - e^((epsilon - loss) / 2) between -loss and loss, 1 - e^epsilon below. ``epsilon`` is any
    real number or an infinity.
    """
    size = check_real("loss", loss)
    if size < 0:
        raise ValueError(f"loss must be nonnegative, got {size!r}")
    if math.isnan(epsilon):
        raise ValueError("epsilon must be a number, got nan")
    if epsilon >= size:
        return 0.0
    return -math.expm1(epsilon if epsilon <= -size else 0.5 * (epsilon - size))


@dataclass(frozen=True, slots=True)
class PtrLaw:
    """The exact law of classic propose-test-release on one data set.

    Attributes
    ----------
    passes : float
        Probability that the test passes.
    value : float
        Centre of what is released then.
    scale : float
        Scale of its Laplace noise.
    """

    passes: float
    value: float
    scale: float


def ptr_law(
    data: ArrayLike,
    query: LocalQuery,
    *,
    bound: float,
    epsilon: float,
    delta: float,
    calibration: str = "sharp",
) -> PtrLaw:
    """Exact law of :func:`propose_test_release`: private, for checks and plots only."""
    beta = check_ordinary("bound", bound)
    threshold = ptr_threshold(epsilon, delta, calibration=calibration)
    passes = false_pass_probability(threshold, epsilon=epsilon, distance=query.distance(data, beta))
    return PtrLaw(passes, query.value(data), beta / epsilon)


def ptr_law_delta(first: PtrLaw, second: PtrLaw, epsilon: float) -> float:
    """Exact sup_S P(S) - e^epsilon Q(S), P and Q the laws of propose-test-release on two data sets.

    The refusal and the numbers are disjoint outcomes: the refusal contributes its own excess, the numbers
    the chance of passing times the divergence of two Laplace laws at epsilon + log(passes' / passes).
    """
    if first.scale != second.scale:
        raise ValueError(f"first and second must have one scale, got {first.scale!r} and {second.scale!r}")
    level = check_real("epsilon", epsilon)
    refusal = max(0.0, (1 - first.passes) - math.exp(level) * (1 - second.passes))
    if first.passes == 0:
        return refusal
    shifted = level + math.log(second.passes / first.passes) if second.passes else -math.inf
    loss = laplace_loss(first.value - second.value, first.scale)
    return refusal + first.passes * laplace_delta(shifted, loss)
