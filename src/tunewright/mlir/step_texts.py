"""Sentences that say what the steps of a transform script do."""

from __future__ import annotations

import re

from tunewright.mlir.script import TransformScript, TransformStep

_SENTENCES = {
    "structured.match": "find {names}",
    "split_handle": "take the operations found one by one, in program order",
    "get_producer_of_operand": "find what produces operand {numbers}",
    "structured.tile_using_for": "tile by {numbers}, with a loop for each size above 0",
    "structured.tile_using_forall": "tile by {numbers}, with a loop whose iterations are independent",
    "structured.tile_reduction_using_for": "sum up in {numbers} partial sums side by side, and add these at the end",
    "structured.fuse_into_containing_op": "compute the operand inside the loop that uses it",
    "structured.fuse": "tile by {numbers}, and compute all producers inside these loops",
    "structured.generalize": "write the named operation as a generic one",
    "structured.interchange": "reorder the loops as {numbers}",
    "structured.pad": "pad with zeros to multiples of {numbers}",
    "structured.pack": "copy operands into panels of {numbers} (0: as it is)",
    "structured.pack_transpose": "transpose the panels as {numbers}",
    "structured.lower_pack": "copy into panels by loops",
    "structured.lower_unpack": "copy out of panels by loops",
    "structured.promote_tensor": "copy an operand into a buffer of its own",
    "structured.vectorize": "compute with vectors",
    "foreach": "do the following for each operation found: {inner}",
    "apply_patterns": "simplify: {patterns}",
    "apply_registered_pass": "run the pass {names}",
    "annotate": "mark for the lowering: {names}",
    "bufferization.eliminate_empty_tensors": "compute results where they are stored",
    "bufferization.one_shot_bufferize": "put tensors into buffers",
    "loop.forall_to_for": "run the iterations of the loop in order",
    "cast": "",
}


def explain_script(script: TransformScript) -> list[str]:
    """Returns a sentence for each step that does something, with its number."""
    said = [(step.number, explain_step(step)) for step in script.steps]
    return [f"{number:>3}. {sentence}" for number, sentence in said if sentence]


def explain_step(step: TransformStep) -> str:
    """Returns what a step does; what is not known is shown as it is, and finding the function is left out."""
    return "; ".join(dict.fromkeys(filter(None, (_explain_line(line.strip()) for line in step.lines))))


def _explain_line(line: str) -> str:
    if 'ops{["func.func"]}' in line:
        return ""
    op = re.search(r"transform\.([\w.]+)", line)
    sentence = _SENTENCES.get(op[1].rstrip("."), line) if op else ""
    inner = [name.removeprefix("structured.") for name in re.findall(r"transform\.(structured\.\w+)", line)]
    patterns = [name.replace("_", " ") for name in re.findall(r"apply_patterns\.([\w.]+)", line)]
    numbers = re.search(r"\[[\d, ]*\]", line)
    return sentence.format(
        names=", ".join(re.findall(r'"([^"]*)"', line)) or "every linalg operation",
        numbers=numbers[0] if numbers else "",
        inner=", ".join(inner),
        patterns=", ".join(patterns),
    )
