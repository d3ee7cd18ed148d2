/* Conversions of float16 that LLVM calls by name where the CPU has no instruction for them.
 *
 * Compilers take these from their own runtime library, which a Python process may not have loaded.
 * Narrowing rounds to nearest, ties to even, in one step. All keep infinities, NaNs and subnormals.
 */
#include <stdint.h>
#include <string.h>

/* An IEEE binary format: sign, exponent, mantissa. */
struct format {
  int exponent_bits;
  int mantissa_bits;
};

static const struct format HALF = {5, 10};
static const struct format FLOAT = {8, 23};
static const struct format DOUBLE = {11, 52};

static inline int total_bits(struct format f) { return 1 + f.exponent_bits + f.mantissa_bits; }

static inline int bias(struct format f) { return (1 << (f.exponent_bits - 1)) - 1; }

static inline uint64_t infinity(struct format f) {
  return ((UINT64_C(1) << f.exponent_bits) - 1) << f.mantissa_bits;
}

/* Drops the low bits of a number: to nearest, ties to even. */
static inline uint64_t shift_and_round(uint64_t bits, int shift) {
  uint64_t kept = bits >> shift;
  uint64_t dropped = bits & ((UINT64_C(1) << shift) - 1);
  uint64_t half = UINT64_C(1) << (shift - 1);
  return kept + (dropped > half || (dropped == half && (kept & 1)));
}

/* The significand of a number that is subnormal in a narrower format, shifted to its scale. A lost
 * bit is or-ed into the lowest one, so that rounding sees it. */
static inline uint64_t denormalize(uint64_t magnitude, struct format from, struct format to) {
  uint64_t one = UINT64_C(1) << from.mantissa_bits;
  uint64_t significand = (magnitude & (one - 1)) | one;
  int64_t exponent = (int64_t)(magnitude >> from.mantissa_bits);
  int64_t shift = bias(from) - bias(to) + 1 - exponent;
  if (shift > 63) shift = 63;
  uint64_t shifted = significand >> shift;
  return shifted | (shifted << shift != significand);
}

/* The bits of a number in a narrower format. */
static inline uint64_t narrow(uint64_t bits, struct format from, struct format to) {
  int shift = from.mantissa_bits - to.mantissa_bits;
  uint64_t sign = bits >> (total_bits(from) - 1);
  uint64_t magnitude = bits & ((UINT64_C(1) << (total_bits(from) - 1)) - 1);
  uint64_t rebias = (uint64_t)(bias(from) - bias(to)) << from.mantissa_bits;
  uint64_t smallest_normal = rebias + (UINT64_C(1) << from.mantissa_bits);
  uint64_t result;
  if (magnitude > infinity(from)) { /* NaN: quiet, with the high bits of its payload */
    uint64_t payload = magnitude & ((UINT64_C(1) << from.mantissa_bits) - 1);
    uint64_t quiet = UINT64_C(1) << (to.mantissa_bits - 1);
    result = payload >> shift | quiet | infinity(to);
  } else if (magnitude >= rebias + (infinity(to) << shift)) {
    result = infinity(to);
  } else if (magnitude >= smallest_normal) {
    result = shift_and_round(magnitude - rebias, shift);
  } else {
    result = shift_and_round(denormalize(magnitude, from, to), shift);
  }
  return sign << (total_bits(to) - 1) | result;
}

static inline _Float16 half_from_bits(uint64_t bits) {
  uint16_t low = (uint16_t)bits;
  _Float16 value;
  memcpy(&value, &low, sizeof value);
  return value;
}

_Float16 __truncsfhf2(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return half_from_bits(narrow(bits, FLOAT, HALF));
}

_Float16 __truncdfhf2(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return half_from_bits(narrow(bits, DOUBLE, HALF));
}

float __extendhfsf2(_Float16 value) {
  uint16_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t magnitude = bits & 0x7fff;
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
  uint32_t result = magnitude << 13;
  if (magnitude >= 0x7c00) { /* infinity or NaN */
    result |= 0x7f800000;
  } else if (magnitude >= 0x0400) { /* normal */
    result += (127 - 15) << 23;
  } else { /* subnormal: a multiple of the smallest one */
    float scaled = (float)magnitude * 0x1p-24f;
    memcpy(&result, &scaled, sizeof result);
  }
  result |= sign;
  float extended;
  memcpy(&extended, &result, sizeof extended);
  return extended;
}
