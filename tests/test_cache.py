"""Where derived data lies."""

import os

from workbench.cache import cache_directory, usable_directory, user_cache


def test_derived_data_lies_in_our_runs_only(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    assert cache_directory(tmp_path, is_ours=True) == tmp_path / ".workbench"
    theirs = cache_directory(tmp_path, is_ours=False)
    assert theirs.parent == tmp_path / "cache"
    assert cache_directory(tmp_path / "other", is_ours=False) != theirs
    monkeypatch.delenv("WORKBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if os.name == "posix":
        assert tmp_path in user_cache().parents or "Caches" in str(user_cache())


def test_a_cache_that_cannot_be_written_is_replaced(tmp_path):
    (tmp_path / "file").touch()
    used = usable_directory(tmp_path / "file" / "cache")
    assert used.is_dir()
    assert tmp_path not in used.parents
    assert usable_directory(tmp_path / "new") == tmp_path / "new"
