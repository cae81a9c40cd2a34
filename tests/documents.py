"""Markdown files as programs: find the snippets, and say which of them run.

Before: nothing.  After: tests/test_docs.py.  Knows nothing of coexec.

A comment on the line above a snippet says what is special about it:
`<!-- no-run: reason -->` compiles it only; `<!-- file: name.py -->` writes it to a file for later commands to use.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

SNIPPET = re.compile(
    r"(?:^[ ]*<!--\s*(?P<mark>no-run|file):\s*(?P<note>[^>]*?)\s*-->[ ]*\n(?:[ ]*\n)?)?"
    r"^(?P<indent>[ ]*)(?P<fence>`{3,})(?P<language>[\w+-]+)[^\n]*\n(?P<body>.*?)^[ ]*(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


class Snippet(NamedTuple):
    """One fenced block of a document."""

    language: str
    body: str
    line: int  # of its first line in the document
    mark: str = ""  # "no-run", "file" or nothing
    note: str = ""  # the reason, or the file's name

    @property
    def runs(self) -> bool:
        """Whether it is executed where it stands."""
        return not self.mark


def snippets(document: str) -> Iterator[Snippet]:
    """Yield the fenced blocks of a Markdown text, in order."""
    for match in SNIPPET.finditer(document):
        indent = len(match["indent"])
        body = "".join(line[indent:] or "\n" for line in match["body"].splitlines(keepends=True))
        line = document.count("\n", 0, match.start("body")) + 1
        yield Snippet(match["language"], body, line, match["mark"] or "", match["note"] or "")


def program(found: list[Snippet]) -> str:
    """Return the running Python snippets as one program whose line numbers are the document's."""
    text = ""
    for snippet in found:
        if snippet.language == "python" and snippet.runs:
            text += "\n" * (snippet.line - 1 - text.count("\n")) + snippet.body
    return text


def commands(found: list[Snippet], name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, arguments) of every `$ name ...` in the running console snippets."""
    for snippet in found:
        if snippet.language == "console" and snippet.runs:
            for number, text in enumerate(snippet.body.splitlines(), start=snippet.line):
                if text.startswith(f"$ {name}"):
                    words = shlex.split(text[2:], comments=True)
                    if words[0] == name:
                        yield number, words[1:]
