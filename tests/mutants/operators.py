"""Changes to a module's syntax tree, one at a time, of the kind that a programmer could make by mistake.

    comparison   < becomes <= and >=, == becomes !=, in becomes not in
    arithmetic   + becomes -, * becomes +, // becomes *, += becomes -=, a sign is dropped
    boolean      and becomes or, not is dropped, a condition is negated
    constant     n becomes n + 1 and n - 1, True becomes False, a text becomes another
    name         min becomes max, any becomes all, floor becomes ceil
    flow         break becomes continue, a loop runs no turn, a return returns nothing
    statement    a call, an assignment to an element or attribute, an addition, a raise is left out
    arguments    two adjacent arguments are swapped

Left alone: annotations, docstrings, decorators, the words of messages (what is inside a raise or an f-string), and
whatever runs only for type checkers.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "argmax": "argmin",
    "argmin": "argmax",
    "floor": "ceil",
    "flatnonzero": "asarray",
    "sort": "asarray",
    "unique": "sort",
    "minimum": "maximum",
    "maximum": "minimum",
}
COMMUTATIVE = ("min", "max", "np.minimum", "np.maximum", "np.array_equal")  # the order of arguments says nothing
MESSAGES = (ast.Raise, ast.JoinedStr)


@dataclass(frozen=True)
class Mutant:
    """One change: a file, the function it is in, the line, and the code before and after."""

    file: str
    where: str  # the qualified name of the outermost function, or "" at the level of the module
    line: int
    end: int
    change: str
    number: int  # among equal changes in the same function

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Return an identity that does not change when lines move."""
        return self.file, self.where, self.change, self.number

    def __str__(self) -> str:
        again = f" (no. {self.number + 1})" if self.number else ""
        return f"{self.file}:{self.line}: {self.where or 'module'}: {self.change}{again}"


def _short(node: ast.AST) -> str:
    if isinstance(node, (ast.If, ast.While)):
        return f"{type(node).__name__.lower()} {_short(node.test)}"
    if isinstance(node, ast.For):
        return f"for {_short(node.target)} in {_short(node.iter)}"
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def _edits(node: ast.AST) -> Iterator[tuple[ast.AST, str, object]]:
    """The changes to one node: what to set which field to."""
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                yield node, "ops", [*node.ops[:at], other(), *node.ops[at + 1 :]]
    elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in ARITHMETIC:
        yield node, "op", ARITHMETIC[type(node.op)]()
    elif isinstance(node, ast.Constant):
        yield from ((node, "value", value) for value in _constants(node.value))
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield node, "id", NAMES[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield node, "attr", NAMES[node.attr]
    elif isinstance(node, ast.For):
        yield node, "iter", ast.Tuple([], ast.Load())
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield node, "test", ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.comprehension):
        for at, test in enumerate(node.ifs):
            yield node, "ifs", [*node.ifs[:at], ast.UnaryOp(ast.Not(), test), *node.ifs[at + 1 :]]
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node, "value", ast.Constant(None)
    if isinstance(node, ast.Call) and ast.unparse(node.func) not in COMMUTATIVE:
        for at in range(len(node.args) - 1):
            a, b = node.args[at : at + 2]
            if not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred) and ast.dump(a) != ast.dump(b):
                yield node, "args", [*node.args[:at], b, a, *node.args[at + 2 :]]


def _constants(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        if value > 0:
            yield value - 1
    elif isinstance(value, float):
        yield value + 1
    elif isinstance(value, str) and value:
        yield f"{value}?"
    elif isinstance(value, bytes) and value:
        yield value + b"?"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.Break):
        yield ast.Continue()
        yield ast.Pass()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
        yield ast.Pass()
    elif isinstance(node, ast.Assign):
        if any(
            isinstance(part, (ast.Subscript, ast.Attribute)) for target in node.targets for part in ast.walk(target)
        ):
            yield ast.Pass()
    elif isinstance(node, (ast.AugAssign, ast.Raise)) or _acts(node):
        yield ast.Pass()


def _acts(node: ast.AST) -> bool:
    """A call that stands for itself, or a return of nothing."""
    if isinstance(node, ast.Return):
        return node.value is None
    return isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Constant, ast.Yield, ast.YieldFrom))


SKIPPED_FIELDS = {
    ast.arg: ("annotation",),
    ast.AnnAssign: ("annotation",),
    ast.FunctionDef: ("decorator_list", "returns"),
    ast.ClassDef: ("decorator_list", "bases", "keywords"),
    ast.If: (),
}


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """A node's children that may be changed: parent, field, place in the field, child."""
    skipped = SKIPPED_FIELDS.get(type(node), ())
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__"):
        return
    typed = isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "TypeVar")
    shapes = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reshape"
    for field, value in ast.iter_fields(node):
        if field in skipped:
            continue
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if (
                not isinstance(child, ast.AST)
                or isinstance(child, MESSAGES[1])
                or (typed and field == "args" and at == 0)
            ):
                continue
            if isinstance(child, ast.keyword) and child.arg in ("strict", "stacklevel"):
                continue  # internal checks that never fail, and stack levels of warnings
            if shapes and field == "args" and isinstance(child, ast.UnaryOp):
                continue  # any negative size is the one that follows from the others
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            yield node, field, at if isinstance(value, list) else None, child


def _walk(node: ast.AST, where: str) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, str]]:
    for parent, field, at, child in _children(node):
        inside = where
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not where.endswith("()"):
            name = f"{where}.{child.name}" if where else child.name
            inside = f"{name}()" if isinstance(child, ast.FunctionDef) else name
        yield parent, field, at, child, inside
        if not isinstance(child, ast.Raise):
            yield from _walk(child, inside)


def mutants(file: str, source: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Every mutant of a file with its tree, which is put right before the next: compile it at once."""
    tree, text = ast.parse(source), source.splitlines()
    seen: dict[tuple[str, str], int] = {}
    for parent, field, at, child, inside in list(_walk(tree, "")):
        where = inside.removesuffix("()")
        before, line, end = _short(child), getattr(child, "lineno", 0), getattr(child, "end_lineno", 0)
        if isinstance(child, (ast.Constant, ast.Name, ast.Attribute)):  # too little to be told apart
            before = f"{text[line - 1].split('  #')[0].strip()} : {before}"
        for node, name, value in _edits(child):
            kept = getattr(node, name)
            setattr(node, name, value)
            ast.fix_missing_locations(tree)
            change = f"{before} -> {_short(child)}"
            mutant = Mutant(file, where, line, end, change, seen.setdefault((where, change), 0))
            seen[where, change] += 1
            yield mutant, tree
            setattr(node, name, kept)
        for other in _replacements(child):
            ast.copy_location(other, child) if not hasattr(other, "lineno") else None
            _put(parent, field, at, other)
            change = f"{before} -> {_short(other)}"
            mutant = Mutant(file, where, line, end, change, seen.setdefault((where, change), 0))
            seen[where, change] += 1
            yield mutant, tree
            _put(parent, field, at, child)


def _put(parent: ast.AST, field: str, at: int | None, child: ast.AST) -> None:
    if at is None:
        setattr(parent, field, child)
    else:
        getattr(parent, field)[at] = child
