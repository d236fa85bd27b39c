"""Groups of options: a command takes each as one parameter, the command line as its fields."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tilewright.cli import console

if TYPE_CHECKING:
    from tilewright.compiler.pipeline import Model


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Expand each parameter of a command whose type is a dataclass of options into its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: each for name, each in hints.items() if is_dataclass(each)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        option = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        if name not in groups:
            parameters.append(option)
            continue
        options = get_type_hints(groups[name], include_extras=True)
        parameters += [
            option.replace(name=field.name, default=field.default, annotation=options[field.name])
            for field in fields(groups[name])
        ]

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            chosen = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**chosen)
        command(**values)

    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    expanded.__dict__["__signature__"] = inspect.Signature(parameters)
    return expanded


@dataclass(frozen=True)
class ModelOptions:
    """The options that complete a model file, and vary the machine that it is for."""

    shape: console.ShapeOption = None
    constant: console.ConstantOption = None
    caffemodel: console.CaffemodelOption = None
    settings: console.SetOption = None

    def source(self, model: Path) -> Model:
        """Return the model with the values of its constant inputs."""
        return self.opened(model) if self.constant else model

    def opened(self, model: Path) -> Model:
        """Return the model, opened with the values of inputs that ``--constant`` gives."""
        from tilewright import frontends

        return frontends.open_model(model, constants=console.constants(self.constant)) or model

    @property
    def shapes(self) -> dict[str, str]:
        """The texts of ``--shape`` by the names of inputs and free dims."""
        return console.shapes(self.shape)

    @property
    def values(self) -> dict[str, Any]:
        """The machine's keys that ``--set`` varies, with their values."""
        return console.machine_values(self.settings)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the stages of a compilation: shapes and the weights' file."""
        return {"shapes": self.shapes, "caffemodel": self.caffemodel}
