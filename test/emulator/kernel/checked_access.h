// Checks of each access: the functions that code compiled with -fsanitize=thread calls.
#pragma once

#include "module.h"

#define EMULATOR_ACCESS(name, bytes)                                                           \
  extern "C" __attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void __tsan_read##name(  \
      void *address) {                                                                         \
    emulator::services().check_read(address, bytes);                                           \
  }                                                                                            \
  extern "C" __attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void __tsan_write##name( \
      void *address) {                                                                         \
    emulator::services().check_write(address, bytes);                                          \
  }                                                                                            \
  extern "C" __attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void                     \
  __tsan_unaligned_read##name(void *address) {                                                 \
    emulator::services().check_read(address, bytes);                                           \
  }                                                                                            \
  extern "C" __attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void                     \
  __tsan_unaligned_write##name(void *address) {                                                \
    emulator::services().check_write(address, bytes);                                          \
  }

EMULATOR_ACCESS(1, 1)
EMULATOR_ACCESS(2, 2)
EMULATOR_ACCESS(4, 4)
EMULATOR_ACCESS(8, 8)
EMULATOR_ACCESS(16, 16)
#undef EMULATOR_ACCESS

extern "C" {
__attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void __tsan_read_range(void *address,
                                                                                size_t bytes) {
  emulator::services().check_read(address, bytes);
}
__attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void __tsan_write_range(void *address,
                                                                                 size_t bytes) {
  emulator::services().check_write(address, bytes);
}
__attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void __tsan_func_entry(void *) {}
__attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void __tsan_func_exit() {}
__attribute__((visibility("hidden"))) EMULATOR_UNCHECKED void __tsan_init() {}
}
