// Who touched each byte of a memory last, to find races.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

// A thread at a moment. Time advances at each barrier and at the start of each block, and blocks
// run one after the other, so a time names a block and an interval between two of its barriers.
struct Moment {
  uint32_t time;
  uint32_t thread;  // in its block
  uint32_t warp_size;
  uint32_t warp_time;     // advances at each fence of the warp
  uint32_t block_start;   // the time at which the block started
  uint32_t launch_start;  // the time at which the launch started
  bool blocks_ordered;    // whether atomic operations may order this block after others
};

enum class Conflict {
  none,
  written_in_interval,
  read_in_interval,
  written_by_block,
  read_by_block
};

// The shadow of a range of memory: its last writer and its readers since the last barrier.
class Shadow {
 public:
  explicit Shadow(size_t bytes);
  Shadow(const Shadow &) = delete;
  ~Shadow();

  Conflict read(size_t offset, size_t bytes, const Moment &now);
  Conflict write(size_t offset, size_t bytes, const Moment &now);
  // The last writes are ordered before any read by other means than barriers.
  void forget_writer(size_t offset, size_t bytes);

 private:
  struct Access {
    uint32_t time;
    uint16_t warp_time;
    uint16_t thread;  // or one of the values below
  };
  struct Cell {
    Access writer, reader;
  };
  static constexpr uint16_t SEVERAL_OF_WARP = 0x8000;  // and the number of the warp
  static constexpr uint16_t SEVERAL_WARPS = 0xffff;

  static bool conflicts(const Access &access, const Moment &now);
  static bool is_ordered_in_warp(const Access &access, const Moment &now);
  static bool is_of_other_block(const Access &access, const Moment &now);
  static void note_reader(Access &reader, const Moment &now);

  Cell *cells_;
  size_t bytes_;
};

}  // namespace emulator
