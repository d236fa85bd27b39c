"""ResNet34 as an HLAL program of built-in blocks, with batch normalisation in the weights."""

from __future__ import annotations

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Channels and residual blocks of each stage."""

CLASSES = 1000


def resnet34() -> str:
    """The program's text: one call a layer, one declaration an array."""
    return _Network().text()


class _Network:
    def __init__(self) -> None:
        self.code = [".code"]
        self.weights = [".static_ro", "@tensor image, 1, 224, 224, 3, 1, 1, 224, 3"]
        self.values = [".static_rw"]
        self.count = 0
        name = self.convolution("image", (224, 3, 3), 64, 7, 2, 3, "_relu")
        pooled = self.value(56, 64)
        self.code.append(f"@block_fw_pool_max {pooled}, {name}, #3, #2, #1")
        name, extent, channels = pooled, 56, 64
        for outputs, blocks in STAGES:
            for block in range(blocks):
                stride = 2 if block == 0 and outputs > 64 else 1
                shape = (extent, channels, _segment(channels))
                first = self.convolution(name, shape, outputs, 3, stride, 1, "_relu")
                after = extent // stride
                second = self.convolution(
                    first, (after, outputs, _segment(outputs)), outputs, 3, 1, 1, ""
                )
                if stride == 2:
                    name = self.convolution(name, shape, outputs, 1, 2, 0, "")
                total, result = self.value(after, outputs), self.value(after, outputs)
                self.code.append(f"@block_add {total}, {second}, {name}")
                self.code.append(f"@block_fw_relu {result}, {total}")
                name, extent, channels = result, after, outputs
        mean = self.value(1, channels)
        self.code.append(f"@block_fw_pool_average {mean}, {name}, #7, #7, #0")
        self.code.append(f"@block_fw_fc scores, {mean}, classes, bias")
        self.weights.append(f"@filter classes, {CLASSES}, {channels}, 128, {channels}")
        self.weights.append(f"@tensor bias, {CLASSES}, {CLASSES}")
        self.values.append(f"@tensor scores, {CLASSES}, {CLASSES}")

    def text(self) -> str:
        return "\n".join([*self.code, *self.weights, *self.values, ""])

    def value(self, extent: int, channels: int) -> str:
        """Declare a tensor between layers."""
        self.count += 1
        name, cut = f"v{self.count}", f"1, 1, {extent}, {_segment(channels)}"
        self.values.append(f"@tensor {name}, 1, {extent}, {extent}, {channels}, {cut}")
        return name

    def convolution(
        self, name: str, shape: tuple[int, int, int], outputs: int, kernel: int, stride: int,
        pad: int, relu: str,
    ) -> str:  # fmt: skip
        """A convolution of ``shape`` (extent, channels, their segment) with its weights."""
        extent, channels, segment = shape
        result = self.value(extent // stride, outputs)
        weight, bias = f"w{self.count}", f"b{self.count}"
        self.code.append(
            f"@block_fw_conv{relu} {result}, {name}, {weight}, {bias}, #{stride}, #{pad}"
        )
        cut = f"{_segment(outputs)}, 1, {kernel}, {segment}"
        self.weights.append(f"@filter {weight}, {outputs}, {kernel}, {kernel}, {channels}, {cut}")
        self.weights.append(f"@tensor {bias}, {outputs}, {outputs}")
        return result


def _segment(channels: int) -> int:
    return 32 if channels == 64 else 64
