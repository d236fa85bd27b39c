/* What the shim's athread.h, slave.h, simd.h and dma.h share; see shim.c. Programs do not include
   this file themselves. */
#ifndef SHIM_H
#define SHIM_H

#include <stddef.h>

#define SHIM_HERE __FILE__, __LINE__

enum { SHIM_CPES = 64, SHIM_SIDE = 8, SHIM_LDM_BYTES = 65536, SHIM_GROUPS = 4 };

/* The MPE's side. */
int shim_init(void);
void shim_spawn(void (*function)(void *), void *argument, const char *file, int line);
void shim_join(const char *file, int line);
void shim_halt(void);
int shim_bind(size_t bytes, const void *processors); /* this thread to a core group's MPE */
int shim_meet(void *barrier);                        /* of all core groups */
void *shim_malloc(size_t bytes);
void *shim_calloc(size_t count, size_t bytes);
void shim_free(void *memory);

/* The CPEs' side. */
int shim_id(void);
int shim_get(int mode, const void *source, void *target, long bytes, volatile void *reply,
             int mask, long stride, long block, const char *file, int line);
int shim_put(int mode, const void *source, void *target, long bytes, volatile void *reply,
             long stride, long block, const char *file, int line);
void shim_wait(volatile void *reply, int count, const char *file, int line);
void shim_syn(int scope, int mask, const char *file, int line);

/* Says that a vector of so many bytes is loaded or stored at no multiple of them. */
void shim_misplaced(const void *place, size_t bytes, const char *file, int line)
    __attribute__((noreturn));

/* Cycles that the CPE computes for; see count.c. Emitted files never say so: a runner that counts
   puts it in front of their calls. */
void shim_charge(double cycles);
void shim_charge_all(double cycles);

/* Register communication: 32 bytes to a CPE of the row or column; 8 is all others there. */
void shim_send(int column, const void *vector, int target, const char *file, int line);
void shim_receive(int column, void *vector, const char *file, int line);

#endif
