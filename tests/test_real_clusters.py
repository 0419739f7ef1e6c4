"""Real profiles of several ranks: values worked out by hand from the files, and what the files cannot give is said."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from workbench.analyses.collective_waits import clock_offsets, collective_waits, pipeline_stages
from workbench.analyses.communication import micro_batches
from workbench.analyses.communication_groups import communication_groups
from workbench.analyses.device_steps import device_steps, stage_bubbles
from workbench.analyses.trace_steps import device_tables
from workbench.analyses.what_if import step_model, what_if
from workbench.errors import UnknownContentError
from workbench.findings.cluster import TABLES
from workbench.findings.diagnosis import diagnose
from workbench.findings.rule_tables import run_tables
from workbench.run import open_run

PIPELINE = "Ascend-msinsight/st/level2"
RESOURCE = "mindspore-ai-mindinsight/tests/utils/resource"


def profiled(path: Path):
    run = open_run(path, quiet=True)
    tables = run_tables(run, TABLES)
    return tables, device_steps(**device_tables(tables))


def raw_collectives(folder: Path, rank: int) -> dict[str, dict[str, float]]:
    """Operation without its group -> start and elapsed in us, read from communication.json with nothing of ours."""
    data = json.loads((folder / f"rank_{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/communication.json").read_text())
    (step,) = data.values()
    found = {}
    for kind in step.values():
        for name, op in kind.items():
            info = op["Communication Time Info"]
            if name != "Total Op Info":
                found[name.split("@")[0]] = {
                    "start": info["Start Timestamp(us)"], "elapsed": info["Elapse Time(ms)"] * 1e3,
                }  # fmt: skip
    return found


class TestTwoPipelineStages:
    """torch_npu, tensor 1 x pipeline 2 x data 2, one step; ranks 0 and 1 are the first stage."""

    def test_walls_are_the_rows_of_the_file(self, shared_dir):
        _, steps = profiled(shared_dir / "samples" / PIPELINE)
        for rank, row in steps.set_index("rank_id").iterrows():
            file = (
                shared_dir / "samples" / PIPELINE / f"rank_{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv"
            )
            (raw,) = csv.DictReader(file.open())
            names = ("Computing", "Communication(Not Overlapped)", "Free", "Preparing")
            assert row["wall_us"] == pytest.approx(sum(float(raw[n]) for n in names))
            assert row["computing_us"] == pytest.approx(float(raw["Computing"]))

    def test_stages_and_micro_batches(self, shared_dir):
        tables, _ = profiled(shared_dir / "samples" / PIPELINE)
        stages = pipeline_stages(tables["collectives"]).set_index("rank_id")["stage"]
        assert stages.to_dict() == {0: 0, 1: 0, 2: 1, 3: 1}
        assert micro_batches(tables["collectives"]) == 2  # three exchanges: a send, send and receive, a receive

    def test_waits_in_exchanges_are_the_difference_of_their_starts(self, shared_dir):
        # The files say 403 and 158102 us of waiting on rank 0, and 0 in the exchange in which it stands still longest.
        folder = shared_dir / "samples" / PIPELINE
        tables, _ = profiled(folder)
        waits = collective_waits(tables["collectives"])
        waits = waits[waits["op_type"] == "batchsendrecv"].set_index(["rank_id", "name"])["wait_us"]
        offset = clock_offsets(tables["collectives"]).set_index("rank_id")["offset_us"]
        first, last = raw_collectives(folder, 0), raw_collectives(folder, 2)
        for end in (3, 4, 5):
            name = f"hcom_batchSendRecv__128_{end}_1"
            late_us = first[name]["start"] - last[name]["start"] - (offset[0] - offset[2])
            assert waits[2, name] == pytest.approx(max(late_us, 0), abs=1)
            assert waits[0, name] == pytest.approx(max(-late_us, 0), abs=1)
        assert waits[0].sum() == pytest.approx(157_697.5 + 154_401.5, abs=60)  # worked out by hand; clocks: 25 us
        assert waits[2].sum() == pytest.approx(70_984.75, abs=30)

    def test_groups_have_the_names_of_the_metadata_and_explain_the_exposed_time(self, shared_dir):
        tables, steps = profiled(shared_dir / "samples" / PIPELINE)
        groups = communication_groups(
            tables["collectives"], kernels=tables["kernels"], settings=tables["settings"]
        )  # kernels of rank 0 alone
        kinds = {(g.kind, g.ranks) for g in groups.itertuples() if g.kind != "unknown"}
        assert kinds == {
            ("pipeline", (0, 2)), ("pipeline", (1, 3)), ("data", (0, 1)), ("data", (2, 3)), ("embedding", (0, 2)),
            ("embedding", (1, 3)), ("world", (0, 1, 2, 3)),
        }  # fmt: skip
        # Communication(Not Overlapped) of rank 0's row: its operations never run at the same time.
        assert groups["exposed_us"].sum() == pytest.approx(420_174.26, rel=1e-4)
        exposed = steps.set_index("rank_id").loc[0, ["transfer_us", "late_rank_us", "pipeline_wait_us"]].sum()
        assert exposed == pytest.approx(420_174.26)

    def test_the_bubble_is_told_per_stage_and_found(self, shared_dir):
        tables, steps = profiled(shared_dir / "samples" / PIPELINE)
        bubbles = stage_bubbles(steps, pipeline_stages(tables["collectives"])).set_index("stage")
        assert bubbles["computing_us"].to_dict() == {
            0: pytest.approx((231_290.10 + 230_903.72) / 2), 1: pytest.approx((400_448.26 + 401_131.70) / 2),
        }  # fmt: skip
        assert bubbles.loc[0, "pipeline_wait_us"] > 312_000 > bubbles.loc[1, "pipeline_wait_us"]
        first = diagnose(shared_dir / "samples" / PIPELINE).causes[0]
        assert (first.cause, first.sub_cause, first.severity) == ("pipeline_bubble", "few_micro_batches", "warning")

    def test_the_packaged_part_without_kernels_says_the_same(self, data_samples):
        first = diagnose(data_samples / "pipeline_two_stages").causes[0]
        assert (first.cause, first.severity) == ("pipeline_bubble", "warning")

    def test_a_replay_needs_the_kernels_of_all_ranks_and_says_so(self, shared_dir, data_samples):
        tables, _ = profiled(shared_dir / "samples" / PIPELINE)
        model = step_model({n: tables[n] for n in ("kernels", "collectives", "step_time", "links")})
        ranks = set(model.recorded.operations.loc[model.recorded.operations["role"] == "compute", "rank_id"])
        assert ranks == {0}  # the other ranks' kernels are not in the sample
        without = {n: t for n, t in profiled(data_samples / "pipeline_two_stages")[0].items() if n != "kernels"}
        with pytest.raises(UnknownContentError, match="no kernels"):
            step_model(without)


def test_sixteen_ranks_wait_for_the_first_stage_as_their_rows_say(shared_dir):
    # Sep 2023, PP=2 by its receives: ranks 8 to 15 receive alone for 180 of 380 ms, ranks 0 to 7 hardly at all.
    folder = shared_dir / "samples/Ascend-msinsight/test_data"
    _, steps = profiled(folder)
    raw = {}
    for row in csv.DictReader((folder / "cluster_analysis_output/cluster_step_trace_time.csv").open()):
        if row["Type"] == "rank":
            exclusive = float(row["Communication(Not Overlapped and Exclude Receive)"])
            raw[int(row["Index"])] = float(row["Communication(Not Overlapped)"]) - exclusive
    waits = steps.set_index("rank_id")["pipeline_wait_us"]
    assert len(raw) == 16
    for rank in range(2, 16):  # ranks 0 and 1 have single files, too
        assert waits[rank] == pytest.approx(raw[rank], abs=0.01)
    assert waits[range(8, 16)].median() == pytest.approx(179_618, rel=0.01)


def test_an_old_profile_of_two_stages_names_no_groups_and_is_not_matched(shared_dir):
    # MindInsight era: ranks 0 and 2 of four. Step 2 of rank 0: 165.8 ms not overlapped, 56.2 of them receives.
    tables, steps = profiled(shared_dir / "samples" / RESOURCE / "cluster_propose")
    assert tables["collectives"]["group_id"].isna().all()
    row = steps[(steps["rank_id"] == 0) & (steps["step"] == 2)].iloc[0]
    exposed = row[["transfer_us", "late_rank_us", "pipeline_wait_us"]].sum()
    assert exposed == pytest.approx(165_836.3)
    assert row["computing_us"] == pytest.approx(14_580.6)
    assert collective_waits(tables["collectives"])["last_rank"].isna().all()
    assert [
        f for f in diagnose(shared_dir / "samples" / RESOURCE / "cluster_propose").causes if f.severity != "info"
    ] == []


@pytest.mark.parametrize(
    "folder",
    [
        "Ascend-msinsight/data/pytorch/text/level0", "Ascend-msinsight/data/pytorch/text/level1",
        "Ascend-msinsight/data/pytorch/db/level1", "Ascend-msinsight/st/level2", "Ascend-msinsight/test_data",
        f"{RESOURCE}/cluster_propose", f"{RESOURCE}/profiler", f"{RESOURCE}/run_1",
        "mindspore-ai-mindspore_test/tests/ut/data/profiler_data", "2024-MindSpore-1-Code3/Sepformer/profiler_data",
    ],
)  # fmt: skip
def test_real_profiles_are_diagnosed_without_blaming_a_rank_a_link_or_an_operator(shared_dir, folder):
    causes = diagnose(shared_dir / "samples" / folder).causes
    blamed = [
        f for f in causes if f.severity != "info" and f.cause in ("slow_rank", "slow_link", "slow_op", "rank_late")
    ]
    assert blamed == []


def test_a_what_if_on_two_of_eight_ranks_replays_the_recorded_step(shared_dir):
    folder = shared_dir / "samples/Ascend-msinsight/data/pytorch/text/level1"
    tables, _ = profiled(folder)
    model = step_model({n: tables[n] for n in ("kernels", "collectives", "step_time", "links")})
    gains = what_if(model, pd.DataFrame([{"what": "rank", "rank_id": 0}]))
    assert 0 <= float(gains["saved_us"].iloc[0]) < 5_000  # of 145 ms: the two ranks are alike
