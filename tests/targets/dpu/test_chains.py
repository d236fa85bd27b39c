"""Chains that stay on the chip: what one instruction writes, another reads where it lies.

Maps of 8 x 6 pixels with 6 channels, two groups of the small core's 4. Row r of a tile that windows
of stride s read, behind p rows of padding, lies in bank (r + p) // s, s rows to a bank.
"""

import numpy as np
import pytest
from tests.targets.dpu import oracle
from tests.targets.dpu.derived import Builder
from tests.targets.dpu.test_layers import SMALL, executed, numbers

from tilewright.targets.dpu.core import CORES
from tilewright.targets.dpu.timing import time_program

HEIGHT, WIDTH, CHANNELS = 8, 6, 6
GROUPS = 2
ROW = WIDTH * GROUPS
WEIGHTS = CHANNELS * 9 * CHANNELS
BASES = ("bank_addr_in", "bank_addr_in_1", "bank_addr_in_2", "bank_addr_in_3")
SUMS = {"kernel_h": 3, "kernel_w": 3, "jump_read": GROUPS, "jump_read_endl": ROW,
        "jump_write": GROUPS, "shift_cut": 8, "shift_bias": 3}  # fmt: skip


def place(row, stride):
    """With 4 banks: bank in its group, rows of it before this one, turns round the banks."""
    bank, line = divmod(row, stride)
    turn, bank = divmod(bank, SMALL.rows)
    return bank, line, turn


def load_map(build, register, group, base, padding=0, stride=1):
    for row in range(HEIGHT):
        bank, line, turn = place(row + padding, stride)
        build.add(
            "load", bank_id=group * SMALL.rows + bank,
            bank_addr=base + (turn * stride + line) * ROW, length=WIDTH, channel=CHANNELS,
            jump_read=CHANNELS, jump_write=GROUPS, reg_id=register, ddr_addr=row * WIDTH * CHANNELS,
        )  # fmt: skip


def load_weights(build, address, row):
    """Weights of both groups of outputs, and their biases, behind register 0."""
    for out in range(CHANNELS):
        build.add(
            "load", bank_id=SMALL.group("weight").first + out % 4,
            bank_addr=row + out // 4 * 9 * GROUPS, length=9, channel=CHANNELS,
            jump_read=CHANNELS, jump_write=GROUPS, ddr_addr=address + out * 9 * CHANNELS,
        )  # fmt: skip
    build.add(
        "load", bank_id=SMALL.group("bias").first, bank_addr=row, channel=CHANNELS,
        ddr_addr=address + WEIGHTS,
    )  # fmt: skip


def convolve(build, source, base, target, out, weights, padding=0, stride=1):
    """A 3x3 convolution from group to group; its rows lie ready for windows behind ``padding``."""
    for row in range(0, HEIGHT, SMALL.rows):
        bank, line, turn = place(row + padding, stride)
        build.add(
            "convinit", **SUMS, valid_pixel_parallel=SMALL.rows, stride_out=stride,
            stride_offset_out=line, jump_write_endl=ROW, act_type=1,
        )  # fmt: skip
        for group in range(GROUPS):
            build.add(
                "conv", bank_id_in=source * SMALL.rows, length=WIDTH, channel_group=GROUPS,
                channel_offset=2, pad_left=1, pad_right=1,
                pad_top=int(row == 0), pad_bottom=1 if row + SMALL.rows == HEIGHT else 2,
                bank_id_out=target * SMALL.rows + bank,
                bank_addr_out=out + turn * stride * ROW + group,
                bank_addr_weights=weights + group * 9 * GROUPS, bank_addr_bias=weights + group,
                **{name: (base + (row // SMALL.rows + k) * ROW - GROUPS) % 2048
                   for k, name in enumerate(BASES)},
            )  # fmt: skip


def save_map(build, group, base, height, width, padding=0):
    for row in range(height):
        bank, _, turn = place(row + padding, 1)
        build.add(
            "save", bank_id=group * SMALL.rows + bank, bank_addr=base + turn * width * GROUPS,
            length=width, channel=CHANNELS, jump_read=GROUPS, jump_write=CHANNELS, reg_id=3,
            ddr_addr=row * width * CHANNELS,
        )  # fmt: skip


@pytest.fixture(params=range(3))
def data(request):
    rng = np.random.default_rng(request.param)
    image, other = numbers(rng, HEIGHT, WIDTH, CHANNELS), numbers(rng, HEIGHT, WIDTH, CHANNELS)
    weights = [numbers(rng, CHANNELS, 3, 3, CHANNELS) for _ in range(2)]
    bias = [numbers(rng, CHANNELS) for _ in range(2)]
    parameters = np.concatenate([weights[0].ravel(), bias[0], weights[1].ravel(), bias[1]])
    first = oracle.conv(image, weights[0], bias[0], (1, 1), (1, 1, 1, 1), 3, 8, "relu")
    return image, other, weights, bias, parameters, first


def result(build, data, height, width):
    image, other, _, _, parameters, _ = data
    out = np.zeros((height, width, CHANNELS), np.int8)
    operations = build.finish()
    registers = {0: parameters, 2: image.ravel(), 4: other.ravel(), 3: out.reshape(-1)}
    executed(SMALL, operations, registers)
    return out, time_program(SMALL, operations)


def test_pool_behind_a_convolution(data):
    """Windows of stride 2 read two rows of a bank: the convolution writes them so."""
    build = Builder(SMALL)
    load_map(build, 2, 0, 0, padding=1)
    load_weights(build, 0, 0)
    convolve(build, 0, 0, 1, 100, 0, stride=2)
    for row in range(0, HEIGHT // 2, SMALL.misc_rows):
        build.add(
            "poolinit", kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, jump_read=GROUPS,
            jump_write=GROUPS, valid_pixel_parallel=SMALL.misc_rows,
        )  # fmt: skip
        build.add(
            "pool", bank_id_in=SMALL.rows + row, bank_addr_in=100, jump_read_endl=ROW,
            bank_id_out=row, bank_addr_out=200, jump_write_endl=ROW, length=WIDTH // 2,
            channel_group=GROUPS, pad_right=1, pad_bottom=1,
        )  # fmt: skip
    save_map(build, 0, 200, HEIGHT // 2, WIDTH // 2)
    out, timeline = result(build, data, HEIGHT // 2, WIDTH // 2)
    assert np.array_equal(out, oracle.max_pool(data[-1], (2, 2), (2, 2), (0, 0, 0, 0), 0))
    assert len(np.unique(out)) > 10
    assert timeline.main_bytes == data[0].size + WEIGHTS + CHANNELS + out.size


def test_sum_behind_a_convolution(data):
    """A residual is loaded while the convolution runs, and added where its result lies."""
    build = Builder(SMALL)
    load_map(build, 2, 0, 0, padding=1)
    load_weights(build, 0, 0)
    convolve(build, 0, 0, 1, 100, 0)
    load_map(build, 4, 1, 300)
    for row in range(0, HEIGHT, SMALL.elementwise_rows):
        bank, _, turn = place(row, 1)
        for base, shift in ((100, 0), (300, 1)):
            build.add(
                "elewinit", bank_id_in=SMALL.rows + bank, bank_addr_in=base + turn * ROW,
                jump_read=GROUPS, jump_read_endl=ROW, shift_read=shift,
            )  # fmt: skip
        build.add(
            "elew", num=2, length=WIDTH, channel_group=GROUPS, shift_write=8 + 1, act_type=1,
            valid_pixel_parallel=SMALL.elementwise_rows, bank_id_out=SMALL.rows + bank,
            bank_addr_out=100 + turn * ROW, jump_write=GROUPS, jump_write_endl=ROW,
        )  # fmt: skip
    save_map(build, 1, 100, HEIGHT, WIDTH)
    out, timeline = result(build, data, HEIGHT, WIDTH)
    exact = oracle.elementwise([data[-1], data[1]], (0, 1), -1, relu=True)
    assert np.array_equal(out, exact)
    assert len(np.unique(out)) > 10
    # The sum in its own operand's place: no more bytes than two inputs, parameters, a result.
    assert timeline.main_bytes == 3 * data[0].size + WEIGHTS + CHANNELS


def test_convolution_behind_a_convolution(data):
    """The first writes its rows one bank on, where the second has its padding."""
    build = Builder(SMALL)
    load_map(build, 2, 0, 0, padding=1)
    load_weights(build, 0, 0)
    load_weights(build, WEIGHTS + CHANNELS, 500)
    convolve(build, 0, 0, 1, 100, 0, padding=1)
    convolve(build, 1, 100, 0, 1000, 500)
    save_map(build, 0, 1000, HEIGHT, WIDTH)
    out, timeline = result(build, data, HEIGHT, WIDTH)
    _, _, weights, bias, parameters, first = data
    exact = oracle.conv(first, weights[1], bias[1], (1, 1), (1, 1, 1, 1), 3, 8, "relu")
    assert np.array_equal(out, exact)
    assert len(np.unique(out)) > 10
    assert timeline.main_bytes == data[0].size + parameters.size + out.size


def test_concat_is_a_stride_of_save(data):
    """Two maps saved beside each other, pixel by pixel."""
    image, other = data[:2]
    build = Builder(SMALL)
    load_map(build, 2, 0, 0)
    load_map(build, 4, 1, 0)
    for group in range(2):
        for row in range(HEIGHT):
            bank, _, turn = place(row, 1)
            build.add(
                "save", bank_id=group * SMALL.rows + bank, bank_addr=turn * ROW, length=WIDTH,
                channel=CHANNELS, jump_read=GROUPS, jump_write=2 * CHANNELS, reg_id=3,
                ddr_addr=row * WIDTH * 2 * CHANNELS + group * CHANNELS,
            )  # fmt: skip
    out = np.zeros((HEIGHT, WIDTH, 2 * CHANNELS), np.int8)
    executed(SMALL, build.finish(), {2: image.ravel(), 4: other.ravel(), 3: out.reshape(-1)})
    assert np.array_equal(out, np.concatenate([image, other], 2))


@pytest.mark.parametrize("stride", [1, 2])
def test_channel_augmentation_makes_one_pixel_of_a_row_of_the_kernel(stride):
    """A first layer of 3 channels: 9 bytes at once in place of 3 times 3 of 8, and no kernel_w."""
    core = CORES["dpu-b512"]
    rng = np.random.default_rng(stride)
    image, weights = numbers(rng, HEIGHT, WIDTH, 3), numbers(rng, 8, 3, 3, 3)
    bias = numbers(rng, 8)
    build = Builder(core)
    before, run, groups = 16, 9, 2
    columns = (WIDTH + 2 - 3) // stride + 1
    past = (columns - 1) * stride + 3 - 1 - WIDTH
    line = columns * groups
    for row in range(HEIGHT):
        # Rows begin a pixel early; 7 of the last run's 16 bytes are its own padding.
        build.add(
            "load", bank_id=(row + 1) // stride % core.rows,
            bank_addr=((row + 1) // stride // core.rows * stride + (row + 1) % stride) * line,
            length=columns, channel=run, jump_read=3 * stride, jump_write=groups, reg_id=2,
            ddr_addr=before + row * WIDTH * 3 - 3, pad_start=3, pad_end=7 + 3 * past, pad_idx=1,
        )  # fmt: skip
    for out in range(8):
        build.add(
            "load", bank_id=core.group("weight").first + out, length=3, channel=run,
            jump_read=run, jump_write=groups, ddr_addr=out * 27,
        )  # fmt: skip
    build.add("load", bank_id=core.group("bias").first, channel=8, ddr_addr=216)
    rows = (HEIGHT + 2 - 3) // stride + 1
    build.add(
        "convinit", kernel_h=3, stride_h=stride, valid_pixel_parallel=4, jump_read=groups,
        jump_read_endl=line, shift_cut=8, jump_write_endl=columns,
    )  # fmt: skip
    for row in range(0, rows, 4):
        end = (row + 3) * stride + 3 - 1 - HEIGHT
        build.add(
            "conv", length=columns, channel_group=groups, channel_offset=7,
            pad_top=int(row == 0), pad_bottom=2 - max(0, end),
            bank_id_out=core.rows, bank_addr_out=row // 4 * columns,
            **{name: (row // 4 + k) * stride * line for k, name in enumerate(BASES)},
        )  # fmt: skip
    for row in range(rows):
        bank, _, turn = place(row, 1)
        build.add(
            "save", bank_id=core.rows + bank, bank_addr=turn * columns, length=columns,
            channel=8, jump_write=8, reg_id=3, ddr_addr=row * columns * 8,
        )  # fmt: skip
    memory = np.concatenate([numbers(rng, before), image.ravel(), numbers(rng, 16)])
    out = np.zeros((rows, columns, 8), np.int8)
    parameters = np.concatenate([weights.ravel(), bias])
    executed(core, build.finish(), {0: parameters, 2: memory, 3: out.reshape(-1)})
    exact = oracle.conv(image, weights, bias, (stride, stride), (1, 1, 1, 1), 0, 8, "none")
    assert np.array_equal(out, exact)
    assert len(np.unique(out)) > 20
