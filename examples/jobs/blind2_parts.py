"""What the jobs of blind2.py are made of: layers, functions of their own, and an optimizer."""

import torch
from torch import nn
from torch.nn import functional as F


def small(sizes):
    """A perceptron."""
    pairs = list(zip(sizes, sizes[1:]))
    layers = [m for a, b in pairs for m in (nn.Linear(a, b), nn.GELU())]
    return nn.Sequential(*layers[:-1])


def encoded(at):
    """Places with sines and cosines of ten frequencies: 63 features."""
    angles = (at[..., None] * 2.0 ** torch.arange(10, device=at.device)).flatten(-2)
    return torch.cat([at, angles.sin(), angles.cos()], -1)


def farthest(at, kept):
    """Numbers of points, each the farthest from those before."""
    chosen = torch.zeros(at.shape[0], kept, dtype=torch.long, device=at.device)
    far = torch.full(at.shape[:2], 1e10, device=at.device)
    last = chosen[:, 0]
    for i in range(kept):
        chosen[:, i] = last
        center = at.gather(1, last[:, None, None].expand(-1, 1, 3))
        far = torch.minimum(far, (at - center).square().sum(-1))
        last = far.argmax(1)
    return chosen


class SetLayer(nn.Module):
    """A perceptron for each neighbour, and the maximum over a neighbourhood."""

    def __init__(self, inside, outside):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inside, outside), nn.ReLU(), nn.Linear(outside, outside))

    def forward(self, features, near):
        batch, centers, count = near.shape
        index = near.flatten(1)[..., None].expand(-1, -1, features.shape[-1])
        return self.net(features.gather(1, index)).view(batch, centers, count, -1).amax(2)


class Scan(nn.Module):
    """A gated linear recurrence along a sequence."""

    def __init__(self, width, inner):
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * inner), nn.Linear(inner, width)

    def forward(self, x):
        value, gate, keep = self.into(self.norm(x)).chunk(3, -1)
        keep = keep.float().sigmoid()
        value, reach = value.float() * (1 - keep), 1
        while reach < x.shape[1]:
            earlier = F.pad(value, (0, 0, reach, 0))[:, : x.shape[1]]
            value = value + keep * earlier
            keep = keep * F.pad(keep, (0, 0, reach, 0))[:, : x.shape[1]]
            reach *= 2
        return self.out(value.to(gate.dtype) * F.silu(gate))


def lattice_loss(scores, ids):
    """The logarithm of all ways through a lattice of frames and words; the last word is the blank."""
    batch, frames, length, _ = scores.shape
    blank = scores[..., -1]
    emit = scores[:, :, :-1].gather(3, ids[:, None, :, None].expand(-1, frames, -1, 1))[..., 0]
    rows = blank[:, 0, :1].new_zeros(batch, 1)
    row = torch.cat([rows, emit[:, 0].cumsum(1)], 1)
    for frame in range(1, frames):
        stay = row + blank[:, frame - 1]
        cells = [stay[:, 0]]
        for word in range(1, length):
            cells.append(torch.logaddexp(stay[:, word], cells[-1] + emit[:, frame, word - 1]))
        row = torch.stack(cells, 1)
    return -(row[:, -1] + blank[:, -1, -1]).mean()


def apply_gate(state, angle, qubit):
    """A rotation of one qubit, and a phase with its neighbour."""
    a, b, c = angle
    turn = torch.stack([torch.cos(a), -torch.sin(b), torch.sin(c), torch.cos(a)]).view(2, 2)
    moved = torch.tensordot(turn.to(torch.complex64), state, ([1], [qubit])).movedim(0, qubit)
    sign = torch.ones(2, 2, device=state.device)
    sign[1, 1] = -1
    shape = [1] * state.dim()
    shape[qubit] = shape[(qubit + 1) % state.dim()] = 2
    return moved * sign.view(shape)


def forward_scores(scores, moves):
    """The logarithm of all chains of labels."""
    total = scores[0]
    for step in scores[1:]:
        total = torch.logsumexp(total[:, :, None] + moves, 1) + step
    return torch.logsumexp(total, 1)


class Trunk(nn.Module):
    """Convolutions with strides, and residual ones between them."""

    def __init__(self):
        super().__init__()
        widths = [3, 72, 144, 288, 576]
        self.down = nn.ModuleList(nn.Conv2d(a, b, 4, 2, 1) for a, b in zip(widths, widths[1:]))
        self.keep = nn.ModuleList(nn.Conv2d(b, b, 3, padding=1) for b in widths[1:])
        self.norm = nn.ModuleList(nn.GroupNorm(8, b) for b in widths[1:])
        self.head = nn.Linear(576, 128)

    def forward(self, x):
        for down, keep, norm in zip(self.down, self.keep, self.norm):
            x = F.relu(down(x))
            x = x + F.relu(norm(keep(x)))
        return self.head(x.mean((2, 3)))


def bundle(one, two):
    """Both halves of a pair of layers as functions."""
    return one, two


class Coupled(torch.autograd.Function):
    """y1 = x1 + f(x2), y2 = x2 + g(y1); nothing is kept but the result, from which all is computed back."""

    @staticmethod
    def forward(ctx, x, y, pair, *parameters):
        ctx.pair, ctx.parameters = pair, parameters
        with torch.no_grad():
            x = x + pair[0](y)
            y = y + pair[1](x)
        ctx.save_for_backward(x, y)
        return x, y

    @staticmethod
    def backward(ctx, slope_x, slope_y):
        (x, y), (one, two) = ctx.saved_tensors, ctx.pair
        with torch.enable_grad():
            inside = x.detach().requires_grad_()
            after = two(inside)
        own = [p for p in two.parameters()]
        found_two = torch.autograd.grad(after, [inside, *own], slope_y)
        y = y - after.detach()
        slope_x = slope_x + found_two[0]
        with torch.enable_grad():
            inside = y.detach().requires_grad_()
            after = one(inside)
        found_one = torch.autograd.grad(after, [inside, *one.parameters()], slope_x)
        return slope_x, slope_y + found_one[0], None, *found_one[1:], *found_two[1:]


class Quantized(torch.optim.Optimizer):
    """Adam whose two moments are kept in eight bits, by blocks of 2,048."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                first, second = self.read(state, "first", p), self.read(state, "second", p)
                first = first.lerp(p.grad, 0.1)
                second = second.lerp(p.grad.square(), 0.01)
                p.sub_(group["lr"] * first / (second.sqrt() + 1e-8))
                self.write(state, "first", first)
                self.write(state, "second", second)

    def read(self, state, name, p):
        if name not in state:
            return torch.zeros_like(p)
        codes, scale = state[name]
        return (codes.float() * scale).flatten()[: p.numel()].view_as(p)

    def write(self, state, name, value):
        rest = -value.numel() % 2048
        blocks = F.pad(value.flatten(), (0, rest)).view(-1, 2048)
        scale = blocks.abs().amax(1, keepdim=True) / 127 + 1e-12
        state[name] = (blocks / scale).round().to(torch.int8), scale


def projected(gradient, count):
    """The first directions of a matrix."""
    return torch.linalg.svd(gradient.float(), full_matrices=False)[0][:, :count].contiguous()
