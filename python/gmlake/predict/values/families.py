"""Families: operators that are left as they are, since no value that they make could matter.

Names may end in `*`. Those that write into tensors which exist are never left, except for views and what changes only
the shape: what they write over may have been known.
"""

from __future__ import annotations

import fnmatch
import re

# Views, sizes, and what computes nothing.
SHAPES = """
as_strided view view_as_real view_as_complex _reshape_alias unfold resize_ resize_as_ set_
record_stream empty empty_strided is_set_to _assert_async _efficientzerotensor
_fused_sdp_choice _use_* _nested* _to_sparse* _cslt* _convert_weight* _validate* _make_per*
quantize* dequantize _flash_attention* _efficient_attention* _cudnn_attention*
"""

# New tensors of floats, mostly large. The list is for speed: a call that is left costs nothing.
FLOATS = """
*mm *mm_v2 addmv addr dot vdot *attention* _transformer* *sdp* *conv* *_norm *_norm_*
*batch_norm* *dropout *pool* *upsample* *softmax* _foreach* *backward* *_jvp *loss*
gelu silu mish elu glu leaky_relu hardswish hardsigmoid _thnn* *rnn* *embedding_bag*
grid_sampler* cudnn* miopen* _cudnn* linalg* _linalg* special* _fft* *fake_quantize*
_sparse* im2col col2im
"""

# Called by `pow` and `isin` of a number with a number on the device, which no Python kernel can be
# handed. The callers are replaced, so that nothing is lost.
INNER = frozenset(["aten::pow.Tensor_Tensor_out", "aten::isin.Tensor_Tensor_out"])

# Not a gradient: `istft` sums its windows by it.
SUMS = frozenset(["unfold_backward"])


def _any(names: str) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, names.split())))


_SHAPES, _FLOATS = _any(SHAPES), _any(FLOATS)


def is_left(name: str, mutable: bool, everything: bool) -> bool:
    """Whether this operator is left as it is; `everything`: even floats are computed."""
    base = name.split("::")[1].split(".", maxsplit=1)[0]
    if name in INNER or _SHAPES.match(base):
        return True
    return not mutable and not everything and base not in SUMS and _FLOATS.match(base) is not None
