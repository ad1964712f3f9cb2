"""Reads PTX text: kernels with their parameters, registers, variables, labels, instructions and line tables."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from tunewright.emulator.faults import Place, PtxError

_INLINE = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"\.(entry|func)\s+(\([^)]*\)\s*)?([\w$]+)\s*(\([^)]*\))?([^{;]*)([{;])", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+(.*?)([\w$]+)(?:\[(\d+)\])?\s*(?:,|\)|$)", re.DOTALL)
_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(shared|global|const|local)\s+"
    r"(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)\s*(\[\d*\])?\s*(?:=\s*(\{[^}]*\}|[^;]+))?;"
)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:[^\n]*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*")
_TOOLKIT = re.compile(r"/(?:cuda|nvidia)[^/]*/(?:.*/)?include/")
_LABEL = re.compile(r"([\w$]+):(?!:)")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([^;]*);")
_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*")
_DIRECTIVE = re.compile(r"\.(pragma|param|branchtargets|callprototype|alias)\b[^;]*;")
_ATTRIBUTE = re.compile(r"\.(reqntid|maxntid|maxnreg|minnctapersm)\s+([\d,\s]+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', re.MULTILINE)


@dataclass(frozen=True)
class Instruction:
    """One instruction: its guard (`%p1` or `!%p1`), opcode, modifiers and operands, and where it is."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str
    place: Place
    scopes: tuple[int, ...] = (0,)

    def has(self, modifier: str) -> bool:
        """Returns whether a modifier is present, such as `ftz`."""
        return modifier in self.modifiers


@dataclass(frozen=True)
class Variable:
    """A variable in shared, global, constant or local memory; `size` is None where the launch decides."""

    name: str
    space: str
    align: int
    size: int | None
    initial: bytes = b""


@dataclass(frozen=True)
class PtxParameter:
    """A parameter of a kernel: its type, and its size in bytes."""

    name: str
    type: str
    size: int


@dataclass
class PtxKernel:
    """A kernel (`.entry`) or function (`.func`) as it was read; only functions have results."""

    name: str
    parameters: list[PtxParameter]
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[tuple[int, str], int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    threads: tuple[int, ...] = ()
    results: list[PtxParameter] = field(default_factory=list)

    def target(self, instruction: Instruction, label: str) -> int:
        """Returns the index of the instruction at a label, which inner scopes may hide."""
        for scope in reversed(instruction.scopes):
            if (scope, label) in self.labels:
                return self.labels[scope, label]
        raise PtxError(f"no label {label} for `{instruction.place.text}`, PTX line {instruction.place.ptx_line}")


@dataclass(frozen=True)
class Module:
    """A PTX file: its target (`sm_80`), its kernels by name, the variables outside of them, and functions by name."""

    target: str
    kernels: dict[str, PtxKernel]
    variables: list[Variable]
    functions: dict[str, PtxKernel] = field(default_factory=dict)

    def kernel(self, name: str | None = None) -> PtxKernel:
        """Returns a kernel by name, or the only one."""
        if name is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if name not in self.kernels:
            raise PtxError(f"the PTX has the kernels {', '.join(self.kernels) or 'none'}; name one of them")
        return self.kernels[name]


TYPE_BYTES = {"pred": 1, "b128": 16}


def type_bytes(name: str) -> int:
    """Returns the bytes of a PTX type such as `f32` or `b16`."""
    return TYPE_BYTES.get(name) or int(re.sub(r"\D", "", name.split("x", maxsplit=1)[0])) // 8


def parse_module(text: str) -> Module:
    """Reads a PTX file."""
    # LLVM counts the lines of inline assembly on from that of the source: what is right stands before it.
    text = _INLINE.sub(lambda found: re.sub(r"\.loc\b[^\n]*", "", found[0]), text)
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    cut = re.search(r"^\s*\.section\b", text, re.MULTILINE)
    files = {int(number): name for number, name, _ in _FILE.findall(text)}
    if cut is not None:
        text = text[: cut.start()]
    target = re.search(r"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE)
    if target is None:
        raise PtxError("this is not PTX: it has no line `.target sm_80` or the like")
    found_code: dict[str, dict[str, PtxKernel]] = {"entry": {}, "func": {}}
    outside, at = [], 0
    newlines = [found.start() for found in re.finditer("\n", text)]
    for found in _FUNCTION.finditer(text):
        if found.start() < at:
            continue
        outside.append(text[at : found.start()])
        at = found.end()
        if found[6] == "{":
            reader = _BodyReader(text, found.end(), files, newlines)
            code = PtxKernel(found[3], _parse_parameters(found[4] or ""), threads=_threads(found[5]))
            code.results = _parse_parameters((found[2] or "").strip())
            found_code[found[1]][found[3]] = reader.read(code)
            at = reader.at
    outside.append(text[at:])
    variables = [variable for part in outside for variable in _parse_variables(part)]
    return Module(target[1], found_code["entry"], variables, found_code["func"])


def _threads(attributes: str) -> tuple[int, ...]:
    found = {name: values for name, values in _ATTRIBUTE.findall(attributes)}
    return tuple(int(word) for word in found["reqntid"].split(",")) if "reqntid" in found else ()


def _parse_parameters(text: str) -> list[PtxParameter]:
    found = []
    for words, name, count in _PARAMETER.findall(text.strip("()")):
        kind = next(word for word in re.findall(r"\.(\w+)", words) if re.fullmatch(r"[busf]\d+|pred", word))
        found.append(PtxParameter(name, kind, type_bytes(kind) * int(count or 1)))
    return found


def _parse_variables(text: str) -> Iterator[Variable]:
    for space, align, kind, name, bounds, initial in _VARIABLE.findall(text):
        width = type_bytes(kind)
        size = None if bounds == "[]" else width * int((bounds or "[1]").strip("[]"))
        body = b""
        for word in initial.strip("{} \n").split(",") if initial else ():
            body += (int(word, 0) % (1 << (8 * width))).to_bytes(width, "little")
        yield Variable(name, space, int(align or width), size, body)


class _BodyReader:
    """Reads the statements between the braces of one kernel."""

    def __init__(self, text: str, at: int, files: dict[int, str], newlines: list[int]) -> None:
        self.text, self.at = text, at
        self._files = {number: name.rsplit("/", 1)[-1] for number, name in files.items()}
        self._toolkit = {number for number, name in files.items() if _TOOLKIT.search(name)}
        self._newlines = newlines
        self._scopes = [0]
        self._names: list[dict[str, str]] = [{}]
        self._loc = (0, 0)
        self._callers: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._count = 0

    def read(self, kernel: PtxKernel) -> PtxKernel:
        """Reads up to the closing brace of the kernel."""
        while self._statement(kernel):
            pass
        return kernel

    def _statement(self, kernel: PtxKernel) -> bool:
        if space := _SPACE.match(self.text, self.at):
            self.at = space.end()
        head = self.text[self.at : self.at + 1]
        if not head:
            raise PtxError(f"the kernel {kernel.name} has no closing brace; the PTX was cut")
        if head == "{":
            self._count += 1
            self._scopes.append(self._count)
            self._names.append({})
            self.at += 1
        elif head == "}":
            self.at += 1
            self._scopes.pop()
            self._names.pop()
            return bool(self._scopes)
        elif head == ".":
            self._directive(kernel)
        elif label := _LABEL.match(self.text, self.at):
            kernel.labels[self._scopes[-1], label[1]] = len(kernel.instructions)
            self.at = label.end()
        else:
            kernel.instructions.append(self._instruction())
        return True

    def _directive(self, kernel: PtxKernel) -> None:
        if found := _LOC.match(self.text, self.at):
            self._loc = self._locate(*(int(number or 0) for number in found.groups()))
        elif found := _REGISTERS.match(self.text, self.at):
            self._declare(kernel, found[1], found[2])
        elif found := _VARIABLE.match(self.text, self.at):
            kernel.variables += _parse_variables(found[0])
        elif not (found := _DIRECTIVE.match(self.text, self.at)):
            line = self.text[self.at : self.at + 60].splitlines()[0]
            raise PtxError(f"the directive `{line}` in the kernel {kernel.name} is not known")
        self.at = found.end()

    def _locate(self, file: int, line: int, column: int, *caller: int) -> tuple[int, int]:
        """Returns file and line of code; for an inlined function of the toolkit, those of the code that calls it."""
        place = file, line
        if file in self._toolkit and caller[0]:
            place = self._callers.get((caller[0], caller[1], caller[2]), (caller[0], caller[1]))
        self._callers[file, line, column] = place
        return place

    def _declare(self, kernel: PtxKernel, kind: str, names: str) -> None:
        for name in (word.strip() for word in names.split(",")):
            if family := re.fullmatch(r"(%?[\w$]+)<(\d+)>", name):
                members = [f"{family[1]}{number}" for number in range(int(family[2]))]
            else:
                members = [name]
            for member in members:
                unique = member if len(self._scopes) == 1 else f"{member}@{self._scopes[-1]}"
                self._names[-1][member] = unique
                kernel.registers[unique] = kind

    def _instruction(self) -> Instruction:
        end = self.text.index(";", self.at)
        text = " ".join(self.text[self.at : end].split())
        line = bisect_right(self._newlines, self.at - 1) + 1
        self.at = end + 1
        file, source = self._loc
        place = Place(text[:200], line, self._files.get(file, ""), source)
        guard = ""
        if text.startswith("@"):
            guard, text = text[1:].split(None, 1)
        opcode, _, rest = text.partition(" ")
        if len(self._scopes) > 1:
            rest, guard = self._resolve(rest), self._resolve(guard)
        head, *modifiers = opcode.split(".")
        return Instruction(head, tuple(modifiers), tuple(split_operands(rest)), guard, place, tuple(self._scopes))

    def _resolve(self, text: str) -> str:
        """Replaces names of registers of inner scopes by unique ones."""

        def unique(found: re.Match[str]) -> str:
            return next((names[found[0]] for names in reversed(self._names) if found[0] in names), found[0])

        return _NAME.sub(unique, text)


def split_operands(text: str) -> list[str]:
    """Splits operands at commas outside of brackets."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*found, last] if last else found
