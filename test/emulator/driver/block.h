// The threads of a block: one runs at a time, on a stack of its own.
#pragma once

#include <string>
#include <vector>

#include "../kernel/interface.h"
#include "async_copy.h"
#include "checks.h"
#include "fiber.h"

namespace emulator {

// What the blocks of a launch have in common.
struct BlockLaunch {
  const KernelInfo *kernel;
  void **parameters;
  Dim3 grid, size;
  size_t dynamic_shared;
  SharedRange static_shared;
  SharedRange code;  // the module's own data, constants among them
  int device;
  bool backwards;
};

// Runs blocks one after the other. A warp runs as far as it can before the next one does, so what
// needs a barrier and has none goes wrong. There is one for each thread of the operating system.
class Block {
 public:
  // Runs a block to its end. Returns what went wrong, or nothing.
  std::string run(const BlockLaunch &launch, Dim3 at);
  void start_launch() { checks_.start_launch(); }

  // The thread that runs now, for errors: "block (0, 0, 0), thread 3".
  std::string describe_current() const;
  std::string describe_fault(const void *address) const;

  static Block &mine();
  static const Services services;

 private:
  enum class State { ready, at_barrier, meeting, finished };
  struct Task {
    State state;
    Site site;
    uint64_t lanes;
    void *record;
    WarpOperation operation;
    char *stack;  // null before it has started and after it has finished
    void *stack_pointer;
    AsyncCopies copies;
  };

  void start(const BlockLaunch &launch, Dim3 at);
  bool run_warp(size_t warp);
  bool run_ready_lanes(size_t first, size_t end);
  bool complete_meeting(size_t first, size_t end);
  bool release_barrier();
  void resume(size_t index);
  void prepare(size_t index);
  void wait(State state, Site site);
  std::string describe_divergence() const;
  std::string describe_task(const Task &task) const;
  void check(const void *address, size_t bytes, bool is_write);
  void check_copy(const AsyncCopy &copy);

  static void run_thread();
  static void barrier(Site site);
  static void meet(Site site, uint64_t lanes, void *record, WarpOperation operation);
  static void *dynamic_shared();
  static void copy_later(void *target, const void *source, unsigned bytes, unsigned zeros);
  static void commit_copies();
  static void await_copies(unsigned groups_in_flight);
  static void check_read(const void *address, size_t bytes);
  static void check_write(const void *address, size_t bytes);
  static void note_atomic();
  static void warp_fence();
  static void fail(const char *reason, unsigned line);

  const BlockLaunch *launch_ = nullptr;
  Dim3 at_{};
  std::vector<Task> tasks_;
  std::vector<char> shared_;
  StackPool stacks_;
  Checks checks_;
  void *scheduler_ = nullptr;  // its stack pointer while a thread runs
  size_t current_ = 0;
  uint64_t run_ = 0;
  size_t finished_ = 0;
  std::string failure_;
};

}  // namespace emulator
