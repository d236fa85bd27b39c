"""C functions with which a package's main reads and writes whole files, or ends with the reason."""

FILES = """\
static void read_file(const char *name, char *data, size_t bytes)
{
    FILE *file = fopen(name, "rb");
    if (!file || fread(data, 1, bytes, file) != bytes || fgetc(file) != EOF) {
        fprintf(stderr, "%s is no file of %lu bytes\\n", name, (unsigned long)bytes);
        exit(1);
    }
    fclose(file);
}

static void write_file(const char *name, const char *data, size_t bytes)
{
    FILE *file = fopen(name, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) {
        fprintf(stderr, "%s cannot be written\\n", name);
        exit(1);
    }
}
"""
"""Takes stdio.h and stdlib.h."""
