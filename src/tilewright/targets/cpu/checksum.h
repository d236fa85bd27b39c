/* CRC-32, as zip files and PNG images have it, eight bytes at a time. */
#ifndef TILEWRIGHT_CHECKSUM_H
#define TILEWRIGHT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

static uint32_t checksum(const unsigned char *p, size_t count)
{
    uint32_t table[8][256];
    for (uint32_t i = 0; i < 256; i++) {
        table[0][i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[0][i] = table[0][i] >> 1 ^ (table[0][i] & 1 ? 0xedb88320U : 0);
    }
    for (int n = 1; n < 8; n++)
        for (int i = 0; i < 256; i++)
            table[n][i] = table[n - 1][i] >> 8 ^ table[0][table[n - 1][i] & 255];
    uint32_t crc = 0xffffffffU;
    for (; count >= 8; count -= 8, p += 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255]
            ^ table[4][crc >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]]
            ^ table[0][p[7]];
    }
    for (; count; count--, p++)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return crc ^ 0xffffffffU;
}

#endif
