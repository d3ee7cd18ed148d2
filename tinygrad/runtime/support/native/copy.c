/* Copies, as a kernel of the worker pool. */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "platform.h"

/* From this size on, copies bypass the caches: both ends together are larger than most last-level
 * caches, and a plain store first reads the cache line that it overwrites. */
enum { STREAM_BYTES = 32 << 20 };

typedef uint8_t Line __attribute__((vector_size(CACHE_LINE)));
typedef Line UnalignedLine __attribute__((aligned(1)));

/* Copies whole cache lines to an aligned address, past the caches. */
static void stream_lines(char *to, const char *from, int64_t nbytes) {
  for (int64_t i = 0; i < nbytes; i += CACHE_LINE) {
    Line line = *(const UnalignedLine *)(from + i);
#if __has_builtin(__builtin_nontemporal_store)
    __builtin_nontemporal_store(line, (Line *)(to + i));
#else
    *(Line *)(to + i) = line;
#endif
  }
}

/* Buffers: destination and source. Values: the bytes in all, and the bytes of an item of the grid.
 * The ranges may overlap only if one item covers everything. */
void copy_kernel(void *buffers, const void *values, int64_t begin, int64_t end) {
  char *to = ((char **)buffers)[0];
  const char *from = ((char **)buffers)[1];
  int64_t nbytes = ((const int64_t *)values)[0], item_bytes = ((const int64_t *)values)[1];
  int64_t first = begin * item_bytes, last = end * item_bytes;
  if (last > nbytes) last = nbytes;

  int64_t distance = (int64_t)((uintptr_t)to - (uintptr_t)from);
  int disjoint = (distance < 0 ? -distance : distance) >= nbytes;
  int aligned = (uintptr_t)(to + first) % CACHE_LINE == 0;
  if (nbytes >= STREAM_BYTES && disjoint && aligned) {
    int64_t line_bytes = (last - first) & -(int64_t)CACHE_LINE;
    stream_lines(to + first, from + first, line_bytes);
    first += line_bytes;
  }
  memmove(to + first, from + first, (size_t)(last - first));
  /* What ends a kernel does not order streaming stores. */
  atomic_thread_fence(memory_order_seq_cst);
}
