"""Cells that no training can have written do not reach the rules."""

import numpy as np
import pandas as pd

from workbench.findings.diagnosis import diagnose
from workbench.readers.plausible import plausible
from workbench.tables import table


def _series(folder, cells):
    head = "step,loss,learning_rate,grad_norm,step_time_s\n"
    rows = [f"{n},{loss},1e-4,{norm},{time}\n" for n, (loss, norm, time) in enumerate(cells, 1)]
    (folder / "series.csv").write_text(head + "".join(rows))


def test_a_duration_that_cannot_be_is_missing_and_told():
    steps = table("step_time").check(
        pd.DataFrame(
            {
                "rank_id": 0,
                "step": [1, 2, 3, 4],
                "computing_us": [-5.0, 5.0, np.inf, np.nan],
                "communication_not_overlapped_us": 0.0,
                "free_us": 1.0,
            }
        )
    )
    before = steps.copy()
    cleaned, notes = plausible(steps, table("step_time"), "step_trace_time.csv")
    assert cleaned["computing_us"].isna().tolist() == [True, False, True, True]
    assert cleaned["free_us"].tolist() == [1.0] * 4
    assert [(n.file, n.where) for n in notes] == [("step_trace_time.csv", "column computing_us")]
    assert notes[0].problem.startswith("2 cells")
    pd.testing.assert_frame_equal(steps, before)


def test_single_numbers_out_of_all_range_do_not_end_the_diagnosis(tmp_path):
    _series(tmp_path, [(2.0, 1.0, 1.0)] * 100 + [(1e300, 1e308, 1e300)] + [(2.0, 1.0, 1.0)] * 100)
    found = diagnose(tmp_path)
    assert found.causes[0].cause == "loss_not_finite"
    assert {n.where for n in found.notes} >= {"column loss", "column step_us"}


def test_only_numbers_out_of_all_range_are_not_healthy(tmp_path):
    _series(tmp_path, [(1e308, 1e308, 1e308)] * 50)
    assert diagnose(tmp_path).exit_status == 1


def test_infinite_losses_and_norms_are_not_called_low_or_grown(tmp_path):
    head = "step,loss,learning_rate,grad_norm,parameter_norm\n"
    (tmp_path / "s.csv").write_text(head + "".join(f"{n},inf,1e-4,inf,inf\n" for n in range(1, 101)))
    causes = {f.cause for f in diagnose(tmp_path).causes}
    assert "loss_not_finite" in causes
    assert not causes & {"label_leak", "lr_too_high"}
