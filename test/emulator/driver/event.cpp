// Events: points of streams, with the time at which they were reached.
#include <chrono>
#include <memory>
#include <set>

#include "api.h"
#include "report.h"

using namespace emulator;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr unsigned WITHOUT_TIME = 2;

struct Event {
  Context *context;
  bool has_time;
  Point point;  // of the last record; reached at once if there was none
  std::shared_ptr<double> time = std::make_shared<double>(0.0);
};

std::set<const Event *> events;  // those that were not destroyed

// Runs a call that needs events which were not destroyed.
template <class Call>
Result with_events(std::initializer_list<const Event *> needed, Call call) {
  return in_context([&](Context &context) {
    for (const Event *event : needed) {
      if (events.count(event)) continue;
      report("an event is used that was destroyed, or never made");
      return INVALID_HANDLE;
    }
    return call(context);
  });
}

}  // namespace

API cuEventCreate(Event **event, unsigned flags) {
  return in_context([&](Context &context) {
    *event = new Event{&context, !(flags & WITHOUT_TIME), {}};
    events.insert(*event);
    return SUCCESS;
  });
}

API cuEventDestroy_v2(Event *event) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  if (!events.erase(event)) return INVALID_HANDLE;
  delete event;
  return SUCCESS;
}

API cuEventRecord(Event *event, void *handle) {
  return with_events({event}, [&](Context &context) {
    Stream &stream = context.stream(handle);
    if (stream.context != event->context) {
      report(format("an event of device %d is recorded on a stream of device %d",
                    event->context->device, stream.context->device));
      return INVALID_HANDLE;
    }
    std::shared_ptr<double> time = std::make_shared<double>(0.0);
    event->time = time;
    event->point = stream.push([time] { *time = seconds(); });
    return SUCCESS;
  });
}

API cuEventRecordWithFlags(Event *event, void *handle, unsigned) {
  return cuEventRecord(event, handle);
}

API cuStreamWaitEvent(void *handle, Event *event, unsigned) {
  return with_events({event}, [&](Context &context) {
    context.stream(handle).push([] {}, {event->point});
    return SUCCESS;
  });
}

API cuEventSynchronize(Event *event) {
  return with_events({event}, [&](Context &) {
    event->point.wait();
    return static_cast<Result>(event->context->failure);
  });
}

API cuEventQuery(Event *event) {
  return with_events({event}, [&](Context &) {
    if (event->point.is_reached()) return SUCCESS;
    event->point.stream->next().wait();
    int failure = event->context->failure;
    return failure ? static_cast<Result>(failure) : NOT_READY;
  });
}

API cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *stop) {
  return with_events({start, stop}, [&](Context &) {
    bool is_recorded = start->point.stream && stop->point.stream;
    if (!is_recorded || !start->has_time || !stop->has_time || start->context != stop->context) {
      report("a time is asked for between events of two devices, without times, or not recorded");
      return INVALID_HANDLE;
    }
    if (!start->point.is_reached() || !stop->point.is_reached()) return NOT_READY;
    *milliseconds = static_cast<float>((*stop->time - *start->time) * 1e3);
    return SUCCESS;
  });
}
