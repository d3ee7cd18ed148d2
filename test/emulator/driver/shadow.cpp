#include "shadow.h"

#include <sys/mman.h>

#include <new>

namespace emulator {

Shadow::Shadow(size_t bytes) : bytes_(bytes) {
  // pages that no kernel touches take no memory
  void *start = mmap(nullptr, bytes * sizeof(Cell) + 1, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  cells_ = static_cast<Cell *>(start);
}

Shadow::~Shadow() { munmap(cells_, bytes_ * sizeof(Cell) + 1); }

Conflict Shadow::read(size_t offset, size_t bytes, const Moment &now) {
  for (size_t i = offset; i < offset + bytes && i < bytes_; i++) {
    Cell &cell = cells_[i];
    if (conflicts(cell.writer, now)) return Conflict::written_in_interval;
    if (is_of_other_block(cell.writer, now)) return Conflict::written_by_block;
    note_reader(cell.reader, now);
  }
  return Conflict::none;
}

Conflict Shadow::write(size_t offset, size_t bytes, const Moment &now) {
  for (size_t i = offset; i < offset + bytes && i < bytes_; i++) {
    Cell &cell = cells_[i];
    if (conflicts(cell.writer, now)) return Conflict::written_in_interval;
    if (conflicts(cell.reader, now)) return Conflict::read_in_interval;
    if (is_of_other_block(cell.writer, now)) return Conflict::written_by_block;
    if (is_of_other_block(cell.reader, now)) return Conflict::read_by_block;
    cell.writer = {now.time, static_cast<uint16_t>(now.warp_time),
                   static_cast<uint16_t>(now.thread)};
  }
  return Conflict::none;
}

void Shadow::forget_writer(size_t offset, size_t bytes) {
  for (size_t i = offset; i < offset + bytes && i < bytes_; i++) cells_[i].writer = {};
}

bool Shadow::conflicts(const Access &access, const Moment &now) {
  return access.time == now.time && access.thread != now.thread && !is_ordered_in_warp(access, now);
}

bool Shadow::is_ordered_in_warp(const Access &access, const Moment &now) {
  if (access.thread == SEVERAL_WARPS) return false;
  unsigned warp = access.thread & SEVERAL_OF_WARP ? access.thread & ~SEVERAL_OF_WARP
                                                  : access.thread / now.warp_size;
  return warp == now.thread / now.warp_size &&
         access.warp_time != static_cast<uint16_t>(now.warp_time);
}

bool Shadow::is_of_other_block(const Access &access, const Moment &now) {
  return !now.blocks_ordered && access.time >= now.launch_start && access.time < now.block_start;
}

void Shadow::note_reader(Access &reader, const Moment &now) {
  uint16_t thread = static_cast<uint16_t>(now.thread),
           warp = static_cast<uint16_t>(thread / now.warp_size);
  uint16_t warp_time = static_cast<uint16_t>(now.warp_time);
  if (reader.time != now.time || is_ordered_in_warp(reader, now)) {
    reader = {now.time, warp_time, thread};
  } else if (reader.thread == SEVERAL_WARPS || reader.thread == thread) {
    reader.warp_time = warp_time;
  } else {
    uint16_t other = reader.thread & SEVERAL_OF_WARP ? reader.thread & ~SEVERAL_OF_WARP
                                                     : reader.thread / now.warp_size;
    reader.thread = other == warp ? SEVERAL_OF_WARP | warp : SEVERAL_WARPS;
    reader.warp_time = warp_time;
  }
}

}  // namespace emulator
