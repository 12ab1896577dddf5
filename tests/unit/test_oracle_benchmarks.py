"""The benchmarks of chapter 4's second page run, and their baselines give the same numbers."""

import json

from benchmarks import oracle_perturbation as bench


def test_the_benchmarks_run_and_their_baselines_agree(tmp_path, capsys):
    """Each comparison refuses to time two computations of different things; no time is asserted."""
    target = tmp_path / "ratios.json"
    assert bench.main(["--quick", "--record", str(target)]) == 0
    recorded = json.loads(target.read_text(encoding="utf-8"))
    assert len(recorded["ratios"]) == 4
    assert recorded["parameters"]["side"] == bench.QUICK.side
    assert all(each["ratio"] > 0 for each in recorded["ratios"])
    assert "branch and bound" in capsys.readouterr().out
