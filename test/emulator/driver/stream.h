// Streams: lists of work that run only when somebody waits for them.
//
// So work is as late as hardware may do it, and a result that is read without a wait is missing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace emulator {

struct Context;
class Stream;

// A moment of a stream: when its first `number` pieces of work are done.
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t number = 0;

  bool is_reached() const;
  // Does the work up to this point.
  void wait() const;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(Context *context, bool is_blocking = true)
      : context(context), is_blocking(is_blocking) {}

  // Adds work, to be done after these points and all earlier work of the stream.
  Point push(std::function<void()> work, std::vector<Point> after = {});
  Point end() { return point(done_ + pending_.size()); }
  // When the next piece of work is done, or the end: a program that polls gets on by it.
  Point next() { return point(done_ + !pending_.empty()); }
  // Does the next piece of work, unless there is none or what it comes after is not done.
  bool run_one();

  uint64_t done() const { return done_; }
  // What a piece of work that is not done comes after.
  const std::vector<Point> &awaited_by(uint64_t number) const {
    return pending_[number - done_].after;
  }

  Context *const context;
  const bool is_blocking;  // ordered with the default stream

 private:
  struct Work {
    std::function<void()> run;
    std::vector<Point> after;
  };
  Point point(uint64_t number) { return {shared_from_this(), number}; }

  std::deque<Work> pending_;
  uint64_t done_ = 0;
};

}  // namespace emulator
