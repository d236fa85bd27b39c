/* What host code of Ascend processors calls, as far as emitted host code does: ACL and the runtime
   below it. acl.c implements it on a host, where it ends the program at the first misuse: a call in
   the wrong order, bytes beyond an allocation, what was freed or is never freed, a result that is
   copied before the stream has ended. On an Ascend processor the vendor's headers stand here. */
#ifndef ACL_H
#define ACL_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef void *aclrtStream;
typedef enum { ACL_MEM_MALLOC_HUGE_FIRST } aclrtMemMallocPolicy;
typedef enum { ACL_MEMCPY_HOST_TO_DEVICE = 1, ACL_MEMCPY_DEVICE_TO_HOST = 2 } aclrtMemcpyKind;
typedef struct {
    uint32_t magic;
    uint32_t version;
    const void *data;
    uint64_t length;
} rtDevBinary_t;

#define ACL_SUCCESS 0
#define RT_DEV_BINARY_MAGIC_ELF 0x43554245U

aclError acl_init(const char *file, int line, const char *config);
aclError acl_finalize(const char *file, int line);
aclError acl_set_device(const char *file, int line, int device);
aclError acl_reset_device(const char *file, int line, int device);
aclError acl_create_stream(const char *file, int line, aclrtStream *stream);
aclError acl_destroy_stream(const char *file, int line, aclrtStream stream);
aclError acl_synchronize(const char *file, int line, aclrtStream stream);
aclError acl_malloc(const char *file, int line, void **at, size_t bytes,
                    aclrtMemMallocPolicy policy);
aclError acl_free(const char *file, int line, void *at);
aclError acl_memcpy(const char *file, int line, void *to, size_t room, const void *from,
                    size_t bytes, aclrtMemcpyKind kind);
aclError rt_register_binary(const char *file, int line, const rtDevBinary_t *binary, void **handle);
aclError rt_register_function(const char *file, int line, void *handle, const void *stub,
                              const char *name, const void *function_name, uint32_t mode);
aclError rt_launch(const char *file, int line, const void *stub, uint32_t blocks, void *arguments,
                   uint32_t bytes, void *memory, aclrtStream stream);

#define aclInit(...) acl_init(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtSetDevice(...) acl_set_device(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtResetDevice(...) acl_reset_device(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtCreateStream(...) acl_create_stream(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtDestroyStream(...) acl_destroy_stream(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtSynchronizeStream(...) acl_synchronize(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtMalloc(...) acl_malloc(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtFree(...) acl_free(__FILE__, __LINE__, __VA_ARGS__)
#define aclrtMemcpy(...) acl_memcpy(__FILE__, __LINE__, __VA_ARGS__)
#define rtDevBinaryRegister(...) rt_register_binary(__FILE__, __LINE__, __VA_ARGS__)
#define rtFunctionRegister(...) rt_register_function(__FILE__, __LINE__, __VA_ARGS__)
#define rtKernelLaunch(...) rt_launch(__FILE__, __LINE__, __VA_ARGS__)
#define aclFinalize() acl_finalize(__FILE__, __LINE__)

#endif
