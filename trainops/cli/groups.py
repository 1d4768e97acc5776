"""Groups of commands of which one is meant where none is named."""

from typing import Any

from trainops.cli.type_names import WordedGroup


def group_with_default(default: str) -> type[WordedGroup]:
    """Return the class of a group: `recipes`, `recipes NAME` mean its command `default`.

    The class of a context is private to typer.
    """

    class GroupWithDefault(WordedGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            named = bool(args) and (args[0] in self.commands or args[0] == "--help")
            return super().parse_args(ctx, args if named else [default, *args])

    return GroupWithDefault
