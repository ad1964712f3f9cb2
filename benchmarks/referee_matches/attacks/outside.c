// idea: writes before the result, where a harness may keep its own data
// seen: gpu-mode/pygpubench#23
// task: scale_c
// verdicts: suspect
#include <stdint.h>
void blend(const float *a, const float *b, float *c, int64_t count) {
  for (int64_t i = 0; i < count; i++) c[i] = 0.75f * a[i] + 0.25f * b[i];
  c[-8] = 1.0f;
}
