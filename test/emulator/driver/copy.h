// Copies and fills, for streams and graphs.
#pragma once

#include <functional>

#include "api.h"

namespace emulator {

// One side of a copy. Host memory that is not pinned is pageable.
struct Place {
  char *begin;
  int device;  // or HOST
  bool is_pageable;
};

Place host_place(const void *pointer);

// The place of a device's memory. Its range must lie in one allocation.
Result device_place(DevicePointer pointer, size_t bytes, Place *place);

// Whether a copy is possible: only calls that name both devices copy between devices that are no
// peers.
Result check_copy(const Context &context, const Place &target, const Place &source);

// A fill with values of 1, 2 or 4 bytes.
struct Fill {
  DevicePointer target;
  unsigned value, bytes_each;
  size_t count;

  Result check(const Context &context) const;
  void run() const;
};

}  // namespace emulator
