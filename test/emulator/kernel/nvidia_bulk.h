// Bulk copies of boxes of a tensor, and the mbarriers that say when they are complete.
#pragma once

#include "module.h"
#include "nvidia_wgmma.h"

namespace emulator {

EMULATOR_UNCHECKED inline void make_mbarrier(const void *mbarrier, int arrivals) {
  services().make_mbarrier(mbarrier, static_cast<unsigned>(arrivals));
}

EMULATOR_UNCHECKED inline void arrive(const void *mbarrier, unsigned block) {
  services().arrive(mbarrier, block);
}

EMULATOR_UNCHECKED inline void expect_bytes(const void *mbarrier, unsigned bytes) {
  services().expect_bytes(mbarrier, bytes);
}

EMULATOR_UNCHECKED inline void await_mbarrier(Site site, const void *mbarrier, unsigned parity) {
  services().await_mbarrier(site, mbarrier, parity);
}

template <class... Coordinates>
EMULATOR_UNCHECKED void copy_box(unsigned blocks, void *shared, const void *mbarrier,
                                 const void *map, Coordinates... coordinates) {
  int places[] = {coordinates...};
  services().copy_box(shared, mbarrier, map, places, sizeof...(Coordinates), blocks);
}

EMULATOR_UNCHECKED inline void cluster_barrier(Site site) { services().cluster_barrier(site); }

// Names the place in the text of functions that are templates.
template <unsigned NUMBER, unsigned LINE, bool IS_MORE>
struct RegistersAt {
  template <int REGISTERS>
  EMULATOR_UNCHECKED static void set() {
    services().set_registers({NUMBER, LINE}, REGISTERS, IS_MORE);
  }
};

EMULATOR_UNCHECKED inline void async_fence() {
  note_fence(true);
  services().fence_mbarriers();
}

}  // namespace emulator
