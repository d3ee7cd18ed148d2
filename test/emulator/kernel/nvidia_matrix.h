// mma and ldmatrix, with the fragments that the PTX manual draws.
#pragma once

#include "matrix.h"

namespace emulator {

// A 16 x 8 result: a row in each group of four lanes, two neighbours in each lane, then 8 rows
// below.
inline Position mma_result(unsigned lane, unsigned i) {
  return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}
// 16 x 16 elements of 16 bits: four 8 x 8 quarters, first those of the left half.
inline Position mma_left_16(unsigned lane, unsigned i) {
  return {lane / 4 + i / 2 % 2 * 8, lane % 4 * 2 + i % 2 + i / 4 * 8};
}
inline Position mma_right_16(unsigned lane, unsigned i) {
  return {lane % 4 * 2 + i % 2 + i / 2 * 8, lane / 4};
}
// 16 x 8 elements of 32 bits.
inline Position mma_left_32(unsigned lane, unsigned i) {
  return {lane / 4 + i % 2 * 8, lane % 4 + i / 2 * 4};
}
inline Position mma_right_32(unsigned lane, unsigned i) { return {lane % 4 + i * 4, lane / 4}; }

// The 16-bit number `i` of registers that hold two each.
template <class Registers>
inline unsigned short half_register(const Registers &registers, unsigned i) {
  return static_cast<unsigned short>(registers.lane[i / 2] >> (i % 2 * 16));
}

template <float (*CONVERT)(unsigned short), class Left, class Right, class Result>
EMULATOR_UNCHECKED Result mma_m16n8k16(Site site, const Left &left, const Right &right, Result c) {
  float a[8], b[4];
  for (unsigned i = 0; i < 8; i++) a[i] = CONVERT(half_register(left, i));
  for (unsigned i = 0; i < 4; i++) b[i] = CONVERT(half_register(right, i));
  multiply_matrices<16, 8, 16, 8, 4, 4, mma_left_16, mma_right_16, mma_result>(site, a, b, c.lane);
  return c;
}

// The prelude's function rounds its factors.
template <class Left, class Right, class Result>
EMULATOR_UNCHECKED Result mma_m16n8k8_tf32(Site site, const Left &left, const Right &right,
                                           Result c) {
  float a[4], b[2];
  for (unsigned i = 0; i < 4; i++) a[i] = round_to_tf32(left.lane[i]);
  for (unsigned i = 0; i < 2; i++) b[i] = round_to_tf32(right.lane[i]);
  multiply_matrices<16, 8, 8, 4, 2, 4, mma_left_32, mma_right_32, mma_result>(site, a, b, c.lane);
  return c;
}

// Lane l names row l % 8 of matrix l / 8, of 8 x 8 elements of 16 bits. Lane l gets the elements
// 2 * (l % 4) and the next of row l / 4 of each matrix, or of its transpose.
template <class Registers, bool TRANSPOSED>
Registers load_matrices(Site site, const void *row) {
  constexpr unsigned MATRICES = sizeof(Registers) / 4;
  struct Record {
    unsigned short row[8];
    Registers result;
  };
  Record record;
  if (self().lane < MATRICES * 8) {
    if (reinterpret_cast<uintptr_t>(row) % 16)
      fail("the address of a row of a matrix is not a multiple of 16", site.line);
    // an access of this lane, which checks see
    const unsigned long long *words = static_cast<const unsigned long long *>(row);
    unsigned long long parts[2] = {words[0], words[1]};
    __builtin_memcpy(record.row, parts, sizeof parts);
  }
  meet(site, ALL_LANES, &record, [](void *const *records) EMULATOR_UNCHECKED {
    for (unsigned lane = 0; lane < 32; lane++) {
      Record *mine = static_cast<Record *>(records[lane]);
      for (unsigned matrix = 0; matrix < MATRICES; matrix++) {
        unsigned packed = 0;
        for (unsigned i = 0; i < 2; i++) {
          unsigned y = lane / 4, x = lane % 4 * 2 + i;
          const Record *from = static_cast<Record *>(records[matrix * 8 + (TRANSPOSED ? x : y)]);
          packed |= static_cast<unsigned>(from->row[TRANSPOSED ? y : x]) << (i * 16);
        }
        mine->result.lane[matrix] = packed;
      }
    }
  });
  return record.result;
}

}  // namespace emulator
