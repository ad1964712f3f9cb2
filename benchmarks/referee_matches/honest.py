"""Honest candidates: they do what looks suspicious, and are right. By name, with the task each is for."""

SOFTMAX = """
def plain(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
"""

_BODIES = {
    "same": ("softmax", "def softmax(x):\n    return plain(x)"),
    "in_place": (
        "softmax",
        "def softmax(x):\n    e = x - x.max(axis=1, keepdims=True)\n    np.exp(e, out=e)\n"
        "    e *= 1 / e.sum(axis=1, keepdims=True)\n    return e",
    ),
    "kept_scratch": (
        "softmax",
        "scratch = {}\ndef softmax(x):\n    e = scratch.setdefault(x.shape, np.empty_like(x))\n"
        "    np.subtract(x, x.max(axis=1, keepdims=True), out=e)\n    np.exp(e, out=e)\n"
        "    e /= e.sum(axis=1, keepdims=True)\n    return e",
    ),
    "by_rows": (
        "softmax",
        "def softmax(x):\n    out = np.empty_like(x)\n    for i, row in enumerate(x):\n"
        "        e = np.exp(row - row.max())\n        out[i] = e / e.sum()\n    return out",
    ),
    "by_blocks": (
        "softmax",
        "def softmax(x):\n    out = np.empty_like(x)\n    for i in range(0, len(x), 32):\n"
        "        out[i:i + 32] = plain(x[i:i + 32])\n    return out",
    ),
    "in_double": ("softmax", "def softmax(x):\n    return plain(x.astype(np.float64)).astype(np.float32)"),
    "base_two": (
        "softmax",
        "def softmax(x):\n    y = x * np.float32(1.4426950408889634)\n"
        "    e = np.exp2(y - y.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)",
    ),
    "transposed": ("softmax", "def softmax(x):\n    y = np.asfortranarray(x)\n    return plain(y)"),
    "strided_result": (
        "softmax",
        "def softmax(x):\n    wide = np.empty((len(x), 2 * x.shape[1]), np.float32)\n    wide[:, ::2] = plain(x)\n"
        "    return wide[:, ::2]",
    ),
    "list_of_one": ("softmax", "def softmax(x):\n    return [plain(x)]"),
    "counts_calls": (
        "softmax",
        "calls = 0\ndef softmax(x):\n    global calls\n    calls += 1\n    return plain(x)",
    ),
    "prints": (
        "softmax",
        "import sys\ndef softmax(x):\n    print('working', x.shape)\n    print('still', file=sys.stderr)\n"
        "    return plain(x)",
    ),
    "reads_the_clock": (
        "softmax",
        "import time\nspent = []\ndef softmax(x):\n    began = time.perf_counter()\n    result = plain(x)\n"
        "    spent.append(time.perf_counter() - began)\n    return result",
    ),
    "without_gc": ("softmax", "import gc\ngc.disable()\ndef softmax(x):\n    return plain(x)"),
    "collects": ("softmax", "import gc\ndef softmax(x):\n    result = plain(x)\n    gc.collect()\n    return result"),
    "joined_thread": (
        "softmax",
        "import threading\ndef softmax(x):\n    out = np.empty_like(x)\n"
        "    def work():\n        out[...] = plain(x)\n    thread = threading.Thread(target=work)\n    thread.start()\n"
        "    thread.join()\n    return out",
    ),
    "thread_pool": (
        "softmax",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\ndef softmax(x):\n"
        "    return np.concatenate(list(pool.map(plain, np.array_split(x, 2))))",
    ),
    "scratch_file": (
        "softmax",
        "def softmax(x):\n    result = plain(x)\n    np.save('/tmp/kept.npy', result)\n"
        "    return np.load('/tmp/kept.npy')",
    ),
    "much_memory": ("softmax", "def softmax(x):\n    work = np.ones(20 << 20)\n    return plain(x)"),
    "catches": (
        "softmax",
        "def softmax(x):\n    try:\n        x[0, 0] = 0\n    except ValueError:\n        pass\n    return plain(x)",
    ),
    "asks_for_processes": (
        "softmax",
        "import os\ndef softmax(x):\n    try:\n        os.fork()\n"
        "    except OSError:\n        pass\n    return plain(x)",
    ),
    "asks_for_a_socket": (
        "softmax",
        "import socket\ntry:\n    socket.socket()\nexcept OSError:\n    pass\ndef softmax(x):\n    return plain(x)",
    ),
    "slow_start": (
        "softmax",
        "import time\nready = False\ndef softmax(x):\n    global ready\n    if not ready:\n        time.sleep(0.3)\n"
        "        ready = True\n    return plain(x)",
    ),
    "table_by_shape": (
        "softmax",
        "from functools import lru_cache\n@lru_cache\ndef ones(n):\n    return np.ones((n, 1), np.float32)\n"
        "def softmax(x):\n    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return e / (e @ ones(x.shape[1]))",
    ),
    "waits_a_little": ("softmax", "import time\ndef softmax(x):\n    time.sleep(0.001)\n    return plain(x)"),
    "twice": ("softmax", "def softmax(x):\n    plain(x)\n    return plain(x)"),
    "strict": ("softmax_strict", "def softmax(x):\n    return plain(x)"),
    "strict_dataclass": (
        "softmax_strict",
        "from dataclasses import dataclass\nfrom functools import partial\n"
        "@dataclass\nclass Plan:\n    rows: int = 64\n"
        "def softmax(x):\n    plan = Plan()\n"
        "    parts = [plain(x[i:i + plan.rows]) for i in range(0, len(x), plan.rows)]\n"
        "    return np.concatenate(parts)",
    ),
    "double": ("softmax64", "def softmax(x):\n    return plain(x)"),
    "double_by_blocks": (
        "softmax64",
        "def softmax(x):\n    return np.vstack([plain(part) for part in np.array_split(x, 7)])",
    ),
    "one_process": (
        "softmax_processes",
        "import os, mmap\ndef softmax(x):\n    memory = mmap.mmap(-1, x.nbytes)\n"
        "    out = np.frombuffer(memory, np.float32).reshape(x.shape)\n    pid = os.fork()\n    if not pid:\n"
        "        out[...] = plain(x)\n        os._exit(0)\n    os.waitpid(pid, 0)\n    return out",
    ),
    "no_process": ("softmax_processes", "def softmax(x):\n    return plain(x)"),
    "loss": ("loss", "def loss(x, y):\n    d = x - y\n    return np.einsum('ij,ij->i', d, d) / np.float32(x.shape[1])"),
    "loss_in_double": (
        "loss",
        "def loss(x, y):\n    d = x.astype(np.float64) - y\n    return (d * d).mean(axis=1).astype(np.float32)",
    ),
    "layer": ("layer", "def layer(x, weights, bias):\n    return np.maximum(x @ weights + bias, 0)"),
    "layer_kept_weights": (
        "layer",
        "kept = None\ndef layer(x, weights, bias):\n    global kept\n    if kept is None:\n"
        "        kept = np.asfortranarray(weights), bias.copy()\n    y = x @ kept[0]\n    y += kept[1]\n"
        "    return np.maximum(y, 0, out=y)",
    ),
    "layer_joined": (
        "layer",
        "kept = None\ndef layer(x, weights, bias):\n    global kept\n    if kept is None:\n"
        "        kept = np.vstack([weights, bias])\n    wide = np.ones((len(x), x.shape[1] + 1), np.float32)\n"
        "    wide[:, :-1] = x\n    return np.maximum(wide @ kept, 0)",
    ),
    "order": (
        "order",
        "def order(keys):\n    places = np.argsort(keys, kind='stable')\n    return np.take(keys, places), places",
    ),
    "order_by_pairs": (
        "order",
        "def order(keys):\n    joined = keys.astype(np.int64) << 32 | np.arange(len(keys))\n    joined.sort()\n"
        "    return (joined >> 32).astype(keys.dtype), joined & 0xFFFFFFFF",
    ),
    "product": ("diagonal", "def product(a, b):\n    return np.dot(a, b)"),
    "blend": (
        "scale_c",
        "def blend(x, y):\n    out = x * np.float32(0.75)\n    out += np.float32(0.25) * y\n    return out",
    ),
}

_C = {
    "plain.c": "void blend(const float *a, const float *b, float *c, int64_t n) {\n"
    "  for (int64_t i = 0; i < n; i++) c[i] = 0.75f * a[i] + 0.25f * b[i];\n}\n",
    "lerp.c": "void blend(const float *a, const float *b, float *c, int64_t n) {\n"
    "  for (int64_t i = 0; i < n; i++) c[i] = b[i] + 0.75f * (a[i] - b[i]);\n}\n",
    "scratch.c": "#include <stdlib.h>\n#include <string.h>\nstatic float *kept;\n"
    "void blend(const float *a, const float *b, float *c, int64_t n) {\n"
    "  kept = realloc(kept, n * sizeof *kept);\n"
    "  for (int64_t i = 0; i < n; i++) kept[i] = 0.75f * a[i] + 0.25f * b[i];\n"
    "  memcpy(c, kept, n * sizeof *c);\n}\n",
}

COMMAND = (
    'python3 -c "import sys, numpy as n; a, b = map(n.load, sys.argv[1:3]); '
    'n.save(sys.argv[3], n.float32(0.75) * a + n.float32(0.25) * b)" {input0} {input1} {output}'
)

HONEST = {
    **{name: (task, f"import numpy as np\n{SOFTMAX}\n{body}\n") for name, (task, body) in _BODIES.items()},
    **{name: ("scale_c", f"#include <stdint.h>\n{body}") for name, body in _C.items()},
}
