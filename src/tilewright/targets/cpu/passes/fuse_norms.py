"""fuse-norms: a normalisation of rows joins the product whose rows it reads."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.dialect import KernelOp, WeightOp, network_of
from tilewright.graph.operations import Operation
from tilewright.graph.passes.constraints import candidate, serving
from tilewright.graph.passes.editing import compiler, erase, only_user
from tilewright.graph.passes.enclosing import copied, enclose_with
from tilewright.graph.passes.reanchoring import anchor_operands, plain_kernel, with_layouts
from tilewright.ir import Context, ModuleOp, ModulePass, f32
from tilewright.ir.types import tensor_type
from tilewright.machine import Machine, Primitive
from tilewright.machine.fusions import fusion_of
from tilewright.planning.canonical import canonical
from tilewright.planning.planners.caches import in_place_planning
from tilewright.targets.cpu.planning.behind_cost import BehindCost
from tilewright.targets.cpu.planning.capabilities import own_of


@dataclass(frozen=True)
class FuseNorms(ModulePass):
    """Normalise rows of a product while they lie in a near cache.

    Before::

        %1 = graph.kernel "k0" (%x, %w, %b, %r) {
          %2 = graph.matmul %x, %w, %b ...
          %3 = graph.add %2, %r ...
        %4 = graph.kernel "k1" (%1, %g, %s) {
          %5 = graph.layer_norm %1, %g, %s {epsilon = 1e-12} ...

    After::

        %4 = graph.kernel "k0" (%x, %w, %b, %r, %g, %s) {
          %2 = graph.matmul %x, %w, %b ...
          %3 = graph.add %2, %r ...
          %5 = graph.layer_norm %3, %g, %s {epsilon = 1e-12} ...

    The tiles write the sums to the place of the result; when a block of rows is complete, its rows
    are normalised there, by the same instructions in the same order as in a kernel of their own.
    So the sums have no place in memory beside the result, and results are the same, bit for bit.
    Cores then divide rows, as no core may wait for another's part of a row: with few rows that
    costs more than it saves, as each core reads all weights. So, where the machine has the pattern,
    the planner is asked, with all cores; where there is nothing in it, a kernel less is taken.
    ``always`` joins whatever can be, for comparisons.

    It can be where nothing else reads the sums (networks that normalise before a product, as ViT,
    read them again, so they are kept for both), all numbers behind the product are float32, and
    the product's weights are constants, for a primitive that lists the normalisation
    (``CpuPrimitive.rows``).
    It comes after choose-methods, as products in pieces have kernels of another kind.
    """

    name = "fuse-norms"
    always: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the module in place."""
        machine = compiler(ctx).machine
        known: dict[object, bool] = {}
        for kernel in [step for step in network_of(op).block.ops if isinstance(step, KernelOp)]:
            first = _front(kernel)
            if first is None:
                continue
            primitive = rows_primitive(first, kernel, machine)
            if isinstance(primitive, str):
                continue
            trial = _joined(first, kernel)
            key, _ = canonical(plain_kernel(trial))
            if key not in known:
                known[key] = self.always or _pays(trial, first, kernel, machine, primitive)
            if known[key]:
                trial.result.name_hint = kernel.result.name_hint
                kernel.result.replace_all_uses_with(trial.result)
                erase(kernel)
                erase(first)
            else:
                erase(trial)


def _front(kernel: KernelOp) -> KernelOp | None:
    """The kernel whose rows a normalisation's kernel reads, if nothing else does."""
    if kernel.on_host or len(kernel.operations) != 1 or kernel.inputs[0] in kernel.inputs[1:]:
        return None
    (rows, *_) = anchor_operands(kernel)
    first = rows.owner
    if not isinstance(first, KernelOp) or first.on_host or only_user(rows) is not kernel:
        return None
    return first


def rows_primitive(first: KernelOp, kernel: KernelOp, machine: Machine) -> Primitive | str:
    """Return the primitive that computes the first kernel's anchor and normalises rows behind its
    tiles; or why nothing does."""
    last = first.operations[-1].result
    if any(tensor_type(value).element_type != f32 for value in (*kernel.inputs, last)):
        return "not all numbers are float32"
    anchor, norm = first.operations[0], kernel.operations[0]
    if not isinstance(anchor, Operation) or not isinstance(norm, Operation):
        return "they are no operations"
    if anchor.operation != "matmul":
        return f"rows of {anchor.operation} are not normalised behind its tiles"
    _, weight, *_ = anchor_operands(first)
    primitive = next(iter(serving(candidate(anchor), machine)), None)
    if primitive is None or not isinstance(weight.owner, WeightOp):
        return "the product's weights are computed"
    if norm.operation not in own_of(primitive).rows:
        return f"{primitive.name} of {machine.name} has no {norm.operation} behind its tiles"
    return primitive


def _joined(first: KernelOp, kernel: KernelOp) -> KernelOp:
    """Both kernels' operations as one kernel before the second, under the first's name."""
    chain = copied(first.operations, first, {}, kernel)
    chain += copied(kernel.operations, kernel, {first.result: chain[-1].result}, kernel)
    return enclose_with(chain, first.properties)


def _pays(
    trial: KernelOp, first: KernelOp, kernel: KernelOp, machine: Machine, primitive: Primitive
) -> bool:
    """Return True if one kernel is predicted to take no more time than both on all cores, or than
    the part of it that the machine's pattern says."""
    anchors = [member.operations[0] for member in (first, kernel)]
    names = [anchor.operation for anchor in anchors if isinstance(anchor, Operation)]
    fusion = fusion_of(machine, *names)
    if fusion is None:
        return False
    joined, product = (
        with_layouts(plain_kernel(of_joined), machine, primitive) for of_joined in (trial, first)
    )
    norm = plain_kernel(kernel)
    own = in_place_planning(machine)
    of_joined, two, rows = (own.plan(described, machine) for described in (joined, product, norm))
    apart = own.slowest(product, machine, two.schedule, two.predicted_cycles)
    # Priced alike in both forms: planned alone, it is charged for sums that a cache still holds.
    apart += own.slowest(norm, machine, rows.schedule, BehindCost(joined, machine).apart())
    slowest = own.slowest(joined, machine, of_joined.schedule, of_joined.predicted_cycles)
    return slowest <= fusion.gain * apart
