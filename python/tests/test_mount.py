"""What works under the full mount, in a real PyTorch on the virtual GPU. Plain Python: no test framework is needed.

    python -m gmlake run --virtual h200 python/tests/test_mount.py

The virtual GPU computes nothing: what is looked at is memory, its numbers and its history. docs/pytorch.md names the test
behind each of its rows.
"""

import gc
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import torch

import gmlake

MIB, GIB = 1 << 20, 1 << 30
CUDA = torch.device("cuda")
MINOR = int(torch.__version__.split(".")[1])


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device=CUDA)


def clean():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def raises(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def in_a_process(code, *arguments, environment=(), enable=True):
    """Runs code in a process of its own, on the same virtual GPU; returns its output, and errors if it fails."""
    before = "import gmlake\ngmlake.enable()\n" if enable else ""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(before + code)
        command = [sys.executable, str(script), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **dict(environment)})


def test_it_is_the_full_mount():
    assert gmlake.mounted() == "full" and torch.cuda.get_allocator_backend() == "gmlake"


def test_statistics_follow_every_request():
    clean()
    base, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    big, small = empty(5 * MIB + 1), empty(1000)
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == base + 5 * MIB + 512 + 1024, stats
    assert stats["allocated_bytes.large_pool.current"] - 5 * MIB == 512, stats
    assert stats["requested_bytes.all.allocated"] == 5 * MIB + 1 + 1000, stats
    assert stats["allocation.all.allocated"] == 2 and stats["allocation.small_pool.allocated"] == 1, stats
    assert stats["reserved_bytes.all.current"] - reserved >= 5 * MIB, stats
    held = stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"]
    assert stats["inactive_split_bytes.all.current"] == held, stats
    del big
    stats = torch.cuda.memory_stats()
    assert stats["active_bytes.all.current"] == base + 1024 and stats["active_bytes.all.freed"] == 5 * MIB + 512, stats
    assert torch.cuda.max_memory_allocated() == base + 5 * MIB + 512 + 1024
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == base + 1024
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    del small
    assert torch.cuda.memory_allocated() == base
    clean()
    assert torch.cuda.memory_reserved() <= reserved


def test_statistics_have_every_key_of_stock():
    code = "import torch, json; torch.zeros(1, device='cuda'); print(json.dumps(sorted(torch.cuda.memory_stats())))"
    stock = in_a_process(code, enable=False)
    assert stock.returncode == 0, stock.stderr
    assert sorted(torch.cuda.memory_stats()) == json.loads(stock.stdout)
    assert len(json.loads(stock.stdout)) > 100
    for part in ("Allocated memory", "GPU reserved memory", "OOMs"):
        assert part in torch.cuda.memory_summary(), part


def test_the_generic_accelerator_interface():
    clean()
    accelerator = torch.accelerator
    base = accelerator.memory_allocated()
    tensor = empty(3 * MIB)
    assert accelerator.memory_allocated() == base + 3 * MIB == torch.cuda.memory_allocated()
    assert accelerator.max_memory_reserved() >= 3 * MIB
    del tensor
    accelerator.reset_peak_memory_stats()
    assert accelerator.max_memory_allocated() == base
    accelerator.reset_accumulated_memory_stats()
    accelerator.empty_cache()
    assert accelerator.memory_stats()["allocation.all.allocated"] == 0


def test_requests_past_python():
    base = torch.cuda.memory_allocated()
    at = torch.cuda.caching_allocator_alloc(1000)
    assert torch.cuda.memory_allocated() == base + 1024
    torch.cuda.caching_allocator_delete(at)
    assert torch.cuda.memory_allocated() == base


def test_the_memory_fraction():
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction(0.1)
        assert torch.cuda.get_per_process_memory_fraction() == 0.1
        kept = empty(int(total * 0.06))
        raises(torch.OutOfMemoryError, "that this process may hold", empty, int(total * 0.06))
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            raises(torch.OutOfMemoryError, "allocate", empty, int(total * 0.06))
            fits = empty(int(total * 0.03))
        raises(torch.OutOfMemoryError, "that this process may hold", empty, int(total * 0.02))
        del kept, fits, pool
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    clean()


def test_the_memory_fraction_of_the_environment():
    if MINOR < 10:
        return  # PyTorch 2.9 does not have this setting
    code = (
        "import torch\n"
        "print(torch.cuda.get_per_process_memory_fraction(0))\n"
        "try: torch.empty(int(0.6 * torch.cuda.get_device_properties(0).total_memory), dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError as error: print('that this process may hold' in str(error))\n"
        "print(torch.cuda.get_per_process_memory_fraction(0))\n"
    )
    done = in_a_process(code, environment={"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.5"})
    assert done.stdout.split() == ["0.5", "True", "0.5"], (done.stdout, done.stderr)


def test_out_of_memory_is_told_to_observers_and_says_who_holds_it():
    clean()
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
    before = torch.cuda.memory_stats()["num_ooms"]
    kept = empty(10 * GIB)
    error = raises(torch.OutOfMemoryError, "Tried to allocate 1000.00 GiB. GPU 0 has a total capacity of", empty, 1000 * GIB)
    for part in ("gmlake (", "10.00 GiB are in tensors", "gmlake-sim blame --at oom"):
        assert part in str(error), f"{part}: {error}"
    assert len(seen) == 1 and seen[0][1] == 1000 * GIB, seen
    assert torch.cuda.memory_stats()["num_ooms"] == before + 1
    raises(torch.OutOfMemoryError, "1EB", empty, 1 << 60)
    del kept
    empty(100 * GIB)
    clean()


def test_both_allocators_give_back_for_each_other():
    clean()
    total = torch.cuda.mem_get_info()[1]
    most = int(total * 0.7)
    empty(most)  # and gone: it is cached
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = empty(most)
    del tensor, pool
    gc.collect()
    tensor = empty(most)
    assert torch.cuda.memory_stats()["num_ooms"] == 0
    del tensor
    clean()


def history_of(run, **options):
    torch.cuda.memory._record_memory_history(**options)
    try:
        run()
        return torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def make_and_drop():
    kept = empty(7 * MIB)
    dropped = empty(9 * MIB)
    del dropped
    return kept


def test_history_is_pytorchs_own_with_stacks():
    clean()
    kept = []
    found = history_of(lambda: kept.append(make_and_drop()), stacks="python")
    trace = found["device_traces"][0]
    kinds = ("alloc", "free_requested", "free_completed")
    events = [(entry["action"], entry["size"]) for entry in trace if entry["action"] in kinds]
    assert events == [("alloc", 7 * MIB), ("alloc", 9 * MIB), ("free_requested", 9 * MIB), ("free_completed", 9 * MIB)], events
    assert {"segment_map"} <= {entry["action"] for entry in trace} or {"segment_alloc"} <= {entry["action"] for entry in trace}
    alloc = next(entry for entry in trace if entry["action"] == "alloc")
    assert "make_and_drop" in [frame["name"] for frame in alloc["frames"]], alloc["frames"]
    times = [entry["time_us"] for entry in trace]
    assert times == sorted(times) and times[0] > 1_600_000_000_000_000, times
    active = [block for segment in found["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    mine = next(block for block in active if block["address"] == kept[0].data_ptr())
    assert mine["requested_size"] == 7 * MIB and "make_and_drop" in [frame["name"] for frame in mine["frames"]], mine
    for segment in found["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"], segment
    assert not torch.cuda.memory._snapshot()["device_traces"][0], "recording is over"


def test_history_keeps_the_last_entries_and_the_state():
    def run():
        for _ in range(10):
            empty(MIB)

    assert len(history_of(run, max_entries=5)["device_traces"][0]) == 5
    state = history_of(run, enabled="state")
    assert len(state["device_traces"][0]) <= 1, "as PyTorch's own: the state, and no history"


def test_history_says_who_emptied_the_cache():
    def run():
        empty(30 * MIB)
        torch.cuda.empty_cache()

    for context in ("all", "alloc"):
        clean()
        found = history_of(run, context=context, stacks="python")["device_traces"][0]
        given_back = [entry for entry in found if entry["action"] in ("segment_free", "segment_unmap")]
        names = {frame["name"] for entry in given_back for frame in entry.get("frames", ())}
        assert given_back and ("empty_cache" in names) == (context == "all"), (context, names)


def test_history_ends_with_what_was_before_the_snapshot():
    clean()
    torch.cuda.memory._record_memory_history()
    try:
        empty(30 * MIB)
        torch.cuda.memory._snapshot()
        torch.cuda.empty_cache()
        actions = [entry["action"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    assert actions.count("snapshot") == 1 and actions[-1] in ("segment_free", "segment_unmap"), actions


def test_history_names_compiled_regions():
    found = history_of(make_and_drop)["device_traces"][0]
    assert {entry["compile_context"] for entry in found} == {"N/A"}, found


def test_snapshots_are_written_and_read():
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/x.pickle"
        torch.cuda.memory._record_memory_history(stacks="python")
        kept = make_and_drop()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            pooled = empty(3 * MIB)
        torch.cuda.memory._dump_snapshot(file)
        torch.cuda.memory._record_memory_history(enabled=None)
        with open(file, "rb") as opened:
            content = pickle.load(opened)
        sizes = {entry["size"] for entry in content["device_traces"][0] if entry["action"] == "alloc"}
        assert {7 * MIB, 9 * MIB, 3 * MIB} <= sizes, sizes
        from torch.cuda._memory_viz import segment_plot, trace_plot

        assert "viz" in trace_plot(content) and "viz" in segment_plot(content)
        if "GMLAKE_SIM" in os.environ:
            done = subprocess.run([os.environ["GMLAKE_SIM"], "inspect", file], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        del kept, pooled, pool


def test_snapshots_of_one_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = empty(3 * MIB)
    addresses = [block["address"] for segment in pool.snapshot() for block in segment["blocks"]]
    assert tensor.data_ptr() in addresses, addresses
    other = empty(3 * MIB)
    assert other.data_ptr() not in addresses
    assert pool.use_count() == 1
    ids = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    assert pool.id in ids and (0, 0) in ids, ids


def test_memory_of_a_pool_is_of_the_sums():
    clean()
    base, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = empty(30 * MIB)
    assert torch.cuda.memory_allocated() == base + 30 * MIB
    assert torch.cuda.memory_reserved() >= reserved + 30 * MIB
    mine = empty(20 * MIB)
    assert torch.cuda.max_memory_allocated() == base + 50 * MIB
    del mine, tensor
    empty(40 * MIB)
    assert torch.cuda.max_memory_allocated() == base + 50 * MIB, "the two were never live at once"
    del pool
    clean()
    assert torch.cuda.memory_allocated() == base and torch.cuda.memory_reserved() <= reserved


def test_pools_nest_and_belong_to_their_thread():
    one, two = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(one):
        first = empty(MIB)
        with torch.cuda.use_mem_pool(two):
            second = empty(MIB)
        third = empty(MIB)
        from_thread = []
        thread = threading.Thread(target=lambda: from_thread.append(empty(MIB)))
        thread.start()
        thread.join()

    def inside(pool, tensor):
        places = [(segment["address"], segment["total_size"]) for segment in pool.snapshot()]
        return any(at <= tensor.data_ptr() < at + size for at, size in places)

    # In 2.9, the outer pool goes before the inner one.
    inner, other = (two, one) if MINOR > 9 else (one, two)
    assert inside(one, first) and inside(one, third) and inside(inner, second) and not inside(other, second)
    assert not inside(one, from_thread[0])


def test_a_graph_is_captured_and_replayed():
    clean()
    base = torch.cuda.memory_allocated()
    batch = torch.ones(1 << 20, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = batch * 2 + 1
    for _ in range(3):
        graph.replay()
        empty(MIB)
    torch.cuda.synchronize()
    again = torch.cuda.CUDAGraph()
    with torch.cuda.graph(again, pool=graph.pool()):
        more = result + 1
    again.replay()
    torch.cuda.synchronize()
    del graph, again, result, more, batch
    clean()
    assert torch.cuda.memory_allocated() == base


def test_record_stream_during_a_capture_is_held_back():
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    lent = empty(4 * MIB)
    place = lent.data_ptr()
    with torch.cuda.graph(graph):
        inside = torch.ones(100, device=CUDA)
        lent.record_stream(side)
        del lent
    assert inside.is_cuda
    graph.replay()
    torch.cuda.synchronize()
    again = empty(4 * MIB)
    assert again.data_ptr() == place or gmlake.stats(0)["deferred_frees"] > 0


def test_frees_that_wait_are_no_error():
    """PyTorch looks for the runtime's last error after a launch; to ask whether a stream is done must not leave one."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        sum = torch.zeros(40 * MIB, device=CUDA)
    for _ in range(20):
        lent = torch.empty(40 * MIB, device=CUDA)
        with torch.cuda.stream(side):
            sum += lent
        lent.record_stream(side)
        del lent
    clean()


def test_checkpoints_of_a_pool():
    """What CUDA graph trees do: go back to a state of the pool in which other tensors were alive."""
    pool = torch.cuda.MemPool()
    device = 0
    with torch.cuda.use_mem_pool(pool):
        kept = empty(3 * MIB)
        state = torch._C._cuda_getCheckpointState(device, pool.id)
        later = empty(5 * MIB)
    assert torch._C._cuda_checkPoolLiveAllocations(device, pool.id, {kept.data_ptr(), later.data_ptr()})
    storage = later.untyped_storage()._cdata
    torch._C._cuda_setCheckpointPoolState(device, state, [storage], [])
    assert torch._C._cuda_checkPoolLiveAllocations(device, pool.id, {kept.data_ptr()})


def test_compile_with_graph_trees():
    if not torch.utils._triton.has_triton():
        print("    skipped: there is no Triton")
        return
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    pools = set()
    for _ in range(4):
        compiled(torch.randn(32, 64, device=CUDA)).sum().backward()
        model.zero_grad(set_to_none=True)
        pools |= {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    assert len(pools) > 1, "no graph was captured"


def test_cudnn_may_try_its_algorithms():
    torch.backends.cudnn.benchmark = True
    try:
        torch.nn.Conv2d(3, 8, 3).cuda()(torch.randn(2, 3, 32, 32, device=CUDA)).sum().backward()
    finally:
        torch.backends.cudnn.benchmark = False


def test_the_profiler_sees_memory():
    with torch.profiler.profile(profile_memory=True) as profiler:
        kept = empty(11 * MIB)
    field = "device_memory_usage" if hasattr(profiler.key_averages()[0], "device_memory_usage") else "cuda_memory_usage"
    assert sum(getattr(row, field) for row in profiler.key_averages()) >= 11 * MIB
    del kept


def test_tensors_for_other_processes():
    context = torch.multiprocessing.reductions
    error = raises(RuntimeError, "MemPool", context.reduce_tensor, torch.ones(100, device=CUDA))
    assert "cannot be opened by another process" in str(error)


def child(queue):
    torch.zeros(1, device="cuda")
    queue.put((gmlake.mounted(), torch.cuda.get_allocator_backend(), gmlake.stats(0)["mallocs"]))


def test_spawned_children_have_the_same_allocator():
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        found = queue.get()
        process.join()
        assert found[:2] == ("full", "gmlake") and found[2] > 0 and process.exitcode == 0, (method, found)


USES_THE_GPU_AT_IMPORT = """
import multiprocessing, warnings
import torch
import gmlake
kept = torch.ones(1 << 20, device="cuda")

def child(rank, queue):
    with warnings.catch_warnings(record=True) as found:
        queue.put((gmlake.enabled(), gmlake.stats(0)["mallocs"] > 0, torch.cuda.get_allocator_backend(), len(found)))

if __name__ == "__main__":
    for method in ["spawn", "forkserver"]:
        queue = multiprocessing.get_context(method).SimpleQueue()
        torch.multiprocessing.start_processes(child, args=(queue,), nprocs=1, start_method=method)
        assert queue.get() == (True, True, torch.cuda.get_allocator_backend(), 0), method
        rows = torch.utils.data.DataLoader(range(8), num_workers=1, multiprocessing_context=method)
        assert [int(row) for row in rows] == list(range(8)), method
    print("done")
"""

TOO_LATE = """
import torch
torch.ones(1, device="cuda")
from gmlake import _enable
_enable.enable_in_child("allocator=lake")
_enable.enable_in_child("allocator=lake")
print("backend", torch.cuda.get_allocator_backend(), torch.ones(1, device="cuda").shape)
"""


def test_children_whose_main_module_uses_the_gpu_have_the_allocator():
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "job.py")
        script.write_text(USES_THE_GPU_AT_IMPORT)
        command = [sys.executable, "-m", "gmlake", "run", "--allocator", "lake", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "done" in done.stdout, done.stderr


def test_a_child_that_is_too_late_goes_on_with_pytorchs_own_allocator():
    own = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run([sys.executable, "-c", TOO_LATE], capture_output=True, text=True, env=own, timeout=120)
    assert done.returncode == 0 and "backend native" in done.stdout, done.stderr
    assert done.stderr.count("uses PyTorch's own allocator, not its parent's") == 1, done.stderr


def test_forked_children_leave_memory_alone():
    tensor = torch.ones(1000, device=CUDA)
    pid = os.fork()
    if pid == 0:
        del tensor
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert gmlake.stats(0)["unknown_frees"] == 0 and tensor.is_cuda


def test_many_threads():
    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            kept = []
            for step in range(300):
                kept.append(empty(1000 * (1 + seed * step % 500)))
                if len(kept) > 8:
                    kept.pop(seed % 8).record_stream(torch.cuda.default_stream())

    clean()
    base = torch.cuda.memory_allocated()
    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    clean()
    assert torch.cuda.memory_allocated() == base and torch.cuda.memory_stats()["active.all.current"] == \
        torch.cuda.memory_stats()["allocation.all.current"]


def test_memory_sleeps_and_wakes_where_it_was():
    clean()
    with gmlake.tag("weights"):
        weights = [empty(1000), empty(300 * MIB)]
    other = empty(50 * MIB)
    places = [tensor.data_ptr() for tensor in weights]
    free, reserved = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
    given = gmlake.sleep(tags=["weights"])
    assert given >= 300 * MIB and torch.cuda.mem_get_info()[0] == free + given
    assert torch.cuda.memory_reserved() == reserved - given
    while_asleep = empty(300 * MIB)
    with gmlake.tag("weights"):
        more = empty(20 * MIB)
    raised = gmlake.sleep(tags=["weights"])
    assert raised == 0, "it sleeps already"
    assert gmlake.wake(tags="weights") == given
    assert [tensor.data_ptr() for tensor in weights] == places
    assert not {while_asleep.data_ptr(), more.data_ptr(), other.data_ptr()} & set(places)
    # What dies asleep is not woken.
    gmlake.sleep(level=2, tags=["weights"])
    del weights[1]
    gc.collect()
    assert gmlake.wake() < 300 * MIB
    assert gmlake.free_host() >= given and gmlake.free_host() == 0
    del weights, other, while_asleep, more
    clean()


def test_everything_sleeps_and_graphs_stay():
    clean()
    weight, batch = torch.ones(1000, device=CUDA), torch.ones(1000, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = weight * batch
        raises(RuntimeError, "while a CUDA graph is captured", gmlake.sleep)
    given = gmlake.sleep()
    assert given > 0
    meanwhile = empty(10 * MIB)
    assert gmlake.wake() == given
    graph.replay()
    torch.cuda.synchronize()
    assert product.is_cuda and meanwhile.is_cuda
    raises(ValueError, "expected 1 (keep contents)", gmlake.sleep, 3)
    raises(ValueError, "invalid tag", gmlake.sleep, tags=["a,b"])


def test_what_does_not_fit_sleeps_on():
    clean()
    with gmlake.tag("large"):
        tensor = empty(80 * GIB)
    gmlake.sleep(level=2, tags=["large"])
    thief = empty(100 * GIB)
    raises(RuntimeError, "sleep on, because they cannot be had again", gmlake.wake)
    del thief
    assert gmlake.wake() >= 80 * GIB
    del tensor
    clean()


def test_a_recording_ends_with_the_program():
    with tempfile.TemporaryDirectory() as folder:
        for body, code in (("raise ValueError('the end')", 1), ("", 0)):
            file = f"{folder}/run.pickle"
            done = in_a_process(
                "import contextlib, sys, torch\n"
                "stack = contextlib.ExitStack()\n"
                "stack.enter_context(gmlake.record(sys.argv[1]))\n"
                f"x = torch.empty(12345678, device='cuda')\n{body}\n", file)
            assert done.returncode == code and "NameError" not in done.stderr, done.stderr
            with open(file, "rb") as opened:
                trace = pickle.load(opened)["device_traces"][0]
            assert any(entry["size"] == 4 * 12345678 for entry in trace), trace
            os.unlink(file)


def test_blocks_that_are_recorded_within_each_other_lose_nothing():
    code = (
        "import sys, torch\n"
        "with gmlake.record(sys.argv[1]):\n"
        "    a = torch.empty(50 << 20, dtype=torch.uint8, device='cuda')\n"
        "    with gmlake.record(sys.argv[2]): b = torch.empty(5 << 20, dtype=torch.uint8, device='cuda')\n"
        "    c = torch.empty(70 << 20, dtype=torch.uint8, device='cuda')\n"
        "assert not torch._C._cuda_isHistoryEnabled()\n"
        "torch.cuda.memory._record_memory_history()\n"
        "with gmlake.record(sys.argv[2]): pass\n"
        "assert torch._C._cuda_isHistoryEnabled()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = in_a_process(code, f"{folder}/outer.pickle", f"{folder}/inner.pickle")
        assert done.returncode == 0 and done.stderr.count("history was on already") == 2, done.stderr
        with open(f"{folder}/outer.pickle", "rb") as opened:
            trace = pickle.load(opened)["device_traces"][0]
        assert [entry["size"] >> 20 for entry in trace if entry["action"] == "alloc"] == [50, 5, 70], trace


def test_memory_that_ran_out_is_told_of_once_with_the_limit_of_the_process():
    code = (
        "import sys, torch\n"
        "x = torch.empty(4 << 20, dtype=torch.uint8, device='cuda')\n"
        "gmlake.record_history()\n"
        "pool = torch.cuda.MemPool()\n"
        "with torch.cuda.use_mem_pool(pool): y = torch.empty(4 << 20, dtype=torch.uint8, device='cuda')\n"
        "torch.cuda.set_per_process_memory_fraction(0.001)\n"
        "try: torch.empty(1 << 30, dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError as error: print(error)\n"
        "assert torch.cuda.memory_stats()['num_ooms'] == 1\n"
        "gmlake.snapshot(sys.argv[1])\n"
        "try:\n"
        "    with torch.cuda.use_mem_pool(pool): torch.empty(1 << 30, dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError as error: print(error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = in_a_process(code, f"{folder}/now.json")
        ours, theirs = done.stdout.splitlines()
        assert "that this process may hold" in ours and "allowed" not in ours, done.stdout + done.stderr
        assert "allowed;" not in theirs and "The process may hold 0.1" in theirs, theirs
        trace = json.loads(Path(folder, "now.json").read_text())["device_traces"][0]
        assert [entry["action"] for entry in trace].count("oom") == 1, trace


def test_an_unknown_version_is_mounted_as_before_and_says_so():
    code = (
        "import warnings, gmlake, torch\n"
        "torch.__version__ = '2.99.0'\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    gmlake.enable()\n"
        "assert gmlake.mounted() == 'pluggable', gmlake.mounted()\n"
        "assert any('is not one of 2.9 to 2.15' in str(each.message) for each in seen), seen\n"
        "x = torch.empty(1 << 20, device='cuda')\n"
        "assert torch.cuda.memory_allocated() >= 1 << 22\n"
        "assert sum(each['total_size'] for each in torch.cuda.memory_snapshot()) == torch.cuda.memory_reserved()\n"
        "assert gmlake.card().entries[0].bytes == torch.cuda.memory_reserved(), gmlake.card()\n"
        "try: gmlake.sleep()\n"
        "except gmlake.NotEnabled as error: assert 'need the full mount' in str(error)\n"
        "else: raise AssertionError('it slept')\n"
    )
    done = in_a_process(code, enable=False)
    assert done.returncode == 0, done.stderr


def with_host(code, allocator="None"):
    begin = (
        "import torch, gmlake\n"
        f"gmlake.enable({allocator}, host=True)\n"
        "MIB = 1 << 20\n"
        "def pinned(size): return torch.empty(size, dtype=torch.uint8, pin_memory=True)\n"
        "def numbers():\n"
        "    torch.cuda.init()\n"
        "    found = torch.cuda.host_memory_stats()\n"
        "    kind = 'allocated_bytes' if 'active_bytes.peak' in found else 'reserved_bytes'\n"
        "    return found[f'{kind}.current'], found[f'{kind}.peak'], found['num_host_alloc'], found['num_host_free']\n"
    )
    done = in_a_process(begin + code, enable=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pinned_memory_has_the_size_that_was_requested():
    code = (
        "experts = [pinned(size * MIB) for size in (2304, 1152, 576)]\n"  # 1.78 times that in a stock PyTorch
        "assert numbers() == (4032 * MIB, 4032 * MIB, 3, 0) and all(each.is_pinned() for each in experts)\n"
        "at = experts.pop().data_ptr()\n"
        "again = pinned(576 * MIB - 5000)\n"
        "assert again.data_ptr() == at and numbers()[2] == 3, 'a block that is a little larger will do'\n"
        "del again\n"
        "other = pinned(300 * MIB)\n"
        "assert numbers() == (3756 * MIB, 4032 * MIB, 4, 1), 'the free block of 576 MiB had to go'\n"
        "del experts, other\n"
        "torch._C._host_emptyCache()\n"
        "assert numbers() == (0, 4032 * MIB, 4, 4)\n"
        "torch.cuda.reset_peak_host_memory_stats(); torch.cuda.reset_accumulated_host_memory_stats()\n"
        "assert numbers() == (0, 0, 0, 0)\n"
        "print(gmlake.mounted())"
    )
    assert with_host(code).strip() == "full"
    assert with_host(code, "'stock'").strip() == "None"  # the GPU's memory is PyTorch's


def test_what_changes_from_step_to_step_pins_no_more_than_was_in_use():
    code = (
        "import random\n"
        "random.seed(1)\n"
        "state, stream = pinned(100 * MIB), torch.cuda.Stream()\n"
        "source = torch.empty(40 * MIB, dtype=torch.uint8, device='cuda')\n"
        "most = 0\n"
        "for step in range(30):\n"
        "    sizes = [random.randrange(1, 40 * MIB) for _ in range(5)]\n"
        "    most = max(most, 100 * MIB + sum(sizes))\n"
        "    buffers = [pinned(size) for size in sizes]\n"
        "    with torch.cuda.stream(stream):\n"
        "        for buffer in buffers: buffer.copy_(source[:len(buffer)], non_blocking=True)\n"
        "    del buffers, buffer\n"
        "    stream.synchronize()\n"
        "assert most <= numbers()[1] <= 1.01 * most, (most, numbers())\n"
    )
    with_host(code)


def test_pinned_memory_of_a_graph_is_pytorchs_own():
    code = (
        "before = pinned(3 * MIB)\n"
        "x, graph = torch.zeros(3 * MIB, dtype=torch.uint8, device='cuda'), torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    inside = pinned(3 * MIB)\n"
        "    inside.copy_(x, non_blocking=True); x.copy_(before, non_blocking=True)\n"
        "held = numbers()[0]\n"
        "del before\n"
        "graph.replay(); torch.cuda.synchronize()\n"
        "assert pinned(3 * MIB).is_pinned() and inside.is_pinned() and held >= 6 * MIB\n"
    )
    with_host(code)


def test_pinned_memory_of_spawned_children_and_by_the_environment():
    code = (
        "import multiprocessing\n"
        "def child():\n"
        "    kept = pinned(3 * MIB + 1)\n"
        "    assert numbers()[0] == 3 * MIB + 1\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=child)\n"
        "    process.start(); process.join()\n"
        "    assert process.exitcode == 0\n"
    )
    with_host(code)
    code = (
        "import torch\n"
        "torch.cuda.init()\n"
        "kept = torch.empty((3 << 20) + 1, dtype=torch.uint8, pin_memory=True)\n"
        "assert (3 << 20) + 1 in torch.cuda.host_memory_stats().values()\n"
    )
    done = in_a_process(code, environment={"GMLAKE_CONF": "allocator=lake,host=on"})
    assert done.returncode == 0, done.stderr


def test_exact_pinning_without_a_mount_is_refused_in_one_line():
    code = (
        "import gmlake, torch\n"
        "torch.__version__ = '2.99.0'\n"
        "try: gmlake.enable(host=True)\n"
        "except gmlake.NotEnabled as error: print(error)\n"
        "try: gmlake.enable('stock')\n"
        "except ValueError as error: print(error)\n"
    )
    refused, alone = in_a_process(code, enable=False).stdout.splitlines()
    assert "host=True" in refused and "2.9 to 2.15" in refused and "pinned_max_round_threshold_mb" in refused, refused
    assert "host=True only" in alone, alone


def test_another_backend_is_refused():
    done = in_a_process("", environment={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
    assert done.returncode != 0 and "remove that" in done.stderr, done.stderr


if __name__ == "__main__":
    chosen = sys.argv[1:]
    tests = [(name, test) for name, test in list(globals().items()) if name.startswith("test_")]
    failed = 0
    for name, test in tests:
        if chosen and name not in chosen:
            continue
        try:
            test()
            print("ok", name, flush=True)
        except Exception as error:
            if not os.environ.get("KEEP_GOING"):
                raise
            import traceback

            traceback.print_exc()
            print("FAILED", name, type(error).__name__, str(error)[:300], flush=True)
            failed += 1
    sys.exit(failed)
