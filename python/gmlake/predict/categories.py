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

import functools
import gc
import sys
import time

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

    def __init__(self, torch):
        self._torch = torch
        self._notes = []  # (microseconds, address, category); or (microseconds, None, phase) where one begins
        self._steps, self._handle = 0, None
        from torch.optim import optimizer

        self._hooks = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        self._undo = []
        self._during(torch.autograd, "_engine_run_backward", BACKWARD)
        from torch.utils import checkpoint

        self._during(checkpoint.CheckpointFunction, "backward", RECOMPUTE, staticmethod)
        self._recomputing(checkpoint._recomputation_hook)
        self._watch_collectives()
        self._await_module()

    def end(self):
        """Notes nothing more."""
        self._search()
        for hook in [*self._hooks, self._handle]:
            if hook:
                hook.remove()
        self._hooks, self._handle = [], None
        for undo in self._undo:
            undo()

    def label(self, traces):
        """Puts categories into the entries of a snapshot's `device_traces`."""
        notes = sorted(self._notes, key=lambda note: note[0])
        for trace in traces:
            label(trace, notes)

    def _phase(self, name):
        self._notes.append((time.time_ns() // 1000, None, name))

    def _note(self, category, values):
        at = time.time_ns() // 1000
        for tensor in plain(self._torch, values):
            if tensor.is_cuda:
                self._notes.append((at, tensor.untyped_storage().data_ptr(), category))

    def _before_step(self, optimizer, _arguments, _options):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._note(PARAMETERS, parameters)
        self._note(GRADIENTS, [p.grad for p in parameters])
        if self._steps < SEARCHES:
            self._search()
        self._phase(STEP)

    def _after_step(self, optimizer, _arguments, _options):
        self._note(STATE, list(optimizer.state.values()))
        self._steps += 1
        self._phase(FORWARD)
        self._await_module()

    def _search(self):
        """Notes the parameters and buffers of all modules, frozen ones among them."""
        module = self._torch.nn.Module
        for found in gc.get_objects():
            if issubclass(type(found), module):
                self._note(PARAMETERS, [*found._parameters.values(), *found._buffers.values()])

    def _await_module(self):
        """The tensors given to the next module are inputs."""
        if self._handle is None:
            add = self._torch.nn.modules.module.register_module_forward_pre_hook
            self._handle = add(self._at_module)

    def _at_module(self, _module, arguments):
        if self._handle:
            self._handle.remove()
            self._handle = None
        # Global hooks do not get arguments by name; their caller has them.
        named = sys._getframe(1).f_locals.get("kwargs", {})
        self._note(INPUTS, [arguments, named])

    def _during(self, place, name, phase, kind=lambda function: function):
        """Notes when a function begins and ends; what was before it goes on afterwards."""
        usual = getattr(place, name)

        @functools.wraps(usual)
        def noted(*arguments, **options):
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

    def _current(self):
        return next((note[2] for note in reversed(self._notes) if note[1] is None), FORWARD)

    def _recomputing(self, hook):
        """Notes when a checkpoint computes again, between entering and leaving this context."""
        enter, leave = hook.__enter__, hook.__exit__

        def entered(context):
            self._phase(RECOMPUTE)
            return enter(context)

        def left(context, *error):
            self._phase(BACKWARD)
            return leave(context, *error)

        hook.__enter__, hook.__exit__ = entered, left
        self._undo.append(lambda: (setattr(hook, "__enter__", enter), setattr(hook, "__exit__", leave)))

    def _watch_collectives(self):
        distributed = self._torch.distributed
        for name in MOVING if distributed.is_available() else []:
            usual = getattr(distributed, name, None)
            if usual is not None:
                for place in (distributed, distributed.distributed_c10d):
                    self._collective(place, name, usual)

    def _collective(self, place, name, usual):
        @functools.wraps(usual)
        def noted(*arguments, **options):
            self._note(COLLECTIVES, [arguments, options])
            return usual(*arguments, **options)

        setattr(place, name, noted)
        self._undo.append(lambda: setattr(place, name, usual))


def plain(torch, value):
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

    __slots__ = ("entry", "phase", "category", "steps")

    def __init__(self, entry, phase):
        self.entry, self.phase, self.category, self.steps = entry, phase, None, 0


def label(trace, notes):
    """Puts categories into the entries of one device."""
    live, young, found, phase = {}, [], [], FORWARD
    notes = iter([*notes, (float("inf"), None, FORWARD)])
    note = next(notes)
    for entry in trace:
        while note[0] < entry["time_us"]:
            if note[1] is None:
                phase, young = turn(phase, note[2], live, young)
            elif note[1] in live:
                improve(live[note[1]], note[2])
            note = next(notes)
        if entry["action"] == "alloc":
            block = live[entry["addr"]] = Block(entry, phase)
            young.append(block)
            found.append(block)
        elif entry["action"] == "oom" and phase in (FORWARD, RECOMPUTE):
            # A forward pass that is cut off has no backward pass to ask.
            keep(young)
        elif entry["action"] == "free_completed":
            gone = live.pop(entry["addr"], None)
            if gone is not None:
                gone.phase = None
    for _, address, category in [note, *notes]:
        if address in live:
            improve(live[address], category)
    for block in found:
        if not block.entry.get("user_metadata"):
            block.entry["user_metadata"] = PREFIX + category_of(block)


def turn(phase, new, live, young):
    """From one phase to the next: what is live now of what was asked for in the old one."""
    if new == BACKWARD and phase in (FORWARD, RECOMPUTE):
        keep(young)
        young = []
    if phase == STEP:
        for block in live.values():
            block.steps += 1
    return new, young


def keep(young):
    """What is live now of what a forward pass asked for is activations."""
    for block in young:
        if block.phase in (FORWARD, RECOMPUTE):
            improve(block, ACTIVATIONS)


def improve(block, category):
    """The block is this too; the upper category counts."""
    if block.category is None or RANK[category] < RANK[block.category]:
        block.category = category


def category_of(block):
    """What a block is for in the end."""
    lasts = block.steps > 1
    if block.category in (None, ACTIVATIONS):
        return UNKNOWN if lasts else block.category or TEMPORARIES
    return block.category
