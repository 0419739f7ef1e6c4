import json
import math

import pandas as pd
import pytest

from workbench.analyses.position_loss import loss_by_position
from workbench.tables import EVAL_SAMPLES


def samples(*rows):
    columns = ["subset", "sample_id", "document_id", "length_tokens", "loss_nats", "position_losses"]
    return pd.DataFrame([(*r[:-1], json.dumps(r[-1])) for r in rows], columns=columns).assign(checkpoint="c", step=5)


TWO = samples(
    ("code", "a", "d1", 32, 0.0, [[8, 16.0, 8], [16, 8.0, 8], [32, 32.0, 16]]),
    ("code", "b", "d2", 32, 0.0, [[8, 24.0, 8], [16, 8.0, 8], [32, 16.0, 16]]),
    ("code", "c", "d3", 12, 0.0, [[8, 8.0, 8], [16, 2.0, 4]]),
)


def test_losses_by_length_and_place_by_hand():
    found = loss_by_position(TWO, training_length=16).set_index(["high_tokens", "first_position"])
    assert found.loss.to_dict() == pytest.approx({
        (16, 1): 8 / 8, (16, 9): 2 / 4, (32, 1): 40 / 16, (32, 9): 16 / 16, (32, 17): 48 / 32,
    })  # fmt: skip
    assert found.last_position[32, 17] == 32
    assert found.perplexity[32, 17] == pytest.approx(math.exp(1.5))
    assert found.beyond_training.to_dict()[32, 17]
    assert not found.beyond_training.to_dict()[32, 9]
    assert found.documents[32, 1] == 2
    assert math.isnan(found.low[16, 1])  # one document


def test_rows_without_places_are_left_out():
    assert loss_by_position(EVAL_SAMPLES.empty()).empty
    assert loss_by_position(TWO.assign(position_losses=None)).empty
    assert loss_by_position(TWO.assign(position_losses="torn [")).empty
    assert loss_by_position(TWO).beyond_training.isna().all()
