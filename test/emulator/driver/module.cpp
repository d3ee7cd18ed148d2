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

constexpr size_t MAX_LOADED = 2048;  // modules, of five mappings each

// Modules of which copies are loaded, the one that was used last at the end.
std::list<Module *> loaded;

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

Module::~Module() {
  if (!copies_.empty()) unload();
}

void Module::unload() {
  copies_.clear();
  loaded.erase(place_);
}

void Module::note_use() {
  if (!copies_.empty()) {
    loaded.splice(loaded.end(), loaded, place_);
    return;
  }
  if (loaded.size() >= MAX_LOADED) loaded.front()->unload();
  place_ = loaded.insert(loaded.end(), this);
}

const LoadedCopy *Module::copy(size_t number, std::string *error) {
  while (copies_.size() <= number) {
    auto made = std::make_unique<LoadedCopy>(image_, error);
    if (!made->is_loaded()) return nullptr;
    note_use();
    copies_.push_back(std::move(made));
  }
  note_use();
  return copies_[number].get();
}

}  // namespace emulator

using namespace emulator;

API cuDeviceGetAttribute(int *value, int attribute, int device);

API cuModuleLoadData(std::shared_ptr<Module> **handle, const char *image) {
  return in_context([&](Context &context) {
    if (std::memcmp(image, ELFMAG, SELFMAG)) return INVALID_IMAGE;
    auto module = std::make_shared<Module>(&context, image, image_bytes(image));
    std::string error;
    if (!module->copy(0, &error)) {
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

// Waits for nothing: a kernel that is not done, or is in a graph, cannot run any more.
API cuModuleUnload(std::shared_ptr<Module> *handle) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  (*handle)->is_unloaded = true;
  delete handle;
  return SUCCESS;
}

API cuModuleGetFunction(Function **function, std::shared_ptr<Module> *handle, const char *name) {
  return in_context([&](Context &) {
    std::string error;
    const LoadedCopy *copy = (*handle)->copy(0, &error);
    const KernelInfo *info = copy ? copy->kernel(name) : nullptr;
    if (!info) return NOT_FOUND;
    size_t shared = static_cast<size_t>(copy->shared().end - copy->shared().begin);
    if (shared > info->shared_bytes) {
      report(format("kernel %s has %zu bytes of static shared memory; %u are allowed", name, shared,
                    info->shared_bytes));
      return INVALID_IMAGE;
    }
    std::vector<unsigned> bytes(info->parameter_bytes, info->parameter_bytes + info->parameters);
    *function = new Function{*handle,
                             name,
                             std::move(bytes),
                             info->max_threads,
                             info->cluster,
                             info->checked != 0,
                             shared,
                             info->shared_bytes - shared};
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
    case MAX_THREADS: *value = static_cast<int>(function->max_threads); break;
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
