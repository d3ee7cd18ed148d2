#include "report.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace emulator {

namespace {

std::mutex lock;
std::string reports;

}  // namespace

void report(const std::string &text) {
  std::lock_guard<std::mutex> guard(lock);
  std::fprintf(stderr, "emulated GPU: %s\n", text.c_str());
  reports += text + "\n";
}

std::string format(const char *pattern, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace emulator

// Copies the reports since the last call into a buffer. Not part of CUDA.
extern "C" void emulator_take_reports(char *buffer, size_t bytes) {
  std::lock_guard<std::mutex> guard(emulator::lock);
  std::snprintf(buffer, bytes, "%s", emulator::reports.c_str());
  emulator::reports.clear();
}
