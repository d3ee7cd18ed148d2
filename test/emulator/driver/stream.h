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
  // Does the work up to this point. False if that has to wait for a stream that is in the middle of
  // a piece of work: then the one who asks comes later.
  bool wait() const;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(Context *context, bool is_blocking = true)
      : context(context), is_blocking(is_blocking) {}

  // Adds work, to be done after these points and all earlier work of the stream.
  Point push(std::function<void()> work, std::vector<Point> after = {});
  Point end();
  bool run_to(uint64_t number);
  void run_all() { run_to(done_ + pending_.size()); }
  // Does one piece of work, so that a program that polls gets on. False if there is none, or
  // if it has to wait for a stream that is in the middle of one.
  bool run_one();
  bool is_idle() const { return pending_.empty(); }

  Context *const context;
  const bool is_blocking;  // ordered with the default stream

 private:
  friend struct Point;
  struct Work {
    std::function<void()> run;
    std::vector<Point> after;
  };
  void run_others();

  std::deque<Work> pending_;
  uint64_t done_ = 0;
  bool is_running_ = false;
};

}  // namespace emulator
