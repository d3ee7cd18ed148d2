/* The interface of the worker pool. */
#ifndef POOL_H
#define POOL_H

#include <stdint.h>

/* A kernel computes the items [begin, end) of its grid. `buffers` is an array of addresses, `values`
 * an array of 64-bit integers. */
typedef void Kernel(void *buffers, const void *values, int64_t begin, int64_t end);

/* Sets the number of threads, the launching one included, and how long idle workers poll before they
 * sleep. Workers start at the first launch. Allowed before any launch, after pool_stop(), and in a
 * child of fork(), where no worker exists. */
void pool_reset(int32_t threads, int64_t spin_ns);

/* Ends the workers. Launches then run in the launching thread, until pool_reset(). */
void pool_stop(void);

/* Runs a kernel over [0, grid) and returns when it is done. Any thread may call it; concurrent
 * launches run one after the other. A kernel must not launch. */
void pool_launch(Kernel *kernel, void *buffers, const void *values, int64_t grid);

#endif
