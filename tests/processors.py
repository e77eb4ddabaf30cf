"""Kinds of processors of x86_64, as environments that make libraries take the code for them."""

_PLAIN = (
    "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"  # the names of NumPy up to 2.3
)
PROCESSORS = (
    {"OPENBLAS_CORETYPE": "Nehalem"},
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "SkylakeX"},
    {"NPY_DISABLE_CPU_FEATURES": _PLAIN},
    {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"},
)
