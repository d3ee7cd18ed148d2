// Device memory and pinned host memory: whose it is, and where it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "shadow.h"

namespace emulator {

constexpr int HOST = -1;

struct Allocation {
  char *begin;
  size_t bytes;
  int device;  // the owner, or HOST
  // the pages of the allocation, with an inaccessible one on either side
  char *mapping;
  size_t mapped_bytes;
  std::unique_ptr<Shadow> shadow;  // made by the first kernel with checks

  bool contains(const void *address, size_t count) const {
    const char *at = static_cast<const char *>(address);
    return begin <= at && count <= bytes && at + count <= begin + bytes;
  }
};

// New memory, filled with ones: a float that nobody wrote is NaN. Null if the limit is reached.
Allocation *allocate(int device, size_t bytes);
bool release(const void *begin);

// Host memory that its owner registers as pinned.
void register_host(void *begin, size_t bytes);
bool unregister_host(void *begin);

// The allocation that holds the address, or whose inaccessible pages do. Null if there is none.
Allocation *find_allocation(const void *address);

// How far the padding between the end of the allocation and that of its page was written, 0 if
// nowhere. Restores the padding.
size_t take_writes_past_end(const Allocation &allocation);

// Where an address is, for an error: "4 bytes past the end of the 1024 bytes at 0x... of device 1".
std::string describe(const void *address);

struct MemoryInfo {
  size_t free, total;
};
MemoryInfo memory_info(int device);
void set_memory_limit(int device, size_t bytes);

}  // namespace emulator
