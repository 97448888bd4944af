"""The virtual GPU's library, called as C calls it: its functions and no PyTorch.

It needs libgmlake_gpu.so alone. Each test runs in a process of its own, since the library reads its settings once.
"""

import ctypes
import os
import subprocess
import sys

from gmlake.predict import Problem, library

INVALID_VALUE, INVALID_DEVICE, NO_KERNEL_IMAGE, NOT_SUPPORTED = 1, 101, 209, 801


def loaded():
    gpu = ctypes.CDLL(library.find())
    for name in ["cudaGetErrorString", "cudnnGetErrorString", "cusparseGetErrorString"]:
        getattr(gpu, name).restype = ctypes.c_char_p
    return gpu


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
        "ncclCommGrow": (NOT_SUPPORTED, []),
    }
    for name, (code, arguments) in refused.items():
        assert getattr(gpu, name)(*arguments) == code, name
        assert gpu.cudaGetLastError() == 0, name
    assert gpu.cudaFree(ctypes.c_void_p(5)) == INVALID_VALUE
    assert gpu.cuGetExportTable() == NOT_SUPPORTED
    assert gpu.cudaGetLastError() == INVALID_VALUE, "it outlives a refusal of the driver"
    assert gpu.cudaIpcGetMemHandle() == NOT_SUPPORTED
    assert gpu.cudaGetLastError() == NOT_SUPPORTED and gpu.cudaGetLastError() == 0


def test_an_error_names_its_code_and_a_refusal_its_function():
    gpu = loaded()
    gpu.cuGetExportTable()
    assert b"cuGetExportTable" in gpu.cudaGetErrorString(NOT_SUPPORTED)
    assert gpu.cudaGetErrorString(98) == b"invalid device function (error 98)"
    assert b"CUDA error 123" in gpu.cudaGetErrorString(123)
    assert b"cuDNN error 77" in gpu.cudnnGetErrorString(77)
    assert b"cuSPARSE error 7 " in gpu.cusparseGetErrorString(7)


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
        header[0:2], header[4:8], header[8:16] = [(2).to_bytes(2, "little"), (64).to_bytes(4, "little"), (8).to_bytes(8, "little")]
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
