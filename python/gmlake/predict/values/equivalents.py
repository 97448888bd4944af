"""Equivalents: what stands on the host for operators that PyTorch has for CUDA alone, or that choose otherwise there.

Most are needed where every kernel is computed (`--values real`). Each takes the CUDA operator's arguments, under the names
of its schema, as CPU tensors, and returns its first results, those that a program can use; what only the CUDA backward
reads is left out. Dropout inside attention is left out: the host could not draw what the backward would draw again.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable

import torch

if TYPE_CHECKING:
    from torch import Tensor

aten = torch.ops.aten

MOST_SORTED = 4096  # elements, from which on the order of equal ones is not worth the time


def of(name: str, schema: Any) -> Callable[..., Any] | None:
    """The function that stands for this operator, called as it is; None where the host has the operator.

    It returns new results, so none stands for an overload that writes into given tensors.
    """
    function = EQUIVALENTS.get(name)
    if function is None or schema.is_mutable:
        return None
    arguments = schema.arguments
    defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}

    def call(*args: Any, **kwargs: Any) -> Any:
        given = {each.name: value for each, value in zip(arguments, args)}
        return function(SimpleNamespace(**{**defaults, **given, **kwargs}))

    return call


def weights(query: Tensor, key: Tensor, is_causal: bool, scale: float, bias: Tensor | None) -> Tensor:
    """How much each query takes of each value."""
    scores = query @ key.transpose(-2, -1) * scale
    if bias is not None:
        scores = scores + bias.float()
    if is_causal:
        scores = scores + causal(query, key)
    return scores.softmax(-1)


def widened(call: SimpleNamespace) -> tuple[Tensor, Tensor, Tensor, float]:
    """Query, key and value in 32 bits, with a key and a value for each query's head, and the scale."""
    query, key = call.query, call.key
    groups = query.shape[1] // key.shape[1]
    wide = [x.float().repeat_interleave(groups, 1) for x in (key, call.value)]
    return query.float(), *wide, query.shape[-1] ** -0.5 if call.scale is None else call.scale


def attention(call: SimpleNamespace, bias: Tensor | None = None) -> Tensor:
    """Attention by its definition."""
    groups = call.query.shape[1] // call.key.shape[1]
    k, v = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (call.key, call.value))
    mask = bias if bias is None or not call.is_causal else bias + causal(call.query, k).to(bias.dtype)
    return torch.nn.functional.scaled_dot_product_attention(
        call.query, k, v, mask, is_causal=call.is_causal and bias is None, scale=call.scale
    )


def causal(query: Tensor, key: Tensor) -> Tensor:
    """What is added to the scores so that no query sees what comes after it."""
    whole = torch.full((query.shape[-2], key.shape[-2]), float("-inf"), device="cpu")
    return whole.triu(1)


def attention_backward(call: SimpleNamespace, grad: Tensor, bias: Tensor | None = None) -> list[Tensor]:
    """The gradients of query, key, value and bias."""
    q, k, v, scale = widened(call)
    taken, grad, heads = weights(q, k, call.is_causal, scale, bias), grad.float(), (call.key.shape[1], -1)
    of_taken = grad @ v.transpose(-2, -1)
    of_scores = taken * (of_taken - (of_taken * taken).sum(-1, keepdim=True))
    of_key = (of_scores.transpose(-2, -1) @ q * scale).unflatten(1, heads).sum(2)
    of_value = (taken.transpose(-2, -1) @ grad).unflatten(1, heads).sum(2)
    found = [of_scores @ k * scale, of_key, of_value]
    return found if bias is None else [*found, of_scores.sum_to_size(bias.shape)]


def biased(call: SimpleNamespace) -> Tensor:
    """Attention with a bias that may be none."""
    return attention(call, call.attn_bias)


def flash_backward(call: SimpleNamespace) -> list[Tensor]:
    """The gradients of attention without a bias."""
    return attention_backward(call, call.grad_out)


def efficient_backward(call: SimpleNamespace) -> list[Tensor]:
    """The gradients of memory-efficient attention."""
    return attention_backward(call, call.grad_out_, call.attn_bias)


def cudnn_backward(call: SimpleNamespace) -> list[Tensor]:
    """The gradients of cuDNN's attention."""
    return attention_backward(call, call.grad_out, call.attn_bias)


def convolution(call: SimpleNamespace) -> Tensor:
    """A convolution without a bias."""
    return aten.convolution(
        call.self, call.weight, None, call.stride, call.padding, call.dilation, False, [0], call.groups
    )


def convolution_transpose(call: SimpleNamespace) -> Tensor:
    """A transposed convolution without a bias."""
    return aten.convolution(
        call.self, call.weight, None, call.stride, call.padding, call.dilation, True, call.output_padding, call.groups
    )


def depthwise(call: SimpleNamespace) -> Tensor:
    """A convolution of each channel by itself."""
    groups = call.weight.shape[0] if call.self.shape[1] == 1 else call.self.shape[1]
    zeros = [0] * len(call.kernel_size)
    return aten.convolution(
        call.self, call.weight, call.bias, call.stride, call.padding, call.dilation, False, zeros, groups
    )


def batch_norm(call: SimpleNamespace) -> tuple[Tensor, ...]:
    """Normalization over a batch."""
    return aten.native_batch_norm(
        call.input, call.weight, call.bias, call.running_mean, call.running_var, call.training,
        call.exponential_average_factor, call.epsilon,
    )


def batch_norm_backward(call: SimpleNamespace) -> tuple[Tensor, ...]:
    """The gradients of normalization over a batch."""
    return aten.native_batch_norm_backward(
        call.grad_output, call.input, call.weight, call.running_mean, call.running_var, call.save_mean, call.save_var,
        True, call.epsilon, [True] * 3,
    )


def topk(call: SimpleNamespace) -> tuple[Tensor, ...]:
    """The largest: of equal ones those that come first, as CUDA's kernel takes them. Scores of 16 bits are often equal."""
    if call.self.dim() == 0 or call.self.shape[call.dim] > MOST_SORTED:
        return aten.topk(call.self, call.k, call.dim, call.largest, call.sorted)
    found = aten.sort.stable(call.self, stable=True, dim=call.dim, descending=call.largest)
    return tuple(each.narrow(call.dim, 0, call.k) for each in found)


EQUIVALENTS: dict[str, Callable[[SimpleNamespace], Any]] = {
    "_scaled_dot_product_flash_attention": attention,
    "_scaled_dot_product_flash_attention_backward": flash_backward,
    "_scaled_dot_product_efficient_attention": biased,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "_scaled_dot_product_cudnn_attention": biased,
    "_scaled_dot_product_cudnn_attention_backward": cudnn_backward,
    "cudnn_convolution": convolution,
    "cudnn_convolution_transpose": convolution_transpose,
    "_conv_depthwise2d": depthwise,
    "conv_depthwise3d": depthwise,
    "cudnn_batch_norm": batch_norm,
    "cudnn_batch_norm_backward": batch_norm_backward,
    "topk": topk,
}
