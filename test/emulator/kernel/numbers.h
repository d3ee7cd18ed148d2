// Floats of 8, 16 and 19 bits, converted from and to float32 as GPUs do: to the nearest, ties to
// even.
#pragma once

namespace emulator {

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "types of one size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

inline float float_of_bfloat16(unsigned short bits) {
  return same_bits<float>(static_cast<unsigned>(bits) << 16);
}

inline unsigned short bfloat16_of_float(float value) {
  unsigned bits = same_bits<unsigned>(value);
  if (value != value) return 0x7fff;  // NVIDIA's NaN
  return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float float_of_half(unsigned short bits) {
  unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return same_bits<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return same_bits<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

inline unsigned short half_of_float(float value) {
  unsigned bits = same_bits<unsigned>(value), sign = bits >> 16 & 0x8000,
           magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000u) return 0x7fff;  // NVIDIA's NaN
  if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00);
  if (magnitude < 0x38800000u) {
    // a subnormal: the float addition rounds it to a multiple of 2**-24
    float shifted = same_bits<float>(magnitude) + 0.5f;
    return static_cast<unsigned short>(sign | (same_bits<unsigned>(shifted) - 0x3f000000u));
  }
  unsigned rounded = magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1);
  return static_cast<unsigned short>(sign | rounded >> 13);
}

// TF32 keeps 10 bits of the mantissa; ties go away from zero, as `cvt.rna` does.
inline float round_to_tf32(float value) {
  unsigned bits = same_bits<unsigned>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return same_bits<float>((bits + 0x1000u) & ~0x1fffu);
}

// What a matrix instruction reads of a float that was not rounded.
inline float truncate_to_tf32(float value) {
  return same_bits<float>(same_bits<unsigned>(value) & ~0x1fffu);
}

}  // namespace emulator
