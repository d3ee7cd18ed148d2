#include "checks.h"

#include "memory.h"
#include "report.h"

namespace emulator {

namespace {

// One clock for all blocks, because device memory remembers when it was touched.
uint32_t clock_time = 1;

bool contains(SharedRange range, const char *at, size_t bytes) {
  return range.begin <= at && at + bytes <= range.end;
}

std::string describe_conflict(Conflict conflict, const char *access, const char *memory) {
  const char *other = "";
  switch (conflict) {
    case Conflict::none: return "";
    case Conflict::written_in_interval:
      other = "another thread wrote since the last barrier";
      break;
    case Conflict::read_in_interval: other = "another thread read since the last barrier"; break;
    case Conflict::written_by_block: other = "another block of the launch wrote"; break;
    case Conflict::read_by_block: other = "another block of the launch read"; break;
  }
  return format("race: it %s %s memory that %s", access, memory, other);
}

// Makes a shadow for a new size of the memory, else keeps the old one: its times are past.
void resize(std::unique_ptr<Shadow> &shadow, size_t &old_bytes, SharedRange range) {
  size_t bytes = static_cast<size_t>(range.end - range.begin);
  if (!shadow || bytes != old_bytes) shadow = std::make_unique<Shadow>(bytes);
  old_bytes = bytes;
}

}  // namespace

void Checks::start_launch() {
  launch_start_ = ++clock_time;
  has_atomics_ = false;
}

void Checks::start_block(const BlockMemory &memory, unsigned warp) {
  memory_ = memory;
  warp_ = warp;
  block_start_ = ++clock_time;
  warp_times_.assign(1024 / warp + 1, 0);
  resize(static_shadow_, static_bytes_, memory.static_shared);
  resize(dynamic_shadow_, dynamic_bytes_, memory.dynamic_shared);
}

void Checks::pass_barrier() { ++clock_time; }

void Checks::warp_fence(unsigned thread) { ++warp_times_[thread / warp_]; }

std::string Checks::check(const void *address, size_t bytes, bool is_write, unsigned thread) {
  const char *at = static_cast<const char *>(address);
  if (reinterpret_cast<uintptr_t>(at) % bytes && (bytes & (bytes - 1)) == 0) {
    return format("it %s %zu bytes at an address that is not a multiple of %zu",
                  is_write ? "writes" : "reads", bytes, bytes);
  }
  if (contains(memory_.static_shared, at, bytes)) {
    return check_shared(*static_shadow_, memory_.static_shared, at, bytes, is_write, thread);
  }
  if (contains(memory_.dynamic_shared, at, bytes)) {
    return check_shared(*dynamic_shadow_, memory_.dynamic_shared, at, bytes, is_write, thread);
  }
  if (contains(memory_.module, at, bytes)) return "";
  return check_global(at, bytes, is_write, thread);
}

std::string Checks::check_copy(const void *address, size_t bytes, unsigned thread) {
  std::string wrong = check(address, bytes, true, thread);
  const char *at = static_cast<const char *>(address);
  bool is_static = contains(memory_.static_shared, at, bytes);
  SharedRange range = is_static ? memory_.static_shared : memory_.dynamic_shared;
  Shadow &shadow = is_static ? *static_shadow_ : *dynamic_shadow_;
  shadow.forget_writer(static_cast<size_t>(at - range.begin), bytes);
  return wrong;
}

std::string Checks::check_shared(Shadow &shadow, SharedRange range, const char *at, size_t bytes,
                                 bool is_write, unsigned thread) {
  size_t offset = static_cast<size_t>(at - range.begin);
  Moment moment = now(thread);
  moment.blocks_ordered = true;  // each has shared memory of its own, here at one address
  Conflict conflict =
      is_write ? shadow.write(offset, bytes, moment) : shadow.read(offset, bytes, moment);
  return describe_conflict(conflict, is_write ? "writes" : "reads", "shared");
}

std::string Checks::check_global(const char *at, size_t bytes, bool is_write, unsigned thread) {
  const char *access = is_write ? "writes" : "reads";
  Allocation *allocation = find_allocation(at);
  if (!allocation || !allocation->contains(at, bytes)) {
    return format("it %s %zu bytes %s", access, bytes, describe(at).c_str());
  }
  if (!is_accessible(memory_.device, allocation->device)) {
    return format("it %s memory of device %d", access, allocation->device);
  }
  if (!allocation->shadow) allocation->shadow = std::make_unique<Shadow>(allocation->bytes);
  size_t offset = static_cast<size_t>(at - allocation->begin);
  Conflict conflict = is_write ? allocation->shadow->write(offset, bytes, now(thread))
                               : allocation->shadow->read(offset, bytes, now(thread));
  return describe_conflict(conflict, access, "global");
}

Moment Checks::now(unsigned thread) const {
  uint32_t warp_time = warp_times_[thread / warp_];
  return {clock_time, thread, warp_, warp_time, block_start_, launch_start_, has_atomics_};
}

}  // namespace emulator
