"""Compares the intrinsics of preludes on real hardware and on the emulator."""
