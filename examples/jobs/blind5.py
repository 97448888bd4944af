"""Twelve more small jobs: three run out of memory and go on with less, in three computed values decide sizes, six are new kinds.

usage: blind5.py NAME        NAME is one of the functions below

Sizes vary from step to step, by a fixed seed. Weights and data are random.
"""

import random
import sys

import torch
from blind5_parts import (
    Eight,
    EightBlock,
    Fading,
    Field,
    Ponder,
    Series,
    TwoPaths,
    Unpadded,
    decoder,
    llama,
)
from blind_parts import BF16, Block, cuda, learn, words
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

draw = random.Random(5303)


def accumulated():
    """A Llama by parts of a batch: where the way back runs out of memory, the step begins again with twice as many parts."""
    torch.cuda.set_per_process_memory_fraction(0.062)
    model = llama(1024, 16, 16, 8)
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    parts = 1
    for step in range(8):
        ids = words(32_000, 32, 64 * draw.randrange(8, 15))
        done = False
        while not done:
            where = "forward"
            try:
                for part in ids.chunk(parts):
                    where = "forward"
                    with torch.autocast("cuda", BF16):
                        loss = model(input_ids=part, labels=part, use_cache=False).loss / parts
                    where = "backward"
                    loss.backward()
                done = True
            except torch.cuda.OutOfMemoryError:
                parts *= 2
                print(f"step {step}: out of memory in {where}, now {parts} parts", file=sys.stderr)
            if not done:
                loss = None
                optimizer.zero_grad()
                torch.cuda.empty_cache()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@torch.inference_mode()
def forgetful():
    """Long conversations: keys and values that grow, and of which the older half is dropped where memory runs out."""
    from transformers import DynamicCache

    torch.cuda.set_per_process_memory_fraction(0.07)
    model = llama(1024, 16, 16, 16).to(BF16).eval()
    cache, known = DynamicCache(), 0
    for turn in range(15):
        ids = words(32_000, 16, draw.randrange(200, 1200))
        answered = 0
        while answered < 6:
            full = False
            try:
                out = model(input_ids=ids, past_key_values=cache, logits_to_keep=1)
                known += ids.shape[1]
                ids = out.logits[:, -1].float().softmax(-1).multinomial(1)
                answered += 1
            except torch.cuda.OutOfMemoryError:
                full = True
            if full:
                print(f"turn {turn}: out of memory after {known} tokens", file=sys.stderr)
                for layer in cache.layers:
                    layer.keys = layer.keys[:, :, known // 2 : known].clone()
                    layer.values = layer.values[:, :, known // 2 : known].clone()
                known -= known // 2
                torch.cuda.empty_cache()


@torch.inference_mode()
def clips():
    """Clips from latents: where one does not fit, the cache is emptied and it is tried again, then in tiles that overlap."""
    torch.cuda.set_per_process_memory_fraction(0.08)
    model = cuda(decoder([512, 256, 128, 64]), dtype=BF16).eval()
    for clip in range(8):
        frames, high, wide = draw.randrange(4, 8), 4 * draw.randrange(16, 25), 4 * draw.randrange(20, 41)
        latents = torch.randn(1, 16, frames, high, wide).to("cuda", BF16)
        tiles, tries, video = 1, 0, None
        while video is None:
            size = wide // tiles
            try:
                rows = []
                for left in range(0, wide, size):
                    first, last = max(0, left - 2), min(wide, left + size + 2)
                    tile = model(latents[..., first:last])
                    rows.append(tile[..., 8 * (left - first) : 8 * (min(left + size, wide) - first)].float().clamp(-1, 1))
                video = torch.cat(rows, -1).cpu()
            except torch.OutOfMemoryError:
                print(f"clip {clip}: out of memory with {tiles} tiles", file=sys.stderr)
                tries += 1
                tiles *= 1 if tries == 1 else 2
                rows = tile = None
                torch.cuda.empty_cache()


def pondering():
    """Words that think as long as each needs: those that are sure enough leave, the others go on to the next layer."""
    embed, mixes = cuda(nn.Embedding(8_000, 512)), cuda(nn.Sequential(*[Block(512, 8) for _ in range(2)]))
    layers, head = cuda(nn.ModuleList(Ponder(512) for _ in range(12))), cuda(nn.Linear(512, 8_000))
    optimizer = torch.optim.AdamW(nn.ModuleList([embed, mixes, layers, head]).parameters(), 1e-3)
    for _ in range(8):
        ids = words(8_000, 32, 16 * draw.randrange(10, 20))
        x = mixes(embed(ids)).flatten(0, 1)
        count = len(x)
        out, total, active = torch.zeros_like(x), x.new_zeros(count), torch.arange(count, device="cuda")
        cost = 0.0
        for depth, layer in enumerate(layers):
            x, sure = layer(x)
            before = total[active]
            ends = before + sure > 0.99
            if depth == len(layers) - 1:
                ends = torch.ones_like(ends)
            share = torch.where(ends, 1 - before, sure)
            out = out.index_add(0, active, share[:, None] * x)
            total = total.index_add(0, active, share)
            cost = cost + share.sum() * depth / count
            x, active = x[~ends], active[~ends]
            if len(active) == 0:
                break
        learn(F.cross_entropy(head(out), ids.flatten()) + 0.05 * cost, optimizer)


def rejected():
    """Texts that a model samples and is then trained on, if a judge finds them better than the mean: top-p, Hugging Face."""
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"vocab_size": 8192, "n_embd": 512, "n_layer": 8, "n_head": 8, "bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**shape)).to("cuda")
    judge = cuda(nn.Sequential(nn.Embedding(8192, 256), Block(256, 4), nn.Linear(256, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    for _ in range(6):
        prompts = words(8192, 16, draw.randrange(16, 40)).repeat_interleave(6, 0)
        how = {"do_sample": True, "top_k": 0, "top_p": 0.9, "pad_token_id": 0, "max_new_tokens": draw.randrange(24, 40)}
        model.eval()
        texts = model.generate(prompts, attention_mask=torch.ones_like(prompts), **how)
        with torch.no_grad():
            scores = judge(texts).mean((1, 2))
        kept = texts[scores > scores.mean()]
        if not len(kept):
            continue
        model.train()
        learn(model(input_ids=kept, labels=kept).loss, optimizer)


def budget():
    """Masked words in batches of as many sentences as a number of words allows; no layer sees padding, the head only masks."""
    embed, layers = cuda(nn.Embedding(30_000, 768)), cuda(nn.ModuleList(Unpadded(768, 12) for _ in range(10)))
    head = cuda(nn.Linear(768, 30_000))
    optimizer = torch.optim.AdamW(nn.ModuleList([embed, layers, head]).parameters(), 1e-4, fused=True)
    lengths = torch.tensor([min(512, int(draw.lognormvariate(4.6, 0.7)) + 8) for _ in range(1600)])
    order, batches, batch = lengths.argsort(), [], []
    for i in order.tolist():
        if (len(batch) + 1) * int(lengths[i]) > 24_000:
            batches.append(batch)
            batch = []
        batch.append(i)
    draw.shuffle(batches)
    for batch in batches[:12]:
        sizes = lengths[batch].to("cuda")
        mask = torch.arange(int(sizes.max()), device="cuda") < sizes[:, None]
        ids, hidden = words(30_000, *mask.shape), (torch.rand(mask.shape) < 0.15).to("cuda") & mask
        places = mask.flatten().nonzero().squeeze(1)
        with torch.autocast("cuda", BF16):
            x = embed(ids.masked_fill(hidden, 3).flatten()[places])
            for layer in layers:
                x = layer(x, places, mask)
            out = head(x[hidden.flatten()[places]])
        learn(F.cross_entropy(out.float(), ids[hidden]), optimizer)


def separated():
    """Two voices in one sound: GRUs within and across chunks, and the loss of the better of two orders."""
    inlet, outlet = cuda(nn.Conv1d(1, 64, 16, 8)), cuda(nn.ConvTranspose1d(64, 1, 16, 8))
    paths, masks = cuda(nn.Sequential(*[TwoPaths(64, 128) for _ in range(4)])), cuda(nn.Conv2d(64, 128, 1))
    optimizer = torch.optim.Adam(nn.ModuleList([inlet, outlet, paths, masks]).parameters(), 1e-3)
    for _ in range(8):
        batch, chunks = draw.randrange(4, 9), draw.randrange(24, 64)
        frames = 50 * (chunks + 1)
        voices = torch.randn(batch, 2, 8 * (frames + 1)).to("cuda")
        seen = F.relu(inlet(voices.sum(1, keepdim=True)))
        pieces = seen.unfold(2, 100, 50)
        x = masks(paths(pieces)).view(batch * 2, 64, chunks, 100).transpose(2, 3).reshape(batch * 2, 6400, chunks)
        x = F.fold(x, (1, frames), (1, 100), stride=(1, 50)).view(batch, 2, 64, frames)
        parts = outlet((x.sigmoid() * seen[:, None]).flatten(0, 1)).view(batch, 2, -1)
        losses = [(parts - voices.flip(1) if i else parts - voices).square().mean((1, 2)) for i in range(2)]
        learn(torch.minimum(*losses).mean(), optimizer, 5.0)


def continuous():
    """A density that flows: an ordinary differential equation and its divergence, each step of the solver recomputed."""
    field = cuda(Field(63, 1024))
    optimizer = torch.optim.Adam(field.parameters(), 1e-3)
    for _ in range(8):
        batch, steps = draw.randrange(3_000, 10_000), draw.randrange(6, 12)
        x, noise = torch.randn(batch, 63).to("cuda"), torch.randn(batch, 63, device="cuda")
        volume = torch.zeros(batch, device="cuda")
        for i in range(steps):
            time = torch.full((1, 1), i / steps, device="cuda")
            x, volume = checkpoint(field, time, x, volume, noise, 1 / steps, use_reentrant=False)
        likely = -0.5 * x.square().sum(1) - volume
        learn(-likely.mean(), optimizer)


def tenants():
    """Four adapters of one frozen Llama, trained in turns; then a batch in which each row has its own."""
    from peft import LoraConfig, get_peft_model

    base = llama(1536, 16, 12, 4).to(BF16)
    ranks = {"law": 8, "code": 64, "mail": 16, "news": 32}
    how = {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"], "lora_dropout": 0.05}
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, **how), "law")
    for name, rank in list(ranks.items())[1:]:
        model.add_adapter(name, LoraConfig(r=rank, lora_alpha=2 * rank, **how))
    optimizers = {}
    for step in range(12):
        name = list(ranks)[step % 4]
        model.train()
        model.set_adapter(name)
        if name not in optimizers:
            optimizers[name] = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 2e-4)
        ids = words(32_000, draw.randrange(2, 9), 64 * draw.randrange(4, 17))
        with torch.autocast("cuda", BF16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        learn(loss, optimizers[name])
        if step % 4 == 3:
            model.eval()
            ids = words(32_000, 16, 32 * draw.randrange(4, 17))
            with torch.no_grad():
                model(input_ids=ids, use_cache=False, adapter_names=[draw.choice(list(ranks)) for _ in range(16)])


@torch.inference_mode()
def eights():
    """A language model in eight bits by hand: products of whole numbers, keys and values rounded, too."""
    embed = cuda(nn.Embedding(32_000, 2048), dtype=BF16)
    blocks, head = cuda(nn.ModuleList(EightBlock(2048, 16) for _ in range(20))), Eight(2048, 32_000)
    for block in blocks:
        block.norm1.to(BF16)
        block.norm2.to(BF16)
    for _ in range(10):
        ids = words(32_000, draw.randrange(4, 16), draw.randrange(200, 1500))
        past = [None] * len(blocks)
        for _ in range(16):
            x = embed(ids)
            for i, block in enumerate(blocks):
                x, past[i] = block(x, past[i])
            ids = head(x[:, -1:]).argmax(-1)


def replayed():
    """Forecasts by steps that are captured whole, optimizer included: one graph for each length, of one pool."""
    model = cuda(Series([Block(512, 8) for _ in range(6)], 512, 16, 96))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=True)
    graphs, pool = {}, torch.cuda.graph_pool_handle()

    def train(x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", BF16, cache_enabled=False):
            loss = F.huber_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for length in (512, 1024, 336):
        x, y = torch.randn(256, length, device="cuda"), torch.randn(256, 96, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                train(x, y)
        torch.cuda.current_stream().wait_stream(side)
        taken = torch.cuda.CUDAGraph()
        with torch.cuda.graph(taken, pool=pool):
            loss = train(x, y)
        graphs[length] = (taken, x, y, loss)
    for _ in range(15):
        taken, x, y, loss = graphs[draw.choice(list(graphs))]
        x.copy_(torch.randn(x.shape).pin_memory(), non_blocking=True)
        y.copy_(torch.randn(y.shape).pin_memory(), non_blocking=True)
        taken.replay()


def fading():
    """A language model of linear attention in chunks that fades, compiled layer by layer, once for each of two lengths."""
    embed, head = cuda(nn.Embedding(16_000, 768)), cuda(nn.Linear(768, 16_000, bias=False))
    layers = cuda(nn.ModuleList(Fading(768, 12) for _ in range(8)))
    optimizer = torch.optim.AdamW(nn.ModuleList([embed, layers, head]).parameters(), 3e-4, fused=True)
    for layer in layers:
        layer.compile(dynamic=False)
    for _ in range(10):
        ids = words(16_000, 8, draw.choice([1024, 2048]))
        with torch.autocast("cuda", BF16):
            x = embed(ids)
            for layer in layers:
                x = layer(x)
            out = head(x[:, :-1])
        learn(F.cross_entropy(out.flatten(0, 1).float(), ids[:, 1:].flatten()), optimizer)


if __name__ == "__main__":
    torch.manual_seed(5)
    globals()[sys.argv[1]]()
