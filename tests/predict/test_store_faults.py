"""The store's file in trouble: damage, other versions, locks, no permission, no space."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from coexec.predict import store as store_of, store_file
from coexec.predict.store import Store
from tests.predict.store_files import is_intact, listed, marked, sample
from tests.scripts import run_script

NOBODY = 65534


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the path be the one that coexec chooses itself, which nobody else has a file at."""
    monkeypatch.setattr(store_of, "default_path", lambda _: path)
    return path


# Files that cannot be used ------------------------------------------------------------------------------------------------


def uses(store: Store) -> list[Callable[[], object]]:
    """Return every way to use a store."""
    return [
        lambda: store.load("m"),
        lambda: store.save({"m": [sample("new")]}),
        store.links,
        lambda: store.save_rates({("a", "b"): (1.0, 1.0)}),
        store.models,
        store.clear,
    ]


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize(
    "content",
    [b"x" * 5000, b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4080, None],
    ids=["text", "zeros", "header", "cut"],
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    ours: Path, said: list[str], content: bytes | None, which: int
) -> None:
    path = ours
    if content is None:
        Store(path).save({"m": [sample(str(i)) for i in range(100)]})
        content = path.read_bytes()[:9000]
    path.write_bytes(content)
    uses(Store(path, warn=said.append))[which]()
    store = Store(path, warn=said.append)
    store.save({"m": [sample("after")]})
    assert sample("after") in store.load("m") and is_intact(path)
    assert path.with_name(f"{path.name}.damaged-1").read_bytes() == content
    assert len(said) == 1 and "damaged" in said[0] and str(path) in said[0]


def test_every_damaged_file_gets_a_name_of_its_own(path: Path, said: list[str]) -> None:
    store = Store(path, warn=said.append)
    for text in ("first", "second", "third"):
        path.write_bytes(marked(text.encode() * 500))
        store.save({"m": [sample(text)]})
    names = [f"{path.name}.damaged-{i}" for i in (1, 2, 3)]
    assert listed(path) == [path.name, *names] and len(said) == 3
    assert [path.with_name(name).read_bytes()[72:77] for name in names] == [b"first", b"secon", b"third"]


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("content", [b"x" * 5000, b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 4080, b"a"])
def test_a_file_that_is_not_recognisably_a_store_is_left_as_it_is(
    path: Path, said: list[str], content: bytes, which: int
) -> None:
    path.write_bytes(content)
    store = Store(path, warn=said.append)
    uses(store)[which]()
    store.save({"m": [sample("kept in memory")]})
    assert sample("kept in memory") in store.load("m")
    assert path.read_bytes() == content and listed(path) == [path.name]
    assert len(said) == 1 and str(path) in said[0] and "COEXEC_STORE" in said[0]


def test_the_journal_mode_of_another_programs_database_stays(path: Path, said: list[str]) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=WAL")
        file.execute("CREATE TABLE important (value)")
    content = path.read_bytes()
    Store(path, warn=said.append).save({"m": [sample("new")]})
    assert path.read_bytes() == content and listed(path) == [path.name] and "another program" in said[0]


def test_an_empty_file_becomes_a_store(path: Path, said: list[str]) -> None:
    path.touch()
    Store(path, warn=said.append).save({"m": [sample("new")]})
    assert Store(path).load("m") == [sample("new")] and said == []


def test_a_file_is_set_aside_with_its_journal_and_only_if_it_is_the_one_that_was_looked_at(path: Path) -> None:
    path.write_text("damaged")
    Path(f"{path}-journal").write_text("journal")
    seen = store_file._identity(path)
    assert seen is not None
    assert store_file._set_aside(path, (seen[0], seen[1] + 1), "damaged-1") is None  # a new file of another process
    assert listed(path) == [path.name, f"{path.name}-journal"]
    aside = store_file._set_aside(path, seen, "damaged-1")
    assert aside == path.with_name(f"{path.name}.damaged-1")
    assert listed(path) == [aside.name, f"{aside.name}-journal"]


def test_a_file_with_any_bytes_changed_never_stops_the_program(path: Path, said: list[str]) -> None:
    original = Store(path)
    original.save({"m": [sample(str(i)) for i in range(60)], "n": [sample("x")]})
    original.save_links({("host", "gpu"): (1e-6, 1e9)})
    content = path.read_bytes()
    for seed in range(80):
        rng = random.Random(seed)
        changed = bytearray(content)
        for _ in range(rng.choice([1, 5, 50])):
            changed[rng.randrange(rng.choice([100, 4096, len(content)]))] = rng.randrange(256)
        path.write_bytes(changed)
        store = Store(path, warn=said.append)
        for use in uses(store):
            use()
        store.save({"m": [sample("after")]})
        assert sample("after") in store.load("m")


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_file_of_another_version_is_set_aside(path: Path, said: list[str], version: int) -> None:
    Store(path).save({"m": [sample("old")]})
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version={version}")
    store = Store(path, warn=said.append)
    assert store.load("m") == []
    store.save({"m": [sample("new")]})
    assert Store(path).load("m") == [sample("new")]
    assert listed(path) == [path.name, f"{path.name}.v{version}.bak"] and len(said) == 1
    assert f"version {version}" in said[0] and f"v{version}.bak" in said[0]


def test_tables_that_somebody_changed_are_set_aside(path: Path, said: list[str]) -> None:
    Store(path).save({"m": [sample("old")]})
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TRIGGER evil AFTER INSERT ON samples BEGIN DELETE FROM samples; END")
    store = Store(path, warn=said.append)
    store.save({"m": [sample("new")]})
    assert store.load("m") == [sample("new")] and len(said) == 1 and "damaged" in said[0]


def test_the_database_of_another_program_is_left_alone(path: Path, said: list[str]) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE important (value)")
    content = path.read_bytes()
    store = Store(path, warn=said.append)
    store.save({"m": [sample("new")]})
    store.clear()
    store.save({"m": [sample("newer")]})
    assert store.load("m") == [sample("newer")] and path.read_bytes() == content and listed(path) == [path.name]
    assert len(said) == 1 and "another program" in said[0] and "COEXEC_STORE" in said[0]


def test_a_file_in_write_ahead_mode_is_brought_back(path: Path, said: list[str]) -> None:
    Store(path).save({"m": [sample("old")]})
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=WAL")
    store = Store(path, warn=said.append)
    store.save({"m": [sample("new")]})
    assert len(store.load("m")) == 2 and said == []
    with closing(sqlite3.connect(path)) as file:
        assert list(file.execute("PRAGMA journal_mode")) == [("delete",)]


# Trouble that may pass ----------------------------------------------------------------------------------------------------


def test_a_locked_file_is_said_once_and_written_when_it_is_free(path: Path, said: list[str]) -> None:
    store = Store(path, warn=said.append)
    store.save({"m": [sample("before")]})
    store._wait = 0.0
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store.save({"m": [sample("during")]})
        store.save_links({("host", "gpu"): (1e-6, 1e9)})
        assert store.load("m") == [sample("during")] and store.links() == {("host", "gpu"): (1e-6, 1e9)}
        other.execute("ROLLBACK")
    assert len(said) == 1 and "locked" in said[0] and "COEXEC_STORE" in said[0]
    assert Store(path).load("m") == [sample("before")]
    store.close()
    assert {s.key for s in Store(path).load("m")} == {"before", "during"} and Store(path).links() != {}
    assert len(said) == 1


@contextmanager
def without_rights() -> Iterator[None]:
    """Be somebody to whom permissions apply, as they do not to root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that everybody may look into; pytest's own are closed to others, and other processes use them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_read_only_file_is_read_and_the_rest_stays_in_memory(open_folder: Path, said: list[str]) -> None:
    path = open_folder / "store.sqlite"
    Store(path).save({"m": [sample("old")]})
    content = path.read_bytes()
    path.chmod(0o444)
    open_folder.chmod(0o555)
    with without_rights():
        store = Store(path, warn=said.append)
        assert store.load("m") == [sample("old")] and said == []
        store.save({"m": [sample("new")]})
        store.save({"m": [sample("newer")]})
        store.close()
        assert {s.key for s in store.load("m")} == {"old", "new", "newer"}
    assert len(said) == 1 and "writable" in said[0] and str(path) in said[0]
    assert path.read_bytes() == content and listed(path) == [path.name]


def test_a_folder_that_cannot_be_made_is_said_once(open_folder: Path, said: list[str]) -> None:
    open_folder.chmod(0o555)
    with without_rights():
        store = Store(open_folder / "deep" / "store.sqlite", warn=said.append)
        store.save({"m": [sample("new")]})
        store.save({"m": [sample("newer")]})
        assert len(store.load("m")) == 2
    assert len(said) == 1 and "Permission denied" in said[0]


@pytest.mark.parametrize("damage", ["garbage", "version"])
def test_a_file_that_cannot_be_set_aside_is_left_alone(open_folder: Path, said: list[str], damage: str) -> None:
    path = open_folder / "store.sqlite"
    Store(path).save({"m": [sample("old")]})
    if damage == "garbage":
        path.write_text("garbage" * 1000)
    else:
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA user_version=9")
    open_folder.chmod(0o555)
    with without_rights():
        store = Store(path, warn=said.append)
        assert store.load("m") == []
        store.save({"m": [sample("new")]})
        assert store.load("m") == [sample("new")]
    assert len(said) == 1 and listed(path) == [path.name]


@pytest.mark.parametrize("what", ["folder", "device", "below a file"])
def test_a_path_that_is_no_file_is_said_once(tmp_path: Path, said: list[str], what: str) -> None:
    (tmp_path / "file").write_text("")
    path = {"folder": tmp_path, "device": Path(os.devnull), "below a file": tmp_path / "file" / "x"}[what]
    store = Store(path, warn=said.append)
    for use in uses(store):
        use()
    assert len(said) == 1 and str(path) in said[0]
    assert store._wait == 0.0  # after the first trouble nobody waits again


def test_a_full_disk_leaves_the_file_as_it_was_and_space_lets_it_grow(path: Path) -> None:
    text = """
        import resource
        from pathlib import Path
        from coexec.predict.sample import Sample
        from coexec.predict.store import Store
        said = []
        path = Path(sys.argv[1])
        store = Store(path, warn=said.append)
        def sample(key):
            return Sample("float32", key, (1.0,), (1.0,), False)
        store.save({"m": [sample("before")]})
        before = path.read_bytes()
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 4096, hard))
        for _ in range(2):
            store.save({"m": [sample(f"{i:200}") for i in range(400)]})
        assert len(store.load("m")) == 401
        assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]
        assert len(said) == 1 and "free space" in said[0], said
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        store.save({"n": [sample("after")]})
        assert len(Store(path).load("m")) == 401 and len(said) == 1
    """
    done = run_script(text, str(path))
    assert done.stderr == "" and done.returncode == 0
    assert is_intact(path)
