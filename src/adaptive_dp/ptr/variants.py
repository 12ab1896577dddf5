"""Table B.1: the variants of propose-test-release, classic and generalized, with the functions that implement them.

Source: redberg2023, Table B.1 (classic column after Vadhan, "The complexity of differential privacy", 2017).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pandas as pd

PTR = "adaptive_dp.ptr"

# Variant, what is done, functions, delta; of the last three the classic one and then the generalized one.
_ROWS: tuple[tuple[str, str, str, tuple[str, ...], tuple[str, ...], str, str], ...] = (
    (
        "private test",
        "test that the local sensitivity is at most beta, then add noise in proportion to beta",
        "test that the loss of M_phi on this data set is at most epsilon, then run M_phi (Algorithm 4)",
        ("classic.propose_test_release",),
        ("framework.generalized_ptr", "voting.generalized_ptr_vote"),
        "delta'",
        "delta_hat + max(delta, delta')",
    ),
    (
        "private pointwise bound",
        "",
        "publish a bound of the loss of one phi, run M_phi if it is at most epsilon (Theorem 3.5.7)",
        (),
        ("framework.PrivateUpperBound", "pate_ptr.pate_ptr"),
        "",
        "delta_hat + max(delta, delta')",
    ),
    (
        "private uniform bound",
        "publish a bound of the local sensitivity, then add noise in proportion to it; no refusal",
        "publish a bound of the losses of all phi, choose a phi that it allows; a refusal only where there is "
        "none (Algorithm 12)",
        ("uniform_bound.release_with_private_bound",),
        ("uniform_bound.ptr_with_uniform_bound", "ops_ptr.ops_ptr", "glm.glm_ptr"),
        "delta'",
        "delta_hat + delta' + (1 - delta') delta",
    ),
    (
        "stability-based",
        "test that the local sensitivity is 0, then release the exact number",
        "test that the loss is 0, then release the exact answer of any kind",
        ("classic.release_if_stable", "voting.classic_ptr_vote"),
        ("framework.generalized_ptr", "framework.exact_answer", "framework.stability_test"),
        "delta'",
        "delta_hat + delta'",
    ),
    (
        "what to propose",
        "search beta_1 < ... < beta_M for one that passes, with AboveThreshold",
        "run Algorithm 4 with phi drawn from a list, a random number of times; keep the best (Algorithm 5)",
        ("proposals.propose_list_test_release",),
        ("selection.private_selection",),
        "delta'",
        "delta_run(epsilon - 2 log(e^epsilon_1 + (1 - tau) delta_run(epsilon_1) / tau)) / tau",
    ),
)


def variants_table() -> pd.DataFrame:
    """Table B.1, with functions.

    Returns
    -------
    DataFrame
        ``variant``; ``classic`` and ``generalized``: what is done, empty where there is no such algorithm;
        ``classic_functions`` and ``generalized_functions``: dotted names, separated by ", ", the generic one first;
        ``classic_delta`` and ``generalized_delta``: delta of the whole, with delta of the mechanism, delta_hat of the
        test's privacy, delta' of its failures.
    """
    columns = ["variant", "classic", "generalized", "classic_functions", "generalized_functions"]
    table = pd.DataFrame(_ROWS, columns=[*columns, "classic_delta", "generalized_delta"])
    for column in columns[3:]:
        table[column] = [", ".join(f"{PTR}.{name}" for name in names) for names in table[column]]
    return table


def implementation(name: str) -> Any:
    """Return the object behind a dotted name of the table.

    Raises
    ------
    ValueError
        The name is not one of this package.
    ImportError, AttributeError
        There is no such module or object.
    """
    module, _, attribute = name.rpartition(".")
    if not module.startswith(f"{PTR}."):
        raise ValueError(f"name must start with {PTR}., got {name!r}")
    return getattr(import_module(module), attribute)
