"""The manifest of a package: what it is for, what it takes and gives, and what was planned.

A package is a directory:

    manifest.json         this file, with the size and SHA-256 of every other one
    program/              what the target emitted: C, or instruction words and weights
    reference/            the final graph and its weights, for checks against the interpreter
    libraries/            what was built of the program's C, if ``save`` has put it there

or, when dims of the model's inputs are free (``tilewright.runtime.dynamic``):

    manifest.json
    model/                the model as it came, compiled for each shape when it is first used
    plans/SIZExSIZE/      packages that are right for all sizes of the free dims up to theirs

The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from tilewright.codegen.program.buffers import KernelBuffer
from tilewright.errors import refuse
from tilewright.numerics.element_types import ELEMENTS, ElementType, dtype_named
from tilewright.shapes.forms import LARGEST_SIZE, Bounds
from tilewright.shapes.lists import NO_LISTS, Lists
from tilewright.system.typed_json import JsonError, from_json, to_json

FORMAT = 1
"""Version of the package's layout; readers refuse other versions."""

MANIFEST = "manifest.json"
PROGRAM = "program"
REFERENCE = "reference"
MODEL = "model"
PLANS = "plans"


def plan_name(sizes: Sequence[int]) -> str:
    """The folder of the plan for sizes of the free dims, ``8x64``."""
    return "x".join(map(str, sizes))


_MOST_MANIFEST_BYTES = 64 << 20

LONGEST_NAME = 1024
"""Characters of the longest name of a file in a package."""


DimSize = Annotated[int, Meta(ge=0, le=LARGEST_SIZE)]
Size = Annotated[int, Meta(ge=0)]
FiniteFloat = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Factor = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


class Tensor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input or output, as the caller sees it."""

    name: str
    shape: tuple[DimSize | str, ...]
    """Sizes, and names of free dims; of an output, ``?`` for a dim that the model does not name."""
    dtype: str

    @property
    def is_closed(self) -> bool:
        """True if the sizes of all dims are known."""
        return not any(isinstance(size, str) for size in self.shape)

    def empty(self) -> Any:
        """Zeros of its shape, which has to be known: for tensors that have no elements."""
        import numpy as np

        shape = tuple(int(size) for size in self.shape)
        return np.zeros(shape, dtype_named(self.dtype))


class OutputSize(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An axis of an output of which a run fills as many indices as another output says."""

    output: str
    """The output that ends there; empty where the size ends values of the program alone."""
    axis: Annotated[int, Meta(ge=0, lt=64)]
    size: str
    """The output of the program, one int64, that is the size."""
    name: str
    """The name under which ``--shape`` states the most."""
    room: Annotated[int, Meta(ge=0)]
    """The most indices that there is room for."""


class FreeDim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dim of the inputs that stays free, its bounds, both included, and what it is a multiple
    of."""

    name: str
    low: DimSize
    high: Annotated[int, Meta(ge=1, le=LARGEST_SIZE)]
    step: Annotated[int, Meta(ge=1, le=LARGEST_SIZE)] = 1

    @property
    def bounds(self) -> Bounds:
        """The sizes that the dim may have; refuses (``shape-bounds``) invalid bounds."""
        return Bounds(self.low, self.high, self.step)


class OpenModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that a package with free dims keeps, and how it is compiled for a shape."""

    file: str
    """The model's file in the package."""
    dims: tuple[FreeDim, ...]
    """The free dims, in the order in which the inputs name them."""
    plans: tuple[tuple[int, ...], ...] = ()
    """Sizes of the free dims for which the package has plans, ascending; none, or all sizes up to
    the last are covered."""
    rooms: dict[str, Annotated[int, Meta(ge=1, le=LARGEST_SIZE)]] = field(
        default_factory=dict[str, int]
    )
    """The most of sizes that data decide, by the names of values."""
    exact_memory: bool = False
    ranges: dict[str, tuple[FiniteFloat, FiniteFloat]] | None = None
    """Calibrated ranges of values, where they choose scales or binary points."""
    factors: dict[str, tuple[Factor, ...]] | None = None
    """The divisors of the channels of values, where they are equalised."""
    numbers: tuple[str, str | None, tuple[str, ...], bool | None] | None = None
    """The number format asked for, its observer, the nodes that stay float32, and whether
    channels are equalised."""


class KernelEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel: where it runs, and what its plan says. Cycles and bounds are the machine's."""

    name: str
    nodes: tuple[str, ...]
    engine: str
    """The engine that runs it, ``accelerator`` or ``host``."""
    reason: str = ""
    """The reason why it is on the host."""
    schedule: str = ""
    predicted_cycles: float | None = None
    physical_bound: float | None = None
    granule_bound: float | None = None
    moved_bytes: int | None = None
    candidates: int | None = None
    complete: bool = True
    """False when a limit cut the space that was searched."""
    slow_move: str = ""
    """The move that its bounds are the time of, if neither compute nor main memory is as slow."""
    blocks: str = ""
    """The operand that moves in the most small blocks, in words (planning/cost/limits.py)."""
    block_cycles: int = 0
    """The latencies of these blocks, one after the other, in cycles."""
    issue_cycles: int = 0
    """Cycles that issuing its instructions takes, where the machine counts that."""
    unbalanced: str = ""
    """The reason why cores differ from the one whose part the plan prices
    (planning/cost/balance.py)."""
    operations: int | None = None
    """Iterations of its computes: multiply-adds, where they are products."""
    peak_cycles: float | None = None
    """Cycles of its computes alone, at the machine's peak."""
    host_seconds: float | None = None
    """Predicted seconds of a kernel on the host, where the machine describes its host."""
    energy_pj: dict[str, FiniteFloat] = field(default_factory=dict[str, FiniteFloat])
    """Picojoules by memory, move and engine, where the machine has figures; without leakage."""
    buffers: tuple[KernelBuffer, ...] = ()
    """The places of its tiles on the chip, if its program says them."""
    rounds: Annotated[int, Meta(ge=1)] = 1
    """The number of times that it runs, as a part of a loop; cycles, bounds, bytes and operations
    are of all."""

    def of_rounds(self, rounds: int, loop: str) -> KernelEntry:
        """The entry in a network of which a loop runs its network for some rounds."""
        known = {name: getattr(self, name) for name in _COUNTED}
        whole: dict[str, Any] = {
            n: value * rounds for n, value in known.items() if value is not None
        }
        return replace(
            self,
            **whole,
            name=f"{loop}.{self.name}",
            rounds=rounds * self.rounds,
            energy_pj={name: energy * rounds for name, energy in self.energy_pj.items()},
        )

    @classmethod
    def of_loop(
        cls, name: str, nodes: tuple[str, ...], rounds: int, body: Sequence[KernelEntry]
    ) -> KernelEntry:
        """The entry of a loop that a program runs as one kernel: the sums of its body."""
        known = {n: [v for e in body if (v := getattr(e, n)) is not None] for n in _COUNTED}
        energy: dict[str, float] = {}
        for entry in body:
            for part, picojoules in entry.energy_pj.items():
                energy[part] = energy.get(part, 0.0) + picojoules
        sums: dict[str, Any] = {n: sum(values) for n, values in known.items() if values}
        whole = cls(
            name="",
            nodes=nodes,
            engine="accelerator" if any(e.engine != "host" for e in body) else "host",
            complete=all(entry.complete for entry in body),
            energy_pj=energy,
            **sums,
        )
        return replace(whole.of_rounds(rounds, ""), name=name)


_COUNTED = (
    *("predicted_cycles", "physical_bound", "granule_bound", "moved_bytes"),
    *("block_cycles", "issue_cycles", "operations", "peak_cycles", "host_seconds"),
)
"""The figures of a kernel that are a multiple of its rounds."""


class FileEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size and digest of a file of the package."""

    bytes: Size
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a package's ``manifest.json``."""

    format: int = FORMAT
    tilewright: str
    target: str
    machine: dict[str, Any]
    model: str
    element: ElementType
    """Element type of the machine: results of integers are compared exactly."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    empty_outputs: tuple[Tensor, ...] = ()
    """The model's outputs without elements: a run gives them, the program does not."""
    output_sizes: tuple[OutputSize, ...] = ()
    """The axes of outputs whose sizes a run computes; what the caller sees ends there."""
    lists: Lists = NO_LISTS
    """The model's sequences, whose elements are inputs and outputs, and absent optionals."""
    kernels: tuple[KernelEntry, ...]
    peak_memory_bytes: int
    """Activations and weights in main memory."""
    activation_bytes: int
    lower_bound_memory_bytes: int
    """Weights and the most bytes of activations that are live at once."""
    on_chip_bound: float | None = None
    """Cycles below which no run gets even if every intermediate stays on the chip."""
    host_seconds: float | None = None
    """Predicted seconds of all that the host runs, where the machine describes its host."""
    notes: tuple[str, ...] = ()
    runs: bool = True
    """True if something here runs it, false if only other tools do."""
    open_model: OpenModel | None = None
    """Model of a package with free dims, which has no program; None in all others."""
    files: dict[str, FileEntry] = field(default_factory=dict[str, FileEntry])

    def check(self) -> None:
        """Raise ``JsonError`` for what no type says: of free dims and of empty outputs."""
        for tensor in self.empty_outputs:
            if tensor.dtype not in ELEMENTS or 0 not in tensor.shape or not tensor.is_closed:
                raise JsonError(f"{tensor.name}: is not the shape and type of an empty output")
        shapes = {tensor.name: tensor for tensor in self.outputs}
        for end in self.output_sizes:
            size, cut = shapes.get(end.size), shapes.get(end.output)
            known = size is not None and size.shape == () and size.dtype in ELEMENTS
            if (
                size is None
                or not known
                or not ELEMENTS[size.dtype].is_integer
                or (end.output and (cut is None or cut.shape[end.axis :][:1] != (end.room,)))
            ):
                raise JsonError(f"{end.output}: {end.size} is not the size of its axis {end.axis}")
        returned = shapes.keys() | {tensor.name for tensor in self.empty_outputs}
        for name, length in self.lists.outputs.items():
            if not all(f"{name}.{number}" in returned for number in range(length or 0)):
                raise JsonError(f"{name}: not all of its {length} elements are outputs")
        listed = {dim.name for dim in self.open_model.dims} if self.open_model else set[str]()
        named = {dim for tensor in self.inputs for dim in tensor.shape if isinstance(dim, str)}
        if named != listed or (self.open_model and len(listed) < len(self.open_model.dims)):
            raise JsonError("the inputs' free dims are not those that the package lists")
        if not listed and not all(tensor.is_closed for tensor in self.outputs):
            raise JsonError("an output's shape is open, and no dim is free")

    def write(self, directory: Path) -> None:
        """Write it beside the package's other files, which it lists."""
        paths = [
            path
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path != directory / MANIFEST
        ]
        names = [path.relative_to(directory).as_posix() for path in paths]
        listed = dict(zip(names, _entries(paths), strict=True))
        replace(self, files=listed)._store(directory)

    def add(self, directory: Path, names: Sequence[str]) -> None:
        """Write it beside the package's files with those of ``names`` added, or listed anew."""
        new = dict(zip(names, _entries([directory / name for name in names]), strict=True))
        replace(self, files=dict(sorted({**self.files, **new}.items())))._store(directory)

    def _store(self, directory: Path) -> None:
        self.check()
        (directory / MANIFEST).write_text(to_json(self, indent=1) + "\n")


_FEW_BYTES = 4 << 20
"""Bytes that one thread reads before others have started."""


def _entries(paths: Sequence[Path]) -> list[FileEntry]:
    """Sizes and digests of files, several at a time where several are large."""
    if sum(path.stat().st_size > _FEW_BYTES for path in paths) < 2:
        return [digest_of_file(path) for path in paths]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        return list(pool.map(digest_of_file, paths))


def digest_of_file(path: Path) -> FileEntry:
    """Size and SHA-256 of a file; raises OSError."""
    with path.open("rb") as file:
        return FileEntry(
            bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest()
        )


def read_manifest(directory: Path) -> Manifest:
    """Read and check a package: every file listed is there, inside it, and unchanged.

    Raises TilewrightError (``package-missing``, ``package-invalid``, ``package-damaged``).
    """
    manifest = _read(directory)
    _check_complete(manifest, directory)
    resolved = directory.resolve()
    paths = [_path_of(directory, resolved, name) for name in manifest.files]
    for name, path, entry in zip(manifest.files, paths, manifest.files.values(), strict=True):
        if path.stat().st_size != entry.bytes:
            raise refuse("package-damaged", f"file {name!r} has changed", str(directory))
    for (name, entry), on_disk in zip(manifest.files.items(), _entries(paths), strict=True):
        if on_disk != entry:
            raise refuse("package-damaged", f"file {name!r} has changed", str(directory))
    return manifest


def read_own(directory: Path) -> Manifest:
    """The manifest of a package that this process has just written: no file is read again."""
    manifest = _read(directory)
    _check_complete(manifest, directory)
    return manifest


def _check_complete(manifest: Manifest, directory: Path) -> None:
    """Refuse a manifest that does not list what is run."""
    model = manifest.open_model
    folders = {name.partition("/")[0] for name in manifest.files if "/" in name}
    if (model.file not in manifest.files) if model else (PROGRAM not in folders):
        what = "model" if model else "program"
        raise refuse("package-invalid", f"the manifest lists no {what}", str(directory))


def read_listed(directory: Path) -> dict[str, FileEntry]:
    """Return the files that a package's manifest lists, without a look at them."""
    return _read(directory).files


def _read(directory: Path) -> Manifest:
    path = directory / MANIFEST
    if not path.is_file():
        raise refuse(
            "package-missing", "no manifest.json: this is no package", str(directory),
            "make one with `tilewright compile`",
        )  # fmt: skip
    if path.stat().st_size > _MOST_MANIFEST_BYTES:
        raise refuse("package-invalid", "manifest.json is too large", str(directory))
    try:
        manifest = from_json(Manifest, path.read_bytes())
        manifest.check()
    except JsonError as error:
        raise refuse("package-invalid", str(error), str(path)) from error
    if manifest.format != FORMAT:
        raise refuse(
            "package-invalid", f"format {manifest.format}; this version reads {FORMAT}", str(path),
            "compile the model again",
        )  # fmt: skip
    return manifest


def _path_of(directory: Path, resolved: Path, name: str) -> Path:
    """A listed file, if it is there and inside the package, which is ``resolved``."""
    parts = PurePosixPath(name)
    path = directory / parts
    plain = len(name) <= LONGEST_NAME and name.isprintable() and parts.as_posix() == name
    if not plain or not parts.parts:
        reason = f"file {name[:80]!r} has a name that no package has"
        raise refuse("package-invalid", reason, str(directory))
    inside = not parts.is_absolute() and ".." not in parts.parts
    try:
        if not inside or path.resolve() != resolved / parts:
            reason = f"file {name!r} lies outside the package"
            raise refuse("package-invalid", reason, str(directory))
        exists = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:
        reason = f"file {name[:80]!r} cannot be looked at: {error}"
        raise refuse("package-invalid", reason, str(directory)) from error
    if not exists:
        raise refuse("package-damaged", f"file {name!r} is missing", str(directory))
    return path
