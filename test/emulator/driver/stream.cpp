#include "stream.h"

#include <algorithm>

#include "api.h"
#include "settings.h"

namespace emulator {

namespace {

constexpr size_t MAX_PENDING = 4096;

}  // namespace

bool Point::is_reached() const { return !stream || stream->done_ >= number; }

bool Point::wait() const { return !stream || stream->run_to(number); }

Point Stream::push(std::function<void()> work, std::vector<Point> after) {
  // the default stream is ordered with all blocking ones
  if (this == context->default_stream.get()) {
    for (const auto &stream : context->streams) {
      if (stream->is_blocking) after.push_back(stream->end());
    }
  } else if (is_blocking) {
    after.push_back(context->default_stream->end());
  }
  after.erase(
      std::remove_if(after.begin(), after.end(), [](const Point &p) { return p.is_reached(); }),
      after.end());
  pending_.push_back({std::move(work), std::move(after)});
  Point point = end();
  if (pending_.size() > MAX_PENDING) run_to(done_ + MAX_PENDING / 2);
  return point;
}

Point Stream::end() { return {shared_from_this(), done_ + pending_.size()}; }

bool Stream::run_to(uint64_t number) {
  if (!is_running_ && settings().backwards && done_ < number) run_others();
  while (done_ < number && run_one()) {
  }
  return done_ >= number;
}

bool Stream::run_one() {
  if (pending_.empty() || is_running_) return false;
  is_running_ = true;
  bool is_ready = true;
  for (const Point &point : pending_.front().after) is_ready = is_ready && point.wait();
  if (is_ready) {
    std::function<void()> run = std::move(pending_.front().run);
    if (!context->failure) run();
    pending_.pop_front();
    done_++;
  }
  is_running_ = false;
  return is_ready;
}

// In the other order, what the caller does not wait for is done first: a missing wait between two
// streams shows in one order or the other.
void Stream::run_others() {
  for (Context *other : Context::all()) {
    for (const auto &stream : std::vector<std::shared_ptr<Stream>>(other->streams)) {
      while (stream.get() != this && stream->run_one()) {
      }
    }
  }
}

}  // namespace emulator

using namespace emulator;

API cuStreamCreate(Stream **stream, unsigned flags) {
  return in_context([&](Context &context) {
    context.streams.push_back(std::make_shared<Stream>(&context, (flags & 1) == 0));
    *stream = context.streams.back().get();
    return SUCCESS;
  });
}

API cuStreamCreateWithPriority(Stream **stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return SUCCESS;
}

API cuStreamDestroy_v2(Stream *stream) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  stream->run_all();
  auto &streams = stream->context->streams;
  auto is_it = [&](const std::shared_ptr<Stream> &other) { return other.get() == stream; };
  streams.erase(std::remove_if(streams.begin(), streams.end(), is_it), streams.end());
  return SUCCESS;
}

API cuStreamSynchronize(void *handle) {
  return in_context([&](Context &context) {
    Stream &stream = context.stream(handle);
    stream.run_all();
    return static_cast<Result>(stream.context->failure);
  });
}

API cuStreamQuery(void *handle) {
  return in_context([&](Context &context) {
    Stream &stream = context.stream(handle);
    if (stream.is_idle()) return SUCCESS;
    stream.run_one();
    return stream.context->failure ? static_cast<Result>(stream.context->failure) : NOT_READY;
  });
}

API cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
  return in_context([&](Context &context) {
    context.stream(handle).push([=] { function(data); });
    return SUCCESS;
  });
}
