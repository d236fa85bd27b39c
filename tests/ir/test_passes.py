"""The runner of passes: what it verifies, and that a broken module is told of by its pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.graph.passes.pass_networks import Builder, accelerator, context
from tests.graph.passes.pipelines import prepare_pipeline
from tilewright.errors import TilewrightError
from tilewright.graph.dialect import network_of
from tilewright.ir import Context, ModuleOp, ModulePass, Operation, StringAttr, to_text
from tilewright.ir.passes import PassEntry, PassRunner, made_of
from tilewright.ir.types import tensor

Edit = Callable[[list[Operation]], Any]


def network() -> tuple[Builder, ModuleOp]:
    net = Builder(3, x=(1, 4, 6, 6))
    x = net.op("relu", net.inputs["x"])
    return net, net.finish(net.op("sigmoid", net.op("relu", x)))


def operations(module: ModuleOp) -> list[Operation]:
    return list(network_of(module).block.ops)


def other_type(ops: list[Operation]) -> None:
    ops[0].results[0]._type = tensor((1, 4, 6, 7))  # pyright: ignore


EDITS: dict[str, Edit] = {
    "a type": other_type,
    "a property": lambda ops: ops[0].properties.update(made_up=StringAttr("x")),
    "an attribute": lambda ops: ops[0].attributes.update(made_up=StringAttr("x")),
    "a property less": lambda ops: network_of_operation(ops[0]).properties.pop("output_names"),
    "an operand": lambda ops: ops[2].operands.__setitem__(0, ops[2].results[0]),
    "an operation less": lambda ops: ops[-1].detach(),
    "another order": lambda ops: network_of_operation(ops[0]).body.block.add_op(detached(ops[0])),
}


def network_of_operation(op: Operation) -> Any:
    return op.parent_op()


def detached(op: Operation) -> Operation:
    op.detach()
    return op


@dataclass(frozen=True)
class Change(ModulePass):
    """Applies an edit, or none."""

    name = "change"
    edit: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.edit:
            EDITS[self.edit](operations(op))


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_every_change_is_seen(edit: Edit) -> None:
    _, module = network()
    before = made_of(module)
    assert made_of(module) == before
    edit(operations(module))
    assert made_of(module) != before


@pytest.mark.parametrize("edit", ["a type", "an attribute", "a property less"])
def test_what_a_pass_breaks_is_told_with_its_name(edit: str) -> None:
    net, module = network()
    runner = PassRunner(context(accelerator(), net.store))
    nothing = PassEntry(Change(), "changes nothing")
    runner.run(module, [nothing, nothing])
    with pytest.raises(TilewrightError, match=r"pass-failed.*change"):
        runner.run(module, [nothing, PassEntry(Change(edit), "breaks the network")])


def test_modules_are_verified_when_they_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    net, module = network()
    verify, seen = ModuleOp.verify, list[str]()

    def counted(self: ModuleOp) -> None:
        seen.append(to_text(self))
        verify(self)

    monkeypatch.setattr(ModuleOp, "verify", counted)
    texts = [to_text(module)]
    runner = PassRunner(context(accelerator(), net.store))
    for entry in prepare_pipeline(accelerator()):
        runner.run(module, [entry])
        texts.append(to_text(module))
    assert set(texts[1:]) <= set(seen)
    assert len(seen) < len(texts) - 1, "some passes change nothing here"


def test_small_modules_are_verified_once_after_all_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    net, module = network()
    verify, verified = ModuleOp.verify, list[ModuleOp]()

    def counted(self: ModuleOp) -> None:
        verified.append(self)
        verify(self)

    monkeypatch.setattr(ModuleOp, "verify", counted)
    nothing = [PassEntry(Change(), "changes nothing")] * 2
    breaks = [PassEntry(Change("a type"), "breaks the network"), *nothing]
    runner = PassRunner(context(accelerator(), net.store))
    runner.run(module, nothing, "k0-", verify_each=False)
    assert len(verified) == 1
    with pytest.raises(TilewrightError, match=r"pass-failed.*k0.*--dump"):
        runner.run(module, breaks, "k0-", verify_each=False)
    net, module = network()
    runner = PassRunner(context(accelerator(), net.store), tmp_path)
    with pytest.raises(TilewrightError, match=r"pass-failed.*change"):
        runner.run(module, breaks, "k0-", verify_each=False)
