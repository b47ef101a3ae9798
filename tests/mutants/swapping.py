"""A change made in a running interpreter: new code for a function that others hold already."""

import ast
import sys
import types
from typing import Any


def functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """A module's functions and its classes' methods by qualified name, whatever they are wrapped in."""
    found: dict[str, types.FunctionType] = {}

    def add(thing: Any, depth: int = 0) -> None:
        if isinstance(thing, type):
            if thing.__module__ == module.__name__ and depth < 4:
                for inner in vars(thing).values():
                    add(inner, depth + 1)
            return
        for name in ("__func__", "func", "fget", "__wrapped__", "py_func"):
            inner = getattr(thing, name, None)
            if isinstance(inner, types.FunctionType):
                add(inner, depth)
        if isinstance(thing, types.FunctionType) and thing.__module__ == module.__name__:
            found.setdefault(thing.__qualname__, thing)

    for thing in vars(module).values():
        add(thing)
    return found


def codes(code: types.CodeType) -> dict[str, types.CodeType]:
    """The code of every function in a compiled module by qualified name."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found[constant.co_qualname] = constant
            found |= codes(constant)
    return found


class Swap:
    """Where changes of one module go: made once, when everything is imported."""

    def __init__(self, module: types.ModuleType, source: str) -> None:
        self.module = module
        self.functions = functions(module)
        self.source = source
        self.constants: dict[str, str] = {}

    def reaches(self, where: str) -> bool:
        """Whether a change there can be made: in a function, or in a constant of the module."""
        return where in self.functions or where == ""

    def readers(self, line: int) -> list[types.FunctionType]:
        """The functions of the module that read a name which is assigned on this line of it."""
        statements = [node for node in ast.parse(self.source).body if node.lineno <= line <= (node.end_lineno or 0)]
        names = {part.id for node in statements for part in ast.walk(node) if isinstance(part, ast.Name)}
        return [function for function in self.functions.values() if names.intersection(_names(function.__code__))]

    def apply(self, where: str, tree: ast.Module) -> None:
        """Make the change that the tree has; what was remembered from before is forgotten."""
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("runoff"):
                for thing in list(vars(module).values()):
                    if callable(getattr(thing, "cache_clear", None)):
                        thing.cache_clear()
        if where in self.functions:
            code = codes(compile(tree, getattr(self.module, "__file__", None) or "", "exec"))[where]
            function = self.functions[where]
            function.__code__ = code
            defaults = _definition(tree, where).args
            if defaults.defaults or any(defaults.kw_defaults):
                self._defaults(function, defaults)
            return
        self._constants(tree)

    def _defaults(self, function: types.FunctionType, given: ast.arguments) -> None:
        def value(node: ast.expr) -> Any:
            return eval(compile(ast.Expression(node), "default", "eval"), vars(self.module))  # noqa: S307

        function.__defaults__ = tuple(value(node) for node in given.defaults) or None
        named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        function.__kwdefaults__ = {arg.arg: value(node) for arg, node in named if node is not None} or None  # type: ignore[assignment]

    def _constants(self, tree: ast.Module) -> None:
        """Assign the module's constants again, there and wherever they were imported to."""
        originals = ast.parse(self.source).body
        for before, after in zip(originals, tree.body, strict=True):
            if not isinstance(after, (ast.Assign, ast.AnnAssign)) or ast.dump(before) == ast.dump(after):
                continue
            own = dict(vars(self.module))
            exec(compile(ast.Module([after], []), "constant", "exec"), own)  # noqa: S102
            targets = after.targets if isinstance(after, ast.Assign) else [after.target]
            for name in {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}:
                old = getattr(self.module, name)
                for module in list(sys.modules.values()):
                    ours = getattr(module, "__name__", "").startswith(("runoff", "test", "reference"))
                    if ours and getattr(module, name, None) is old:
                        setattr(module, name, own[name])


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {*code.co_names}.union(*(_names(c) for c in inner))


def _definition(tree: ast.Module, where: str) -> ast.FunctionDef:
    body: list[Any] = list(tree.body)
    for name in where.split("."):
        found = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name]
        if not found:
            return ast.parse("def none(): pass").body[0]  # type: ignore[return-value]
        node = found[-1]
        body = list(node.body)
    return node
