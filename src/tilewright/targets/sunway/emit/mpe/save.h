/* Writes the memory of a layer's result into the directory LAYERS, if there is one. */
#ifndef SAVE_H
#define SAVE_H

#include "files.h"

static const char *layers;

static inline void save(const char *layer, const char *data, size_t bytes)
{
    char path[4096];
    if (!layers)
        return;
    snprintf(path, sizeof path, "%s/%s.bin", layers, layer);
    write_file(path, data, bytes);
}

#endif
