"""Generalized propose-test-release under Rényi differential privacy, with the corrected guarantee.

Source: redberg2023, Algorithm 13 and Theorem B.2.5, which is false as printed (erratum 20).

Let X be over budget and X' its neighbour, tau <= delta' and tau' the probabilities that the test passes on them. The
Rényi divergence of order a between the two laws of the algorithm is, with D(M) at most the data-independent eps~,

    log[ tau^a tau'^(1-a) e^((a-1) D(M)) + (1-tau)^a (1-tau')^(1-a) ] / (a - 1).

The two weights sum to at most e^((a-1) eps_hat), as the test is Rényi-private. The printed theorem takes them to be
delta' and 1 - delta' times that; but Rényi divergence counts an outcome with P^a Q^(1-a), and a test that passes less
often on X' than on X makes the first weight far larger than delta'. It is largest for tau = delta' and the smallest
tau' that the test's own divergence allows: on the curve where the weights sum to e^((a-1) eps_hat) the second one is
(1 - tau) times a power of (1 - tau) / (1 - tau'), and both factors fall as tau grows, by convexity of the region below
the curve. With w the largest share of the first weight, a data set over budget costs exactly the printed form with w
for delta':

    eps_hat + log(1 - w + w e^((a-1) eps~)) / (a - 1),

and the bound is attained unless the test's divergence in the other direction forbids that tau'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from adaptive_dp.noise import gaussian
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.framework import DataDependentMechanism, check_nonnegative
from adaptive_dp.validation import check_generator, check_ordinary, check_probability, check_real

Data = TypeVar("Data")
Proposal = TypeVar("Proposal")
Value = TypeVar("Value")

SOURCE = "redberg2023, Algorithm 13; erratum 20"
# Roundings of a root and of two logarithms, with room to spare.
SLACK = 1e-11


def check_order(order: object) -> float:
    """Return a Rényi order in (1, 1e6]."""
    number = check_real("order", order)
    if not 1 < number <= 1e6:
        raise ValueError(f"order must lie in (1, 1e6], got {number!r}")
    return number


def _log_weights(order: float, passes: float, passes_neighbour: float) -> tuple[float, float]:
    """Logarithms of tau^a tau'^(1-a) and of (1-tau)^a (1-tau')^(1-a)."""
    return (
        order * math.log(passes) + (1 - order) * math.log(passes_neighbour),
        order * math.log1p(-passes) + (1 - order) * math.log1p(-passes_neighbour),
    )


def bernoulli_renyi(order: float, passes: float, passes_neighbour: float) -> float:
    """Rényi divergence of the outcome of a test that passes with the two given probabilities, both in (0, 1)."""
    a = check_order(order)
    tau, other = (
        check_probability("passes", passes),
        check_probability("passes_neighbour", passes_neighbour),
    )
    return max(0.0, float(np.logaddexp(*_log_weights(a, tau, other))) / (a - 1))


def smallest_neighbour_pass(order: float, epsilon_hat: float, passes: float) -> float:
    """Smallest pass probability tau' of a neighbour that an (a, eps_hat)-Rényi-private test allows beside tau.

    Parameters
    ----------
    order : float
        a > 1.
    epsilon_hat : float
        Nonnegative; at 0 the answer is ``passes``.
    passes : float
        tau in (0, 1).

    Returns
    -------
    float
        In (0, tau], not above the exact root by more than its last places.
    """
    a, hat = check_order(order), check_nonnegative("epsilon_hat", epsilon_hat)
    tau = check_probability("passes", passes)
    return math.exp(_log_smallest(a, hat, tau))


def _log_smallest(order: float, epsilon_hat: float, passes: float) -> float:
    goal, top = (order - 1) * epsilon_hat, math.log(passes)

    def excess(log_other: float) -> float:
        # min: for tiny probabilities exp and log1p lose nothing, near 1 the exponential may round to 1
        other = min(math.exp(log_other), 1 - 1e-16)
        first = order * top + (1 - order) * log_other
        second = order * math.log1p(-passes) + (1 - order) * math.log1p(-other)
        return float(np.logaddexp(first, second)) - goal

    if excess(top) >= 0:
        return top
    low = top + top / (order - 1) - epsilon_hat  # the first weight alone reaches the limit here
    return float(brentq(excess, low - 1e-9, top, xtol=1e-14, rtol=1e-15))


def tilted_weight(order: float, epsilon_hat: float, false_pass: float) -> float:
    """Largest share w of the outcome "pass" in E_Q (P/Q)^a, over all Rényi-private tests: see the module.

    Parameters
    ----------
    order : float
        a > 1.
    epsilon_hat : float
        Rényi divergence of the test at this order.
    false_pass : float
        delta' in (0, 1).

    Returns
    -------
    float
        In [delta', 1): equal to delta' only for a test that does not depend on the data, eps_hat = 0.
    """
    a, hat = check_order(order), check_nonnegative("epsilon_hat", epsilon_hat)
    tau = check_probability("false_pass", false_pass)
    log_share = a * math.log(tau) + (1 - a) * _log_smallest(a, hat, tau) - (a - 1) * hat
    return min(1.0, math.exp(log_share))


def renyi_ptr_epsilon(
    order: float, *, budget: float, worst: float, epsilon_hat: float, false_pass: float
) -> float:
    """Rényi epsilon of Algorithm 13 at one order: the corrected Theorem B.2.5.

    The larger of eps_hat + budget (data sets within budget: plain composition) and eps_hat + log(1 - w + w
    e^((a-1) worst)) / (a - 1) (data sets over budget), w the :func:`tilted_weight`.

    Parameters
    ----------
    order : float
        a, in (1, 1e6].
    budget : float
        What the test allows the data-dependent Rényi loss of the mechanism to be, nonnegative. One-sided: from the
        data set at hand to its neighbours.
    worst : float
        eps~, the mechanism's Rényi epsilon on all data sets; infinity gives infinity.
    epsilon_hat : float
        Rényi epsilon of the test at this order.
    false_pass : float
        delta' in (0, 1).
    """
    a, within = check_order(order), check_nonnegative("budget", budget)
    if worst == math.inf:
        return math.inf
    beyond = check_nonnegative("worst", worst)
    weight = tilted_weight(a, epsilon_hat, false_pass)
    if weight >= 1:
        return epsilon_hat + max(within, beyond)
    log_mean = float(np.logaddexp(math.log1p(-weight), math.log(weight) + (a - 1) * beyond))
    return epsilon_hat + max(within, log_mean / (a - 1) * (1 + SLACK))


def approximate_renyi_epsilon(order: float, *, budget: float, epsilon_hat: float, false_pass: float) -> float:
    """Epsilon of the statement "delta'-approximately (a, epsilon)-Rényi-private": no data-independent loss is needed.

    Outside an event of probability delta' a data set over budget is refused, and the refusal alone has divergence at
    most eps_hat + log(1 / (1 - delta')) / (a - 1). So the answer is eps_hat + max(budget, log(1 / (1 - delta')) /
    (a - 1)): eps_hat + budget, unless the budget is below about delta' / (a - 1).
    """
    a, within = check_order(order), check_nonnegative("budget", budget)
    refusal = -math.log1p(-check_probability("false_pass", false_pass)) / (a - 1)
    return check_nonnegative("epsilon_hat", epsilon_hat) + max(within, refusal)


def renyi_to_epsilon(order: float, epsilon: float, delta: float, *, delta_prime: float = 0.0) -> float:
    """Epsilon of an (epsilon, delta) guarantee from one Rényi order, or from an approximate one.

    Canonne, Kamath and Steinke 2020, Proposition 12: epsilon + log(1 - 1/a) - log(a delta_1) / (a - 1), with
    delta = delta' + (1 - delta') delta_1 for a delta'-approximate bound.

    Raises
    ------
    ValueError
        ``delta`` not above ``delta_prime``.
    """
    a, target, prime = (
        check_order(order),
        check_probability("delta", delta),
        check_real("delta_prime", delta_prime),
    )
    if not 0 <= prime < target:
        raise ValueError(f"delta_prime must lie in [0, delta), got {prime!r} against {target!r}")
    if epsilon == math.inf:
        return math.inf
    rest = (target - prime) / (1 - prime)
    loss = check_nonnegative("epsilon", epsilon)
    return max(0.0, loss + math.log1p(-1 / a) - (math.log(rest) + math.log(a)) / (a - 1))


# --- Algorithm 13 -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RenyiTest(Generic[Data, Proposal]):
    """A Rényi-private test of "the data-dependent Rényi loss of this proposal is within budget".

    Parameters
    ----------
    decide : callable
        ``(data, proposal, budget, rng) -> bool``.
    renyi : callable
        ``order -> eps_hat``: Rényi epsilon of the outcome.
    false_pass : float
        delta' in (0, 1).
    """

    decide: Callable[[Data, Proposal, float, np.random.Generator], bool]
    renyi: Callable[[float], float]
    false_pass: float

    def __post_init__(self) -> None:
        check_probability("false_pass", self.false_pass)


def gaussian_renyi_test(
    loss: Callable[[Data, Proposal], float],
    sensitivity: Callable[[Proposal], float],
    *,
    mu: float,
    false_pass: float,
) -> RenyiTest[Data, Proposal]:
    """Pass where loss + N(0, sigma^2) + (upper delta' quantile) is at most the budget; sigma = sensitivity / mu.

    Parameters
    ----------
    loss : callable
        ``(data, proposal) -> float``: the data-dependent Rényi loss, or an upper bound of it.
    sensitivity : callable
        ``proposal -> float``: its global sensitivity.
    mu : float
        Positive; the outcome has Rényi epsilon a mu^2 / 2.
    false_pass : float
        delta' in (0, 1).
    """
    size, tail = check_ordinary("mu", mu), check_probability("false_pass", false_pass)
    quantile = -float(ndtri(tail))

    def decide(data: Data, proposal: Proposal, budget: float, rng: np.random.Generator) -> bool:
        sigma = check_ordinary("sensitivity", sensitivity(proposal)) / size
        noise = float(gaussian(sigma, 1, rng)[0])
        return loss(data, proposal) + noise + quantile * sigma <= budget

    return RenyiTest(decide, lambda order: 0.5 * order * size * size, tail)


def renyi_ptr(
    data: Data,
    *,
    proposal: Proposal,
    mechanism: DataDependentMechanism[Data, Proposal, Value],
    test: RenyiTest[Data, Proposal],
    order: float,
    budget: float,
    worst: float,
    delta: float,
    rng: np.random.Generator,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> Release[Value]:
    """Run M_phi if a Rényi-private test says that its Rényi loss on this data set is within budget.

    redberg2023, Algorithm 13, with the guarantee of erratum 20.

    Parameters
    ----------
    data, proposal, mechanism
        As in :func:`~adaptive_dp.ptr.framework.generalized_ptr`; the mechanism's loss is its Rényi loss at ``order``,
        and its delta 0.
    test : RenyiTest
    order, budget, worst
        See :func:`renyi_ptr_epsilon`; ``worst`` may be infinite if ``delta`` is above the test's delta'.
    delta : float
        At which the guarantee is stated, in (0, 1).
    rng : numpy.random.Generator
    neighbours : Neighbours
        The relation that the losses and the test are about.

    Returns
    -------
    Release
        A value or ``Refused``, under one (epsilon, delta) guarantee: the smaller of what the Rényi bound and, for
        delta above delta', the approximate Rényi bound convert to.
    """
    if not isinstance(mechanism, DataDependentMechanism):
        raise TypeError(f"mechanism must be a DataDependentMechanism, got {type(mechanism).__name__}")
    if not isinstance(test, RenyiTest):
        raise TypeError(f"test must be a RenyiTest, got {type(test).__name__}")
    if mechanism.delta != 0:
        raise ValueError(f"mechanism must have delta 0 under Rényi privacy, got {mechanism.delta!r}")
    check_generator(rng)
    hat, prime = test.renyi(check_order(order)), test.false_pass
    whole = renyi_ptr_epsilon(order, budget=budget, worst=worst, epsilon_hat=hat, false_pass=prime)
    epsilon = renyi_to_epsilon(order, whole, delta)
    if delta > prime:
        part = approximate_renyi_epsilon(order, budget=budget, epsilon_hat=hat, false_pass=prime)
        epsilon = min(epsilon, renyi_to_epsilon(order, part, delta, delta_prime=prime))
    guarantee = Guarantee("ex-ante", epsilon, neighbours, delta=delta, source=SOURCE)
    trace = Trace(loss=mechanism.loss(data, proposal), renyi=whole)
    if not test.decide(data, proposal, budget, rng):
        return Release(
            Refused(f"the test did not confirm a Rényi loss of at most {budget:g} for this proposal"),
            guarantee,
            trace=trace,
        )
    return Release(mechanism.run(data, proposal, rng), guarantee, trace=trace)
