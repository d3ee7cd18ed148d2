// Checks of each access of a kernel: bounds, owner, and races between threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../kernel/interface.h"
#include "shadow.h"

namespace emulator {

// What a block's thread may touch besides device memory.
struct BlockMemory {
  SharedRange static_shared, dynamic_shared, module;
  int device;
};

class Checks {
 public:
  void start_launch();
  void start_block(const BlockMemory &memory, unsigned warp);
  void pass_barrier();
  void warp_fence(unsigned thread);
  void note_atomic() { has_atomics_ = true; }

  // What is wrong with an access, or nothing.
  std::string check(const void *address, size_t bytes, bool is_write, unsigned thread);
  // Likewise of a write to shared memory by a copy, whose readers wait for an mbarrier.
  std::string check_copy(const void *address, size_t bytes, unsigned thread);

 private:
  std::string check_shared(Shadow &shadow, SharedRange range, const char *at, size_t bytes,
                           bool is_write, unsigned thread);
  std::string check_global(const char *at, size_t bytes, bool is_write, unsigned thread);
  Moment now(unsigned thread) const;

  BlockMemory memory_{};
  std::unique_ptr<Shadow> static_shadow_, dynamic_shadow_;
  size_t static_bytes_ = 0, dynamic_bytes_ = 0;
  std::vector<uint32_t> warp_times_;
  unsigned warp_ = 32;
  uint32_t launch_start_ = 0, block_start_ = 0;
  bool has_atomics_ = false;
};

// Whether a kernel of a device may use an allocation: its own, pinned, or of a peer.
bool is_accessible(int device, int owner);

}  // namespace emulator
