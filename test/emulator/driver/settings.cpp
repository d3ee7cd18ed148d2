#include "settings.h"

#include <cstdlib>

namespace emulator {

namespace {

std::string text(const char *name, const char *otherwise) {
  const char *value = std::getenv(name);
  return value && *value ? value : otherwise;
}

long long number(const char *name, const char *otherwise) {
  return std::atoll(text(name, otherwise).c_str());
}

}  // namespace

Settings &settings() {
  static Settings read = {
      static_cast<int>(number("EMULATOR_DEVICES", "1")),
      number("EMULATOR_ORDER", "0") != 0,
      static_cast<int>(number("EMULATOR_THREADS", "2")),
      number("EMULATOR_PEERS", "1") != 0,
      static_cast<size_t>(number("EMULATOR_MEMORY", "8589934592")),
      text("EMULATOR_ARCHITECTURE", "sm_90a"),
  };
  return read;
}

}  // namespace emulator

// Changes the order, or whether devices are peers. Not part of CUDA.
extern "C" void emulator_set_order(int is_backwards) {
  emulator::settings().backwards = is_backwards;
}
extern "C" void emulator_set_peers(int peers) { emulator::settings().peers = peers; }
