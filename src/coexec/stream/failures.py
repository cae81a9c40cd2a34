"""Items that fail: what is kept of them, and what a stream does about them.

Before: errors.py.  After: stream/stream.py.  Knows no item and no device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ArgumentError, ItemFailed

ON_ERROR = ("raise", "skip", "return")
LEAST_SEEN = 10  # items, before a fraction of them can be too large


class StreamFailure(NamedTuple):
    """One item that has no result."""

    index: int  # type: ignore[assignment]  # tuples look for values; nobody asks failures to
    stage: str  # "" if that is not known: the function itself raised
    error: BaseException

    def as_error(self) -> ItemFailed:
        """Return an error that names the item. Its cause is what went wrong."""
        where = f", {self.stage}" if self.stage else ""
        error = ItemFailed(
            f"item {self.index}{where}: {type(self.error).__name__}: {self.error}", self.index, self.stage
        )
        error.__cause__ = self.error
        return error


class FailurePolicy:
    """Decides what becomes of a failed item, and when too many have failed."""

    def __init__(self, on_error: str, max_failures: Any) -> None:
        if on_error not in ON_ERROR:
            raise ArgumentError(f"on_error={on_error!r}; say {', '.join(map(repr, ON_ERROR))}")
        if max_failures is not None:
            number = isinstance(max_failures, int | float) and not isinstance(max_failures, bool)
            most = 1.0 if isinstance(max_failures, float) else float("inf")
            if not number or not 0 <= max_failures <= most:
                raise ArgumentError(
                    f"max_failures={max_failures!r}; give a number of items from 0, or a fraction between 0.0 and 1.0"
                )
            if on_error == "raise":
                raise ArgumentError("max_failures goes with on_error='skip' or 'return': 'raise' stops with the first")
        self._on_error, self._most = on_error, max_failures
        self.failures: list[StreamFailure] = []
        self.seen = 0  # items that are over

    def passed(self) -> None:
        """Count an item that has a result; raise if too many others have failed, once enough are seen."""
        self.seen += 1
        self._check()

    def failed(self, failure: StreamFailure) -> ItemFailed | None:
        """Take a failure; return what stands in the place of its result, None for nothing, or raise to stop the stream."""
        self.seen += 1
        self.failures.append(failure)
        error = failure.as_error()
        if self._on_error == "raise":
            raise error
        self._check()
        return error if self._on_error == "return" else None

    def _check(self) -> None:
        if self._too_many():
            last = self.failures[-1]
            raise ItemFailed(
                f"{len(self.failures)} of {self.seen} items failed, more than max_failures={self._most!r}; the last was "
                f"{last.as_error()}",
                last.index,
                last.stage,
            ) from last.error

    def _too_many(self) -> bool:
        if isinstance(self._most, float):
            return self.seen >= LEAST_SEEN and len(self.failures) > self._most * self.seen
        return self._most is not None and len(self.failures) > self._most
