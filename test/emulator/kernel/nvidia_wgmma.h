// wgmma: four warps multiply matrices in shared memory, while their threads continue.
//
// A product happens when it is awaited, and its operands may not change from its begin on: each
// thread remembers a hash of a part of them, so that a barrier or a wait that is missing before or
// after it is an error in both orders. Sums are NaN from the first product that adds to them until
// no such product is pending, and may not change either. A matrix lies in panels of 128-byte rows,
// of which 8 are swizzled; a descriptor is its address and the bytes from a panel to the next. Of
// TF32, lanes hold the left operand.
#pragma once

#include "matrix.h"

namespace emulator {

constexpr unsigned WGMMA_DEPTH = 16, PANEL_ROW_BYTES = 128, MAX_PENDING = 32;
constexpr unsigned MAX_TILES = 8, MAX_SUMS = 128;
constexpr uint32_t IN_USE = 0xffdeadff;  // the bits of a sum that products add to, a NaN
constexpr uint64_t ADDRESS_BITS = (uint64_t{1} << 44) - 1;

inline uint64_t matrix_descriptor(const void *matrix, unsigned panel_bytes) {
  return reinterpret_cast<uint64_t>(matrix) >> 4 | static_cast<uint64_t>(panel_bytes >> 4) << 44;
}

// An element of a matrix; 16 columns along the reduction are contiguous unless it is transposed.
template <bool TRANSPOSED>
EMULATOR_UNCHECKED const unsigned short *element(uint64_t descriptor, unsigned row, unsigned deep) {
  uint64_t panel = row * 2 / PANEL_ROW_BYTES * (descriptor >> 44 << 4);
  uint64_t offset = TRANSPOSED ? panel + deep * PANEL_ROW_BYTES + row * 2 % PANEL_ROW_BYTES
                               : row * PANEL_ROW_BYTES + deep * 2;
  uint64_t address = ((descriptor & ADDRESS_BITS) << 4) + offset;
  return reinterpret_cast<const unsigned short *>(address ^ (address >> 7 & 7) << 4);
}

// Four bytes of a column whose 8 rows along the reduction are contiguous.
EMULATOR_UNCHECKED inline const unsigned short *element_32(uint64_t descriptor, unsigned column,
                                                           unsigned deep) {
  return element<false>(descriptor, column, deep * 2);
}

// The sums of pending products, and the registers that become these.
struct Sums {
  float *registers;
  unsigned count, pending;
  float values[MAX_SUMS];
};

struct Product {
  Sums *sums;
  uint64_t a, b, hash;
  uint64_t (*read)(uint64_t a, uint64_t b);
  void (*add)(const Product &product);
  unsigned group;
  float left[2][8];  // the rows of this lane, where lanes hold the left operand
};

// The products of a thread that were begun and not awaited, oldest first.
struct Products {
  uint64_t run;  // of the thread
  Product pending[MAX_PENDING];
  unsigned count, groups;
  bool is_fenced;  // what it wrote to shared memory
  bool is_begun;   // what it did to registers
  Sums sums[MAX_TILES];

  EMULATOR_UNCHECKED void start(uint64_t number) {
    run = number;
    count = groups = 0;
    is_fenced = is_begun = false;
    for (Sums &each : sums) each.pending = 0;
  }
};

// Hidden, or all modules would share the array: a template's is unique in the process.
template <class T>
__attribute__((visibility("hidden"))) EMULATOR_UNCHECKED T &of_this_thread() {
  static T all[MAX_THREADS];  // of the one block that runs; the module has a copy for each such
  T &mine = all[self().index];
  // an earlier block may have failed, and left some
  if (mine.run != self().run) mine.start(self().run);
  return mine;
}

// The row of the first element of a lane; the other one is 8 below.
EMULATOR_UNCHECKED inline unsigned wgmma_row() { return self().warp % 4 * 16 + self().lane / 4; }

// An access of this thread, which checks see.
inline __attribute__((noinline)) uint64_t add_to_hash(uint64_t hash, const unsigned short *of) {
  return (hash ^ *of) * 0x9e3779b97f4a7c15 + (hash >> 29);
}

// A hash of the rows of `a` and of some columns of `b`; the lanes of a warp read all columns.
template <unsigned COLUMNS, bool A_TRANSPOSED, bool B_TRANSPOSED>
EMULATOR_UNCHECKED uint64_t read_operands(uint64_t a, uint64_t b) {
  uint64_t hash = 0;
  for (unsigned k = 0; k < WGMMA_DEPTH; k++) {
    for (unsigned below = 0; below <= 8; below += 8)
      hash = add_to_hash(hash, element<A_TRANSPOSED>(a, wgmma_row() + below, k));
    for (unsigned column = self().lane; column < COLUMNS; column += 32)
      hash = add_to_hash(hash, element<B_TRANSPOSED>(b, column, k));
  }
  return hash;
}

template <unsigned COLUMNS, bool A_TRANSPOSED, bool B_TRANSPOSED, float (*CONVERT)(unsigned short)>
EMULATOR_UNCHECKED void add_product(const Product &product) {
  float left[2][WGMMA_DEPTH];
  for (unsigned k = 0; k < WGMMA_DEPTH; k++) {
    for (unsigned i = 0; i < 2; i++)
      left[i][k] = CONVERT(*element<A_TRANSPOSED>(product.a, wgmma_row() + i * 8, k));
  }
  for (unsigned i = 0; i < COLUMNS / 2; i++) {
    unsigned column = self().lane % 4 * 2 + i % 2 + i / 4 * 8;
    for (unsigned k = 0; k < WGMMA_DEPTH; k++) {
      float right = CONVERT(*element<B_TRANSPOSED>(product.b, column, k));
      product.sums->values[i] += left[i / 2 % 2][k] * right;
    }
  }
}

// Takes sums from registers, unless pending products add to them.
EMULATOR_UNCHECKED inline Sums &take_sums(Products &mine, float *registers, unsigned count) {
  Sums *free = nullptr;
  for (Sums &sums : mine.sums) {
    if (sums.pending && sums.registers == registers) {
      sums.pending++;
      return sums;
    }
    if (!sums.pending) free = &sums;
  }
  if (!free) fail("matrix instructions add to too many tiles", 0);
  free->registers = registers;
  free->count = count;
  free->pending = 1;
  for (unsigned i = 0; i < count; i++) {
    free->values[i] = registers[i];
    registers[i] = same_bits<float>(IN_USE);
  }
  return *free;
}

// Gives sums back to their registers after the last product that adds to them.
EMULATOR_UNCHECKED inline void give_back(Sums &sums) {
  if (--sums.pending) return;
  for (unsigned i = 0; i < sums.count; i++) {
    if (same_bits<uint32_t>(sums.registers[i]) != IN_USE)
      fail("a sum is written while matrix instructions add to it", 0);
    sums.registers[i] = sums.values[i];
  }
}

EMULATOR_UNCHECKED inline Product &next_product(float *registers, unsigned columns) {
  Products &mine = of_this_thread<Products>();
  if (!mine.is_fenced) fail("a matrix instruction reads copies that no async_fence() follows", 0);
  if (!mine.is_begun) fail("no wgmma_begin() lets a group of matrix instructions use registers", 0);
  if (mine.count == MAX_PENDING) fail("too many matrix instructions are not awaited", 0);
  Product &product = mine.pending[mine.count++];
  product.group = mine.groups;
  product.sums = &take_sums(mine, registers, columns / 2);
  return product;
}

template <unsigned COLUMNS, float (*CONVERT)(unsigned short), bool A_TRANSPOSED, bool B_TRANSPOSED>
EMULATOR_UNCHECKED void begin_product(float *sums, uint64_t a, uint64_t b) {
  auto read = read_operands<COLUMNS, A_TRANSPOSED, B_TRANSPOSED>;
  auto add = add_product<COLUMNS, A_TRANSPOSED, B_TRANSPOSED, CONVERT>;
  Product &product = next_product(sums, COLUMNS);
  product = {product.sums, a, b, read(a, b), read, add, product.group, {}};
}

// The lanes of a warp read all columns.
template <unsigned COLUMNS>
EMULATOR_UNCHECKED uint64_t read_columns(uint64_t, uint64_t b) {
  uint64_t hash = 0;
  for (unsigned k = 0; k < 8; k++) {
    for (unsigned column = self().lane; column < COLUMNS; column += 32) {
      const unsigned short *parts = element_32(b, column, k);
      hash = add_to_hash(add_to_hash(hash, parts), parts + 1);
    }
  }
  return hash;
}

// Four lanes hold a row and that 8 below. What they hold is exchanged as the product begins.
struct HeldRows {
  float mine[4], rows[2][8];
};

template <unsigned COLUMNS>
EMULATOR_UNCHECKED void add_held_product(const Product &product) {
  for (unsigned i = 0; i < COLUMNS / 2; i++) {
    unsigned column = self().lane % 4 * 2 + i % 2 + i / 4 * 8;
    for (unsigned k = 0; k < 8; k++) {
      float right;
      __builtin_memcpy(&right, element_32(product.b, column, k), sizeof right);
      product.sums->values[i] += product.left[i / 2 % 2][k] * truncate_to_tf32(right);
    }
  }
}

// The low 13 bits of the operands are not read.
template <unsigned COLUMNS, class Left>
EMULATOR_UNCHECKED void begin_held_product(Site site, float *sums, const Left &a, uint64_t b) {
  HeldRows record;
  for (unsigned i = 0; i < 4; i++) record.mine[i] = truncate_to_tf32(a.lane[i]);
  meet(site, ALL_LANES, &record, [](void *const *records) EMULATOR_UNCHECKED {
    for (unsigned lane = 0; lane < 32; lane++) {
      HeldRows *held = static_cast<HeldRows *>(records[lane]);
      for (unsigned k = 0; k < 8; k++) {
        const HeldRows *from = static_cast<HeldRows *>(records[lane / 4 * 4 + k % 4]);
        for (unsigned i = 0; i < 2; i++) held->rows[i][k] = from->mine[k / 4 * 2 + i];
      }
    }
  });
  Product &product = next_product(sums, COLUMNS);
  auto read = read_columns<COLUMNS>;
  product = {product.sums, 0, b, read(0, b), read, add_held_product<COLUMNS>, product.group, {}};
  __builtin_memcpy(product.left, record.rows, sizeof product.left);
}

EMULATOR_UNCHECKED inline void note_fence(bool is_fenced) {
  of_this_thread<Products>().is_fenced = is_fenced;
}

// All lanes of the warp come there.
EMULATOR_UNCHECKED inline void meet_warp(Site site) {
  char nothing;
  meet(site, ALL_LANES, &nothing, [](void *const *) {});
}

// Between what a thread does to registers and the products of a group, which read or add to them.
EMULATOR_UNCHECKED inline void begin_products(Site site) {
  meet_warp(site);
  of_this_thread<Products>().is_begun = true;
}

EMULATOR_UNCHECKED inline void commit_products(Site site) {
  meet_warp(site);
  Products &mine = of_this_thread<Products>();
  mine.groups++;
  mine.is_begun = false;
}

// All lanes of the warp wait for theirs.
EMULATOR_UNCHECKED inline void await_products(Site site, unsigned groups_in_flight) {
  Products &mine = of_this_thread<Products>();
  unsigned done = 0;
  for (; done < mine.count; done++) {
    const Product &product = mine.pending[done];
    if (product.group + groups_in_flight >= mine.groups) break;
    if (product.read(product.a, product.b) != product.hash)
      fail("an operand of a matrix instruction changes while it is read", 0);
    product.add(product);
    give_back(*product.sums);
  }
  for (unsigned i = done; i < mine.count; i++) mine.pending[i - done] = mine.pending[i];
  mine.count -= done;
  meet_warp(site);
}
template <unsigned NUMBER, unsigned LINE>
struct WaitAt {
  template <int GROUPS_IN_FLIGHT>
  EMULATOR_UNCHECKED static void wait(float *) {
    await_products({NUMBER, LINE}, GROUPS_IN_FLIGHT);
  }
};

}  // namespace emulator
