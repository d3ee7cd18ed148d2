#include "memory.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

#include "report.h"
#include "settings.h"

namespace emulator {

namespace {

constexpr size_t PAGE_BYTES = 4096;
constexpr size_t ALIGNMENT = 256;
constexpr int POISON = 0xff;

// by the first byte of the mapping
std::map<const char *, Allocation> allocations;
std::map<int, size_t> used, limits;
std::recursive_mutex lock;

// The padding after an allocation: huge numbers and NaN, different for each address, so that values
// that were read from the padding of another allocation differ too.
unsigned char padding(const char *at) {
  uint64_t hash = reinterpret_cast<uint64_t>(at) * 0x9e3779b97f4a7c15;
  return hash >> 63 ? 0x7f : 0xff;
}

void pad(const Allocation &allocation) {
  char *end = allocation.mapping + allocation.mapped_bytes - PAGE_BYTES;
  for (char *at = allocation.begin + allocation.bytes; at < end; at++) {
    *at = static_cast<char>(padding(at));
  }
}

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

size_t limit(int device) {
  auto found = limits.find(device);
  return found == limits.end() ? settings().memory : found->second;
}

}  // namespace

Allocation *allocate(int device, size_t bytes) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  if (device != HOST && used[device] + bytes > limit(device)) return nullptr;
  size_t padded = round_up(bytes, ALIGNMENT), body = round_up(padded, PAGE_BYTES);
  size_t mapped = body + 2 * PAGE_BYTES;
  void *mapping =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  char *start = static_cast<char *>(mapping) + PAGE_BYTES;
  mprotect(start, body, PROT_READ | PROT_WRITE);
  std::memset(start, POISON, body);
  used[device] += bytes;
  // the end is at the inaccessible page, as far as the alignment allows
  Allocation made{start + body - padded, bytes, device, start - PAGE_BYTES, mapped, nullptr};
  pad(made);
  return &(allocations[made.mapping] = std::move(made));
}

bool release(const void *begin) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  Allocation *allocation = find_allocation(begin);
  if (!allocation || allocation->begin != begin || !allocation->mapped_bytes) return false;
  used[allocation->device] -= allocation->bytes;
  munmap(allocation->mapping, allocation->mapped_bytes);
  allocations.erase(allocation->mapping);
  return true;
}

void register_host(void *begin, size_t bytes) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  char *start = static_cast<char *>(begin);
  allocations[start] = Allocation{start, bytes, HOST, start, 0, nullptr};
}

bool unregister_host(void *begin) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  return allocations.erase(static_cast<char *>(begin)) != 0;
}

Allocation *find_allocation(const void *address) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  const char *at = static_cast<const char *>(address);
  auto next = allocations.upper_bound(at);
  if (next == allocations.begin()) return nullptr;
  Allocation &allocation = std::prev(next)->second;
  size_t extent = allocation.mapped_bytes ? allocation.mapped_bytes : allocation.bytes;
  return at < allocation.mapping + extent ? &allocation : nullptr;
}

size_t take_writes_past_end(const Allocation &allocation) {
  if (!allocation.mapped_bytes) return 0;
  char *start = allocation.begin + allocation.bytes;
  char *end = allocation.mapping + allocation.mapped_bytes - PAGE_BYTES;
  size_t written = 0;
  for (char *at = start; at < end; at++) {
    if (static_cast<unsigned char>(*at) != padding(at))
      written = static_cast<size_t>(at - start) + 1;
  }
  if (written) pad(allocation);
  return written;
}

std::string describe(const void *address) {
  const Allocation *allocation = find_allocation(address);
  if (!allocation) return format("%p, which is in no allocation", address);
  const char *at = static_cast<const char *>(address), *end = allocation->begin + allocation->bytes;
  std::string owner =
      allocation->device == HOST ? "of the host" : format("of device %d", allocation->device);
  if (at < allocation->begin) {
    return format("%td bytes before an allocation of %zu bytes %s", allocation->begin - at,
                  allocation->bytes, owner.c_str());
  }
  if (at >= end) {
    return format("%td bytes past the end of an allocation of %zu bytes %s", at - end,
                  allocation->bytes, owner.c_str());
  }
  return format("byte %td of an allocation of %zu bytes %s", at - allocation->begin,
                allocation->bytes, owner.c_str());
}

MemoryInfo memory_info(int device) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  size_t total = limit(device);
  return {total > used[device] ? total - used[device] : 0, total};
}

void set_memory_limit(int device, size_t bytes) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  limits[device] = bytes;
}

}  // namespace emulator

// Sets the memory of a device. Not part of CUDA.
extern "C" void emulator_set_memory_limit(int device, size_t bytes) {
  emulator::set_memory_limit(device, bytes);
}
