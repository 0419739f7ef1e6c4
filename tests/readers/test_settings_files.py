from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UnreadableFileError, WorkbenchError
from workbench.readers.kinds import FileContext
from workbench.readers.settings_files import read_yaml, sniff_yaml

TEXT = """context:
  max_device_memory: "58GB"
parallel_config:
  data_parallel: 8
  use_seq_parallel: True
runner_config: {epochs: 2, sink_mode: true}
offset: [0, 0, 1]
callbacks:
  - type: MFLossMonitor
"""


def read(folder, text):
    path = folder / "run.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    assert sniff_yaml(path, path.read_bytes())
    reading = read_yaml(path, FileContext(root=folder))["settings"]
    return reading.table.set_index("name").value, reading.notes


def test_dotted_names_and_text_values(tmp_path):
    values, notes = read(tmp_path, TEXT)
    assert values["context.max_device_memory"] == "58GB"
    assert (values["parallel_config.data_parallel"], values["parallel_config.use_seq_parallel"]) == ("8", "True")
    assert (values["runner_config.epochs"], values["offset"]) == ("2", "[0, 0, 1]")
    assert values["callbacks"] == "[{'type': 'MFLossMonitor'}]"
    assert not notes


def test_case_05_plan(shared_dir):
    path = shared_dir / "cases/05-oom-first-pipeline-stage/parallel.yaml"
    values = read_yaml(path, FileContext())["settings"].table.set_index("name").value
    assert len(values) == 12
    assert values["parallel_config.pipeline_stage"] == "4"
    assert values["model.model_config.parallel_optimizer"] == "False"
    assert values["model.model_config.offset"] == "[0, 0, 0, 0]"


def test_damage_costs_only_what_follows(tmp_path):
    values, notes = read(tmp_path, TEXT.replace("offset: [0, 0, 1]", "offset: [0, 0"))
    assert values["parallel_config.data_parallel"] == "8"
    assert "callbacks" not in values
    assert "line" in notes[0].where


def test_unknown_tags_and_gbk(tmp_path):
    values, _ = read(tmp_path, "a: !!python/tuple [1, 2]\nb: !odd text\n")
    assert (values["a"], values["b"]) == ("[1, 2]", "text")
    values, notes = read(tmp_path, "a: 模型训练的配置文件\n".encode("gbk"))
    assert values["a"] == "模型训练的配置文件"
    assert "GBK" in str(notes[0])


def test_aliases_that_expand_without_end_are_refused(tmp_path):
    text = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 100)}]\n" for n in range(1, 9))
    try:
        values, notes = read(tmp_path, text)
    except UnreadableFileError:
        return
    assert notes
    assert len(values) < 10


@pytest.mark.parametrize("text", ["- a\n- b\n", "", "just words\n"])
def test_other_texts_are_no_settings(tmp_path, text):
    assert not sniff_yaml(tmp_path / "a.yaml", text.encode())


def test_nothing_readable_is_an_error(tmp_path):
    (tmp_path / "a.yaml").write_text("a: [1\n")
    with pytest.raises(UnreadableFileError, match="no setting"):
        read_yaml(tmp_path / "a.yaml", FileContext())


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=20), st.integers(min_value=0, max_value=len(TEXT)))
def test_damage_never_raises_anything_else(tmp_path_factory, garbage, position):
    path = tmp_path_factory.mktemp("yaml") / "a.yaml"
    path.write_bytes(TEXT.encode()[:position] + garbage + TEXT.encode()[position:])
    with suppress(WorkbenchError):
        assert len(read_yaml(path, FileContext())["settings"].table)
