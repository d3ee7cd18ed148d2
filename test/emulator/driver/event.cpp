// Events: points of streams, with the time at which they were reached.
#include <chrono>
#include <memory>

#include "api.h"

using namespace emulator;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Event {
  Point point;  // of the last record; reached at once if there was none
  std::shared_ptr<double> time = std::make_shared<double>(0.0);
};

}  // namespace

API cuEventCreate(Event **event, unsigned) {
  return in_context([&](Context &) {
    *event = new Event;
    return SUCCESS;
  });
}

API cuEventDestroy_v2(Event *event) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  delete event;
  return SUCCESS;
}

API cuEventRecord(Event *event, void *handle) {
  return in_context([&](Context &context) {
    std::shared_ptr<double> time = std::make_shared<double>(0.0);
    event->time = time;
    event->point = context.stream(handle).push([time] { *time = seconds(); });
    return SUCCESS;
  });
}

API cuEventRecordWithFlags(Event *event, void *handle, unsigned) {
  return cuEventRecord(event, handle);
}

API cuStreamWaitEvent(void *handle, Event *event, unsigned) {
  return in_context([&](Context &context) {
    context.stream(handle).push([] {}, {event->point});
    return SUCCESS;
  });
}

API cuEventSynchronize(Event *event) {
  return in_context([&](Context &context) {
    event->point.wait();
    return static_cast<Result>(context.failure);
  });
}

API cuEventQuery(Event *event) {
  return in_context([&](Context &context) {
    if (event->point.is_reached()) return SUCCESS;
    event->point.stream->next().wait();
    return context.failure ? static_cast<Result>(context.failure) : NOT_READY;
  });
}

API cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *stop) {
  return in_context([&](Context &) {
    if (!start->point.stream || !stop->point.stream) return INVALID_HANDLE;
    if (!start->point.is_reached() || !stop->point.is_reached()) return NOT_READY;
    *milliseconds = static_cast<float>((*stop->time - *start->time) * 1e3);
    return SUCCESS;
  });
}
