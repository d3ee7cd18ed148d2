#include "launch.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "block.h"
#include "checks.h"
#include "faults.h"
#include "float_mode.h"
#include "memory.h"
#include "report.h"
#include "settings.h"

namespace emulator {

namespace {

constexpr size_t MAX_THREADS = 1024;
constexpr unsigned MAX_THREADS_Z = 64, MAX_GRID_X = 2147483647, MAX_GRID_YZ = 65535;
// below this, starting threads takes longer than they save
constexpr size_t THREADS_WORTH_A_WORKER = 1 << 14;

size_t volume(Dim3 size) { return static_cast<size_t>(size.x) * size.y * size.z; }

// The pointers of a launch lie in parameters of their size.
bool is_pointer_sized(const std::vector<char> &value) { return value.size() == sizeof(void *); }

const void *as_pointer(const std::vector<char> &value) {
  const void *pointer;
  std::memcpy(&pointer, value.data(), sizeof pointer);
  return pointer;
}

}  // namespace

Result Launch::make(const LaunchDescription &description, std::shared_ptr<Launch> *made) {
  const Function &function = *description.function;
  auto launch = std::make_shared<Launch>();
  launch->module_ = function.module;
  launch->name_ = function.name;
  launch->max_threads_ = function.max_threads;
  launch->cluster_ = function.cluster;
  launch->is_checked_ = function.checked;
  launch->grid_ = {description.grid_x, description.grid_y, description.grid_z};
  launch->size_ = {description.block_x, description.block_y, description.block_z};
  launch->shared_ = description.shared_bytes;
  launch->max_shared_ = function.max_dynamic_shared;
  if (Result wrong = launch->check()) return wrong;
  for (size_t i = 0; i < function.parameter_bytes.size(); i++) {
    const char *value = static_cast<const char *>(description.parameters[i]);
    launch->values_.emplace_back(value, value + function.parameter_bytes[i]);
  }
  for (auto &value : launch->values_) launch->parameters_.push_back(value.data());
  *made = launch;
  return launch->check_pointers();
}

Result Launch::check() const {
  size_t threads = volume(size_);
  bool fits = volume(grid_) && threads && threads <= MAX_THREADS && size_.z <= MAX_THREADS_Z &&
              grid_.x <= MAX_GRID_X && grid_.y <= MAX_GRID_YZ && grid_.z <= MAX_GRID_YZ;
  if (volume(grid_) % cluster_) {
    report(format("kernel %s: %zu blocks are no clusters of %u", name_.c_str(), volume(grid_),
                  cluster_));
    return INVALID_VALUE;
  }
  if (!fits || shared_ > max_shared_) {
    report(format(
        "kernel %s: no device launches %u x %u x %u blocks of %u x %u x %u threads with %zu "
        "bytes of dynamic shared memory (%zu allowed)",
        name_.c_str(), grid_.x, grid_.y, grid_.z, size_.x, size_.y, size_.z, shared_, max_shared_));
    return INVALID_VALUE;
  }
  if (threads > max_threads_) {
    report(format("kernel %s: %zu threads are more than its launch bounds of %u", name_.c_str(),
                  threads, max_threads_));
    return LAUNCH_OUT_OF_RESOURCES;
  }
  return SUCCESS;
}

Result Launch::check_pointers() const {
  for (size_t i = 0; i < values_.size(); i++) {
    if (!is_pointer_sized(values_[i])) continue;
    const Allocation *allocation = find_allocation(as_pointer(values_[i]));
    if (!allocation || is_accessible(context().device, allocation->device)) continue;
    report(format("kernel %s on device %d: parameter %zu is memory of device %d", name_.c_str(),
                  context().device, i, allocation->device));
    context().fail(ILLEGAL_ADDRESS);
    return ILLEGAL_ADDRESS;
  }
  return SUCCESS;
}

void Launch::run() {
  if (module_->is_unloaded) return fail(LAUNCH_FAILED, "its module was unloaded before it ran");
  size_t threads = volume(grid_) * volume(size_);
  size_t workers = std::min<size_t>(settings().threads, threads / THREADS_WORTH_A_WORKER);
  run_workers(is_checked_ || workers < 1 ? 1 : workers);
  check_ends();
}

void Launch::run_workers(size_t workers) {
  std::atomic<size_t> next{0};
  std::mutex lock;
  size_t clusters = volume(grid_) / cluster_;
  std::string unloadable;
  for (size_t i = 0; i < workers * cluster_; i++) {
    if (!module_->copy(i, &unloadable)) return fail(LAUNCH_OUT_OF_RESOURCES, unloadable);
  }
  auto work = [&](size_t worker) {
    FloatMode mode(module_->loaded_copy(0).kernel(name_)->takes_subnormals_for_zero);
    Block::start_launch();
    std::string error;
    Fault fault = run_until_fault([&] {
      for (size_t i; error.empty() && (i = next++) < clusters;) run_cluster(i, worker, &error);
    });
    if (!fault.happened && error.empty()) return;
    next = clusters;
    std::lock_guard<std::mutex> guard(lock);
    if (!fault.happened) {
      fail(LAUNCH_FAILED, error);
    } else if (fault.signal == SIGFPE) {
      fail(LAUNCH_FAILED, Block::mine().describe_current() + ": it divides an integer by zero");
    } else if (fault.signal == SIGILL) {
      fail(LAUNCH_FAILED, Block::mine().describe_current() + ": a signed integer overflows");
    } else {
      fail(ILLEGAL_ADDRESS, Block::mine().describe_fault(fault.address));
    }
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < workers; i++) helpers.emplace_back(work, i);
  work(0);
  for (std::thread &helper : helpers) helper.join();
}

void Launch::run_cluster(size_t number, size_t worker, std::string *error) {
  std::vector<BlockLaunch> launches;
  std::vector<Dim3> places;
  size_t cluster = settings().backwards ? volume(grid_) / cluster_ - 1 - number : number;
  for (unsigned rank = 0; rank < cluster_; rank++) {
    // static shared memory is that of a copy of the module
    const LoadedCopy &copy = module_->loaded_copy(worker * cluster_ + rank);
    size_t i = cluster * cluster_ + rank;
    places.push_back({static_cast<unsigned>(i % grid_.x),
                      static_cast<unsigned>(i / grid_.x % grid_.y),
                      static_cast<unsigned>(i / grid_.x / grid_.y)});
    launches.push_back({copy.kernel(name_), parameters_.data(), grid_, size_, shared_,
                        copy.shared(), copy.code(), context().device, settings().backwards});
  }
  *error = Block::run(launches, places);
}

// Writes that end before the inaccessible page, in the memory that pads an allocation.
void Launch::check_ends() {
  for (const auto &value : values_) {
    if (!is_pointer_sized(value)) continue;
    const Allocation *allocation = find_allocation(as_pointer(value));
    if (!allocation) continue;
    if (size_t bytes = take_writes_past_end(*allocation)) {
      fail(ILLEGAL_ADDRESS,
           format("it wrote up to %zu bytes past the end of an allocation of %zu bytes", bytes,
                  allocation->bytes));
    }
  }
}

void Launch::fail(Result result, const std::string &reason) {
  report(format("kernel %s on device %d: %s", name_.c_str(), context().device, reason.c_str()));
  context().fail(result);
}

}  // namespace emulator

using namespace emulator;

API cuLaunchKernel(Function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *handle, void **parameters, void **extra) {
  return in_context([&](Context &context) {
    Stream &stream = context.stream(handle);
    if (function->module->context != &context || stream.context != &context) {
      report(format("kernel %s of device %d is launched on device %d", function->name.c_str(),
                    function->module->context->device, stream.context->device));
      return INVALID_HANDLE;
    }
    LaunchDescription description = {function, grid_x,       grid_y,     grid_z, block_x, block_y,
                                     block_z,  shared_bytes, parameters, extra,  nullptr, nullptr};
    std::shared_ptr<Launch> launch;
    if (Result wrong = Launch::make(description, &launch)) return wrong;
    stream.push([launch] { launch->run(); });
    return SUCCESS;
  });
}
