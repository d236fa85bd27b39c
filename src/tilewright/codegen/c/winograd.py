"""One dimension of Winograd's transforms as C: B^T of a tile's inputs, A^T of its products.

``i`` are elements ``step`` apart, ``o`` what becomes of them side by side, both of type ``vec``;
what rows share is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping

INPUT: Mapping[int, str] = {
    8: """\
    const vec low = 4.25f * i[4 * step] - (i[2 * step] + i[6 * step]);
    const vec odd = 4.25f * i[3 * step] - (i[1 * step] + i[5 * step]);
    const vec high = i[6 * step] - 1.25f * i[4 * step] + 0.25f * i[2 * step];
    const vec twice = i[5 * step] - 1.25f * i[3 * step] + 0.25f * i[1 * step];
    const vec wide = i[6 * step] - 5.0f * i[4 * step] + 4.0f * i[2 * step];
    const vec half = i[5 * step] - 5.0f * i[3 * step] + 4.0f * i[1 * step];
    o[0] = 5.25f * (i[4 * step] - i[2 * step]) + (i[0] - i[6 * step]);
    o[1] = low + odd;
    o[2] = low - odd;
    o[3] = high + 2.0f * twice;
    o[4] = high - 2.0f * twice;
    o[5] = wide + 0.5f * half;
    o[6] = wide - 0.5f * half;
    o[7] = 5.25f * (i[3 * step] - i[5 * step]) + (i[7 * step] - i[1 * step]);
""",
    6: """\
    const vec low = 4.0f * i[2 * step] - i[4 * step], odd = 4.0f * i[1 * step] - i[3 * step];
    const vec high = i[4 * step] - i[2 * step], twice = 2.0f * (i[3 * step] - i[1 * step]);
    o[0] = 4.0f * i[0] - 5.0f * i[2 * step] + i[4 * step];
    o[1] = low + odd;
    o[2] = low - odd;
    o[3] = high + twice;
    o[4] = high - twice;
    o[5] = 4.0f * i[1 * step] - 5.0f * i[3 * step] + i[5 * step];
""",
    4: """\
    o[0] = i[0] - i[2 * step];
    o[1] = i[1 * step] + i[2 * step];
    o[2] = i[2 * step] - i[1 * step];
    o[3] = i[3 * step] - i[1 * step];
""",
}
"""By the extent of a transformed tile."""

OUTPUT: Mapping[tuple[int, int], str] = {
    (6, 8): """\
    const vec s = i[1 * step] + i[2 * step], d = i[1 * step] - i[2 * step];
    const vec t = i[3 * step] + i[4 * step], e = i[3 * step] - i[4 * step];
    const vec h = i[5 * step] + i[6 * step], f = i[5 * step] - i[6 * step];
    o[0] = (i[0] + s) + (t + h);
    o[1] = d + 2.0f * e + 0.5f * f;
    o[2] = s + 4.0f * t + 0.25f * h;
    o[3] = d + 8.0f * e + 0.125f * f;
    o[4] = s + 16.0f * t + 0.0625f * h;
    o[5] = d + 32.0f * e + 0.03125f * f + i[7 * step];
""",
    (4, 6): """\
    const vec s = i[1 * step] + i[2 * step], d = i[1 * step] - i[2 * step];
    const vec t = i[3 * step] + i[4 * step], e = i[3 * step] - i[4 * step];
    o[0] = i[0] + s + t;
    o[1] = d + 2.0f * e;
    o[2] = s + 4.0f * t;
    o[3] = d + 8.0f * e + i[5 * step];
""",
    (2, 6): """\
    o[0] = i[0] + (i[1 * step] + i[2 * step]) + (i[3 * step] + i[4 * step]);
    o[1] = (i[1 * step] - i[2 * step]) + 2.0f * (i[3 * step] - i[4 * step]) + i[5 * step];
""",
    (2, 4): """\
    o[0] = i[0] + i[1 * step] + i[2 * step];
    o[1] = i[1 * step] - i[2 * step] + i[3 * step];
""",
}
"""By the extents of a tile of outputs and of a transformed tile."""
