#include <math.h>

double damp(double x) { return tanh(x); }
