// Operations of a warp in which lanes exchange values.
#pragma once

#include "module.h"

namespace emulator {

constexpr unsigned MAX_WARP = 64;

// The value of another lane; undefined, here all ones, of a lane that takes no part.
template <class T>
EMULATOR_UNCHECKED T shuffle(Site site, uint64_t lanes, T value, unsigned source) {
  struct Record {
    T value;
    unsigned source;
    T result;
  };
  Record record = {value, source, value};
  meet(site, lanes, &record, [](void *const *records) EMULATOR_UNCHECKED {
    for (unsigned lane = 0; lane < MAX_WARP; lane++) {
      Record *mine = static_cast<Record *>(records[lane]);
      if (!mine) continue;
      const Record *other =
          static_cast<Record *>(mine->source < MAX_WARP ? records[mine->source] : nullptr);
      if (other)
        mine->result = other->value;
      else
        __builtin_memset(&mine->result, 0xff, sizeof(T));
    }
  });
  return record.result;
}

// A bit for each lane whose condition is true.
EMULATOR_UNCHECKED inline uint64_t ballot(Site site, uint64_t lanes, bool condition) {
  struct Record {
    bool condition;
    uint64_t result;
  };
  Record record = {condition, 0};
  meet(site, lanes, &record, [](void *const *records) EMULATOR_UNCHECKED {
    uint64_t bits = 0;
    for (unsigned lane = 0; lane < MAX_WARP; lane++) {
      const Record *other = static_cast<Record *>(records[lane]);
      if (other && other->condition) bits |= uint64_t{1} << lane;
    }
    for (unsigned lane = 0; lane < MAX_WARP; lane++) {
      if (records[lane]) static_cast<Record *>(records[lane])->result = bits;
    }
  });
  return record.result;
}

// Waits for the lanes, and orders their accesses.
EMULATOR_UNCHECKED inline void warp_barrier(Site site, uint64_t lanes) {
  char nothing;
  meet(site, lanes, &nothing, [](void *const *) {});
  warp_fence();
}

// Waits for the block, and counts the threads whose condition is true.
EMULATOR_UNCHECKED inline int barrier_count(Site first, Site second, bool condition) {
  static unsigned count;  // of the one block that runs; the module has a copy for each such
  static bool is_counting;
  if (!is_counting) {
    is_counting = true;
    count = 0;
  }
  count += condition;
  barrier(first);
  int result = static_cast<int>(count);
  barrier(second);
  is_counting = false;
  return result;
}

}  // namespace emulator
