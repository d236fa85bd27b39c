/* The region of LDM in which all layers keep their tiles. */
#include "cpe.h"

__thread_local char ldm[LDM_BYTES] __attribute__((aligned(32)));
