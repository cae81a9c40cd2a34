"""What the documentation shows, works: every snippet runs, and every `$ coexec` command succeeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import commands, program, snippets
from tests.repository import ROOT, child_environment, relative

SECONDS = 300  # a document that takes longer hangs
CLI = "import sys; sys.argv[0] = 'coexec'; from coexec.cli import main; sys.exit(main())"
DOCUMENTS = sorted([*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")])


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python child in `folder` and return how it ended."""
    command = [sys.executable, *arguments]
    environment = {**child_environment(folder.parent), "MPLBACKEND": "agg", "COLUMNS": "120"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def check_document(path: Path, name: str, folder: Path) -> None:
    """Compile every Python snippet, run those that run as one program, then the commands, all in `folder`."""
    found = list(snippets(path.read_text(encoding="utf-8")))
    for snippet in found:
        if snippet.language == "python":
            compile("\n" * (snippet.line - 1) + snippet.body, name, "exec")
        if snippet.mark == "file":
            (folder / snippet.note).write_text(snippet.body, encoding="utf-8")
    if text := program(found):
        script = folder / "document.py"
        script.write_text(text, encoding="utf-8")
        ended = run([script.name], folder)
        assert ended.returncode == 0, f"{name} (document.py has its line numbers):\n{ended.stderr}"
    for line, arguments in commands(found, "coexec"):
        ended = run(["-c", CLI, *arguments], folder)
        assert ended.returncode == 0, f"{name}:{line}: coexec {arguments}:\n{ended.stdout}\n{ended.stderr}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_a_document_does_what_it_shows(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    if (ROOT / "examples").is_dir():
        (folder / "examples").symlink_to(ROOT / "examples")
    check_document(path, relative(path), folder)


EXAMPLE = """\
# A page

```python
x = 1
```

<!-- no-run: needs a GPU -->
```python
raise SystemExit("not here")
```

- in a list:

  ```python
  assert x == 1
  ```

<!-- file: app.py -->

```python
import a_package_nobody_has
```

```console
$ coexec trace run.json --summary   # a comment
output
$ ls
```

<!-- no-run: takes an hour -->
```console
$ coexec bench all
```
"""


def test_snippets_are_found_with_their_lines_and_marks() -> None:
    found = list(snippets(EXAMPLE))
    assert [(s.language, s.line, s.mark) for s in found] == [
        ("python", 4, ""),
        ("python", 9, "no-run"),
        ("python", 15, ""),
        ("python", 21, "file"),
        ("console", 25, ""),
        ("console", 32, "no-run"),
    ]
    assert (found[1].note, found[3].note) == ("needs a GPU", "app.py")


def test_running_snippets_share_a_program_with_the_lines_of_the_document() -> None:
    lines = program(list(snippets(EXAMPLE))).splitlines()
    assert {number: line for number, line in enumerate(lines, start=1) if line} == {4: "x = 1", 15: "assert x == 1"}


def test_only_commands_of_running_console_snippets_are_run() -> None:
    assert list(commands(list(snippets(EXAMPLE)), "coexec")) == [(25, ["trace", "run.json", "--summary"])]


def test_a_document_whose_snippet_fails_is_named_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md[^$]*line 10"):
        check_document(page, "page.md", tmp_path)
    page.write_text(page.read_text(encoding="utf-8").replace("x == 2", "x == 1"), encoding="utf-8")
    check_document(page, "page.md", tmp_path)
