"""The public Python names with their docstrings, read without importing their modules.

The web process serves this page and must not import torch.
"""

import ast
import inspect
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trainops.documentation.text import page as joined
from trainops.kind import KINDS

CORE = (
    "trainops.client", "trainops.runtime", "trainops.runtime.job", "trainops.runtime.errors",
    "trainops.kind", "trainops.recipes", "trainops.learning.ingredients",
    "trainops.learning.readers",
)  # fmt: skip
Definition = ast.ClassDef | ast.FunctionDef


def page() -> str:
    """Return the Markdown of all public modules."""
    return joined(
        "# Python",
        "The public names for recipes, kinds and scripts without a server.",
        *(part for name in (*CORE, *_of_kinds()) for part in _module(name)),
    )


def _of_kinds() -> list[str]:
    """Return the packages of kinds that say what is public, by `__all__`."""
    found = []
    for kind in KINDS.values():
        name = kind.config.partition(":")[0].rpartition(".")[0]
        inside = sorted(_file(name).parent.glob("*/__init__.py"))
        found += [f"{name}.{each.parent.name}" for each in inside if _exported(_tree(each))]
    return found


def _module(name: str) -> Iterator[str]:
    tree = _tree(_file(name))
    yield f"## {name}"
    yield _docstring(tree)
    for each in _public(name, tree):
        yield from _definition(each, "###")


def _public(module: str, tree: ast.Module) -> list[Definition]:
    """Return the definitions of `__all__`, else those without an underscore."""
    names = _exported(tree)
    if names is None:
        return [
            each
            for each in tree.body
            if isinstance(each, Definition) and not each.name.startswith("_")
        ]
    found = (_find(module, each) for each in names)
    return [each for each in found if each]


def _find(module: str, name: str) -> Definition | None:
    """Return where a name is defined, following imports; None: it is no class or function."""
    for node in ast.walk(_tree(_file(module))):
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module.startswith("trainops."):
                    return _find(node.module, alias.name)
    return None


def _definition(node: Definition, level: str) -> Iterator[str]:
    """Yield heading, signature and docstring; of a class those of its public methods, too."""
    yield f"{level} {node.name}"
    yield f"```python\n{_signature(node)}\n```"
    yield _docstring(node)
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if not isinstance(each, ast.FunctionDef) or each.name.startswith("_"):
                continue
            if ast.get_docstring(each):
                yield from _definition(each, f"{level}#")


def _signature(node: Definition) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(each) for each in node.bases)
        fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
        shown = [each for each in fields if not each.startswith("_")]
        return "\n    ".join([f"class {node.name}{f'({bases})' if bases else ''}:", *shown])
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def _docstring(node: ast.Module | Definition) -> str:
    """Return a docstring; its indented examples become code by themselves."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    return text.replace("<", "\\<").replace("__", "\\_\\_")


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _file(module: str) -> Path:
    """Return the file of a module or package; only its outermost package is imported."""
    top, *inside = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    path = Path(spec.origin).parent.joinpath(*inside)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
