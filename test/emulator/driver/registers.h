// The registers that groups of four warps of a block give to each other.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "report.h"

namespace emulator {

class RegisterPool {
 public:
  static constexpr unsigned GROUP = 128, UNIT = 8;

  // A block starts with as many registers for each thread as a multiprocessor has.
  void start(size_t threads) {
    unsigned share = std::min((1u << 16) / static_cast<unsigned>(threads), 255u);
    registers_.assign((threads + GROUP - 1) / GROUP, share / UNIT * UNIT);
    free_ = 0;
  }
  // What is wrong with the number that a thread wants, or nothing.
  std::string check(size_t thread, unsigned wanted, bool is_more) const {
    if (wanted < 24 || wanted > 256 || wanted % UNIT)
      return "a number of registers is not a multiple of 8 from 24 to 256";
    unsigned has = registers_[thread / GROUP];
    if (is_more ? wanted >= has : wanted <= has) return "";
    return format("it %s registers, but has %u and wants %u", is_more ? "acquires" : "releases",
                  has, wanted);
  }
  // Gives each thread of a group what it wants, if there are so many.
  bool give(size_t group, unsigned wanted) {
    unsigned available = registers_[group] * GROUP + free_;
    if (wanted * GROUP > available) return false;
    free_ = available - wanted * GROUP;
    registers_[group] = wanted;
    return true;
  }

 private:
  std::vector<unsigned> registers_;  // of each thread of a group
  unsigned free_ = 0;
};

}  // namespace emulator
