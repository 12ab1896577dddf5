"""Private principal components through the spectral gap.

Source: redberg2023, Theorem B.3.13, after Dwork, Talwar, Thakurta and Zhang ("Analyze Gauss", STOC 2014, Algorithm 2);
erratum 19. Neighbours add or remove one record, a row x with ||x||_2 <= 1; A = X'X, P is the projector onto the
eigenvectors of its k largest eigenvalues, and d_k = lambda_k - lambda_(k+1) the gap.

**The gap has global sensitivity 1.** A + xx' raises each eigenvalue by at least 0 and at most 1 (Weyl), hence
lambda_k - lambda_(k+1) moves by at most 1 either way, and removing is the same step backwards. Both ends are
attained, by x = e_k and x = e_(k+1).

**Theorem** (local sensitivity of P, exact). If d = d_k > 1 at the data at hand, A' = A + xx' or A - xx' with
||x|| <= 1, then

    ||P - P'||_F <= sqrt(2) sin(arcsin(1/d) / 2) = sqrt(1 - sqrt(1 - 1/d^2)),

with equality for some x in both cases; about 1 / (sqrt(2) d). For d <= 1 a record can exchange two eigenvectors.
The errata prove sqrt(2) / d (adding) and sqrt(2) / (d - 1) (removing); the thesis has 2 / (d - 2).

*Proof.* Let K = 2P' - I, a reflection that commutes with A', and y = P'x, z = (I - P')x. As K xx' K has the sign of
its mixed terms changed, B = A - KAK = -+2 (yz' + zy') and BK = +-2 (yz' - zy') =: W, antisymmetric with
||W||_F^2 = 8 ||y||^2 ||z||^2. A and KAK have the same eigenvalues, so with U_1, U_2 the two eigenspaces of A the
equation of Davis and Kahan for A against KAK gives d ||U_2'K U_1||_F <= ||U_2'BK U_1||_F, and as U_2'WU_1 and
U_1'WU_2 are disjoint blocks of W of equal norm, that is at most 2 ||y|| ||z|| <= ||x||^2 <= 1. The singular values
of U_2'K U_1 are sin(2 theta_i), theta_i the angles between the ranges of P and P'. So sum sin^2(2 theta_i) <= 1/d^2.
Replacing x by sqrt(t) x, t from 0 to 1, moves the angles continuously from 0 (the gap stays at least d - t > 0)
and never through pi/4, since 1/d < 1. There sin^2(theta) = (1 - sqrt(1 - sin^2(2 theta))) / 2 is convex in
sin^2(2 theta), so that ||P - P'||_F^2 = 2 sum sin^2(theta_i) is largest with all of it in one angle. QED.
In the plane of e_k and e_(k+1) the angle of x with cos(2 phi) = -1/d (adding), 1/d (removing) attains it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import l2_feature_bound
from adaptive_dp.noise import goe
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.eigenvalue import split_of
from adaptive_dp.ptr.private_bounds import private_bound
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
)


@dataclass(frozen=True, eq=False)
class Subspace:
    """A published k-dimensional subspace; everything in it is covered by the guarantee.

    Parameters
    ----------
    basis : ndarray, shape (d, k)
        Orthonormal eigenvectors of the k largest eigenvalues of ``matrix``.
    matrix : ndarray, shape (d, d)
        What was released: the projector, or X'X, plus symmetric noise.
    sigma : float
        Standard deviation of the noise off the diagonal.
    gap : float or None
        Private lower bound of the spectral gap, in units of the squared bound of rows.
    """

    basis: FloatArray
    matrix: FloatArray
    sigma: float
    gap: float | None = None

    @property
    def projector(self) -> FloatArray:
        """Projector onto the subspace, shape (d, d)."""
        return np.asarray(self.basis @ self.basis.T)


def projector_sensitivity(gap: float) -> float:
    """Largest Frobenius distance that one record moves the projector, sqrt(1 - sqrt(1 - 1/gap^2)): exact.

    Parameters
    ----------
    gap : float
        Gap at the data at hand, or a lower bound of it, in units of the squared bound of rows; above 1.
    """
    d = check_ordinary("gap", gap)
    if d <= 1:
        raise ValueError(f"gap must be above 1 for a bound to exist, got {d!r}")
    return 1 / (d * math.sqrt(1 + math.sqrt((1 - 1 / d) * (1 + 1 / d))))


def top_eigenvectors(matrix: ArrayLike, components: int) -> tuple[FloatArray, float]:
    """Orthonormal eigenvectors (d, k) of the k largest eigenvalues of a symmetric matrix, and the gap below them.

    Raises
    ------
    ValueError
        Not symmetric, or k not in 1 ... d - 1: the projector onto everything is no secret.
    """
    symmetric = as_finite_array("matrix", matrix, ndim=2)
    if symmetric.shape[0] != symmetric.shape[1]:
        raise ValueError(f"matrix must be square, got shape {symmetric.shape}")
    scale = float(np.abs(symmetric).max(initial=0.0))
    if np.abs(symmetric - symmetric.T).max(initial=0.0) > 1e-12 * scale:
        raise ValueError("matrix must be symmetric")
    k = check_components(components, symmetric.shape[0])
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray(vectors[:, -k:][:, ::-1]), float(values[-k] - values[-k - 1])


def check_components(components: object, columns: int) -> int:
    """Return ``components`` as an int in 1 ... ``columns`` - 1."""
    k = check_count("components", components)
    if k >= columns:
        raise ValueError(f"components must be below the number of features {columns}, got {k}")
    return k


def private_pca(
    people: Dataset,
    *,
    components: int,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    share: float = 0.2,
) -> Release[Subspace]:
    """Publish the top-k subspace with noise that is as small as the spectral gap allows.

    (1) A lower bound of d_k is published: analytic Gaussian noise, sensitivity 1, wrong with probability at most
    delta / 2. (2) If it is at most 1 the mechanism refuses. (3) Otherwise P + GOE noise is published, calibrated
    by the analytic Gaussian mechanism to the exact sensitivity at that gap, and its top eigenvectors are taken.

    Parameters
    ----------
    people : Dataset
        Labels are not looked at. Rows obey the declared bound, whose l2 value is the unit of length.
    components : int
        k, from 1 to d - 1.
    epsilon, delta : float
        Total. A ``share`` of epsilon and delta/4 go to the gap, delta/2 to a wrong bound, the rest to the projector;
        the deltas add, as the noise depends on the published bound (generalized PTR, redberg2023, Theorem B.2.4).
    rng : numpy.random.Generator
        The only source of chance.
    share : float
        In (0, 1).

    Returns
    -------
    Release
        A :class:`Subspace`, or ``Refused``, with one guarantee for both; ``guarantee.parts``: ``"gap"``,
        ``"projector"``. The trace holds ``bound``, covered by the guarantee, and the private ``gap``.
        Time O(n d^2 + d^3).

    Raises
    ------
    TypeError, ValueError
        Impossible parameters, before any noise is drawn.
    """
    check_generator(rng)
    k, gram = _gram(people, components)
    split = split_of(epsilon, delta, share)
    basis, gap = top_eigenvectors(gram, k)
    bound = private_bound(
        gap,
        sensitivity=1.0,
        epsilon_hat=split.epsilon_test,
        delta_hat=split.delta_test,
        delta_prime=split.failure,
        side="lower",
        rng=rng,
    ).value
    assert isinstance(bound, float)
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=split.epsilon_test + split.epsilon_release,
        delta=split.delta_test + split.failure + split.delta_release,
        neighbours=Neighbours.ADD_REMOVE,
        domain=people.domain,
        parts={"gap": split.epsilon_test, "projector": split.epsilon_release},
        source="redberg2023, Theorem B.3.13 and B.2.4; erratum 19",
    )
    trace = Trace(gap=gap, bound=bound)
    if bound <= 1:
        reason = f"the published lower bound of the spectral gap, {bound:.6g}, is not above 1"
        return Release(Refused(reason), guarantee, trace=trace)
    sigma = projector_noise(bound, epsilon=split.epsilon_release, delta=split.delta_release)
    noisy = basis @ basis.T + goe(sigma, people.columns, rng)
    return Release(Subspace(top_eigenvectors(noisy, k)[0], noisy, sigma, bound), guarantee, trace=trace)


def projector_noise(gap: float, *, epsilon: float, delta: float) -> float:
    """Smallest GOE scale (off the diagonal) that makes P + noise one-sidedly (epsilon, delta)-private at this gap."""
    return gaussian_sigma(epsilon, delta, projector_sensitivity(gap)) / math.sqrt(2)


def analyze_gauss(
    people: Dataset, *, components: int, epsilon: float, delta: float, rng: np.random.Generator
) -> Release[Subspace]:
    """Publish X'X plus GOE noise and take its top eigenvectors: the data-independent rival.

    Analyze Gauss (Dwork et al. 2014, Algorithm 1) with the noise in the natural geometry of symmetric matrices, a
    factor sqrt 2 less off the diagonal (erratum 7). Arguments as in :func:`private_pca`; the release is an exact
    Gaussian mechanism of Frobenius sensitivity 1.
    """
    check_generator(rng)
    k, gram = _gram(people, components)
    scale = gaussian_sigma(check_ordinary("epsilon", epsilon), check_probability("delta", delta), 1.0)
    sigma = scale / math.sqrt(2)
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=epsilon,
        delta=delta,
        neighbours=Neighbours.ADD_REMOVE,
        domain=people.domain,
        source="Dwork et al. 2014, Algorithm 1; erratum 7",
        curve=GaussianCurve(1 / scale),
    )
    noisy = gram + goe(sigma, people.columns, rng)
    return Release(Subspace(top_eigenvectors(noisy, k)[0], noisy, sigma), guarantee)


def _gram(people: Dataset, components: int) -> tuple[int, FloatArray]:
    """Check the number of components; X'X in units of the squared l2 bound of rows, shape (d, d)."""
    if not isinstance(people, Dataset):
        raise TypeError(f"people must be a Dataset, got {type(people).__name__}")
    k = check_components(components, people.columns)
    rows = people.features / l2_feature_bound(people.domain, people.columns)
    gram = rows.T @ rows
    return k, 0.5 * (gram + gram.T)


def captured_share(gram: ArrayLike, basis: ArrayLike) -> float:
    """Variance that a subspace captures over the most that one of its dimension can, in [0, 1]. Private."""
    matrix, columns = as_finite_array("gram", gram, ndim=2), as_finite_array("basis", basis, ndim=2)
    best = np.linalg.eigvalsh(matrix)[-columns.shape[1] :].sum()
    return float(np.einsum("ij,ik,kj->", columns, matrix, columns) / best)


# --- checks and the experiment ------------------------------------------------------------------------


def sensitivity_check(trials: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """Distances between projectors of neighbours, random and adversarial, beside the exact sensitivity.

    Matrices of 2 to 6 columns with eigenvalues up to 100, some of them equal; half of the records lie in the plane of
    the two eigenvectors beside the gap, at the angle that hurts one of the two directions most or near it.

    Returns
    -------
    DataFrame
        One row an instance and direction with a gap above 1: ``change`` ("added", "removed"), ``dimension``,
        ``components``, ``gap`` of the data at hand, ``other_gap``, ``distance``, ``bound``, ``ratio``.
    """
    check_generator(rng)
    rows = []
    for _ in range(check_count("trials", trials)):
        d = int(rng.integers(2, 7))
        k = int(rng.integers(1, d))
        values = np.sort(rng.uniform(0, 10 ** rng.uniform(0, 2), d))[::-1]
        if rng.random() < 0.3:
            values[:k] = values[k - 1]
        if rng.random() < 0.3:
            values[k:] = values[k]
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        record = _record(basis, values, k, rng)
        small = (basis * values) @ basis.T
        large = small + np.outer(record, record)
        spectra = [top_eigenvectors(0.5 * (m + m.T), k) for m in (small, large)]
        distance = float(np.linalg.norm(spectra[0][0] @ spectra[0][0].T - spectra[1][0] @ spectra[1][0].T))
        gaps = (spectra[0][1], spectra[1][1])
        for change, gap, other in (("added", *gaps), ("removed", *gaps[::-1])):
            if gap > 1:
                bound = projector_sensitivity(gap)
                rows.append((change, d, k, gap, other, distance, bound, distance / bound))
    names = ["change", "dimension", "components", "gap", "other_gap", "distance", "bound", "ratio"]
    return pd.DataFrame(rows, columns=names)


def _record(basis: FloatArray, values: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """A record of norm 1, random or near the worst angle in the plane of the eigenvectors k and k + 1."""
    record = rng.standard_normal(values.size)
    gap = values[k - 1] - values[k]
    if gap > 1 and rng.random() < 0.5:
        # The worst record to add has cos(2 angle) = -1/gap. The same one is nearly the worst to take away.
        angle = 0.5 * math.acos(-1 / gap) + rng.choice([0.0, 0.3]) * rng.standard_normal()
        record = math.cos(angle) * basis[:, k - 1] + math.sin(angle) * basis[:, k]
    return np.asarray(record / np.linalg.norm(record))


def gap_check(trials: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """Changes of the spectral gap when a record is added: random ones and the two extreme ones.

    Returns
    -------
    DataFrame
        One row an instance: ``record`` ("random", "along k", "along k + 1"), ``gap``, ``change``.
    """
    check_generator(rng)
    rows = []
    for _ in range(check_count("trials", trials)):
        d = int(rng.integers(2, 7))
        k = int(rng.integers(1, d))
        values = np.sort(rng.uniform(0, 10 ** rng.uniform(-1, 1.5), d))[::-1]
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        matrix = (basis * values) @ basis.T
        random = rng.standard_normal(d)
        records = {"random": random / np.linalg.norm(random), "along k": basis[:, k - 1],
                   "along k + 1": basis[:, k]}  # fmt: skip
        for name, x in records.items():
            after = np.linalg.eigvalsh(matrix + np.outer(x, x))
            gap = float(values[k - 1] - values[k])
            rows.append((name, gap, float(after[-k] - after[-k - 1]) - gap))
    return pd.DataFrame(rows, columns=["record", "gap", "change"])


def pca_utility(
    people: Dataset,
    *,
    components: Sequence[int],
    epsilons: Sequence[float],
    delta: float = 1e-6,
    trials: int = 20,
    rng: np.random.Generator,
    share: float = 0.2,
) -> pd.DataFrame:
    """Private subspaces of a real data set: through the gap, and by Analyze Gauss, both with GOE noise.

    Returns
    -------
    DataFrame
        One row an epsilon, k and method ("spectral gap", "Analyze Gauss"): ``gap`` (exact), ``refused`` (share of
        the trials), and means over the trials that released, missing if none did: ``captured`` (variance over the
        best possible) with its standard deviation ``spread``, and ``distance`` ||P - P^||_F. Private.
    """
    check_generator(rng)
    runs, rows = check_count("trials", trials), []
    for k in components:
        gram = _gram(people, k)[1]
        basis, gap = top_eigenvectors(gram, k)
        truth = basis @ basis.T
        for epsilon in epsilons:
            for name in ("spectral gap", "Analyze Gauss"):
                found = []
                for _ in range(runs):
                    if name == "spectral gap":
                        value = private_pca(
                            people, components=k, epsilon=epsilon, delta=delta, rng=rng, share=share
                        ).value
                    else:
                        value = analyze_gauss(
                            people, components=k, epsilon=epsilon, delta=delta, rng=rng
                        ).value
                    if not isinstance(value, Refused):
                        distance = float(np.linalg.norm(value.projector - truth))
                        found.append((captured_share(gram, value.basis), distance))
                values = np.array(found) if found else np.full((1, 2), math.nan)
                mean, spread = values.mean(axis=0), values.std(axis=0)
                rows.append((epsilon, k, name, gap, 1 - len(found) / runs, mean[0], spread[0], mean[1]))
    names = ["epsilon", "components", "method", "gap", "refused", "captured", "spread", "distance"]
    return pd.DataFrame(rows, columns=names)
