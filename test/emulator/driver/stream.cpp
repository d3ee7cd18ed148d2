#include "stream.h"

#include <algorithm>

#include "api.h"
#include "drain.h"

namespace emulator {

namespace {

constexpr size_t MAX_PENDING = 4096;

}  // namespace

bool Point::is_reached() const { return !stream || stream->done() >= number; }

void Point::wait() const {
  if (!is_reached()) Drain(*this).run();
}

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
  if (pending_.size() > MAX_PENDING) point(done_ + MAX_PENDING / 2).wait();
  return end();
}

bool Stream::run_one() {
  if (pending_.empty()) return false;
  for (const Point &point : pending_.front().after) {
    if (!point.is_reached()) return false;
  }
  if (!context->failure) pending_.front().run();
  pending_.pop_front();
  done_++;
  return true;
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
  stream->end().wait();
  auto &streams = stream->context->streams;
  auto is_it = [&](const std::shared_ptr<Stream> &other) { return other.get() == stream; };
  streams.erase(std::remove_if(streams.begin(), streams.end(), is_it), streams.end());
  return SUCCESS;
}

API cuStreamSynchronize(void *handle) {
  return in_context([&](Context &context) {
    Stream &stream = context.stream(handle);
    stream.end().wait();
    return static_cast<Result>(stream.context->failure);
  });
}

API cuStreamQuery(void *handle) {
  return in_context([&](Context &context) {
    Stream &stream = context.stream(handle);
    if (stream.end().is_reached()) return SUCCESS;
    stream.next().wait();
    return stream.context->failure ? static_cast<Result>(stream.context->failure) : NOT_READY;
  });
}

API cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
  return in_context([&](Context &context) {
    context.stream(handle).push([=] { function(data); });
    return SUCCESS;
  });
}
