"""Messages between the referee, the supervisor that times a contestant, and the contestant's process."""

from __future__ import annotations

import msgspec


class ArrayPlace(msgspec.Struct, frozen=True):
    """An array in shared memory: where it begins, and what it is."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class PlacedLaunch(msgspec.Struct, frozen=True):
    """The arguments of one launch, arrays by place and others by value, and where its results go."""

    arguments: tuple[ArrayPlace | bool | int | float | str | None, ...]
    results: tuple[ArrayPlace, ...]
    sizes: dict[str, int] = {}


class Entry(msgspec.Struct, frozen=True):
    """What a contestant runs: a function of a Python source, a KernelBench model, a C library or a command.

    `library` is "torch" if arguments are tensors. `seed` and `initial` are for the model of KernelBench.
    """

    kind: str
    name: str
    source: str = ""
    path: str = ""
    words: tuple[str, ...] = ()
    library: str = ""
    seed: int = 0
    initial: str = "[]"


class ChildLimits(msgspec.Struct, frozen=True):
    """What a contestant may use: bytes, threads, other processes, and seconds for a launch and its start."""

    memory: int = 2 << 30
    files: int = 64 << 20
    threads: int = 1
    processes: bool = False
    seconds: float = 10.0
    start_seconds: float = 120.0


class MemorySizes(msgspec.Struct, frozen=True):
    """The memory of a contestant: bytes of a slot of inputs and of results, and how many launches can be staged."""

    input_slot: int
    result_slot: int
    frames: int = 1


class ContestantSetup(msgspec.Struct, frozen=True):
    """What a supervisor needs to start a contestant.

    `scratch` is an empty folder. `without` leaves out parts of the sandbox, for tests of the rest. `gpu` is what Triton
    kernels are compiled for, to be executed in the emulator.
    """

    entry: Entry
    limits: ChildLimits
    memory: MemorySizes
    scratch: str
    readable: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    without: tuple[str, ...] = ()
    gpu: str = ""


class SandboxReport(msgspec.Struct, frozen=True):
    """The parts of the sandbox: those in force with a detail, and those missing with the reason."""

    active: dict[str, str] = {}
    missing: dict[str, str] = {}


class Started(msgspec.Struct, frozen=True):
    """The answer to a setup. `error` says why the contestant could not be loaded."""

    sandbox: SandboxReport = SandboxReport()
    error: str = ""
    misbehavior: str = ""


class StagedLaunch(msgspec.Struct, frozen=True):
    """A launch that waits for its turn: the slot that it will have, and the bytes of that slot that its inputs take."""

    slot: int
    nbytes: int
    launch: PlacedLaunch


class LaunchBatch(msgspec.Struct, frozen=True):
    """Launches that follow each other; the contestant is told of one at a time, and stopped after the last."""

    launches: tuple[StagedLaunch, ...]


class LaunchTimes(msgspec.Struct, frozen=True):
    """What the supervisor saw of a launch, in nanoseconds: the wall clock, and CPU time of the contestant's processes.

    `error` is what the contestant says went wrong, or how it ended; `misbehavior` what no honest one does.
    """

    wall: int = 0
    cpu: int = 0
    error: str = ""
    misbehavior: str = ""
    processes: int = 1


class BatchTimes(msgspec.Struct, frozen=True):
    """The launches of a batch; it ends with the first that failed."""

    launches: tuple[LaunchTimes, ...]
