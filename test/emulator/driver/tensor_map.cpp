#include "tensor_map.h"

#include <algorithm>
#include <cstring>

#include "api.h"
#include "report.h"

using namespace emulator;

namespace emulator {

size_t TensorMap::rows() const {
  size_t count = 1;
  for (unsigned i = 1; i < rank; i++) count *= box[i];
  return count;
}

BoxCopy::Source BoxCopy::row_of(size_t number) const {
  const char *begin = map.address;
  for (unsigned i = 1; i < map.rank; i++) {
    int64_t at = coordinates[i] + static_cast<int64_t>(number % map.box[i]);
    number /= map.box[i];
    if (at < 0 || at >= static_cast<int64_t>(map.sizes[i])) return {nullptr, 0, 0};
    begin += at * static_cast<int64_t>(map.strides[i]);
  }
  int64_t first = std::max<int64_t>(coordinates[0], 0);
  int64_t end = std::min<int64_t>(coordinates[0] + map.box[0], map.sizes[0]);
  if (first >= end) return {nullptr, 0, 0};
  return {begin + first * map.itemsize, static_cast<size_t>(first - coordinates[0]) * map.itemsize,
          static_cast<size_t>(end - first) * map.itemsize};
}

namespace {

// Floats to 10 bits of the mantissa, ties to even. The documentation does not say where ties go, but
// users of the hardware found it (github.com/triton-lang/triton/pull/11751).
void round_row(char (&row)[SWIZZLED_ROW_BYTES]) {
  for (size_t i = 0; i < sizeof row; i += 4) {
    uint32_t bits;
    std::memcpy(&bits, row + i, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
    std::memcpy(row + i, &bits, sizeof bits);
  }
}

}  // namespace

// 16 bytes of a row lie where others would: bits 7 to 9 of an address exchange bits 4 to 6.
void BoxCopy::run() const {
  for (size_t number = 0; number < map.rows(); number++) {
    char row[SWIZZLED_ROW_BYTES] = {};
    Source source = row_of(number);
    if (source.bytes) std::memcpy(row + source.before, source.begin, source.bytes);
    if (map.rounds) round_row(row);
    for (size_t i = 0; i < sizeof row; i += 16) {
      uintptr_t at = reinterpret_cast<uintptr_t>(target) + number * sizeof row + i;
      std::memcpy(reinterpret_cast<void *>(at ^ (at >> 7 & 7) << 4), row + i, 16);
    }
  }
}

}  // namespace emulator

namespace {

constexpr uint64_t MAX_SIZE = uint64_t{1} << 32, MAX_STRIDE = uint64_t{1} << 40;
constexpr uint32_t MAX_BOX = 256;
constexpr int SWIZZLE_128B = 3;
constexpr unsigned ITEMSIZES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};  // of the data types
constexpr int TFLOAT32 = 11;

bool is_multiple(uint64_t number, uint64_t of) { return number % of == 0; }

// What the driver's documentation requires of a map; the reason why it is none.
std::string fault_of(const TensorMap &map) {
  if (!is_multiple(reinterpret_cast<uintptr_t>(map.address), 16))
    return "the address of the tensor is not a multiple of 16";
  for (unsigned i = 0; i < map.rank; i++) {
    if (!map.sizes[i] || map.sizes[i] > MAX_SIZE) return "a size is not between 1 and 2^32";
    if (!map.box[i] || map.box[i] > MAX_BOX) return "a side of the box is not between 1 and 256";
    if (!i) continue;
    if (!is_multiple(map.strides[i], 16) || map.strides[i] >= MAX_STRIDE)
      return "a stride is not a multiple of 16 below 2^40";
    if (!is_multiple(map.strides[i], map.strides[i - 1]) ||
        map.strides[i] < map.strides[i - 1] * map.sizes[i - 1])
      return "a stride does not include the dimension inside of it";
  }
  if (map.box[0] * map.itemsize > SWIZZLED_ROW_BYTES)
    return "the box is wider than a swizzled row of 128 bytes";
  return "";
}

}  // namespace

API cuTensorMapEncodeTiled(void *target, int data_type, uint32_t rank, void *address,
                           const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave, int swizzle, int,
                           int fill) {
  auto reject = [](const std::string &reason) {
    report("cuTensorMapEncodeTiled: " + reason);
    return INVALID_VALUE;
  };
  if (!is_multiple(reinterpret_cast<uintptr_t>(target), 64))
    return reject("the address of the map is not a multiple of 64");
  if (!rank || rank > MAX_RANK) return reject("the rank is not between 1 and 5");
  if (data_type < 0 || data_type >= static_cast<int>(std::size(ITEMSIZES)))
    return reject("unknown data type");
  TensorMap map = {};
  map.mark = TensorMap::MARK;
  map.address = static_cast<char *>(address);
  map.rank = static_cast<uint16_t>(rank);
  map.itemsize = static_cast<uint16_t>(ITEMSIZES[data_type]);
  map.rounds = data_type == TFLOAT32;
  map.strides[0] = map.itemsize;
  bool is_dense = true;
  for (unsigned i = 0; i < rank; i++) {
    map.sizes[i] = sizes[i];
    map.box[i] = box[i];
    if (i) map.strides[i] = strides[i - 1];
    is_dense &= element_strides[i] == 1;
  }
  std::string fault = fault_of(map);
  if (!fault.empty()) return reject(fault);
  if (interleave || swizzle != SWIZZLE_128B || fill || !is_dense ||
      map.box[0] * map.itemsize != SWIZZLED_ROW_BYTES) {
    report("cuTensorMapEncodeTiled: the emulator knows dense boxes of swizzled 128-byte rows alone");
    return NOT_SUPPORTED;
  }
  std::memset(target, 0, 128);
  std::memcpy(target, &map, sizeof map);
  return SUCCESS;
}
