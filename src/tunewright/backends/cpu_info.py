"""What /proc/cpuinfo says of a processor: its model, and the instruction sets that code can be generated for.

Which flags Linux lists depends on its version, on mitigations and on a hypervisor. So instruction sets are selected by
name: a flag that compilers know and code can use counts; one about virtualization, power, bugs or security does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Entries = dict[str, str]
"""The entries of one processor: `{"model name": "..."}`."""

_X86 = r"""
    avx\w* | amx\w* | sse\w* | pni | ssse3 | 3dnow\w* | mmx\w* | sha_ni | sha512 | sm3 | sm4 | fma | fma4 | f16c | xop |
    tbm | bmi1 | bmi2 | adx | abm | popcnt | movbe | aes | vaes | pclmulqdq | vpclmulqdq | gfni | cx16 | lahf_lm |
    clflushopt | clwb | cldemote | movdiri | movdir64b | apx\w*
"""
_ARM = r"""
    asimd\w* | sve\w* | sme\w* | fp | fphp | neon | vfp\w* | idiva | idivt | aes | pmull | sha1 | sha2 | sha3 | sha512 |
    sm3 | sm4 | crc32 | atomics | lse\w* | i?lrcpc\d? | fcma | jscvt | frint | flagm2? | i8mm | e?bf16 | f8\w+ |
    faminmax | lut | mops | cssc | rng | uscat
"""
_RISCV = r"rv\d+\w* | z[bfkv]\w*"
_INSTRUCTION_SETS = {
    field: re.compile(pattern, re.VERBOSE) for field, pattern in (("flags", _X86), ("Features", _ARM), ("isa", _RISCV))
}

_REVISION = (("family", "cpu family"), ("model", "model"), ("stepping", "stepping"))
_ARM_ID = ("implementer", "variant", "part", "revision")
"""The register MIDR: who made a core, which one, and in which revision."""

_RISCV_ID = ("uarch", "mvendorid", "marchid", "mimpid")


def parse(text: str) -> list[Entries]:
    """Returns the entries of every processor; what is said once for all belongs to the last."""
    blocks = ([line.partition(":") for line in block.splitlines()] for block in text.split("\n\n") if block.strip())
    return [{name.strip(): value.strip() for name, _, value in block} for block in blocks]


def model_name(processors: Sequence[Entries], otherwise: str) -> str:
    """Returns the model with what tells it from others of its name; of each kind of core if there are several."""
    first = processors[0] if processors else {}
    name = " ".join((first.get("model name") or otherwise).split())
    revision = [f"{label} {first[field]}" for label, field in _REVISION if field in first]
    cores = sorted({text for entries in processors if (text := _core_id(entries))})
    return " ".join([name, *revision, *([" + ".join(cores)] if cores else [])])


def instruction_sets(processors: Iterable[Entries]) -> tuple[str, ...]:
    """Returns the instruction sets that all cores have, in order of their names."""
    listed = {(field, entries[field]) for entries in processors for field in _INSTRUCTION_SETS if field in entries}
    sets = [_select(field, text) for field, text in listed]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def _select(field: str, text: str) -> set[str]:
    words = re.split(r"[\s_]+" if field == "isa" else r"\s+", text)
    return {word for word in words if _INSTRUCTION_SETS[field].fullmatch(word)}


def _core_id(entries: Entries) -> str:
    """Returns what identifies a core of ARM or RISC-V; empty for others."""
    arm = [f"{name} {entries[f'CPU {name}']}" for name in _ARM_ID if f"CPU {name}" in entries]
    return " ".join(arm or [f"{name} {entries[name]}" for name in _RISCV_ID if name in entries])
