"""Propose-test-release with a uniform bound: choose the proposal from a published bound, never refuse.

Source: redberg2023, Algorithm 12 and Theorem B.2.4, Table B.1; erratum 12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.classic import laplace_loss
from adaptive_dp.ptr.framework import (
    DataDependentMechanism,
    SensitiveQuery,
    check_declared_cost,
    check_delta,
    check_nonnegative,
    laplace_mechanism,
)
from adaptive_dp.ptr.private_bounds import BoundNoise, private_bound
from adaptive_dp.validation import check_generator, check_ordinary, check_positive

Data = TypeVar("Data")
Proposal = TypeVar("Proposal")
Value = TypeVar("Value")

SOURCE = "redberg2023, Algorithm 12 and Theorem B.2.4; erratum 12"


def uniform_delta(delta: float, delta_hat: float, delta_prime: float) -> float:
    """delta_hat + delta' + (1 - delta') delta: the delta of Algorithm 12 (Theorem B.2.4; erratum 12).

    Here the bound may fail and M_phi may fail on one and the same data set, because phi depends on the draw of the
    bound: the maximum of the two does not suffice.
    """
    hat, prime = check_delta("delta_hat", delta_hat), check_delta("delta_prime", delta_prime)
    return hat + prime + (1 - prime) * check_delta("delta", delta)


@dataclass(frozen=True)
class PrivateUniformBound(Generic[Data, Proposal]):
    """A published function that bounds the losses of all proposals at once.

    Parameters
    ----------
    release : callable
        ``(data, rng) -> Release[callable]``; the published callable maps a proposal to its bound.
    epsilon, delta : float
        Privacy of the release, epsilon_hat >= 0 and delta_hat in [0, 1).
    failure : float
        delta': probability at most which the bound is below the loss of *some* proposal; in [0, 1).
    """

    release: Callable[[Data, np.random.Generator], Release[Callable[[Proposal], float]]]
    epsilon: float
    delta: float
    failure: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_nonnegative("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_delta("delta", self.delta))
        object.__setattr__(self, "failure", check_delta("failure", self.failure))


@dataclass(frozen=True)
class Chosen(Generic[Proposal, Value]):
    """What Algorithm 12 publishes: the proposal that it chose, the bound there, and the value of the mechanism."""

    proposal: Proposal
    bound: float
    value: Value


def ptr_with_uniform_bound(
    data: Data,
    *,
    mechanism: DataDependentMechanism[Data, Proposal, Value],
    bound: PrivateUniformBound[Data, Proposal],
    choose: Callable[[Callable[[Proposal], float], float], Proposal],
    epsilon: float,
    rng: np.random.Generator,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
) -> Release[Chosen[Proposal, Value]]:
    """Publish a bound of all the losses, choose a proposal that it allows, run the mechanism: no refusal.

    redberg2023, Algorithm 12 and Theorem B.2.4.

    Parameters
    ----------
    data
        Checked by the pieces.
    mechanism : DataDependentMechanism
    bound : PrivateUniformBound
    choose : callable
        ``(published bound, epsilon) -> phi`` with bound(phi) <= epsilon. It sees no data.
    epsilon : float
        Budget of the mechanism, nonnegative.
    rng : numpy.random.Generator
    neighbours : Neighbours
        The relation that losses, sensitivities and the pieces' guarantees are about.

    Returns
    -------
    Release
        A :class:`Chosen`; (epsilon + epsilon_hat, delta_hat + delta' + (1 - delta') delta), see :func:`uniform_delta`.

    Raises
    ------
    ValueError
        ``choose`` returned a proposal that the published bound does not allow (this tells no more than the bound).
    TypeError, ValueError
        A piece of a wrong type or a parameter out of range, before any noise.
    """
    if not isinstance(mechanism, DataDependentMechanism):
        raise TypeError(f"mechanism must be a DataDependentMechanism, got {type(mechanism).__name__}")
    if not isinstance(bound, PrivateUniformBound):
        raise TypeError(f"bound must be a PrivateUniformBound, got {type(bound).__name__}")
    budget = check_nonnegative("epsilon", epsilon)
    check_generator(rng)
    guarantee = Guarantee(
        "ex-ante",
        budget + bound.epsilon,
        neighbours,
        delta=uniform_delta(mechanism.delta, bound.delta, bound.failure),
        parts={"bound": bound.epsilon, "release": budget},
        source=SOURCE,
    )
    published = bound.release(data, rng)
    check_declared_cost(published.guarantee, bound.epsilon, bound.delta, neighbours)
    if isinstance(published.value, Refused):
        raise TypeError("bound must publish a function, got a refusal")
    proposal = choose(published.value, budget)
    level = float(published.value(proposal))
    if not level <= budget:
        raise ValueError(f"choose must return a proposal with a bound of at most {budget!r}, got {level!r}")
    trace = Trace(loss=mechanism.loss(data, proposal), **published.trace)
    return Release(Chosen(proposal, level, mechanism.run(data, proposal, rng)), guarantee, trace=trace)


@dataclass(frozen=True, slots=True)
class InverseScaleBound:
    """The published bound phi -> sensitivity / phi of the losses of Laplace noise of all scales phi."""

    sensitivity: float

    def __call__(self, scale: float) -> float:
        """Return the bound of the loss at the scale phi."""
        return laplace_loss(self.sensitivity, scale)


class PublishableQuery(SensitiveQuery, Protocol):
    """A number whose local sensitivity has itself a known global sensitivity."""

    LOCAL_SENSITIVITY_SENSITIVITY: float


def release_with_private_bound(
    data: ArrayLike,
    query: PublishableQuery,
    *,
    epsilon: float,
    epsilon_hat: float,
    delta: float,
    smallest: float,
    rng: np.random.Generator,
) -> Release[Chosen[float, float]]:
    """Publish an upper bound of the local sensitivity, then f(X) with Laplace noise in proportion: no refusal.

    The classic form of Algorithm 12 (redberg2023, Table B.1: private uniform bounds; Vadhan 2017, section 3.4).

    Parameters
    ----------
    data : array_like
    query : PublishableQuery
        Such as :class:`~adaptive_dp.ptr.distances.Pairs`.
    epsilon, epsilon_hat : float
        Of the release and of the bound, positive.
    delta : float
        Probability that the bound is too small, in (0, 1).
    smallest : float
        The bound is not let below this public positive number: no noise at all is no privacy.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        A :class:`Chosen` with the noise scale as proposal; (epsilon + epsilon_hat, delta)-private.
    """
    budget, least = check_ordinary("epsilon", epsilon), check_positive("smallest", smallest)
    unit = float(type(query).LOCAL_SENSITIVITY_SENSITIVITY)
    BoundNoise(unit, epsilon_hat, delta)

    def release(rows: ArrayLike, generator: np.random.Generator) -> Release[Callable[[float], float]]:
        drawn = private_bound(
            query.local_sensitivity(rows),
            sensitivity=unit,
            epsilon_hat=epsilon_hat,
            delta_prime=delta,
            rng=generator,
        )
        level = math.inf if isinstance(drawn.value, Refused) else max(drawn.value, least)
        return Release(InverseScaleBound(level), drawn.guarantee, trace=drawn.trace)

    def choose(published: Callable[[float], float], allowed: float) -> float:
        scale = published(1.0) / allowed
        while published(scale) > allowed:  # a last place, at most
            scale = float(np.nextafter(scale, math.inf))
        return scale

    bound: PrivateUniformBound[ArrayLike, float] = PrivateUniformBound(release, epsilon_hat, 0.0, delta)
    return ptr_with_uniform_bound(
        data, mechanism=laplace_mechanism(query), bound=bound, choose=choose, epsilon=budget, rng=rng
    )
