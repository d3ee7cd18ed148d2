#include "drain.h"

#include <algorithm>
#include <stdexcept>

#include "context.h"
#include "settings.h"

namespace emulator {

Drain::Drain(const Point &point) : target_(point) {
  for (Context *context : Context::all()) {
    streams_.push_back(context->default_stream.get());
    for (const auto &stream : context->streams) streams_.push_back(stream.get());
  }
  // the streams that were made last run first
  if (!settings().backwards) std::reverse(streams_.begin(), streams_.end());
  require(point);
}

void Drain::require(const Point &point) {
  std::vector<Point> found = {point};
  while (!found.empty()) {
    Point last = found.back();
    found.pop_back();
    if (last.is_reached()) continue;
    uint64_t &needed = needed_[last.stream.get()];
    for (uint64_t i = std::max(needed, last.stream->done()); i < last.number; i++) {
      for (const Point &before : last.stream->awaited_by(i)) found.push_back(before);
    }
    needed = std::max(needed, last.number);
  }
}

void Drain::run() {
  while (!target_.is_reached()) {
    if (settings().backwards && run_piece(false)) continue;
    if (!run_piece(true)) throw std::logic_error("streams wait for each other");
  }
}

bool Drain::is_required(const Stream &stream) const {
  auto found = needed_.find(&stream);
  return found != needed_.end() && stream.done() < found->second;
}

bool Drain::run_piece(bool required) {
  for (Stream *stream : streams_) {
    if (is_required(*stream) == required && stream->run_one()) return true;
  }
  return false;
}

}  // namespace emulator
