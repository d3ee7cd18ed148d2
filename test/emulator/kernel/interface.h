// What a compiled kernel and the emulated driver know of each other.
//
// A kernel's module is a shared object without undefined symbols of the emulator: it finds its
// thread from the address of its stack, and the driver fills in `emulated_services` when it loads
// the module.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace emulator {

struct Dim3 {
  unsigned x, y, z;
};

// A place in a kernel's text where threads meet. The number is unique in a module.
struct Site {
  unsigned number;
  unsigned line;
};

// Called once for a warp when all lanes have met; `records` has one entry for each lane, null for
// lanes that take no part.
using WarpOperation = void (*)(void *const *records);

// The number of a thread's own block in a cluster.
constexpr unsigned OWN_BLOCK = ~0u;

// What the driver does for a running thread.
struct Services {
  // Waits for all threads of the block.
  void (*barrier)(Site site);
  // Waits for all `lanes` of the warp, a bit each, then runs the operation on their records.
  void (*meet)(Site site, uint64_t lanes, void *record, WarpOperation operation);
  // The dynamic shared memory of the block.
  void *(*dynamic_shared)();
  // Copies that happen when they are awaited, not before: `bytes` from memory, then zeros.
  void (*copy_later)(void *target, const void *source, unsigned bytes, unsigned zeros);
  void (*commit_copies)();
  void (*await_copies)(unsigned groups_in_flight);
  // An mbarrier, whose phases end when threads have said what bytes they expect and these have been
  // copied. Boxes of tensors are copied when they are awaited, not before: to this block, or to the
  // same place of the blocks of its cluster that have a bit.
  void (*make_mbarrier)(const void *mbarrier, unsigned arrivals);
  void (*fence_mbarriers)();
  void (*expect_bytes)(const void *mbarrier, unsigned bytes);
  void (*copy_box)(void *target, const void *mbarrier, const void *map, const int *coordinates,
                   unsigned rank, unsigned blocks);
  void (*await_mbarrier)(Site site, const void *mbarrier, unsigned parity);
  // An access of a kernel that was compiled with checks.
  void (*check_read)(const void *address, size_t bytes);
  void (*check_write)(const void *address, size_t bytes);
  // Atomic operations order what blocks do: their accesses are no races.
  void (*note_atomic)();
  // Orders the accesses of a warp, without waiting.
  void (*warp_fence)();
  // Stops the kernel with an error.
  void (*fail)(const char *reason, unsigned line);
  // Waits for all threads of all blocks of the cluster.
  void (*cluster_barrier)(Site site);
  // Arrives at the mbarrier at that place in a block of the cluster, or in the thread's own.
  void (*arrive)(const void *mbarrier, unsigned block);
  // Waits until four warps have come, and can have so many registers for each thread.
  void (*set_registers)(Site site, unsigned registers, bool is_more);
};

// One thread of a block.
struct Thread {
  Dim3 thread, block, block_size, grid_size;
  unsigned index;  // in its block
  unsigned lane, warp;
  uint64_t run;  // the number of its block, among all that run in this process
};

// A stack is aligned to its size, and its thread's record lies at its upper end.
constexpr size_t STACK_BYTES = 64 << 10;
constexpr size_t RECORD_BYTES = 128;
static_assert(sizeof(Thread) <= RECORD_BYTES);

// What a module says of each of its kernels, in the symbol NAME__kernel.
struct KernelInfo {
  void (*entry)(void **parameters);
  const unsigned *parameter_bytes;
  unsigned parameters;
  unsigned max_threads;
  unsigned cluster;  // blocks that run together
  unsigned warp;
  unsigned checked;       // whether each access is checked
  unsigned shared_bytes;  // how much shared memory it may have without asking for more
  unsigned takes_subnormals_for_zero;
};

// The static shared memory of a module, in the symbol emulated_shared.
struct SharedRange {
  char *begin, *end;
};

}  // namespace emulator
