"""Generalized propose-test-release: test the data-dependent privacy loss itself, then run any mechanism.

Source: redberg2023, Algorithm 4, Theorems 3.5.3 and 3.5.7, Definition 3.5.1; errata 11 and 12.

The pieces are small values that compose:

* a :class:`DataDependentMechanism` M_phi, with its loss epsilon_phi(X) at a fixed delta;
* a :class:`PrivateTest` of "epsilon_phi(X) <= epsilon", or a :class:`PrivateUpperBound` of epsilon_phi(X);
* :func:`generalized_ptr`, which refuses or runs M_phi. A bound for all phi at once and no refusal:
  :mod:`adaptive_dp.ptr.uniform_bound`.

One-sided losses suffice: the proofs only use Pr[M(X) in S] <= e^epsilon(X) Pr[M(X') in S] + delta with X the data set
at hand, for every neighbour X', and never the reverse (erratum 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.noise import laplace
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.classic import laplace_loss, ptr_threshold
from adaptive_dp.ptr.distances import LocalQuery, StableQuery
from adaptive_dp.ptr.private_bounds import BoundNoise, private_bound
from adaptive_dp.validation import (
    check_generator,
    check_ordinary,
    check_real,
)

Data = TypeVar("Data")
Proposal = TypeVar("Proposal")
Value = TypeVar("Value")
Answer = TypeVar("Answer")

TEST_SOURCE = "redberg2023, Theorem 3.5.3; erratum 12"
BOUND_SOURCE = "redberg2023, Theorem 3.5.7; erratum 12"


# --- guarantees -----------------------------------------------------------------------------------------


def check_nonnegative(name: str, value: object) -> float:
    """Return ``value`` as a float in [0, inf)."""
    number = check_real(name, value)
    if number < 0:
        raise ValueError(f"{name} must be nonnegative, got {number!r}")
    return number


def check_delta(name: str, value: object) -> float:
    """Return ``value`` as a float in [0, 1)."""
    number = check_real(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {number!r}")
    return number


def ptr_delta(delta: float, delta_hat: float, delta_prime: float) -> float:
    """delta_hat + max(delta, delta'): the delta of Algorithm 4 (proof of Theorem 3.5.3; erratum 12).

    A data set either violates the budget, and then pays the test and delta', or it obeys it, and then pays the test
    and delta. The printed statement adds all three.

    Parameters
    ----------
    delta : float
        Of the mechanism's data-dependent loss.
    delta_hat : float
        Of the test.
    delta_prime : float
        Probability at most which the test passes a data set over budget.
    """
    return check_delta("delta_hat", delta_hat) + max(
        check_delta("delta", delta), check_delta("delta_prime", delta_prime)
    )


# --- mechanisms -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataDependentMechanism(Generic[Data, Proposal, Value]):
    """A mechanism with a parameter phi, and its privacy loss on each data set (redberg2023, Definition 3.5.1).

    Parameters
    ----------
    run : callable
        ``(data, proposal, rng) -> value``: one run of M_phi.
    loss : callable
        ``(data, proposal) -> epsilon_phi(X)``: for every neighbour X' and set S of outcomes, Pr[M_phi(X) in S] <=
        exp(epsilon_phi(X)) Pr[M_phi(X') in S] + delta. Private: it never leaves the trace.
    delta : float
        In [0, 1), the same for all data sets and proposals.
    """

    run: Callable[[Data, Proposal, np.random.Generator], Value]
    loss: Callable[[Data, Proposal], float]
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", check_delta("delta", self.delta))


class SensitiveQuery(Protocol):
    """A number together with its local sensitivity."""

    def value(self, data: ArrayLike) -> float:
        """Return f(X)."""
        ...

    def local_sensitivity(self, data: ArrayLike) -> float:
        """Largest change of f when one record is added to X or removed."""
        ...


def laplace_mechanism(query: SensitiveQuery) -> DataDependentMechanism[ArrayLike, float, float]:
    """f(X) + Lap(phi), whose loss is the local sensitivity over phi (redberg2023, Example 3.5.2)."""

    def run(data: ArrayLike, scale: float, rng: np.random.Generator) -> float:
        return query.value(data) + float(laplace(scale, 1, rng)[0])

    def loss(data: ArrayLike, scale: float) -> float:
        return laplace_loss(query.local_sensitivity(data), scale)

    return DataDependentMechanism(run, loss)


def exact_answer(query: StableQuery[Answer]) -> DataDependentMechanism[ArrayLike, None, Answer]:
    """The answer itself, without noise and without a parameter: loss 0 where no neighbour's differs, else infinite.

    With :func:`stability_test` and the budget 0, Algorithm 4 is the stability-based variant (redberg2023, Table B.1).
    """

    def run(data: ArrayLike, proposal: None, rng: np.random.Generator) -> Answer:
        return query.value(data)

    def loss(data: ArrayLike, proposal: None) -> float:
        return 0.0 if query.stability(data) > 0 else math.inf

    return DataDependentMechanism(run, loss)


# --- tests and bounds as pieces of the framework ----------------------------------------------------------


@dataclass(frozen=True)
class PrivateTest(Generic[Data, Proposal]):
    """A private test of "the loss of this proposal is within budget".

    Parameters
    ----------
    decide : callable
        ``(data, proposal, epsilon, rng) -> Release[bool]``: whether M_phi may run with the budget epsilon.
    epsilon, delta : float
        Privacy of the outcome, epsilon_hat >= 0 and delta_hat in [0, 1).
    false_pass : float
        delta': if epsilon_phi(X) > epsilon, the test passes with at most this probability; in [0, 1).
    """

    decide: Callable[[Data, Proposal, float, np.random.Generator], Release[bool]]
    epsilon: float
    delta: float
    false_pass: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_nonnegative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta("delta", self.delta))
        object.__setattr__(self, "false_pass", check_delta("false_pass", self.false_pass))


@dataclass(frozen=True)
class PrivateUpperBound(Generic[Data, Proposal]):
    """A published upper bound of the loss of one proposal (Theorem 3.5.7).

    Parameters
    ----------
    release : callable
        ``(data, proposal, rng) -> Release[float]``.
    epsilon, delta : float
        Privacy of the release, epsilon_hat >= 0 and delta_hat in [0, 1).
    failure : float
        delta': probability at most which the bound is below the loss; in [0, 1).
    """

    release: Callable[[Data, Proposal, np.random.Generator], Release[float]]
    epsilon: float
    delta: float
    failure: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_nonnegative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta("delta", self.delta))
        object.__setattr__(self, "failure", check_delta("failure", self.failure))

    def as_test(self) -> PrivateTest[Data, Proposal]:
        """The test that passes where the bound is at most the budget: it can err only where the bound does."""

        def decide(data: Data, proposal: Proposal, epsilon: float, rng: np.random.Generator) -> Release[bool]:
            bound = self.release(data, proposal, rng)
            passed = not isinstance(bound.value, Refused) and bound.value <= epsilon
            return Release(passed, bound.guarantee, trace=Trace(bound=bound.value, **bound.trace))

        return PrivateTest(decide, self.epsilon, self.delta, self.failure)


def distance_test(
    query: LocalQuery, *, epsilon: float, false_pass: float, calibration: str = "sharp"
) -> PrivateTest[ArrayLike, float]:
    """The test of classic propose-test-release, for :func:`laplace_mechanism`.

    Laplace noise of scale phi is within budget exactly when the local sensitivity is at most beta = phi * budget; the
    test passes where the distance to a violation plus Laplace(1 / epsilon) noise exceeds the threshold. (The display
    in section 3.5 of the thesis has the inequality reversed: erratum 11.)

    Parameters
    ----------
    query : LocalQuery
    epsilon : float
        epsilon_hat, positive.
    false_pass : float
        delta', in (0, 1); as in :func:`~adaptive_dp.ptr.classic.ptr_threshold`, whose ``calibration`` this is too.
    """
    distance = _far_enough(epsilon, false_pass, calibration)

    def decide(data: ArrayLike, scale: float, budget: float, rng: np.random.Generator) -> Release[bool]:
        return distance(query.distance(data, check_ordinary("proposal", scale) * budget), rng)

    return PrivateTest(decide, epsilon, 0.0, false_pass)


def stability_test(
    query: StableQuery[Answer], *, epsilon: float, false_pass: float, calibration: str = "sharp"
) -> PrivateTest[ArrayLike, None]:
    """The test of the stability-based variant, for :func:`exact_answer`; parameters as :func:`distance_test`."""
    distance = _far_enough(epsilon, false_pass, calibration)

    def decide(data: ArrayLike, proposal: None, budget: float, rng: np.random.Generator) -> Release[bool]:
        return distance(query.stability(data), rng)

    return PrivateTest(decide, epsilon, 0.0, false_pass)


def _far_enough(
    epsilon: float, false_pass: float, calibration: str
) -> Callable[[float, np.random.Generator], Release[bool]]:
    """Return the private test of "this distance is not 0"."""
    threshold = ptr_threshold(epsilon, false_pass, calibration=calibration)
    guarantee = Guarantee("ex-ante", epsilon, Neighbours.ADD_REMOVE, source="redberg2023, Algorithm 3")

    def decide(distance: float, rng: np.random.Generator) -> Release[bool]:
        noisy = distance + float(laplace(1 / epsilon, 1, rng)[0])
        return Release(noisy > threshold, guarantee, trace=Trace(distance=distance, noisy_distance=noisy))

    return decide


def loss_bound(
    loss: Callable[[Data, Proposal], float],
    sensitivity: Callable[[Proposal], float],
    *,
    epsilon_hat: float,
    delta_prime: float,
    delta_hat: float = 0.0,
) -> PrivateUpperBound[Data, Proposal]:
    """A :class:`PrivateUpperBound` by noise, for a loss whose global sensitivity at each proposal is known.

    Parameters
    ----------
    loss : callable
        ``(data, proposal) -> float``; or any upper bound of the loss.
    sensitivity : callable
        ``proposal -> float``: how much one record moves ``loss(., proposal)``, a public constant.
    epsilon_hat, delta_prime, delta_hat
        See :class:`BoundNoise`.
    """
    BoundNoise(1.0, epsilon_hat, delta_prime, delta_hat)

    def release(data: Data, proposal: Proposal, rng: np.random.Generator) -> Release[float]:
        return private_bound(
            loss(data, proposal),
            sensitivity=sensitivity(proposal),
            epsilon_hat=epsilon_hat,
            delta_prime=delta_prime,
            delta_hat=delta_hat,
            rng=rng,
        )

    return PrivateUpperBound(release, epsilon_hat, delta_hat, delta_prime)


# --- Algorithm 4 ------------------------------------------------------------------------------------------


def generalized_ptr(
    data: Data,
    *,
    proposal: Proposal,
    mechanism: DataDependentMechanism[Data, Proposal, Value],
    check: PrivateTest[Data, Proposal] | PrivateUpperBound[Data, Proposal],
    epsilon: float,
    rng: np.random.Generator,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> Release[Value]:
    """Run M_phi with the proposed phi if a private test says that its loss on this data set is within ``epsilon``.

    redberg2023, Algorithm 4. Classic propose-test-release is the case of :func:`laplace_mechanism` and
    :func:`distance_test`.

    Parameters
    ----------
    data
        Checked by the pieces.
    proposal
        phi, chosen without looking at the data.
    mechanism : DataDependentMechanism
    check : PrivateTest or PrivateUpperBound
        Must be about the loss of this mechanism; that is the caller's proof.
    epsilon : float
        Budget of the mechanism, nonnegative.
    rng : numpy.random.Generator
    neighbours : Neighbours
        The relation that losses, sensitivities and the pieces' guarantees are about.

    Returns
    -------
    Release
        A value of the mechanism or ``Refused``, under one guarantee: (epsilon + epsilon_hat, delta_hat +
        max(delta, delta')), see :func:`ptr_delta`. The trace holds the loss.

    Raises
    ------
    TypeError, ValueError
        A piece of a wrong type, a parameter out of range, or a delta of 1 or more in total, before any noise; a test
        that reports another privacy cost than it declared.
    """
    if not isinstance(mechanism, DataDependentMechanism):
        raise TypeError(f"mechanism must be a DataDependentMechanism, got {type(mechanism).__name__}")
    if not isinstance(check, PrivateTest | PrivateUpperBound):
        raise TypeError(f"check must be a PrivateTest or a PrivateUpperBound, got {type(check).__name__}")
    budget, bounded = check_nonnegative("epsilon", epsilon), isinstance(check, PrivateUpperBound)
    test = check.as_test() if isinstance(check, PrivateUpperBound) else check
    check_generator(rng)
    guarantee = Guarantee(
        "ex-ante",
        budget + test.epsilon,
        neighbours,
        delta=ptr_delta(mechanism.delta, test.delta, test.false_pass),
        parts={"test": test.epsilon, "release": budget},
        source=BOUND_SOURCE if bounded else TEST_SOURCE,
    )
    loss = mechanism.loss(data, proposal)
    outcome = test.decide(data, proposal, budget, rng)
    check_declared_cost(outcome.guarantee, test.epsilon, test.delta, neighbours)
    trace = Trace(**{**outcome.trace, "loss": loss})
    if outcome.value is not True:
        return Release(
            Refused(f"the test did not confirm a loss of at most {budget:g} for this proposal"),
            guarantee,
            trace=trace,
        )
    return Release(mechanism.run(data, proposal, rng), guarantee, trace=trace)


def check_declared_cost(paid: Guarantee, epsilon: float, delta: float, neighbours: Neighbours) -> None:
    """Refuse a piece whose release costs more than it declared, or is about other neighbours."""
    if paid.kind != "ex-ante" or paid.epsilon > epsilon * (1 + 1e-12) or paid.delta > delta * (1 + 1e-12):
        raise ValueError(
            f"the check must cost what it declares, ({epsilon!r}, {delta!r}) ex-ante, got a {paid.kind} release of "
            f"({paid.epsilon!r}, {paid.delta!r})"
        )
    if paid.neighbours is not neighbours:
        raise ValueError(
            f"the check must be about the neighbours {neighbours.value!r}, got {paid.neighbours.value!r}"
        )
