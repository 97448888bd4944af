"""The virtual GPU's library, called as C calls it: its functions and no PyTorch.

It needs libgmlake_gpu.so alone. Each test runs in a process of its own, since the library reads its settings once.
"""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gmlake.predict import Problem, library, pytorch

INVALID_VALUE, NO_DEVICE, INVALID_DEVICE, NO_KERNEL_IMAGE, NOT_SUPPORTED = 1, 100, 101, 209, 801


def loaded():
    gpu = ctypes.CDLL(library.find())
    for name in ["cudaGetErrorString", "cudnnGetErrorString", "cusparseGetErrorString"]:
        getattr(gpu, name).restype = ctypes.c_char_p
    return gpu


def test_the_functions_of_the_driver_are_found_by_their_names():
    gpu = loaded()

    def find(name):
        found, status = ctypes.c_void_p(), ctypes.c_int(-1)
        places = (ctypes.byref(found), 12080, ctypes.c_uint64(0), ctypes.byref(status))
        return gpu.cuGetProcAddress_v2(name, *places), found.value, status.value

    def address(name):
        return ctypes.cast(getattr(gpu, name), ctypes.c_void_p).value

    assert find(b"cuInit") == (0, address("cuInit"), 0)
    assert find(b"cuMemGetAddressRange") == (0, address("cuMemGetAddressRange_v2"), 0)
    for other in [b"cuInvented", b"cudaMalloc", b"malloc"]:
        assert find(other)[1:] == (None, 1), other


def test_cudnn_hands_out_no_more_descriptors_than_were_asked_for():
    gpu = loaded()
    DESCRIPTOR, HEURISTIC, CONFIGURATION, RESULTS = 15, 4, 3, 202

    def created(kind):
        found = ctypes.c_void_p()
        assert gpu.cudnnBackendCreateDescriptor(kind, ctypes.byref(found)) == 0
        return found

    heuristic, count = created(HEURISTIC), ctypes.c_int64(-1)

    def ask(room, places):
        code = gpu.cudnnBackendGetAttribute(
            heuristic, RESULTS, DESCRIPTOR, ctypes.c_int64(room), ctypes.byref(count), places
        )
        assert code == 0
        return count.value

    available = ask(0, None)
    assert available == 2, available
    for room in [1, 2, 8]:
        places = (ctypes.c_void_p * room)(*[created(CONFIGURATION).value for _ in range(room)])
        assert ask(room, places) == min(room, available), room


def test_cudnn_has_the_version_of_the_wheel():
    os.environ["GMLAKE_GPU_CUDNN"] = "92400"
    gpu = loaded()
    assert gpu.cudnnGetVersion() == 92400
    part = ctypes.c_int()
    assert gpu.cudnnGetProperty(1, ctypes.byref(part)) == 0 and part.value == 24


def test_only_functions_of_the_runtime_set_its_last_error():
    gpu = loaded()
    place = ctypes.c_void_p()
    refused = {
        "cuGetExportTable": (NOT_SUPPORTED, []),
        "cuMemExportToShareableHandle": (NOT_SUPPORTED, []),
        "cuMemFree_v2": (INVALID_VALUE, [ctypes.c_uint64(5)]),
        "cuMemAlloc_v2": (2, [ctypes.byref(place), ctypes.c_size_t(1 << 50)]),
        "cuCtxSetCurrent": (INVALID_DEVICE, [ctypes.c_void_p(0x100 + 63)]),
        "cuPointerGetAttribute": (INVALID_VALUE, [ctypes.byref(place), 2, ctypes.c_uint64(5)]),
        "cuDeviceGetCount": (INVALID_VALUE, [None]),
        "cuDeviceGetName": (INVALID_DEVICE, [ctypes.byref(place), 8, 63]),
        "cuDeviceTotalMem_v2": (INVALID_DEVICE, [ctypes.byref(place), 63]),
        "cuDeviceGetAttribute": (INVALID_DEVICE, [ctypes.byref(place), 75, 63]),
        "ncclCommGrow": (NOT_SUPPORTED, []),
    }
    for name, (code, arguments) in refused.items():
        assert getattr(gpu, name)(*arguments) == code, name
        assert gpu.cudaGetLastError() == 0, name
    assert gpu.cudaDeviceGetPCIBusId(ctypes.byref(place), -1, 0) == INVALID_VALUE
    assert gpu.cudaDeviceGetPCIBusId(ctypes.byref(place), 8, 63) == INVALID_DEVICE
    assert gpu.cudaGetLastError() == INVALID_DEVICE
    assert gpu.cudaFree(ctypes.c_void_p(5)) == INVALID_VALUE
    assert gpu.cuGetExportTable() == NOT_SUPPORTED
    assert gpu.cudaGetLastError() == INVALID_VALUE, "it outlives a refusal of the driver"
    assert gpu.cudaIpcGetEventHandle() == NOT_SUPPORTED
    assert gpu.cudaGetLastError() == NOT_SUPPORTED and gpu.cudaGetLastError() == 0


def test_the_driver_has_no_device_where_the_program_hides_all():
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    gpu, place = loaded(), ctypes.c_void_p(7)
    assert gpu.nvmlDeviceGetCount_v2(ctypes.byref(place)) == 0 and place.value == 1
    assert gpu.cuInit(0) == gpu.cuDeviceGetCount(ctypes.byref(place)) == gpu.cudaGetDeviceCount(ctypes.byref(place)) == NO_DEVICE
    assert not place.value and gpu.cudaGetLastError() == NO_DEVICE
    for name in ["cudaMalloc", "cuMemAlloc_v2"]:
        assert getattr(gpu, name)(ctypes.byref(place), ctypes.c_size_t(64)) == NO_DEVICE, name
    assert gpu.cudaGetErrorString(NO_DEVICE) == b"no CUDA-capable device is detected"


def test_an_error_names_its_code_and_a_refusal_its_function():
    gpu = loaded()
    gpu.cuGetExportTable()
    assert b"cuGetExportTable" in gpu.cudaGetErrorString(NOT_SUPPORTED)
    assert gpu.cudaGetErrorString(98) == b"invalid device function (error 98)"
    assert b"CUDA error 123" in gpu.cudaGetErrorString(123)
    assert b"cuDNN error 77" in gpu.cudnnGetErrorString(77)
    assert b"cuSPARSE error 7 " in gpu.cusparseGetErrorString(7)


def test_of_matrices_without_two_of_four_values_the_rest_is_kept_and_where_it_was():
    gpu = loaded()
    FLOAT, HALF, BYTE = 0, 2, 3
    # As an H200 said.
    for kind, rows, columns, bytes_of_both, work in [
        (HALF, 32, 32, 1280, 256), (HALF, 96, 192, 21504, 3072), (HALF, 4096, 11008, 50724864, 5636096),
        (BYTE, 32, 32, 1024, 512), (BYTE, 96, 192, 12288, 3072), (BYTE, 16384, 4096, 41943040, 8388608),
        (FLOAT, 32, 32, 3072, 512), (FLOAT, 96, 192, 49152, 6144), (FLOAT, 4096, 11008, 112721920, 11272192),
    ]:
        matrix, size, workspace = ctypes.create_string_buffer(512), ctypes.c_size_t(), ctypes.c_size_t(7)
        counts = [ctypes.c_int64(count) for count in (rows, columns, columns)]
        assert gpu.cusparseLtStructuredDescriptorInit(None, matrix, *counts, 16, kind, 1, 0) == 0
        assert gpu.cusparseLtSpMMACompressedSize2(None, matrix, ctypes.byref(size), ctypes.byref(workspace)) == 0
        assert (size.value, workspace.value) == (bytes_of_both, work), (kind, rows, size, workspace)


def test_the_driver_knows_pinned_memory():
    gpu = loaded()
    CONTEXT, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, DEVICE = 1, 2, 3, 4, 9
    own = ctypes.create_string_buffer(64)
    place = ctypes.c_void_p()
    assert gpu.cudaHostAlloc(ctypes.byref(place), ctypes.c_size_t(4096), 0) == 0
    assert gpu.cudaHostRegister(own, ctypes.c_size_t(64), 0) == 0

    def ask(attribute, at):
        found = ctypes.c_uint64()
        return gpu.cuPointerGetAttribute(ctypes.byref(found), attribute, ctypes.c_uint64(at)), found.value

    for base, size in [(place.value, 4096), (ctypes.addressof(own), 64)]:
        for at in [base, base + size - 1]:
            assert ask(MEMORY_TYPE, at) == (0, 1) and ask(DEVICE, at) == (0, 0)
            assert ask(DEVICE_POINTER, at) == (0, at) == ask(HOST_POINTER, at)
            assert ask(CONTEXT, at)[1] != 0
        assert ask(MEMORY_TYPE, base + size)[0] == INVALID_VALUE
    assert gpu.cudaHostUnregister(own) == 0 and ask(MEMORY_TYPE, ctypes.addressof(own))[0] == INVALID_VALUE
    device = ctypes.c_void_p()
    assert gpu.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(64)) == 0
    assert ask(MEMORY_TYPE, device.value) == (0, 2) and ask(HOST_POINTER, device.value)[0] == INVALID_VALUE


def fat_binary(*architectures):
    """A fat binary with machine code for these, as nvcc writes it, and the wrapper that is registered."""
    images = b""
    for architecture in architectures:
        header = bytearray(64)
        header[0:2], header[4:8] = (2).to_bytes(2, "little"), (64).to_bytes(4, "little")
        header[8:16] = (8).to_bytes(8, "little")
        header[28:32], header[40:48] = architecture.to_bytes(4, "little"), (0x8011).to_bytes(8, "little")
        images += bytes(header) + bytes(8)
    head = (0xBA55ED50).to_bytes(4, "little") + (1).to_bytes(2, "little") + (16).to_bytes(2, "little")
    content = ctypes.create_string_buffer(head + len(images).to_bytes(8, "little") + images)
    wrapper = (ctypes.c_uint64 * 3)(0x466243B1 | 1 << 32, ctypes.addressof(content), 0)
    return wrapper, content


def test_a_kernel_has_the_architecture_that_the_card_runs_of_it():
    os.environ["GMLAKE_GPU"] = "RTX 4090"
    gpu = loaded()
    gpu.__cudaRegisterFatBinary.restype = ctypes.c_void_p
    kernels = {}
    for architectures in [(75, 80, 86, 90), (75, 80, 89, 90), (75, 90)]:
        wrapper, content = fat_binary(*architectures)
        handle = gpu.__cudaRegisterFatBinary(wrapper)
        stub = ctypes.create_string_buffer(8)
        gpu.__cudaRegisterFunction(ctypes.c_void_p(handle), stub, b"kernel", b"kernel")
        kernels[architectures] = (stub, handle, wrapper, content)

    def ask(stub):
        found = (ctypes.c_uint64 * 32)()
        code = gpu.cudaFuncGetAttributes(found, stub)
        return code, ctypes.cast(found, ctypes.POINTER(ctypes.c_int))[8:10]

    assert ask(kernels[75, 80, 86, 90][0]) == (0, [86, 86])
    assert ask(kernels[75, 80, 89, 90][0]) == (0, [89, 89])
    assert ask(kernels[75, 90][0])[0] == NO_KERNEL_IMAGE
    assert gpu.cudaGetLastError() == NO_KERNEL_IMAGE
    stub, handle, *_ = kernels[75, 90]
    gpu.__cudaUnregisterFatBinary(ctypes.c_void_p(handle))
    assert ask(stub) == (0, [89, 89]), "nothing is known of a kernel that was not registered"


def resident():
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_pinned_and_managed_memory_cost_nothing_until_they_are_touched():
    gpu = loaded()
    device, pinned, managed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    size = 8 << 30
    assert gpu.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(size)) == 0
    before = resident()
    assert gpu.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(size), 0) == 0
    assert gpu.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(size), 1) == 0
    for host in (pinned, managed):
        edges = [3, 4099, size // 2, size - 5000, size - 4]
        for offset in edges:
            ctypes.memset(host.value + offset, 7, 2)
        place, bytes_ = ctypes.c_void_p(host.value + 3), ctypes.c_size_t(size - 7)
        for to, source in [(place, device), (device, place), (place, device)]:
            assert gpu.cudaMemcpy(to, source, bytes_, 4) == 0
        found = [ctypes.string_at(host.value + offset, 2) for offset in edges]
        assert found == [b"\0\0"] * 4 + [b"\7\7"], "the copy ends before the last"
        assert gpu.cudaMemsetAsync(host, 0, ctypes.c_size_t(size), None) == 0
    assert resident() - before < 4 << 20, resident() - before
    report(gpu, {"pinned": size, "managed_on_host": size, "managed_on_device": 0})
    assert gpu.cudaFreeHost(managed) == INVALID_VALUE and gpu.cudaFreeHost(pinned) == 0 == gpu.cudaFree(managed)
    assert gpu.cudaFree(managed) == INVALID_VALUE == gpu.cudaFreeHost(pinned)
    report(gpu, {"pinned": size, "managed_on_host": size, "managed_on_device": 0})


def report(gpu, expected):
    text = ctypes.create_string_buffer(1 << 16)
    gpu.gmlake_gpu_report(text, ctypes.c_size_t(1 << 16))
    assert json.loads(text.value)["host_peak_bytes"] == expected, text.value


def test_registered_memory_is_the_programs_own():
    gpu = loaded()
    device, size = ctypes.c_void_p(), 4 << 20
    shared = mmap.mmap(-1, size)
    at = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    assert gpu.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(size)) == 0
    assert gpu.cudaHostRegister(ctypes.c_void_p(at), ctypes.c_size_t(size), 0) == 0
    shared[:] = b"7" * size
    assert gpu.cudaMemcpy(ctypes.c_void_p(at), device, ctypes.c_size_t(size), 2) == 0
    assert shared[:] == bytes(size)
    assert gpu.cudaHostUnregister(ctypes.c_void_p(at)) == 0
    report(gpu, {"pinned": size, "managed_on_host": 0, "managed_on_device": 0})


def test_managed_memory_moves():
    for cuda, device, host in [(12080, (0, -1), (-1, -1)), (13000, (1, 0), (2, 0))]:
        if cuda == 12080 and os.fork():
            assert os.wait()[1] == 0
            continue
        os.environ["GMLAKE_GPU_CUDA"] = str(cuda)
        gpu, managed, size = loaded(), ctypes.c_void_p(), 4 << 20
        assert gpu.cudaMallocManaged(ctypes.byref(managed), ctypes.c_size_t(size), 1) == 0
        kind = (ctypes.c_int * 8)()
        assert gpu.cudaPointerGetAttributes(kind, managed) == 0 and kind[0] == 3
        is_managed = ctypes.c_uint()
        assert gpu.cuPointerGetAttribute(ctypes.byref(is_managed), 8, managed) == 0 and is_managed.value == 1
        for place, on_device in [(device, size), (host, size), (device, size)]:
            # Two numbers in one register: a struct of CUDA 13, or the first alone.
            packed = ctypes.c_uint64((place[0] & 0xFFFFFFFF) | (place[1] & 0xFFFFFFFF) << 32)
            assert gpu.cudaMemAdvise(managed, ctypes.c_size_t(size), 3, packed) == 0
            assert gpu.cudaMemPrefetchAsync(managed, ctypes.c_size_t(size), packed, 0, None) == 0
            report(gpu, {"pinned": 0, "managed_on_host": size, "managed_on_device": on_device})
        assert gpu.cudaMemPrefetchAsync(ctypes.c_void_p(5), ctypes.c_size_t(1), packed, 0, None) == INVALID_VALUE
        assert gpu.cudaFree(managed) == 0
        if cuda == 12080:
            os._exit(0)


def test_no_library_of_nvidias_is_loaded_by_another_path():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/links")
        os.mkdir(f"{folder}/nvidia")
        library.links(library.find(), f"{folder}/links")
        Path(f"{folder}/nccl.c").write_text("int ncclGetVersion(int *to) { *to = 99; return 0; }")
        Path(f"{folder}/user.c").write_text("int unused(void) { return 0; }")
        theirs, build = f"{folder}/nvidia/libnccl.so.2", ["cc", "-shared", "-fPIC"]
        subprocess.run([*build, "-o", theirs, f"{folder}/nccl.c", "-Wl,-soname,libnccl.so.2"], check=True)
        # As PyTorch has it: a path to NVIDIA's files that comes before the environment's.
        path = f"-Wl,--no-as-needed,--disable-new-dtags,-rpath,{folder}/nvidia"
        subprocess.run([*build, "-o", f"{folder}/user.so", f"{folder}/user.c", path, theirs], check=True)
        ask = (
            f"import ctypes; version = ctypes.c_int(); ctypes.CDLL('{folder}/user.so');"
            "ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(version)); print(version.value)"
        )

        def version(own):
            return subprocess.run([sys.executable, "-c", ask], env=own, check=True, capture_output=True, text=True).stdout

        own = library.environment(f"{folder}/links", pytorch.Wheel("2.11.0", "13.0", None))
        assert version(own) != "99\n"
        assert version({**own, "LD_PRELOAD": f"{folder}/links/{library.NAME}"}) == "99\n"


def test_devices_are_counted_by_the_first_nvml_call():
    gpu, count = loaded(), ctypes.c_uint()
    assert gpu.nvmlInit() == 0 and gpu.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 1


def test_cublas_has_what_vllm_links():
    gpu, handle = loaded(), ctypes.c_void_p()
    assert gpu.cublasLtCreate(ctypes.byref(handle)) == 0 and handle.value and gpu.cublasLtDestroy(handle) == 0
    gpu.cublasGetStatusString.restype = ctypes.c_char_p
    assert gpu.cublasGetStatusString(0) == b"CUBLAS_STATUS_SUCCESS" and b"7" in gpu.cublasGetStatusString(7)
    assert gpu.cublasCreate_v2(ctypes.byref(handle)) == 0
    before = gpu.gmlake_gpu_all_done_ns
    before.restype = ctypes.c_uint64
    begin, extents = before(), [ctypes.c_int(4096)] * 3
    numbers = [None, None, 4096, None, 4096, None, None, 4096]
    assert gpu.cublasHgemm(handle, 0, 0, *extents, *numbers) == 0 and before() > begin


def test_the_first_stream_takes_memory_when_it_is_made_and_later_ones_nothing():
    os.environ["GMLAKE_GPU"] = "h100-80gb"
    gpu = loaded()
    free, total, stream = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()

    def left():
        assert gpu.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
        return free.value

    before = left()
    assert total.value == 85_017_493_504, "as driver 580.159 has it"
    assert gpu.cudaEventCreate(ctypes.byref(stream)) == 0 and left() == before
    assert gpu.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0 and before - left() == 70 << 20, (before, left())
    assert gpu.cudaStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0 and before - left() == 70 << 20
    memory = ctypes.c_void_p()
    assert gpu.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(2 << 20)) == 0
    assert gpu.cudaMemsetAsync(memory, 0, ctypes.c_size_t(8), stream) == 0
    assert before - left() == (70 + 92 + 2) << 20, "work brings the kernels"


def test_memory_of_another_process_takes_addresses_and_nothing_else():
    gpu = loaded()

    class Handle(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_char * 64),)

    def free():
        now, whole = ctypes.c_size_t(), ctypes.c_size_t()
        assert gpu.cudaMemGetInfo(ctypes.byref(now), ctypes.byref(whole)) == 0
        return now.value

    block, handle, size = ctypes.c_void_p(), Handle(), 4 << 20
    assert gpu.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(size)) == 0
    for attribute, value in [(11, block.value), (12, size)]:  # where the range begins, and its size
        told = ctypes.c_uint64()
        assert gpu.cuPointerGetAttribute(ctypes.byref(told), attribute, ctypes.c_void_p(block.value + 100)) == 0
        assert told.value == value, attribute
    assert gpu.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(block.value + 100)) == 0
    for get, opened, close in [
        (gpu.cudaIpcGetMemHandle, gpu.cudaIpcOpenMemHandle, gpu.cudaIpcCloseMemHandle),
        (gpu.cuIpcGetMemHandle, gpu.cuIpcOpenMemHandle_v2, gpu.cuIpcCloseMemHandle),
    ]:
        before, there = free(), ctypes.c_void_p()
        assert opened(ctypes.byref(there), handle, 1) == 0 and gpu.cudaGetLastError() == 0
        assert free() == before and there.value != block.value
        # A copy goes there and comes back.
        data, back = ctypes.create_string_buffer(b"ranks", 8), ctypes.create_string_buffer(8)
        last = ctypes.c_void_p(there.value + size - 8)
        assert gpu.cudaMemcpy(last, data, ctypes.c_size_t(8), 1) == 0 and gpu.cudaMemcpy(back, last, ctypes.c_size_t(8), 2) == 0
        assert back.raw == data.raw
        assert close(there) == 0 and close(there) == INVALID_VALUE and close(block) == INVALID_VALUE
        assert get(ctypes.byref(handle), ctypes.c_void_p(5)) == INVALID_VALUE
        assert opened(ctypes.byref(there), Handle(), 1) == INVALID_VALUE
        gpu.cudaGetLastError()


def test_cards_of_data_centres_are_linked_and_others_are_not():
    for card, status in [("H100 80GB", 0), ("RTX 4090", 5)]:
        if os.fork():
            assert os.wait()[1] == 0
            continue
        os.environ |= {"GMLAKE_GPU": card, "GMLAKE_GPU_COUNT": "2"}
        gpu, found, devices = loaded(), ctypes.c_int(-1), [ctypes.c_void_p(), ctypes.c_void_p()]
        for index, device in enumerate(devices):
            assert gpu.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
        NVLINK, WRITE = 2, 1
        assert gpu.nvmlDeviceGetP2PStatus(*devices, NVLINK, ctypes.byref(found)) == 0 and found.value == status, (card, found)
        assert gpu.nvmlDeviceGetP2PStatus(*devices, WRITE, ctypes.byref(found)) == 0 and found.value == 0
        assert gpu.nvmlDeviceGetP2PStatus(devices[0], ctypes.c_void_p(9), NVLINK, ctypes.byref(found)) == 2
        os._exit(0)


def main(given):
    tests = [name for name in globals() if name.startswith("test_")]
    if given:
        globals()[given[0]]()
        return 0
    try:
        library.find()
    except Problem as problem:
        print(f"!!! SKIPPED: the library's functions were not called: {problem}", file=sys.stderr)
        return 0
    for name in tests:
        subprocess.run([sys.executable, __file__, name], check=True)
        print("ok", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
