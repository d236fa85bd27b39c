/* slave.h for the host: what CPE programs include. */
#ifndef SLAVE_H
#define SLAVE_H

#include "shim.h"

/* Such variables lie in LDM: the section is mapped for each CPE anew. */
#define __thread_local __attribute__((section("shim_ldm")))

typedef enum { PE_MODE, BCAST_MODE, ROW_MODE, BROW_MODE, RANK_MODE } dma_mode;
typedef enum { ROW_SCOPE, COL_SCOPE, ARRAY_SCOPE } scope;

#define athread_get_id(which) ((void)(which), shim_id())
#define _MYID shim_id()
#define _ROW (shim_id() / SHIM_SIDE)
#define _COL (shim_id() % SHIM_SIDE)

#define athread_get(mode, source, target, bytes, reply, mask, stride, block) \
    shim_get(mode, source, target, bytes, reply, mask, stride, block, SHIM_HERE)
#define athread_put(mode, source, target, bytes, reply, stride, block) \
    shim_put(mode, source, target, bytes, reply, stride, block, SHIM_HERE)
#define athread_syn(scope, mask) shim_syn(scope, mask, SHIM_HERE)

#endif
