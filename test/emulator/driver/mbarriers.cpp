#include "mbarriers.h"

#include <algorithm>

#include "report.h"

namespace emulator {

namespace {

constexpr int64_t MAX_BYTES = (1 << 20) - 1;

bool is_aligned(const void *address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace

std::string MBarriers::init(const void *address, unsigned arrivals, size_t thread,
                            WarpMoment moment) {
  if (!is_aligned(address, 8)) return "the address of an mbarrier is not a multiple of 8";
  if (all_.count(address)) return "an mbarrier is made twice";
  State &state = all_[address] = {};
  state.arrivals = state.missing = arrivals;
  state.maker = thread;
  state.made = moment;
  state.known.resize(threads_);
  return "";
}

void MBarriers::fence(size_t thread) {
  for (auto &[address, state] : all_) state.is_fenced |= state.maker == thread;
}

std::string MBarriers::check(const void *address, const Order &order, size_t warp) const {
  auto found = all_.find(address);
  if (found == all_.end()) return "it uses an mbarrier that no mbarrier_init() has made";
  bool is_known = order.is_past(warp, found->second.made);
  return is_known ? "" : "it uses an mbarrier that another warp made, and has not waited for that";
}

std::string MBarriers::arrive(const void *address, unsigned bytes, Order &order, size_t warp) {
  if (std::string wrong = check(address, order, warp); !wrong.empty()) return wrong;
  State &state = all_[address];
  if (!state.missing) return "more threads arrive in a phase of an mbarrier than it was made for";
  state.missing--;
  Order::merge(state.arrived, order.tell(warp));
  state.bytes += bytes;
  if (state.bytes > MAX_BYTES) return "a phase of an mbarrier expects more than 2^20 - 1 bytes";
  end_phase_if_complete(state);
  return "";
}

bool MBarriers::is_target(const void *address, const void *target) const {
  auto state = all_.find(address);
  return state != all_.end() && state->second.targets.count(static_cast<const char *>(target));
}

std::string MBarriers::begin(const void *address, const BoxCopy &copy, bool at_once,
                             const Order &order, size_t warp) {
  if (std::string wrong = check(address, order, warp); !wrong.empty()) return wrong;
  State &state = all_[address];
  if (!state.is_fenced) return "a copy uses an mbarrier whose making no async_fence() follows";
  if (!is_aligned(copy.target, SWIZZLED_ROW_BYTES))
    return "a box is copied to an address that is not a multiple of 128";
  for (const auto &[reader, time] : state.targets[copy.target].readers) {
    if (!order.is_past(warp, {reader, time}))
      return "race: a box is copied to memory that another warp may still be reading";
  }
  state.targets[copy.target] = {copy.map.bytes(), state.phase, {}};
  if (at_once) return copy_now(state, copy);
  state.copies.push_back(copy);
  return "";
}

std::string MBarriers::run_copy(const void *address) {
  State &state = all_.at(address);
  BoxCopy copy = state.copies.front();
  state.copies.pop_front();
  return copy_now(state, copy);
}

std::string MBarriers::copy_now(State &state, const BoxCopy &copy) {
  copy.run();
  state.bytes -= static_cast<int64_t>(copy.map.bytes());
  if (!state.missing && state.bytes < 0) return "more bytes are copied than an mbarrier expects";
  end_phase_if_complete(state);
  return "";
}

void MBarriers::end_phase_if_complete(State &state) {
  if (state.missing || state.bytes) return;
  state.phase++;
  state.missing = state.arrivals;
  Order::merge(state.told, state.arrived);
  state.arrived.clear();
}

bool MBarriers::is_past(const void *address, unsigned parity) const {
  return (all_.at(address).phase & 1) != parity;
}

void MBarriers::note_wait(const void *address, size_t thread) {
  State &state = all_.at(address);
  state.known[thread] = state.phase;
}

void MBarriers::pass_barrier() {
  for (auto &[address, state] : all_) {
    uint64_t most = *std::max_element(state.known.begin(), state.known.end());
    state.known.assign(state.known.size(), most);
  }
}

std::string MBarriers::check_read(const void *memory, size_t thread, WarpMoment moment) {
  const char *at = static_cast<const char *>(memory);
  for (auto &[address, state] : all_) {
    auto after = state.targets.upper_bound(at);
    if (after == state.targets.begin()) continue;
    auto &[begin, target] = *std::prev(after);
    if (at >= begin + target.bytes) continue;
    if (state.known[thread] <= target.phase)
      return "race: it reads a box that is copied, and has not waited for the mbarrier";
    target.readers[moment.warp] = moment.time;
  }
  return "";
}

std::string MBarriers::describe(const void *address) const {
  const State &state = all_.at(address);
  return format("%u threads and %lld bytes", state.missing, static_cast<long long>(state.bytes));
}

std::string MBarriers::unfinished() const {
  for (const auto &[address, state] : all_) {
    if (!state.copies.empty() || state.bytes || state.missing != state.arrivals)
      return "the block ends before " + describe(address) + " that an mbarrier waits for";
  }
  return "";
}

}  // namespace emulator
