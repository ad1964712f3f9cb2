"""Rules for other programs: JSON, a Python function, a C header, and heuristics of Triton.

All of them serve a shape only if the config was verified on its bucket; otherwise they say so, or use a default.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite

import msgspec

from tunewright.errors import SettingsError, WireError
from tunewright.spaces.config import Value
from tunewright.spaces.shape_rule import Node, RuleLeaf, ShapeRule

INDENT = "    "
TEXT = "const char *"

BUCKETS = """\
def _bucket(size):
    return 1 << max(0, (size - 1).bit_length())
"""


def to_json(rule: ShapeRule) -> str:
    """Returns a rule as JSON, which `from_json` reads."""
    return msgspec.json.format(msgspec.json.encode(rule), indent=1).decode() + "\n"


def from_json(text: str) -> ShapeRule:
    """Returns the rule that `to_json` wrote; it is data, and may come from anywhere."""
    try:
        return msgspec.json.decode(text, type=ShapeRule)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WireError(
            f"this is no rule: {error}; write it again with `tunewright cover KERNEL --rule FILE`"
        ) from error


def to_python(rule: ShapeRule) -> str:
    """Returns the source of a module with a function `NAME_config(sizes)`: the config, or None if none is verified."""
    name = _identifier(rule.kernel)
    sizes = [_identifier(size) for size in rule.sizes]
    leaves = list(rule.leaves())
    body = _branches(rule, lambda number: [f"leaf = {number}"], _python_split)
    bucket = "".join(f"_bucket({size}), " for size in sizes)
    return "\n".join(
        [
            f'"""Configs of {name} by shape."""',
            "",
            f"_CONFIGS = {_python_list([repr(leaf.config) for leaf in leaves])}",
            "",
            f"_VERIFIED = {_python_list([_set(leaf.verified) for leaf in leaves])}",
            "",
            "",
            BUCKETS,
            "",
            f"def {name}_config({', '.join(sizes)}):",
            f'{INDENT}"""Returns the config for a shape; None if it was not verified on the bucket of the shape."""',
            *(INDENT + line for line in body),
            f"{INDENT}return _CONFIGS[leaf] if ({bucket.strip()}) in _VERIFIED[leaf] else None",
            "",
        ]
    )


def to_triton(rule: ShapeRule, default: Mapping[str, Value]) -> str:
    """Returns the source of a module with `heuristics`, a decorator for a Triton kernel that takes the sizes by name.

    Triton needs a value for every launch: shapes that the rule does not serve get `default`.
    """
    missing = [knob for leaf in rule.leaves() for knob in leaf.config if knob not in default]
    if missing:
        raise SettingsError(f"the default sets no {missing[0]!r}; give a value for every knob of the rule")
    name = _identifier(rule.kernel)
    given = ", ".join(f"args[{size!r}]" for size in rule.sizes)
    knobs = [f"{INDENT}{knob!r}: lambda args: _config(args)[{knob!r}]," for knob in default]
    return "\n".join(
        [
            to_python(rule),
            "",
            f"_DEFAULT = {dict(default)!r}",
            "",
            "",
            "def _config(args):",
            f"{INDENT}return {name}_config({given}) or _DEFAULT",
            "",
            "",
            "VALUES = {",
            *knobs,
            "}",
            "",
            "",
            "def heuristics(kernel):",
            f'{INDENT}"""Sets the knobs of a kernel by its sizes; write it above `triton.jit`."""',
            f"{INDENT}import triton",
            "",
            f"{INDENT}return triton.heuristics(VALUES)(kernel)",
            "",
        ]
    )


def to_moe_rows(rule: ShapeRule, sizes: Iterable[int], fixed: Mapping[str, int], size: str = "M") -> str:
    """Returns rows of the tables of vLLM and SGLang: a JSON object with the config of each number of tokens.

    `size` is the one that counts tokens, `fixed` has the others. Only rows whose config was verified are written.
    """
    if unknown := {size, *fixed} ^ set(rule.sizes):
        raise SettingsError(
            f"the rule has the sizes {', '.join(rule.sizes)}; {sorted(unknown)[0]!r} is missing or strange"
        )
    served = {tokens: rule.config({**fixed, size: tokens}) for tokens in sizes}
    rows = {str(tokens): dict(config) for tokens, config in sorted(served.items()) if config is not None}
    if not rows:
        raise SettingsError("the rule serves none of these sizes; tune shapes of their buckets first")
    return json.dumps(rows, indent=4) + "\n"


def to_c_header(rule: ShapeRule) -> str:
    """Returns a C header: a struct of the knobs, and `NAME_config`, which returns NULL for shapes it does not serve."""
    name, guard = _identifier(rule.kernel), f"{_identifier(rule.kernel).upper()}_CONFIG_H"
    return "\n".join(
        [
            f"/* Configs of {name} by shape. {name}_config returns NULL if none was verified on the shape's bucket. */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            *_c_struct(rule, name),
            "",
            f"static inline int64_t {name}_bucket(int64_t size)",
            "{",
            f"{INDENT}int64_t top = 1;",
            f"{INDENT}while (top < size)",
            f"{INDENT * 2}top *= 2;",
            f"{INDENT}return top;",
            "}",
            "",
            *_c_function(rule, name),
            "",
            "#endif",
            "",
        ]
    )


def _c_knobs(rule: ShapeRule) -> dict[str, str]:
    """Returns the knobs with their types in C."""
    leaves = list(rule.leaves())
    every_knob = dict.fromkeys(knob for leaf in leaves for knob in leaf.config)
    return {knob: _c_type([leaf.config.get(knob) for leaf in leaves], knob) for knob in every_knob}


def _c_struct(rule: ShapeRule, name: str) -> list[str]:
    fields = [f"{INDENT}{kind} {_identifier(knob)};" for knob, kind in _c_knobs(rule).items()]
    return ["typedef struct {", *fields, f"}} {name}_knobs;"]


def _c_function(rule: ShapeRule, name: str) -> list[str]:
    sizes, knobs, leaves = [_identifier(size) for size in rule.sizes], _c_knobs(rule), list(rule.leaves())
    most = max(1, *(len(leaf.verified) for leaf in leaves))
    nowhere = (0,) * len(sizes)  # a bucket that no shape has
    same = " && ".join(f"row[{i}] == {name}_bucket({size})" for i, size in enumerate(sizes))
    configs = [_braces(_c_value(leaf.config[knob], kind) for knob, kind in knobs.items()) for leaf in leaves]
    verified = [_braces(_braces(map(str, bucket)) for bucket in leaf.verified or (nowhere,)) for leaf in leaves]
    body = [
        f"static const {name}_knobs configs[] = {{",
        *(f"{INDENT}{row}," for row in configs),
        "};",
        f"static const int64_t verified[][{most}][{len(sizes)}] = {{",
        *(f"{INDENT}{row}," for row in verified),
        "};",
        "int leaf;",
        *_branches(rule, lambda number: [f"leaf = {number};"], _c_split),
        f"for (int i = 0; i < {most}; i++) {{",
        f"{INDENT}const int64_t *row = verified[leaf][i];",
        f"{INDENT}if ({same})",
        f"{INDENT * 2}return &configs[leaf];",
        "}",
        "return NULL;",
    ]
    takes = ", ".join(f"int64_t {size}" for size in sizes)
    return [
        f"static inline const {name}_knobs *{name}_config({takes})",
        "{",
        *(INDENT + line for line in body),
        "}",
    ]


def _braces(items: Iterable[str]) -> str:
    return "{" + ", ".join(items) + "}"


Branch = Callable[[str, int, list[str], list[str]], list[str]]
"""Writes a comparison with the lines of both sides."""


def _branches(rule: ShapeRule, leaf: Callable[[int], list[str]], split: Branch) -> list[str]:
    """Returns the comparisons of a rule in some language; leaves are numbered from low to high."""
    count = 0

    def lines(node: Node) -> list[str]:
        nonlocal count
        if isinstance(node, RuleLeaf):
            count += 1
            return leaf(count - 1)
        return split(_identifier(node.size), node.at_most, lines(node.low), lines(node.high))

    return lines(rule.tree)


def _python_split(size: str, at_most: int, low: list[str], high: list[str]) -> list[str]:
    inner = [[INDENT + line for line in side] for side in (low, high)]
    return [f"if {size} <= {at_most}:", *inner[0], "else:", *inner[1]]


def _c_split(size: str, at_most: int, low: list[str], high: list[str]) -> list[str]:
    inner = [[INDENT + line for line in side] for side in (low, high)]
    return [f"if ({size} <= {at_most}) {{", *inner[0], "} else {", *inner[1], "}"]


def _identifier(name: str) -> str:
    """Returns a name that Python and C take; what else it has is replaced."""
    text = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    if not text or text[0].isdigit() or keyword.iskeyword(text):
        raise SettingsError(f"{name!r} is no name in Python and C; rename it in the kernel")
    return text


def _python_list(items: Sequence[str]) -> str:
    return "[\n" + "".join(f"{INDENT}{item},\n" for item in items) + "]"


def _set(buckets: Sequence[tuple[int, ...]]) -> str:
    return _braces(map(repr, buckets)) if buckets else "set()"


def _c_type(values: Sequence[Value | None], knob: str) -> str:
    if any(value is None for value in values):
        raise SettingsError(f"some configs of the rule do not set {knob!r}; a C struct needs all: export JSON instead")
    if all(isinstance(value, int) for value in values):  # bool is an int, too
        return "int64_t"
    return TEXT if any(isinstance(value, str) for value in values) else "double"


def _c_value(value: Value, kind: str) -> str:
    if kind == TEXT:
        return json.dumps(str(value))
    if isinstance(value, float) and not isfinite(value):
        raise SettingsError(f"C has no literal for {value}; export JSON instead")
    return str(int(value)) if isinstance(value, int) else repr(value)
