"""Utility theorems and their inversion: the epsilon that a theorem promises for a target excess risk.

Source: ligett2017, Theorems 3.1, 3.3 and A.9 and Section 4; errata AF-3b, AF-5d and AF-6. Each bound is
available as printed and in the sharpest form that is proved. "theory inversion" is the baseline of
Figures 1a and 1b: run once, at the epsilon at which the theorem promises alpha *in expectation*.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from adaptive_dp.accuracy_first.calibration import (
    MECHANISMS,
    MOMENT_SENSITIVITY_L1,
    check_calibration,
    check_task,
    minimiser_radius,
    minimiser_sensitivity,
)
from adaptive_dp.accuracy_first.moments import MomentCoding
from adaptive_dp.validation import (
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)


def expected_excess_risk(
    task: str,
    mechanism: str,
    *,
    epsilon: float,
    rows: int,
    columns: int,
    lam: float,
    calibration: str = "sharp",
) -> float:
    """Upper bound on the expected excess risk of a one-shot mechanism at privacy ``epsilon``.

    ==========  ==========  ==========================================  =====================================
    task        mechanism   printed                                     sharp
    ==========  ==========  ==========================================  =====================================
    ridge       covariance  4 sqrt2 (2 sqrt(p/lam) + p/lam)/(n eps)      2 sqrt2 (2 sqrt(p) M0 + p M0^2)/(n eps)
    ridge       output      r^2 (1 + lam) p, direct repair of A.9        r^2 (1 + lam p)
    logistic    output      sqrt(2p) r + lam p r^2 (Thm 3.3)             r^2 (1/4 + lam p)
    ==========  ==========  ==========================================  =====================================

    with r the Laplace scale of output perturbation. The last line of Theorem A.9's proof is false by a factor
    up to n (erratum AF-3b), so ``"printed"`` uses the bound that the paper's own chain proves; the false
    formula is kept as :func:`false_theorem_a9`.
    """
    kind = check_task(task)
    check_mechanism(kind, mechanism)
    sharp = check_calibration(calibration) == "sharp"
    eps, p, n = check_positive("epsilon", epsilon), check_count("columns", columns), check_count("rows", rows)
    if mechanism == "covariance":
        radius = minimiser_radius(kind, lam=lam, calibration=calibration)
        constant = (2 if sharp else 4) * math.sqrt(2)
        return constant * (2 * math.sqrt(p) * radius + p * radius**2) / (n * eps)
    scale = minimiser_sensitivity(kind, rows=n, columns=p, lam=lam, calibration=calibration) / eps
    if kind == "ridge":
        return scale**2 * (1 + lam * p) if sharp else scale**2 * (1 + lam) * p
    return scale**2 * (0.25 + lam * p) if sharp else math.sqrt(2) * p**0.5 * scale + lam * p * scale**2


def false_theorem_a9(*, epsilon: float, rows: int, columns: int, lam: float) -> float:
    """Theorem A.9 as printed, (1/n + lam)(M + 1)^2 p^2 / (n lam eps^2): *not* an upper bound (erratum AF-3b)."""
    r = minimiser_sensitivity("ridge", rows=rows, columns=columns, lam=lam, calibration="printed") / epsilon
    return (1 / rows + lam) * columns * r**2


def check_mechanism(task: str, mechanism: str) -> str:
    """Return ``mechanism`` if the task has it: ridge has both, logistic regression only ``"output"``."""
    check_choice("mechanism", mechanism, MECHANISMS)
    if task == "logistic" and mechanism == "covariance":
        raise ValueError(
            "mechanism 'covariance' needs task 'ridge': a logistic optimum is no function of X'X, X'y"
        )
    return mechanism


def invert_theory(
    task: str,
    mechanism: str,
    *,
    alpha: float,
    rows: int,
    columns: int,
    lam: float,
    calibration: str = "sharp",
) -> float:
    """The epsilon E at which :func:`expected_excess_risk` equals ``alpha``; rounded up, so that it is kept."""
    target = check_ordinary("alpha", alpha)

    def bound(epsilon: float) -> float:
        return expected_excess_risk(
            task, mechanism, epsilon=epsilon, rows=rows, columns=columns, lam=lam, calibration=calibration
        )

    # Each bound is a sum of terms in 1/eps and 1/eps^2: bracket from the value at 1, then find the root.
    at_one = bound(1.0) / target
    low, high = 0.5 * min(at_one, math.sqrt(at_one)), 2 * max(at_one, math.sqrt(at_one))
    root = brentq(lambda log_eps: math.log(bound(math.exp(log_eps)) / target), math.log(low), math.log(high))
    return math.exp(float(root)) * (1 + 1e-10)


def spectral_inversion(
    *, alpha: float, rows: int, columns: int, lam: float, rng: np.random.Generator, draws: int = 200
) -> tuple[float, float]:
    """Invert covariance perturbation's bound with the *spectral* norm of the noise; (epsilon, standard error).

    The proof of Theorem 3.1 bounds -theta'B theta by |B|_F M^2; with the released noise (symmetric B, diagonal
    Lap(r), off-diagonal Lap(r)/2, erratum AF-5b) and the sharp radius M0 it needs only |B|_2 M0^2, so that E excess <=
    (2 M0 E|b|_2 + M0^2 E|B|_2)/(2n), r = 4/epsilon. The two expectations of unit noise are estimated by simulation,
    which reads no data.
    """
    target, n, p = check_ordinary("alpha", alpha), check_count("rows", rows), check_count("columns", columns)
    radius = minimiser_radius("ridge", lam=lam)
    check_generator(rng)
    coding = MomentCoding(p, "sharp")
    totals = np.empty(check_count("draws", draws, minimum=2))
    for i in range(draws):
        matrix, vector = coding.decode(rng.laplace(size=coding.size))
        totals[i] = 2 * radius * np.linalg.norm(vector) + radius**2 * np.linalg.norm(matrix, ord=2)
    per_draw = MOMENT_SENSITIVITY_L1 * totals / (2 * n * target)
    return float(per_draw.mean()), float(per_draw.std(ddof=1) / math.sqrt(draws))


def invert_sgd(
    *,
    alpha: float,
    rows: int,
    columns: int,
    lam: float,
    lipschitz: float,
    delta: float,
    calibration: str = "printed",
) -> float:
    """Theory inversion for private stochastic gradient descent, (epsilon, delta); infinity if none exists.

    ``"printed"``: n^2 steps on the strongly convex problem (Bassily, Smith and Thakurta 2014, Theorem 2.4) with
    the last-iterate rate of Shamir and Zhang 2013, 17 G^2 (1 + log S) / (lam S) after S steps: on the mean
    objective alpha = 17 L^2 (1 + 2 log n)(1 + 32 p log(n/delta) log(1/delta)/epsilon^2) / (n^2 lam). The theorem's
    privacy constants are meant for small epsilon. The authors' released code has n in place of n^2, see
    :func:`adaptive_dp.accuracy_first.flaws.released_code_sgd`.

    ``"sharp"``: S steps of *full-batch* projected gradient descent with Gaussian noise, the weighted average of
    its iterates (error 2 G^2 / (lam (S + 1)), Lacoste-Julien, Schmidt and Bach 2012), zero-concentrated privacy
    rho = S (2 L / n)^2 / (2 sigma^2) and its exact conversion's simple form epsilon = rho + 2 sqrt(rho log(1/delta)),
    best over S. Replace-one neighbours; L is the Lipschitz constant of one record's *regularised* loss.
    """
    target, strength = check_ordinary("alpha", alpha), check_ordinary("lam", lam)
    n, p = check_count("rows", rows), check_count("columns", columns)
    slope, miss = check_positive("lipschitz", lipschitz), check_probability("delta", delta)
    if check_calibration(calibration) == "printed":
        noiseless = 17 * slope**2 * (1 + 2 * math.log(n)) / (n**2 * strength)
        if noiseless >= target:
            return math.inf
        return math.sqrt(32 * p * math.log(n / miss) * math.log(1 / miss) / (target / noiseless - 1))
    # 2 (L^2 + p sigma^2)/(lam (S+1)) <= alpha; more steps S lower both terms, up to the limit S -> infinity,
    # where sigma^2 = S (2L/n)^2/(2 rho) makes the noise term 4 p L^2/(lam n^2 rho): no need to pick S.
    rho = 4 * p * slope**2 / (strength * n**2 * target)
    return rho + 2 * math.sqrt(rho * math.log(1 / miss))


#: Task, mechanism and number of features of the three theory curves of Figure 1.
PAPER_CASES = (("ridge", "covariance", 77), ("ridge", "output", 77), ("logistic", "output", 38))


def inversion_table(*, alpha: float, lam: float, rows: int = 100_000) -> list[dict[str, str | float]]:
    """Epsilon promised by each theorem at the sizes of the paper, printed and sharp: one row a theory curve."""
    table: list[dict[str, str | float]] = []
    for task, mechanism, columns in PAPER_CASES:
        row: dict[str, str | float] = {"task": task, "mechanism": mechanism, "d": columns}
        for kind in ("printed", "sharp"):
            row[kind] = invert_theory(
                task, mechanism, alpha=alpha, rows=rows, columns=columns, lam=lam, calibration=kind
            )
        table.append(row)
    return table


def squared_loss_slope(lam: float) -> float:
    """Lipschitz constant of one record's regularised squared loss on the sharp ball: 1 + M0 + lam M0."""
    return 1 + (1 + lam) * minimiser_radius("ridge", lam=lam)
