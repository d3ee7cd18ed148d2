// The environment variables of the emulator. They are read once; tests change some.
#pragma once

#include <cstddef>
#include <string>

namespace emulator {

struct Settings {
  int devices;     // EMULATOR_DEVICES: how many GPUs there are
  bool backwards;  // EMULATOR_ORDER=1: blocks, warps, lanes and streams run in the other order
  int threads;     // EMULATOR_THREADS: operating system threads that run blocks
  bool peers;      // EMULATOR_PEERS=0: no device reads another one's memory
  size_t memory;   // EMULATOR_MEMORY: bytes of each device
  std::string architecture;  // EMULATOR_ARCHITECTURE: sm_80, sm_90a, sm_100a
};

Settings &settings();

}  // namespace emulator
