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

// Puts what a lane holds of an element into place. Returns whether another lane, which holds the
// same element, has another value.
template <class Number>
EMULATOR_UNCHECKED bool place(Number &element, bool &is_placed, Number held) {
  bool differs = is_placed && __builtin_memcmp(&element, &held, sizeof held);
  element = held;
  is_placed = true;
  return differs;
}

// d = c + a @ b of M x K and K x N elements that are floats already, of which each lane has `A`,
// `B` and `C` of the operands.
template <unsigned M, unsigned N, unsigned K, unsigned A, unsigned B, unsigned C, LaneMap MAP_A,
          LaneMap MAP_B, LaneMap MAP_C, class Number = float>
EMULATOR_UNCHECKED void multiply_matrices(Site site, const Number (&a)[A], const Number (&b)[B],
                                          Number (&c)[C]) {
  struct Record {
    Number a[A], b[B], c[C];
    bool differs;
  };
  Record record;
  record.differs = false;
  for (unsigned i = 0; i < A; i++) record.a[i] = a[i];
  for (unsigned i = 0; i < B; i++) record.b[i] = b[i];
  for (unsigned i = 0; i < C; i++) record.c[i] = c[i];
  meet(site, ALL_LANES, &record, [](void *const *records) EMULATOR_UNCHECKED {
    Number left[M][K] = {}, right[N][K] = {};
    bool has_left[M][K] = {}, has_right[N][K] = {};
    for (unsigned lane = 0; lane < MAX_WARP; lane++) {
      Record *one = static_cast<Record *>(records[lane]);
      if (!one) continue;
      for (unsigned i = 0; i < A; i++) {
        Position at = MAP_A(lane, i);
        one->differs |= place(left[at.row][at.column], has_left[at.row][at.column], one->a[i]);
      }
      for (unsigned i = 0; i < B; i++) {
        Position at = MAP_B(lane, i);
        one->differs |= place(right[at.column][at.row], has_right[at.column][at.row], one->b[i]);
      }
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
  if (record.differs) fail("lanes hold different copies of an element of a matrix", site.line);
  for (unsigned i = 0; i < C; i++) c[i] = record.c[i];
}

}  // namespace emulator
