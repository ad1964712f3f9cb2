"""Tables of other tools, in their own formats: sound ones, and ones with a fault planted at a place drawn by lot."""

from __future__ import annotations

import json
from base64 import b32encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from tunewright.interop.findings import AuditRequest, Fault, parse_shapes

Files = dict[str, str]

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
NVIDIA = ("NVIDIA_A100-SXM4-80GB", "NVIDIA_H100_80GB_HBM3", "NVIDIA_B200", "NVIDIA_L40S", "NVIDIA_GeForce_RTX_4090")
AMD = ("AMD_Instinct_MI300X", "AMD_Instinct_MI325X")
PYTORCH = {"PT_VERSION": "2.4.0", "ROCM_VERSION": "6.1.0.0-82-5fabb4c", "GCN_ARCH_NAME": "gfx942:sramecc+:xnack-"}
TRITON = "3.4.0"
FOLDER = "triton_3_4_0/"
EVERY = AuditRequest(tuple(parse_shapes("M=" + ",".join(map(str, SIZES)))), "", {"triton": TRITON, **PYTORCH})


@dataclass(frozen=True)
class Planted:
    """One fault among sound tables: whose format, of which kind, in which file, and in which row if it has one."""

    tool: str
    fault: Fault
    files: Files
    file: str
    row: str | None = None
    asked: AuditRequest = EVERY
    trace: tuple[str, str] | None = None
    """A file with what was asked for, by name and content, instead of the shapes in `asked`."""


def config(rng: Random, tokens: int, amd: bool = False) -> dict[str, Any]:
    """What a tuner may settle on: larger tiles for more tokens, the rest as it comes."""
    return {
        "BLOCK_SIZE_M": 16 if tokens < 128 else 32 if tokens < 1024 else 64,
        "BLOCK_SIZE_N": 64,
        "BLOCK_SIZE_K": rng.choice((64, 128)),
        "GROUP_SIZE_M": rng.choice((1, 8, 16, 32, 64)),
        "num_warps": rng.choice((4, 8)),
        "num_stages": rng.choice((2, 3, 4)),
        **({"waves_per_eu": 0, "matrix_instr_nonkdim": 16, "kpack": 2} if amd else {}),
    }


def rows(rng: Random, sizes: tuple[int, ...] = SIZES, amd: bool = False) -> dict[str, Any]:
    return {str(size): config(rng, size, amd) for size in sizes}


def text(content: Any) -> str:
    return json.dumps(content, indent=4) + "\n"


def named(rng: Random, device: str | None = None, more: str = "") -> str:
    device = device or rng.choice(NVIDIA)
    return f"E={rng.choice((8, 64, 128, 256))},N={64 * rng.randrange(1, 200)},device_name={device}{more}.json"


def moe_tables(rng: Random) -> Iterator[tuple[str, str]]:
    """Sound tables of vLLM, then of SGLang."""
    yield named(rng), text(rows(rng))
    yield named(rng, more=",dtype=fp8_w8a8"), text({"triton_version": TRITON, **rows(rng)})
    yield named(rng, more=",dtype=fp8_w8a8,block_shape=[128,128]"), text(rows(rng))
    yield named(rng, rng.choice(AMD)), text(rows(rng, amd=True))
    yield FOLDER + named(rng, more=",dtype=fp8_w8a8,block_shape=[128, 128]"), text(rows(rng))
    yield FOLDER + named(rng, more=",dtype=int8_w8a8,per_channel_quant=True"), text(rows(rng))
    yield FOLDER + named(rng, more="_down"), text({m: c | {"USE_TMA": False} for m, c in rows(rng).items()})


def product(rng: Random) -> str:
    """A line of TunableOp's results."""
    layout = rng.choice(("TN", "NN", "NT"))
    m, n, k = (rng.randrange(1, 9000) for _ in range(3))
    op = rng.choice(("GemmTunableOp_BFloat16", "GemmTunableOp_float", "GemmAndBiasTunableOp_Half"))
    kernel = rng.choice(
        ("Default", f"Gemm_Rocblas_{rng.randrange(9**9)}", f"Gemm_Hipblaslt_{layout}_{rng.randrange(9**6)}")
    )
    return f"{op}_{layout},{layout.lower()}_{m}_{n}_{k}_ld_{m}_{n}_{k},{kernel},{rng.uniform(0.01, 9):.6g}"


def csv(rng: Random, lines: list[str] | None = None, **validators: str) -> str:
    said = [f"Validator,{name},{value}" for name, value in (PYTORCH | validators).items() if value]
    return "".join(line + "\n" for line in [*said, *(lines or [product(rng) for _ in range(8)])])


def tried(rng: Random, block: int, time: float | None = None, **more: Any) -> list[Any]:
    """A config with its times, as Triton keeps them."""
    middle = rng.uniform(0.01, 2) if time is None else time
    launch = {"num_warps": rng.choice((2, 4, 8)), "num_ctas": 1, "num_stages": rng.choice((2, 3, 4))}
    rest = {"maxnreg": None, "pre_hook": None, "ir_override": None}
    return [{"kwargs": {"BLOCK": block}, **launch, **rest, **more}, [middle, middle * 0.97, middle * 1.1]]


def autotune(rng: Random, entries: list[Any] | None = None, key: list[Any] | None = None) -> str:
    key = key or [rng.randrange(1, 10**6), "torch.float16"]
    return json.dumps({"key": key, "configs_timings": entries or [tried(rng, 2**power) for power in range(5, 9)]})


def cached(rng: Random, kernel: str = "matmul_kernel") -> str:
    return f"cache/{b32encode(sha256(rng.randbytes(8)).digest()).decode().rstrip('=')}/{kernel}.autotune.json"


def tuned(rng: Random, device: str = "NVIDIA A100-PCIE-40GB") -> dict[str, Any]:
    """A cache of Kernel Tuner."""
    entries = {}
    for x in (32, 64, 128):
        for flag in (0, 1):
            time = rng.choice((rng.uniform(0.1, 9), rng.uniform(0.1, 9), "RuntimeFailedConfig"))
            entry = {"block_size_x": x, "unroll": flag, "time": time, "compile_time": 301.5, "benchmark_time": 12.0}
            entries[f"{x},{flag}"] = entry if isinstance(time, str) else entry | {"times": [time] * 7}
    return {
        "device_name": device,
        "kernel_name": "vector_add",
        "problem_size": [rng.randrange(1, 10**8)],
        "tune_params_keys": ["block_size_x", "unroll"],
        "tune_params": {"block_size_x": [32, 64, 128], "unroll": [0, 1]},
        "objective": "time",
        "cache": entries,
    }


def results(rng: Random) -> dict[str, Any]:
    """T4 results."""
    times = {"compilation": 0.3, "benchmark": 0.01, "framework": 0.001, "search_algorithm": 0, "validation": 0}
    listed = [
        {
            "configuration": {"block_size_x": x, "unroll": flag},
            "objectives": ["time"],
            "times": times | {"runtimes": [time] * 3},
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": time, "unit": "ms"}],
        }
        for x in (32, 64, 128)
        for flag in (0, 1)
        for time in [rng.uniform(0.1, 9)]
    ]
    listed[rng.randrange(6)] |= {"invalidity": "compile", "measurements": []}
    return {"schema_version": "1.0.0", "metadata": {"timeunit": "seconds"}, "results": listed}


def sound(rng: Random) -> Files:
    """Tables of every format in which nothing is wrong."""
    return dict(moe_tables(rng)) | {
        "tunableop_results0.csv": csv(rng),
        "older/tunableop_results1.csv": csv(rng, [product(rng).rpartition(",")[0]]),
        cached(rng): autotune(rng),
        cached(rng, "softmax"): autotune(rng, [tried(rng, 64), tried(rng, 128, float("inf"))]),
        "hub/vector_add.json": text(tuned(rng)),
        "hub/A100_T4.json": text(results(rng)),
    }


def _changed(rng: Random, size: int, **more: Any) -> str:
    return text({m: c | (more if m == str(size) else {}) for m, c in rows(rng).items()})


def moe_faults(rng: Random) -> Iterator[Planted]:
    """A fault of every kind in an MoE table, at a row or a name drawn by lot."""

    def table(fault: Fault, name: str, content: str, row: str | None = None, **more: Any) -> Planted:
        tool = "SGLang" if name.startswith("triton_") else "vLLM"
        return Planted(tool, fault, {name: content, **more.pop("beside", {})}, name, row, **more)

    def anyones() -> str:
        return rng.choice(("", FOLDER)) + named(rng)

    sizes, size = list(SIZES), rng.choice(SIZES[1:-1])
    name = named(rng)
    experts, width, rest = name.split(",", 2)
    yield table(Fault.UNREACHABLE, f"{width},{experts},{rest}", text(rows(rng)))
    yield table(Fault.UNREACHABLE, named(rng, rng.choice(NVIDIA).replace("_", " ")), text(rows(rng)))
    yield table(Fault.UNREACHABLE, named(rng, rng.choice(NVIDIA).replace("NVIDIA", "nvidia")), text(rows(rng)))
    yield table(Fault.UNREACHABLE, named(rng, more=f",dtype={rng.choice(('float16', 'bfloat16'))}"), text(rows(rng)))
    yield table(Fault.UNREACHABLE, named(rng, more=",dtype=fp8_w8a8,block_shape=[128, 128]"), text(rows(rng)))
    yield table(Fault.UNREACHABLE, FOLDER + named(rng, more=",dtype=fp8_w8a8,block_shape=[128,128]"), text(rows(rng)))
    yield table(Fault.UNREACHABLE, named(rng, "NVIDIA_H200_NVL"), text(rows(rng)))
    yield table(Fault.UNREACHABLE, named(rng, more="_down"), text(rows(rng)))
    nobody = rng.choice(("0", f"-{size}"))
    yield table(Fault.UNREACHABLE, anyones(), text({**rows(rng), nobody: config(rng, 1)}), f"M={nobody}")
    asked = AuditRequest(device="NVIDIA A100 SXM4 80GB")
    right = {named(rng, "NVIDIA_A100_SXM4_80GB"): text(rows(rng))}
    yield table(Fault.UNREACHABLE, named(rng, NVIDIA[0]), text(rows(rng)), asked=asked, beside=right)
    yield table(Fault.COLLISION, anyones(), text({**rows(rng), f"0{size}": config(rng, size)}), f"M=0{size}")
    twice = json.dumps({str(size): config(rng, size)})[1:-1]
    yield table(Fault.COLLISION, anyones(), text(rows(rng)).rstrip()[:-1] + f", {twice}}}\n", str(size))
    beside = {f"a/{name}": text(rows(rng))}
    yield table(Fault.COLLISION, f"b/{name}", text(rows(rng)), beside=beside)
    usual = {named(rng, NVIDIA[0]): text(rows(rng)) for _ in range(3)}
    yield table(Fault.ALIAS, named(rng, "NVIDIA_A100_SXM4_80GB"), text(rows(rng)), beside=usual)
    yield table(Fault.ALIAS, named(rng, "AMD_Radeon_Graphics"), text(rows(rng, amd=True)))
    at = rng.randrange(2, 9)
    after = next(m for m in sizes if m > 4 * sizes[at])
    gone = tuple(m for m in sizes if not sizes[at] < m < after)
    yield table(Fault.GAP, anyones(), text(rows(rng, gone)), f"M={after}", asked=AuditRequest())
    few = tuple(m for m in sizes if m >= rng.choice((8, 16, 24)))
    yield table(Fault.GAP, anyones(), text(rows(rng, few)), f"M={few[0]}", asked=AuditRequest())
    steep = {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128}
    yield table(Fault.CLIFF, anyones(), _changed(rng, size, **steep), f"M={size}")
    yield table(Fault.VERSION, rng.choice(("triton_3_2_0/", "triton_3_1_0/")) + named(rng), text(rows(rng)))
    yield table(Fault.VERSION, named(rng), text({"triton_version": "3.1.0", **rows(rng)}))
    short = tuple(m for m in sizes if m <= 512)
    yield table(Fault.FAR, anyones(), text(rows(rng, short)), "M=512")
    wanted = [{"key": {"signature": {"dims": {"M": m}}}, "calls": 3} for m in (size, rng.randrange(1100, 4000))]
    trace = "untuned.json", json.dumps(wanted)
    yield table(Fault.FAR, anyones(), text(rows(rng, short)), "M=512", trace=trace)
    shapes = tuple(parse_shapes(f"E={rng.randrange(300, 999)},N=64,M={size}"))
    yield Planted("vLLM", Fault.UNTUNED, {name: text(rows(rng))}, ".", None, AuditRequest(shapes))
    yield table(Fault.VALUE, anyones(), _changed(rng, size, BLOCK_SIZE_M=rng.choice((0, 24, 48, "16"))), f"M={size}")
    yield table(Fault.VALUE, anyones(), _changed(rng, size, num_warps=rng.choice((0, 3, 64))), f"M={size}")
    yield table(Fault.DAMAGED, anyones(), text(rows(rng))[: -rng.randrange(3, 900)])


def tunableop_faults(rng: Random) -> Iterator[Planted]:
    """A fault of every kind in TunableOp's results."""
    lines = [product(rng) for _ in range(8)]
    at = rng.randrange(8)
    row = f"line {len(PYTORCH) + at + 1}"

    def changed(line: str) -> list[str]:
        return [*lines[:at], line, *lines[at + 1 :]]

    def table(fault: Fault, content: str, row: str | None = None, **more: Any) -> Planted:
        return Planted("TunableOp", fault, {"tunableop_results0.csv": content}, "tunableop_results0.csv", row, **more)

    op, params, kernel, time = lines[at].split(",")
    other = op[:-2] + ("NN" if op.endswith("NT") else "NT")
    yield table(Fault.UNREACHABLE, csv(rng, changed(f"{other},{params},{kernel},{time}")), row)
    yield table(Fault.UNREACHABLE, csv(rng, changed(f"{op.lower()},{params},{kernel},{time}")), row)
    yield table(Fault.UNREACHABLE, csv(rng, changed(f"{op},{params.partition('_ld')[0]},{kernel},{time}")))
    again = f"{op},{params},{'Default' if kernel != 'Default' else 'Gemm_Rocblas_1'},{time}"
    yield table(Fault.COLLISION, csv(rng, [*lines, again]), f"line {len(PYTORCH) + 9}")
    yield table(Fault.COLLISION, "Validator,ROCM_VERSION,5.7\n" + csv(rng, lines), "line 3")
    yield table(Fault.VERSION, csv(rng, lines, PT_VERSION="2.3.1"))
    yield table(Fault.VERSION, csv(rng, lines, GCN_ARCH_NAME="gfx90a:sramecc+:xnack-"))
    yield table(Fault.VERSION, csv(rng, lines, PT_VERSION=""))
    yield table(Fault.DAMAGED, csv(rng, lines)[: -rng.randrange(1, 5)], f"line {len(PYTORCH) + 8}")
    yield table(Fault.DAMAGED, csv(rng, changed(f"{op},{params},{kernel},fast")), row)
    yield Planted("TunableOp", Fault.UNREACHABLE, {"tunableop_results.csv": csv(rng, lines)}, "tunableop_results.csv")
    missing = ",".join(product(rng).split(",")[:2])
    trace = "tunableop_untuned0.csv", f"{op},{params}\n{missing}\n"
    yield Planted("TunableOp", Fault.UNTUNED, {"tunableop_results0.csv": csv(rng, lines)}, ".", trace=trace)


def triton_faults(rng: Random) -> Iterator[Planted]:
    """A fault of every kind in Triton's cache."""
    blocks = [2**power for power in range(4, 10)]
    at = rng.randrange(6)

    def table(fault: Fault, content: str, row: str | None = None, name: str = "", **beside: str) -> Planted:
        name = name or cached(rng)
        return Planted("Triton", fault, {name: content, **beside}, name, row)

    def changed(entry: list[Any]) -> str:
        return autotune(rng, [entry if n == at else tried(rng, block) for n, block in enumerate(blocks)])

    yield table(Fault.UNREACHABLE, autotune(rng), name="saved/matmul_kernel.autotune.json")
    yield table(Fault.UNREACHABLE, autotune(rng), name=cached(rng, "matmul kernel"))
    same = tried(rng, blocks[at])
    yield table(Fault.COLLISION, autotune(rng, [same, tried(rng, 1024), [same[0], [9.0, 9.0, 9.0]]]), "config 2")
    first, last = sorted((cached(rng), cached(rng)))
    two = (same[0], tried(rng, 2048)[0])
    winners = [[[one, [time] * 3] for one, time in zip(two, times, strict=True)] for times in ((1.0, 2.0), (2.0, 1.0))]
    stale = {first: autotune(rng, winners[0], key=[7])}
    yield table(Fault.COLLISION, autotune(rng, winners[1], key=[7]), None, last, **stale)
    yield table(Fault.VALUE, changed(tried(rng, blocks[at], num_warps=rng.choice((3, 5, 64)))), f"config {at}")
    yield table(Fault.VALUE, changed(tried(rng, blocks[at], 0.0)), f"config {at}")
    yield table(Fault.VALUE, changed(tried(rng, -blocks[at])), f"config {at}")
    yield table(Fault.DAMAGED, changed(tried(rng, blocks[at], float("nan"))))
    yield table(Fault.DAMAGED, autotune(rng)[: -rng.randrange(1, 200)])


def recording_faults(rng: Random) -> Iterator[Planted]:
    """A fault of every kind in a cache of Kernel Tuner, and in T4 results."""

    def cache(fault: Fault, content: Any, row: str | None = None, **more: Any) -> Planted:
        said = content if isinstance(content, str) else text(content)
        return Planted("Kernel Tuner", fault, {"mine.json": said, **more.pop("beside", {})}, "mine.json", row, **more)

    key = rng.choice(("32,0", "64,1", "128,0"))
    moved = tuned(rng)
    moved["cache"][key + ",1"] = moved["cache"].pop(key)
    yield cache(Fault.UNREACHABLE, moved, key + ",1")
    never = tuned(rng)
    never["cache"]["48,0"] = never["cache"][key] | {"block_size_x": 48, "unroll": 0}
    yield cache(Fault.UNREACHABLE, never, "48,0")
    elsewhere = AuditRequest(device="NVIDIA A100 PCIE 40GB")
    yield cache(Fault.UNREACHABLE, tuned(rng), asked=elsewhere)
    usual = {f"other{n}.json": text(tuned(rng)) for n in range(2)}
    yield cache(Fault.ALIAS, tuned(rng, "A100 PCIe 40GB"), beside=usual)
    twice = text(tuned(rng)).rstrip().removesuffix("}").rstrip().removesuffix("}")
    again = json.dumps({key: tuned(rng)["cache"][key]})[1:-1]
    yield cache(Fault.COLLISION, f"{twice}, {again}}}}}\n", key)
    yield cache(Fault.VERSION, {"schema_version": "3.0.0", **tuned(rng)})
    quick = tuned(rng)
    quick["cache"][key] |= {"time": rng.choice((0, -1.5))}
    yield cache(Fault.VALUE, quick, key)
    cut = json.dumps(tuned(rng))
    yield cache(Fault.DAMAGED, cut[: rng.randrange(len(cut) // 2, len(cut) - 2)])

    def listed(fault: Fault, change: Callable[[list[Any], int], None], row: int | None = None, **more: Any) -> Planted:
        content = results(rng) | more
        change(content["results"], at)
        said = None if row is None else f"result {row}"
        return Planted("T4", fault, {"hub/A100_T4.json": text(content)}, "hub/A100_T4.json", said)

    at = rng.randrange(6)
    slower = [{"name": "time", "value": 99.5, "unit": "ms"}]
    yield listed(Fault.COLLISION, lambda all_, n: all_.append(all_[n] | {"measurements": slower}), 6)
    wrong = {"correctness": 0, "invalidity": "correct", "measurements": slower}
    yield listed(Fault.VALUE, lambda all_, n: all_[n].update(wrong), at)
    yield listed(Fault.VERSION, lambda all_, n: None, schema_version="2.0.0")
    yield listed(Fault.DAMAGED, lambda all_, n: all_[n].update(invalidity="who knows"))
    yield listed(Fault.DAMAGED, lambda all_, n: all_[n].pop("configuration"))


def planted(rng: Random) -> Iterator[Planted]:
    """A fault of every kind in every format that can have it."""
    for faults in (moe_faults, tunableop_faults, triton_faults, recording_faults):
        yield from faults(rng)
