#include "copy.h"

#include <cstring>
#include <memory>
#include <vector>

#include "checks.h"
#include "memory.h"
#include "report.h"

namespace emulator {

namespace {

void *at(DevicePointer pointer) { return reinterpret_cast<void *>(pointer); }

// Whether memory was not freed before the work that uses it. Fails the context otherwise.
bool is_there(Context &context, const Place &place) {
  if (place.is_pageable || find_allocation(place.begin)) return true;
  report(format("a copy on device %d uses memory that was freed before it ran", context.device));
  context.fail(ILLEGAL_ADDRESS);
  return false;
}

Result enqueue(Context &context, void *handle, const Place &target, const Place &source,
               size_t bytes) {
  Stream &stream = context.stream(handle);
  if (source.is_pageable) {
    // the driver reads pageable memory before it returns
    auto staged = std::make_shared<std::vector<char>>(source.begin, source.begin + bytes);
    stream.push([&context, target, staged] {
      if (is_there(context, target)) std::memcpy(target.begin, staged->data(), staged->size());
    });
  } else {
    stream.push([=, &context] {
      if (is_there(context, target) && is_there(context, source))
        std::memmove(target.begin, source.begin, bytes);
    });
  }
  if (target.is_pageable) stream.end().wait();
  return static_cast<Result>(context.failure);
}

Result copy(Context &context, void *handle, const Place &target, const Place &source, size_t bytes,
            bool names_devices = false) {
  if (!names_devices) {
    if (Result wrong = check_copy(context, target, source)) return wrong;
  }
  return enqueue(context, handle, target, source, bytes);
}

// Runs `call` with the places of both sides.
template <class Call>
Result with_places(DevicePointer target, DevicePointer source, size_t bytes, Call call) {
  return in_context([&](Context &context) {
    Place to, from;
    if (Result wrong = device_place(target, bytes, &to)) return wrong;
    if (Result wrong = device_place(source, bytes, &from)) return wrong;
    return call(context, to, from);
  });
}

Result fill(DevicePointer target, unsigned value, unsigned bytes_each, size_t count, void *handle) {
  return in_context([&](Context &context) {
    Fill fill{target, value, bytes_each, count};
    if (Result wrong = fill.check(context)) return wrong;
    context.stream(handle).push([fill] { fill.run(); });
    return SUCCESS;
  });
}

}  // namespace

Place host_place(const void *pointer) {
  char *begin = static_cast<char *>(const_cast<void *>(pointer));
  return {begin, HOST, find_allocation(pointer) == nullptr};
}

Result device_place(DevicePointer pointer, size_t bytes, Place *place) {
  Allocation *allocation = find_allocation(at(pointer));
  if (!allocation || !allocation->contains(at(pointer), bytes)) {
    report(format("a copy of %zu bytes is not within an allocation: it starts at %s", bytes,
                  describe(at(pointer)).c_str()));
    return INVALID_VALUE;
  }
  *place = {static_cast<char *>(at(pointer)), allocation->device, false};
  return SUCCESS;
}

Result check_copy(const Context &context, const Place &target, const Place &source) {
  for (const Place *place : {&target, &source}) {
    if (is_accessible(context.device, place->device)) continue;
    report(format("a copy on device %d uses memory of device %d without access to its peer",
                  context.device, place->device));
    return ILLEGAL_ADDRESS;
  }
  return SUCCESS;
}

Result Fill::check(const Context &context) const {
  Place place;
  if (Result wrong = device_place(target, bytes_each * count, &place)) return wrong;
  return check_copy(context, place, place);
}

void Fill::run() const {
  char *begin = static_cast<char *>(at(target));
  for (size_t i = 0; i < count; i++) std::memcpy(begin + i * bytes_each, &value, bytes_each);
}

}  // namespace emulator

using namespace emulator;

API cuMemcpyHtoDAsync_v2(DevicePointer target, const void *source, size_t bytes, void *stream) {
  return in_context([&](Context &context) {
    Place place;
    if (Result wrong = device_place(target, bytes, &place)) return wrong;
    return copy(context, stream, place, host_place(source), bytes);
  });
}

API cuMemcpyDtoHAsync_v2(void *target, DevicePointer source, size_t bytes, void *stream) {
  return in_context([&](Context &context) {
    Place place;
    if (Result wrong = device_place(source, bytes, &place)) return wrong;
    return copy(context, stream, host_place(target), place, bytes);
  });
}

API cuMemcpyDtoDAsync_v2(DevicePointer target, DevicePointer source, size_t bytes, void *stream) {
  return with_places(target, source, bytes, [&](Context &context, Place to, Place from) {
    return copy(context, stream, to, from, bytes);
  });
}

API cuMemcpyPeerAsync(DevicePointer target, Context *target_context, DevicePointer source,
                      Context *source_context, size_t bytes, void *stream) {
  return with_places(target, source, bytes, [&](Context &context, Place to, Place from) {
    if (to.device != target_context->device || from.device != source_context->device) {
      report("a copy between peers names contexts that do not own the memory");
      return INVALID_VALUE;
    }
    return copy(context, stream, to, from, bytes, true);
  });
}

API cuMemcpyAsync(DevicePointer target, DevicePointer source, size_t bytes, void *stream) {
  return in_context([&](Context &context) {
    Place to = host_place(at(target)), from = host_place(at(source));
    if (find_allocation(at(target))) {
      if (Result wrong = device_place(target, bytes, &to)) return wrong;
    }
    if (find_allocation(at(source))) {
      if (Result wrong = device_place(source, bytes, &from)) return wrong;
    }
    return copy(context, stream, to, from, bytes);
  });
}

API cuStreamSynchronize(void *stream);

API cuMemcpyHtoD_v2(DevicePointer target, const void *source, size_t bytes) {
  if (Result wrong = cuMemcpyHtoDAsync_v2(target, source, bytes, nullptr)) return wrong;
  return cuStreamSynchronize(nullptr);
}

API cuMemcpyDtoH_v2(void *target, DevicePointer source, size_t bytes) {
  if (Result wrong = cuMemcpyDtoHAsync_v2(target, source, bytes, nullptr)) return wrong;
  return cuStreamSynchronize(nullptr);
}

API cuMemcpyDtoD_v2(DevicePointer target, DevicePointer source, size_t bytes) {
  return cuMemcpyDtoDAsync_v2(target, source, bytes, nullptr);
}

API cuMemcpy(DevicePointer target, DevicePointer source, size_t bytes) {
  if (Result wrong = cuMemcpyAsync(target, source, bytes, nullptr)) return wrong;
  return cuStreamSynchronize(nullptr);
}

API cuMemcpyPeer(DevicePointer target, Context *target_context, DevicePointer source,
                 Context *source_context, size_t bytes) {
  return cuMemcpyPeerAsync(target, target_context, source, source_context, bytes, nullptr);
}

API cuMemsetD8Async(DevicePointer target, unsigned char value, size_t count, void *stream) {
  return fill(target, value, 1, count, stream);
}

API cuMemsetD16Async(DevicePointer target, unsigned short value, size_t count, void *stream) {
  return fill(target, value, 2, count, stream);
}

API cuMemsetD32Async(DevicePointer target, unsigned value, size_t count, void *stream) {
  return fill(target, value, 4, count, stream);
}

API cuMemsetD8_v2(DevicePointer target, unsigned char value, size_t count) {
  return fill(target, value, 1, count, nullptr);
}

API cuMemsetD32_v2(DevicePointer target, unsigned value, size_t count) {
  return fill(target, value, 4, count, nullptr);
}
