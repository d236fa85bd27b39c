/* Main memory and LDM.

   Each allocation of the MPE has a page behind it that nobody may touch. LDM is the section
   "shim_ldm", which the linker puts apart from everything: the pages of the CPE that runs are mapped
   there. The section ends with `behind_ldm`, so that LDM is whole whatever variables it has, and that
   nobody writes what lies behind. Words of main memory know who wrote and read them since the last athread_syn of all CPEs,
   and which core groups did since all of these last met. */
#include "internal.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST_BLOCKS = 256,
    SEVERAL = 255 /* CPEs, or core groups, have read a word */
};

extern char __start_shim_ldm[], __stop_shim_ldm[];

static char behind_ldm[SHIM_LDM_BYTES]
    __attribute__((section("shim_ldm"), aligned(SHIM_LDM_BYTES)));

static struct memory blocks[MOST_BLOCKS];
static int block_count;
static __thread char *mpe_frame; /* the stack's end at the last spawn: parameters lie above */
static int ldm_file = -1;

void *shim_malloc(size_t bytes)
{
    struct place nowhere = {"malloc", 0};
    if (block_count == MOST_BLOCKS)
        fail(nowhere, "more than %d allocations", MOST_BLOCKS);
    struct memory *block = &blocks[block_count];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page;
    /* A page that nobody may touch lies behind each allocation. */
    char *data = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    if (size && mprotect(data + page, size, PROT_READ | PROT_WRITE))
        return NULL;
    block->data = data + page;
    block->bytes = bytes;
    block->writers = mmap(NULL, 4 * (size + page), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block->writers == MAP_FAILED)
        return NULL;
    block->readers = block->writers + (size + page) / 4;
    block->writing = block->readers + (size + page) / 4;
    block->reading = block->writing + (size + page) / 4;
    block_count++;
    poison(block->data, (long)size);
    return block->data;
}

void *shim_calloc(size_t count, size_t bytes)
{
    void *data = shim_malloc(count * bytes);
    if (data)
        memset(data, 0, count * bytes);
    return data;
}

void shim_free(void *memory)
{
    for (int number = 0; number < block_count; number++)
        if (blocks[number].data == memory)
            blocks[number].bytes = 0;
}

const struct memory *memory_of(const char *start, long bytes)
{
    for (int number = 0; number < block_count; number++) {
        const struct memory *block = &blocks[number];
        if (start >= block->data && start + bytes <= block->data + block->bytes)
            return block;
    }
    return NULL;
}

int number_of(const struct memory *memory)
{
    return (int)(memory - blocks);
}

int in_main_memory(const char *start, long bytes)
{
    return memory_of(start, bytes)
        || (start >= mpe_frame && start + bytes <= mpe_frame + (1 << 20));
}

void enter_kernel(char *frame)
{
    mpe_frame = frame;
}

/* Bytes from the start of the CPEs' variables to a place; -1 on the stack. */
long ldm_offset(const char *place)
{
    const long offset = place - __start_shim_ldm;
    return offset >= 0 && offset < SHIM_LDM_BYTES ? offset : -1;
}

int in_ldm(const char *start, long bytes)
{
    const char *stack = cpes[current].stack;
    if (start >= __start_shim_ldm && start + bytes <= __start_shim_ldm + SHIM_LDM_BYTES)
        return 1;
    return start >= stack && start + bytes <= stack + STACK_BYTES;
}

void map_ldm(int cpe)
{
    void *place = mmap(__start_shim_ldm, SHIM_LDM_BYTES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, ldm_file,
                       (off_t)((group < 0 ? 0 : group) * SHIM_CPES + cpe) * SHIM_LDM_BYTES);
    if (place != __start_shim_ldm) {
        perror("shim: mmap");
        _Exit(3);
    }
}

void open_ldm(void)
{
    if (ldm_file >= 0)
        return; /* Threads without a layer may halt before others begin. */
    struct place here = {"athread_init", 0};
    /* Numbers: of pointers, the compiler knows that they are to different objects. */
    volatile uintptr_t start = (uintptr_t)__start_shim_ldm, stop = (uintptr_t)__stop_shim_ldm;
    volatile uintptr_t behind = (uintptr_t)behind_ldm;
    if (stop != behind + sizeof behind_ldm)
        fail(here, "the shim's memory.c is linked in front of variables in LDM");
    if (behind > start + SHIM_LDM_BYTES)
        fail(here, "variables in LDM take more than the %d bytes that it has", SHIM_LDM_BYTES);
    /* Sanitizers look for pointers in it: it can be read, and holds no numbers. */
    poison(behind_ldm, sizeof behind_ldm);
    if (mprotect(behind_ldm, sizeof behind_ldm, PROT_READ))
        fail(here, "what lies behind LDM cannot be protected");
    if ((ldm_file = memfd_create("ldm", 0)) < 0
        || ftruncate(ldm_file, (off_t)SHIM_GROUPS * SHIM_CPES * SHIM_LDM_BYTES))
        fail(here, "the system gives no memory for LDM");
}

void spoil_ldm(void)
{
    poison(__start_shim_ldm, SHIM_LDM_BYTES);
}

/* A mark of this core group on a word, beside another mark: whether the other is of the same
   meeting and of someone else. */
static int conflicts(uint32_t own, uint32_t other)
{
    return own >> 8 == other >> 8 && (other & 255) && own != other;
}

static void mark_group(struct place by, const struct memory *block, long first, long words,
                       int written)
{
    uint32_t mark = meetings << 8 | (uint32_t)(group + 1);
    for (long word = first; word < first + words; word++) {
        uint32_t *wrote = &block->writing[word], *read = &block->reading[word];
        if (conflicts(mark, *wrote))
            fail(by, "this %s what core group %d writes: they have not met between",
                 written ? "put writes" : "get reads", (int)(*wrote & 255) - 1);
        if (written && conflicts(mark, *read))
            fail(by, "this put writes what another core group reads: they have not met between");
        if (written)
            *wrote = mark;
        else
            *read = conflicts(mark, *read) ? meetings << 8 | SEVERAL : mark;
    }
}

void mark_written(struct place by, const char *start, long bytes)
{
    const struct memory *block = memory_of(start, bytes);
    uint32_t mark = epoch << 8 | (uint32_t)(current + 1);
    if (!block)
        return;
    if (group >= 0)
        mark_group(by, block, (start - block->data) / 4, bytes / 4, 1);
    uint32_t *writers = block->writers + (start - block->data) / 4;
    const uint32_t *readers = block->readers + (start - block->data) / 4;
    for (long word = 0; word < bytes / 4; word++) {
        uint32_t before = writers[word], read = readers[word];
        if (before >> 8 == mark >> 8 && before != mark)
            fail(by, "this put writes what CPE %d has written, too", (int)(before & 255) - 1);
        if (read >> 8 == mark >> 8 && read != mark)
            fail(by, "this put writes what another CPE reads");
        writers[word] = mark;
    }
}

void mark_read(struct place by, const char *start, long bytes)
{
    const struct memory *block = memory_of(start, bytes);
    uint32_t mark = epoch << 8 | (uint32_t)(current + 1);
    if (!block)
        return;
    if (group >= 0)
        mark_group(by, block, (start - block->data) / 4, bytes / 4, 0);
    const uint32_t *writers = block->writers + (start - block->data) / 4;
    uint32_t *readers = block->readers + (start - block->data) / 4;
    for (long word = 0; word < bytes / 4; word++) {
        uint32_t wrote = writers[word];
        if (wrote >> 8 == mark >> 8 && wrote != mark)
            fail(by, "this get reads what CPE %d writes", (int)(wrote & 255) - 1);
        readers[word] = readers[word] >> 8 == mark >> 8 && readers[word] != mark
                            ? epoch << 8 | SEVERAL
                            : mark;
    }
}
