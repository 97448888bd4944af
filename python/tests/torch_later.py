"""What PyTorch 2.11's own tests of its allocator ask that those of 2.9 do not, or that they ask with a C++ compiler.

    python -m gmlake run --virtual h200 python/tests/torch_tests.py python/tests/torch_later.py OUT.json

Written anew, for a plain PyTorch: nothing here knows of gmlake. torch_tests.py runs it as it runs PyTorch's own file.
"""

import ctypes
import gc
import os
import subprocess
import sys

import torch
from torch.testing._internal.common_utils import TestCase, run_tests

MIB = 1 << 20


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


class Counting:
    """An allocator of a user's own, which counts, for MemPool: cudaMalloc and cudaFree."""

    def __init__(self):
        self.obtained = self.returned = 0
        runtime = ctypes.CDLL(None)
        if not hasattr(runtime, "cudaMalloc"):
            loaded = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line]
            runtime = ctypes.CDLL(loaded[0])
        obtain, give_back = runtime.cudaMalloc, runtime.cudaFree
        give_back.argtypes = [ctypes.c_void_p]

        def make(size, _device, _stream):
            at = ctypes.c_void_p()
            self.obtained += obtain(ctypes.byref(at), ctypes.c_size_t(size)) == 0
            return at.value

        def drop(at, _size, _device, _stream):
            self.returned += give_back(at) == 0

        place, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.calls = [
            ctypes.CFUNCTYPE(place, size, number, place)(make),
            ctypes.CFUNCTYPE(None, place, size, number, place)(drop),
        ]
        self.allocator = torch._C._cuda_customAllocator(*(ctypes.cast(call, place).value for call in self.calls))


class TestPools(TestCase):
    def setUp(self):
        super().setUp()
        gc.collect()
        torch.cuda.empty_cache()

    def limit(self, size):
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + size) / total)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)

    def test_mempool_in_mempool(self):
        pools = [torch.cuda.MemPool() for _ in range(3)]
        kept = []
        with torch.cuda.use_mem_pool(pools[0]):
            kept.append(empty(80 * MIB))
            with torch.cuda.use_mem_pool(pools[1]):
                kept.append(empty(80 * MIB))
                with torch.cuda.use_mem_pool(pools[2]):
                    kept.append(empty(80 * MIB))
                kept.append(empty(80 * MIB))
            kept.append(empty(80 * MIB))
        self.assertEqual([len(torch.cuda.memory_snapshot(pool.id)) for pool in pools], [2, 2, 1])

    def test_mempool_that_does_not_split(self):
        whole, split = torch.cuda.MemPool(no_split=True), torch.cuda.MemPool()
        kept = []
        for pool in (whole, split):
            with torch.cuda.use_mem_pool(pool):
                kept += [empty(4 * MIB), empty(4 * MIB)]
        self.assertEqual([len(segment["blocks"]) for segment in whole.snapshot()], [1, 1])
        self.assertEqual([len(segment["blocks"]) for segment in split.snapshot()], [3])

    def test_mempool_with_a_users_allocator(self):
        user = Counting()
        pool = torch.cuda.MemPool(user.allocator)
        self.assertEqual(pool.use_count(), 1)
        with torch.cuda.use_mem_pool(pool):
            one = empty(MIB)
            self.assertEqual(pool.use_count(), 2)
        other = empty(MIB)
        self.assertEqual(user.obtained, 1)
        with torch.cuda.use_mem_pool(pool):
            two = empty(MIB)
            self.assertEqual(len(pool.snapshot()), 1)
            three = empty(MIB)
            self.assertEqual(len(pool.snapshot()), 2)
        del one, two, three, pool
        self.assertEqual(user.returned, 2)
        self.assertTrue(other.is_cuda)

    def test_mempool_tensor_outlives_its_mempool(self):
        user = Counting()
        pool = torch.cuda.MemPool(user.allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = empty(MIB)
        user.allocator = None
        del pool
        torch.cuda.empty_cache()
        self.assertEqual((user.obtained, user.returned), (1, 0))
        del tensor
        torch.cuda.empty_cache()
        self.assertEqual(user.returned, 1)

    def test_mempool_that_helps_out_of_memory(self):
        user, other = Counting(), Counting()
        aside, helper = torch.cuda.MemPool(other.allocator), torch.cuda.MemPool(user.allocator, use_on_oom=True)
        self.limit(80 * MIB)
        with torch.cuda.use_mem_pool(aside):
            one = empty(40 * MIB)
        with torch.cuda.use_mem_pool(helper):
            two = empty(40 * MIB)
        place = two.data_ptr()
        with self.assertRaises(torch.OutOfMemoryError):
            empty(40 * MIB)
        del one, two
        three = empty(30 * MIB)
        self.assertEqual(three.data_ptr(), place)
        with self.assertRaises(torch.OutOfMemoryError):
            empty(30 * MIB)
        del three
        with torch.cuda.use_mem_pool(helper):
            four = empty(20 * MIB)
        self.assertEqual(four.data_ptr(), place)

    def test_mempool_that_is_gone_does_not_help_out_of_memory(self):
        self.limit(40 * MIB)
        for _ in range(5):
            pool = torch.cuda.MemPool(Counting().allocator, use_on_oom=True)
            with torch.cuda.use_mem_pool(pool):
                tensor = empty(40 * MIB)
            del tensor, pool
        user = Counting()
        pool = torch.cuda.MemPool(user.allocator, use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            place = empty(40 * MIB).data_ptr()
        kept = [empty(20 * MIB), empty(20 * MIB)]
        self.assertTrue(all(place <= tensor.data_ptr() < place + 40 * MIB for tensor in kept))

    def test_mempool_next_to_expandable_segments(self):
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        self.addCleanup(torch.cuda.memory._set_allocator_settings, "expandable_segments:False")
        pool = torch.cuda.MemPool(Counting().allocator)
        with torch.cuda.use_mem_pool(pool):
            one = empty(MIB)
        two = empty(MIB)
        self.assertEqual(sorted(segment["is_expandable"] for segment in torch.cuda.memory_snapshot()), [False, True])
        self.assertTrue(one.is_cuda and two.is_cuda)


class TestHistory(TestCase):
    def history(self, **options):
        torch.cuda.memory._record_memory_history(**options)
        try:
            tensor = torch.zeros(128, 128, device="cuda")
            del tensor
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return next(trace for trace in torch.cuda.memory._snapshot()["device_traces"] if trace)
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)

    def test_history_without_some_actions(self):
        for skipped in (["free_requested"], ["free_requested", "free_completed"], ["alloc"],
                        ["segment_alloc", "segment_free"], [], None):
            torch.cuda.empty_cache()
            actions = {entry["action"] for entry in self.history(context="all", stacks="python", skip_actions=skipped)}
            self.assertTrue(actions and not actions & set(skipped or []), (skipped, actions))

    def test_history_with_metadata(self):
        for context in ("alloc", "all", "state"):
            torch.cuda.empty_cache()
            torch.cuda.memory._set_memory_metadata("some words")
            trace = self.history(context=context)
            torch.cuda.memory._set_memory_metadata("")
            self.assertEqual({entry["user_metadata"] for entry in trace}, {"some words"})


    def test_history_says_who_asked_and_ends_with_what_was_given_back(self):
        torch.cuda.empty_cache()
        torch.cuda.memory._record_memory_history(enabled="state", stacks="python")
        self.addCleanup(torch.cuda.memory._record_memory_history, enabled=None)
        empty(2 * 500_000)
        other, mine = empty(490_000), empty(500_123)
        kept = [empty(512) for _ in range(1000)]
        kept.clear()
        found = torch.cuda.memory._snapshot()["segments"]
        blocks = [block for segment in found for block in segment["blocks"] if block["requested_size"] == 500_123]
        self.assertEqual([block["address"] for block in blocks], [mine.data_ptr()])
        self.assertIn("torch_later", blocks[0]["frames"][0]["filename"])
        self.assertTrue(all("frames" in segment for segment in found))
        del other, mine
        torch.cuda.empty_cache()
        last = torch.cuda.memory._snapshot()["device_traces"][0][-1]["action"]
        self.assertIn(last, ("segment_free", "segment_unmap"))


class TestSettings(TestCase):
    def ask(self, code, **environment):
        own = {**os.environ, **environment}
        return subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)

    def test_memory_fraction_from_the_environment(self):
        code = "import torch; print(torch.cuda.get_per_process_memory_fraction(torch._C._cuda_getDevice()))"
        for fraction in ("0.0", "0.5", "1.0"):
            done = self.ask(code, PYTORCH_CUDA_ALLOC_CONF=f"per_process_memory_fraction:{fraction}")
            self.assertEqual(done.stdout.strip(), fraction, done.stderr)
        for fraction in ("-0.1", "1.1"):
            done = self.ask(code, PYTORCH_CUDA_ALLOC_CONF=f"per_process_memory_fraction:{fraction}")
            self.assertIn("per_process_memory_fraction is invalid", done.stderr)

    def test_allocator_backend_from_the_environment(self):
        code = "import torch; torch.cuda.init(); print(torch.cuda.get_allocator_backend())"
        done = self.ask(code, PYTORCH_ALLOC_CONF="max_split_size_mb:20,backend:cudaMallocAsync")
        self.assertEqual(done.stdout.strip(), "cudaMallocAsync", done.stderr)

    def test_allocator_settings_that_are_wrong(self):
        for words in ("foo:1,bar:2", "garbage_collection_threshold:1.2", "max_split_size_mb:2",
                      "release_lock_on_cudamalloc:none"):
            with self.assertRaises(ValueError):
                torch._C._accelerator_setAllocatorSettings(words)

    def test_allocator_settings_leave_sizes_alone(self):
        for words in ("", "garbage_collection_threshold:0.5,max_split_size_mb:40", "release_lock_on_cudamalloc:True"):
            torch.cuda.memory._set_allocator_settings(words)
            before = torch.cuda.memory_stats().get("active_bytes.all.allocated", 0)
            tensor = empty(84 * MIB)
            self.assertEqual(torch.cuda.memory_stats()["active_bytes.all.allocated"] - before, 84 * MIB)
            del tensor

    def test_allocator_settings_round_sizes(self):
        torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:4")
        self.addCleanup(torch.cuda.memory._set_allocator_settings, "roundup_power2_divisions:1")
        before = torch.cuda.memory_stats().get("active_bytes.all.allocated", 0)
        tensor = empty(84 * MIB)
        self.assertEqual(torch.cuda.memory_stats()["active_bytes.all.allocated"] - before, 96 * MIB)
        self.assertTrue(tensor.is_cuda)


if __name__ == "__main__":
    if torch.cuda.is_available():
        run_tests()
