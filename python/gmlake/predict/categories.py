"""Categories: what each block of a recording is for, as the program itself knows it.

    parameters      of modules and optimizers, and modules' buffers
    gradients       `param.grad` when an optimizer's step begins
    optimizer state `optimizer.state` when its step ends
    collectives     what is given to a collective of torch.distributed
    inputs          tensors given to a module, the first after a step or a backward pass
    activations     asked for in the forward pass and live when the backward pass begins, or when memory runs out
                    before; or asked for when a checkpoint computes again, and live when that is done
    temporaries     everything else that is gone before two steps are over
    unknown         everything else

Where two apply, the upper one is said. While the program runs, only addresses and moments are noted:

    moments    ──forward──┬─backward─┬recompute┬─backward──┬──step──┬──forward── ...
    addresses     inputs           collectives      gradients   state

When the recording is written they are laid over its entries, and each request's `user_metadata` becomes
`gmlake category: activations` and so on; what the program itself has set there stays. `gmlake-sim blame
--by category` reads it.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    # Microseconds, an address and its category; or, where a phase begins, None and its name.
    Note = tuple[float, int | None, str]
    # The entries of one device.
    Trace = list[dict[str, Any]]

PREFIX = "gmlake category: "
PARAMETERS, GRADIENTS, STATE, COLLECTIVES, INPUTS, ACTIVATIONS, TEMPORARIES, UNKNOWN = (
    "parameters", "gradients", "optimizer state", "collectives", "inputs", "activations", "temporaries", "unknown",
)
RANK = {name: place for place, name in enumerate([PARAMETERS, GRADIENTS, STATE, COLLECTIVES, INPUTS, ACTIVATIONS])}

FORWARD, BACKWARD, RECOMPUTE, STEP = "forward", "backward", "recompute", "step"
SEARCHES = 3  # steps before which modules are looked for among all objects

# Functions of torch.distributed that move tensors.
MOVING = [
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "send", "recv", "isend", "irecv",
    "_all_gather_base", "_reduce_scatter_base",
]


class Categories:
    """Notes addresses and moments from now on."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._notes: list[Note] = []  # (microseconds, address, category); or (microseconds, None, phase) where one begins
        self._steps = 0
        self._handle: Any = None
        from torch.optim import optimizer

        self._hooks = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        self._undo: list[Callable[[], object]] = []
        self._during(torch.autograd, "_engine_run_backward", BACKWARD)
        from torch.utils import checkpoint

        self._during(checkpoint.CheckpointFunction, "backward", RECOMPUTE, staticmethod)
        self._recomputing(checkpoint._recomputation_hook)
        self._watch_collectives()
        self._await_module()

    def end(self) -> None:
        """Notes nothing more."""
        self._search()
        for hook in [*self._hooks, self._handle]:
            if hook:
                hook.remove()
        self._hooks, self._handle = [], None
        for undo in self._undo:
            undo()

    def label(self, traces: Iterable[Trace]) -> None:
        """Puts categories into the entries of a snapshot's `device_traces`."""
        notes = sorted(self._notes, key=lambda note: note[0])
        for trace in traces:
            label(trace, notes)

    def _phase(self, name: str) -> None:
        self._notes.append((time.time_ns() // 1000, None, name))

    def _note(self, category: str, values: Any) -> None:
        at = time.time_ns() // 1000
        for tensor in plain(self._torch, values):
            if tensor.is_cuda:
                self._notes.append((at, tensor.untyped_storage().data_ptr(), category))

    def _before_step(self, optimizer: Any, _arguments: object, _options: object) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._note(PARAMETERS, parameters)
        self._note(GRADIENTS, [p.grad for p in parameters])
        if self._steps < SEARCHES:
            self._search()
        self._phase(STEP)

    def _after_step(self, optimizer: Any, _arguments: object, _options: object) -> None:
        self._note(STATE, list(optimizer.state.values()))
        self._steps += 1
        self._phase(FORWARD)
        self._await_module()

    def _search(self) -> None:
        """Notes the parameters and buffers of all modules, frozen ones among them."""
        module = self._torch.nn.Module
        for found in gc.get_objects():
            if issubclass(type(found), module):
                self._note(PARAMETERS, [*found._parameters.values(), *found._buffers.values()])

    def _await_module(self) -> None:
        """The tensors given to the next module are inputs."""
        if self._handle is None:
            add = self._torch.nn.modules.module.register_module_forward_pre_hook
            self._handle = add(self._at_module)

    def _at_module(self, _module: object, arguments: Any) -> None:
        if self._handle:
            self._handle.remove()
            self._handle = None
        # Global hooks do not get arguments by name; their caller has them.
        named = sys._getframe(1).f_locals.get("kwargs", {})
        self._note(INPUTS, [arguments, named])

    def _during(
        self, place: Any, name: str, phase: str, kind: Callable[[Any], Any] = lambda function: function
    ) -> None:
        """Notes when a function begins and ends; what was before it goes on afterwards."""
        usual = getattr(place, name)

        @functools.wraps(usual)
        def noted(*arguments: Any, **options: Any) -> Any:
            before = self._current()
            self._phase(phase)
            try:
                return usual(*arguments, **options)
            finally:
                self._phase(before)
                if before == FORWARD:
                    self._await_module()

        setattr(place, name, kind(noted))
        self._undo.append(lambda: setattr(place, name, kind(usual)))

    def _current(self) -> str:
        return next((note[2] for note in reversed(self._notes) if note[1] is None), FORWARD)

    def _recomputing(self, hook: Any) -> None:
        """Notes when a checkpoint computes again, between entering and leaving this context."""
        enter, leave = hook.__enter__, hook.__exit__

        def entered(context: Any) -> Any:
            self._phase(RECOMPUTE)
            return enter(context)

        def left(context: Any, *error: Any) -> Any:
            self._phase(BACKWARD)
            return leave(context, *error)

        hook.__enter__, hook.__exit__ = entered, left
        self._undo.append(lambda: setattr(hook, "__enter__", enter))
        self._undo.append(lambda: setattr(hook, "__exit__", leave))

    def _watch_collectives(self) -> None:
        distributed = self._torch.distributed
        for name in MOVING if distributed.is_available() else []:
            usual = getattr(distributed, name, None)
            if usual is not None:
                for place in (distributed, distributed.distributed_c10d):
                    self._collective(place, name, usual)

    def _collective(self, place: Any, name: str, usual: Any) -> None:
        @functools.wraps(usual)
        def noted(*arguments: Any, **options: Any) -> Any:
            self._note(COLLECTIVES, [arguments, options])
            return usual(*arguments, **options)

        setattr(place, name, noted)
        self._undo.append(lambda: setattr(place, name, usual))


def plain(torch: ModuleType, value: Any) -> list[Any]:
    """All tensors in nested values, those inside of tensors that consist of others."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            names, _ = value.__tensor_flatten__()
            return plain(torch, [getattr(value, name) for name in names])
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in plain(torch, each)]
    return []


class Block:
    """A block that is live: its entry, and what is known of it."""

    __slots__ = ("category", "entry", "phase", "steps")

    def __init__(self, entry: dict[str, Any], phase: str) -> None:
        self.entry, self.steps = entry, 0
        self.phase: str | None = phase  # in which it was requested; none once it is gone
        self.category: str | None = None


class Labels:
    """Blocks of one device, as its entries and the notes come by in the order of time."""

    def __init__(self) -> None:
        self.live: dict[int, Block] = {}
        self.found: list[Block] = []
        self.phase = FORWARD
        self.young: list[Block] = []  # what was requested in the current forward pass

    def note(self, note: Note) -> None:
        """A phase begins, or an address is known to be something."""
        _, address, name = note
        if address is None:
            self.turn(name)
        elif address in self.live:
            improve(self.live[address], name)

    def entry(self, entry: dict[str, Any]) -> None:
        """A block comes or goes, or memory runs out."""
        action = entry["action"]
        if action == "alloc":
            block = self.live[entry["addr"]] = Block(entry, self.phase)
            self.young.append(block)
            self.found.append(block)
        elif action == "oom" and self.phase in (FORWARD, RECOMPUTE):
            # A forward pass that is cut off has no backward pass to ask.
            keep(self.young)
        elif action == "free_completed":
            gone = self.live.pop(entry["addr"], None)
            if gone is not None:
                gone.phase = None

    def turn(self, phase: str) -> None:
        """From one phase to the next: what is live now of what was requested in the old one."""
        if phase == BACKWARD and self.phase in (FORWARD, RECOMPUTE):
            keep(self.young)
            self.young = []
        if self.phase == STEP:
            for block in self.live.values():
                block.steps += 1
        self.phase = phase


def label(trace: Trace, notes: Iterable[Note]) -> None:
    """Puts categories into the entries of one device."""
    labels = Labels()
    left: Iterator[Note] = iter([*notes, (float("inf"), None, FORWARD)])
    note = next(left)
    for entry in trace:
        while note[0] < entry["time_us"]:
            labels.note(note)
            note = next(left)
        labels.entry(entry)
    for late in [note, *left]:
        if late[1] is not None:
            labels.note(late)
    for block in labels.found:
        if not block.entry.get("user_metadata"):
            block.entry["user_metadata"] = PREFIX + category_of(block)


def keep(young: list[Block]) -> None:
    """What is live now of what a forward pass asked for is activations."""
    for block in young:
        if block.phase in (FORWARD, RECOMPUTE):
            improve(block, ACTIVATIONS)


def improve(block: Block, category: str) -> None:
    """The block is this too; the upper category counts."""
    if block.category is None or RANK[category] < RANK[block.category]:
        block.category = category


def category_of(block: Block) -> str:
    """What a block is for in the end."""
    lasts = block.steps > 1
    if block.category in (None, ACTIVATIONS):
        return UNKNOWN if lasts else block.category or TEMPORARIES
    return block.category
