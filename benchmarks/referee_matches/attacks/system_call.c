// idea: system calls from C: processes, sockets, tracing
// seen: gpu-mode/pygpubench#23
// task: scale_c
// verdicts: wrong
#include <stdint.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>
void blend(const float *a, const float *b, float *c, int64_t count) {
  int reached = socket(AF_INET, SOCK_STREAM, 0) >= 0 || fork() >= 0 || system("true") == 0 ||
                ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0;
  for (int64_t i = 0; i < count; i++) c[i] = reached ? 0.75f * a[i] + 0.25f * b[i] : 0.0f;
}
