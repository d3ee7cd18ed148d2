// What every translation unit of a kernel starts with, in all dialects: its thread, the meetings of
// threads, and the entries by which the driver calls kernels.
#pragma once

#include "interface.h"

// Dialects turn their barriers and shuffles into macros, so that each knows its place in the text.
#define EMULATOR_SITE (emulator::Site{__COUNTER__, __LINE__})
#define EMULATOR_UNCHECKED __attribute__((no_sanitize("thread")))

// Static shared memory has a section of its own, whose bounds the linker knows.
#define EMULATOR_SHARED static __attribute__((section("emulated_shared_memory")))
extern "C" __attribute__((weak, visibility("hidden"))) char __start_emulated_shared_memory[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_emulated_shared_memory[];

extern "C" {
const emulator::Services *emulated_services;
emulator::SharedRange emulated_shared = {__start_emulated_shared_memory,
                                         __stop_emulated_shared_memory};
}

namespace emulator {

EMULATOR_UNCHECKED inline const Services &services() { return *emulated_services; }

EMULATOR_UNCHECKED inline const Thread &self() {
  uintptr_t inside = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return *reinterpret_cast<Thread *>((inside | (STACK_BYTES - 1)) + 1 - RECORD_BYTES);
}

// The services, called from code whose own accesses are not checked.
EMULATOR_UNCHECKED inline void barrier(Site site) { services().barrier(site); }
EMULATOR_UNCHECKED inline void meet(Site site, uint64_t lanes, void *record,
                                    WarpOperation operation) {
  services().meet(site, lanes, record, operation);
}
EMULATOR_UNCHECKED inline void *dynamic_shared() { return services().dynamic_shared(); }
EMULATOR_UNCHECKED inline void copy_later(void *target, const void *source, unsigned bytes,
                                          unsigned zeros) {
  services().copy_later(target, source, bytes, zeros);
}
EMULATOR_UNCHECKED inline void commit_copies() { services().commit_copies(); }
EMULATOR_UNCHECKED inline void await_copies(unsigned groups) { services().await_copies(groups); }
EMULATOR_UNCHECKED inline void note_atomic() { services().note_atomic(); }
EMULATOR_UNCHECKED inline void warp_fence() { services().warp_fence(); }
EMULATOR_UNCHECKED inline void fail(const char *reason, unsigned line) {
  services().fail(reason, line);
}

// By functions, because a dialect may take the names of the fields for itself.
inline Dim3 position_in_block() { return self().thread; }
inline Dim3 position_of_block() { return self().block; }

constexpr uint64_t ALL_LANES = ~uint64_t{0};

// The bounds of what `__launch_bounds__` may say, where it says nothing.
constexpr unsigned MAX_THREADS = 1024;

// Calls a kernel with parameters of its types.
template <int... I>
struct Numbers {};
template <int N, int... I>
struct CountTo : CountTo<N - 1, N - 1, I...> {};
template <int... I>
struct CountTo<0, I...> {
  using Type = Numbers<I...>;
};
template <class... A, int... I>
EMULATOR_UNCHECKED void call(void (*kernel)(A...), void **parameters, Numbers<I...>) {
  kernel(*static_cast<A *>(parameters[I])...);
}
template <class... A>
void call(void (*kernel)(A...), void **parameters) {
  call(kernel, parameters, typename CountTo<sizeof...(A)>::Type());
}

template <class... A>
struct Parameters {
  static constexpr unsigned count = sizeof...(A);
  static constexpr unsigned bytes[] = {sizeof(A)..., 0};
};
template <class... A>
Parameters<A...> parameters_of(void (*)(A...));

}  // namespace emulator

// Makes a kernel known to the driver: a function, whose parameters are those of launches.
#define EMULATOR_KERNEL(name, function, max_threads, cluster, warp, checked)              \
  static void name##__entry(void **parameters) { emulator::call(&function, parameters); } \
  extern "C" const emulator::KernelInfo name##__kernel = {                                \
      name##__entry,                                                                      \
      decltype(emulator::parameters_of(&function))::bytes,                                \
      decltype(emulator::parameters_of(&function))::count,                                \
      max_threads,                                                                        \
      cluster,                                                                            \
      warp,                                                                               \
      checked,                                                                            \
      EMULATOR_SHARED_BYTES,                                                              \
      EMULATOR_TAKES_SUBNORMALS_FOR_ZERO}
