"""CSV files of the msprobe monitor; rows by hand in the form its guide shows."""

import pytest

from tests.readers.profiles import read, read_text
from workbench.errors import UnreadableFileError

REDUCED = """vpp_stage,name,step,norm,max,shape,dtype
0,layers.0.weight,0,0.5,0.25,"[4, 4]",float32
0,layers.1.weight,1,0.75,0.5,"[4, 4]",float32
"""


def test_gradients_after_reduction_are_parameter_groups(tmp_path):
    readings = read_text(tmp_path, "grad_reduced_0-1.csv", REDUCED, "training_monitor", rank_id=4)
    groups, notes = readings["parameter_groups"]
    assert groups.group.tolist() == ["layers.0.weight", "layers.1.weight"]
    assert groups.gradient_norm.tolist() == [0.5, 0.75]
    assert groups.step.tolist() == [0, 1]
    assert groups.rank_id.eq(4).all()
    series = readings["series"].table.set_index(["row", "column"])
    assert series.value[1, "grad_reduced_0-1.max"] == 0.5
    assert series.text[0, "grad_reduced_0-1.name"] == "layers.0.weight"
    assert notes == []


def test_parameters(tmp_path):
    text = REDUCED.replace("norm,max", "norm,mean")
    groups = read_text(tmp_path, "param_origin_0-1.csv", text, "training_monitor")["parameter_groups"].table
    assert groups.parameter_norm.tolist() == [0.5, 0.75]
    assert groups.gradient_norm.isna().all()


def test_gradients_before_reduction_are_no_gradient_norm(tmp_path):
    readings = read_text(tmp_path, "grad_unreduced_0-1.csv", REDUCED, "training_monitor")
    assert "parameter_groups" not in readings
    series = readings["series"].table
    assert series[series.column == "grad_unreduced_0-1.norm"].value.tolist() == [0.5, 0.75]


def test_names_of_several_stages_are_told_apart(tmp_path):
    text = "vpp_stage,name,step,norm\n0,layers.0.weight,3,1\n1,layers.0.weight,3,2\n"
    groups = read_text(tmp_path, "grad_reduced_3-3.csv", text, "training_monitor")["parameter_groups"].table
    assert groups.group.tolist() == ["layers.0.weight@0", "layers.0.weight@1"]


def test_header_alone_is_unreadable(tmp_path):
    path = tmp_path / "grad_reduced_0-1.csv"
    path.write_text("vpp_stage,name,step,norm\n")
    with pytest.raises(UnreadableFileError, match="no row"):
        read(path, "training_monitor")
