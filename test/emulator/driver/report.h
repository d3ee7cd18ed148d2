// What the emulator has to say about a kernel's mistake.
#pragma once

#include <string>

namespace emulator {

// Prints an error and keeps it for `emulator_take_reports`.
void report(const std::string &text);

// printf into a string.
std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace emulator
