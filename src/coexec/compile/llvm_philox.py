"""Philox4x64-10 in LLVM's language, with the bits of NumPy's generator: a function that fills a strip of numbers.

Before: nothing.  After: compile/llvm_draws.py.  Pure text.
"""

from __future__ import annotations

from collections.abc import Iterator

NAME = "coexec_philox"
ROUNDS = 10
FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
BUMPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
LANES = 4  # numbers of one count
UNIT = "0x3CA0000000000000"  # 2 to the power of -53


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _rounds() -> Iterator[str]:
    """Yield the ten rounds on the counter (%c, 0, 0, 0) with the key (%k0, %k1)."""
    words = ["%c", "0", "0", "0"]
    keys = ["%k0", "%k1"]
    for number in range(ROUNDS):
        if number:
            for which, bump in enumerate(BUMPS):
                yield f"%key{number}_{which} = add i64 {keys[which]}, {_signed(bump)}"
            keys = [f"%key{number}_0", f"%key{number}_1"]
        for which, (factor, word) in enumerate(zip(FACTORS, (words[0], words[2]), strict=True)):
            name = f"r{number}_{which}"
            yield f"%w{name} = zext i64 {word} to i128"
            yield f"%p{name} = mul i128 %w{name}, {factor}"
            yield f"%lo{name} = trunc i128 %p{name} to i64"
            yield f"%s{name} = lshr i128 %p{name}, 64"
            yield f"%hi{name} = trunc i128 %s{name} to i64"
        new = []
        for which, (other, key) in enumerate(((1, keys[0]), (3, keys[1]))):
            yield f"%x{number}_{which} = xor i64 %hir{number}_{1 - which}, {words[other]}"
            yield f"%y{number}_{which} = xor i64 %x{number}_{which}, {key}"
            new += [f"%y{number}_{which}", f"%lor{number}_{1 - which}"]
        words = new
    for lane, word in enumerate(words):
        yield f"%top{lane} = lshr i64 {word}, 11"
        yield f"%whole{lane} = sitofp i64 %top{lane} to double"
        yield f"%d{lane} = fmul double %whole{lane}, {UNIT}"


def philox_text() -> str:
    """Return the function void (ptr out, i64 first, i64 count, i64 key0, i64 key1): uniform numbers from 0 to 1."""
    lines = [
        f"define internal void @{NAME}(ptr %out, i64 %first, i64 %count, i64 %k0, i64 %k1) noinline {{",
        "entry:",
        "%end = add nsw i64 %first, %count",
        "%q0 = lshr i64 %first, 2",
        "br label %test",
        "test:",
        "%q = phi i64 [ %q0, %entry ], [ %c, %next ]",
        "%base = shl i64 %q, 2",
        "%goes = icmp slt i64 %base, %end",
        "br i1 %goes, label %body, label %done",
        "body:",
        "%c = add nsw i64 %q, 1",
        *_rounds(),
        "%to = sub nsw i64 %base, %first",
        "%after = add nsw i64 %base, 4",
        "%begun = icmp sge i64 %to, 0",
        "%fits = icmp sle i64 %after, %end",
        "%all = and i1 %begun, %fits",
        "br i1 %all, label %whole, label %part0",
        "whole:",
    ]
    for lane in range(LANES):
        lines += [
            f"%at{lane} = add nsw i64 %to, {lane}",
            f"%p{lane} = getelementptr inbounds double, ptr %out, i64 %at{lane}",
            f"store double %d{lane}, ptr %p{lane}, align 8",
        ]
    lines.append("br label %next")
    for lane in range(LANES):
        lines += [
            f"part{lane}:",
            f"%one{lane} = add nsw i64 %to, {lane}",
            f"%in{lane} = icmp ult i64 %one{lane}, %count",  # negative ones are large
            f"br i1 %in{lane}, label %put{lane}, label %part{lane + 1}",
            f"put{lane}:",
            f"%o{lane} = getelementptr inbounds double, ptr %out, i64 %one{lane}",
            f"store double %d{lane}, ptr %o{lane}, align 8",
            f"br label %part{lane + 1}",
        ]
    lines += [f"part{LANES}:", "br label %next", "next:", "br label %test", "done:", "ret void", "}"]
    return "\n".join(lines)
