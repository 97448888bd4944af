"""Calls: questions to the libraries that PyTorch has loaded, with the arguments that PyTorch gave.

Nothing is computed: cuDNN, cuFFT, cuSOLVER and cuSPARSE say how large a workspace must be before they run.
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Arguments = dict[str, str]
    Word = list[int]

LIBRARIES = {"cudnn": r"libcudnn\.so\.\d+", "cufft": r"libcufft\.so\.\d+", "cusolver": r"libcusolver\.so\.\d+",
             "cusparse": r"libcusparse\.so\.\d+"}
"""File names of the libraries, after the first letters of their functions."""
BYTES = {"S": 4, "D": 8, "C": 8, "Z": 16}
"""Bytes of an element, by the letter of a function's type."""


class Refused(Exception):
    """A library did not answer: what cannot be measured here."""


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """The library that PyTorch has loaded, by the first letters of its functions."""
    import torch

    torch.linalg.inv(torch.eye(2, device="cuda"))  # loads cuSOLVER
    if hasattr(ctypes.CDLL(None), f"{name}GetVersion") or hasattr(ctypes.CDLL(None), "gmlake_gpu_report"):
        return ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if re.fullmatch(LIBRARIES[name] + r"(\.\d+)*", path.rpartition("/")[2]):
            return ctypes.CDLL(path)
    raise Refused(f"PyTorch has not loaded {name}")


def call(name: str, *given: object) -> None:
    """Calls a function, which must answer with 0."""
    prefix = next(each for each in LIBRARIES if name.startswith(each))
    status = getattr(library(prefix), name)(*given)
    if status:
        raise Refused(f"{name} answered with its error {status}")


def made(name: str, *more: object) -> ctypes.c_void_p:
    """An object that a function makes; its first argument is the place for it."""
    to = ctypes.c_void_p()
    call(name, ctypes.byref(to), *more)
    return to


@functools.cache
def handle(library: str) -> ctypes.c_void_p:
    """The handle of a library."""
    return made({"cudnn": "cudnnCreate", "cusolver": "cusolverDnCreate", "cusparse": "cusparseCreate"}[library])


def whole(number: str | int) -> ctypes.c_longlong:
    """An integer; a function of the C interface that wants fewer bits takes the lower ones."""
    return ctypes.c_longlong(int(number))


def recurrent(given: Arguments) -> int:
    """What cuDNN takes for a recurrent network."""
    import torch

    number = {name: int(value) for name, value in given.items()}
    size, workspace, reserve = (ctypes.c_size_t() for _ in range(3))
    call("cudnnDropoutGetStatesSize", handle("cudnn"), ctypes.byref(size))
    states = torch.empty(size.value if number["dropout"] else 0, dtype=torch.uint8, device="cuda")
    names = "Dropout", "RNN", "RNNData"
    drop, network, data = (made(f"cudnnCreate{name}Descriptor") for name in names)
    try:
        call("cudnnSetDropoutDescriptor", drop, handle("cudnn"), ctypes.c_float(number["dropout"] / 10),
             ctypes.c_void_p(states.data_ptr()), ctypes.c_size_t(states.numel()), ctypes.c_ulonglong(1))
        first = ["algorithm", "mode", "bias", "direction", "input_mode", "type", "precision", "math", "input", "hidden",
                 "output", "layers"]
        call("cudnnSetRNNDescriptor_v8", network, *(whole(number[name]) for name in first), drop, whole(number["flags"]))
        steps, batch = number["steps"], number["batch"]
        each = (ctypes.c_int * batch)(*lengths(number["tokens"], steps, batch))
        call("cudnnSetRNNDataDescriptor", data, whole(number["type"]), whole(number["layout"]), whole(steps), whole(batch),
             whole(number["input"]), each, None)
        call("cudnnGetRNNTempSpaceSizes", handle("cudnn"), network, whole(number["training"]), data,
             ctypes.byref(workspace), ctypes.byref(reserve))
    finally:
        for name, object_ in zip(names, (drop, network, data)):
            call(f"cudnnDestroy{name}Descriptor", object_)
    return workspace.value


def lengths(whole: int, longest: int, count: int) -> list[int]:
    """So many lengths, longest first, with this sum and this maximum."""
    if count < 1:
        return []
    each, more = divmod(whole - longest, count - 1) if count > 1 else (0, 0)
    return [longest, *(each + (place < more) for place in range(count - 1))]


def fourier(given: Arguments) -> int:
    """What cuFFT takes for a transform."""
    plan, size = ctypes.c_int(), ctypes.c_size_t()
    call("cufftCreate", ctypes.byref(plan))
    try:
        call("cufftSetAutoAllocation", plan, 0)
        lengths = numbers(given["sizes"])
        call("cufftXtMakePlanMany", plan, len(lengths), longs(lengths), *side(given["input"]), *side(given["output"]),
             whole(given["batch"]), ctypes.byref(size), whole(given["execution"]))
    finally:
        call("cufftDestroy", plan)
    return size.value


def side(text: str) -> Iterator[object]:
    """One side of a transform: the sizes in which it lies or none, its stride, its distance, its type."""
    lies, stride, distance, kind = text.split("/")
    yield longs(numbers(lies)) if lies else None
    yield from map(whole, (stride, distance, kind))


def numbers(text: str) -> list[int]:
    """Sizes that are joined by x."""
    return [int(size) for size in text.split("x")]


def longs(values: list[int]) -> Any:
    """Integers of 64 bits in a row."""
    return (ctypes.c_longlong * len(values))(*values)


def asked(given: Arguments) -> int:
    """What cuSOLVER or cuSPARSE answers to a question, with its arguments as words."""
    name = given["call"]
    found = re.fullmatch(r"(cusolver)Dn([SDCZX])\w+_bufferSize|(cusparse)\w+_(bufferSize|bufferSizeExt|workEstimation)", name)
    if not found:
        raise ValueError(f"{name} is no function that asks for a size")
    of, answers, kept = found[1] or found[3], [], []

    def argument(word: str) -> object:
        if re.fullmatch(r"-?\d+", word):
            return whole(word)
        if word in ("elements", "bytes"):
            answers.append((ctypes.c_int if word == "elements" else ctypes.c_size_t)())
            return ctypes.byref(answers[-1])
        if word in OBJECTS:
            return made(OBJECTS[word])
        if word == "handle":
            return handle(of)
        kind, *values = word.split("/")
        result, keep = WORDS[kind]([int(value) for value in values])
        kept.append(keep)
        return result

    call(name, *[argument(word) for word in given["with"].split(":")])
    return int(answers[0].value) * (BYTES[found[2]] if isinstance(answers[0], ctypes.c_int) else 1)


OBJECTS = {
    "params": "cusolverDnCreateParams", "gesvdj": "cusolverDnCreateGesvdjInfo", "syevj": "cusolverDnCreateSyevjInfo",
    "description": "cusparseCreateMatDescr", "spgemm": "cusparseSpGEMM_createDescr", "spsm": "cusparseSpSM_createDescr",
    "spsv": "cusparseSpSV_createDescr",
}
"""Words for objects, and what makes them. A process makes few, so they are kept."""


def zeros(count: int, kind: int) -> Any:
    """Memory for values of a `cudaDataType`; the wider, if it is not known."""
    import torch

    return torch.zeros(max(count, 1) * {0: 4, 1: 8, 2: 2, 4: 8, 14: 2}.get(kind, 16), dtype=torch.uint8, device="cuda")


def at(tensor: Any) -> ctypes.c_void_p:
    """The address of a tensor."""
    return ctypes.c_void_p(tensor.data_ptr())


def sparse(values: Word, is_csr: bool) -> tuple[ctypes.c_void_p, object]:
    """A sparse matrix whose values lie evenly in its rows."""
    import torch

    rows, columns, count, *kinds = values
    offset, index, base, kind = kinds if is_csr else [kinds[0], *kinds]
    integers = {2: torch.int32, 3: torch.int64}
    first = torch.arange(rows + 1, device="cuda") * count // max(rows, 1)
    row = torch.repeat_interleave(torch.arange(rows, device="cuda"), first.diff(), output_size=count)
    column = (torch.arange(count, device="cuda") - first[row]).to(integers[index]) + base
    down = (first if is_csr else row).to(integers[offset]) + base
    data = zeros(count, kind)
    name, types = ("cusparseCreateCsr", kinds) if is_csr else ("cusparseCreateCoo", kinds)
    matrix = made(name, *map(whole, (rows, columns, count)), at(down), at(column), at(data), *map(whole, types))
    return matrix, (down, column, data)


def dense(values: Word) -> tuple[ctypes.c_void_p, object]:
    """A dense matrix: rows, columns, the leading dimension, type and order."""
    rows, columns, leading, kind, order = values
    data = zeros(leading * (columns if order == 1 else rows), kind)
    return made("cusparseCreateDnMat", *map(whole, values[:3]), at(data), whole(kind), whole(order)), data


def vector(values: Word) -> tuple[ctypes.c_void_p, object]:
    """A dense vector: size and type."""
    data = zeros(*values)
    return made("cusparseCreateDnVec", whole(values[0]), at(data), whole(values[1])), data


def buffer() -> tuple[ctypes.c_void_p, object]:
    """An address on the device, which is not looked at."""
    data = zeros(1 << 20, 0)
    return at(data), data


def factor(value: int) -> tuple[Any, object]:
    """A factor on the host that is zero, or by any type another number: its first 32 bits are a one, and 64 near it."""
    data = (ctypes.c_uint32 * 4)(*(value * bits for bits in (0x3F800000, 0x3FF00000, 0, 0)))
    return ctypes.byref(data), data


WORDS: dict[str, Callable[[Word], tuple[Any, object]]] = {
    "csr": lambda values: sparse(values, True), "coo": lambda values: sparse(values, False), "dense": dense,
    "vector": vector, "address": lambda _: buffer(), "factor": lambda _: factor(1), "zero": lambda _: factor(0),
    "null": lambda _: (None, None),
}
"""Words for other arguments: each gives the argument, and what must live as long as it."""
