"""Points of a scaling curve from runs and from a CSV."""

import pandas as pd
import pytest

from tests.job_logs import megatron_job
from tests.made_cluster import make_cluster
from workbench.errors import UnknownContentError
from workbench.widgets.scaling import scaling_points, scaling_verdict


def test_runs_follow_the_csv(shared_dir, tmp_path):
    make_cluster(shared_dir, tmp_path / "run", ranks=4, layers=2, steps=2)
    csv = tmp_path / "p.csv"
    pd.DataFrame({"devices": [2], "work_per_step": [2.0], "step_us": [50.0]}).to_csv(csv, index=False)
    assert scaling_points([tmp_path / "run"], csv)["devices"].tolist() == [2, 4]


def test_errors(tmp_path):
    with pytest.raises(UnknownContentError, match="no run and no CSV"):
        scaling_points()
    with pytest.raises(UnknownContentError, match="no file"):
        scaling_points(points_path=tmp_path / "none.csv")


def test_points_of_logs_and_what_they_lead_to(tmp_path):
    for name, lines in {
        "one.log": megatron_job(step_ms=950, batch=64, tflops=140, timers={"forward-backward": (900, 905)}),
        "two.log": megatron_job(step_ms=1900, batch=128, tflops=70, seed=1,
                                timers={"forward-backward": (905, 910), "all-grads-sync": (900, 910)}),
    }.items():  # fmt: skip
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    points = scaling_points([tmp_path])
    assert points["devices"].tolist() == [1, 2]
    assert "2 times the devices give 1.00 times the throughput" in repr(scaling_verdict(points))
    assert "as the smallest one does" in repr(scaling_verdict(points.head(1)))
    (tmp_path / "two.log").unlink()
    with pytest.raises(UnknownContentError, match="several device counts"):
        scaling_points([tmp_path])


def test_the_packaged_points_lead_to_the_late_rank(data_samples):
    said = repr(scaling_verdict(scaling_points(points_path=data_samples / "scaling" / "points.csv")))
    assert "One rank is slower than its peers" in said
