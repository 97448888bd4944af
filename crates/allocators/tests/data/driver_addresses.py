"""Programs that allocate, free and reserve on a GPU, and the addresses that the driver answers.

    python crates/allocators/tests/data/driver_addresses.py > crates/allocators/tests/data/driver_addresses.csv

writes what `cargo test --lib driver_addresses` checks. A line is a call: `take` (cuMemAlloc), `reserve`
(cuMemAddressReserve) or `give` (either is freed), the size in bytes, the address. Each program runs in a process of its
own, which opens with a line `start`: the address at which the ranges of its context end. Found on an H200: the context
leaves a hole of 24 MiB right below that, so a first request of 24 MiB tells where it is.
"""

import ctypes
import random
import subprocess
import sys

MIB = 1 << 20
CONTEXT_HOLE = 24 * MIB


def torch_like(dice):
    """Sizes of PyTorch's segments."""
    kind = dice.random()
    return 2 * MIB if kind < 0.35 else 20 * MIB if kind < 0.6 else 2 * MIB * dice.randint(10, 200)


def odd(dice):
    """Sizes from a byte to 64 MiB."""
    some = [1, 512, 4 << 10, 64 << 10, 256 << 10, MIB, 3 * MIB, dice.randrange(1, 4 * MIB)]
    return dice.choice([*some, dice.randrange(1, 64 * MIB)])


# Seed, calls, sizes, and how many of ten new things are reservations.
PROGRAMS = {
    "segments": (1, 700, torch_like, 0),
    "odd": (2, 700, odd, 0),
    "mixed": (3, 600, torch_like, 3),
    "reservations": (4, 300, lambda dice: 2 * MIB * dice.randint(1, 100), 10),
}


class Driver:
    """The calls of libcuda, in the primary context of the first device."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        error = getattr(self.cuda, name)(*arguments)
        if error:
            sys.exit(f"{name} failed with CUDA error {error}")

    def take(self, size):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at.value

    def reserve(self, size):
        at = ctypes.c_uint64()
        none = ctypes.c_uint64(0)
        size = ctypes.c_size_t(size)
        self.call("cuMemAddressReserve", ctypes.byref(at), size, ctypes.c_size_t(0), none, none)
        return at.value

    def give(self, at, size, reserved):
        if reserved:
            self.call("cuMemAddressFree", ctypes.c_uint64(at), ctypes.c_size_t(size))
        else:
            self.call("cuMemFree_v2", ctypes.c_uint64(at))


def run(name):
    """Runs a program and prints its calls."""
    seed, calls, sizes, reservations = PROGRAMS[name]
    driver, dice, live = Driver(), random.Random(seed), []
    first = driver.take(CONTEXT_HOLE)
    print(f"start,0,{first + CONTEXT_HOLE:x}")
    driver.give(first, CONTEXT_HOLE, False)
    for _ in range(calls):
        if live and dice.random() < 0.45:
            at, size, reserved = live.pop(dice.randrange(len(live)))
            driver.give(at, size, reserved)
            print(f"give,{size},{at:x}")
            continue
        reserved = dice.randrange(10) < reservations
        size = sizes(dice)
        at = driver.reserve(size) if reserved else driver.take(size)
        live.append((at, size, reserved))
        print(f"{'reserve' if reserved else 'take'},{size},{at:x}")


if __name__ == "__main__":
    if sys.argv[1:]:
        run(sys.argv[1])
    for program in PROGRAMS if not sys.argv[1:] else ():
        subprocess.run([sys.executable, __file__, program], check=True)
