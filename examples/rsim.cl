// A work-item adds up what arrives at one patch, four rays at a time. `when` counts back from the end of the past.
__global const double *now = &past(0, 0) + past_n0 * past_n1;
double4 sum = 0;
long j = 0;
for (; j + 4 <= form_n1; j += 4)
    sum += vload4(0, &form(i, j))
        * (double4)(now[when(i, j)], now[when(i, j + 1)], now[when(i, j + 2)], now[when(i, j + 3)]);
double light = sum.s0 + sum.s1 + sum.s2 + sum.s3;
for (; j < form_n1; j++)
    light += form(i, j) * now[when(i, j)];
out(i) = light;
