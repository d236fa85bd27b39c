/* acl.h on a host: kernels run on the host core (cce_core.c) when they are launched. */
#define _GNU_SOURCE
#include "acl.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

/* The host core. */
void cce_core(const uint64_t sizes[5], int events, int counting, int barrier_blocks);
void cce_begin(unsigned order);
void cce_region(const char *name, void *at, uint64_t size);
void cce_next(int64_t block, int64_t blocks);
int cce_end(void);
const char *cce_message(int number);

enum { MOST_BLOCKS = 4096, MOST_FUNCTIONS = 4096, MOST_SIZE = 4096, MOST_DIM = 65535 };

struct block {
    char *at;
    size_t bytes;
    const char *file;
    int line;
};

static struct block blocks[MOST_BLOCKS];
static int block_count;
static struct {
    const void *stub;
    void *function;
} functions[MOST_FUNCTIONS];
static int function_count;
static int initialised, device_set, launched;
static void *library;
static char stream_there, stream_used;

static void fail(const char *file, int line, const char *words, ...)
{
    va_list rest;
    va_start(rest, words);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, words, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(3);
}

static void need_device(const char *call, const char *file, int line)
{
    if (!initialised)
        fail(file, line, "%s before aclInit", call);
    if (!device_set)
        fail(file, line, "%s before aclrtSetDevice", call);
}

aclError acl_init(const char *file, int line, const char *config)
{
    (void)config;
    if (initialised)
        fail(file, line, "aclInit twice");
    initialised = 1;
    return ACL_SUCCESS;
}

aclError acl_set_device(const char *file, int line, int device)
{
    if (!initialised)
        fail(file, line, "aclrtSetDevice before aclInit");
    if (device != 0)
        fail(file, line, "there is no device %d", device);
    device_set = 1;
    return ACL_SUCCESS;
}

aclError acl_create_stream(const char *file, int line, aclrtStream *stream)
{
    need_device("aclrtCreateStream", file, line);
    if (stream_there)
        fail(file, line, "a second stream");
    stream_there = 1;
    *stream = &stream_used;
    return ACL_SUCCESS;
}

static void need_stream(aclrtStream stream, const char *call, const char *file, int line)
{
    need_device(call, file, line);
    if (!stream_there || stream != &stream_used)
        fail(file, line, "%s on what is no stream", call);
}

aclError acl_destroy_stream(const char *file, int line, aclrtStream stream)
{
    need_stream(stream, "aclrtDestroyStream", file, line);
    if (launched)
        fail(file, line, "aclrtDestroyStream before aclrtSynchronizeStream");
    stream_there = 0;
    return ACL_SUCCESS;
}

aclError acl_synchronize(const char *file, int line, aclrtStream stream)
{
    need_stream(stream, "aclrtSynchronizeStream", file, line);
    launched = 0;
    return ACL_SUCCESS;
}

aclError acl_malloc(const char *file, int line, void **at, size_t bytes,
                    aclrtMemMallocPolicy policy)
{
    (void)policy;
    need_device("aclrtMalloc", file, line);
    if (!bytes || block_count == MOST_BLOCKS)
        fail(file, line, "aclrtMalloc of %lu bytes, with %d blocks", (unsigned long)bytes, block_count);
    char *memory = NULL;
    if (posix_memalign((void **)&memory, 512, bytes))
        fail(file, line, "%lu bytes are not there", (unsigned long)bytes);
    memset(memory, 0xff, bytes); /* Not-a-number in halves and floats. */
    blocks[block_count++] = (struct block){memory, bytes, file, line};
    *at = memory;
    return ACL_SUCCESS;
}

/* The block that holds an address of the device; NULL if none does. */
static struct block *block_of(const void *address)
{
    for (int i = 0; i < block_count; i++)
        if ((const char *)address >= blocks[i].at && (const char *)address < blocks[i].at + blocks[i].bytes)
            return blocks + i;
    return NULL;
}

aclError acl_free(const char *file, int line, void *at)
{
    need_device("aclrtFree", file, line);
    struct block *block = block_of(at);
    if (!block || block->at != at)
        fail(file, line, "aclrtFree of what is not allocated");
    if (launched)
        fail(file, line, "aclrtFree before aclrtSynchronizeStream");
    free(block->at);
    *block = blocks[--block_count];
    return ACL_SUCCESS;
}

aclError acl_memcpy(const char *file, int line, void *to, size_t room, const void *from,
                    size_t bytes, aclrtMemcpyKind kind)
{
    need_device("aclrtMemcpy", file, line);
    const int down = kind == ACL_MEMCPY_HOST_TO_DEVICE;
    const char *there = down ? to : from, *here = down ? from : to;
    struct block *block = block_of(there);
    if (!block)
        fail(file, line, "aclrtMemcpy: the %s is no memory of the device", down ? "target" : "source");
    if (block_of(here))
        fail(file, line, "aclrtMemcpy: the %s is no memory of the host", down ? "source" : "target");
    const size_t left = block->bytes - (size_t)(there - block->at);
    if (bytes > room || bytes > left)
        fail(file, line, "aclrtMemcpy of %lu bytes, where there is room for %lu", (unsigned long)bytes,
             (unsigned long)(bytes > room ? room : left));
    if (launched)
        fail(file, line, "aclrtMemcpy %s before aclrtSynchronizeStream",
             down ? "to what a kernel may still use" : "of a result");
    memcpy(to, from, bytes);
    return ACL_SUCCESS;
}

aclError rt_register_binary(const char *file, int line, const rtDevBinary_t *binary, void **handle)
{
    need_device("rtDevBinaryRegister", file, line);
    if (binary->magic != RT_DEV_BINARY_MAGIC_ELF)
        fail(file, line, "rtDevBinaryRegister of what is no ELF file");
    char name[] = "/tmp/tilewright-kernels-XXXXXX";
    const int place = mkstemp(name);
    if (place < 0 || write(place, binary->data, binary->length) != (ssize_t)binary->length)
        fail(file, line, "the device object cannot be written to %s", name);
    close(place);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    unlink(name);
    if (!library)
        fail(file, line, "rtDevBinaryRegister: %s", dlerror());
    *handle = library;
    return ACL_SUCCESS;
}

aclError rt_register_function(const char *file, int line, void *handle, const void *stub,
                              const char *name, const void *function_name, uint32_t mode)
{
    (void)function_name, (void)mode;
    need_device("rtFunctionRegister", file, line);
    if (!library || handle != library)
        fail(file, line, "rtFunctionRegister before rtDevBinaryRegister");
    void *function = dlsym(library, name);
    if (!function)
        fail(file, line, "the device object has no function %s", name);
    if (function_count == MOST_FUNCTIONS)
        fail(file, line, "more than %d functions", MOST_FUNCTIONS);
    functions[function_count].stub = stub;
    functions[function_count++].function = function;
    return ACL_SUCCESS;
}

typedef void *p;

static void call(void *function, p *a, size_t count)
{
    switch (count) {
    case 1: ((void (*)(p))function)(a[0]); break;
    case 2: ((void (*)(p, p))function)(a[0], a[1]); break;
    case 3: ((void (*)(p, p, p))function)(a[0], a[1], a[2]); break;
    case 4: ((void (*)(p, p, p, p))function)(a[0], a[1], a[2], a[3]); break;
    case 5: ((void (*)(p, p, p, p, p))function)(a[0], a[1], a[2], a[3], a[4]); break;
    case 6: ((void (*)(p, p, p, p, p, p))function)(a[0], a[1], a[2], a[3], a[4], a[5]); break;
    case 7:
        ((void (*)(p, p, p, p, p, p, p))function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
        break;
    default:
        ((void (*)(p, p, p, p, p, p, p, p))function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
    }
}

aclError rt_launch(const char *file, int line, const void *stub, uint32_t block_dim,
                   void *arguments, uint32_t bytes, void *memory, aclrtStream stream)
{
    (void)memory;
    need_stream(stream, "rtKernelLaunch", file, line);
    void *function = NULL;
    for (int i = 0; i < function_count; i++)
        if (functions[i].stub == stub)
            function = functions[i].function;
    if (!function)
        fail(file, line, "rtKernelLaunch of a function that is not registered");
    const size_t count = bytes / sizeof(p);
    if (!block_dim || block_dim > MOST_DIM || !count || count > 8 || bytes % sizeof(p))
        fail(file, line, "rtKernelLaunch on %u blocks, of %u bytes of arguments", block_dim, bytes);
    static const uint64_t sizes[5] = CORE_MEMORIES;
    cce_core(sizes, CORE_EVENTS, 0, CORE_BARRIER_BLOCKS);
    cce_begin(0);
    for (size_t i = 0; i < count; i++) {
        char *at = ((char **)arguments)[i], name[24];
        if (i && (uintptr_t)at - 1 < MOST_SIZE)
            continue; /* A size: no memory begins so low. */
        struct block *block = block_of(at);
        if (!block)
            fail(file, line, "rtKernelLaunch: argument %lu is no memory of the device", (unsigned long)i + 1);
        snprintf(name, sizeof name, "argument %lu", (unsigned long)i + 1);
        cce_region(name, at, block->bytes - (size_t)(at - block->at));
    }
    /* Cores take blocks in no order that a kernel may count on; here they come one by one, and what
       one writes and another touches is a problem. */
    for (uint32_t i = 0; i < block_dim; i++) {
        cce_next(i, block_dim);
        call(function, arguments, count);
    }
    const int problems = cce_end();
    if (problems)
        fail(file, line, "rtKernelLaunch: %s", cce_message(0));
    launched = 1;
    return ACL_SUCCESS;
}

aclError acl_reset_device(const char *file, int line, int device)
{
    need_device("aclrtResetDevice", file, line);
    if (device != 0)
        fail(file, line, "there is no device %d", device);
    if (stream_there)
        fail(file, line, "aclrtResetDevice before aclrtDestroyStream");
    if (block_count)
        fail(file, line, "aclrtResetDevice, and %d allocations are not free, the first of %s:%d", block_count,
             blocks[0].file, blocks[0].line);
    device_set = 0;
    return ACL_SUCCESS;
}

aclError acl_finalize(const char *file, int line)
{
    if (!initialised)
        fail(file, line, "aclFinalize before aclInit");
    if (device_set)
        fail(file, line, "aclFinalize before aclrtResetDevice");
    initialised = 0;
    return ACL_SUCCESS;
}
