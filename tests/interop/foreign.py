"""Small files as vLLM, SGLang, PyTorch and Triton write them, sound ones, to be damaged by tests."""

import json
from base64 import b32encode
from hashlib import sha256

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
AMD = {"waves_per_eu": 0, "matrix_instr_nonkdim": 16, "kpack": 2}

H100 = "E=128,N=192,device_name=NVIDIA_H100_80GB_HBM3.json"
MI300 = "E=128,N=1024,device_name=AMD_Instinct_MI300X.json"
BLOCKS = "E=256,N=256,device_name=NVIDIA_H20-3e,dtype=fp8_w8a8,block_shape=[128,128].json"
SPACED = "E=257,N=256,device_name=NVIDIA_H20-3e,dtype=fp8_w8a8,block_shape=[128, 128].json"
DOWN = "E=257,N=256,device_name=NVIDIA_H20-3e,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
TRITON = "triton_3_4_0/"

VALIDATORS = {
    "PT_VERSION": "2.9.1",
    "HIP_VERSION": "702",
    "HIPBLASLT_VERSION": "100201-5b515cf1bc",
    "GCN_ARCH_NAME": "gfx942:sramecc+:xnack-",
    "ROCBLAS_VERSION": "5.2.0.5b515cf1bc",
}
PRODUCTS = (
    "GemmTunableOp_BFloat16_TN,tn_8192_1_4096_ld_4096_4096_8192,Gemm_Rocblas_621284994,0.0196817",
    "GemmTunableOp_BFloat16_NN,nn_1024_1024_1024_ld_1024_1024_1024,Gemm_Rocblas_-621294427,0.0105563",
    "GemmAndBiasTunableOp_Half_TN,tn_5120_39232_1280_ld_1280_1280_5120,Gemm_Hipblaslt_477479,4.87196",
    "GemmStridedBatchedTunableOp_float_NT,nt_64_128_32_B_16_ld_64_128_64,Default,0.0121",
    "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e4m3fnuz_BFloat16_TN,"
    "tn_1280_512_8192_ld_8192_8192_1280_rw_1_bias_None,Gemm_Hipblaslt_64,0.0231",
)


def config(tokens, **more):
    """A config as it may be the best for so many tokens, in the order in which the tools write one."""
    block = 16 if tokens < 256 else 32 if tokens < 512 else 64
    return {
        "BLOCK_SIZE_M": block,
        "BLOCK_SIZE_N": 64 if tokens < 8 else 128,
        "BLOCK_SIZE_K": 128 if 32 <= tokens <= 128 else 64,
        "GROUP_SIZE_M": 1 if tokens % 3 else 16,
        "num_warps": 4 if tokens < 1024 else 8,
        "num_stages": 3 if tokens % 3 else 4,
        **more,
    }


def rows(sizes=SIZES, **more):
    return {str(size): config(size, **more) for size in sizes}


def moe(content=None):
    """The text of an MoE table."""
    return json.dumps(rows() if content is None else content, indent=4) + "\n"


def csv(*products, **validators):
    """The text of TunableOp's results; a validator that is None is left out."""
    said = {name: value for name, value in (VALIDATORS | validators).items() if value is not None}
    lines = [f"Validator,{name},{value}" for name, value in said.items()]
    return "".join(line + "\n" for line in [*lines, *(products or PRODUCTS)])


def timed(block, time, **more):
    """A config with its times, as Triton keeps them."""
    launch = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None, "ir_override": None}
    times = [time, time * 0.98, time * 1.05] if isinstance(time, float) else time
    return [{"kwargs": {"BLOCK": block, "EVEN": True}, **launch, **more}, times]


def autotune(*entries, key=(1024, 512, "torch.float16", "torch.float16")):
    """The text of a file of Triton's cache; a time that is infinite is written as Python does."""
    tried = list(entries) or [timed(64, 0.031), timed(128, 0.022, num_warps=8), timed(256, float("inf"))]
    return json.dumps({"key": list(key), "configs_timings": tried})


def folder(what):
    """A folder's name as Triton makes it from a digest."""
    return b32encode(sha256(what.encode()).digest()).decode().rstrip("=")


def healthy():
    """Tables in which nothing is wrong, by file."""
    return {
        H100: moe(),
        MI300: moe(rows(**AMD)),
        BLOCKS: moe(),
        "E=8,N=3584,device_name=NVIDIA_H200.json": moe({"triton_version": "3.4.0", **rows()}),
        "E=8,N=14336,device_name=NVIDIA_A100-SXM4-80GB,dtype=float32.json": moe(rows((1, 4, 16, 64, 256, 1024, 4096))),
        "E=8,N=7168,device_name=NVIDIA_A100-SXM4-80GB,dtype=int4_w4a16,block_shape=[128,128].json": moe(
            {str(size): {"BLOCK_SIZE_M": 16 if size < 64 else 32} for size in SIZES}
        ),
        "E=10,N=512,device_name=Intel(R)_Arc(TM)_Pro_B60_Graphics.json": moe(),
        TRITON + SPACED: moe(),
        TRITON + DOWN: moe(rows(USE_TMA=False)),
        TRITON + "E=64,N=512,device_name=NVIDIA_H200_NVL,dtype=int8_w8a8,per_channel_quant=True.json": moe(),
        "triton_3_3_1/" + SPACED: moe(rows(num_stages=2)),
        "tunableop_results0.csv": csv(),
        "tunableop_results1.csv": csv(PRODUCTS[0].rpartition(",")[0]),
        f"cache/{folder('a')}/matmul_kernel.autotune.json": autotune(),
        f"cache/{folder('b')}/matmul_kernel.autotune.json": autotune(timed(64, 0.3), timed(128, 0.4), key=(64,)),
        f"cache/{folder('c')}/softmax.autotune.json": autotune(timed(64, [0.01]), timed(128, 0.02)),
    }


def put(root, files):
    """Write files, by name, below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root
