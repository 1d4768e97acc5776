"""A plain script of opacus' examples with ten of its lines changed: the names' languages.

The script is that of the installed package, so that it stays as its authors wrote it.
"""

import os
import sys
import types
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path
from typing import Any

SCRIPT = "char-lstm-classification.py"
SORTED = (  # numbers of the classes that do not depend on PYTHONHASHSEED
    ("list({langfile.stem for langfile in self.root.iterdir()})",
     "sorted({langfile.stem for langfile in self.root.iterdir()})"),
)  # fmt: skip
CHANGES = (
    *SORTED,
    ("        losses.append(float(loss))",
     '        losses.append(float(loss)); yield {"train_loss": losses[-1]}'),
    ("Accuracy: {mean(accs):.6f} | Loss: {mean(losses):.6f}",
     "Accuracy: {mean(accs or [0]):.6f} | Loss: {mean(losses or [0]):.6f}"),
    ("def main():", "def main(run):"),
    ("    model = model.to(device)", '    model = run.keep("model", model.to(device))'),
    ("    train_loader = DataLoader(", '    train_loader = run.loader("train",'),
    ("        batch_size=args.batch_size,",
     "        batch_size=args.batch_size, shuffle=False,"),
    ("    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate)",
     "    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate)\n"
     '    run.keep("optimizer", optimizer)'),
    ("    for epoch in tqdm(range(args.epochs)):",
     "    for epoch in tqdm(run.epochs(args.epochs)):"),
    ("        train(\n            model,", "        yield from train(\n            model,"),
)  # fmt: skip


def original() -> str:
    """Return the text of the script; raises LookupError where it is not installed."""
    for each in files("opacus") or ():
        if each.name == SCRIPT and (path := Path(each.locate())).is_file():
            return path.read_text()
    raise LookupError(f"opacus is installed without {SCRIPT}")


def changed(text: str, changes: tuple[tuple[str, str], ...] = CHANGES) -> str:
    for old, new in changes:
        if text.count(old) != 1:
            raise LookupError(f"{SCRIPT} has {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    return text


def module_of(text: str) -> types.ModuleType:
    """Return the script as a module, without what it does as a program."""
    module = types.ModuleType("names_script")
    exec(compile(text, SCRIPT, "exec"), module.__dict__)  # noqa: S102 - of an installed package
    return module


def as_program(parameters: Any) -> None:
    """Let this process have the directory and the arguments of the program."""
    os.chdir(parameters.directory)
    sys.argv = [SCRIPT, *parameters.arguments]


def train(run, parameters) -> Iterator[Any]:
    as_program(parameters)
    yield from module_of(changed(original())).main(run)
