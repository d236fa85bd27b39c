"""LSTM cells over a sequence, and the gradients of what their gates read.

Gates are in the order i, f, g, o: pre[t] = w x[t] + u h[t] + b; i, f and o are sigmoids and g is
the tangent of pre; c[t + 1] = f c[t] + i g and h[t + 1] = o tanh(c[t + 1]). Sequences are
T x N x 1 x (features), of T steps and N images; h and c have a step more, the state before the
first. These are the blocks of HLAL's library (thesis, section 4.4).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.integrations.dlplib.descriptors import FilterDescriptor, NumericType, fixed16
from tilewright.integrations.dlplib.handle import Handle, Operand, Ran, checked
from tilewright.integrations.dlplib.network import OperatorNetwork
from tilewright.integrations.dlplib.operators.convolution import activated, layer_operands
from tilewright.ir import SSAValue
from tilewright.ir.types import shape_of


def lstm_forward(
    handle: Handle,
    x: Operand,
    w: Operand,
    u: Operand,
    bias: Operand,
    h0: Operand,
    c0: Operand,
    h: Operand,
    c: Operand,
    gates: Operand,
) -> Ran:
    """h, c of (T + 1) x N x 1 x H and gates of T x N x 1 x 4H from x and a state 1 x N x 1 x H.

    w is 4H x I and u 4H x H (missing dims 1); the bias is 1 x 4H of ``bias_type(x, w)``.
    """
    _ = layer_operands(x, w, bias)
    operands = {"x": x, "w": w, "u": u, "bias": bias, "h0": h0, "c0": c0}
    checked(u.descriptor, FilterDescriptor)
    steps, images, _, ins = x.descriptor.get().dims
    hidden = h0.descriptor.get().dims[3]
    of_h, of_c, of_gates = (descriptor.descriptor.get().type for descriptor in (h, c, gates))

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        outer = _matrix(net, "w", 4 * hidden, ins)
        inner = _matrix(net, "u", 4 * hidden, hidden)
        rows = net.reshape(net.values["x"], (steps * images, ins))
        added = net.reshape(net.operand("bias", (1, 4 * hidden, 1, 1)), (4 * hidden,))
        products = net.emit("matmul", rows, outer, added, transpose_b=True)
        hs = [net.to(_state(net, "h0", images, hidden), of_h)]
        cs = [net.to(_state(net, "c0", images, hidden), of_c)]
        gate_rows: list[SSAValue] = []
        for step in range(steps):
            pre = net.emit("matmul", hs[-1], inner, transpose_b=True)
            pre = net.emit("add", pre, net.slice(products, 0, step * images, (step + 1) * images))
            i, f, g, o = _split(net, pre, hidden)
            i, f, o = (activated(net, descriptor, "sigmoid", of_gates) for descriptor in (i, f, o))
            g = activated(net, g, "tanh", of_gates)
            kept = net.to(net.emit("mul", f, cs[-1]), of_c)
            cs.append(net.to(net.sum("add", kept, net.to(net.emit("mul", i, g), of_c)), of_c))
            tangent = activated(net, cs[-1], "tanh", of_gates)
            hs.append(net.to(net.emit("mul", o, tangent), of_h))
            gate_rows.append(net.emit("concat", i, f, g, o, axis=1))
        return {
            "h": _stacked(net, hs, (steps + 1, images, 1, hidden)),
            "c": _stacked(net, cs, (steps + 1, images, 1, hidden)),
            "gates": _stacked(net, gate_rows, (steps, images, 1, 4 * hidden)),
        }

    outputs = {"h": h, "c": c, "gates": gates}
    return handle.run("lstm_forward", None, operands, outputs, draw, ("w", "u", "bias"))


def lstm_backward(
    handle: Handle, u: Operand, c: Operand, gates: Operand, dh: Operand, dgates: Operand
) -> Ran:
    """dgates, the gradients of pre, from dh, those of h[1:] from outside the cell.

    Those of w, u, the bias and x are then what ``fully_connected_backward_filter``,
    ``bias_backward`` and ``fully_connected_backward_data`` make of dgates, read as T*N images.
    """
    checked(u.descriptor, FilterDescriptor)
    steps, images, _, hidden = dh.descriptor.get().dims
    kind = dh.descriptor.get().type

    def draw(net: OperatorNetwork) -> Mapping[str, SSAValue]:
        weights = _matrix(net, "u", 4 * hidden, hidden)
        _ = net.operand("c", (steps + 1, images, 1, hidden))
        _ = net.operand("gates", (steps, images, 1, 4 * hidden))
        slopes = _slopes(net, steps * images, hidden)
        gradients = net.reshape(net.values["dh"], (steps * images, hidden))
        gate_rows: list[SSAValue] = []
        kept: SSAValue | None = None
        for step in reversed(range(steps)):
            of = {
                name: net.slice(value, 0, step * images, (step + 1) * images)
                for name, value in {**slopes, "dh": gradients}.items()
            }
            d = of["dh"]
            if gate_rows:
                d = net.to(net.sum("add", net.emit("matmul", gate_rows[-1], weights), d), kind)
            dc = net.to(net.emit("mul", d, of["c"]), kind)
            if kept is not None:
                dc = net.to(net.sum("add", dc, kept), kind)
            kept = net.to(net.emit("mul", dc, of["kept"]), kind) if step else None
            parts = [net.to(net.emit("mul", dc, of[name]), kind) for name in "ifg"]
            parts.append(net.to(net.emit("mul", d, of["o"]), kind))
            gate_rows.append(net.emit("concat", *parts, axis=1))
        return {"dgates": _stacked(net, gate_rows[::-1], (steps, images, 1, 4 * hidden))}

    operands = {"u": u, "c": c, "gates": gates, "dh": dh}
    return handle.run("lstm_backward", None, operands, {"dgates": dgates}, draw, ("u",))


def _matrix(net: OperatorNetwork, name: str, rows: int, columns: int) -> SSAValue:
    """Weights of rows x columns x 1 x 1 as a matrix."""
    return net.reshape(net.operand(name, (rows, columns, 1, 1)), (rows, columns))


def _state(net: OperatorNetwork, name: str, images: int, hidden: int) -> SSAValue:
    """A state of 1 x images x 1 x hidden as a matrix."""
    return net.reshape(net.operand(name, (1, images, 1, hidden)), (images, hidden))


def _slopes(net: OperatorNetwork, rows: int, hidden: int) -> dict[str, SSAValue]:
    """Emit the slopes of all steps at once, [rows, hidden]: of c by h's gradient (``c``), of pre's
    gates by theirs or c's, of c by the next c (``kept``)."""
    gates = net.reshape(net.values["gates"], (rows, 4 * hidden))
    states = net.values["c"]
    images = shape_of(states)[1]
    states = net.reshape(states, (rows + images, hidden))
    before, after = net.slice(states, 0, 0, rows), net.slice(states, 0, images, rows + images)
    of_gates, of_c = net.type_of(gates), net.type_of(states)
    tangent = activated(net, after, "tanh", of_gates)
    i, f, g, o = _split(net, gates, hidden)
    quarter, kind = (fixed16(16), fixed16(14)) if net.fixed else (of_gates, of_gates)
    smaller = fixed16(min(of_c.fraction + 2, 30)) if net.fixed else of_c

    def sigmoid(value: SSAValue) -> SSAValue:
        """y - y*y, a quarter at most."""
        square = net.to(net.emit("mul", value, value), kind)
        return net.to(net.sum("sub", value, square), quarter)

    def tangents(value: SSAValue) -> SSAValue:
        """Emit 1 - y*y, the slope of a tanh."""
        square = net.to(net.emit("mul", value, value), kind)
        return net.to(net.sum("sub", _ones(net, value, kind), square), kind)

    def product(a: SSAValue, b: SSAValue, type: NumericType) -> SSAValue:
        return net.to(net.emit("mul", a, b), type)

    return {
        "c": product(o, tangents(tangent), kind),
        "i": product(g, sigmoid(i), quarter),
        "f": product(before, sigmoid(f), smaller),
        "g": product(i, tangents(g), kind),
        "o": product(tangent, sigmoid(o), quarter),
        "kept": f,
    }


def _ones(net: OperatorNetwork, like: SSAValue, type: NumericType) -> SSAValue:
    return net.constant(np.ones(shape_of(like), np.float32), type)


def _split(net: OperatorNetwork, value: SSAValue, hidden: int) -> list[SSAValue]:
    """The four gates of rows of them."""
    return [net.slice(value, 1, at * hidden, (at + 1) * hidden) for at in range(4)]


def _stacked(net: OperatorNetwork, rows: list[SSAValue], shape: tuple[int, ...]) -> SSAValue:
    return net.reshape(rows[0] if len(rows) == 1 else net.emit("concat", *rows, axis=0), shape)
