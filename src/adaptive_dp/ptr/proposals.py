"""Classic propose-test-release with a list of proposals: the smallest bound that a private search accepts.

Source: redberg2023, Table B.1 ("What to propose?", with AboveThreshold); Dwork and Lei 2009 test each bound on its own,
which multiplies the cost by their number. The search is ligett2017, Algorithm 2 without a release; erratum AF-7e.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.accuracy_first.above_threshold import (
    ValueQuery,
    accuracy_margin,
    interactive_above_threshold,
)
from adaptive_dp.noise import laplace
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.distances import LocalQuery
from adaptive_dp.validation import (
    check_generator,
    check_increasing_epsilons,
    check_ordinary,
    check_probability,
)

SOURCE = "redberg2023, Table B.1 (what to propose); ligett2017, Algorithm 2"
# An infinite distance is a public fact; as a number it only has to be far above every threshold.
FAR = 1e12


def search_threshold(*, proposals: int, epsilon: float, delta: float) -> float:
    """What a noisy distance has to reach, so that of ``proposals`` bounds at distance 0 none is accepted.

    Except with probability ``delta``, computed exactly for a private search of cost ``epsilon``: about
    4 log(2 proposals / (3 delta)) / epsilon.
    """
    return accuracy_margin(
        levels=proposals, sensitivity=1.0, epsilon=epsilon, failure=delta, calibration="exact"
    )


def propose_list_test_release(
    data: ArrayLike,
    query: LocalQuery,
    *,
    bounds: ArrayLike,
    epsilon: float,
    epsilon_hat: float,
    delta: float,
    rng: np.random.Generator,
) -> Release[float]:
    """Release f(X) with noise for the first of several bounds of the local sensitivity that passes a private test.

    Each distance D_beta(X) has sensitivity 1, so that one private search over all of them costs epsilon_hat, however
    many there are. A bound below the local sensitivity is at distance 0 and is accepted with probability at most
    ``delta``, all such bounds together.

    Parameters
    ----------
    data : array_like, shape (n,)
    query : LocalQuery
    bounds : array_like, shape (M,)
        Positive and strictly increasing: the search prefers little noise.
    epsilon, epsilon_hat : float
        Of the release and of the search.
    delta : float
        In (0, 1); for M bounds it must be below 2 M / 3.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        A number, with the accepted bound's position in ``index``, or ``Refused``: (epsilon + epsilon_hat, delta).

    Raises
    ------
    TypeError, ValueError
        No bounds, or bounds that are not positive and increasing; another parameter out of range.
    """
    levels = check_increasing_epsilons(bounds, "bounds", minimum=1)
    budget, search = check_ordinary("epsilon", epsilon), check_ordinary("epsilon_hat", epsilon_hat)
    tail = check_probability("delta", delta)
    check_generator(rng)
    threshold = search_threshold(proposals=levels.size, epsilon=search, delta=tail)
    guarantee = Guarantee(
        "ex-ante",
        budget + search,
        Neighbours.ADD_REMOVE,
        delta=tail,
        parts={"test": search, "release": budget},
        source=SOURCE,
    )
    distances = [min(query.distance(data, float(beta)), FAR) for beta in levels]
    value = query.value(data)
    found = interactive_above_threshold(
        [ValueQuery(distance) for distance in distances],
        threshold=threshold,
        sensitivity=1.0,
        epsilon=search,
        prefix_epsilons=np.zeros(levels.size),
        rng=rng,
        neighbours=Neighbours.ADD_REMOVE,
    )
    trace = Trace(distances=distances, threshold=threshold, value=value)
    if found.index is None:
        return Release(
            Refused(f"the search confirmed none of the {levels.size} bounds"), guarantee, trace=trace
        )
    scale = float(levels[found.index]) / budget
    noisy = value + float(laplace(scale, 1, rng)[0])
    return Release(noisy, guarantee, index=found.index, trace=trace)
