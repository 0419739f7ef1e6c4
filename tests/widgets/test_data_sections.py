"""The parts of the data notebook on the sample, on a run that kept a look at its data, and without any table."""

import pytest

from workbench.probes.data_set import probe_data_set, save_data_samples
from workbench.widgets import data_sections as sections
from workbench.widgets.sections import Text

OF_DATA = (sections.ailments, sections.dropped, sections.lengths_of_samples, sections.tokens, sections.cut_off,
           sections.policies, sections.cost, sections.verdict)  # fmt: skip
OF_TRAINING = (sections.order, sections.shuffled, sections.repeats, sections.mix, sections.drift, sections.shares,
               sections.batches)  # fmt: skip


@pytest.fixture
def sample(data_samples):
    return data_samples / "data_faults"


def test_every_part_shows_something_on_the_sample(sample):
    tables = sections.tables_of(sample / "mix.jsonl", sample / "run", tokenizer="bytes", training_length=1024)
    shown = {part.__name__: part(tables) for part in (*OF_DATA, *OF_TRAINING)}
    assert [name for name, part in shown.items() if isinstance(part, Text)] == []
    assert "red: drifts from step" in str(shown["mix"].to_dict())
    assert shown["policies"].set_index("policy").loc["windows", "kept_share"] == 1
    assert shown["shares"].set_index("subset").loc["code", "intended_share"] == 0.3


def test_a_run_that_kept_its_data_needs_no_data_path(sample, tmp_path):
    (tmp_path / "run.json").write_text('{"schema": 1, "run_id": "r"}')
    save_data_samples(probe_data_set(sample / "mix.jsonl", show_progress=False), tmp_path)
    tables = sections.tables_of(None, tmp_path)
    texts = [part.__name__ for part in OF_DATA if isinstance(part(tables), Text)]
    assert texts == ["tokens", "cut_off", "policies", "cost"]  # no tokenizer was given
    assert all(isinstance(part(tables), Text) for part in OF_TRAINING)


def test_without_tables_every_part_says_how_to_collect_them():
    tables = sections.tables_of(None, None)
    assert all("data health" in part(tables).text for part in OF_DATA)
    assert all("Recorder" in part(tables).text for part in OF_TRAINING)
