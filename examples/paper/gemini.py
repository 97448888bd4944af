"""Colossal-AI's Gemini: parameters in chunks that travel between the ranks.

Its newest package (0.5.0, of June 2025) asks for PyTorch 2.5.1 at most and transformers 4.51.3. It
runs with PyTorch 2.11 as well, next to the rest, if it is installed apart and without dependencies:

    pip install --no-deps --target FOLDER colossalai==0.5.0 transformers==4.51.3 peft==0.13.2 \\
        tokenizers==0.21.4 huggingface_hub==0.36.2 galore_torch bitsandbytes

and FOLDER stands first in PYTHONPATH. Its optimizer's kernels come from `colossal_adam.py`, because
the package would compile its own with nvcc.
"""

import colossal_adam
import colossalai
import torch
from colossalai.booster import Booster
from colossalai.booster.plugin import GeminiPlugin
from colossalai.lazy import LazyInitContext
from colossalai.nn.optimizer import HybridAdam
from models import build, prepare


def engine(given, device):
    """A function that trains on one batch, and the loss as it comes out."""
    if "L" in given.strategy:
        raise SystemExit("train.py: LoRA under Gemini is not in the paper's list: use R, RO or N")
    colossal_adam.register()
    colossalai.launch_from_torch(seed=0, verbose=False)
    share = 1.0 if "O" in given.strategy else 0.0
    plugin = GeminiPlugin(precision="bf16", offload_optim_frac=share)
    booster = Booster(plugin=plugin)
    with LazyInitContext(default_device=device):
        model = build(given.model, dtype=torch.float32)
    model = prepare(model, given.model, given.strategy, reentrant=True)
    optimizer = HybridAdam(model.parameters(), lr=1e-5)
    model, optimizer, *_ = booster.boost(model, optimizer)

    def step(batch):
        loss = model(**batch, use_cache=False).loss
        booster.backward(loss, optimizer)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
