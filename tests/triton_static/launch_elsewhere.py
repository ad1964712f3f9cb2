"""Process B: launches under a driver that is none, and says of each kernel whether Triton had to compile it."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import sample_kernels as kernels
import torch
import triton

from tunewright.testing.triton_driver import FakeDriver

triton.runtime.driver.set_active(FakeDriver(noted=False))
hits: list[bool] = []
triton.knobs.compilation.listener = lambda **said: hits.append(said["cache_hit"])
square = torch.zeros(256, 256, dtype=torch.float16)
small = kernels.tuned.configs[0].all_kwargs()
kernels.product[(64,)](square, square.clone(), square.clone(), 256, 256, 256, 256, 1, 256, 1, 256, 1, **small)
line = torch.zeros(1024)
kernels.added[(8,)](line, line.clone(), 1024)
sys.stdout.write(json.dumps(hits))
