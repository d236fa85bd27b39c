"""Convolution by Winograd's method: transform a block of tiles, multiply, transform back.

Weights come transformed, or are transformed on their way into the products.
"""

from __future__ import annotations

from tilewright.codegen.c.source import Writer, plus
from tilewright.targets.cpu.instance import Instance
from tilewright.targets.cpu.primitives.ahead import next_weights
from tilewright.targets.cpu.primitives.block_products import products_text, write_first
from tilewright.targets.cpu.primitives.blocks import Block
from tilewright.targets.cpu.primitives.code import KernelCode, call
from tilewright.targets.cpu.primitives.transforms import input_text, output_text
from tilewright.targets.cpu.primitives.weight_transforms import transformed_products_text


def emit(instance: Instance, code: KernelCode, writer: Writer) -> None:
    """Write the calls: inputs at the first block of output channels, products, outputs."""
    block = Block.of(instance)
    x, w, s = block.x, block.w, block.scratch
    image, *place = instance.origin(x)
    with writer.block():
        name = code.function("winograd_input", input_text(block, code))
        line = call(name, [image, s.pointer, *place])
        write_first(instance, line, writer)
        text_of = transformed_products_text if block.plain else products_text
        products = code.function("winograd_products", text_of(block, code))
        now, later = w.offset(instance.dims), next_weights(instance, w)
        pointers = [plus(w.pointer, now), s.pointer, plus(w.pointer, later)]
        writer.line(call(products, pointers))
        output = code.function("winograd_output", output_text(block, code))
        arguments = [address.first(instance.dims) for address in block.outside]
        room = [
            f"{extent} - ({instance.output.index(axis, instance.dims, {})})"
            for axis, extent in enumerate(instance.output.shape[2:], 2)
        ]
        source = [image, plus(w.pointer, now), *place]
        writer.line(call(output, [s.pointer, *source, *arguments, *room]))
