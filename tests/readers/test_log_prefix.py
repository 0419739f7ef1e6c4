import pytest

from workbench.readers.log_prefix import rank_of_place, split_prefix, time_ns

T = 1746954723_118_000_000  # 2025-05-11 09:12:03.118: 20219 * 86400 + 9 * 3600 + 12 * 60 + 3 s
FORMS = {
    "2025-05-11 09:12:03,118 - mindformers./output/log[mindformers/core/callback.py:529] - INFO - text": (
        None, "INFO", "mindformers", T, "text"),
    "2025-05-11 09:12:03,118 - mindformers - WARNING - text": (None, "WARNING", "mindformers", T, "text"),
    "2025-05-11 09:12:03,118 - [mindformers/core/callback.py:529] - INFO - text": (None, "INFO", None, T, "text"),
    "[INFO] 2025-05-11 09:12:03,118 [mindformers/core/x.py:529] print_output_info: text": (
        None, "INFO", "mindformers", T, "text"),
    "[WARNING] MD(20417,ffff7a2e11e0,python):2025-05-11-09:12:03.118.000 [mindspore/x.cc:915] Function] a] b": (
        None, "WARNING", "MD", T, "a] b"),
    "[ERROR] ME(20417:2814,MainProcess):2025-05-11-09:12:03.118.000 [mindspore/graph/api.py:193] text": (
        None, "ERROR", "ME", T, "text"),
    " [2025-05-11 09:12:03] iteration 1": (None, None, None, T - 118_000_000, "iteration 1"),
    "[2025-05-11 09:12:03,118] [INFO] [logging.py:96:log_dist] [Rank 2] text": (
        2, "INFO", "logging", T, "[Rank 2] text"),
    "[rank7]:2025-05-11 09:12:03,118 - root - INFO - text": (7, "INFO", "root", T, "text"),
    "[1,5]<stdout>:2025-05-11 09:12:03,118 text": (5, None, None, T, "text"),
    "3: [WARNING] ME(1:2,M):2025-05-11-09:12:03.118.000 [m.py:1] text": (3, "WARNING", "ME", T, "text"),
    "[INFO|trainer.py:2128] 2025-05-11 09:12:03,118 >> text": (None, "INFO", None, T, "text"),
    "05/11/2025 09:12:03 - INFO - __main__ - text": (None, "INFO", None, T - 118_000_000, "__main__ - text"),
    "- INFO - text": (None, "INFO", None, None, "text"),
    "plain text": (None, None, None, None, "plain text"),
}  # fmt: skip


@pytest.mark.parametrize("line", FORMS)
def test_every_prefix(line):
    assert tuple(split_prefix(line)) == FORMS[line]


def test_milliseconds_and_microseconds_are_not_padded_in_old_logs():
    # .479.31 means 479 ms and 31 us
    assert time_ns("2025-05-11-09:12:03.479.31") == T - 118_000_000 + 479_031_000


def test_impossible_date_is_no_time():
    assert split_prefix("2025-13-45 09:12:03 text").time_ns is None


@pytest.mark.parametrize(
    ("name", "rank"),
    [("worker_3.log", 3), ("rank_12/info.log", 12), ("device5/train.log", 5), ("train.log", None), ("run_4.log", None)],
)
def test_rank_of_the_place(tmp_path, name, rank):
    assert rank_of_place(tmp_path / name, tmp_path) == rank


def test_number_at_the_end_is_a_rank_beside_its_siblings(tmp_path):
    for n in range(3):
        (tmp_path / f"log_{n}.txt").touch()
    assert rank_of_place(tmp_path / "log_2.txt", tmp_path) == 2
