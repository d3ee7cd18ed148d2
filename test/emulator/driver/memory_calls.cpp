// Entry points for memory: allocation, pinned host memory, and what a pointer is.
#include "api.h"
#include "memory.h"
#include "report.h"

using namespace emulator;

namespace {

void *at(DevicePointer pointer) { return reinterpret_cast<void *>(pointer); }

Result allocate_on(Context &context, DevicePointer *pointer, size_t bytes) {
  if (!bytes) return INVALID_VALUE;
  Allocation *made = allocate(context.device, bytes);
  if (!made) return OUT_OF_MEMORY;
  *pointer = reinterpret_cast<DevicePointer>(made->begin);
  return SUCCESS;
}

}  // namespace

API cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
  return in_context([&](Context &context) { return allocate_on(context, pointer, bytes); });
}

// Memory of the pool is there at once, which no program can tell.
API cuMemAllocAsync(DevicePointer *pointer, size_t bytes, void *) {
  return cuMemAlloc_v2(pointer, bytes);
}

// Waits for the work of the device that owns the memory, and of no other one.
API cuMemFree_v2(DevicePointer pointer) {
  return in_context([&](Context &) {
    const Allocation *allocation = find_allocation(at(pointer));
    if (!allocation || allocation->device == HOST) return INVALID_VALUE;
    Context &owner = Context::primary(allocation->device);
    owner.synchronize();
    if (!release(at(pointer))) return INVALID_VALUE;
    return static_cast<Result>(owner.failure);
  });
}

API cuMemFreeAsync(DevicePointer pointer, void *handle) {
  return in_context([&](Context &context) {
    Allocation *allocation = find_allocation(at(pointer));
    if (!allocation || allocation->begin != at(pointer)) return INVALID_VALUE;
    context.stream(handle).push([pointer] { release(at(pointer)); });
    return SUCCESS;
  });
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
  return in_context([&](Context &context) {
    MemoryInfo info = memory_info(context.device);
    *free = info.free;
    *total = info.total;
    return SUCCESS;
  });
}

API cuMemGetAddressRange_v2(DevicePointer *base, size_t *bytes, DevicePointer pointer) {
  return in_context([&](Context &) {
    Allocation *allocation = find_allocation(at(pointer));
    if (!allocation) return NOT_FOUND;
    if (base) *base = reinterpret_cast<DevicePointer>(allocation->begin);
    if (bytes) *bytes = allocation->bytes;
    return SUCCESS;
  });
}

API cuPointerGetAttribute(void *value, int attribute, DevicePointer pointer) {
  constexpr int MEMORY_TYPE = 2, DEVICE_ORDINAL = 9;
  Allocation *allocation = find_allocation(at(pointer));
  if (!allocation) return INVALID_VALUE;
  switch (attribute) {
    case MEMORY_TYPE: *static_cast<unsigned *>(value) = allocation->device == HOST ? 1 : 2; break;
    case DEVICE_ORDINAL: *static_cast<int *>(value) = allocation->device; break;
    default: return NOT_SUPPORTED;
  }
  return SUCCESS;
}

API cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
  return in_context([&](Context &) {
    Allocation *made = bytes ? allocate(HOST, bytes) : nullptr;
    if (!made) return bytes ? OUT_OF_MEMORY : INVALID_VALUE;
    *pointer = made->begin;
    return SUCCESS;
  });
}

API cuMemAllocHost_v2(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

// Waits for nothing: a copy that is not done uses freed memory.
API cuMemFreeHost(void *pointer) {
  return in_context([&](Context &) {
    const Allocation *allocation = find_allocation(pointer);
    bool is_freed = allocation && allocation->device == HOST && release(pointer);
    return is_freed ? SUCCESS : INVALID_VALUE;
  });
}

API cuMemHostGetDevicePointer_v2(DevicePointer *device_pointer, void *pointer, unsigned) {
  *device_pointer = reinterpret_cast<DevicePointer>(pointer);
  return SUCCESS;
}

API cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned) {
  return in_context([&](Context &) {
    register_host(pointer, bytes);
    return SUCCESS;
  });
}

API cuMemHostUnregister(void *pointer) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  return unregister_host(pointer) ? SUCCESS : INVALID_VALUE;
}
