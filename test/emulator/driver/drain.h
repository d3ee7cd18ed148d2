// The order in which the work of streams runs, once somebody waits for some of it.
#pragma once

#include <map>
#include <vector>

#include "stream.h"

namespace emulator {

// Runs what a point of a stream needs: the work of its stream before it, and what that waits for.
//
// Nothing else runs, so what the caller does not wait for is late. In the other order all other
// work runs before it, as early as what it waits for allows: a missing wait between two streams
// shows in one order or the other.
class Drain {
 public:
  explicit Drain(const Point &point);
  void run();

 private:
  void require(const Point &point);
  bool is_required(const Stream &stream) const;
  bool run_piece(bool required);

  const Point target_;
  std::vector<Stream *> streams_;              // those of all devices
  std::map<const Stream *, uint64_t> needed_;  // how many pieces of work of each
};

}  // namespace emulator
