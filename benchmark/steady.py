"""Runs a script so that its tensors die at the same places each time: `steady.py SCRIPT ARGUMENTS`.

- Python collects garbage when it has made enough objects, imports included. Here it does so after each backward pass,
  and nowhere else.
- A backward pass runs in a thread of its own, which is still freeing tensors when the script goes on. Here the script
  waits for it, by a pass that is empty.
"""

import gc
import runpy
import sys
from pathlib import Path

import torch

run_backward = torch.autograd._engine_run_backward


def run_and_wait(*arguments, **options):
    found = run_backward(*arguments, **options)
    if torch.cuda.is_initialized():
        with torch._C._DisableFuncTorch(), torch.enable_grad():
            nothing = torch.empty(0, device="cuda", requires_grad=True)
            run_backward((nothing.view(0),), (nothing.detach(),), False, False, (nothing,), allow_unreachable=True,
                         accumulate_grad=False)
    gc.collect()
    return found


torch.autograd._engine_run_backward = run_and_wait
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
gc.collect()
gc.freeze()
gc.disable()
runpy.run_path(sys.argv[0], run_name="__main__")
