/* Normalisations along an axis: softmax, layer normalisation, local response normalisation. */
#include "families.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Room for the elements of a row. */
static void *row_of(int64_t count, size_t bytes)
{
    void *row = calloc(count > 0 ? (size_t)count : 1, bytes);
    if (!row) {
        fprintf(stderr, "out of memory\n");
        abort();
    }
    return row;
}

/* Writes the element `i` along the axis of the row at `at`, after the steps. */
static void finish(const struct operand *output, const struct steps *steps, int64_t *at, int64_t i,
                   struct value value)
{
    at[4] = i;
    value = apply_steps(steps, value, at);
    operand_store(output, operand_offset(output, at), value, steps->numbers.saturate);
    at[4] = 0;
}

/* Halvings of 1 with 16 fraction bits: 2 to the power -i / 256, rounded. */
static const int32_t halvings[257] = {
    65536, 65359, 65182, 65006, 64830, 64655, 64480, 64306, 64132, 63958, 63785, 63613, 63441,
    63269, 63098, 62928, 62757, 62588, 62419, 62250, 62081, 61914, 61746, 61579, 61413, 61247,
    61081, 60916, 60751, 60587, 60423, 60260, 60097, 59934, 59772, 59611, 59449, 59289, 59128,
    58968, 58809, 58650, 58491, 58333, 58176, 58018, 57861, 57705, 57549, 57393, 57238, 57083,
    56929, 56775, 56622, 56468, 56316, 56163, 56012, 55860, 55709, 55558, 55408, 55258, 55109,
    54960, 54811, 54663, 54515, 54368, 54221, 54074, 53928, 53782, 53637, 53492, 53347, 53203,
    53059, 52916, 52773, 52630, 52488, 52346, 52204, 52063, 51922, 51782, 51642, 51502, 51363,
    51224, 51085, 50947, 50810, 50672, 50535, 50399, 50262, 50126, 49991, 49856, 49721, 49586,
    49452, 49319, 49185, 49052, 48920, 48787, 48655, 48524, 48393, 48262, 48131, 48001, 47871,
    47742, 47613, 47484, 47356, 47228, 47100, 46973, 46846, 46719, 46593, 46467, 46341, 46216,
    46091, 45966, 45842, 45718, 45594, 45471, 45348, 45225, 45103, 44981, 44859, 44738, 44617,
    44497, 44376, 44256, 44137, 44017, 43898, 43780, 43661, 43543, 43425, 43308, 43191, 43074,
    42958, 42841, 42726, 42610, 42495, 42380, 42265, 42151, 42037, 41923, 41810, 41697, 41584,
    41472, 41360, 41248, 41136, 41025, 40914, 40804, 40693, 40583, 40473, 40364, 40255, 40146,
    40037, 39929, 39821, 39714, 39606, 39499, 39392, 39286, 39180, 39074, 38968, 38863, 38757,
    38653, 38548, 38444, 38340, 38236, 38133, 38030, 37927, 37824, 37722, 37620, 37518, 37417,
    37316, 37215, 37114, 37014, 36914, 36814, 36715, 36615, 36516, 36417, 36319, 36221, 36123,
    36025, 35928, 35831, 35734, 35637, 35541, 35445, 35349, 35253, 35158, 35063, 34968, 34874,
    34779, 34685, 34591, 34498, 34405, 34312, 34219, 34126, 34034, 33942, 33850, 33759, 33667,
    33576, 33486, 33395, 33305, 33215, 33125, 33035, 32946, 32857, 32768
};

static int64_t rounded_shift(int64_t value, int64_t shift)
{
    if (shift < 0)
        return -shift > 63 ? 0 : (int64_t)((uint64_t)value << -shift);
    return (value + (((int64_t)1 << shift) >> 1)) >> shift;
}

/* exp(-distance) with 16 fraction bits. */
static int64_t exponential(int64_t distance, int64_t point)
{
    int64_t z = rounded_shift(distance * 47274, point - 1), most = (int64_t)48 << 16;
    z = z > most ? most : z;
    int64_t segment = (z >> 8) & 255, rest = z & 255, low = halvings[segment];
    return rounded_shift(low + (((halvings[segment + 1] - low) * rest + 128) >> 8), z >> 16);
}

static void softmax_of_fixed(const struct softmax *p, int64_t *at)
{
    int64_t from = operand_offset(&p->input, at), greatest = INT64_MIN, sum = 0;
    int64_t *held = row_of(p->axis, sizeof *held);
    for (int64_t i = 0; i < p->axis; i++) {
        held[i] = operand_load(&p->input, from + i * p->input.stride[4]).whole;
        greatest = held[i] > greatest ? held[i] : greatest;
    }
    for (int64_t i = 0; i < p->axis; i++)
        sum += held[i] = exponential(greatest - held[i], p->point_in);
    for (int64_t i = 0; i < p->axis; i++) {
        int64_t twice = 2 * rounded_shift(held[i], -p->point_out) + sum; /* positive */
        int64_t share = saturated(twice / (2 * sum), ELEMENT_INT16);
        finish(&p->output, &p->steps, at, i, whole_value(ELEMENT_INT16, share));
    }
    free(held);
}

static void softmax_of_floats(const struct softmax *p, int64_t *at)
{
    int64_t from = operand_offset(&p->input, at);
    double greatest = -INFINITY, sum = 0, *held = row_of(p->axis, sizeof *held);
    for (int64_t i = 0; i < p->axis; i++) {
        held[i] = (double)operand_load(&p->input, from + i * p->input.stride[4]).real;
        greatest = held[i] > greatest || isnan(held[i]) ? held[i] : greatest;
    }
    for (int64_t i = 0; i < p->axis; i++)
        sum += held[i] = exp(held[i] - greatest);
    for (int64_t i = 0; i < p->axis; i++)
        finish(&p->output, &p->steps, at, i, real_value((float)(held[i] / sum)));
    free(held);
}

void family_softmax(const struct softmax *p)
{
    for (int64_t a = 0; a < p->size[0]; a++)
    for (int64_t b = 0; b < p->size[1]; b++)
    for (int64_t c = 0; c < p->size[2]; c++)
    for (int64_t d = 0; d < p->size[3]; d++) {
        int64_t at[FAMILY_AXES] = {a, b, c, d, 0};
        if (p->steps.numbers.kind == KIND_FIXED)
            softmax_of_fixed(p, at);
        else
            softmax_of_floats(p, at);
    }
}

static void normalised(const struct layer_norm *p, int64_t *at)
{
    int64_t from = operand_offset(&p->input, at);
    double mean = 0, square = 0, *held = row_of(p->axis, sizeof *held);
    for (int64_t i = 0; i < p->axis; i++)
        mean += held[i] = (double)operand_load(&p->input, from + i * p->input.stride[4]).real;
    mean = p->centred ? mean / (double)p->axis : 0;
    for (int64_t i = 0; i < p->axis; i++) {
        held[i] -= mean;
        square += held[i] * held[i];
    }
    double deviation = sqrt(square / (double)p->axis + (double)p->epsilon);
    for (int64_t i = 0; i < p->axis; i++) {
        double value = held[i] / deviation;
        if (p->others > 0)
            value *= (double)operand_load(&p->weight, i * p->weight.stride[0]).real;
        if (p->others > 1)
            value += (double)operand_load(&p->bias, i * p->bias.stride[0]).real;
        finish(&p->output, &p->steps, at, i, real_value((float)value));
    }
    free(held);
}

void family_layer_norm(const struct layer_norm *p)
{
    for (int64_t a = 0; a < p->size[0]; a++)
    for (int64_t b = 0; b < p->size[1]; b++)
    for (int64_t c = 0; c < p->size[2]; c++)
    for (int64_t d = 0; d < p->size[3]; d++) {
        int64_t at[FAMILY_AXES] = {a, b, c, d, 0};
        normalised(p, at);
    }
}

/* `x` times the power of `t`, which has 20 fraction bits: its exponent chooses a factor and a
   shift, its mantissa a place in a table. The three lie one behind the other. */
static int64_t scaled_by_power(const struct lrn *p, int64_t x, int64_t t)
{
    int64_t exponent = 0;
    while (t >> exponent > 1)
        exponent++;
    int64_t down = exponent > 16 ? exponent - 16 : 0, up = exponent < 16 ? 16 - exponent : 0;
    int64_t place = (int64_t)(((uint64_t)(t >> down) << up) & 0xFFFF);
    int64_t segment = place >> 8, rest = place & 255;
    int64_t low = (uint16_t)operand_load(&p->table, 2 * segment).whole;
    int64_t high = (uint16_t)operand_load(&p->table, 2 * segment + 2).whole;
    int64_t factor = (uint16_t)operand_load(&p->table, 514 + 2 * exponent).whole;
    int64_t shift = 29 + operand_load(&p->table, 642 + 2 * exponent).whole;
    int64_t product = x * (low + (((high - low) * rest + 128) >> 8)) * factor;
    shift += p->point_in - p->point_out;
    int64_t right = shift < 0 ? 0 : shift > 62 ? 62 : shift;
    int64_t left = -shift < 0 ? 0 : -shift > 17 ? 17 : -shift;
    return saturated(rounded_shift(rounded_shift(product, right), -left), ELEMENT_INT16);
}

void family_lrn(const struct lrn *p)
{
    int64_t before = (p->j - 1) / 2;
    for (int64_t n = 0; n < p->n; n++)
    for (int64_t c = 0; c < p->c; c++)
    for (int64_t h = 0; h < p->h; h++)
    for (int64_t w = 0; w < p->w; w++) {
        int64_t at[FAMILY_AXES] = {n, c, h, w, 0}, squares = 0;
        double real = 0;
        for (int64_t other = c - before; other < c - before + p->j; other++) {
            int64_t seen[FAMILY_AXES] = {n, other, h, w, 0};
            if (other < 0 || other >= p->c)
                continue;
            struct value x = operand_load(&p->input, operand_offset(&p->input, seen));
            squares += x.whole * x.whole;
            real += (double)x.real * (double)x.real;
        }
        struct value x = operand_load(&p->input, operand_offset(&p->input, at));
        if (p->steps.numbers.kind == KIND_FIXED) {
            int64_t total = rounded_shift(squares * p->alpha, 2 * p->point_in + 10);
            total += p->bias > 1 ? p->bias : 1;
            x = whole_value(ELEMENT_INT16, scaled_by_power(p, x.whole, total));
        } else {
            double base = (double)p->real_bias + real * (double)p->real_alpha;
            x = real_value((float)((double)x.real / pow(base, (double)p->beta)));
        }
        finish(&p->output, &p->steps, at, 0, x);
    }
}
