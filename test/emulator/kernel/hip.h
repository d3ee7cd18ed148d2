// HIP C++ as C++: what clang knows of AMD's GPUs without headers, and what the prelude says of
// types and meetings.
#pragma once

#include "amd_matrix.h"
#include "atomics.h"
#include "functions.h"
#include "module.h"
#include "numbers.h"
#include "warp.h"

#define EMULATOR_SHARED_BYTES (64 << 10)
#define EMULATOR_TAKES_SUBNORMALS_FOR_ZERO 0

#define __global__ extern "C"
#define __device__
#define __shared__ EMULATOR_SHARED
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

#define __builtin_amdgcn_workgroup_id_x() (emulator::self().block.x)
#define __builtin_amdgcn_workgroup_id_y() (emulator::self().block.y)
#define __builtin_amdgcn_workgroup_id_z() (emulator::self().block.z)
#define __builtin_amdgcn_workitem_id_x() (emulator::self().thread.x)
#define __builtin_amdgcn_workitem_id_y() (emulator::self().thread.y)
#define __builtin_amdgcn_workitem_id_z() (emulator::self().thread.z)
#define __builtin_amdgcn_s_barrier() emulator::barrier(EMULATOR_SITE)
#define __builtin_amdgcn_fence(...)
// the exponent of a finite number other than 0 as 0.5 <= m < 1 times a power of two
inline int __builtin_amdgcn_frexp_exp(double x) {
  int exponent;
  __builtin_frexp(x, &exponent);
  return exponent;
}

#define block_barrier() emulator::barrier(EMULATOR_SITE)
#define warp_shuffle(value, lane) emulator::shuffle(EMULATOR_SITE, emulator::ALL_LANES, value, lane)

struct half {
  unsigned short bits;
};
inline half half_of_bits(unsigned short bits) { return {bits}; }
inline unsigned short bits_of_half(half x) { return x.bits; }
inline float half_to_float(half x) { return emulator::float_of_half(x.bits); }
inline half float_to_half(float x) { return {emulator::half_of_float(x)}; }

struct bfloat16 {
  unsigned short bits;
};
inline bfloat16 bfloat16_of_bits(unsigned short bits) { return {bits}; }
inline unsigned short bits_of_bfloat16(bfloat16 x) { return x.bits; }
inline float bfloat16_to_float(bfloat16 x) { return emulator::float_of_bfloat16(x.bits); }
inline bfloat16 float_to_bfloat16(float x) { return {emulator::bfloat16_of_float(x)}; }

#define mfma_16x16x16_f16(...) \
  emulator::mfma<16, emulator::float_of_half>(EMULATOR_SITE, __VA_ARGS__)
#define mfma_16x16x16_bf16(...) \
  emulator::mfma<16, emulator::float_of_bfloat16>(EMULATOR_SITE, __VA_ARGS__)
#define mfma_32x32x8_f16(...) \
  emulator::mfma<32, emulator::float_of_half>(EMULATOR_SITE, __VA_ARGS__)
#define mfma_32x32x8_bf16(...) \
  emulator::mfma<32, emulator::float_of_bfloat16>(EMULATOR_SITE, __VA_ARGS__)
#define wmma_16x16x16_f16(...) emulator::wmma<emulator::float_of_half>(EMULATOR_SITE, __VA_ARGS__)
#define wmma_16x16x16_bf16(...) \
  emulator::wmma<emulator::float_of_bfloat16>(EMULATOR_SITE, __VA_ARGS__)
