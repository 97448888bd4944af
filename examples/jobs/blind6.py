"""Twelve jobs for two GPUs of one host: data, tensors, sequences, experts, tables or layers are divided, by twelve means.

usage: torchrun --nproc-per-node 2 blind6.py NAME        NAME is one of the functions below

Sizes vary from step to step, by a fixed seed, in some also from GPU to GPU. Weights and data are random.
"""

import os
import random
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
from blind5_parts import llama
from blind6_parts import Clicks, Decoder, Experts, Fall, Rise, Tables, Towers, Vision, average, made, pad, sentences
from blind_parts import BF16, Block, cuda, learn, words
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

draw = random.Random(6607)
local = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local)


def trainer():
    """BART by Hugging Face's Trainer: layers left out at random, unused parameters found, accumulation, texts of like lengths."""
    from transformers import BartConfig, BartForConditionalGeneration, Trainer, TrainingArguments

    config = BartConfig(vocab_size=50_265, pad_token_id=0, encoder_layerdrop=0.2, decoder_layerdrop=0.2)
    with torch.device(device):
        model = BartForConditionalGeneration(config)
    folder = tempfile.mkdtemp()
    how = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "max_steps": 8, "bf16": True, "report_to": []}
    how |= {"train_sampling_strategy": "group_by_length", "ddp_find_unused_parameters": True, "save_strategy": "no"}
    how |= {"eval_strategy": "steps", "eval_steps": 4, "per_device_eval_batch_size": 24, "logging_steps": 1}
    train, test = sentences(640, 50_265, 640, draw), sentences(120, 50_265, 640, draw)
    arguments = TrainingArguments(folder, **how)
    Trainer(model, arguments, train_dataset=train, eval_dataset=test, data_collator=pad).train()
    shutil.rmtree(folder)


def squeezed():
    """Pictures of four sizes: DDP of a static graph, gradients that are views of buckets, PowerSGD from the fourth step on."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    net = made(Vision, 1024, 20, 16)
    model = DistributedDataParallel(net, [local], gradient_as_bucket_view=True, static_graph=True, bucket_cap_mb=50)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=4)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    for _ in range(12):
        side = draw.choice([192, 224, 288, 384])
        pictures = torch.randn(64, 3, side, side).to(device)
        with torch.autocast("cuda", BF16):
            out = model(pictures)
        learn(F.cross_entropy(out.float(), words(1000, 1, 64)[0]), optimizer)


def paired():
    """CLIP: embeddings gathered with gradients, a ZeRO optimizer that is put together for a checkpoint, a test on one GPU."""
    from torch.distributed.nn.functional import all_gather
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(made(Towers), [local])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=5e-4, weight_decay=0.2)
    for step in range(10):
        batch, kept = 32 * draw.randrange(10, 17), sorted(draw.sample(range(196), draw.choice([98, 131, 196])))
        pictures, ids = torch.randn(batch, 3, 224, 224).to(device), words(32_000, batch, draw.randrange(24, 77))
        with torch.autocast("cuda", BF16):
            seen, said, scale = model(pictures, torch.tensor(kept, device=device), ids)
        everyone = [torch.cat(all_gather(x)) for x in (seen, said)]
        labels = torch.arange(batch, device=device) + batch * dist.get_rank()
        loss = F.cross_entropy(scale * seen @ everyone[1].T, labels) + F.cross_entropy(scale * said @ everyone[0].T, labels)
        learn(loss / 2, optimizer)
        if step == 5:
            optimizer.consolidate_state_dict(to=0)
            if dist.get_rank() == 0:
                with tempfile.TemporaryFile() as file:
                    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, file)
                zero_shot(model.module)
            dist.barrier()


@torch.no_grad()
def zero_shot(model):
    """Pictures are told apart by the names of 1,000 classes."""
    model.eval()
    with torch.autocast("cuda", BF16):
        names = torch.cat([model.said(words(32_000, 250, 40)).view(50, 5, -1).mean(1) for _ in range(20)])
        for _ in range(3):
            seen = model.seen(torch.randn(1024, 3, 224, 224).to(device), torch.arange(196, device=device))
            print("best", (seen @ names.T).topk(5).indices[0, 0].item(), file=sys.stderr)
    model.train()


def accelerated():
    """A T5 by Accelerate: FSDP1 of mixed precision that gathers one layer ahead, accumulation, the whole state on one GPU."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from transformers import T5Config, T5ForConditionalGeneration

    how = {"fsdp_version": 1, "sharding_strategy": "FULL_SHARD", "backward_prefetch": "BACKWARD_PRE", "use_orig_params": True}
    how |= {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["T5Block"]}
    plugin = FullyShardedDataParallelPlugin(**how, state_dict_type="FULL_STATE_DICT", cpu_ram_efficient_loading=False)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2, fsdp_plugin=plugin)
    shape = {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16, "decoder_start_token_id": 0}
    with torch.device(device):
        model = T5ForConditionalGeneration(T5Config(**shape))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    loader = torch.utils.data.DataLoader(sentences(192, 32_000, 640, draw), 6, collate_fn=pad)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses = accelerator.gather_for_metrics(loss.detach())
        accelerator.print("loss", losses.mean().item(), file=sys.stderr)
    accelerator.get_state_dict(model)


def offloaded():
    """A Llama by FSDP2 whose shards and optimizer stay with the host, layers kept until the way back, a checkpoint halfway."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 10, "vocab_size": 32_000}
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=16, num_key_value_heads=4, use_cache=False))
    how = {"mp_policy": MixedPrecisionPolicy(BF16, torch.float32), "offload_policy": CPUOffloadPolicy()}
    for layer in model.model.layers:
        fully_shard(layer, **how, reshard_after_forward=False)
    fully_shard(model, **how)
    model.to_empty(device="cpu")
    model.init_weights()
    model.model.rotary_emb.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, 0, device=device)
    for step in range(6):
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            ids = words(32_000, draw.randrange(4, 9), 128 * draw.randrange(6, 16))
            (model(input_ids=ids, labels=ids).loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 2:
            dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder[0])
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])


def tensors():
    """A decoder whose products are divided by DTensor: norms on parts of the text, logits and loss on parts of the words."""
    from torch.distributed.tensor import Replicate, Shard, parallel
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel

    mesh = dist.init_device_mesh("cuda", (dist.get_world_size(),))
    model = made(Decoder, 64_000, 2048, 16).to(BF16)
    entry = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    plan = {"norm1": SequenceParallel(), "attention": PrepareModuleInput(**entry)}
    plan |= {"norm2": SequenceParallel(), "mlp": PrepareModuleInput(**entry)}
    plan |= {name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up")}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.o", "mlp.down")}
    for layer in model.layers:
        parallel.parallelize_module(layer, mesh, plan)
    ends = {"tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel()}
    ends["head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    parallel.parallelize_module(model, mesh, ends)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    for _ in range(10):
        ids = words(64_000, draw.randrange(4, 9), 128 * draw.randrange(6, 17))
        with parallel.loss_parallel():
            loss = F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
            learn(loss, optimizer)


def stages():
    """A pipeline in which each GPU has two stages, in turns (interleaved 1F1B); texts of three lengths, a schedule for each."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

    rank, world = dist.get_rank(), dist.get_world_size()
    count, parts = 2 * world, {}
    for i in range(rank, count, world):
        layers = [Block(1536, 12, causal=True) for _ in range(5)]
        if i == 0:
            layers.insert(0, nn.Embedding(32_000, 1536))
        if i == count - 1:
            layers += [nn.LayerNorm(1536), nn.Linear(1536, 32_000, bias=False)]
        parts[i] = cuda(nn.Sequential(*layers), dtype=BF16)
    optimizer = torch.optim.AdamW(nn.ModuleList(parts.values()).parameters(), 2e-4, fused=True)
    schedules = {}

    def measure(out, labels):
        return F.cross_entropy(out.flatten(0, 1).float(), labels.flatten())

    for _ in range(10):
        length = draw.choice([512, 1024, 1536])
        if length not in schedules:
            steps = [PipelineStage(part, i, count, device) for i, part in parts.items()]
            schedules[length] = ScheduleInterleaved1F1B(steps, 8, loss_fn=measure)
        ids = words(32_000, 32, length)
        if rank == 0:
            schedules[length].step(ids)
        else:
            losses = []
            schedules[length].step(target=ids, losses=losses)
            print("loss", torch.stack(losses).mean().item(), file=sys.stderr)
        nn.utils.clip_grad_norm_([p for part in parts.values() for p in part.parameters()], 1.0)
        optimizer.step()
        optimizer.zero_grad()


def ring():
    """Texts of up to 32,000 words, of which each GPU has half: keys and values go round, gradients by one flat tensor."""
    model = made(Decoder, 32_000, 2048, 8, ring=True)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    for _ in range(8):
        half = 1024 * draw.randrange(6, 17)
        whole = words(32_000, 1, 2 * half + 1)
        first = half * dist.get_rank()
        with torch.autocast("cuda", BF16):
            out = model(whole[:, first : first + half])
        loss = F.cross_entropy(out[0].float(), whole[0, first + 1 : first + half + 1])
        loss.backward()
        average(list(model.parameters()))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def experts():
    """Sixteen experts, eight on each GPU: words go where they are chosen, by all_to_all of uneven parts; DDP for the others."""
    model = made(Decoder, 32_000, 1024, 8, then=Experts)
    strange = [name for name, _ in model.named_parameters() if ".here." in name]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, strange)
    shared = DistributedDataParallel(model, [local], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    torch.manual_seed(600 + dist.get_rank())
    for _ in range(8):
        ids = words(32_000, draw.randrange(8, 17), 128 * draw.randrange(4, 12))
        with torch.autocast("cuda", BF16):
            out = shared(ids)
        loss = F.cross_entropy(out[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        for name, p in model.named_parameters():
            if ".here." in name:
                p.grad /= dist.get_world_size()
        optimizer.step()
        optimizer.zero_grad()


def tables():
    """Clicks: a table of 60 million rows, half on each GPU, bags of many sizes, sparse Adagrad; DDP in halves for the rest."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    features, rows = 20, 3_000_000
    table, net = Tables(features * rows, 48), made(Clicks, features, 48)
    dense = DistributedDataParallel(net, [local])
    dense.register_comm_hook(None, fp16_compress_hook)
    optimizers = [torch.optim.Adagrad(table.parameters(), 0.01), torch.optim.Adam(dense.parameters(), 1e-3)]
    own = random.Random(dist.get_rank())
    torch.manual_seed(600 + dist.get_rank())

    def clicks(batch):
        sizes = torch.poisson(torch.full((features * batch,), 6.0)).long()
        bags = torch.repeat_interleave(torch.arange(features * batch), sizes)
        ids = (torch.rand(len(bags)) ** 4 * rows).long() + bags % features * rows
        pooled = table(ids.to(device), bags.to(device), features * batch)
        return dense(torch.randn(batch, 13).to(device), pooled.view(batch, features, 48))

    for step in range(12):
        batch = 1024 * own.randrange(4, 13)
        loss = F.binary_cross_entropy_with_logits(clicks(batch), torch.randint(0, 2, (batch,)).float().to(device))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step % 4 == 3:
            with torch.no_grad():
                scores = clicks(8192)
            everyone = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
            dist.all_gather(everyone, scores)
            torch.cat(everyone).sort()


def adversaries():
    """A generator and its judge, each by DDP: norms over all pictures (SyncBatchNorm), penalties, one GPU draws."""
    rises = [Rise(*widths) for widths in ((512, 512), (512, 512), (512, 256), (256, 128), (128, 64))]
    enter = [nn.Linear(128, 512 * 16), nn.Unflatten(1, (512, 4, 4))]
    leave = [nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 3, 3, padding=1), nn.Tanh()]
    maker = nn.SyncBatchNorm.convert_sync_batchnorm(cuda(nn.Sequential(*enter, *rises, *leave)))
    falls = [Fall(*widths) for widths in ((3, 64), (64, 128), (128, 256), (256, 512), (512, 512))]
    judge = cuda(nn.Sequential(*falls, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1)))
    maker = DistributedDataParallel(maker, [local], broadcast_buffers=False)
    judge = DistributedDataParallel(judge, [local], broadcast_buffers=False)
    makes, judges = (torch.optim.Adam(net.parameters(), 2e-4, (0.0, 0.99)) for net in (maker, judge))
    own = random.Random(dist.get_rank())
    for step in range(9):
        batch = 8 * own.randrange(6, 13)
        real = torch.randn(batch, 3, 128, 128).to(device)
        with torch.autocast("cuda", BF16):
            with torch.no_grad():
                fake = maker(torch.randn(batch, 128, device=device))
            good, bad = judge(torch.cat([real, fake.to(real.dtype)])).float().chunk(2)
            loss = F.relu(1 - good).mean() + F.relu(1 + bad).mean()
        judges.zero_grad()
        loss.backward()
        judges.step()
        if step % 3 == 2:
            real.requires_grad_()
            good = judge(real)
            (slope,) = torch.autograd.grad(good.sum(), real, create_graph=True)
            judges.zero_grad()
            (15 * slope.square().sum((1, 2, 3)).mean() + 0 * good.mean()).backward()
            judges.step()
        with torch.autocast("cuda", BF16):
            loss = -judge(maker(torch.randn(batch, 128, device=device))).float().mean()
        loss.backward()
        makes.step()
        makes.zero_grad()
        if step % 4 == 3:
            if dist.get_rank() == 0:
                maker.eval()
                with torch.no_grad():
                    maker.module(torch.randn(256, 128, device=device)).cpu()
                maker.train()
            dist.barrier()


def taught():
    """A teacher on one GPU, its student on the other: words and the teacher's best guesses by broadcast, objects gathered."""
    rank, own = dist.get_rank(), random.Random(606)
    model = llama(1024, 12, 16, 4) if rank == 1 else llama(2048, 20, 16, 4).to(BF16).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4) if rank == 1 else None
    for step in range(10):
        sizes = [own.randrange(8, 17), 128 * own.randrange(3, 9)] if rank == 1 else [None, None]
        dist.broadcast_object_list(sizes, 1, device=device)
        ids = words(32_000, *sizes) if rank == 1 else torch.empty(sizes, dtype=torch.int64, device=device)
        dist.broadcast(ids, 1)
        if rank == 0:
            best, places = model(input_ids=ids, use_cache=False).logits.topk(128)
        else:
            best = torch.empty(*sizes, 128, dtype=BF16, device=device)
            places = torch.empty(*sizes, 128, dtype=torch.int64, device=device)
        dist.broadcast(best, 0)
        dist.broadcast(places, 0)
        if rank == 1:
            with torch.autocast("cuda", BF16):
                out = model(input_ids=ids, use_cache=False).logits
            known = out.gather(2, places).float().log_softmax(-1)
            learn(F.kl_div(known, (best.float() / 2).softmax(-1), reduction="batchmean"), optimizer)
        told = [None, None]
        dist.all_gather_object(told, {"rank": rank, "step": step, "tokens": ids.numel()})
        if step % 4 == 3:
            if rank == 1:
                with torch.no_grad(), torch.autocast("cuda", BF16):
                    ids = words(32_000, 24, 1024)
                    print("loss", model(input_ids=ids, labels=ids, use_cache=False).loss.item(), told, file=sys.stderr)
            dist.barrier()


if __name__ == "__main__":
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(6)
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
