// What every file of entry points needs: result codes, handles, and the checks that each call
// makes.
#pragma once

#include <cstdint>
#include <mutex>

#include "context.h"

#define API extern "C" __attribute__((visibility("default"))) emulator::Result

namespace emulator {

using DevicePointer = uint64_t;

enum Result : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  PEER_ACCESS_UNSUPPORTED = 217,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  PEER_ACCESS_ALREADY_ENABLED = 704,
  PEER_ACCESS_NOT_ENABLED = 705,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
};

// One call at a time.
std::recursive_mutex &driver_lock();

// Whether the driver was initialised in this process: a child of `fork` cannot use it.
bool is_initialized();

// Runs a call that needs a current context in which no kernel has failed.
template <class Call>
Result in_context(Call call) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  if (!is_initialized()) return NOT_INITIALIZED;
  Context *context = Context::current();
  if (!context) return INVALID_CONTEXT;
  if (context->failure) return static_cast<Result>(context->failure);
  return call(*context);
}

}  // namespace emulator
