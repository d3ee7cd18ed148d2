// The mbarriers of a block, and the bulk copies that complete their phases.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "order.h"
#include "tensor_map.h"

namespace emulator {

// A phase of an mbarrier ends when all threads have arrived and all bytes that they expect have
// been copied. Copies happen when somebody waits for them, which is as late as hardware may do
// them; if the order is backwards they happen at once instead, which is as early.
//
// What is wrong with a call is its result, or nothing.
class MBarriers {
 public:
  void clear(size_t threads) {
    all_.clear();
    threads_ = threads;
  }

  std::string init(const void *address, unsigned arrivals, size_t thread, WarpMoment moment);
  // Lets copies see the mbarriers that a thread has made.
  void fence(size_t thread);
  // A thread of a warp arrives, and expects so many bytes.
  std::string arrive(const void *address, unsigned bytes, Order &order, size_t warp);
  // A warp begins a copy.
  std::string begin(const void *address, const BoxCopy &copy, bool at_once, const Order &order,
                    size_t warp);
  // Whether an earlier copy had the same target, whose readers arrive at mbarriers.
  bool is_target(const void *address, const void *target) const;

  // Whether a warp may use an mbarrier: it knows that it was made.
  std::string check(const void *address, const Order &order, size_t warp) const;
  // A thread has waited for a phase that is past.
  void note_wait(const void *address, size_t thread);
  // All threads know of the phases that any of them has waited for.
  void pass_barrier();
  // What those told that have arrived in phases which are past.
  const Order::Moments &told(const void *address) const { return all_.at(address).told; }
  // Whether a thread may read memory: it knows that the copies to it are complete. It is noted as
  // a read of its warp at a moment.
  std::string check_read(const void *memory, size_t thread, WarpMoment moment);
  // Whether the phase of a number modulo 2 has ended, of the current one and that before.
  bool is_past(const void *address, unsigned parity) const;
  bool has_copies(const void *address) const { return !all_.at(address).copies.empty(); }
  std::string run_copy(const void *address);
  // What is missing, for errors.
  std::string describe(const void *address) const;
  // Copies that nobody has waited for when the block ends.
  std::string unfinished() const;

 private:
  struct Target {
    size_t bytes;
    uint64_t phase;  // the one that the last copy to it completes
    std::map<size_t, uint32_t> readers;  // the last read of each warp
  };
  struct State {
    unsigned arrivals, missing;
    size_t maker;
    WarpMoment made;
    bool is_fenced;
    int64_t bytes;
    uint64_t phase;
    std::deque<BoxCopy> copies;
    std::map<const char *, Target> targets;  // by where they begin
    std::vector<uint64_t> known;             // how many phases each thread knows to be past
    Order::Moments arrived, told;            // what was told in this phase, and in those before
  };
  static std::string copy_now(State &state, const BoxCopy &copy);
  static void end_phase_if_complete(State &state);

  std::map<const void *, State> all_;
  size_t threads_ = 0;
};

}  // namespace emulator
