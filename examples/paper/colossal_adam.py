"""Adam for Colossal-AI without a compiler: the two kernels that its `HybridAdam` would build with nvcc.

Both work in place and ask for no memory, as the package's own do: the one for the GPU is a Triton
kernel, the one for the host is written with PyTorch's operations. `register()` puts them where the
package looks for its kernels.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def update(g_at, p_at, m_at, v_at, n, rate, b1, b2, eps, fix1, fix2, decay, scale, B: tl.constexpr):
    """One block of one tensor: AdamW, with the gradient divided by the loss scale."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < n
    g = tl.load(g_at + at, inside).to(tl.float32) / scale
    p = tl.load(p_at + at, inside).to(tl.float32)
    m = b1 * tl.load(m_at + at, inside).to(tl.float32) + (1 - b1) * g
    v = b2 * tl.load(v_at + at, inside).to(tl.float32) + (1 - b2) * g * g
    p -= rate * (m / fix1 / (tl.sqrt(v / fix2) + eps) + decay * p)
    tl.store(p_at + at, p, inside)
    tl.store(m_at + at, m, inside)
    tl.store(v_at + at, v, inside)


def corrections(step, b1, b2, wanted):
    """What the averages are divided by while they are young."""
    return (1 - b1**step, 1 - b2**step) if wanted else (1.0, 1.0)


class OnGpu:
    """All tensors of a group, one launch for each."""

    @staticmethod
    def multi_tensor_adam(_, _overflow, lists, rate, b1, b2, eps, step, _mode, fix, decay, scale):
        fix1, fix2 = corrections(step, b1, b2, fix)
        scale = scale if scale > 0 else 1.0
        for g, p, m, v in zip(*lists):
            grid = (triton.cdiv(p.numel(), BLOCK),)
            update[grid](
                g, p, m, v, p.numel(), rate, b1, b2, eps, fix1, fix2, decay, scale, B=BLOCK
            )


class OnHost:
    """One tensor that was moved to the host."""

    def __init__(self, *_):
        pass

    def step(self, step, rate, b1, b2, eps, decay, fix, p, g, m, v, scale):
        fix1, fix2 = corrections(step, b1, b2, fix)
        g = g.float() / (scale if scale > 0 else 1.0)
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        p.mul_(1 - rate * decay).addcdiv_(m / fix1, (v / fix2).sqrt_().add_(eps), value=-rate)


class HostModule:
    """What the package expects its compiled module for the host to hold."""

    CPUAdamOptimizer = OnHost


def register():
    """From now on `HybridAdam` uses these."""
    from colossalai.kernel.extensions.base_extension import _Extension
    from colossalai.kernel.kernel_loader import CPUAdamLoader, FusedOptimizerLoader

    def extension(module):
        methods = {
            "__init__": lambda self: _Extension.__init__(self, module.__name__, False, True),
            "is_available": lambda self: True,
            "assert_compatible": lambda self: None,
            "build_aot": lambda self: None,
            "build_jit": lambda self: module,
            "load": lambda self: module,
        }
        return type(module.__name__, (_Extension,), methods)

    FusedOptimizerLoader.REGISTRY = [extension(OnGpu)]
    CPUAdamLoader.REGISTRY = [extension(HostModule)]
