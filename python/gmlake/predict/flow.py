"""Flow: what the user's own code does with a value that it read, on that line or later in the same function.

    val = loss.item()          the read: `val` holds it
    stopper.update(val)        so does `stopper`
    if stopper.stop: break     a branch uses it
    size = int(val * 1000)     a whole number is made of it

What returns it is followed into its callers. Nothing runs otherwise for it: only the source is read. What is printed or
logged decides nothing; what functions of other files do with their arguments is not followed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING, NamedTuple, Union

from .facts import COMPARED, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FrameType

# Calls that show what they get, that look at no values, or that only ask whether a loss is a number at all.
SHOWING = re.compile(
    "print$|p?format|log|info$|debug|warn|error$|write|add_scalar|set_postfix|set_desc|track$|report|save|dumps?$"
    "|len$|isinstance$|hasattr$|type$|id$|is_?finite$|is_?nan$|is_?inf$"
)
WHOLE_OF = frozenset(["int", "floor", "ceil", "trunc", "round", "range"])
SHAPES = frozenset(["shape", "size", "ndim", "dim", "numel", "dtype", "device", "requires_grad", "is_cuda"])
FULL = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)  # true whatever is in them
BY_ITSELF = (ast.Is, ast.IsNot, ast.In, ast.NotIn)  # comparisons that ask for no order

CLOCK = re.compile(r"(time\.)?(time|monotonic|perf_counter)(_ns)?|(datetime\.)+now")
WAITING = re.compile("sleep|wait|poll|join|get$|is_alive|is_set|recv|query|connect|accept")
try:
    BEGAN_IN = os.getcwd()  # in which the names of files are, wherever the script goes
except OSError:
    BEGAN_IN = ""

Body = Union[ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]


class Use(NamedTuple):
    """What becomes of a value: the words for what it decides, or none, and whether the function returns it."""

    words: str
    returns: bool


def use(frames: Iterable[FrameType]) -> str:
    """What the innermost of these frames does with what its current call returns, and those that it returns it to."""
    for frame in frames:
        found = _use(frame.f_code, frame.f_lasti, frame.f_lineno)
        if found.words or not found.returns:
            return found.words
    return ""


@functools.cache
def _use(code: CodeType, at: int, line: int) -> Use:
    try:
        return _found(code, at, line)
    except RecursionError:  # source that is nested too deep to be followed
        return Use(COMPARED, False)


def _found(code: CodeType, at: int, line: int) -> Use:
    body, owner = _place(code)
    if body is None:
        return Use("", False)
    first = Flow(body, _read(body, code, at, line))
    others = [Flow(each, [], first.of_self()) for each in owner.body if isinstance(each, ast.FunctionDef)] if owner else []
    found = [flow.words() for flow in [first, *others]]
    return Use(next((words for words in (COMPARED, WHOLE) if words in found), ""), first.returns())


def timed_loop(script: str) -> str | None:
    """The line of a script that loops until a time has gone by, as `file.py:4`; not where the loop waits for something."""
    with contextlib.suppress(RecursionError):
        return _timed_loop(script)
    return None


def _timed_loop(script: str) -> str | None:
    tree = _tree(script)
    for body in ast.walk(tree) if tree else ():
        if not isinstance(body, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        found = Flow(body, [node for node in _own(body) if isinstance(node, ast.Call) and CLOCK.fullmatch(_path(node.func))])
        loops = (node for node in found.nodes if isinstance(node, ast.While) and found.has(node.test))
        for loop in loops:
            if not any(isinstance(node, ast.Call) and WAITING.match(_name(node)) for node in ast.walk(loop)):
                return f"{os.path.basename(script)}:{loop.lineno}"
    return None


@functools.lru_cache(8)
def _tree(name: str) -> ast.Module | None:
    try:
        with open(os.path.join(BEGAN_IN, name), "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, MemoryError):
        return None


def _place(code: CodeType) -> tuple[Body | None, ast.ClassDef | None]:
    """The source of a function or a module, and of the class whose method it is."""
    tree = _tree(code.co_filename)
    if tree is None or code.co_name == "<module>":
        return tree, None
    found: tuple[Body | None, ast.ClassDef | None] = None, None
    for node in ast.walk(tree):
        for each in ast.iter_child_nodes(node):
            if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            if (_begin(each), getattr(each, "name", "<lambda>")) == (code.co_firstlineno, code.co_name):
                found = each, node if isinstance(node, ast.ClassDef) else None
    # A comprehension before Python 3.12, or what torch.compile makes of a function: the function around it.
    return found if found[0] else (_around(tree, code.co_firstlineno), None)


def _begin(body: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    return min([body.lineno, *(each.lineno for each in getattr(body, "decorator_list", []))])


def _around(tree: ast.Module, line: int) -> Body:
    """The innermost function around a line."""
    kinds = ast.FunctionDef, ast.AsyncFunctionDef
    around = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.lineno <= line <= (node.end_lineno or 0)]
    return max(around, key=lambda node: node.lineno, default=tree)


def _read(body: Body, code: CodeType, at: int, line: int) -> list[ast.expr]:
    """The expression that a frame is at: the least around its instruction; before Python 3.11 all calls on its line."""
    if not hasattr(code, "co_positions"):
        calls = (node for node in ast.walk(body) if isinstance(node, ast.Call))
        return [node for node in calls if node.lineno <= line <= (node.end_lineno or 0)]
    begin, end, column, last = (each or 0 for each in list(code.co_positions())[at // 2])
    around = [
        node for node in ast.walk(body)
        if isinstance(node, (ast.expr, ast.stmt)) and (node.lineno, node.col_offset) <= (begin, column)
        and (node.end_lineno or 0, node.end_col_offset or 0) >= (end, last)
    ]
    least = min(around, key=_extent, default=None)
    if isinstance(least, ast.expr):
        return [least]
    return [each for each in ast.iter_child_nodes(least) if isinstance(each, ast.expr)] if least else []  # a loop, at its next


def _extent(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """How much source it is, by which those around one place are ordered."""
    lines = (node.end_lineno or 0) - node.lineno
    return lines, (node.end_col_offset or 0) - (0 if lines else node.col_offset)


class Flow:
    """The names in a function that hold a value, found until there are no more."""

    def __init__(self, body: Body, read: Iterable[ast.expr], names: Iterable[str] = ()) -> None:
        self.body, self.read = body, set(map(id, read))
        self.nodes = list(_own(body))
        self.modules = {each.asname or each.name.partition(".")[0] for node in self.nodes
                        if isinstance(node, (ast.Import, ast.ImportFrom)) for each in node.names}
        self.names = set(names)  # as `self.best`
        self.holders: set[str] = set()  # of these, those that hold more than the value
        before = -1
        while (self.read or self.names) and before < len(self.names):
            before = len(self.names)
            for node in self.nodes:
                self.follow(node)

    def follow(self, node: ast.AST) -> None:
        """What a statement lets the value into."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None and self.has(node.value):
                self.put(targets, isinstance(node.value, FULL))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and self.has(node.iter):
            self.put([node.target])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            self.hold(node.value, node.value.func)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self.hold(node.value, node.value.func.value)

    def put(self, targets: Iterable[ast.expr], holds: bool = False) -> None:
        """Targets are, or hold, the value."""
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                self.put(target.elts)
            elif isinstance(target, ast.Starred):
                self.put([target.value])
            elif isinstance(target, ast.Subscript) and (path := _path(target.value)):
                self.add_holder(path)
            elif path := _path(target):
                self.add_holder(path) if holds else self.add(path)

    def hold(self, call: ast.Call, of: ast.expr) -> None:
        """An object whose method gets the value may keep it."""
        if _is_showing(call):
            return
        given = [*call.args, *(each.value for each in call.keywords)]
        if (path := _path(of)) and any(map(self.has, given)):
            self.add_holder(path)

    def add(self, path: str) -> None:
        """A name is the value."""
        self.names.add(path)
        self.holders.discard(path)

    def add_holder(self, path: str) -> None:
        if path not in self.names and path != "self" and path.partition(".")[0] not in self.modules:
            self.names.add(path)
            self.holders.add(path)

    def has(self, node: ast.AST, tested: bool = False) -> bool:
        """Whether an expression may be, or hold, the value; where it is tested, a list that holds it is none."""
        if id(node) in self.read:
            return True
        if isinstance(node, (ast.JoinedStr, ast.Lambda)) or isinstance(node, ast.Call) and _is_showing(node):
            return False
        if isinstance(node, ast.Compare) and all(isinstance(each, BY_ITSELF) for each in node.ops):
            return False
        if path := _path(node):
            words = path.split(".")
            held = any(".".join(words[: i + 1]) in self.names for i in range(len(words)))
            return held and not SHAPES & set(words) and not (tested and path in self.holders)
        tested = tested and isinstance(node, (ast.BoolOp, ast.UnaryOp))
        return any(self.has(each, tested) for each in ast.iter_child_nodes(node))

    def words(self) -> str:
        """What the value decides in this function."""
        if any(self.has(test, True) for node in self.nodes for test in _tests(node)):
            return COMPARED
        shows = (node for node in self.nodes if _is_showing(node) or isinstance(node, ast.JoinedStr))
        shown = {id(each) for node in shows for each in ast.walk(node)}
        calls = (node for node in self.nodes if isinstance(node, ast.Call) and id(node) not in shown)
        whole = (call for call in calls if _name(call) in WHOLE_OF and (_name(call) != "round" or len(call.args) == 1))
        return WHOLE if any(self.has(each) for call in whole for each in call.args) else ""

    def returns(self) -> bool:
        """Whether the function returns the value, or yields it."""
        if isinstance(self.body, ast.Lambda):
            return self.has(self.body.body)
        kinds = ast.Return, ast.Yield, ast.YieldFrom
        return any(node.value is not None and self.has(node.value) for node in self.nodes if isinstance(node, kinds))

    def of_self(self) -> list[str]:
        """What the other methods of an object find of it."""
        return [name for name in self.names if name.startswith("self.")]


def _own(body: Body) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes within it."""
    below = body.body if isinstance(body.body, list) else [body.body]
    for node in below:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
            yield from _below(node)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield each
            yield from _below(each)


def _tests(node: ast.AST) -> list[ast.expr]:
    """The conditions of a statement or an expression."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


def _is_showing(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and SHOWING.match(_name(node)) is not None


def _name(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _path(node: ast.AST) -> str:
    """A name with attributes, as `self.best`; nothing of other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (path := _path(node.value)):
        return f"{path}.{node.attr}"
    return ""
