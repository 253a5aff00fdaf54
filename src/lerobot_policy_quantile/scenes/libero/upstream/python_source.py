"""Reads constants in third-party Python files from the syntax tree. Nothing is imported or run."""

import ast
import math
import operator
from pathlib import Path
from typing import Any

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def classes_in(path: Path) -> dict[str, ast.ClassDef]:
    """Class name -> its tree, of one file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path} must be a Python file; {error}") from error
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def base_of(node: ast.ClassDef) -> str | None:
    """The name of a class's first base."""
    return node.bases[0].id if node.bases and isinstance(node.bases[0], ast.Name) else None


def value_of(node: ast.expr) -> Any:
    """A literal: numbers (`np.pi / 2` as well), texts, None, and tuples, lists, arrays or dicts of them."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [value_of(part) for part in parts]
        case ast.Dict(keys=keys, values=values):
            return {value_of(key): value_of(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](value_of(left), value_of(right))
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="pi"):
            return math.pi
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="array"), args=[inside], keywords=[]):
            return value_of(inside)
    raise ValueError(f"expected a literal value in line {node.lineno}; got {ast.unparse(node)}")


def settings_in(node: ast.ClassDef) -> dict[str, str]:
    """Texts that dict literals inside a class give to texts: `{"scene_xml": "scenes/..."}`; the first counts."""
    found: dict[str, str] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Dict):
            for key, value in zip(inner.keys, inner.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.setdefault(str(key.value), value.value)
    return found


def attributes_in(node: ast.ClassDef) -> dict[str, Any]:
    """What a class's `__init__` assigns to `self.NAME`, where it is a literal."""
    found = {}
    for inner in ast.walk(node):
        match inner:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                found[name] = value_of(value)
    return found
