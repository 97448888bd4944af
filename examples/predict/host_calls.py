"""Host calls: how long PyTorch's small operations take the host, in nanoseconds each.

    python host_calls.py                                                  # with a real GPU
    python -m gmlake predict --values off --events early host_calls.py    # here

The difference is what the driver takes (`crates/virtual-gpu/src/duration.rs`): calls of the virtual GPU take
next to nothing. Nothing waits for the GPU in between. Hosts change their pace from minute to minute, so
a loop of Python stands first and last.
"""

import statistics
import time

import torch

ROUNDS, REPEATS = 300, 30
LOOP = compile("def f(a): return a\nfor i in range(150_000): f(i)", "loop", "exec")


def operations():
    """What is timed, by name."""
    x, y = torch.zeros(16, device="cuda"), torch.zeros(16, device="cuda")
    a = torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16)
    many, row = [torch.zeros(16, device="cuda") for _ in range(8)], torch.zeros(64, device="cuda", dtype=torch.bfloat16)
    pinned = torch.zeros(16).pin_memory()
    event, stream = torch.cuda.Event(), torch.cuda.Stream()
    return {
        "empty": lambda: torch.empty(1024, device="cuda"),
        "add": lambda: x.add_(1),
        "copy": lambda: y.copy_(x),
        "zero": lambda: x.zero_(),
        "foreach add of 8": lambda: torch._foreach_add_(many, 1.0),
        "copy from the host": lambda: x.copy_(pinned, non_blocking=True),
        "product": lambda: a @ a,
        "linear": lambda: torch.nn.functional.linear(a, a, row),
        "record": lambda: event.record(),
        "query": lambda: event.query(),
        "wait": lambda: stream.wait_event(event),
    }


def measure(operation):
    """The median of a loop, in nanoseconds a round; processor time, where there is no other than this thread's."""
    taken = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.thread_time_ns()
        for _ in range(ROUNDS):
            operation()
        taken.append((time.thread_time_ns() - begin) / ROUNDS)
    return statistics.median(taken[1:])


def pace():
    begin = time.thread_time_ns()
    exec(LOOP, {})
    return (time.thread_time_ns() - begin) / 150_000


if __name__ == "__main__":
    print(f"{'the loop':20} {pace():8.1f}")
    with torch.no_grad():
        for name, operation in operations().items():
            print(f"{name:20} {measure(operation):8.0f}")
    print(f"{'the loop':20} {pace():8.1f}")
