"""The progress line of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

from tilewright.cli.refusals import errors


@contextmanager
def bar() -> Generator[Callable[[str, int, int], None]]:
    """A line that tells what is being done, from when there is something to tell.

    Rich takes a tenth of a second to import: what is found in the cache is done by then.
    """
    with ExitStack() as until_the_end:
        shown: list[Callable[[str, int, int], None]] = []

        def show(activity: str, done: int, total: int) -> None:
            if not shown:
                shown.append(_begin(until_the_end))
            shown[0](activity, done, total)

        yield show


def _begin(until_the_end: ExitStack) -> Callable[[str, int, int], None]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
    )
    line = until_the_end.enter_context(Progress(*columns, console=errors(), transient=True))
    task = line.add_task("", total=None)

    def show(activity: str, done: int, total: int) -> None:
        line.update(task, description=activity, completed=done, total=total or None)

    return show
