"""Equivalents: what stands on the host for operators that PyTorch has for CUDA alone.

They are needed where every kernel is computed (`--values real`). Each takes the CUDA operator's arguments as CPU tensors
and returns its first results, those that a program can use; what only the CUDA backward reads is left out. Dropout
inside attention is left out: the host could not draw what the backward would draw again.
"""

import torch

aten = torch.ops.aten


def weights(query, key, causal, scale, bias):
    """How much each query takes of each value."""
    scores = query @ key.transpose(-2, -1) * scale
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        below = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cpu").tril()
        scores = scores.masked_fill(~below, float("-inf"))
    return scores.softmax(-1)


def widened(query, key, value, scale):
    """In 32 bits, with a key and a value for each query's head, and the scale."""
    groups = query.shape[1] // key.shape[1]
    wide = [x.float().repeat_interleave(groups, 1) for x in (key, value)]
    return query.float(), *wide, query.shape[-1] ** -0.5 if scale is None else scale


def attention(query, key, value, causal, scale, bias=None):
    """Attention by its definition."""
    q, k, v, scale = widened(query, key, value, scale)
    return (weights(q, k, causal, scale, bias) @ v).to(query.dtype)


def attention_backward(grad, query, key, value, causal, scale, bias=None):
    """The gradients of query, key, value and bias."""
    q, k, v, scale = widened(query, key, value, scale)
    taken, grad = weights(q, k, causal, scale, bias), grad.float()
    of_taken = grad @ v.transpose(-2, -1)
    of_scores = taken * (of_taken - (of_taken * taken).sum(-1, keepdim=True))
    of_key = (of_scores.transpose(-2, -1) @ q * scale).unflatten(1, (key.shape[1], -1)).sum(2)
    of_value = (taken.transpose(-2, -1) @ grad).unflatten(1, (key.shape[1], -1)).sum(2)
    found = [of_scores @ k * scale, of_key, of_value]
    return found if bias is None else [*found, of_scores.sum_to_size(bias.shape)]


def flash(query, key, value, dropout=0.0, causal=False, debug=False, *, scale=None):
    return attention(query, key, value, causal, scale)


def flash_backward(grad, query, key, value, out, lse, cq, ck, mq, mk, dropout, causal, *rest, scale=None):
    return attention_backward(grad, query, key, value, causal, scale)


def efficient(query, key, value, bias, lse, dropout=0.0, causal=False, *, scale=None):
    return attention(query, key, value, causal, scale, bias)


def efficient_backward(
    grad, query, key, value, bias, out, lse, seed, offset, dropout, wanted, causal=False, *, scale=None
):
    return attention_backward(grad, query, key, value, causal, scale, bias)


def cudnn(query, key, value, bias, lse, dropout=0.0, causal=False, debug=False, *, scale=None):
    return attention(query, key, value, causal, scale, bias)


def cudnn_backward(
    grad, query, key, value, out, lse, seed, offset, bias, cq, ck, mq, mk, dropout, causal, *, scale=None
):
    return attention_backward(grad, query, key, value, causal, scale, bias)


def convolution(x, weight, padding, stride, dilation, groups, *rest):
    return aten.convolution(x, weight, None, stride, padding, dilation, False, [0], groups)


def convolution_transpose(x, weight, padding, output_padding, stride, dilation, groups, *rest):
    return aten.convolution(
        x, weight, None, stride, padding, dilation, True, output_padding, groups
    )


def depthwise(x, weight, kernel, bias, stride, padding, dilation):
    groups = weight.shape[0] if x.shape[1] == 1 else x.shape[1]
    zeros = [0] * len(kernel)
    return aten.convolution(x, weight, bias, stride, padding, dilation, False, zeros, groups)


def batch_norm(x, weight, bias, mean, variance, training, momentum, epsilon):
    return aten.native_batch_norm(x, weight, bias, mean, variance, training, momentum, epsilon)


def batch_norm_backward(x, grad, weight, mean, variance, saved, inverse, epsilon, reserve):
    return aten.native_batch_norm_backward(
        grad, x, weight, mean, variance, saved, inverse, True, epsilon, [True] * 3
    )


EQUIVALENTS = {
    "_scaled_dot_product_flash_attention": flash,
    "_scaled_dot_product_flash_attention_backward": flash_backward,
    "_scaled_dot_product_efficient_attention": efficient,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "_scaled_dot_product_cudnn_attention": cudnn,
    "_scaled_dot_product_cudnn_attention_backward": cudnn_backward,
    "cudnn_convolution": convolution,
    "cudnn_convolution_transpose": convolution_transpose,
    "_conv_depthwise2d": depthwise,
    "conv_depthwise3d": depthwise,
    "cudnn_batch_norm": batch_norm,
    "cudnn_batch_norm_backward": batch_norm_backward,
}
