"""The tile dialect: a kernel as loops over tiles, buffers, asynchronous moves and primitives.

    tile.program "conv1" on "m" [n 1, co 64, oh 56, ow 56 | ci 64, kh 3, kw 3] {
      %x = tile.tensor "x" {role = "input"} : tensor<1x64x56x56x!tilewright.fixed<16, 8>>
      %w = tile.tensor "w" {role = "weight"} : tensor<64x64x3x3x!tilewright.fixed<16, 12>>
      %y = tile.tensor "y" {role = "output"} : tensor<1x64x56x56x!tilewright.fixed<16, 8>>
      tile.loop "co" 0 to 64 step 16 {
        %bw = tile.buffer "w" of %w [co, ci, kh, kw] in "sb" slots 2
        tile.move %w to %bw on "load"
        tile.loop "oh" 0 to 56 step 4 {
          %bx = tile.buffer "x" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 2
          tile.move %x to %bx on "load" waits ["free x"]
          %by = tile.buffer "y" of %y [n, co, oh, ow] in "nbout" slots 1
          tile.compute "convolution" on "compute" to %by waits ["ready x"] {
            %0 = tile.stage "conv"(%bx [n, ci, oh + kh - 1, ow + kw - 1], %bw [co, ci, kh, kw])
                 to [n, co, oh, ow] : tensor<...>
            %1 = tile.stage "relu"(%0 [n, co, oh, ow]) to [n, co, oh, ow] : tensor<...>
          }
          tile.move %by to %y on "store" waits ["ready y"]
        }
      }
    }

**Dims are bound by the enclosing loops.** A loop over dim ``oh`` gives ``oh`` the interval
``[i, min(i + step, upper))`` within its body; nested loops over one dim refine it; a dim without a
loop runs through its whole extent. A *window* (one affine expression per tensor axis) seen in
these intervals is a box of the tensor: so where a tile lies, where the next one will lie, and how
an edge tile shrinks can be read off one operation.

**A buffer is of a tensor, or of a buffer in another memory.** It holds the box of its window for
one iteration of the loop in which it stands; inner loops address parts of it, and so do buffers
that are of it: a path from main memory to a primitive's memory is a chain of buffers, with a move
between each two. Windows are always over the tensor. What of the box lies outside the tensor is
padding and takes no part in moves. With two slots, successive iterations take turns.

**A move may gather windows** (img2col). The buffer after it has an axis for each dim that the
image depends on, and one element for each point: a position's window is a row, padding zeros::

    %bx = tile.buffer "x" of %x1 [n, oh, ow, kh, kw, ci] gathers [n, ci, oh + kh - 1, ow + kw - 1]
          as tensor<1x56x56x3x3x64x...> in "l0a" slots 2
    tile.move %x1 to %bx on "mte1" with "img2col"

From there on its windows are over these axes, and so are those of the stage that reads it.

**A move may convert results.** The buffer that a compute writes then has the type of its sums, and
those further out that of the tensor, to which the store rounds::

    %by = tile.buffer "y" of %y1 [n, co, oh, ow] as tensor<1x64x56x56xf32> in "l0c" slots 1
    tile.move %by to %y1 on "fix" with "convert"

**A domain gives dims of its own to an earlier stage.** A compute may read what another one makes,
an *internal* tensor, which lies in no memory but in buffers. The dims of the earlier compute have
names of their own, and a ``tile.domain`` around it binds them to what the later one reads::

    %mid = tile.buffer "t" of %t [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 1
    tile.domain [oh_1 = oh + kh - 1, ow_1 = ow + kw - 1] {
      %bx = tile.buffer "x" of %x [n, ci_1, oh_1 + kh_1 - 1, ow_1 + kw_1 - 1] in "nbin" slots 2
      tile.move %x to %bx on "load"
      tile.compute "convolution" on "compute" to %mid dims {ci = "ci_1", oh = "oh_1", ...} {
        %0 = tile.stage "conv"(%bx [...], %w1 [...]) to [n, ci, oh_1, ow_1] : tensor<...>
      }
    }
    tile.compute "convolution" on "compute" to %by { ... %mid ... }

Here ``oh_1`` runs through the rows that the tile ``oh`` of the later stage reads, halo included.

**A circular buffer keeps what two tiles read.** Of a ``sliding`` dim, a domain runs through what
the run before, of the same run of the loop around, has not: the rest has stayed in the buffer, in
which rows turn along the ``circular`` axis::

    %mid = tile.buffer "t" of %t [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 2 circular 2
    tile.domain [oh_1 = oh + kh - 1, ow_1 = ow + kw - 1] sliding ["oh_1"] {

Row ``i`` of the visits of one run lies at place ``i`` modulo the rows of ``shape``, counted on from
run to run. There are as many as ``slots`` visits in a row need, so that waits mean what they mean
for other buffers.

**Waits** say what must have happened before an operation of another engine starts:

- ``ready NAME``: the buffer holds what was last moved or computed into it, in program order.
- ``free NAME``, on an operation that fills the buffer NAME: the uses of the visit of NAME that had
  the same slot before (``slots`` visits ago) are done. Where parts are stored, both waits are for
  the same part. On any other operation: all uses of NAME
  before it in program order are done (it reuses NAME's memory).

- ``ready rows of NAME`` and ``free rows of NAME``: the same for the rows of NAME that an
  instruction touches, where commands are several instructions (``synchronisation.grain``). Such a
  wait is for no other buffer, and of no other than its own command.

Operations of one engine run in program order, one after the other, and need no waits.

**Signals** say the same in terms of what a machine has, where its engines signal one another
(``assign-events`` makes them of waits, which are then gone)::

    tile.signal "compute" to "load" ids [0]
    tile.signal "compute" to "load" ids [1]
    tile.loop "oh" 0 to 56 step 4 {
      %bx = tile.buffer "x" of %x [n, ci, oh + kh - 1, ow + kw - 1] in "nbin" slots 2
      tile.wait "compute" to "load" ids [0, 1] of %bx
      tile.move %x to %bx on "load"
      tile.signal "load" to "compute" ids [0, 1] of %bx
      tile.wait "load" to "compute" ids [0, 1] of %bx
      tile.compute "convolution" on "compute" to %by { ... }
      tile.signal "compute" to "load" ids [0, 1] of %bx
    }
    tile.wait "compute" to "load" ids [0]
    tile.wait "compute" to "load" ids [1]

``tile.signal A to B`` is given to engine A: what A was given before is done then. ``tile.wait A to
B`` is given to B, and takes a signal of that pair and id before B goes on. The ids of successive
visits of the buffer after ``of`` take turns. ``tile.barrier`` is given to all engines. What an id
is, a flag, a reply word or a queue of tokens, is the machine's (``machine.synchronisation``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from tilewright.ir import Block, Builtin, Context, Dialect, Operation, SSAValue
from tilewright.ir.types import TYPES
from tilewright.planning.domain import Affine, substitute
from tilewright.tile.attributes import BufferType, WindowAttr
from tilewright.tile.operations import (
    BarrierOp,
    BufferOp,
    ComputeOp,
    DomainOp,
    LoopOp,
    MoveOp,
    ProgramOp,
    Scope,
    SignalOp,
    StageOp,
    TensorOp,
    WaitOp,
)

TILE = Dialect(
    "tile",
    [
        *(ProgramOp, TensorOp, BufferOp, MoveOp, ComputeOp, StageOp, LoopOp, DomainOp),
        *(SignalOp, WaitOp, BarrierOp),
    ],
    [WindowAttr, BufferType],
)
"""The dialect, for a context."""


def context() -> Context:
    """A context that reads tile programs."""
    result = Context()
    load_into(result)
    return result


def load_into(target: Context) -> None:
    """Load what tile programs are made of into a context."""
    loaded = {dialect.name for dialect in target.loaded_dialects}
    for dialect in (Builtin, TYPES, TILE):
        if dialect.name not in loaded:
            target.load_dialect(dialect)


def programs_of(module: Operation) -> list[ProgramOp]:
    """The programs in a module, in order."""
    if isinstance(module, ProgramOp):
        return [module]
    return [
        op
        for region in module.regions
        for block in region.blocks
        for op in block.ops
        if isinstance(op, ProgramOp)
    ]


def program_of(op: Operation | None) -> ProgramOp | None:
    """The program around an operation."""
    while op is not None and not isinstance(op, ProgramOp):
        op = op.parent_op()
    return op


def enclosing_loops(op: Operation | None) -> list[LoopOp]:
    """The loops around an operation, outermost first."""
    return [scope for scope in enclosing_scopes(op) if isinstance(scope, LoopOp)]


def shared_loops(program: ProgramOp) -> list[LoopOp]:
    """The loops whose iterations cores share, outermost first."""
    count = 0 if program.shared is None else len(program.shared.data.split())
    loops = (op for op in program.walk() if isinstance(op, LoopOp))
    return list(islice(loops, count))


def part_block(program: ProgramOp) -> Block:
    """The block that a core runs for each of its parts of the result."""
    shared = shared_loops(program)
    return shared[-1].body.block if shared else program.body.block


def own_loops(op: Operation) -> list[LoopOp]:
    """The loops around an operation that a core runs for one part, outermost first."""
    program = program_of(op)
    shared = [] if program is None else shared_loops(program)
    return [loop for loop in enclosing_loops(op) if loop not in shared]


def enclosing_scopes(op: Operation | None) -> list[Scope]:
    """The loops and domains around an operation, outermost first."""
    scopes: list[Scope] = []
    while op is not None:
        op = op.parent_op()
        if isinstance(op, (LoopOp, DomainOp)):
            scopes.append(op)
    return scopes[::-1]


def unbound(axes: Sequence[Affine], op: Operation | None) -> tuple[Affine, ...]:
    """Expressions over the dims around ``op``, with those that domains bind replaced by what they
    are bound to."""
    for scope in reversed(enclosing_scopes(op)):
        if isinstance(scope, DomainOp):
            axes = [substitute(axis, scope.bound) for axis in axes]
    return tuple(axes)


def all_dims(dims: Iterable[str], op: Operation | None) -> frozenset[str]:
    """Some dims around ``op``, with those to which domains bind them."""
    names = set(dims)
    for scope in reversed(enclosing_scopes(op)):
        if isinstance(scope, DomainOp):
            bound = [axis for dim, axis in scope.bound.items() if dim in names]
            names |= {name for axis in bound for name in axis.dims}
    return frozenset(names)


def buffer_of(value: SSAValue) -> BufferOp | None:
    """The buffer that a value names, or None for a tensor or a stage's value."""
    return value.owner if isinstance(value.owner, BufferOp) else None


def scopes_of(op: Operation, dims: Iterable[str]) -> list[Scope]:
    """The loops and domains around an operation that the intervals of some dims there need,
    outermost first."""
    wanted, scopes = set(dims), list[Scope]()
    for scope in reversed(enclosing_scopes(op)):
        if isinstance(scope, LoopOp) and scope.dim.data in wanted:
            scopes.append(scope)
        elif isinstance(scope, DomainOp) and wanted.intersection(scope.bound):
            scopes.append(scope)
            wanted |= {name for axis in scope.bound.values() for name in axis.dims}
    return scopes[::-1]


def windows_of(stage: StageOp) -> Sequence[WindowAttr]:
    """The windows of a stage: its inputs', then its result's."""
    return stage.windows.data
