"""Seeded sweeps over a grid, resumable and in parallel, and the statistics of what they return.

.. code-block:: python

    def run_one(rng, *, people, alpha, method):
        release = METHODS[method](people, alpha=alpha, rng=rng)
        return {"epsilon": release.guarantee.epsilon, "refused": release.refused}

    frame = sweep(
        run_one, product(alpha=[0.01, 0.05], method=["noise-reduction", "doubling"]),
        seed=20261, repetitions=80, shared={"people": people}, n_jobs=-1,
    )
    summary = summarise(frame, by=["alpha", "method"], value="epsilon")

On several machines, any joblib backend serves; nothing in the sweep changes:

.. code-block:: python

    client = distributed.Client("scheduler-address:8786")
    with joblib.parallel_config(backend="dask"):
        frame = sweep(run_one, grid, seed=20261, repetitions=1000)
"""

from adaptive_dp.experiments.grid import product, profile_settings, task_generator
from adaptive_dp.experiments.recorded import load_results, save_results
from adaptive_dp.experiments.statistics import proportion_interval, summarise, summarise_proportion
from adaptive_dp.experiments.sweeps import sweep
from adaptive_dp.experiments.versions import versions

__all__ = [
    "load_results",
    "product",
    "profile_settings",
    "proportion_interval",
    "save_results",
    "summarise",
    "summarise_proportion",
    "sweep",
    "task_generator",
    "versions",
]
