// What the warps of a cluster know of each other: of which accesses they have been told that these
// are past. A warp that arrives at an mbarrier tells what it knows; who waits for it is told.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace emulator {

struct WarpMoment {
  size_t warp;
  uint32_t time;
};

class Order {
 public:
  // A moment of each warp, of which those before are known to be past.
  using Moments = std::vector<uint32_t>;

  void start(size_t warps) {
    now_.assign(warps, 1);
    known_.assign(warps, Moments(warps));
  }
  WarpMoment now(size_t warp) const { return {warp, now_[warp]}; }
  // What a warp tells when it arrives. What it does from then on is later.
  Moments tell(size_t warp) {
    Moments told = known_[warp];
    told[warp] = now_[warp]++;
    return told;
  }
  void be_told(size_t warp, const Moments &told) { merge(known_[warp], told); }
  bool is_past(size_t warp, WarpMoment moment) const {
    return warp == moment.warp || known_[warp][moment.warp] >= moment.time;
  }
  // A barrier of some warps.
  void meet(size_t first, size_t end) {
    Moments told(now_.size());
    for (size_t warp = first; warp < end; warp++) merge(told, tell(warp));
    for (size_t warp = first; warp < end; warp++) be_told(warp, told);
  }

  static void merge(Moments &into, const Moments &other) {
    into.resize(std::max(into.size(), other.size()));
    for (size_t i = 0; i < other.size(); i++) into[i] = std::max(into[i], other[i]);
  }

 private:
  std::vector<uint32_t> now_;
  std::vector<Moments> known_;
};

}  // namespace emulator
