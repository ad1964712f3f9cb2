/* Each row smoothed by a window of WINDOW neighbors, BLOCK columns at a time; the last columns have too few, and are 0. */

void blur(const float *restrict image, float *restrict out)
{
    for (int i = 0; i < ROWS; i++) {
        for (int from = 0; from < COLS - WINDOW; from += BLOCK) {
            int to = from + BLOCK < COLS - WINDOW ? from + BLOCK : COLS - WINDOW;
            for (int j = from; j < to; j++)
                out[i * COLS + j] = 0;
            for (int k = 0; k < WINDOW; k++)
                for (int j = from; j < to; j++)
                    out[i * COLS + j] += image[i * COLS + j + k] / WINDOW;
        }
        for (int j = COLS - WINDOW; j < COLS; j++)
            out[i * COLS + j] = 0;
    }
}
