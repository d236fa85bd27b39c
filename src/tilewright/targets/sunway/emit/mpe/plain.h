/* C in the place of built-in functions: the MPE's compiler has types of vectors, and not what newer
   compilers do with them. Files of the MPE include this in front of all that uses one. */
#ifndef PLAIN_H
#define PLAIN_H

#define LANES_OF(v) (int)(sizeof(v) / sizeof((v)[0]))

/* Each lane as one of another type. */
#define __builtin_convertvector(v, type)                                                          \
    __extension__({                                                                               \
        const __typeof__(v) plain_from = (v);                                                     \
        type plain_to;                                                                            \
        for (int plain_i = 0; plain_i < LANES_OF(plain_from); plain_i++)                          \
            plain_to[plain_i] = (__typeof__(plain_to[0]))plain_from[plain_i];                     \
        plain_to;                                                                                 \
    })

/* Lanes of two vectors, by their numbers. */
#define __builtin_shufflevector(a, b, ...)                                                        \
    __extension__({                                                                               \
        const __typeof__(a) plain_a = (a), plain_b = (b);                                         \
        const int plain_at[] = {__VA_ARGS__};                                                     \
        __typeof__(a) plain_to;                                                                   \
        for (int plain_i = 0; plain_i < LANES_OF(plain_a); plain_i++)                             \
            plain_to[plain_i] = plain_at[plain_i] < LANES_OF(plain_a)                             \
                                    ? plain_a[plain_at[plain_i]]                                  \
                                    : plain_b[plain_at[plain_i] - LANES_OF(plain_a)];             \
        plain_to;                                                                                 \
    })

/* The same where the numbers are a vector. */
#define __builtin_shuffle(a, b, ...)                                                              \
    __extension__({                                                                               \
        const __typeof__(a) plain_a = (a), plain_b = (b);                                         \
        const __typeof__(__VA_ARGS__) plain_at = __VA_ARGS__;                                     \
        __typeof__(a) plain_to;                                                                   \
        for (int plain_i = 0; plain_i < LANES_OF(plain_a); plain_i++)                             \
            plain_to[plain_i] = plain_at[plain_i] < LANES_OF(plain_a)                             \
                                    ? plain_a[plain_at[plain_i]]                                  \
                                    : plain_b[plain_at[plain_i] - LANES_OF(plain_a)];             \
        plain_to;                                                                                 \
    })

/* Caches are asked for nothing. */
#define __builtin_prefetch(...) ((void)0)

#endif
