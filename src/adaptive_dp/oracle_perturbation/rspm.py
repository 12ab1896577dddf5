"""Report Separator-Perturbed Minimum: noise on the weights of a few losses that tell the members of W apart.

Source: neel2019, Algorithm 3 and Theorem 6 (after Neel, Roth and Wu 2018), with errata 0 and 10. The mechanism
publishes a minimiser of

    L(D, w) + sum_j eta_j e_j(w),

where L is the sum of losses in [0, 1], e_1 ... e_m is a separator set
(:mod:`~adaptive_dp.oracle_perturbation.separators`) and eta is noise. Neighbours replace one record.

**The shift, with a gap.** Let an oracle answer w on D at the noise eta, with F(w) < min F + a for the perturbed
objective F. Let k = 2 (1 + a) and move every weight in favour of w: eta'_j = eta_j + k (1 - 2 e_j(w)). For v other than
w, with F' the objective of the neighbour D' at eta',

    F'(v) - F'(w) = F(v) - F(w) + (change of the losses) + k #{j : e_j(v) != e_j(w)} > -a - 2 + k = a,

as (1 - 2 e_j(w)) (e_j(v) - e_j(w)) is 1 where the two differ and 0 elsewhere, they differ at least once, and replacing
a record with losses in [0, 1] changes a difference of two sums by at most 2. So w is the only member within a of the
minimum on D': whoever answers with a gap below a answers w, whatever the rule for ties and whatever its coins.

**Noise.** If the density obeys p(eta) <= e^epsilon p(eta') for all eta and all those shifts, integrate over the noise
that leads to w on D: P_D(w) <= e^epsilon P_D'(w), pure differential privacy.

- ``"laplace"``: independent Laplace noise of scale k m / epsilon, as the shift has l1 norm k m.
- ``"box"``: density proportional to exp(-epsilon max_j |eta_j| / k), as every entry moves by k. A uniform point of the
  cube [-1, 1]^m times a Gamma(m + 1, k / epsilon) variable; on average an entry is half as large as a Laplace one.
  Not in the paper.
- ``"gaussian"``: the smallest proved scale, (epsilon, delta); see
  :mod:`~adaptive_dp.oracle_perturbation.separator_gaussian`.
- ``"printed"``: Algorithm 3's scale, with the delta that is proved for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from adaptive_dp.noise import gaussian, laplace
from adaptive_dp.oracle_perturbation.certificates import (
    NEVER,
    certify,
    check_noise_size,
    check_oracle,
    consult,
)
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP
from adaptive_dp.oracle_perturbation.problems import (
    GridCosts,
    Oracle,
    Problem,
    TableProblem,
    ThresholdProblem,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.separator_gaussian import (
    SeparatorCurve,
    printed_separator_sigma,
    separator_step,
    smallest_separator_sigma,
)
from adaptive_dp.oracle_perturbation.separators import check_separates
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.privacy import Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
)

NOISES = ("laplace", "box", "gaussian", "printed")


@dataclass(frozen=True, slots=True)
class SeparatorNoise:
    """The noise of one release, and what is proved for it.

    Parameters
    ----------
    kind : {"laplace", "box", "gaussian", "printed"}
    scale : float
        Of a Laplace or a Gaussian entry; for ``"box"`` of the Gamma variable, k / epsilon.
    separators : int
        m.
    guarantee : Guarantee
    """

    kind: str
    scale: float
    separators: int
    guarantee: Guarantee

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, NOISES)

    def draw(self, rng: np.random.Generator, *, draws: int | None = None) -> FloatArray:
        """Noise of shape (m,), or (draws, m)."""
        shape = (self.separators,) if draws is None else (check_count("draws", draws), self.separators)
        if self.kind == "laplace":
            return laplace(self.scale, shape, rng)
        if self.kind == "box":
            check_generator(rng)
            directions = rng.uniform(-1.0, 1.0, shape)
            return np.asarray(directions * rng.gamma(self.separators + 1, self.scale, (*shape[:-1], 1)))
        return gaussian(self.scale, shape, rng)

    @property
    def largest(self) -> tuple[float, float]:
        """What max |eta_j| and sum |eta_j| exceed with probability 1e-22 at most."""
        m, share = self.separators, NEVER / self.separators
        if self.kind == "laplace":
            return -math.log(share) * self.scale, float(stats.gamma.isf(NEVER, m)) * self.scale
        if self.kind == "box":
            side = float(stats.gamma.isf(NEVER, m + 1)) * self.scale
            return side, m * side
        return (
            float(stats.norm.isf(0.5 * share)) * self.scale,
            math.sqrt(m) * float(stats.chi.isf(NEVER, m)) * self.scale,
        )


def separator_noise(
    kind: str,
    separators: int,
    *,
    epsilon: float,
    delta: float | None = None,
    members: int | None = None,
    gap: float = GAP,
) -> SeparatorNoise:
    """Calibrate the noise of RSPM.

    Parameters
    ----------
    kind : {"laplace", "box", "gaussian", "printed"}
        See the module. The guarantee of ``"printed"`` carries the proved delta, which may be above ``delta``.
    separators : int
        m.
    epsilon : float
        Positive.
    delta : float or None
        In (0, 1) for the two Gaussian kinds, None for the pure ones.
    members : int or None
        |W|, which can only improve the Gaussian bounds.
    gap : float
        Additive gap a >= 0 of the oracle.

    Raises
    ------
    TypeError, ValueError
        An argument out of range, a delta where there is none, or none where one is needed; a noise scale out of range.
    """
    check_choice("noise", kind, NOISES)
    m, level, step = (
        check_count("separators", separators),
        check_ordinary("epsilon", epsilon),
        separator_step(gap),
    )
    if kind in ("laplace", "box"):
        if delta is not None:
            raise ValueError(f"delta must be None for {kind} noise, which is pure, got {delta!r}")
        guarantee = Guarantee(
            "ex-ante",
            level,
            Neighbours.REPLACE_ONE,
            source=f"neel2019, Algorithm 3 with {kind} noise (erratum 0), oracle gap below {gap:g}",
        )
        scale = check_ordinary("the noise scale", (m if kind == "laplace" else 1) * step / level)
        return SeparatorNoise(kind, scale, m, guarantee)
    if delta is None:
        raise ValueError(f"delta must be given for {kind} noise")
    tail = check_probability("delta", delta)
    if kind == "printed":
        sigma = printed_separator_sigma(m, epsilon=level, delta=tail)
    else:
        sigma = smallest_separator_sigma(m, epsilon=level, delta=tail, members=members, gap=gap)
    curve = SeparatorCurve(step / check_ordinary("the noise scale", sigma), m, members)
    proved = curve.delta(level)
    if proved >= 1:
        raise ValueError(f"delta = {tail!r} is not proved for {kind} noise with {m} separators: nothing is")
    what = "the Gaussian scale that is proved"
    if kind == "printed":
        what = f"its printed scale, whose delta was to be {tail:g}, and the delta that is proved"
    guarantee = Guarantee(
        "ex-ante",
        level,
        Neighbours.REPLACE_ONE,
        delta=proved if kind == "printed" else tail,
        source=f"neel2019, Algorithm 3 with {what} (erratum 0), oracle gap below {gap:g}",
        curve=curve,
    )
    return SeparatorNoise(kind, sigma, m, guarantee)


def separator_costs(weights: ArrayLike, space: IntegerBall) -> GridCosts:
    """The perturbation sum_j eta_j e_j(w) as a table over the values of each coordinate.

    Parameters
    ----------
    weights : array_like, shape (d, 2 B)
        Weights of the thresholds 1[w_j >= 1] ... 1[w_j >= B], then of 1[w_j <= -1] ... 1[w_j <= -B]. For {-1, 0, 1}^d
        that is (d, 2): the weights of 1[w_j = +1] and 1[w_j = -1].
    space : IntegerBall
        W. With B > 1 these thresholds are no losses of halfspaces through the origin; an oracle over tables takes them
        all the same.

    Returns
    -------
    GridCosts
    """
    if not isinstance(space, IntegerBall):
        raise TypeError(f"space must be an IntegerBall, got {type(space).__name__}")
    table, box = as_finite_array("weights", weights, ndim=2), space.box
    if table.shape != (space.dimension, 2 * box):
        raise ValueError(f"weights must have shape ({space.dimension}, {2 * box}), got {table.shape}")
    above, below = np.cumsum(table[:, :box], axis=1), np.cumsum(table[:, box:], axis=1)
    per_value = np.concatenate([below[:, ::-1], np.zeros((space.dimension, 1)), above], axis=1)
    return GridCosts(per_value, np.zeros(space.squared_radius + 1))


def rspm(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    noise: str = "laplace",
    separators: ArrayLike | None = None,
    oracle: Oracle = enumerate_members,
    gap: float = GAP,
    rng: np.random.Generator,
) -> Release[NDArray[Any]]:
    """Publish a minimiser of the objective with noise on the separators: neel2019, Algorithm 3, corrected.

    Parameters
    ----------
    problem : ThresholdProblem or TableProblem
        Losses in [0, 1]. A ThresholdProblem brings the 2 d B thresholds of its own grid as separators.
    epsilon : float
        Positive, replace-one neighbours.
    delta : float or None
        For Gaussian noise only.
    noise : {"laplace", "box", "gaussian", "printed"}
        See the module.
    separators : array_like, shape (m, N), or None
        Losses of the separators at the members of a TableProblem, 0 or 1; it must not depend on the data.
    oracle : Oracle
        Minimises exactly what it is given, negative weights included, and certifies its gap.
    gap : float
        Additive gap a that is allowed, positive; it enters the noise.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        Value: the member, shape (d,). Trace: ``noise`` (m,), ``solution``, ``scale``.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, losses that are not bounded by 1, separators that do not separate, an epsilon so small that the
        noise would drown the counts or the gap in rounding: all before noise is drawn. Or a broken oracle.
    Uncertified
        The oracle did not certify a gap below ``gap``. Nothing is released; that it happened depends on the data, and
        is not covered by the guarantee.
    """
    table = _check_separators(problem, separators)
    allowed = check_ordinary("gap", gap)
    check_generator(rng)
    check_oracle(problem, oracle)
    count = len(table) if table is not None else 2 * problem.space.dimension * _ball(problem).box
    # |W| enters the Gaussian bounds only, and counting a large ball takes a moment.
    members = problem.space.size if delta is not None else None
    chosen = separator_noise(noise, count, epsilon=epsilon, delta=delta, members=members, gap=allowed)
    depth = count if table is not None else _ball(problem).box
    check_noise_size(problem, *chosen.largest, depth=depth, gap=allowed)
    eta = chosen.draw(rng)
    costs: Any
    if table is not None:
        costs = eta @ table
    else:
        costs = separator_costs(eta.reshape(problem.space.dimension, -1), _ball(problem))
    solution = consult(problem, costs, oracle)
    value = certify(problem, costs, solution, gap=allowed, length=depth * float(np.abs(eta).sum()))
    return Release(value, chosen.guarantee, trace=Trace(noise=eta, solution=solution, scale=chosen.scale))


# --- checks -------------------------------------------------------------------------------------------


def _ball(problem: Problem) -> IntegerBall:
    """The space of a ThresholdProblem."""
    if not isinstance(problem.space, IntegerBall):
        raise TypeError("problem must be a ThresholdProblem")
    return problem.space


def _check_separators(problem: Problem, separators: ArrayLike | None) -> NDArray[np.int8] | None:
    """Return the table of separators of a TableProblem; None for a ThresholdProblem, which has its own."""
    if isinstance(problem, ThresholdProblem):
        if separators is not None:
            raise ValueError("separators come with a ThresholdProblem; give them with a TableProblem only")
        return None
    if not isinstance(problem, TableProblem):
        raise TypeError(f"problem must be a ThresholdProblem or a TableProblem, got {type(problem).__name__}")
    if problem.lipschitz is not None:
        raise ValueError(
            "problem must have losses in [0, 1] (lipschitz None): the shift of RSPM rests on that"
        )
    if separators is None:
        raise ValueError("separators must be given for a TableProblem: a table (m, N) of 0 and 1")
    return check_separates(problem.space.members, separators)
