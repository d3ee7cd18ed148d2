// Atomic operations on memory of any kind.
#pragma once

#include "module.h"

namespace emulator {

// Replaces a value by a function of it, and returns the old one.
template <class T, class Change>
EMULATOR_UNCHECKED T update_atomically(T *address, Change change) {
  note_atomic();
  T old, changed;
  __atomic_load(address, &old, __ATOMIC_SEQ_CST);
  do changed = change(old);
  while (!__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST));
  return old;
}

}  // namespace emulator

template <class T, class U>
EMULATOR_UNCHECKED T atomicAdd(T *address, U value) {
  return emulator::update_atomically(address, [=](T old) { return static_cast<T>(old + value); });
}
template <class T, class U>
EMULATOR_UNCHECKED T atomicMax(T *address, U value) {
  return emulator::update_atomically(
      address, [=](T old) { return old > static_cast<T>(value) ? old : static_cast<T>(value); });
}
template <class T, class U>
EMULATOR_UNCHECKED T atomicMin(T *address, U value) {
  return emulator::update_atomically(
      address, [=](T old) { return old < static_cast<T>(value) ? old : static_cast<T>(value); });
}
template <class T, class U>
EMULATOR_UNCHECKED T atomicExch(T *address, U value) {
  return emulator::update_atomically(address, [=](T) { return static_cast<T>(value); });
}
template <class T, class U, class V>
EMULATOR_UNCHECKED T atomicCAS(T *address, U expected, V value) {
  return emulator::update_atomically(address, [=](T old) {
    return old == static_cast<T>(expected) ? static_cast<T>(value) : old;
  });
}
