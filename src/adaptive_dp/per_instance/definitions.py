"""The family of definitions of privacy, computed for one mechanism and one data set (redberg2023, Table A.1).

The mechanism is objective perturbation of logistic regression in one dimension,

    theta = argmin sum_i log(1 + exp(-y_i x_i theta)) + lam theta^2 / 2 + b theta,   b ~ N(0, sigma^2),

neighbours add or remove one record, and the table says what each definition holds fixed and what that costs. Two given
neighbours are enclosed exactly (:mod:`~adaptive_dp.per_instance.one_dimensional`), and so are all neighbours of one
data set (:mod:`~adaptive_dp.per_instance.all_neighbours`). What cannot be enclosed is a supremum over *all* data sets:
there the upper value is the theorem of the errata (one-dimensional reduction, section S1), the lower one the worst
pair of neighbours that was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.per_instance.all_neighbours import largest_epsilon, largest_renyi
from adaptive_dp.per_instance.calibration import LinearPerturbationCurve
from adaptive_dp.per_instance.cells import Interval, larger
from adaptive_dp.per_instance.one_dimensional import (
    Data1D,
    Neighbours1D,
    check_delta,
    check_order,
    pair_of,
)
from adaptive_dp.validation import FloatArray, as_finite_array, check_ordinary, check_real

Row = tuple[str, str, str, float, float, str]
COLUMNS = ["definition", "fixed", "quantity", "lower", "value", "note"]


def neighbouring_pair(
    dataset: Dataset, *, feature: float, label: float, lam: float, sigma: float
) -> Neighbours1D:
    """The pair D, D+-z: the record z = (feature, label) is removed if it is in the data, and added if it is not.

    Parameters
    ----------
    dataset : Dataset
        One feature, labels in {-1, +1}.
    feature, label : float
        The record; must obey the domain of ``dataset``.
    lam : float
        Factor of theta^2 / 2, beside the *sum* of the losses; between 1e-100 and 1e100, as is ``sigma``.
    sigma : float
        Standard deviation of the noise b.

    Raises
    ------
    ValueError, TypeError
        More than one feature, other labels, a record outside the domain, parameters that are not positive.
    """
    data = _data_of(dataset, lam, sigma)
    product, member = _record_of(dataset, feature, label)
    return pair_of(data, product, member=member)


def log_density(theta: ArrayLike, dataset: Dataset, *, lam: float, sigma: float) -> FloatArray:
    """Log-density of the published theta, log phi(b(theta)/sigma) + log(J''(theta)/sigma); shape of ``theta``."""
    data, points = _data_of(dataset, lam, sigma), as_finite_array("theta", theta)
    flat = points.reshape(-1)
    logs = -0.5 * data.scores(flat) ** 2 - 0.5 * math.log(2 * math.pi) + np.log(data.curvatures(flat) / sigma)
    return np.asarray(logs.reshape(points.shape))


def log_ratio_growth(
    dataset: Dataset, *, feature: float, label: float, lam: float, sigma: float
) -> pd.DataFrame:
    """Why no finite pure epsilon exists: the log-ratio at outcomes that need more and more noise.

    As theta runs to the side on which z is misclassified its gradient tends to c, and the log-ratio grows like
    |c| |b| / sigma^2 without end. Arguments as in :func:`neighbouring_pair`.

    Returns
    -------
    pandas.DataFrame
        ``noise`` (|b| / sigma needed, on the data without z), ``theta``, ``log_ratio`` (absolute), ``bound``
        (mu^2/2 + mu |b|/sigma, the asymptote up to a constant) and ``probability`` of needing at least that much.
    """
    pair = neighbouring_pair(dataset, feature=feature, label=label, lam=lam, sigma=sigma)
    side = 1.0 if pair.product >= 0 else -1.0
    levels = np.array([0.0, 1, 2, 4, 8, 16, 32])
    theta = np.array([pair.base.theta_at(side * t) for t in levels])
    return pd.DataFrame(
        {
            "noise": levels,
            "theta": theta,
            "log_ratio": np.abs(pair.log_ratio(theta)),
            "bound": pair.mu**2 / 2 + pair.mu * levels,
            "probability": special.ndtr(-levels),
        }
    )


def renyi_bound(order: float, mu: float, kappa: float) -> float:
    """Renyi divergence of objective perturbation of a generalised linear loss: a bound for both directions, any lam.

    Without z in P: the smaller of alpha mu^2/2 + log(2 Phi((alpha-1) mu))/(alpha-1) and, where 2 (alpha-1) kappa < 1,
    mu^2/2 + (alpha-1) mu^2/(2 w) - log(w)/(2 (alpha-1)) with w = 1 - 2 (alpha-1) kappa. With z in P:
    log(1+kappa) + alpha mu^2/2.

    Parameters
    ----------
    order : float
        alpha in (1, 1e6].
    mu, kappa : float
        sup |f'| ||x|| / sigma and sup f'' ||x||^2 / lam; nonnegative.

    Notes
    -----
    Errata to redberg2023, section S1 (the "with z" proof is the referee's: the printed one does not give it).
    """
    alpha, shift, bend = check_order(order), check_real("mu", mu), check_real("kappa", kappa)
    if min(shift, bend) < 0:
        raise ValueError(f"mu and kappa must be nonnegative, got {shift!r} and {bend!r}")
    power = alpha - 1
    absent = alpha * shift**2 / 2 + (math.log(2) + float(special.log_ndtr(power * shift))) / power
    w = 1 - 2 * power * bend
    if w > 0:
        absent = min(absent, shift**2 / 2 + power * shift**2 / (2 * w) - math.log(w) / (2 * power))
    return max(absent, math.log1p(bend) + alpha * shift**2 / 2)


def definitions_table(
    dataset: Dataset,
    *,
    feature: float,
    label: float,
    lam: float,
    sigma: float,
    delta: float,
    order: float = 2.0,
    outcome: float | None = None,
) -> pd.DataFrame:
    """Every definition of Table A.1 as a number, for one data set and one person.

    Parameters
    ----------
    dataset, feature, label, lam, sigma
        As in :func:`neighbouring_pair`. The domain's bound R on the absolute feature is the one suprema run over.
    delta : float
        In [1e-250, 1).
    order : float
        Order alpha > 1 of the Renyi rows.
    outcome : float, optional
        The theta of the ex-post row; by default the minimiser without noise.

    Returns
    -------
    pandas.DataFrame
        A row for each definition: ``definition``, ``fixed`` (what is held fixed), ``quantity``, ``lower`` and
        ``value`` (the number lies between them; ``value`` is the guarantee, ``lower`` is attained by a pair of data
        sets that was looked at), ``note``. For one quantity the rows are ordered:

            per-instance <= data-dependent <= approximate,   per-instance <= personalized <= approximate,

        in both columns, and for the Renyi rows likewise. The ex-post loss is a random variable: no order holds at
        an outcome; its last row says how often it exceeds the per-instance epsilon.
    """
    data = _data_of(dataset, lam, sigma)
    product, member = _record_of(dataset, feature, label)
    budget, alpha = check_delta(delta), check_order(order)
    theta = data.minimiser() if outcome is None else check_real("outcome", outcome)
    pair, bound = pair_of(data, product, member=member), dataset.domain.feature_bound
    epsilon = larger(*pair.epsilon(budget))
    growth = log_ratio_growth(dataset, feature=feature, label=label, lam=lam, sigma=sigma)["log_ratio"]
    endless = "the log-ratio grows with the noise without end; lower: at 32 sigma"
    rows = [
        ("pure DP", "nothing", "epsilon", float(growth.max()), math.inf, endless),
        *_epsilon_rows(data, pair, bound, budget, epsilon),
        *_renyi_rows(data, pair, bound, alpha, member=member),
        *_ex_post_rows(pair, theta, epsilon.upper, member=member),
    ]
    return pd.DataFrame.from_records(rows, columns=COLUMNS)


THEOREM = "value: theorem for all data; lower: worst pair found"
SUPREMUM = "value: no neighbour exceeds it; lower: worst neighbour found"
BOTH = "both directions"
AS_PRINTED = "one direction, as in Table A.1"


def _epsilon_rows(
    data: Data1D, pair: Neighbours1D, bound: float, delta: float, instance: Interval
) -> list[Row]:
    """Epsilon at ``delta``."""

    def theorem(product: float) -> float:
        if product == 0:
            return 0.0
        return LinearPerturbationCurve(data.mu(product), data.kappa(product)).epsilon(delta)

    by_data = largest_epsilon(data, bound, delta, start=instance, ceiling=theorem(bound))
    by_person, worst = _over_data_sets(
        data, pair, bound, instance, by_data, lambda p: p.attained_epsilon(delta), theorem
    )
    quantity = f"epsilon at delta = {delta:g}"
    return [
        ("approximate DP", "nothing", quantity, *worst, THEOREM),
        ("data-dependent DP", "D", quantity, *by_data, f"{SUPREMUM}; {BOTH}"),
        ("personalized DP", "z", quantity, *by_person, THEOREM),
        ("per-instance DP", "D and z", quantity, *instance, f"enclosed; {BOTH}"),
    ]


def _renyi_rows(data: Data1D, pair: Neighbours1D, bound: float, order: float, *, member: bool) -> list[Row]:
    """Renyi divergence; data-dependent also with P = D alone, the direction that Table A.1 prints."""

    def theorem(product: float) -> float:
        return renyi_bound(order, data.mu(product), data.kappa(product))

    sides, ceiling = pair.renyi(order), theorem(bound)
    instance = larger(*sides)
    one_way = largest_renyi(data, bound, order, start=sides[int(member)], ceiling=ceiling, both=False)
    start = Interval(max(instance.lower, one_way.lower), instance.upper)
    by_data = largest_renyi(data, bound, order, start=start, ceiling=ceiling, both=True)
    by_person, worst = _over_data_sets(
        data, pair, bound, instance, by_data, lambda p: p.attained_renyi(order), theorem
    )
    quantity = f"Renyi divergence of order {order:g}"
    return [
        ("Rényi DP", "nothing", quantity, *worst, THEOREM),
        ("data-dependent DP", "D", quantity, *by_data, f"{SUPREMUM}; {BOTH}"),
        ("data-dependent DP", "D", f"{quantity}, D first", *one_way, f"{SUPREMUM}; {AS_PRINTED}"),
        ("personalized DP", "z", quantity, *by_person, THEOREM),
        ("per-instance DP", "D and z", quantity, *instance, f"enclosed; {BOTH}"),
    ]


def _ex_post_rows(pair: Neighbours1D, theta: float, epsilon: float, *, member: bool) -> list[Row]:
    """The loss at one outcome, and its law when the data is D."""
    name, loss = "ex-post per-instance DP", abs(float(pair.log_ratio(theta)))
    median, high = (pair.quantile(share, present=member) for share in (0.5, 0.95))
    above, event = pair.exceedance(epsilon, present=member), "the loss exceeds the per-instance epsilon"
    return [
        (name, "D, z and outcome", f"loss at theta = {theta:.6g}", loss, loss, "exact"),
        (name, "D and z", "50% quantile of the loss", *median, "under D"),
        (name, "D and z", "95% quantile of the loss", *high, "under D"),
        (name, "D and z", f"probability that {event}", *above, "under D; no order holds outcome by outcome"),
    ]


def _over_data_sets(
    data: Data1D,
    pair: Neighbours1D,
    bound: float,
    instance: Interval,
    by_data: Interval,
    attained: Callable[[Neighbours1D], float],
    theorem: Callable[[float], float],
) -> tuple[Interval, Interval]:
    """Suprema over all data sets: for the record of ``pair`` (personalized), and for any record (the worst case)."""
    own = [attained(p) for p in _hard_pairs(data, pair.product)]
    anybody = [attained(p) for p in _hard_pairs(data, bound)]
    person = Interval(max([instance.lower, *own]), max(theorem(pair.product), instance.upper))
    worst = Interval(
        max([person.lower, by_data.lower, *anybody]), max(theorem(bound), by_data.upper, person.upper)
    )
    return person, worst


def _hard_pairs(data: Data1D, product: float) -> Iterator[Neighbours1D]:
    """Pairs that are known to be hard: nobody else, copies of z, and people who pull against z; then D itself."""
    if product == 0:
        return
    for copies in ((0, 0), (1, 0), (0, 1), (5, 0), (0, 5), (5, 5)):
        kept = [(c, float(k)) for c, k in zip((product, -product), copies, strict=True) if k]
        products, weights = np.array([c for c, _ in kept]), np.array([k for _, k in kept])
        yield Neighbours1D(Data1D(products, weights, data.lam, data.sigma), product)
    yield Neighbours1D(data, product)


def _data_of(dataset: Dataset, lam: float, sigma: float) -> Data1D:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset must be a Dataset, got {type(dataset).__name__}")
    if dataset.columns != 1:
        raise ValueError(f"dataset must have one feature, got {dataset.columns}")
    if dataset.domain.labels != "sign":
        raise ValueError(f"dataset must have labels in {{-1, +1}}, got {dataset.domain.describe_labels()}")
    products, counts = np.unique(dataset.features[:, 0] * dataset.labels, return_counts=True)
    return Data1D(
        products, counts.astype(np.float64), check_ordinary("lam", lam), check_ordinary("sigma", sigma)
    )


def _record_of(dataset: Dataset, feature: float, label: float) -> tuple[float, bool]:
    """The record's c = y x, and whether it is in the data."""
    x, y = check_real("feature", feature), check_real("label", label)
    dataset.domain.check([[x]], [y])
    return x * y, bool(((dataset.features[:, 0] == x) & (dataset.labels == y)).any())
