// The primary context of a device: its streams, its peers, and what went wrong in it.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "stream.h"

namespace emulator {

struct Context {
  explicit Context(int device) : device(device), default_stream(std::make_shared<Stream>(this)) {}

  int device;
  int failure = 0;  // of a kernel or copy: every later call returns it
  std::set<int> peers;
  std::shared_ptr<Stream> default_stream;
  std::vector<std::shared_ptr<Stream>> streams;

  // The stream of a handle of the API; null and the constants for default streams are the default.
  Stream &stream(void *handle);
  void synchronize();
  void fail(int result);

  // The context that is current in this thread.
  static Context *current();
  static void set_current(Context *context);
  // The context of a device, made on first use.
  static Context &primary(int device);
  static std::vector<Context *> all();
};

}  // namespace emulator
