import pandas as pd
import pytest

from tests.made_run import made_samples, made_steps, write_run
from workbench.errors import UnknownContentError
from workbench.widgets.evaluation import EvaluationExplorer


@pytest.fixture
def run(tmp_path):
    samples = pd.concat([made_samples("c-1_50", 50), made_samples("c-1_100", 100, better=0.1, worse=["code"])])
    root = write_run(tmp_path / "run", made_steps(150), samples=samples)
    (root / "checkpoints").mkdir()
    for step in (50, 100, 150):
        (root / "checkpoints" / f"c-1_{step}.ckpt").write_bytes(b"x")
    return root


def test_it_opens_with_the_last_two_checkpoints_and_their_changes(run):
    explorer = EvaluationExplorer(run)
    assert (explorer.checkpoint, explorer.reference) == ("c-1_100", "c-1_50")
    verdicts = explorer.changes.set_index("subset").verdict
    assert verdicts.to_dict() == {"code": "worse", "prose": "better", "长文本": "better"}


def test_choices_change_the_table(run):
    explorer = EvaluationExplorer(run)
    explorer.subsets = ("code",)
    assert explorer.changes.subset.to_list() == ["code"]
    explorer.metric = "bits_per_byte"
    assert explorer.changes.before.iloc[0] < 3  # 2 nats over 80 of 64 tokens' bytes
    explorer.reference = "c-1_100"
    assert explorer.changes.empty  # with itself there is nothing to compare


def test_a_run_without_evaluations_offers_its_checkpoints(tmp_path):
    root = write_run(tmp_path / "bare", made_steps(20))
    explorer = EvaluationExplorer(root)
    assert explorer.changes.empty
    with pytest.raises(UnknownContentError, match="no checkpoint"):
        explorer.evaluate("c-9")


def fake_evaluator(folder, body):
    (folder / "made_evaluator.py").write_text(body)
    return "made_evaluator"


WRITES = """
import sys
from pathlib import Path
from tests.made_run import made_samples
run, name = Path(sys.argv[1]), Path(sys.argv[3]).stem
made_samples(name, 150, better=0.2).to_parquet(run / "eval_samples" / f"checkpoint__{name}.parquet")
"""


def test_a_missing_evaluation_is_made_by_a_call_and_shown(run, tmp_path, monkeypatch, request):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{request.config.rootpath}")
    explorer = EvaluationExplorer(run, evaluator=fake_evaluator(tmp_path, WRITES))
    explorer.evaluate("c-1_150")
    explorer.wait(60)
    assert not explorer.is_evaluating
    assert (explorer.checkpoint, explorer.reference) == ("c-1_100", "c-1_50")  # what was chosen stays
    explorer.checkpoint = "c-1_150"
    assert set(explorer.changes.verdict) == {"better"}


def test_cancel_ends_the_evaluation(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    explorer = EvaluationExplorer(run, evaluator=fake_evaluator(tmp_path, "import time; time.sleep(600)"))
    explorer.evaluate("c-1_150")
    assert explorer.is_evaluating
    explorer.cancel()
    explorer.wait(60)
    assert not explorer.is_evaluating


def test_a_failed_evaluation_says_why(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    body = "import sys; print('no such task', file=sys.stderr); sys.exit(2)"
    explorer = EvaluationExplorer(run, evaluator=fake_evaluator(tmp_path, body))
    explorer.evaluate("c-1_150")
    explorer.wait(60)
    assert "no such task" in explorer.children[1].children[3].value
