"""The backend of ``torch.compile``: graphs run as packages, or in PyTorch with a reason.

AOTAutograd turns a graph into one without in-place writes, and undoes that around it, so that
changed inputs and outputs that share memory are as in PyTorch. A graph is compiled at its first
run, when the parameters are at hand: they become weights, and are watched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from threading import RLock
from typing import Any

from tilewright.errors import Problem, TilewrightError, refuse
from tilewright.frontends.torch.library import check_exporter, torch_library
from tilewright.frontends.torch.reasons import reason_of
from tilewright.integrations.torch.records import GraphRecord, record
from tilewright.integrations.torch.specialised import Specialised
from tilewright.integrations.torch.symbols import free_sizes

KEPT = 8
"""Packages that a graph keeps, for different shapes; those used longest ago are dropped."""

CHANGES = 3
"""The number of times that a graph is compiled anew because parameters have changed, before PyTorch
runs it."""


def backend(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Any:  # fmt: skip
    """Compile one graph of ``torch.compile(model, backend="tilewright", options=...)``.

    Options: those of ``tilewright.compile`` (``target``, ``machine``, ``values``,
    ``exact_convolution``, ``exact_memory``, ``cpu``), and ``parameters``: ``"versions"`` or
    ``"values"``, see ``Watched``. For inference: where gradients are asked for, and wherever a
    graph cannot be compiled, PyTorch runs it and ``fallbacks`` tells why. Raises TilewrightError
    (``torch-option``, ``torch-missing``).
    """
    torch = torch_library()
    check_exporter()
    chosen = Options.of(options, others)
    kept = record(sum(node.op.startswith("call") for node in graph.graph.nodes))
    wants = [value for value in example_inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(value.requires_grad for value in wants):
        reason = "gradients are asked for, and packages have none"
        help = "call the model under torch.no_grad() or torch.inference_mode()"
        kept.fall_back(refuse("torch-gradients", reason, kept.name, help))
        return graph.forward

    def inference(captured: Any, inputs: Sequence[Any]) -> Any:
        del inputs  # Stand-ins without values.
        return _boxed(Compiled(captured, kept, chosen))

    aot = import_module("torch._dynamo.backends.common").aot_autograd
    return aot(fw_compiler=inference, inference_compiler=inference)(graph, example_inputs)


def _boxed(compiled: Compiled) -> Any:
    """As AOTAutograd calls it: with one list, which the callee may empty."""

    def run(inputs: list[Any]) -> Any:
        return compiled.run(inputs)

    run._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess] torch looks for it
    return run


class Compiled:
    """A graph and its packages: one for each set of shapes, or for all sizes up to some where
    PyTorch leaves sizes free."""

    def __init__(self, graph: Any, kept: GraphRecord, options: Options) -> None:
        self.graph = graph
        self.record = kept
        self.options = options
        self._packages: OrderedDict[tuple[Any, ...], Specialised] = OrderedDict()
        self._changes = 0
        self._guard = RLock()
        self._sizes = free_sizes(graph)

    def run(self, inputs: list[Any]) -> Any:
        """The graph's outputs: from a package, or from PyTorch."""
        if not self.record.problems:
            try:
                package = self._package(inputs)
                results = package.run(inputs)
                self.record.runs += 1
                return results
            except TilewrightError as error:
                self.record.fall_back(error)
            except Exception as error:  # A graph must run, whatever we meet with it.
                self.record.fall_back(refuse("torch-failed", reason_of(error), self.record.name))
        return self.graph(*inputs)

    def _package(self, inputs: Sequence[Any]) -> Specialised:
        """The package for these inputs, compiled now if there is none that fits."""
        torch = torch_library()
        with self._guard:
            sizes = self._sizes.of(inputs) if self._sizes else {}
            last = self._packages.get(())
            room = self._sizes.room(sizes, last.room if last else {}) if self._sizes else None
            # Where sizes are free, one package serves them all, and gives way to a larger one.
            key = () if room else tuple(
                (value.shape, value.stride(), value.dtype)
                if isinstance(value, torch.Tensor)
                else value
                for value in inputs
            )  # fmt: skip
            package = self._packages.get(key)
            if package is not None and not package.fits(inputs):
                self._changed()
                package = None
            if package is not None and room and not package.holds(sizes):
                package = None
            if package is None:
                try:
                    package = self._made(inputs, room)
                except TilewrightError:
                    if room is None:
                        raise
                    self._sizes = None  # Each set of shapes is compiled for itself.
                    return self._package(inputs)
                self.record.compiled += 1
                self._packages[key] = package
            self._packages.move_to_end(key)
            while len(self._packages) > KEPT:
                self._packages.popitem(last=False)
            return package

    def _made(
        self, inputs: Sequence[Any], room: Mapping[str, tuple[int, int]] | None
    ) -> Specialised:
        """A package for these inputs, or for sizes within ``room``."""
        constant = [n for n, value in enumerate(inputs) if _is_parameter(value)]
        options = self.options
        with ThreadPoolExecutor(1) as fresh:  # AOTAutograd runs us in a state of torch's own for
            return fresh.submit(  # this thread, in which nothing is exported.
                Specialised, self.graph, inputs, constant, options.compile, options.by_values,
                self._sizes if room else None, room,
            ).result()  # fmt: skip

    def _changed(self) -> None:
        """Drop what was compiled with other parameters; raises TilewrightError at last."""
        self._packages.clear()
        self._changes += 1
        if self._changes > CHANGES:
            raise refuse(
                "torch-parameters", f"its parameters have changed {self._changes} times",
                self.record.name, "compile the model when it is trained",
            )  # fmt: skip


def _is_parameter(value: Any) -> bool:
    """Return True if an input is a parameter or buffer of the module: dynamo marks them."""
    torch = torch_library()
    return isinstance(value, torch.nn.Parameter) or bool(
        getattr(value, "_dynamo_static_input_type", None)
    )


_COMPILE = ("target", "machine", "values", "exact_convolution", "exact_memory", "cpu")
"""Options that ``tilewright.compile`` takes as well."""

_PARAMETERS = ("versions", "values")


@dataclass(frozen=True)
class Options:
    """The options with which graphs are compiled."""

    compile: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by_values: bool = False
    """True if parameters are compared with a copy before each run, instead of by versions."""

    @classmethod
    def of(cls, user_options: Mapping[str, Any] | None, others: Mapping[str, Any]) -> Options:
        """Options as torch hands them over; raises TilewrightError (``torch-option``)."""
        options = dict(user_options or {})
        problems = [
            Problem("torch-option", f"{name!r} is not an option of this backend")
            for name in (*others, *options)
            if name not in (*_COMPILE, "parameters")
        ]
        parameters = options.pop("parameters", "versions")
        if parameters not in _PARAMETERS:
            reason = f"parameters are watched by {' or '.join(_PARAMETERS)}, not {parameters!r}"
            problems.append(Problem("torch-option", reason))
        if problems:
            raise TilewrightError(problems)
        return cls(options, parameters == "values")
