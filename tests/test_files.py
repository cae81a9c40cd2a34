"""A file is written whole or not at all, whatever happens in the middle."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from coexec.errors import ConfigError
from coexec.files import check_writable, write_text


def listed(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)


def test_a_text_is_written_whole_or_in_parts(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "text ±")
    write_text(tmp_path / "b", (part for part in ("te", "xt")))
    assert [(tmp_path / name).read_text(encoding="utf-8") for name in "ab"] == ["text ±", "text"]
    assert listed(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("before", ["", "what was there"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    path = tmp_path / "out.svg"
    if before:
        path.write_text(before)
    full_disk(monkeypatch)
    with pytest.raises(ConfigError, match=r"cannot write the picture .*No space left on device; free some space"):
        write_text(path, "new", "the picture")
    assert listed(tmp_path) == ([path.name] if before else [])
    assert not before or path.read_text() == before


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_a_writer_that_is_interrupted_leaves_what_was_there(tmp_path: Path, kind: type[BaseException]) -> None:
    def parts() -> Iterator[str]:
        yield "half"
        raise kind

    path = tmp_path / "out.json"
    path.write_text("whole")
    with pytest.raises(kind):
        write_text(path, parts())
    assert listed(tmp_path) == [path.name] and path.read_text() == "whole"


def test_the_mode_of_a_file_stays_and_a_new_one_is_as_the_user_wants(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    before = os.umask(0o027)
    try:
        write_text(path, "new")
        write_text(tmp_path / "other", "new")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path, tmp_path / "other")] == [0o640, 0o640]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to_and_never_replaced() -> None:
    with pytest.raises(ConfigError, match="No space left on device"):
        write_text("/dev/full", "text")
    write_text("/dev/null", "text")
    check_writable("/dev/full")
    assert all(stat.S_ISCHR(Path(name).stat().st_mode) for name in ("/dev/full", "/dev/null"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is a directory; name a file inside it"),
        ("no/where", "make the folder .*no"),
        ("file/below", "make the folder .*file"),
        ("a" * 300, "name too long; name another place"),
        ("null\0", "null byte; name another place"),
    ],
)
def test_places_where_nothing_can_be_written_are_said(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    for function in (check_writable, lambda path: write_text(path, "text")):
        with pytest.raises(ConfigError, match=f"(?i)cannot write .*{words}"):
            function(f"{tmp_path}/{name}")
    assert listed(tmp_path) == ["file"]


def test_a_name_as_long_as_names_may_be_is_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("a" * 255), "text")
    assert listed(tmp_path) == ["a" * 255]


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    (tmp_path / "old").write_text("old")
    check_writable(tmp_path / "old")
    assert listed(tmp_path) == ["old"] and (tmp_path / "old").read_text() == "old"


def test_names_that_are_no_text_are_written_as_escapes(tmp_path: Path) -> None:
    write_text(tmp_path / "out", "file \udcff")
    assert (tmp_path / "out").read_bytes() == b"file \\udcff"
