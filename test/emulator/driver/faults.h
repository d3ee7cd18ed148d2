// Accesses of kernels to memory that is not there.
#pragma once

#include <functional>

namespace emulator {

struct Fault {
  bool happened;
  const void *address;
  int signal;
};

// Runs work until its end, or until it touches an inaccessible page. What the work was doing on
// stacks of its own is then abandoned.
Fault run_until_fault(const std::function<void()> &work);

}  // namespace emulator
