// CUDA C++ as C++: what kernels find without any header, and the functions of the prelude that are
// written in assembly.
#pragma once

#include "atomics.h"
#include "functions.h"
#include "module.h"
#include "numbers.h"
#include "nvidia_bulk.h"
#include "nvidia_matrix.h"
#include "nvidia_wgmma.h"
#include "warp.h"

#define EMULATOR_SHARED_BYTES (48 << 10)
#define EMULATOR_TAKES_SUBNORMALS_FOR_ZERO 0

#define __global__ extern "C"
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__ EMULATOR_SHARED
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __restrict__ __restrict
#define __grid_constant__
#define __CUDA_ARCH__ EMULATOR_CUDA_ARCH

#define threadIdx (emulator::self().thread)
#define blockIdx (emulator::self().block)
#define blockDim (emulator::self().block_size)
#define gridDim (emulator::self().grid_size)
#define warpSize 32

#define __syncthreads() emulator::barrier(EMULATOR_SITE)
#define __syncthreads_count(x) emulator::barrier_count(EMULATOR_SITE, EMULATOR_SITE, x)
#define __syncthreads_or(x) (__syncthreads_count(x) != 0)
#define __syncthreads_and(x) (__syncthreads_count(!(x)) == 0)
#define __threadfence() emulator::note_atomic()
#define __threadfence_block()

#define EMULATOR_FULL_MASK 0xffffffffu
#define EMULATOR_LANE (emulator::self().lane)
#define __syncwarp(...) emulator::warp_barrier(EMULATOR_SITE, emulator::mask_or_all(__VA_ARGS__))
#define __activemask() EMULATOR_FULL_MASK
#define __shfl_sync(mask, value, source, ...) \
  emulator::shuffle_from(EMULATOR_SITE, mask, value, source, ##__VA_ARGS__)
#define __shfl_xor_sync(mask, value, offset, ...) \
  emulator::shuffle_xor(EMULATOR_SITE, mask, value, offset, ##__VA_ARGS__)
#define __shfl_down_sync(mask, value, offset, ...) \
  emulator::shuffle_down(EMULATOR_SITE, mask, value, offset, ##__VA_ARGS__)
#define __shfl_up_sync(mask, value, offset, ...) \
  emulator::shuffle_up(EMULATOR_SITE, mask, value, offset, ##__VA_ARGS__)
#define __ballot_sync(mask, x) \
  static_cast<unsigned>(emulator::ballot(EMULATOR_SITE, mask, static_cast<bool>(x)))
#define __any_sync(mask, x) (__ballot_sync(mask, x) != 0)
#define __all_sync(mask, x) (__ballot_sync(mask, !(x)) == 0)

namespace emulator {

inline unsigned mask_or_all(unsigned mask = EMULATOR_FULL_MASK) { return mask; }

// The lane that a shuffle within parts of `width` lanes reads: its own if the source is outside.
inline unsigned within(unsigned width, int source) {
  unsigned lane = self().lane, part = lane / width * width;
  bool inside = source >= static_cast<int>(part) && source < static_cast<int>(part + width);
  return inside ? static_cast<unsigned>(source) : lane;
}
template <class T>
T shuffle_from(Site site, unsigned mask, T value, unsigned source, unsigned width = 32) {
  return shuffle(site, mask, value, self().lane / width * width + source % width);
}
template <class T>
T shuffle_xor(Site site, unsigned mask, T value, unsigned offset, unsigned width = 32) {
  return shuffle(site, mask, value, within(width, static_cast<int>(self().lane ^ offset)));
}
template <class T>
T shuffle_down(Site site, unsigned mask, T value, unsigned offset, unsigned width = 32) {
  return shuffle(site, mask, value, within(width, static_cast<int>(self().lane + offset)));
}
template <class T>
T shuffle_up(Site site, unsigned mask, T value, unsigned offset, unsigned width = 32) {
  return shuffle(site, mask, value,
                 within(width, static_cast<int>(self().lane) - static_cast<int>(offset)));
}

}  // namespace emulator

// Bits and numbers.
inline float __int_as_float(int x) { return emulator::same_bits<float>(x); }
inline int __float_as_int(float x) { return emulator::same_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emulator::same_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emulator::same_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return emulator::same_bits<double>(x); }
inline long long __double_as_longlong(double x) { return emulator::same_bits<long long>(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return expf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
template <class T>
inline T __ldg(const T *address) {
  return *address;
}
template <class T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
  return a < b ? b : a;
}
inline size_t __cvta_generic_to_shared(const void *address) {
  return reinterpret_cast<size_t>(address);
}

// Vectors of CUDA.
#define EMULATOR_VECTORS(type, name, bytes)                        \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };         \
  struct alignas(bytes) name##4 { type x, y, z, w; };              \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATOR_VECTORS(float, float, 16)
EMULATOR_VECTORS(int, int, 16)
EMULATOR_VECTORS(unsigned, uint, 16)
#undef EMULATOR_VECTORS

// Functions of the prelude: those that are assembly on hardware, and those that wait. A macro knows
// the types that a kernel's text defines, and the place of each use in it.
#define half_to_float(x) emulator::float_of_half((x).bits)
#define float_to_half(x) (half{emulator::half_of_float(x)})
#define float_to_bfloat16(x) (bfloat16{emulator::bfloat16_of_float(x)})
#define block_barrier() emulator::barrier(EMULATOR_SITE)
#define warp_shuffle(value, lane) \
  emulator::shuffle_from(EMULATOR_SITE, EMULATOR_FULL_MASK, value, lane)
inline unsigned round_to_tf32(float value) {
  return emulator::same_bits<unsigned>(emulator::round_to_tf32(value));
}

template <unsigned BYTES>
inline void copy_async(void *shared, const void *global, bool valid = true) {
  emulator::copy_later(shared, global, valid ? BYTES : 0, valid ? 0 : BYTES);
}
#define copy_async_4 copy_async<4>
#define copy_async_8 copy_async<8>
#define copy_async_16 copy_async<16>
#define copy_async_4_or_zero copy_async<4>
#define copy_async_8_or_zero copy_async<8>
#define copy_async_16_or_zero copy_async<16>
inline void copy_async_commit() { emulator::commit_copies(); }
template <int GROUPS_IN_FLIGHT>
inline void copy_async_wait() {
  emulator::await_copies(GROUPS_IN_FLIGHT);
  emulator::note_fence(false);
}

#define load_matrix_x1(row) emulator::load_matrices<u32x1, false>(EMULATOR_SITE, row)
#define load_matrix_x2(row) emulator::load_matrices<u32x2, false>(EMULATOR_SITE, row)
#define load_matrix_x4(row) emulator::load_matrices<u32x4, false>(EMULATOR_SITE, row)
#define load_matrix_x2_transposed(row) emulator::load_matrices<u32x2, true>(EMULATOR_SITE, row)
#define load_matrix_x4_transposed(row) emulator::load_matrices<u32x4, true>(EMULATOR_SITE, row)
#define mma_m16n8k16_f16(...) \
  emulator::mma_m16n8k16<emulator::float_of_half>(EMULATOR_SITE, __VA_ARGS__)
#define mma_m16n8k16_bf16(...) \
  emulator::mma_m16n8k16<emulator::float_of_bfloat16>(EMULATOR_SITE, __VA_ARGS__)
#define mma_m16n8k8_tf32(...) emulator::mma_m16n8k8_tf32(EMULATOR_SITE, __VA_ARGS__)

#define matrix_descriptor(matrix, panel_bytes) emulator::matrix_descriptor(matrix, panel_bytes)
#define async_fence() emulator::async_fence()
#define mbarrier_init(mbarrier, arrivals) emulator::make_mbarrier(mbarrier, arrivals)
#define mbarrier_arrive_in(mbarrier, block) emulator::arrive(mbarrier, block)
#define mbarrier_arrive(mbarrier) emulator::arrive(mbarrier, emulator::OWN_BLOCK)
#define release_registers emulator::RegistersAt<__COUNTER__, __LINE__, false>::set
#define acquire_registers emulator::RegistersAt<__COUNTER__, __LINE__, true>::set
#define mbarrier_expect(mbarrier, bytes) emulator::expect_bytes(mbarrier, bytes)
#define mbarrier_wait(mbarrier, parity) emulator::await_mbarrier(EMULATOR_SITE, mbarrier, parity)
#define copy_box_2d(shared, mbarrier, map, ...) \
  emulator::copy_box(0, shared, mbarrier, &(map), __VA_ARGS__)
#define copy_box_3d copy_box_2d
#define copy_box_4d copy_box_2d
#define copy_box_5d copy_box_2d
#define copy_box_2d_to_2(shared, mbarrier, map, ...) \
  emulator::copy_box(3, shared, mbarrier, &(map), __VA_ARGS__)
#define copy_box_3d_to_2 copy_box_2d_to_2
#define copy_box_4d_to_2 copy_box_2d_to_2
#define copy_box_5d_to_2 copy_box_2d_to_2
#define cluster_barrier() emulator::cluster_barrier(EMULATOR_SITE)

#define wgmma_begin() emulator::begin_products(EMULATOR_SITE)
#define wgmma_commit() emulator::commit_products(EMULATOR_SITE)
#define wgmma_wait emulator::WaitAt<__COUNTER__, __LINE__>::wait
#define EMULATOR_WGMMA(columns, kind, convert)                                             \
  template <int A_TRANSPOSED, int B_TRANSPOSED>                                            \
  inline void wgmma_m64n##columns##k16_##kind(float *sums, uint64_t a, uint64_t b) {       \
    emulator::begin_product<columns, convert, A_TRANSPOSED != 0, B_TRANSPOSED != 0>(sums, a, b); \
  }
EMULATOR_WGMMA(64, f16, emulator::float_of_half)
EMULATOR_WGMMA(128, f16, emulator::float_of_half)
EMULATOR_WGMMA(256, f16, emulator::float_of_half)
EMULATOR_WGMMA(64, bf16, emulator::float_of_bfloat16)
EMULATOR_WGMMA(128, bf16, emulator::float_of_bfloat16)
EMULATOR_WGMMA(256, bf16, emulator::float_of_bfloat16)
#undef EMULATOR_WGMMA
#define wgmma_m64n64k8_tf32(...) emulator::begin_held_product<64>(EMULATOR_SITE, __VA_ARGS__)
#define wgmma_m64n128k8_tf32(...) emulator::begin_held_product<128>(EMULATOR_SITE, __VA_ARGS__)
#define wgmma_m64n256k8_tf32(...) emulator::begin_held_product<256>(EMULATOR_SITE, __VA_ARGS__)
