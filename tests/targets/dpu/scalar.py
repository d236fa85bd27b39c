"""The core once more, one byte at a time, written from the specification and not from the code.

A bank is a list of bytes; every address is worked out where it is used, in Python integers, and
every value as a fraction.
"""

from fractions import Fraction
from math import floor

DEPTH = 2048
CONV_ACTIVATIONS = {0: "none", 1: "relu", 3: "leaky", 4: "relu6"}


def half_up(value):
    return max(-128, min(127, floor(value + Fraction(1, 2))))


def activation(value, code):
    name = CONV_ACTIVATIONS[code]
    if name == "relu":
        return max(value, Fraction(0))
    if name == "leaky":
        return value if value >= 0 else value * Fraction(26, 256)
    if name == "relu6":
        return max(Fraction(0), min(value, Fraction(96)))
    return value


def signed(byte):
    return byte - 256 if byte > 127 else byte


def power(shift):
    return Fraction(2) ** shift


class Scalar:
    def __init__(self, core, banks, registers):
        """banks: [banks, DEPTH * channels] numbers; registers: register -> list."""
        self.core = core
        self.size = core.channels
        self.banks = banks
        self.registers = registers
        self.weights = core.groups * core.rows
        self.depthwise = self.weights + core.channels
        self.bias = self.depthwise + 1

    def read(self, bank, row, channel):
        """A channel of a pixel that begins at a row: channels go on in the rows behind it."""
        row = (row + channel // self.size) % DEPTH
        return int(self.banks[bank, row * self.size + channel % self.size])

    def write(self, bank, row, channel, value):
        row = (row + channel // self.size) % DEPTH
        self.banks[bank, row * self.size + channel % self.size] = value

    def step(self, mnemonic, fields, operands=()):
        getattr(self, mnemonic)(fields, *([operands] if operands else []))

    def load(self, f):
        memory = self.registers[f["reg_id"]]
        channels, jump, runs = f["channel"], f["jump_read"], f["length"]
        whole = (channels + self.size - 1) // self.size * self.size
        for run in range(runs):
            for byte in range(channels):
                if f.get("broadcast") == 7:
                    value = signed(f["const_value"])
                else:
                    value = memory[f["ddr_addr"] + run * jump + byte]
                    if jump <= channels <= 2 * self.size:
                        later = run - (runs - f["pad_idx"])
                        if byte < f["pad_start"] - run * jump:
                            value = 0
                        if later >= 0 and byte >= whole - f["pad_end"] - jump * later:
                            value = 0
                self.write(f["bank_id"], f["bank_addr"] + run * f["jump_write"], byte, value)

    def save(self, f):
        memory = self.registers[f["reg_id"]]
        for run in range(f["length"]):
            for byte in range(f["channel"]):
                row = f["bank_addr"] + run * f["jump_read"]
                value = self.read(f["bank_id"], row, byte)
                if f.get("const_en"):
                    value = signed(f["const_value"])
                memory[f["ddr_addr"] + run * f["jump_write"] + byte] = value

    def pixel(self, f, row, column, channel, padding):
        """A channel of an element of the window, padding included."""
        height = (f["valid_pixel_parallel"] - 1) * f["stride_h"] + f["kernel_h"]
        width = (f["length"] - 1) * f["stride_w"] + f["kernel_w"]
        if channel >= f["channel_group"] * self.size - f.get("channel_offset", 0):
            return 0
        if row < f["pad_top"] or column < f["pad_left"]:
            return padding
        if (
            row >= height - (f["kernel_h"] - 1 - f["pad_bottom"])
            and f["pad_bottom"] < f["kernel_h"]
        ):
            return padding
        if (
            column >= width - (f["kernel_w"] - 1 - f["pad_right"])
            and f["pad_right"] < f["kernel_w"]
        ):
            return padding
        group = f["bank_id_in"] // self.core.rows * self.core.rows
        bank, offset, turn = f["bank_id_in"], f["stride_offset_in"], 0
        for _ in range(row):
            offset += 1
            if offset == f["stride_h"]:
                offset, bank = 0, bank + 1
                if bank == group + self.core.rows:
                    bank, turn = group, turn + 1
        base = f[("bank_addr_in", "bank_addr_in_1", "bank_addr_in_2", "bank_addr_in_3")[turn]]
        return self.read(
            bank, base + offset * f["jump_read_endl"] + column * f["jump_read"], channel
        )

    def put(self, f, results):
        """Write (row, column, channel) -> value, row by row as the hardware does."""
        group = f["bank_id_out"] // self.core.rows * self.core.rows
        for (row, column, channel), value in sorted(results.items()):
            line = row + f["stride_offset_out"]
            bank = f["bank_id_out"] - group + line // f["stride_out"]
            address = f["bank_addr_out"] + column * f["jump_write"]
            address += line % f["stride_out"] * f["jump_write_endl"]
            address += bank // self.core.rows * f["stride_out"] * f["jump_write_endl"]
            self.write(group + bank % self.core.rows, address, channel, value)

    def over(self, f, channels):
        return [
            (row, column, channel)
            for row in range(f["valid_pixel_parallel"])
            for column in range(f["length"])
            for channel in range(channels)
        ]

    def taps(self, f, row, column):
        return [
            (i, j, row * f["stride_h"] + i, column * f["stride_w"] + j)
            for i in range(f["kernel_h"])
            for j in range(f["kernel_w"])
        ]

    def conv(self, f):
        groups = f["channel_group"]
        results = {}
        for row, column, out in self.over(f, self.size):
            total = 0
            for i, j, y, x in self.taps(f, row, column):
                place = f["bank_addr_weights"] + (i * f["kernel_w"] + j) * groups
                for channel in range(groups * self.size):
                    weight = self.read(self.weights + out, place, channel)
                    total += self.pixel(f, y, x, channel, 0) * weight
            total = (
                2 * total + self.read(self.bias, f["bank_addr_bias"], out) * 2 ** f["shift_bias"]
            )
            value = activation(Fraction(total) / power(f["shift_cut"] + 1), f["act_type"])
            results[row, column, out] = half_up(value)
        self.put(f, results)

    def dwconv(self, f, bias=True):
        step = f.get("jump_read_weights", f["channel_group"])
        results = {}
        for row, column, channel in self.over(f, f["channel_group"] * self.size):
            total = 0
            for i, j, y, x in self.taps(f, row, column):
                place = f["bank_addr_weights"] + (i * f["kernel_w"] + j) * step
                weight = self.read(self.depthwise, place, channel)
                total += self.pixel(f, y, x, channel, 0) * weight
            if bias:
                more = self.read(self.bias, f["bank_addr_bias"], channel) * 2 ** f["shift_bias"]
                value = Fraction(2 * total + more) / power(f["shift_cut"] + 1)
            else:
                value = Fraction(total) / power(f["shift_cut"])
            results[row, column, channel] = half_up(activation(value, f["act_type"]))
        self.put(f, results)

    def scale(self, shift):
        return power(shift) if shift < 8 else power(8 - shift)

    def pool(self, f, factor=None):
        most = f["pool_type"] == 0
        results = {}
        for row, column, channel in self.over(f, f["channel_group"] * self.size):
            seen = [
                self.pixel(f, y, x, channel, -128 if most else 0)
                for _, _, y, x in self.taps(f, row, column)
            ]
            value = Fraction(max(seen) if most else sum(seen))
            if not most and factor is not None:
                value *= factor
            elif not most:
                value *= {
                    3: Fraction(28, 256), 5: Fraction(10, 256), 6: Fraction(7, 256),
                    7: Fraction(21, 1024),
                }.get(f["kernel_w"], Fraction(1, f["kernel_w"] * f["kernel_h"]))  # fmt: skip
            results[row, column, channel] = half_up(value * self.scale(f["shift_cut"]))
        self.put(f, results)

    def alu(self, f):
        mode = f["exec_mode"]
        if mode in (0, 6):
            return self.dwconv(f, bias=mode == 0)
        factor = signed(f["multi_factor"])
        if mode in (2, 3):
            return self.pool({**f, "pool_type": 1 if mode == 2 else 0}, factor)
        results = {}
        for row, column, channel in self.over(f, f["channel_group"] * self.size):
            x = Fraction(self.pixel(f, row, column, channel, 0))
            if mode == 7:
                value = x * 2731 + 3 * 2731 * 2 ** f["shift_bias"]
                value = max(Fraction(0), min(value, Fraction(2**32))) / power(f["shift_cut"])
            else:
                slope = factor
                if mode == 1:
                    slope = self.read(self.depthwise, f["bank_addr_weights"], channel)
                positive = x / power(f["shift_prelu_p"])
                value = x * slope / power(f["shift_prelu_n"]) if x < 0 else positive
            results[row, column, channel] = half_up(value)
        return self.put(f, results)

    def elew(self, f, operands):
        results = {}
        for row, column, channel in self.over(f, f["channel_group"] * self.size):
            total = None
            for one in operands:
                group = one["bank_id_in"] // self.core.rows * self.core.rows
                bank = one["bank_id_in"] - group + row
                address = one["bank_addr_in"] + column * one["jump_read"]
                address += bank // self.core.rows * one["jump_read_endl"]
                x = self.read(group + bank % self.core.rows, address, channel)
                x = Fraction(floor(Fraction(4 * x) / power(one["shift_read"])))
                both = (lambda a, b: a * b) if f["elew_type"] == 1 else (lambda a, b: a + b)
                total = x if total is None else both(total, x)
            value = total * self.scale(f["shift_write"]) / (16 if f["elew_type"] == 1 else 4)
            results[row, column, channel] = half_up(max(value, 0) if f["act_type"] == 1 else value)
        self.put({**f, "stride_out": 1, "stride_offset_out": 0}, results)
