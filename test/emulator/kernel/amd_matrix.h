// Matrix instructions of AMD's GPUs: MFMA of CDNA3 (warps of 64) and WMMA of RDNA3 (warps of 32).
#pragma once

#include "matrix.h"

namespace emulator {

// MFMA with a result of SIDE x SIDE and 4 elements of 16 bits a lane: lanes go along the side, then
// along groups of four terms.
template <unsigned SIDE>
inline Position mfma_left(unsigned lane, unsigned i) {
  return {lane % SIDE, lane / SIDE * 4 + i};
}
template <unsigned SIDE>
inline Position mfma_right(unsigned lane, unsigned i) {
  return {lane / SIDE * 4 + i, lane % SIDE};
}
// Groups of four rows, dealt to the groups of lanes in turn.
template <unsigned SIDE>
inline Position mfma_result(unsigned lane, unsigned i) {
  return {i / 4 * (64 / SIDE * 4) + lane / SIDE * 4 + i % 4, lane % SIDE};
}

// WMMA: both halves of the warp hold the operands, and every other row of the result.
inline Position wmma_left(unsigned lane, unsigned i) { return {lane % 16, i}; }
inline Position wmma_right(unsigned lane, unsigned i) { return {i, lane % 16}; }
inline Position wmma_result(unsigned lane, unsigned i) { return {i * 2 + lane / 16, lane % 16}; }

// The elements of operands of 16-bit floats, however the kernel declares them.
template <float (*CONVERT)(unsigned short), unsigned N, class Operand>
EMULATOR_UNCHECKED void read_halves(const Operand &operand, float (&values)[N]) {
  static_assert(sizeof(Operand) == 2 * N, "elements of 16 bits");
  unsigned short bits[N];
  __builtin_memcpy(bits, &operand, sizeof bits);
  for (unsigned i = 0; i < N; i++) values[i] = CONVERT(bits[i]);
}

template <unsigned SIDE, float (*CONVERT)(unsigned short), class Left, class Right, class Result>
EMULATOR_UNCHECKED Result mfma(Site site, const Left &left, const Right &right, Result c) {
  constexpr unsigned K = 64 / SIDE * 4, RESULTS = SIDE * SIDE / 64;
  static_assert(sizeof(Result) == RESULTS * 4, "a result of float32");
  float a[4], b[4], sums[RESULTS];
  read_halves<CONVERT>(left, a);
  read_halves<CONVERT>(right, b);
  __builtin_memcpy(sums, &c, sizeof sums);
  multiply_matrices<SIDE, SIDE, K, 4, 4, RESULTS, mfma_left<SIDE>, mfma_right<SIDE>,
                    mfma_result<SIDE>>(site, a, b, sums);
  __builtin_memcpy(&c, sums, sizeof sums);
  return c;
}

template <float (*CONVERT)(unsigned short), class Left, class Right, class Result>
EMULATOR_UNCHECKED Result wmma(Site site, const Left &left, const Right &right, Result c) {
  static_assert(sizeof(Result) == 8 * 4, "a result of float32");
  float a[16], b[16], sums[8];
  read_halves<CONVERT>(left, a);
  read_halves<CONVERT>(right, b);
  __builtin_memcpy(sums, &c, sizeof sums);
  multiply_matrices<16, 16, 16, 16, 16, 8, wmma_left, wmma_right, wmma_result>(site, a, b, sums);
  __builtin_memcpy(&c, sums, sizeof sums);
  return c;
}

}  // namespace emulator
