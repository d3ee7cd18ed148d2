// Matrix instructions of a warp: each lane holds elements of the operands, as a lane map says.
//
// A map gives the row and the column of element `i` of lane `lane`. Sums are computed in float32,
// from the first term to the last; hardware adds in an order that vendors do not document, so only
// sums that are exact are equal bit by bit.
#pragma once

#include "numbers.h"
#include "warp.h"

namespace emulator {

struct Position {
  unsigned row, column;
};
using LaneMap = Position (*)(unsigned lane, unsigned element);

// d = c + a @ b of M x K and K x N elements that are floats already, of which each lane has `A`,
// `B` and `C` of the operands.
template <unsigned M, unsigned N, unsigned K, unsigned A, unsigned B, unsigned C, LaneMap MAP_A,
          LaneMap MAP_B, LaneMap MAP_C, class Number = float>
EMULATOR_UNCHECKED void multiply_matrices(Site site, const Number (&a)[A], const Number (&b)[B],
                                          Number (&c)[C]) {
  struct Record {
    Number a[A], b[B], c[C];
  };
  Record record;
  for (unsigned i = 0; i < A; i++) record.a[i] = a[i];
  for (unsigned i = 0; i < B; i++) record.b[i] = b[i];
  for (unsigned i = 0; i < C; i++) record.c[i] = c[i];
  meet(site, ALL_LANES, &record, [](void *const *records) EMULATOR_UNCHECKED {
    Number left[M][K] = {}, right[N][K] = {};
    for (unsigned lane = 0; lane < MAX_WARP; lane++) {
      const Record *one = static_cast<Record *>(records[lane]);
      if (!one) continue;
      for (unsigned i = 0; i < A; i++) left[MAP_A(lane, i).row][MAP_A(lane, i).column] = one->a[i];
      for (unsigned i = 0; i < B; i++) right[MAP_B(lane, i).column][MAP_B(lane, i).row] = one->b[i];
    }
    for (unsigned lane = 0; lane < MAX_WARP; lane++) {
      Record *one = static_cast<Record *>(records[lane]);
      if (!one) continue;
      for (unsigned i = 0; i < C; i++) {
        Position at = MAP_C(lane, i);
        for (unsigned k = 0; k < K; k++) one->c[i] += left[at.row][k] * right[at.column][k];
      }
    }
  });
  for (unsigned i = 0; i < C; i++) c[i] = record.c[i];
}

}  // namespace emulator
