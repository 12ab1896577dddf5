"""Noise on the *values* of each coordinate: separators of constant weight, of which only d must move.

Not in neel2019. RSPM moves all m weights, those of separators that are 1 at w and those that are 0. Let there be one
separator 1[w_j = v] for every coordinate j and every value v instead. Exactly d of them are 1 at w, so that it is
enough to move those: publish a minimiser of

    L(D, w) - sum_j xi_{j, w_j},     xi >= 0.

**Proof of pure epsilon-differential privacy** (replace-one, losses in [0, 1], oracle with additive gap below a). Let w
be the answer on D at xi, F(w) < min F + a, and k = 2 (1 + a). Add k to the d entries xi_{j, w_j}. For v other than w,
which agrees with w in at most d - 1 coordinates,

    F'(v) - F'(w) > -a - 2 + k (d - (d - 1)) = a,

so that w is the only member within a of the minimum on D' and every such oracle answers w. The noise stays
nonnegative, and its density may fall by the factor e^-epsilon at most:

- ``"independent"``: exponential variables of mean k d / epsilon, as d entries grow by k.
- ``"joint"``: density proportional to exp(-(epsilon / k) max_j sum_v xi_{j, v}) on xi >= 0, as in each coordinate
  the sum grows by k. A point that is uniform on a product of d simplices, times a Gamma(d V + 1, k / epsilon)
  variable, where V is the number of values.

With one coordinate both are report-noisy-max with exponential noise, which is permute-and-flip (McKenna and Sheldon
2020; Ding, Kifer, Steinke, Wang, Xiao and Zhang 2021): the family ends at a mechanism that lists W and is never worse
than the exponential mechanism. With d coordinates the noise is d times as large, and the oracle need not list anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from adaptive_dp.oracle_perturbation.certificates import (
    NEVER,
    certify,
    check_noise_size,
    check_oracle,
    consult,
)
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP
from adaptive_dp.oracle_perturbation.problems import GridCosts, Oracle, ThresholdProblem, enumerate_members
from adaptive_dp.oracle_perturbation.separator_gaussian import separator_step
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.privacy import Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
)

NOISES = ("joint", "independent")


@dataclass(frozen=True, slots=True)
class ValueNoise:
    """Noise on the values of the coordinates.

    Parameters
    ----------
    kind : {"independent", "joint"}
    coordinates, values : int
        d and V, the number of values of a coordinate.
    unit : float
        k / epsilon.
    """

    kind: str
    coordinates: int
    values: int
    unit: float

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, NOISES)

    def draw(self, rng: np.random.Generator, *, draws: int | None = None) -> FloatArray:
        """Nonnegative noise of shape (d, V), or (draws, d, V)."""
        check_generator(rng)
        front = () if draws is None else (check_count("draws", draws),)
        d, count = self.coordinates, self.values
        if self.kind == "independent":
            return np.asarray(rng.exponential(d * self.unit, (*front, d, count)))
        # One more exponential variable than values: normalised, all but the last are uniform on the solid simplex.
        parts = rng.exponential(1.0, (*front, d, count + 1))
        radius = rng.gamma(d * count + 1, self.unit, (*front, 1, 1))
        return np.asarray(radius * parts[..., :-1] / parts.sum(axis=-1, keepdims=True))

    @property
    def largest(self) -> tuple[float, float]:
        """What the largest entry and the sum of all entries exceed with probability 1e-22 at most."""
        entries = self.coordinates * self.values
        if self.kind == "independent":
            scale = self.coordinates * self.unit
            return scale * float(stats.expon.isf(NEVER / entries)), scale * float(
                stats.gamma.isf(NEVER, entries)
            )
        radius = self.unit * float(stats.gamma.isf(NEVER, entries + 1))
        return radius, self.coordinates * radius


def value_noise(space: IntegerBall, *, epsilon: float, noise: str = "joint", gap: float = GAP) -> ValueNoise:
    """The noise of :func:`value_perturbation`.

    Parameters
    ----------
    space : IntegerBall
        W.
    epsilon : float
        Positive.
    noise : {"joint", "independent"}
        See the module.
    gap : float
        Additive gap a >= 0 of the oracle.
    """
    if not isinstance(space, IntegerBall):
        raise TypeError(f"space must be an IntegerBall, got {type(space).__name__}")
    check_choice("noise", noise, NOISES)
    unit = check_ordinary("the noise scale", separator_step(gap) / check_ordinary("epsilon", epsilon))
    return ValueNoise(noise, space.dimension, 2 * space.box + 1, unit)


def value_costs(noise: ArrayLike, space: IntegerBall) -> GridCosts:
    """The perturbation -sum_j xi_{j, w_j} as a table; ``noise`` has shape (d, 2 B + 1)."""
    if not isinstance(space, IntegerBall):
        raise TypeError(f"space must be an IntegerBall, got {type(space).__name__}")
    table = as_finite_array("noise", noise, ndim=2)
    if table.shape != (space.dimension, 2 * space.box + 1):
        raise ValueError(f"noise must have shape ({space.dimension}, {2 * space.box + 1}), got {table.shape}")
    return GridCosts(-table, np.zeros(space.squared_radius + 1))


def value_perturbation(
    problem: ThresholdProblem,
    *,
    epsilon: float,
    noise: str = "joint",
    oracle: Oracle = enumerate_members,
    gap: float = GAP,
    rng: np.random.Generator,
) -> Release[NDArray[Any]]:
    """Publish a minimiser of the number of errors less nonnegative noise on every value: pure epsilon-DP.

    Parameters
    ----------
    problem : ThresholdProblem
        Any integer ball.
    epsilon : float
        Positive, replace-one neighbours.
    noise : {"joint", "independent"}
        See the module.
    oracle : Oracle
        Certifies its gap.
    gap : float
        Additive gap a that is allowed, positive; it enters the noise.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        Value: the member, shape (d,). Trace: ``noise`` (d, 2 B + 1), ``solution``.

    Raises
    ------
    TypeError, ValueError
        Bad arguments or an epsilon that is too small, before noise is drawn; or a broken oracle.
    Uncertified
        The oracle did not certify a gap below ``gap``. That it happened depends on the data and is not covered.
    """
    if not isinstance(problem, ThresholdProblem):
        raise TypeError(f"problem must be a ThresholdProblem, got {type(problem).__name__}")
    allowed, level = check_ordinary("gap", gap), check_ordinary("epsilon", epsilon)
    check_generator(rng)
    check_oracle(problem, oracle)
    law = value_noise(problem.space, epsilon=level, noise=noise, gap=allowed)
    check_noise_size(problem, *law.largest, depth=1, gap=allowed)
    xi = law.draw(rng)
    costs = value_costs(xi, problem.space)
    solution = consult(problem, costs, oracle)
    value = certify(problem, costs, solution, gap=allowed, length=float(xi.sum()))
    guarantee = Guarantee(
        "ex-ante",
        level,
        Neighbours.REPLACE_ONE,
        source=f"separators of constant weight, {noise} noise, oracle gap below {allowed:g}",
    )
    return Release(value, guarantee, trace=Trace(noise=xi, solution=solution))
