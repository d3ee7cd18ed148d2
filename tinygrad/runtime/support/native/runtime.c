/* The native part of the CPU runtime, as one translation unit: only the entry points are visible. */
#include "pool.c"
#include "replay.c"
#include "copy.c"
