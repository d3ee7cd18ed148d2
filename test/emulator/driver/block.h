// The threads of a block: one runs at a time, on a stack of its own.
#pragma once

#include <string>
#include <vector>

#include "../kernel/interface.h"
#include "async_copy.h"
#include "checks.h"
#include "fiber.h"
#include "mbarriers.h"
#include "registers.h"

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

// Runs blocks one after the other, those of a cluster together. A warp, or a block of a cluster,
// runs as far as it can before the next one does, so what needs a barrier and has none goes wrong.
class Block {
 public:
  // Runs the blocks of a cluster to their end. Returns what went wrong, or nothing.
  static std::string run(const std::vector<BlockLaunch> &launches, const std::vector<Dim3> &at);
  static void start_launch();

  // The thread that runs now, for errors: "block (0, 0, 0), thread 3".
  std::string describe_current() const;
  std::string describe_fault(const void *address) const;

  // The block that this thread of the operating system runs now.
  static Block &mine();
  static const Services services;

 private:
  enum class State { ready, at_barrier, at_cluster_barrier, at_mbarrier, at_registers, meeting, finished };
  struct Task {
    State state;
    Site site;
    uint64_t lanes;
    void *record;
    WarpOperation operation;
    const void *mbarrier;
    unsigned parity;
    unsigned registers;  // that it waits for
    char *stack;  // null before it has started and after it has finished
    void *stack_pointer;
    AsyncCopies copies;
  };

  void start(const BlockLaunch &launch, Dim3 at);
  bool is_finished() const { return finished_ == tasks_.size(); }
  bool advance();
  static bool release_cluster_barrier();
  bool run_warp(size_t warp);
  bool run_ready_lanes(size_t first, size_t end);
  bool complete_meeting(size_t first, size_t end);
  bool release_barrier();
  bool release_mbarriers();
  bool release_registers();
  size_t warp_in_cluster() const;
  void resume(size_t index);
  void prepare(size_t index);
  void wait(State state, Site site);
  std::string describe_divergence() const;
  std::string describe_task(const Task &task) const;
  void check(const void *address, size_t bytes, bool is_write);
  void check_copy(const AsyncCopy &copy);
  void check_source(const BoxCopy &copy);
  std::string check_target(const BoxCopy &copy, const void *mbarrier, unsigned thread);
  std::vector<SharedRange> shared_ranges() const;
  char *same_place(const void *address, const Block &in);
  void fail_if(const std::string &wrong);

  static void run_thread();
  static void barrier(Site site);
  static void meet(Site site, uint64_t lanes, void *record, WarpOperation operation);
  static void *dynamic_shared();
  char *dynamic_begin() const;
  static void cluster_barrier(Site site);
  static void copy_later(void *target, const void *source, unsigned bytes, unsigned zeros);
  static void commit_copies();
  static void await_copies(unsigned groups_in_flight);
  static void make_mbarrier(const void *mbarrier, unsigned arrivals);
  static void fence_mbarriers();
  static void expect_bytes(const void *mbarrier, unsigned bytes);
  static void arrive(const void *mbarrier, unsigned to);
  static void set_registers(Site site, unsigned registers, bool is_more);
  static void copy_box(void *target, const void *mbarrier, const void *map, const int *coordinates,
                       unsigned rank, unsigned blocks);
  static void await_mbarrier(Site site, const void *mbarrier, unsigned parity);
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
  MBarriers mbarriers_;
  RegisterPool registers_;
  size_t rank_ = 0;  // in its cluster
  void *scheduler_ = nullptr;  // its stack pointer while a thread runs
  size_t current_ = 0;
  uint64_t run_ = 0;
  size_t finished_ = 0;
  std::string failure_;
};

}  // namespace emulator
