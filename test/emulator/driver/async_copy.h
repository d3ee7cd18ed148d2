// Asynchronous copies of one thread, from global to shared memory.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

namespace emulator {

struct AsyncCopy {
  void *target;
  const void *source;
  unsigned bytes, zeros;

  void run() const {
    if (bytes) std::memcpy(target, source, bytes);
    std::memset(static_cast<char *>(target) + bytes, 0, zeros);
  }
};

// Copies that happen when their group is awaited, which is as late as hardware may do them. If the
// order is backwards they happen at once instead, which is as early.
class AsyncCopies {
 public:
  void clear() {
    open_.clear();
    groups_.clear();
  }
  void add(const AsyncCopy &copy) { open_.push_back(copy); }
  void commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  // Does the copies of all groups but the `in_flight` last, and calls `before` with each.
  template <class Before>
  void await(unsigned in_flight, Before before) {
    for (; groups_.size() > in_flight; groups_.pop_front()) {
      for (const AsyncCopy &copy : groups_.front()) {
        before(copy);
        copy.run();
      }
    }
  }

 private:
  std::vector<AsyncCopy> open_;
  std::deque<std::vector<AsyncCopy>> groups_;
};

}  // namespace emulator
