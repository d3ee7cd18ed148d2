// Tensor maps: what `cuTensorMapEncodeTiled` makes, and the boxes that they describe.
//
// Only maps without interleaving whose boxes have swizzled rows of 128 bytes are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

constexpr unsigned MAX_RANK = 5, SWIZZLED_ROW_BYTES = 128;

// The emulator's own encoding, of the size of a CUtensorMap.
struct TensorMap {
  static constexpr uint64_t MARK = 0x70616d726f736e65;
  uint64_t mark;
  char *address;
  uint64_t sizes[MAX_RANK], strides[MAX_RANK];  // of elements, and in bytes; innermost first
  uint32_t box[MAX_RANK];
  uint16_t rank, itemsize;
  bool rounds;  // floats to TF32

  size_t rows() const;
  size_t bytes() const { return rows() * SWIZZLED_ROW_BYTES; }
};
static_assert(sizeof(TensorMap) <= 128);

// A copy of the box at some coordinates to shared memory.
struct BoxCopy {
  TensorMap map;
  char *target;
  int64_t coordinates[MAX_RANK];

  // Calls `row(source, bytes)` with what is inside of the tensor of each row that is.
  template <class Row>
  void each_row(Row row) const {
    for (size_t number = 0; number < map.rows(); number++) {
      Source source = row_of(number);
      if (source.bytes) row(source.begin, source.bytes);
    }
  }
  void run() const;

 private:
  struct Source {
    const char *begin;
    size_t before, bytes;  // zeros before what is inside, which zeros follow
  };
  Source row_of(size_t number) const;
};

}  // namespace emulator
