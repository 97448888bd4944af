"""Values on the virtual GPU: integers are real, sizes are right, and unknown reads are found at their line.

Plain Python. This file starts itself again as a process on the virtual GPU, where the functions that begin with
`on_gpu_` compare with PyTorch on the CPU. It is skipped, loudly, without PyTorch for CUDA or without the library.
"""

import copy
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from gmlake import predict
from gmlake.predict import library, pytorch

# (function of a tensor, its arguments), type, elements.
DRAWN = [
    (("random_", 0, 32000), "int64", [22581, 4703, 681, 3964, 11585]),
    (("random_", 0, 1099511627776), "int64", [228115485564, 409720420979, 729985199318, 908806789545, 416360272441]),
    (("normal_", 0.5, 0.02), "float32", [0.512661636, 0.532716453, 0.493082732, 0.48718223, 0.526212037]),
    (("uniform_", -0.3, 0.2), "float32", [0.01041615, -0.286186099, -0.137230828, -0.006342381, -0.240930468]),
    (("uniform_", -0.3, 0.2), "bfloat16", [0.009643555, -0.287109375, -0.137695312, -0.007110596, -0.2421875]),
    (("exponential_", 2.0), "float32", [0.238347083, 1.794465542, 0.561137438, 0.266096771, 1.067946196]),
]


def missing():
    """Why this cannot be tested here, or nothing."""
    try:
        pytorch.versions()
        library.find()
    except predict.Problem as problem:
        return str(problem)
    return None


def start():
    """Runs this file on the virtual GPU."""
    with tempfile.TemporaryDirectory() as folder:
        library.links(library.find(), folder)
        own = library.environment(folder, pytorch.versions(), card="h200")
        own["PYTHONPATH"] = str(Path(predict.__file__).parents[2])
        own.setdefault("OMP_NUM_THREADS", "1")  # as `run.settings`
        sys.exit(subprocess.run([sys.executable, __file__, "on-gpu"], env=own).returncode)


def bring(tensor, device):
    """A copy on the device with the tensor's own strides, so that views stay views."""
    if not tensor.numel():
        return tensor.to(device)
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return whole.to(device, copy=True).as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset()
    )


def inputs(dtype, generator):
    """Tensors of many layouts: whole, strided, transposed, expanded, empty, of no dimension."""

    def draw(*shape):
        return torch.randint(0, 2 if dtype is torch.bool else 7, shape, generator=generator).to(
            dtype
        )

    yield draw(6)
    yield draw(4, 5)
    yield draw(8, 10)[::2, 1::3]
    yield draw(5, 4).t()
    yield draw(3, 1).expand(3, 4)
    yield draw(0, 3)
    yield draw(2, 3, 4)[:, 1]
    yield draw()


def same(name, wanted, found):
    """Raises unless both hold the same."""
    if isinstance(wanted, torch.Tensor) and isinstance(found, torch.Tensor):
        assert wanted.dtype == found.dtype, f"{name}: {found.dtype}, not {wanted.dtype}"
        assert torch.equal(wanted, found.cpu()), f"{name}: {found} is not {wanted}"
    elif isinstance(found, Exception):
        raise found
    elif isinstance(wanted, (tuple, list)):
        assert len(wanted) == len(found), f"{name}: {len(found)} results, not {len(wanted)}"
        for one, other in zip(wanted, found):
            same(name, one, other)
    else:
        assert wanted == found, f"{name}: {found} is not {wanted}"


def attempt(function, *arguments):
    """The result, or the kind of error: what PyTorch refuses on the CPU it may refuse here."""
    try:
        return function(*arguments)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        return error


def compare(table, dtypes):
    """Each function of the table on the GPU and on the CPU, on the same random inputs."""
    generator = torch.Generator().manual_seed(1)
    done = 0
    for name, function in table.items():
        for dtype in dtypes:
            for case, tensor in enumerate(inputs(dtype, generator)):
                wanted = attempt(function, bring(tensor, "cpu"))
                if isinstance(wanted, Exception):
                    continue
                found = attempt(function, bring(tensor, "cuda"))
                if isinstance(found, Exception) and "single memory location" in str(found):
                    continue  # expanded tensors that CUDA does not write into
                same(f"{name} {dtype} input {case}", wanted, found)
                done += 1
    print(f"    {done} comparisons")
    return done


def on_gpu_plain_operators():
    F = torch.nn.functional
    table = {
        "add": lambda x: x + x,
        "minus one": lambda x: x - 1 if x.dtype != torch.bool else ~x,
        "from one": lambda x: 1 - x.int(),
        "times": lambda x: x * 3,
        "real": lambda x: x * 2.5,
        "by": lambda x: x / 4,
        "floor": lambda x: x.int() // 2,
        "rest": lambda x: x.int() % 3,
        "and": lambda x: x.int() & 3,
        "shift": lambda x: x.int() << 2,
        "power": lambda x: x.int() ** 2,
        "negative": lambda x: -x.int(),
        "equal": lambda x: x == 1,
        "less": lambda x: x < x.flatten()[0],
        "not": lambda x: x.logical_not(),
        "or": lambda x: (x > 1) | (x == 0),
        "clamp": lambda x: x.int().clamp(1, 3),
        "where": lambda x: torch.where(x > 1, x, 0),
        "sum": lambda x: x.sum(),
        "sum 0": lambda x: x.sum(0),
        "mean": lambda x: x.float().mean(-1),
        "max": lambda x: x.max(),
        "max 0": lambda x: x.max(0)[0],
        "min": lambda x: x.amin(-1),
        "argmax": lambda x: x.argmax(0) * 0,
        "any": lambda x: x.any(-1),
        "all": lambda x: x.all(),
        "cumsum": lambda x: x.cumsum(0),
        "cumprod": lambda x: x.cumprod(-1),
        "sort": lambda x: x.sort(-1, stable=True),
        "argsort": lambda x: x.argsort(0, stable=True),
        "topk": lambda x: x.topk(2)[0],
        "flip": lambda x: x.flip(0),
        "roll": lambda x: x.roll(1),
        "cat": lambda x: torch.cat([x, x]),
        "stack": lambda x: torch.stack([x, x], -1),
        "tril": lambda x: x.tril(),
        "repeat": lambda x: x.repeat(2, 2, 2),
        "pad": lambda x: F.pad(x, (1, 2), value=1),
        "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.long)),
        "scatter": lambda x: x.scatter(0, torch.zeros_like(x[:1], dtype=torch.long), 1),
        "index add": lambda x: x.index_add(
            0, torch.zeros(len(x), dtype=torch.long, device=x.device), x
        ),
        "index select": lambda x: x.index_select(0, torch.tensor([1, 0], device=x.device)),
        "search": lambda x: torch.searchsorted(torch.arange(5, device=x.device), x.int()),
        "bucket": lambda x: torch.bucketize(x.int(), torch.arange(5, device=x.device)),
        "is in": lambda x: torch.isin(x, x.flatten()[:2]),
        "convert": lambda x: x.to(torch.float64),
        "bytes": lambda x: x.to(torch.uint8),
        "clone": lambda x: x.clone(),
        "fresh": lambda x: torch.full_like(x, 1),
        "mask": lambda x: (1.0 - x.float()).masked_fill(x > 1, float("-inf")),
        "count": lambda x: x.count_nonzero(),
        "positions": lambda x: (x.int().cumsum(-1) - 1).clamp(min=0),
        "diff": lambda x: x.int().diff(dim=-1),
        "to host": lambda x: x.cpu(),
        "list": lambda x: x.tolist(),
        "item": lambda x: x.flatten()[0].item(),
        "converted to host": lambda x: x.to("cpu", torch.float32),
        "equal tensors": lambda x: torch.equal(x, x),
        "median": lambda x: x.int().median(),
        "unfold": lambda x: x.unfold(-1, 2, 1).sum(-1),
    }
    assert compare(table, [torch.int64, torch.int32, torch.uint8, torch.bool]) > 1000


def on_gpu_in_place_and_into():
    def into(x):
        out = torch.empty(0, dtype=x.dtype, device=x.device)
        torch.cumsum(x, 0, dtype=x.dtype, out=out)
        return out

    def parts(x):
        y = torch.zeros(x.shape, dtype=torch.long, device=x.device)
        y[..., 1:] = x[..., 1:]
        y[..., 0].fill_(9)
        y.t()[0] = 4
        return y

    table = {
        "add": lambda x: x.add_(1),
        "twice": lambda x: x.mul_(x),
        "fill": lambda x: x.fill_(3),
        "zero": lambda x: x.zero_(),
        "row": lambda x: x[0].add_(1) and x,
        "set": lambda x: x.__setitem__(0, 2) or x,
        "masked": lambda x: x.masked_fill_(x > 1, 5),
        "set mask": lambda x: x.__setitem__(x > 1, 6) or x,
        "put": lambda x: x.index_put_(
            (torch.tensor([0, 1], device=x.device),),
            torch.tensor(3, device=x.device, dtype=x.dtype),
        ),
        "copy": lambda x: x.copy_(x.flip(0)),
        "copy a number": lambda x: x.copy_(7),
        "copy a fraction": lambda x: x.copy_(2.5),
        "parts": parts,
        "into": into,
        "more": lambda x: x.bitwise_or_(x.new_ones(())),
        "new": lambda x: x.new_full((2, 2), 3),
        "ones": lambda x: torch.ones_like(x).sub_(x),
        "cumsum": lambda x: x.cumsum_(0),
        "of columns": lambda x: x.t().cumsum_(0),
        "turned": lambda x: x.t().mul_(x.t() + 1),
        "lower": lambda x: x.tril_(),
        "scatter": lambda x: x.scatter_add_(0, torch.zeros_like(x, dtype=torch.long), x.clone()),
        "more at": lambda x: x.index_put_(
            (torch.zeros(2, dtype=torch.long, device=x.device),), x[:2], True
        ),
        "sort into": lambda x: torch.sort(x, 0, out=(x.new_empty(0), x.new_empty(0).long())),
        "max into": lambda x: torch.max(x, 0, out=(x.new_empty(0), x.new_empty(0).long()))[0],
        "sum into itself": lambda x: torch.add(x, x, out=x),
    }
    assert compare(table, [torch.int64, torch.int32]) > 100


def on_gpu_sizes():
    F = torch.nn.functional
    table = {
        "nonzero": lambda x: x.nonzero(),
        "as tuple": lambda x: x.nonzero(as_tuple=True),
        "where": lambda x: torch.where(x),
        "mask": lambda x: x[x > 2],
        "rows": lambda x: x[x.flatten(1).sum(1) > 5] if x.dim() > 1 else x[x > 1],
        "select": lambda x: x.masked_select(x > 1),
        "two masks": lambda x: x[x[:, 0] > 0][:, x[0] > 0],
        "unique": lambda x: x.unique(),
        "unique all": lambda x: x.unique(return_inverse=True, return_counts=True),
        "unique rows": lambda x: x.unique(dim=0, return_inverse=True, return_counts=True),
        "stretches": lambda x: x.unique_consecutive(return_inverse=True, return_counts=True),
        "stretches of rows": lambda x: x.unique_consecutive(dim=0, return_counts=True),
        "repeat": lambda x: x.flatten().repeat_interleave(x.flatten().int()),
        "rows repeated": lambda x: x.repeat_interleave(torch.arange(len(x), device=x.device), 0),
        "bins": lambda x: x.flatten().int().bincount(),
        "one hot": lambda x: F.one_hot(x.long()),
        "argwhere": lambda x: x.argwhere(),
        "set": lambda x: x.__setitem__(x > 0, x[x > 0]) or x,
        "split": lambda x: x.flatten().split(
            [*x.flatten()[:1].tolist(), x.numel() - int(x.flatten()[0])]
        ),
    }
    assert compare(table, [torch.int64, torch.uint8, torch.bool]) > 200
    floats = torch.randn(7, 3, device="cuda")
    mask = torch.tensor([1, 0, 0, 1, 1, 0, 1], device="cuda").bool()
    assert floats[mask].shape == (4, 3) and floats.masked_select(mask[:, None]).shape == (12,)


def on_gpu_sizes_by_large_masks():
    before, count = count_of_reads(), 33 << 20
    x = torch.arange(count, dtype=torch.int32, device="cuda")
    assert x[x >= 0].numel() == count and x[x % 7 != 0].numel() == count - len(range(0, count, 7))
    assert count_of_reads() == before, values_mode.reads.facts()


def on_gpu_counts_of_too_many_values_are_noted_and_differ_by_what_is_assumed():
    """Each function's size as a share of its input's, where values are zeros, ones and random."""
    count, table = 9 << 20, {
        "mask": (lambda x: x[x > 0.2], 0, 1, 0.42),
        "most": (lambda x: x[x > -1], 1, 1, 0.84),
        "band": (lambda x: x[(x > 0.2) & (x < 0.9)], 0, 0, 0.34),
        "rows": (lambda x: x.view(-1, 4)[(x.view(-1, 4) > 0).any(1)], 0, 1, 0.94),
        "select": (lambda x: x.masked_select(x < 0.2), 1, 0, 0.58),
        "nonzero": (lambda x: x.nonzero(), 0, 1, 1),
        "unique": (lambda x: x.unique(), 0, 0, 1),
        "integers": (lambda x: (i := (x * 10).int())[i % 7 != 0], 0, 1, 0.99),
        "equal": (lambda x: x if torch.equal(x, x + 0) else x[:0], 1, 1, 0),
    }
    values_mode.__exit__(None, None, None)
    for at, assume in enumerate(["zeros", "ones", "random"]):
        with values.mode(assume=assume) as mode:
            for name, (function, *shares) in table.items():
                before = {**mode.reads.found}
                found = function(torch.randn(count, device="cuda")).shape[0] / (count // 4 if name == "rows" else count)
                assert abs(found - shares[at]) < 0.05, (assume, name, found)
                came = [what for _, what in mode.reads.found.keys() - before.keys()]
                assert [what[:7] for what in came] == ["size of"], (assume, name, came)
        assert not mode.failed, mode.failed
    values_mode.__enter__()


def on_gpu_sparse_tensors_coalesce():
    """As many entries as on the CPU: of sums, products, gradients, parts; and as many as assumed of unknown places."""

    def job(device, places, dims, sizes):
        it = torch.sparse_coo_tensor(places.to(device), torch.ones(places.shape[1], *dims, device=device), sizes)
        whole = it.coalesce()
        steps = [whole, it + it.transpose(0, 1), torch.sparse.sum(it, 0)]
        if len(sizes) == 2:
            weights = torch.nn.Embedding(sizes[0], 4, sparse=True, device=device)
            weights(places[0].to(device)).sum().backward()
            steps += [weights.weight.grad, whole * whole]
        steps = [each.coalesce() for each in steps]
        return [each._nnz() for each in steps], [each.indices().cpu().tolist() for each in steps]

    for seed in range(8):
        count, generator = 3 ** seed, torch.Generator().manual_seed(seed)
        for sizes, dims in [((90, 90), ()), ((7, 7, 2), ()), ((40, 40, 3), (3,))]:
            rows = [torch.randint(size, (count,), generator=generator) for size in sizes[: len(sizes) - len(dims)]]
            wanted, found = (job(device, torch.stack(rows), dims, sizes) for device in ("cpu", "cuda"))
            assert found == wanted, (seed, sizes, found[0], wanted[0])
    values_mode.__exit__(None, None, None)
    for assume, wanted in [("zeros", 50), ("ones", 1)]:
        with values.mode(assume=assume) as mode:
            places = torch.empty(2, 50, dtype=torch.long, device="cuda")
            unknown = torch.sparse_coo_tensor(places, torch.ones(50, device="cuda"), (10, 10)).coalesce()
            assert unknown._nnz() == wanted
            assert [what for _, what in mode.reads.found] == ["size of coalesce"]
    values_mode.__enter__()


def on_gpu_random_integers():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    drawn = torch.randint(0, 1000, (500,), device="cuda")
    order = torch.randperm(50, device="cuda")
    assert 300 < len(drawn.unique()) < 500 and drawn.max() < 1000
    assert order.sort()[0].tolist() == list(range(50)) and order.tolist() != list(range(50))
    assert torch.equal(before, torch.get_rng_state()), "the host's generator was used"
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.randint(0, 1000, (500,), device="cuda")), "not the same again"


def on_gpu_small_known_floats():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]], device="cuda")
    assert (1.0 - mask.float()).sum().item() == 3.0
    assert (mask.bfloat16() * float("-inf")).isnan().sum().item() == 3
    assert torch.arange(0, 8, 2, device="cuda").float().cos()[0].item() == 1.0
    assert torch.linspace(0, 1, 5, device="cuda").tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert not values_mode.reads.facts(), values_mode.reads.facts()


def on_gpu_unknown_reads_are_found():
    x = torch.randn(1024, 1024, device="cuda")
    before = count_of_reads()
    if x.sum() > 0:  # the line that is found
        raise AssertionError("zero is not larger than zero")
    found = values_mode.reads.facts()
    assert count_of_reads() == before + 1, found
    line = next(
        i
        for i, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "# the line that is found" in text
    )
    place = f"test_values.py:{line} in on_gpu_unknown_reads_are_found"
    assert any(read["place"] == place and read["bytes"] == 1 for read in found), found
    assert (x @ x)[0, :4].tolist() == [0.0] * 4 and count_of_reads() == before + 2


def on_gpu_reads_in_backward_are_found():
    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            grad.norm().item()
            return grad

    Watch.apply(torch.randn(1000, 1000, device="cuda", requires_grad=True)).sum().backward()
    places = [read["place"] for read in values_mode.reads.facts()]
    assert any(place.endswith("in backward") for place in places), places


def on_gpu_memory_is_forgotten():
    kept = torch.arange(1000, device="cuda")
    at = kept.data_ptr()
    del kept
    x = torch.empty(2000, dtype=torch.float32, device="cuda")
    assert x.data_ptr() == at and x[5:9].tolist() == [0.0] * 4
    y = torch.zeros(1_000_000, device="cuda")
    y.normal_()
    before = count_of_reads()
    assert y[3].item() == 0.0 and count_of_reads() == before + 1


def on_gpu_no_memory_of_its_own():
    """The same requests with the mode and without."""

    def job():
        torch.cuda.empty_cache()
        torch.cuda.reset_accumulated_memory_stats()
        net = torch.nn.Sequential(
            torch.nn.Embedding(100, 64), torch.nn.Linear(64, 100), torch.nn.LayerNorm(100)
        ).to("cuda")
        ids = torch.randint(0, 100, (8, 16)).to("cuda")
        for _ in range(2):
            mask = ids > 50
            out = net(ids.masked_fill(mask, 0))
            loss = (
                torch.nn.functional.cross_entropy(out.flatten(0, 1), ids.flatten())
                + (out * net[1].bias).sum()
            )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        found = torch.cuda.memory_stats()
        return [
            found[name]
            for name in (
                "allocation.all.allocated",
                "active_bytes.all.allocated",
                "reserved_bytes.all.peak",
            )
        ]

    job()
    inside = job()
    values_mode.__exit__(None, None, None)
    outside = job()
    values_mode.__enter__()
    assert inside == outside, (inside, outside)


def on_gpu_assumptions():
    for assume, least, most in [("zeros", 1, 1), ("ones", 1, 1), ("random", 5, 8)]:
        values_mode.__exit__(None, None, None)
        with values.mode(assume=assume):
            scores = torch.randn(1000, 8, device="cuda") @ torch.randn(8, 8, device="cuda")
            experts = scores.argmax(-1).unique()
            assert least <= len(experts) <= most, (assume, experts)
            assert scores.mean().item() == 1.0 or assume != "ones"
        values_mode.__enter__()


def train(device):
    """Losses of a small network with attention, convolutions and checkpoints."""
    torch.manual_seed(0)
    nn, F = torch.nn, torch.nn.functional
    words, mix, last = nn.Embedding(20, 32), nn.Linear(32, 96), nn.Linear(32, 20)
    images = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 5),
    )
    net = nn.ModuleList([words, mix, last, images]).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)

    def attend(x):
        q, k, v = mix(x).view(4, 8, 3, 2, 16).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.gelu(out.transpose(1, 2).reshape(4, 8, 32))

    losses = []
    for _ in range(4):
        ids = torch.randint(0, 20, (4, 8), generator=generator).to(device)
        pixels = torch.randn(4, 3, 8, 8, generator=generator).to(device)
        x = torch.utils.checkpoint.checkpoint(attend, words(ids), use_reentrant=False)
        loss = F.cross_entropy(last(x).flatten(0, 1), ids.flatten())
        loss = loss + F.cross_entropy(images(pixels), ids[:, 0] % 5)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def on_gpu_all_values():
    """With all kernels on the host, a training run goes as on the CPU, with the same requests."""
    wanted = train("cpu")
    values_mode.__exit__(None, None, None)
    requests = []
    for kind in ("off", "off", "real"):  # the first time, libraries ask for workspaces
        torch.cuda.reset_accumulated_memory_stats()
        with values.mode(kind=kind) as mode:
            found = train("cuda")
        requests.append(torch.cuda.memory_stats()["allocation.all.allocated"])
    assert torch.allclose(found, wanted, atol=1e-4), (found, wanted)
    assert not mode.reads.facts() and not mode.failed, (mode.reads.facts(), mode.failed)
    assert requests[1] == requests[2], requests
    values_mode.__enter__()


def on_gpu_draws_are_those_of_an_h100():
    """What an H100 drew (PyTorch 2.11, the seed 1234, after three numbers): elements of its first, middle and last threads.

    An H200 has as many processors, and so draws the same.
    """
    count, at = 3_000_001, [0, 1, 2, 1_500_000, 3_000_000]
    for (name, *given), dtype, wanted in DRAWN:
        torch.manual_seed(1234)
        torch.rand(3, device="cuda")
        state = values_mode.draws_from(None)
        drawn = torch.empty(count, dtype=getattr(torch, dtype))
        overload = {"random_": "random_.from"}.get(name, f"{name}.default")
        assert values.draws.draw(overload, drawn, state, given), name
        found = [drawn[i].item() for i in at]
        near = {"int64": 0, "bfloat16": 1e-8}.get(dtype, 1e-6)  # a step of bfloat16 is far larger than what was written down
        assert all(abs(a - b) <= near for a, b in zip(found, wanted)), (name, dtype, found, wanted)
        on_gpu = getattr(torch.empty(count, dtype=drawn.dtype, device="cuda"), name)(*given)
        assert values_mode.shadow.known(on_gpu) == (dtype == "int64"), (name, dtype)
        if dtype == "int64":
            assert torch.equal(on_gpu.cpu(), drawn), (name, dtype)


def on_gpu_forward_values():
    """Without gradients: a loss is that of the CPU, weights stay as they begin, and no more memory is kept than allowed."""
    torch.manual_seed(3)
    layers = [layer for _ in range(30) for layer in (torch.nn.Linear(512, 512), torch.nn.Tanh())]
    net = torch.nn.Sequential(*layers)
    for layer in layers[::2]:
        torch.nn.init.orthogonal_(layer.weight, 2)  # signals neither vanish nor explode
    values_mode.__exit__(None, None, None)
    with values.mode("forward") as mode:
        mode.shadow.room = 48 << 20  # 31 MiB of weights, which a backward pass alone could not bring back
        own = copy.deepcopy(net).cuda()
        optimizer = torch.optim.AdamW(own.parameters(), lr=0.1)
        for _ in range(2):
            x = torch.randn(1024, 512)
            loss = own(x.cuda()).square().mean()
            most = mode.shadow.bytes
            loss.backward()
            torch.nn.utils.clip_grad_norm_(own.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            assert abs(loss.item() / net(x).square().mean().item() - 1) < 1e-3
            assert most <= mode.shadow.room + 20 * x.nbytes, most
        assert not mode.failed, mode.failed
    values_mode.__enter__()


def on_gpu_large_results():
    """Large results are written at once where they belong; those of what the host lacks come there, too."""
    mask = torch.arange(200_000).view(2, -1) % 3 == 0
    at = mask.cuda().nonzero()
    assert torch.equal(at.cpu(), mask.nonzero()), at
    rows = torch.arange(150_000) * 7 % 100_000
    table = torch.arange(200_000).view(-1, 2)
    assert torch.equal(table.cuda()[rows.cuda()].cpu(), table[rows])
    assert torch.equal(table.cuda()[mask[0].cuda()].cpu(), table[mask[0]])
    values_mode.__exit__(None, None, None)
    with values.mode("forward") as mode:
        layers, x = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64)), torch.randn(2, 3, 64, 64)
        wanted = layers(x)
        assert torch.allclose(layers.cuda()(x.cuda()).cpu(), wanted, atol=1e-5) and not mode.failed, mode.failed
    values_mode.__enter__()


def on_gpu_large_gradients_of_one_input():
    """Where the weight needs no gradient, the operator has results that are undefined."""
    values_mode.__exit__(None, None, None)
    with values.mode("real"):
        found = []
        for device in ["cpu", "cuda"]:
            torch.manual_seed(5)
            image, weight = (torch.randn(1, 1, side, side).to(device) for side in (300, 9))
            torch.nn.functional.conv2d(image.requires_grad_(), weight).square().mean().backward()
            found.append(image.grad.cpu())
        assert torch.allclose(*found), [each.abs().max() for each in found]
    values_mode.__enter__()


def on_gpu_the_first_of_equal_scores_are_chosen():
    """As CUDA's `topk` chooses: of those that equal the last one chosen, the first."""
    scores = torch.tensor([[1, 3, 3, 3, 2], [3, 3, 3, 1, 3], [0, 1, 2, 2, 3]], device="cuda")
    assert scores.topk(2).indices.tolist() == [[1, 2], [0, 1], [4, 2]]
    assert scores.topk(2, largest=False).indices.tolist() == [[0, 4], [3, 0], [0, 1]]


def on_gpu_forward_values_hold_no_gradients():
    """Autograd adds gradients up in place if nobody else holds them, so that the peak is the same in every mode."""

    def peak(kind):
        with values.mode(kind) as mode:
            if mode:
                mode.shadow.room = 1 << 30
            stack = torch.ones(8, 512, 512, device="cuda", requires_grad=True)
            x = torch.ones(512, 512, device="cuda")
            loss = sum((x @ stack[i]).sum() for i in range(8))
            torch.cuda.reset_peak_memory_stats()
            loss.backward()
            return torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()

    values_mode.__exit__(None, None, None)
    found = [peak(kind) for kind in ("off", "integers", "forward")]
    values_mode.__enter__()
    assert found == [found[0]] * 3, found


def on_gpu_tokens_choose_experts_as_the_scenario_says():
    from gmlake.predict.values.routing import Routing

    def counts(scenario):
        """How many tokens each of 16 experts gets, in each of 8 steps."""
        found = []
        with values.mode(routing=Routing(scenario, lambda: len(found))):
            for _ in range(8):
                scores = torch.randn(4096, 16, device="cuda") @ torch.randn(16, 16, device="cuda")
                found.append(torch.bincount(scores.topk(2).indices.flatten(), minlength=16).tolist())
            return found

    values_mode.__exit__(None, None, None)
    with tempfile.NamedTemporaryFile("w") as shares:
        shares.write("\n".join(["7", *["1"] * 15]))
        shares.flush()
        (listed, *_) = counts(shares.name)
    assert counts("balanced") == counts("W0") == [[512] * 16] * 8
    (skewed, *_) = counts("skew:4")
    assert all(sum(line) == 8192 for line in (skewed, listed))
    assert abs(skewed[0] - 2048) < 200 and max(skewed[1:]) < 550, skewed
    assert 1800 < listed[0] < 4096 and max(listed[1:]) < 700, listed
    hot, spread, dead = (counts(name)[0] for name in ("W2_hot_rank", "W3", "W5"))
    assert min(hot[:4]) > 1400 > 200 > max(hot[4:]), hot
    assert min(spread[::2]) > 700 > 300 > max(spread[1::2]), spread
    assert dead[:8] == [0] * 8 and min(dead[8:]) > 900, dead
    rotating, burst = counts("W6_rotating_hotspot"), counts("W7")
    assert [line.index(max(line)) // 4 for line in rotating[::3]] == [0, 1, 2], rotating
    assert max(burst[2]) < 700 and min(burst[3][:4]) > 1000, burst
    values_mode.__enter__()


def count_of_reads():
    return sum(read["count"] for read in values_mode.reads.facts())


if __name__ == "__main__":
    if sys.argv[1:] != ["on-gpu"]:
        if missing():
            print("SKIPPED test_values.py:", missing())
            sys.exit(0)
        start()
    import torch
    import torch.utils.checkpoint

    from gmlake.predict import values

    warnings.simplefilter("ignore")
    values_mode = values.mode()
    wanted = os.environ.get("ONLY", "on_gpu_")
    with values_mode:
        for name, test in list(globals().items()):
            if name.startswith("on_gpu_") and wanted in name:
                test()
                print("ok", name)
    if values_mode.failed:
        print("not computed:", values_mode.failed)
