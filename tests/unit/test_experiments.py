"""Sweeps: the same numbers however they are run; resumption; intervals; recorded results."""

from __future__ import annotations

import functools
import json
import math
import os
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from adaptive_dp import experiments
from adaptive_dp.experiments import tasks

GRID = experiments.product(scale=[0.5, 1.0, 2.0], method=["mean", "first"])


def run_one(rng, *, scale, method):
    sample = rng.laplace(scale=scale, size=5)
    value = sample.mean() if method == "mean" else sample[0]
    return {"value": value, "positive": bool(value > 0), "label": method.upper()}


def weigh(rng, *, weights, power):
    return {
        "value": float((weights**power).sum()),
        "writeable": weights.flags.writeable,
        "noise": rng.normal(),
    }


def multiply(rng, *, size):
    matrix = rng.normal(size=(size, size))
    return {"value": float((matrix @ matrix.T).sum())}


def fail_at_two(rng, *, scale):
    if scale == 2.0:
        raise ZeroDivisionError("no such thing")
    return {"value": rng.normal()}


class Counter:
    """An experiment that counts its calls and can be told to break off."""

    def __init__(self, break_after: float = math.inf) -> None:
        self.calls = 0
        self.break_after = break_after

    def __call__(self, rng, *, scale, method):
        if self.calls >= self.break_after:
            raise KeyboardInterrupt
        self.calls += 1
        return run_one(rng, scale=scale, method=method)


def sweep(function=run_one, grid=GRID, **changes):
    return experiments.sweep(function, grid, **{"seed": 7, "repetitions": 4, **changes})


# --- the grid and the random numbers -----------------------------------------------------------------


def test_product_varies_the_last_name_fastest():
    assert experiments.product(a=[1, 2], b=["x", "y"]) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


@pytest.mark.parametrize("values", [[], "text"])
def test_product_refuses_what_is_no_list_of_values(values):
    with pytest.raises(ValueError, match="b must be a non-empty list"):
        experiments.product(a=[1], b=values)


def test_rows_come_in_the_order_of_the_grid():
    frame = sweep()
    assert list(frame.columns) == ["scale", "method", "repetition", "value", "positive", "label"]
    assert frame["repetition"].tolist() == [0, 1, 2, 3] * 6
    assert frame["scale"].tolist() == [0.5] * 8 + [1.0] * 8 + [2.0] * 8
    assert frame.attrs["seed"] == 7
    assert frame.attrs["repetitions"] == 4
    assert frame.attrs["task_seconds"] > 0


def test_each_run_has_numbers_of_its_own():
    assert sweep(repetitions=50)["value"].is_unique


def test_seed_matters():
    assert not np.intersect1d(sweep()["value"], sweep(seed=8)["value"]).size


def test_number_of_workers_does_not_matter():
    alone = sweep()
    pd.testing.assert_frame_equal(alone, sweep(n_jobs=2), check_exact=True)


def test_an_enclosing_backend_is_used_and_does_not_matter():
    alone = sweep()
    with joblib.parallel_config("threading", n_jobs=2):
        inside = sweep(lambda rng, **point: {**run_one(rng, **point), "process": os.getpid()})
    assert set(inside.pop("process")) == {os.getpid()}
    pd.testing.assert_frame_equal(alone, inside, check_exact=True)


class AllAtOnce(joblib.parallel.BACKENDS["threading"]):
    """A backend that returns everything at the end, as those of multiprocessing and Ray do."""

    supports_return_generator = False


def test_a_backend_that_returns_everything_at_the_end_serves_too(tmp_path):
    joblib.register_parallel_backend("all-at-once", AllAtOnce)
    with joblib.parallel_config("all-at-once", n_jobs=2):
        frame = sweep(results=tmp_path / "run.jsonl")
    pd.testing.assert_frame_equal(frame, sweep(), check_exact=True)
    assert len((tmp_path / "run.jsonl").read_text("utf-8").splitlines()) == 25


def test_linear_algebra_gives_the_same_bits_with_any_number_of_workers():
    grid = experiments.product(size=[150, 151])
    pd.testing.assert_frame_equal(sweep(multiply, grid), sweep(multiply, grid, n_jobs=2), check_exact=True)


def test_order_and_company_of_a_point_do_not_matter():
    whole = sweep().set_index(["scale", "method", "repetition"])["value"]
    reverse = sweep(grid=[dict(reversed(point.items())) for point in reversed(GRID)])
    alone = sweep(grid=[{"scale": 1.0, "method": "mean"}], repetitions=2)
    for part in (reverse, alone):
        values = part.set_index(["scale", "method", "repetition"])["value"]
        assert (values == whole.loc[values.index]).all()


def test_equal_numbers_are_equal_points_whatever_their_type():
    def first(value):
        return experiments.task_generator(1, {"alpha": value}, 0).random()

    assert first(2) == first(2.0) == first(np.float64(2)) == first(np.int32(2))
    assert first(2) != first(True)
    assert first(2) != first("2")


def test_generators_of_a_task_do_not_meet_those_of_another():
    """A task may spawn generators; the child of one repetition is not the generator of another."""
    point = {"alpha": 1}
    child = experiments.task_generator(1, point, 0).spawn(2)[1].random()
    assert child not in [experiments.task_generator(1, point, number).random() for number in range(5)]


def test_generator_is_the_documented_child_of_the_seed():
    rng = experiments.task_generator(3, {"b": 1, "a": 0.5}, 4)
    sequence = rng.bit_generator.seed_seq
    assert sequence.entropy == 3
    assert sequence.spawn_key[-1] == 4
    assert len(sequence.spawn_key) == 5


def test_paired_points_share_their_random_numbers():
    def noise(rng, *, scale, method):
        return {"value": rng.normal()}

    frame = sweep(noise, paired=["method"]).pivot_table(
        index=["scale", "repetition"], columns="method", values="value"
    )
    assert (frame["mean"] == frame["first"]).all()
    assert frame["mean"].is_unique
    apart = sweep(noise).pivot_table(index=["scale", "repetition"], columns="method", values="value")
    assert (apart["mean"] != apart["first"]).all()


def test_shared_arrays_reach_the_workers_without_being_copied():
    weights = np.full(300_000, 2.0)  # 2.4 MB: above joblib's limit for memory maps
    grid = experiments.product(power=[1, 2, 3])
    alone = sweep(weigh, grid, shared={"weights": weights})
    apart = sweep(weigh, grid, shared={"weights": weights}, n_jobs=2)
    assert alone["writeable"].all()
    assert not apart["writeable"].any()
    pd.testing.assert_frame_equal(alone.drop(columns="writeable"), apart.drop(columns="writeable"))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"grid": []}, ValueError, "at least one point"),
        ({"grid": [{"a": 1}, {"a": 1.0}]}, ValueError, "twice"),
        ({"grid": [{"a": math.nan}]}, ValueError, "a=nan"),
        ({"grid": [{"a": [1]}]}, TypeError, "a must be a number"),
        ({"grid": [{"repetition": 1}]}, ValueError, "'repetition'"),
        ({"shared": {"scale": 1}}, ValueError, "'scale'"),
        ({"repetitions": 0}, ValueError, "repetitions must be at least 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"seed": 0.5}, TypeError, "seed must be an integer"),
        ({"paired": "method"}, TypeError, "paired must be a list"),
        ({"paired": ["nothing"]}, ValueError, "'nothing'"),
        ({"function": 3}, TypeError, "run_one must be callable"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(changes, error, message):
    counter = Counter()
    with pytest.raises(error, match=message):
        sweep(**{"function": counter, **changes})
    assert counter.calls == 0


@pytest.mark.parametrize(
    "returned", [None, {}, [1.0], {"value": np.zeros(2)}, {"scale": 1.0}, {"repetition": 0}]
)
def test_what_cannot_be_a_row_is_refused(returned):
    with pytest.raises(RuntimeError, match=r"run_one failed at .*'scale': 0\.5.*(returns|return|value)"):
        sweep(lambda rng, **point: returned)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_failure_names_point_repetition_and_seed(n_jobs):
    with pytest.raises(RuntimeError) as caught:
        sweep(fail_at_two, experiments.product(scale=[1.0, 2.0]), repetitions=20, n_jobs=n_jobs)
    message = str(caught.value)
    assert "{'scale': 2.0}" in message
    assert "repetition" in message
    assert "seed 7" in message
    assert "ZeroDivisionError: no such thing" in message
    assert "in fail_at_two" in caught.value.__notes__[0]


def test_progress_is_silent_unless_asked_for_and_goes_to_stderr(capfd):
    sweep()
    assert capfd.readouterr() == ("", "")
    sweep(progress=True, description="Laplace")
    out, err = capfd.readouterr()
    assert out == ""
    assert "Laplace: 100%" in err


# --- resumption --------------------------------------------------------------------------------------


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path):
    results = tmp_path / "deep" / "run.jsonl"
    first = Counter(break_after=10)
    with pytest.raises(KeyboardInterrupt):
        sweep(first, results=results, recipe="laplace 1")
    second = Counter()
    frame = sweep(second, results=results, recipe="laplace 1")
    assert (first.calls, second.calls) == (10, 14)
    pd.testing.assert_frame_equal(frame, sweep(), check_exact=True)
    entries = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    assert set(entries[0]["header"]) >= {"recipe", "seed", "versions", "date", "shared", "paired"}
    assert set(entries[0]["header"]["versions"]) == {"python", "numpy", "scipy", "adaptive_dp"}
    assert sum("resumed" in entry for entry in entries) == 1
    assert sum("point" in entry for entry in entries) == 24


def test_a_failed_task_leaves_the_finished_ones(tmp_path):
    results = tmp_path / "run.jsonl"
    grid = experiments.product(scale=[1.0, 2.0])
    with pytest.raises(RuntimeError):
        sweep(fail_at_two, grid, results=results, recipe="a")
    counter = Counter()
    sweep(lambda rng, **point: counter(rng, method="mean", **point), grid, results=results, recipe="a")
    assert counter.calls == 4


def test_a_finished_sweep_runs_nothing_and_leaves_the_file_alone(tmp_path):
    results = tmp_path / "run.jsonl"
    frame = sweep(results=results, n_jobs=2)
    content = results.read_bytes()
    again = sweep(results=results)
    pd.testing.assert_frame_equal(frame, again, check_exact=True)
    assert again.attrs["task_seconds"] > 0
    assert results.read_bytes() == content


def test_a_grid_may_grow_and_shrink(tmp_path):
    results, counter = tmp_path / "run.jsonl", Counter()
    sweep(counter, GRID[:2], results=results, recipe="a")
    sweep(counter, GRID, repetitions=5, results=results, recipe="a")
    assert counter.calls == 30
    small = sweep(counter, GRID[3:4], results=results, recipe="a")
    assert counter.calls == 30
    pd.testing.assert_frame_equal(small, sweep(grid=GRID[3:4]), check_exact=True)


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_run_again(tmp_path, cut):
    results = tmp_path / "run.jsonl"
    frame = sweep(results=results, recipe="a")
    results.write_bytes(results.read_bytes()[:-cut])
    counter = Counter()
    again = sweep(counter, results=results, recipe="a")
    assert counter.calls == 1
    pd.testing.assert_frame_equal(frame, again, check_exact=True)
    for line in results.read_text("utf-8").splitlines():
        json.loads(line)


@pytest.mark.parametrize("kept", [0, 5, 30])
def test_a_torn_header_starts_afresh(tmp_path, kept):
    results, counter = tmp_path / "run.jsonl", Counter()
    sweep(results=results, recipe="a")
    results.write_bytes(results.read_bytes()[:kept])
    sweep(counter, results=results, recipe="a")
    assert counter.calls == 24


@pytest.mark.parametrize("text", ["a,b", "a,b\n1,2\n", '{"other": 1}\n', "[1]\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path, text):
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(ValueError, match="not of a sweep"):
        sweep(results=path)
    assert path.read_text() == text


def test_damage_in_the_middle_is_an_error_and_not_skipped(tmp_path):
    results = tmp_path / "run.jsonl"
    sweep(results=results)
    lines = results.read_text("utf-8").splitlines()
    lines[3] = lines[3][:-4]
    results.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"line 4 of run\.jsonl"):
        sweep(results=results)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 8}, "seed"),
        ({"recipe": "b"}, "recipe"),
        ({"paired": ["method"]}, "paired"),
        ({"shared": {"offset": np.ones(3)}}, "shared"),
    ],
)
def test_results_of_another_sweep_are_not_mixed_in(tmp_path, changes, what):
    results = tmp_path / "run.jsonl"
    sweep(results=results, recipe="a")
    content, counter = results.read_bytes(), Counter()
    with pytest.raises(ValueError, match=rf"another sweep \({what} was"):
        sweep(counter, **{"results": results, "recipe": "a", **changes})
    assert counter.calls == 0
    assert results.read_bytes() == content


def test_results_of_another_version_are_not_mixed_in(tmp_path, monkeypatch):
    sweep(results=tmp_path / "run.jsonl")
    monkeypatch.setattr(tasks.adaptive_dp, "__version__", "99")
    with pytest.raises(ValueError, match="adaptive_dp was"):
        sweep(results=tmp_path / "run.jsonl")


def test_without_a_recipe_the_source_decides(tmp_path):
    results = tmp_path / "run.jsonl"

    def one(rng, **point):
        return {"value": 1}

    def other(rng, **point):
        return {"value": 2}

    sweep(one, results=results)
    with pytest.raises(ValueError, match="recipe was"):
        sweep(other, results=results)


def test_bound_arguments_are_part_of_the_source(tmp_path):
    def scaled(rng, *, factor, **point):
        return {"value": factor}

    results = tmp_path / "run.jsonl"
    sweep(functools.partial(scaled, factor=1), results=results)
    sweep(functools.partial(scaled, factor=1), results=results)
    with pytest.raises(ValueError, match="recipe was"):
        sweep(functools.partial(scaled, factor=2), results=results)


def test_source_that_cannot_be_read_needs_a_recipe(tmp_path):
    namespace: dict[str, object] = {}
    exec("def made(rng, **point): return {'value': 1}", namespace)
    with pytest.raises(ValueError, match="recipe must be given"):
        sweep(namespace["made"], results=tmp_path / "run.jsonl")
    assert len(sweep(namespace["made"], results=tmp_path / "run.jsonl", recipe="made 1")) == 24


# --- statistics --------------------------------------------------------------------------------------


def test_summary_agrees_with_scipy():
    frame = sweep(repetitions=12)
    summary = experiments.summarise(frame, by=["scale", "method"], value="value", level=0.9)
    assert summary[["scale", "method"]].to_dict("records") == GRID
    for row, (_, part) in zip(
        summary.itertuples(), frame.groupby(["scale", "method"], sort=False), strict=True
    ):
        sample = part["value"]
        reference = stats.ttest_1samp(sample, 0).confidence_interval(0.9)
        assert row.count == 12
        assert row.mean == pytest.approx(sample.mean())
        assert row.standard_error == pytest.approx(stats.sem(sample))
        assert (row.low, row.high) == pytest.approx((reference.low, reference.high))


def test_a_group_of_one_has_a_mean_and_no_interval():
    summary = experiments.summarise(pd.DataFrame({"a": ["x"], "v": [2.0]}), by="a", value="v")
    assert summary.loc[0, "mean"] == 2
    assert summary.loc[0, ["standard_error", "low", "high"]].isna().all()


def test_missing_values_are_not_passed_over():
    frame = pd.DataFrame({"a": [1, 1], "v": [1.0, math.nan]})
    with pytest.raises(ValueError, match="v must be finite"):
        experiments.summarise(frame, by="a", value="v")


@pytest.mark.parametrize("function", [experiments.summarise, experiments.summarise_proportion])
def test_summaries_refuse_bad_input(function):
    frame = pd.DataFrame({"a": [1], "v": [1.0]})
    with pytest.raises(ValueError, match="no column 'b'"):
        function(frame, by="b", value="v")
    with pytest.raises(ValueError, match="at least one column"):
        function(frame, by=[], value="v")
    with pytest.raises(ValueError, match="level must lie"):
        function(frame, by="a", value="v", level=95)


def test_shares_carry_the_exact_interval():
    frame = sweep(repetitions=9)
    summary = experiments.summarise_proportion(frame, by="method", value="positive")
    for row in summary.itertuples():
        hits = int(frame.loc[frame["method"] == row.method, "positive"].sum())
        assert row.mean == hits / 27
        assert (row.low, row.high) == experiments.proportion_interval(hits, 27)


def test_shares_are_of_truth_values():
    with pytest.raises(ValueError, match=r"truth values only, got .*0\.5"):
        experiments.summarise_proportion(pd.DataFrame({"a": [1], "v": [0.5]}), by="a", value="v")


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (1, 1000)])
def test_proportion_interval_is_that_of_clopper_and_pearson(hits, trials):
    low, high = experiments.proportion_interval(hits, trials, level=0.9)
    # The defining equations: the observation lies on the edge of the 5% tail at both ends.
    if hits > 0:
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(0.05)
    else:
        assert low == 0
    if hits < trials:
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(0.05)
    else:
        assert high == 1


@pytest.mark.parametrize(("hits", "trials", "level"), [(-1, 5, 0.9), (6, 5, 0.9), (0, 0, 0.9), (1, 5, 1.0)])
def test_proportion_interval_refuses_impossible_counts(hits, trials, level):
    with pytest.raises(ValueError, match="must"):
        experiments.proportion_interval(hits, trials, level)


# --- profiles and recorded results -------------------------------------------------------------------


def test_profiles():
    settings = {"quick": {"trials": 2}, "book": {"trials": 80}, "paper": {"trials": 1000}}
    for name, expected in settings.items():
        assert experiments.profile_settings(name, **settings) == expected
    with pytest.raises(ValueError, match="profile must be one of 'quick', 'book', 'paper', got 'fast'"):
        experiments.profile_settings("fast", **settings)
    with pytest.raises(ValueError, match="paper sets"):
        experiments.profile_settings("quick", **{**settings, "paper": {"trails": 1}})


METADATA = {"parameters": {"alpha": [0.1]}, "seed": 7, "wall_seconds": 1.5}


def test_recorded_results_come_back(tmp_path):
    frame = pd.DataFrame(
        {
            "method": ["NA", "None", "a,b"],
            "value": [1 / 3, 1e-300, math.nan],
            "whole": [1.0, 2.0, 3.0],
            "count": [1, 2, 3_000_000_000],
            "refused": [True, False, True],
        }
    )
    path = tmp_path / "results" / "loss.csv"
    experiments.save_results(frame, path, METADATA)
    back, metadata = experiments.load_results(path)
    assert (back.dtypes == frame.dtypes).all()
    pd.testing.assert_frame_equal(back, frame.assign(value=[0.333333, 1e-300, math.nan]), check_exact=True)
    assert metadata["parameters"] == {"alpha": [0.1]}
    assert metadata["versions"] == experiments.versions()
    assert metadata["rows"] == 3
    assert {"date", "seed", "wall_seconds"} <= set(metadata)
    assert sorted(file.name for file in path.parent.iterdir()) == ["loss.csv", "loss.json"]
    assert b"\r" not in path.read_bytes()


def test_a_sweep_can_be_recorded(tmp_path):
    frame = sweep()
    experiments.save_results(frame, tmp_path / "a.csv", METADATA)
    back, _ = experiments.load_results(tmp_path / "a.csv")
    pd.testing.assert_frame_equal(back, frame, rtol=1e-5)


@pytest.mark.parametrize("missing", list(METADATA))
def test_results_are_not_recorded_without_saying_where_they_come_from(tmp_path, missing):
    partial = {name: value for name, value in METADATA.items() if name != missing}
    with pytest.raises(ValueError, match=f"missing: {missing}"):
        experiments.save_results(pd.DataFrame({"a": [1]}), tmp_path / "a.csv", partial)
    assert not list(tmp_path.iterdir())


def test_recorded_results_must_fit_their_description(tmp_path):
    path = tmp_path / "a.csv"
    experiments.save_results(pd.DataFrame({"a": [1, 2]}), path, METADATA)
    path.write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"a\.csv does not have"):
        experiments.load_results(path)


def test_recorded_results_need_a_frame_and_a_csv_name(tmp_path):
    with pytest.raises(ValueError, match="must not be empty"):
        experiments.save_results(pd.DataFrame({"a": []}), tmp_path / "a.csv", METADATA)
    with pytest.raises(ValueError, match=r"end in \.csv"):
        experiments.save_results(pd.DataFrame({"a": [1]}), Path("a.txt"), METADATA)
    with pytest.raises(FileNotFoundError):
        experiments.load_results(tmp_path / "none.csv")


def test_functions_with_one_text_and_other_contents_do_not_share_results(tmp_path):
    """Closures, defaults and owners count: results of k = 1 are not handed out for k = 100."""

    def make(k):
        def run_one(rng, *, x):
            return {"y": k * x}

        return run_one

    file = tmp_path / "rows.jsonl"
    grid = [{"x": 1}]
    assert experiments.sweep(make(1), grid, seed=1, repetitions=1, results=file)["y"].tolist() == [1]
    with pytest.raises(ValueError, match="results"):
        experiments.sweep(make(100), grid, seed=1, repetitions=1, results=file)


def test_recorded_table_that_was_edited_is_refused(tmp_path):
    """A cut or changed number is found, and text columns stay text."""
    path = tmp_path / "table.csv"
    frame = pd.DataFrame({"name": ["01", "1e3"], "value": [0.5, 0.456]})
    experiments.save_results(frame, path, {"parameters": {}, "seed": 1, "wall_seconds": 0.0})
    assert experiments.load_results(path)[0]["name"].tolist() == ["01", "1e3"]
    path.write_text(path.read_text(encoding="utf-8").replace("0.456", "0.4"), encoding="utf-8")
    with pytest.raises(ValueError, match="edited or cut"):
        experiments.load_results(path)


def test_summaries_refuse_a_group_named_like_their_columns():
    """A key called count would be overwritten by the count."""
    with pytest.raises(ValueError, match="by must not name"):
        experiments.summarise(pd.DataFrame({"count": [1, 2], "v": [0.0, 1.0]}), by="count", value="v")


def test_paired_may_be_a_generator():
    """The check must not use it up."""

    def draw(rng, *, x):
        return {"u": rng.random()}

    grid = [{"x": 1}, {"x": 2}]
    frame = experiments.sweep(draw, grid, seed=1, repetitions=1, paired=(name for name in ["x"]))
    assert frame["u"].iloc[0] == frame["u"].iloc[1]
