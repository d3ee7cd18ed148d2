// How this thread computes with subnormal floats.
#pragma once

#include <cstdint>

namespace emulator {

// Takes subnormal operands and results for zero, while it exists, if it is told to.
class FloatMode {
 public:
  explicit FloatMode(bool takes_subnormals_for_zero) : before_(get()) {
    if (takes_subnormals_for_zero) set(before_ | ZERO_SUBNORMALS);
  }
  ~FloatMode() { set(before_); }
  FloatMode(const FloatMode &) = delete;
  FloatMode &operator=(const FloatMode &) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t ZERO_SUBNORMALS = 0x8040;  // FTZ and DAZ of MXCSR
  static uint64_t get() { return __builtin_ia32_stmxcsr(); }
  static void set(uint64_t mode) { __builtin_ia32_ldmxcsr(static_cast<unsigned>(mode)); }
#else
  static constexpr uint64_t ZERO_SUBNORMALS = uint64_t{1} << 24;  // FZ of FPCR
  static uint64_t get() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#endif
  uint64_t before_;
};

}  // namespace emulator
