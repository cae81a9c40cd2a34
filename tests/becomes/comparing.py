"""Tell in what the programs of two records became different."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 5
"""Programs that are told of per kind of difference."""

Records = Mapping[str, Mapping[str, Any]]


def differences(old: Records, new: Records) -> Iterator[tuple[str, str, str]]:
    """Yield (field, program, how) of everything that is not the same in programs that both have."""
    for name in (name for name in old if name in new):
        one, two = old[name], new[name]
        for field in one:
            if one[field] != two.get(field):
                yield field, name, _how(one[field], two.get(field))


def _how(one: Any, two: Any) -> str:
    if not isinstance(one, list) or not isinstance(two, list) or len(one) != len(two):
        return f"{one} -> {two}"
    changes = []
    for a, b in zip(one, two, strict=True):
        changes += [f"{key}: {a.get(key)} -> {b.get(key)}" for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
    return "; ".join(changes)


def report(old: Records, new: Records) -> tuple[str, bool]:
    """Return what is different, in words, and whether nothing is."""
    found = list(differences(old, new))
    programs = {name for _, name, _ in found}
    both = len(old.keys() & new.keys())
    lines = [f"{both} programs in both ({len(old)} before, {len(new)} now), {len(programs)} became something else"]
    counts = Counter(field for field, _, _ in found)
    for field, count in counts.most_common():
        lines.append(f"{field}: {count}")
        mine = [(name, how) for what, name, how in found if what == field]
        lines += [f"  {name}: {how[:300]}" for name, how in mine[:SHOWN]]
    mixes = Counter(name.rpartition("/")[2] for name in programs)
    if mixes:
        lines.append("by mix: " + ", ".join(f"{mix} {count}" for mix, count in mixes.most_common()))
    return "\n".join(lines), bool(both) and not found
