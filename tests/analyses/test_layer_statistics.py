"""Course, drift and position profiles of layers on made statistics whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analyses import layer_statistics as layers
from workbench.errors import UnknownParameterError

STEPS = np.arange(10, 410, 10)


def made(*, seed=0, noise=0.02, blocks=4, factor=1.0, layer="blocks.2.mlp_out", since=300, growth=1.0):
    """Statistics of 4 blocks x 2 kinds whose spread follows a common course; one layer is multiplied by `factor`."""
    random = np.random.default_rng(seed)
    rows = []
    common = 1 + 3 * (1 - np.exp(-STEPS / 150)) * growth
    for index, name in enumerate(f"blocks.{b}.{part}" for b in range(blocks) for part in ("attention", "mlp_out")):
        own = (index + 1) * common * np.exp(random.normal(0, noise, len(STEPS)))
        own = own * np.where((since <= STEPS) & (name == layer), factor, 1.0)
        for step, spread in zip(STEPS, own, strict=True):
            rows.append((0, step, name, index, 0.0, spread, 4 * spread, 0.01))
    columns = ["rank_id", "step", "layer", "layer_index", "mean", "spread", "max_abs", "zero_share"]
    return pd.DataFrame(rows, columns=columns)


def test_a_layer_that_leaves_its_kind_is_named_with_factor_and_onset():
    found = layers.layer_drift(made(factor=4.0))
    spread = found[found["measure"] == "spread"]
    assert spread["layer"].tolist() == ["blocks.2.mlp_out"]
    assert spread["departure_log2"].item() == pytest.approx(2.0, abs=0.1)  # 4 times
    assert spread["onset_step"].item() == 300
    assert spread["what"].item() == "departs"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 500), st.floats(0.005, 0.1), st.floats(0.5, 20))
def test_what_all_layers_of_a_kind_do_is_no_departure(seed, noise, growth):
    found = layers.layer_drift(made(seed=seed, noise=noise, growth=growth))
    assert found[found["what"] == "departs"].empty


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_row_order_does_not_matter(seed):
    table = made(seed=seed, factor=0.2)
    mixed = table.sample(frac=1, random_state=seed)
    pd.testing.assert_frame_equal(layers.layer_drift(table), layers.layer_drift(mixed))


def test_a_layer_that_moved_as_far_before_is_none():
    table = made()
    mine, step = table["layer"] == "blocks.2.mlp_out", table["step"]
    slope = np.clip((400 - step[mine]) / 100, 0, None)  # it falls by a factor of 2 every 100 steps, all the time
    table.loc[mine, ["spread", "max_abs"]] *= 2.0 ** slope.to_numpy()[:, None]
    assert layers.layer_drift(table).empty


def test_all_layers_together():
    table = made()
    late = table["step"] >= 300
    table.loc[late, ["spread", "max_abs"]] *= 32
    found = layers.layer_drift(table)
    assert set(found["what"]) == {"all layers"}
    assert found["departure_log2"].tolist() == pytest.approx([5.0 + 0.3] * 2, abs=0.3)
    assert found["onset_step"].tolist() == [300, 300]


def test_dead_and_infinite_layers():
    table = made()
    here = (table["layer"] == "blocks.1.attention") & (table["step"] >= 250)
    table.loc[here, "zero_share"] = 1.0
    dead = layers.layer_drift(table)
    assert dead[["layer", "what", "onset_step"]].to_numpy().tolist() == [["blocks.1.attention", "dead", 250]]
    broken = made()
    broken.loc[(broken["layer"] == "blocks.0.mlp_out") & (broken["step"] == 400), ["spread", "max_abs"]] = np.inf
    found = layers.layer_drift(broken)
    assert found[["layer", "what", "onset_step"]].to_numpy().tolist() == [["blocks.0.mlp_out", "not finite", 400]]


def test_few_records_say_nothing():
    table = made(factor=50.0)
    assert layers.layer_drift(table[table["step"] < 200]).empty
    assert layers.layer_drift(table.iloc[:0]).empty
    assert layers.layer_course(table.iloc[:0]).empty


def test_the_course_is_relative_to_the_second_quarter():
    table = made(noise=0.0)
    course = layers.layer_course(table, most_steps=1000)
    one = course[course["layer"] == "blocks.0.attention"].set_index("step")
    quarter = one.loc[STEPS[10:20], "value"].median()
    assert one["reference"].iloc[0] == pytest.approx(quarter)
    assert one.loc[400, "change"] == pytest.approx(np.log2(one.loc[400, "value"] / quarter))
    assert layers.layer_course(table, most_steps=7)["step"].nunique() == 7
    with pytest.raises(UnknownParameterError, match="no measure 'size'"):
        layers.layer_course(table, measure="size")


def with_positions(factor: float) -> pd.DataFrame:
    """8 ranges of 16 tokens; the last two ranges of one layer are multiplied."""
    random = np.random.default_rng(1)
    table = made()
    parts = []
    for k in range(8):
        part = table.assign(first_position=16 * k, last_position=16 * k + 15)
        part["spread"] *= np.exp(random.normal(0, 0.03, len(part)))
        if k >= 6:
            part.loc[part["layer"] == "blocks.3.attention", "spread"] *= factor
        parts.append(part)
    return pd.concat([table, *parts])


def test_late_positions_that_differ_are_named():
    found = layers.position_drift(with_positions(3.0))
    assert found.loc[0, ["layer", "first_position"]].tolist() == ["blocks.3.attention", 96]
    assert found.loc[0, "change_log2"] == pytest.approx(np.log2(3), abs=0.1)
    assert found["change_log2"].abs().iloc[1:].max() < 0.1
    profile = layers.position_profile(with_positions(3.0))
    assert profile["step"].unique().tolist() == [400]
    hit = profile[(profile["layer"] == "blocks.3.attention") & (profile["first_position"] >= 96)]
    assert (hit["change"] > 1.3).all()
    with pytest.raises(UnknownParameterError, match="step 3"):
        layers.position_profile(with_positions(1.0), step=3)
