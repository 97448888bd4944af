"""What the jobs of blind3.py are made of."""

import tempfile

import torch
from blind_parts import BF16
from torch import nn
from torch.nn import functional as F


def pictures(batch, side):
    """Random pictures on the GPU."""
    return torch.randn(batch, 3, side, side).to("cuda")


@torch.no_grad()
def ema(slow, fast, share=0.01):
    """The average follows."""
    for old, new in zip(slow.parameters(), fast.parameters()):
        old.lerp_(new, share)


class Generator(nn.Module):
    """Noise to pictures of 64 by 64, by transposed convolutions."""

    def __init__(self):
        super().__init__()
        parts = [nn.ConvTranspose2d(128, 512, 4)]
        for width in (512, 256, 128):
            parts += [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, width // 2, 4, 2, 1)]
        self.body = nn.Sequential(*parts, nn.ReLU(True), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())

    def forward(self, noise):
        return self.body(noise[:, :, None, None])


class Critic(nn.Module):
    """Pictures of 64 by 64 to a score."""

    def __init__(self):
        super().__init__()
        parts = []
        for inside, width in ((3, 64), (64, 128), (128, 256), (256, 512)):
            parts += [nn.Conv2d(inside, width, 4, 2, 1), nn.LeakyReLU(0.2)]
        self.body = nn.Sequential(*parts, nn.Flatten(), nn.Linear(512 * 16, 1))

    def forward(self, x):
        return self.body(x)


class Volume(nn.Module):
    """A U of three depths, with convolutions in three dimensions."""

    def __init__(self, widths):
        super().__init__()

        def twice(inside, width):
            parts = []
            for before in (inside, width):
                parts += [nn.Conv3d(before, width, 3, padding=1), nn.InstanceNorm3d(width), nn.LeakyReLU(0.01, True)]
            return nn.Sequential(*parts)

        self.down = nn.ModuleList(twice(a, b) for a, b in zip([1, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(twice(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv3d(widths[0], 3, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(x if not kept else F.max_pool3d(x, 2))
            kept.append(x)
        for up, join, beside in zip(reversed(self.up), reversed(self.join), reversed(kept[:-1])):
            x = join(torch.cat([up(x), beside], 1))
        return self.head(x)


def anchors(widths, count):
    """Convolutions that halve the sides, and `count` numbers for each place."""
    parts = []
    for inside, width in zip(widths, widths[1:]):
        parts += [nn.Conv2d(inside, width, 3, 2, 1), nn.GroupNorm(8, width), nn.SiLU()]
    return nn.Sequential(*parts, nn.Conv2d(widths[-1], count, 1))


def apply_boxes(out):
    """A loss of boxes: those that match by overlap, and of the rest the best that no better one overlaps."""
    batch, count, _ = out.shape
    corner, size = out[..., :2].sigmoid(), out[..., 2:4].sigmoid() * 0.2
    truth = torch.rand(batch, 8, 4).to("cuda")
    truth[..., 2:] = truth[..., :2] + 0.2
    own = torch.cat([corner, corner + size], -1)
    shared = overlap(own, truth)
    best, which = shared.max(-1)
    positive = best > 0.3
    matched = truth.gather(1, which[..., None].expand(-1, -1, 4))
    loss = F.smooth_l1_loss(own[positive], matched[positive], reduction="sum") / positive.sum().clamp(min=1)
    score = out[..., 4]
    loss = loss + F.binary_cross_entropy_with_logits(score, positive.float())
    with torch.no_grad():
        top, places = score.topk(min(1000, count), -1)
        chosen = own.gather(1, places[..., None].expand(-1, -1, 4))
        kept = (overlap(chosen, chosen).triu(1) > 0.5).sum(1) == 0
        found = torch.cat([chosen[kept], top[kept][:, None]], 1)
    return loss + 0 * found.sum()


def overlap(one, other):
    """The intersection of each box with each, over their union."""
    low = torch.max(one[:, :, None, :2], other[:, None, :, :2])
    high = torch.min(one[:, :, None, 2:], other[:, None, :, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    area = [(box[..., 2:] - box[..., :2]).prod(-1) for box in (one, other)]
    return inside / (area[0][:, :, None] + area[1][:, None] - inside + 1e-6)


class Ragged(nn.Module):
    """Layers over nested tensors."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))

    def forward(self, x):
        for i, (qkv, out, up, down) in enumerate(zip(self.qkv, self.out, self.up, self.down)):
            parts = qkv(self.norms[2 * i](x)).chunk(3, -1)
            q, k, v = (part.unflatten(-1, [self.heads, -1]).transpose(1, 2) for part in parts)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
            x = x + out(mixed)
            x = x + down(F.gelu(up(self.norms[2 * i + 1](x))))
        return x


def cached_step(model, ids, at, keys):
    """One token for each row, with keys and values written to their places."""
    x = model.tokens(ids)
    rows = ids.shape[0]
    seen = (torch.arange(keys.shape[4], device="cuda") <= at)[None, None, None]
    for block, (key, value) in zip(model.blocks, keys):
        q, k, v = block.qkv(block.norm1(x)).view(rows, 1, 3, block.heads, -1).permute(2, 0, 3, 1, 4)
        key[:rows].index_copy_(2, at, k)
        value[:rows].index_copy_(2, at, v)
        mixed = F.scaled_dot_product_attention(q, key[:rows], value[:rows], attn_mask=seen)
        x = x + block.out(mixed.transpose(1, 2).reshape(rows, 1, -1))
        x = x + block.down(F.gelu(block.up(block.norm2(x))))
    return model.head(model.norm(x))[:, -1]


class Texts(torch.utils.data.Dataset):
    """Texts of varied lengths, for a trainer that pads them."""

    def __init__(self, draw, count):
        self.items = [torch.randint(5, 30_000, (draw.randrange(30, 500),)) for _ in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        ids = self.items[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(ids[0]) % 4}


def padded(items):
    """A batch as long as its longest text."""
    rows = {key: nn.utils.rnn.pad_sequence([item[key] for item in items], True) for key in ("input_ids", "attention_mask")}
    return {**rows, "labels": torch.tensor([item["labels"] for item in items])}


def trainer(draw):
    """A classifier of texts and what trains it."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, num_labels=4)
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=48, gradient_accumulation_steps=3,
        gradient_checkpointing=True, bf16=True, max_steps=8, eval_strategy="steps", eval_steps=3, save_strategy="no",
        report_to=[], disable_tqdm=True, logging_steps=2, seed=5)
    model = BertForSequenceClassification(config)
    return Trainer(model, arguments, padded, Texts(draw, 400), Texts(draw, 150))


def graph(nodes, near):
    """A sparse matrix with `near` neighbours a node, rows that add up to 1."""
    place = torch.randint(0, nodes, (2, nodes * near), generator=torch.Generator().manual_seed(nodes))
    weights = torch.full((nodes * near,), 1 / near)
    return torch.sparse_coo_tensor(place.to("cuda"), weights.to("cuda"), (nodes, nodes)).coalesce()


class Vocoder(nn.Module):
    """Spectra to sound, 64 samples a frame."""

    def __init__(self, bands, width):
        super().__init__()
        parts = [nn.Conv1d(bands, width, 7, padding=3)]
        for stride in (8, 4, 2):
            parts += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(width, width // 2, 2 * stride, stride, stride // 2)]
            width //= 2
            parts += [nn.LeakyReLU(0.1), nn.Conv1d(width, width, 7, padding=9, dilation=3)]
        self.body = nn.Sequential(*parts, nn.LeakyReLU(0.1), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh())

    def forward(self, x):
        return self.body(x)


def spectra(sound, truth):
    """How far apart two sounds are, in spectra of three resolutions."""
    loss = 0
    for size in (256, 512, 1024):
        window = torch.hann_window(size, device="cuda")
        near, far = (torch.stft(x, size, size // 4, window=window, return_complex=True).abs() for x in (sound, truth))
        loss = loss + (near - far).norm() / far.norm() + F.l1_loss(near.clamp(min=1e-5).log(), far.clamp(min=1e-5).log())
    return loss


class Windowed(nn.Module):
    """Attention inside of windows of 6 by 6, every second time shifted by 3."""

    def __init__(self, width, heads, shift):
        super().__init__()
        self.heads, self.shift = heads, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(heads, 36, 36))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, side, _, width = x.shape
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-3, -3), (1, 2))
        y = y.view(batch, side // 6, 6, side // 6, 6, width).transpose(2, 3).reshape(-1, 36, width)
        q, k, v = self.qkv(y).view(-1, 36, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias.to(q.dtype)[None])
        y = self.out(y.transpose(1, 2).reshape(-1, 36, width))
        y = y.view(batch, side // 6, side // 6, 6, 6, width).transpose(2, 3).reshape(batch, side, side, width)
        if self.shift:
            y = y.roll((3, 3), (1, 2))
        x = x + dropped(y)
        return x + dropped(self.mlp(self.norm2(x)))


def dropped(x, share=0.1):
    """Whole rows left out."""
    kept = torch.rand(x.shape[0], 1, 1, 1, device=x.device) >= share
    return x * kept / (1 - share)


class Windows(nn.Module):
    """Stages of layers with windows; each halves the sides and doubles the width."""

    def __init__(self, width, depths):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.stages, self.merge = nn.ModuleList(), nn.ModuleList()
        for depth in depths:
            self.stages.append(nn.Sequential(*[Windowed(width, width // 32, i % 2) for i in range(depth)]))
            self.merge.append(nn.Linear(4 * width, 2 * width, bias=False))
            width *= 2
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        for stage, merge in zip(self.stages, self.merge):
            x = stage(x)
            x = merge(torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1))
        return self.head(x.mean((1, 2)))
