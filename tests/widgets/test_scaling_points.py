"""Points of a scaling curve from runs and from a CSV."""

import pandas as pd
import pytest

from tests.made_cluster import make_cluster
from workbench.errors import UnknownContentError
from workbench.widgets.scaling import scaling_points


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
