"""The full mount on a GPU: what graphs, pools, sleeping and small requests cost, compared with stock PyTorch.

usage: mount.py OUT SECONDS        every part in a process of its own; OUT/mount.json grows with each, OUT/mount.md is the table
       mount.py PART ARM           one, in this process; the last line of its output is its result, in JSON

ARM is stock, again (stock once more: some jobs differ with themselves), expandable, or one of our allocators.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

GIB, MIB = 1 << 30, 1 << 20
LAKE = os.environ.get("ALLOCATORS", "lake").split()[0]
# GiB that sleep; less for a try on a small machine.
SLEEP = int(os.environ.get("SLEEP_GIB", "60"))
# On the virtual GPU, which computes nothing, values are not looked at.
COMPUTES = "GMLAKE_GPU" not in os.environ
PARTS = {}


def part(function):
    PARTS[function.__name__] = function
    return function


def net(torch, width=1024, depth=8):
    torch.manual_seed(0)
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)]
    return torch.nn.Sequential(*layers).cuda()


def median(values):
    return sorted(values)[len(values) // 2]


def timed(torch, run, count):
    """What `run` returns each time, and the median of the seconds that each took."""
    answers, times = [], []
    for _ in range(count):
        start = time.perf_counter()
        answers.append(run())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return answers, median(times)


def report(torch, answers, seconds):
    peak = torch.cuda.max_memory_reserved() / GIB
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return {"answers": answers, "ms": round(seconds * 1e3, 3), "peak_gib": round(peak, 3)}


@part
def requests(torch, gmlake):
    """Microseconds of torch.empty and its free: sizes that repeat, and a thousand live ones of sizes that never do."""
    empty, found = torch.empty, {}

    def pairs(size, count=5000):
        start = time.perf_counter()
        for _ in range(count):
            tensor = empty(size, dtype=torch.uint8, device="cuda")
            del tensor
        return (time.perf_counter() - start) / count * 1e6

    kept = empty(400 * MIB, dtype=torch.uint8, device="cuda")
    del kept
    start = time.perf_counter()
    while time.perf_counter() - start < 2:  # a processor that was idle is slow at first
        pairs(MIB)
    for size in (0, 512, 64 << 10, MIB, 20 * MIB, 200 * MIB):
        pairs(size, 500)
        found[str(size)] = round(min(pairs(size) for _ in range(7)), 3)
    draw = random.Random(1)
    live = [empty(draw.randrange(512, 8 * MIB), dtype=torch.uint8, device="cuda") for _ in range(1000)]
    rounds = []
    for _ in range(6):
        order = [(draw.randrange(1000), draw.randrange(512, 8 * MIB)) for _ in range(5000)]
        start = time.perf_counter()
        for place, size in order:
            live[place] = None
            live[place] = empty(size, dtype=torch.uint8, device="cuda")
        rounds.append((time.perf_counter() - start) / len(order) * 1e6)
    found["thousand live"] = round(median(rounds), 3)
    return found


@part
def graphs(torch, gmlake):
    """A whole training step as one CUDA graph; and one whose activations are in a MemPool."""
    found = {}
    model = net(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    batch, loss = torch.randn(4096, 1024, device="cuda"), None

    def step():
        optimizer.zero_grad(set_to_none=True)
        value = (model(batch) - batch).square().mean()
        value.backward()
        optimizer.step()
        return value

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        others = [torch.randn(1000 + index * 37, 1024, device="cuda") for index in range(3)]
        graph.replay()
        del others
        return loss.item()

    found["whole-step graph"] = report(torch, *timed(torch, replay, 40))
    del graph, loss, model, optimizer
    torch.cuda.empty_cache()
    model, pool = net(torch), torch.cuda.MemPool()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def pooled():
        with torch.cuda.use_mem_pool(pool):
            value = (model(batch) - batch).square().mean()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.item()

    found["MemPool"] = report(torch, *timed(torch, pooled, 40))
    return found


@part
def trees(torch, gmlake):
    """torch.compile(mode="reduce-overhead"), training: CUDA graph trees."""
    model = net(torch, depth=4)
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(1)
    batches = [torch.randn(2048, 1024, device="cuda") for _ in range(4)]
    count = [0]

    def step():
        batch = batches[count[0] % 4]
        count[0] += 1
        value = (compiled(batch) - batch).square().mean()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.item()

    early, _ = timed(torch, step, 8)
    late, seconds = timed(torch, step, 60)
    return {"reduce-overhead": report(torch, early + late, seconds)}


@part
def generation(torch, gmlake):
    """generate(cache_implementation="static"), which compiles its decoding step with CUDA graph trees."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=6, num_attention_heads=16)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, **sizes)).to(torch.bfloat16).cuda().eval()
    words = torch.randint(0, 32000, (4, 128), device="cuda")
    options = dict(max_new_tokens=100, min_new_tokens=100, do_sample=False, pad_token_id=0, eos_token_id=None,
                   cache_implementation="static")

    def run():
        with torch.no_grad():
            return model.generate(words, **options)[:, 128:].tolist()

    timed(torch, run, 2)
    tokens, seconds = timed(torch, run, 3)
    return {"static cache": report(torch, tokens, seconds)}


def filled(torch, count, gib=1):
    return [torch.full((gib * GIB // 8,), 1000 + index, dtype=torch.int64, device="cuda") for index in range(count)]


def verify(is_right, what):
    if COMPUTES and not is_right:
        raise AssertionError(what)


def are_right(tensors):
    return all(bool((tensor == 1000 + index).all()) for index, tensor in enumerate(tensors))


@part
def sleeping(torch, gmlake):
    """Memory goes and comes back: how much, how fast, where, with what in it, and under a CUDA graph."""
    found = {}
    pinned = torch.empty(GIB, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    bus = timed(torch, lambda: target.copy_(pinned, non_blocking=True), 5)[1]
    del pinned, target
    with gmlake.tag("weights"):
        tensors = filled(torch, SLEEP)
        weight = torch.ones(4096, 4096, device="cuda")
    batch = torch.ones(4096, 4096, device="cuda")
    weight @ batch
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = weight @ batch
    places = [tensor.data_ptr() for tensor in tensors]
    torch.cuda.synchronize()
    for level, name in ((2, "without contents"), (1, "with contents, first time"), (1, "with contents, again")):
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        start = time.perf_counter()
        given = gmlake.sleep(level=level, tags=["weights"])
        slept, seen = time.perf_counter() - start, torch.cuda.mem_get_info()[0] - free
        other = torch.zeros(GIB, dtype=torch.uint8, device="cuda")
        start = time.perf_counter()
        back = gmlake.wake(tags=["weights"])
        woken = time.perf_counter() - start
        assert back == given and places == [tensor.data_ptr() for tensor in tensors]
        verify(other.sum().item() == 0, "another tensor changed")
        if level == 1:
            verify(are_right(tensors), "contents changed")
        else:
            for index, tensor in enumerate(tensors):
                tensor.fill_(1000 + index)
            weight.fill_(1)
        product.zero_()
        graph.replay()
        verify(product.eq(4096).all().item(), "the graph's result changed")
        found[name] = {
            "gib": given / GIB, "returned": round(seen / given, 4), "sleep_s": round(slept, 3),
            "wake_s": round(woken, 3), "wake_gib_s": round(given / GIB / woken, 1), "bus_gib_s": round(1 / bus, 1),
        }
        print(json.dumps(found), flush=True)
    return found


@part
def rollout(torch, gmlake):
    """Train and roll out by turns, where both together do not fit: 16 GiB and 16 GiB, of 24 GiB."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(24 * GIB / total)

    def block():
        return gmlake.tag("train") if gmlake else __import__("contextlib").nullcontext()

    with block():
        state = filled(torch, 16)
    times = []
    try:
        for turn in range(3):
            start = time.perf_counter()
            if gmlake:
                gmlake.sleep(tags=["train"])
            cache = [torch.full((GIB // 8,), turn, dtype=torch.int64, device="cuda") for _ in range(16)]
            verify(all(bool((tensor == turn).all()) for tensor in cache), "what was rolled out changed")
            del cache
            torch.cuda.empty_cache()
            if gmlake:
                gmlake.wake(tags=["train"])
            verify(are_right(state), "contents changed")
            times.append(round(time.perf_counter() - start, 3))
    except torch.OutOfMemoryError as error:
        return {"outcome": "out of memory", "turn": len(times), "text": str(error)[:300]}
    return {"outcome": "done", "seconds of each turn": times}


ORDER = [
    *(("requests", arm) for arm in ("stock", LAKE, "again", LAKE)), ("sleeping", LAKE), ("rollout", "stock"), ("rollout", LAKE),
    *((name, arm) for arm in ("stock", LAKE, "again", "expandable") for name in ("graphs", "trees", "generation")),
]


def one(name, arm):
    gmlake = None
    if arm not in ("stock", "again", "expandable"):
        import gmlake

        gmlake.enable(arm)
        assert gmlake.mounted() == "full", gmlake.mounted()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    print(json.dumps(PARTS[name](torch, gmlake)))


def run(name, arm, limit, folder):
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"))
    if arm == "expandable":
        environment["PYTORCH_CUDA_ALLOC_CONF"] = environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    start = time.monotonic()
    try:
        done = subprocess.run([sys.executable, __file__, name, arm], capture_output=True, text=True, timeout=limit,
                              env=environment)
        output, errors, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output, errors, code = (late.stdout or b"").decode(), (late.stderr or b"").decode(), "late"
    lines = [line for line in output.splitlines() if line.startswith("{")]
    found = {"part": name, "arm": arm, "seconds": round(time.monotonic() - start, 1), "code": code}
    found["result"] = json.loads(lines[-1]) if lines else None
    if code != 0:
        found["error"] = errors[-1500:]
    return found


def same(one, other):
    """Whether two lists of numbers are equal, and otherwise their largest difference."""
    if one == other:
        return "equal"

    def flat(it):
        return [number for each in it for number in flat(each)] if isinstance(it, list) else [it]

    return f"differ by {max(abs(a - b) for a, b in zip(flat(one), flat(other))):.2g}"


def table(results):
    lines = ["| part | job | arm | median ms | peak GiB | answers as stock's |", "|---|---|---|---:|---:|---|"]
    stock = {each["part"]: each["result"] for each in results if each["arm"] == "stock" and each["result"]}
    others = []
    for each in results:
        result, name = each["result"], each["part"]
        if each["code"] != 0:
            others.append(f"- {name}, {each['arm']}: FAILED ({each['code']}): {each.get('error', '').strip()[-200:]}")
        if name not in ("graphs", "trees", "generation"):
            others.append(f"- {name}, {each['arm']}: `{json.dumps(result)}`")
            continue
        for job, numbers in (result or {}).items():
            theirs = stock.get(name, {}).get(job)
            verdict = same(numbers["answers"], theirs["answers"]) if theirs else "?"
            lines.append(f"| {name} | {job} | {each['arm']} | {numbers['ms']} | {numbers['peak_gib']} | {verdict} |")
    return "\n".join([*lines, "", *others, ""])


def main(out, seconds):
    out.mkdir(parents=True, exist_ok=True)
    end, results = time.monotonic() + seconds, []
    for name, arm in ORDER:
        left = end - time.monotonic()
        if left < 15:
            results.append({"part": name, "arm": arm, "code": "no time left", "result": None})
            continue
        results.append(run(name, arm, min(left, 110), out))
        print(json.dumps({key: value for key, value in results[-1].items() if key != "result"}), flush=True)
        (out / "mount.json").write_text(json.dumps(results, indent=1))
        (out / "mount.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    if sys.argv[1] in PARTS:
        one(*sys.argv[1:])
    else:
        main(Path(sys.argv[1]), float(sys.argv[2]))
