"""What is kept of measurements: merging, limits, what makes sense, where the file is; threads and forks."""

from __future__ import annotations

import math
import sqlite3
import threading
from pathlib import Path

import pytest

from coexec.errors import CoexecWarning
from coexec.predict import store_tables
from coexec.predict.sample import SECONDS, Sample, merged
from coexec.predict.store import Store, default_path, machine_id
from tests.scripts import run_script


def sample(
    *seconds: float, key: str = "8x8", together: bool = False, features: tuple[float, ...] = (64.0, 2.0)
) -> Sample:
    return Sample("float32", key, features, seconds, together)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "store.sqlite"


def rows(path: Path) -> int:
    with sqlite3.connect(path) as file:
        count: int = file.execute("SELECT COUNT(*) FROM samples").fetchone()[0]
    file.close()
    return count


def test_what_is_saved_is_loaded_by_another_store(path: Path) -> None:
    Store(path).save({"m": [sample(0.5), sample(0.25, together=True)], "n": [sample(0.1, key="é|x\n")]})
    again = Store(path)
    assert sorted(again.load("m")) == sorted([sample(0.5), sample(0.25, together=True)])
    assert again.load("n") == [sample(0.1, key="é|x\n")]
    assert again.load("unknown") == []


def test_nothing_is_opened_or_made_before_there_is_something_to_save(path: Path) -> None:
    store = Store(path)
    assert store.load("m") == [] and store.links() == {} and store.models() == []
    store.clear()
    store.close()
    assert not path.parent.exists()


def test_without_a_path_nothing_is_remembered() -> None:
    store = Store(None)
    store.save({"m": [sample(1.0)]})
    store.save_links({("host", "gpu"): (1e-6, 1e9)})
    store.clear()
    store.close()
    assert store.load("m") == [] and store.links() == {} and store.models() == []


def test_measurements_of_two_stores_are_merged_newest_first_and_at_most_seven(path: Path) -> None:
    Store(path).save({"m": [sample(4.0, 3.0, 2.0, 1.0)]})
    Store(path).save({"m": [sample(8.0, 7.0, 6.0, 5.0)]})
    assert Store(path).load("m") == [sample(8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0)]


def test_a_window_saved_again_counts_once_and_equal_measurements_stay_several() -> None:
    assert merged(sample(3.0, 2.0, 1.0), sample(9.0, 2.0, 1.0)).seconds == (3.0, 2.0, 1.0, 9.0)
    assert merged(sample(1.0), sample(1.0, 1.0)).seconds == (1.0, 1.0)
    assert len(merged(sample(*map(float, range(20))), None).seconds) == SECONDS


def test_measurements_of_other_features_are_not_mixed(path: Path) -> None:
    Store(path).save({"m": [sample(1.0)]})
    Store(path).save({"m": [sample(2.0, features=(64.0, 2.0, 7.0))]})
    assert Store(path).load("m") == [sample(2.0, features=(64.0, 2.0, 7.0))]


def test_the_oldest_samples_of_a_model_make_room(path: Path) -> None:
    store = Store(path)
    store.save({"m": [sample(1.0, key=str(i)) for i in range(512)], "other": [sample(1.0)]})
    store.save({"m": [sample(2.0, key="0"), *(sample(1.0, key=f"new {i}") for i in range(3))]})
    kept = store.load("m")
    assert len(kept) == 512 and len(store.load("other")) == 1
    assert [s.key for s in kept[:4]] == ["new 2", "new 1", "new 0", "0"]
    assert {"1", "2", "3"}.isdisjoint(s.key for s in kept) and "4" in {s.key for s in kept}


def test_models_that_nobody_uses_fade_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_tables.drop_oldest, "__defaults__", (5,))
    for number in range(8):
        Store(path).save({f"m{number}": [sample(1.0)]})
    assert [info.model for info in Store(path).models()] == ["m7", "m6", "m5", "m4", "m3"]


def test_links_and_rates_are_kept_and_replaced(path: Path) -> None:
    store = Store(path)
    store.save_links({("host", "gpu"): (1e-6, 1e9), ("gpu", "host"): (2e-6, 2e9)})
    store.save_links({("host", "gpu"): (3e-6, 3e9)})
    store.save_rates({("cpu:0", "numpy 2.4"): (1e11, 1e10)})
    assert Store(path).links() == {("host", "gpu"): (3e-6, 3e9), ("gpu", "host"): (2e-6, 2e9)}
    assert Store(path).rates() == {("cpu:0", "numpy 2.4"): (1e11, 1e10)}


def test_models_are_listed_with_their_samples_and_clear_forgets_all(path: Path) -> None:
    store = Store(path)
    store.save({"a": [sample(1.0), sample(1.0, key="9")]})
    store.save({"b": [sample(1.0)]})
    store.save_links({("host", "gpu"): (1e-6, 1e9)})
    (b, a) = store.models()
    assert (a.model, a.shapes, b.model, b.shapes) == ("a", 2, "b", 1) and b.updated >= a.updated > 1e9
    store.clear()
    assert store.models() == [] and store.load("a") == [] and store.links() == {}


def test_values_that_make_no_sense_are_not_saved_and_said_once(path: Path) -> None:
    said: list[str] = []
    store = Store(path, warn=said.append)
    bad = [sample(math.nan), sample(-1.0), sample(math.inf), sample(), sample(1.0, key="\ud800")]
    bad += [
        sample(1.0, features=(math.nan,)),
        sample(1.0, features=(10**400,)),
        sample(True),
        sample(1.0, key="x" * 10**6),
    ]
    store.save({"m": [*bad, sample(1.0, key="good")], "\ud800": [sample(1.0)]})
    store.save_links({("a", "b"): (math.nan, 1.0), ("a", "c"): (0.0, 0.0), ("a", "d"): (0.0, 1.0)})
    assert store.load("m") == [sample(1.0, key="good")] and store.links() == {("a", "d"): (0.0, 1.0)}
    assert store.load("\ud800") == []
    assert len(said) == 1 and "ignored" in said[0] and str(path) in said[0]


def test_rows_that_make_no_sense_are_ignored_and_said_once(path: Path) -> None:
    said: list[str] = []
    store = Store(path, warn=said.append)
    store.save({"m": [sample(1.0)]})
    texts = [
        "[NaN]",
        "[1e999]",
        "[-1]",
        "{}",
        "[[1]]",
        "__import__('os')",
        "[" * 50_000,
        "[" + "9" * 5000 + "]",
        "null",
        b"\xff",
    ]
    with sqlite3.connect(path) as file:
        for i, text in enumerate(texts):
            file.execute("INSERT INTO samples VALUES ('m', 'k', ?, 0, '[1]', ?, 0)", (str(i), text))
            file.execute("INSERT INTO samples VALUES ('m', 'k', ?, 1, ?, '[1]', 0)", (str(i), text))
        file.execute("INSERT INTO samples VALUES ('m', 'k', CAST(x'FFFE' AS TEXT), 7, '[1]', '[1]', 0)")
        file.execute("INSERT INTO figures VALUES ('link', 'a', 'b', 'fast', 1e9, 0)")
    file.close()
    assert store.load("m") == [sample(1.0)] and store.load("m") == [sample(1.0)] and store.links() == {}
    store.save({"m": [Sample("k", "0", (1.0,), (3.0,), False)]})  # over a bad row
    assert store.load("m")[0].seconds == (3.0,)
    assert len(said) == 1 and "ignored" in said[0]


def test_the_file_is_named_after_the_machine_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, cache_folder: Path, tmp_path: Path
) -> None:
    monkeypatch.delenv("COEXEC_STORE", raising=False)
    usual = default_path()
    assert usual is not None and usual.is_relative_to(cache_folder) and machine_id() in usual.name
    assert machine_id() == machine_id() and default_path("") == usual
    monkeypatch.setenv("COEXEC_STORE", str(tmp_path / "mine.sqlite"))
    assert default_path() == tmp_path / "mine.sqlite"
    assert default_path("~/mine") == Path("~/mine").expanduser()
    monkeypatch.setenv("COEXEC_STORE", "off")
    assert default_path() is None


def test_a_warning_is_a_coexec_warning(tmp_path: Path) -> None:
    with pytest.warns(CoexecWarning, match="regular file"):
        Store(tmp_path).save({"m": [sample(1.0)]})


def test_threads_share_a_store(path: Path) -> None:
    store = Store(path)
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(10):
                store.save({f"m{number}": [sample(1.0, key=str(i))], "all": [sample(1.0, key=f"{number} {i}")]})
                assert len(store.load(f"m{number}")) == i + 1
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(store.load("all")) == 40 and rows(path) == 80


def test_a_forked_child_uses_the_store_while_a_thread_of_its_parent_writes(path: Path) -> None:
    text = """
        import warnings
        from pathlib import Path
        from coexec.predict.sample import Sample
        from coexec.predict.store import Store
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        store = Store(Path(sys.argv[1]))
        def save(model, key):
            store.save({model: [Sample("k", key, (1.0,), (1.0,), False)]})
        stop = threading.Event()
        def write():
            count = 0
            while not stop.is_set():
                save("parent", str(count % 50))
                count += 1
        save("first", "0")
        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        for child in range(10):
            pid = os.fork()
            if not pid:
                save("child", str(child))
                os._exit(0 if len(store.load("child")) == child + 1 and store.load("first") else 3)
            assert os.waitpid(pid, 0)[1] == 0, child
        stop.set()
        thread.join()
        assert len(store.load("child")) == 10
    """
    done = run_script(text, str(path))
    assert done.stderr == "" and done.returncode == 0
