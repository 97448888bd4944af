"""Follows the CUDA graphs of a program on a real GPU: free memory before and after each, and its nodes, as lines of JSON.

    GRAPH_LOG=graphs VLLM_LOGGING_LEVEL=DEBUG PYTHONPATH=examples/serve/follow \\
        python examples/serve/truth.py measure LOGS measured.csv --only moe-8k-graphs    # writes graphs.PID
    python examples/serve/pools.py graphs.PID 100
"""

import ctypes
import json
import os
from collections import Counter

Pointer = ctypes.c_void_p
KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2"""

    _fields_ = [("function", Pointer), ("sizes", ctypes.c_uint * 7), ("params", Pointer), ("extra", Pointer),
                ("kernel", Pointer), ("context", Pointer)]


def loaded(name):
    """A library that this process has loaded."""
    with open("/proc/self/maps") as file:
        return ctypes.CDLL(next(line.split()[-1] for line in file if name in line))


def parameters(driver, node):
    """Bytes of a kernel's parameters."""
    found = KernelNode()
    driver.cuGraphKernelNodeGetParams_v2(Pointer(node), ctypes.byref(found))
    ask, of = (driver.cuFuncGetParamInfo, found.function) if found.function else (driver.cuKernelGetParamInfo, found.kernel)
    offset, size, end, index = ctypes.c_size_t(), ctypes.c_size_t(), 0, 0
    while ask(Pointer(of), ctypes.c_size_t(index), ctypes.byref(offset), ctypes.byref(size)) == 0:
        end, index = max(end, offset.value + size.value), index + 1
    return end


def nodes(torch, runtime, driver):
    """The graph that is being captured: how many nodes of each kind, how many kernels by the bytes of their parameters."""
    status, number, graph, count = ctypes.c_int(), ctypes.c_ulonglong(), Pointer(), ctypes.c_size_t()
    stream = Pointer(torch.cuda.current_stream().cuda_stream)
    runtime.cudaStreamGetCaptureInfo(stream, ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph), None, None, None)
    driver.cuGraphGetNodes(graph, None, ctypes.byref(count))
    each = (Pointer * count.value)()
    driver.cuGraphGetNodes(graph, each, ctypes.byref(count))
    kinds = []
    for node in each:
        kind = ctypes.c_int()
        driver.cuGraphNodeGetType(Pointer(node), ctypes.byref(kind))
        kinds.append(kind.value)
    kernels = [node for node, kind in zip(each, kinds, strict=True) if kind == KERNEL]
    return {"nodes": count.value, "kinds": Counter(kinds), "params": Counter(parameters(driver, node) for node in kernels)}


def follow(path):
    """Writes a line for each graph from now on."""
    import torch

    graphs = torch.cuda.CUDAGraph
    usual = graphs.capture_end

    def capture_end(graph):
        found = nodes(torch, loaded("libcudart.so"), ctypes.CDLL("libcuda.so.1"))
        before, reserved = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
        usual(graph)
        taken = before - torch.cuda.mem_get_info()[0] - (torch.cuda.memory_reserved() - reserved)
        with open(f"{path}.{os.getpid()}", "a") as file:
            file.write(json.dumps({**found, "taken": taken}) + "\n")

    graphs.capture_end = capture_end


if os.environ.get("GRAPH_LOG"):
    follow(os.environ["GRAPH_LOG"])
