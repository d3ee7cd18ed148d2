// Functions of C that kernels call. The standard header would take most of the time to compile.
#pragma once

#include <stddef.h>

extern "C" {
float expf(float), exp2f(float), exp10f(float), expm1f(float), logf(float), log2f(float),
    log10f(float), log1pf(float), sinf(float), cosf(float), tanf(float), asinf(float), acosf(float),
    atanf(float), sinhf(float), coshf(float), tanhf(float), sqrtf(float), cbrtf(float), erff(float),
    truncf(float), floorf(float), ceilf(float), roundf(float), rintf(float), fabsf(float);
float fmaf(float, float, float), powf(float, float), fmodf(float, float), fminf(float, float),
    fmaxf(float, float), copysignf(float, float), ldexpf(float, int), atan2f(float, float);
double exp(double), exp2(double), exp10(double), expm1(double), log(double), log2(double),
    log10(double), log1p(double), sin(double), tan(double), asin(double), acos(double),
    atan(double), sinh(double), cosh(double), tanh(double), sqrt(double), cbrt(double), erf(double),
    trunc(double), floor(double), ceil(double), round(double), rint(double), fabs(double);
double fma(double, double, double), pow(double, double), fmod(double, double), fmin(double, double),
    fmax(double, double), copysign(double, double), ldexp(double, int), atan2(double, double);
long double cosl(long double);
void *memcpy(void *, const void *, size_t), *memset(void *, int, size_t);
}

// glibc's cos is wrong by up to 8 units in the last place near odd multiples of pi / 2
inline double cos(double x) { return (double)cosl(x); }
