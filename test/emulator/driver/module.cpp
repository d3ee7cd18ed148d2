#include "module.h"

#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "api.h"
#include "block.h"
#include "report.h"
#include "settings.h"

namespace emulator {

namespace {

constexpr size_t SHARED_BYTES = 49152;  // without opting in to more

// The size of a shared object: its table of sections comes last.
size_t image_bytes(const char *image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  return header.e_shoff + size_t{header.e_shentsize} * header.e_shnum;
}

// The memory that the loadable segments of a shared object take, from its first byte.
size_t loaded_bytes(const char *start) {
  const auto *header = reinterpret_cast<const Elf64_Ehdr *>(start);
  const auto *segments = reinterpret_cast<const Elf64_Phdr *>(start + header->e_phoff);
  size_t end = 0;
  for (int i = 0; i < header->e_phnum; i++) {
    if (segments[i].p_type == PT_LOAD) end = segments[i].p_vaddr + segments[i].p_memsz;
  }
  return end;
}

}  // namespace

LoadedCopy::LoadedCopy(const std::vector<char> &image, std::string *error) {
  // a file and a path of its own: the loader knows libraries by both
  char path[] = "/tmp/emulated-kernel-XXXXXX";
  int file = mkstemp(path);
  if (file < 0) {
    *error = "no file for a module";
    return;
  }
  bool is_written = write(file, image.data(), image.size()) == static_cast<ssize_t>(image.size());
  handle_ = is_written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!handle_) *error = is_written ? dlerror() : "no space for a module";
  close(file);
  unlink(path);
  if (!handle_) return;
  auto *services = static_cast<const Services **>(dlsym(handle_, "emulated_services"));
  auto *shared = static_cast<SharedRange *>(dlsym(handle_, "emulated_shared"));
  if (!services || !shared) {
    *error = "a module that was not compiled for the emulator";
    return;
  }
  *services = &Block::services;
  shared_ = *shared;
  Dl_info info;
  dladdr(services, &info);
  char *start = static_cast<char *>(info.dli_fbase);
  code_ = {start, start + loaded_bytes(start)};
}

LoadedCopy::~LoadedCopy() {
  if (handle_) dlclose(handle_);
}

const KernelInfo *LoadedCopy::kernel(const std::string &name) const {
  return static_cast<const KernelInfo *>(dlsym(handle_, (name + "__kernel").c_str()));
}

const LoadedCopy &Module::copy(size_t number) {
  std::string error;
  while (copies.size() <= number) copies.push_back(std::make_unique<LoadedCopy>(image, &error));
  return *copies[number];
}

}  // namespace emulator

using namespace emulator;

API cuDeviceGetAttribute(int *value, int attribute, int device);

API cuModuleLoadData(std::shared_ptr<Module> **handle, const char *image) {
  return in_context([&](Context &context) {
    if (std::memcmp(image, ELFMAG, SELFMAG)) return INVALID_IMAGE;
    auto module = std::make_shared<Module>();
    module->context = &context;
    module->image.assign(image, image + image_bytes(image));
    std::string error;
    module->copies.push_back(std::make_unique<LoadedCopy>(module->image, &error));
    if (!error.empty()) {
      report(error);
      return INVALID_IMAGE;
    }
    *handle = new std::shared_ptr<Module>(module);
    return SUCCESS;
  });
}

API cuModuleLoadDataEx(std::shared_ptr<Module> **handle, const char *image, unsigned, void *,
                       void **) {
  return cuModuleLoadData(handle, image);
}

// Work that was launched keeps the module until it is done.
API cuModuleUnload(std::shared_ptr<Module> *handle) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  delete handle;
  return SUCCESS;
}

API cuModuleGetFunction(Function **function, std::shared_ptr<Module> *handle, const char *name) {
  return in_context([&](Context &) {
    const LoadedCopy &copy = (*handle)->copy(0);
    const KernelInfo *info = copy.kernel(name);
    if (!info) return NOT_FOUND;
    size_t shared = static_cast<size_t>(copy.shared().end - copy.shared().begin);
    if (shared > SHARED_BYTES) return INVALID_IMAGE;
    *function = new Function{*handle, name, *info, shared, SHARED_BYTES - shared};
    return SUCCESS;
  });
}

namespace {

enum FunctionAttribute {
  MAX_THREADS = 0,
  STATIC_SHARED = 1,
  LOCAL_BYTES = 3,
  REGISTERS = 4,
  MAX_DYNAMIC_SHARED = 8
};

}  // namespace

API cuFuncSetAttribute(Function *function, int attribute, int value) {
  constexpr int OPT_IN_SHARED = 97;
  return in_context([&](Context &context) {
    if (attribute != MAX_DYNAMIC_SHARED) return SUCCESS;
    int limit;
    cuDeviceGetAttribute(&limit, OPT_IN_SHARED, context.device);
    if (value < 0 ||
        static_cast<size_t>(value) + function->static_shared > static_cast<size_t>(limit)) {
      return INVALID_VALUE;
    }
    function->max_dynamic_shared = static_cast<size_t>(value);
    return SUCCESS;
  });
}

API cuFuncGetAttribute(int *value, int attribute, Function *function) {
  switch (attribute) {
    case MAX_THREADS: *value = static_cast<int>(function->info.max_threads); break;
    case STATIC_SHARED: *value = static_cast<int>(function->static_shared); break;
    case MAX_DYNAMIC_SHARED: *value = static_cast<int>(function->max_dynamic_shared); break;
    case REGISTERS: *value = 32; break;
    default: *value = 0;
  }
  return SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *, int threads, size_t) {
  *blocks = 2048 / threads;
  return SUCCESS;
}
