/* Whole files and memory for main, which ends with the reason where there are none. */
#ifndef FILES_H
#define FILES_H

#include <stdio.h>
#include <stdlib.h>

static inline void read_file(const char *name, char *data, size_t bytes)
{
    FILE *file = fopen(name, "rb");
    if (!file || fread(data, 1, bytes, file) != bytes || fgetc(file) != EOF) {
        fprintf(stderr, "%s is not a file of %lu bytes\n", name, (unsigned long)bytes);
        exit(1);
    }
    fclose(file);
}

static inline void write_file(const char *name, const char *data, size_t bytes)
{
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) {
        fprintf(stderr, "%s cannot be written\n", name);
        exit(1);
    }
}

static inline void *memory(size_t bytes)
{
    void *at = malloc(bytes ? bytes : 1);
    if (!at) {
        fprintf(stderr, "cannot allocate %lu bytes\n", (unsigned long)bytes);
        exit(1);
    }
    return at;
}

static inline void *loaded(const char *name, size_t bytes)
{
    void *data = memory(bytes);
    read_file(name, data, bytes);
    return data;
}

#endif
