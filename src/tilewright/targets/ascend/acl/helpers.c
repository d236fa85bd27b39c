static void *object;
static char *constants, *arena; /* On the device. */
static aclrtStream stream;
static long length; /* Of a run, where the network takes one. */
static void *handle;

#define CHECK(call) check(call, #call, __LINE__)

static void check(aclError error, const char *call, int line)
{
    if (error != ACL_SUCCESS) {
        fprintf(stderr, "main.c:%d: error %d of %s\n", line, error, call);
        exit(1);
    }
}

static inline long take_length(const char *word, long longest)
{
    char *end;
    const long size = strtol(word, &end, 10);
    if (*end || end == word || size < 1 || size > longest) {
        fprintf(stderr, "the length is %s, and has to be 1 to %ld\n", word, longest);
        exit(1);
    }
    return size;
}

/* A file of `length` rows in each of some parts that have room for `longest`; behind them, zeros. */
static inline void read_rows(const char *name, char *to, size_t parts, size_t row, size_t longest)
{
    const size_t bytes = (size_t)length * row;
    char *from = loaded(name, parts * bytes);
    memset(to, 0, parts * row * longest);
    for (size_t part = 0; part < parts; part++)
        memcpy(to + part * row * longest, from + part * bytes, bytes);
    free(from);
}

/* And back. */
static inline void write_rows(const char *name, const char *from, size_t parts, size_t row,
                              size_t longest)
{
    const size_t bytes = (size_t)length * row;
    char *to = memory(parts * bytes);
    for (size_t part = 0; part < parts; part++)
        memcpy(to + part * bytes, from + part * row * longest, bytes);
    write_file(name, to, parts * bytes);
    free(to);
}

static char *on_device(size_t bytes)
{
    void *at = NULL;
    CHECK(aclrtMalloc(&at, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    return at;
}

/* Copies the elements of a box with gaps to or from one without; returns the bytes. */
static size_t packed(char *dense, char *box, int rank, const long *n, const long *step, size_t width,
                     int back)
{
    if (!rank) {
        memcpy(back ? box : dense, back ? dense : box, width);
        return width;
    }
    size_t bytes = 0;
    for (long i = 0; i < n[0]; i++)
        bytes += packed(dense + bytes, box + i * step[0], rank - 1, n + 1, step + 1, width, back);
    return bytes;
}

static size_t elements(int rank, const long *n)
{
    size_t count = 1;
    for (int axis = 0; axis < rank; axis++)
        count *= (size_t)n[axis];
    return count;
}

/* A value of the host's memory to the device. */
static inline void copy_in(char *to, char *box, int rank, const long *n, const long *step,
                           size_t width)
{
    const size_t bytes = elements(rank, n) * width;
    char *dense = memory(bytes);
    packed(dense, box, rank, n, step, width, 0);
    CHECK(aclrtMemcpy(to, bytes, dense, bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    free(dense);
}

/* And back. */
static inline void copy_out(const char *from, char *box, int rank, const long *n, const long *step,
                            size_t width)
{
    const size_t bytes = elements(rank, n) * width;
    char *dense = memory(bytes);
    CHECK(aclrtMemcpy(dense, bytes, from, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    packed(dense, box, rank, n, step, width, 1);
    free(dense);
}

static void register_object(const char *name)
{
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        fprintf(stderr, "%s cannot be read\n", name);
        exit(1);
    }
    const long bytes = ftell(file);
    fclose(file);
    object = loaded(name, (size_t)bytes);
    const rtDevBinary_t binary = {RT_DEV_BINARY_MAGIC_ELF, 0, object, (uint64_t)bytes};
    CHECK(rtDevBinaryRegister(&binary, &handle));
}

static inline void register_function(const void *stub, const char *name)
{
    CHECK(rtFunctionRegister(handle, stub, name, name, 0));
}

static inline void launch(const void *stub, uint32_t blocks, void **arguments, uint32_t count)
{
    CHECK(rtKernelLaunch(stub, blocks, arguments, count * (uint32_t)sizeof(void *), NULL, stream));
}
