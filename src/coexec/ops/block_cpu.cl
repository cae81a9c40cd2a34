/* The inner block of matrix products on a CPU: MR x NR elements at a time in registers, from packed operands in local
   memory, which is cache here. T is the elements' type and W the number of them in a vector. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
typedef JOIN(T, W) V;
#define VLOAD JOIN(vload, W)
#define VSTORE JOIN(vstore, W)
#define MR 6
#define NR (2 * W)
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#define CLEAR(r) V c##r = 0, d##r = 0;
#define STEP(r) { const V s = (V)(pa[r]); c##r += s * b0; d##r += s * b1; }
#define HOLD(r) VSTORE(c##r, 0, tile + r * NR); VSTORE(d##r, 1, tile + r * NR);
#define KEEP(r) { \
    __global T *const p = c + r * stride; \
    if (more) { c##r += VLOAD(0, p); d##r += VLOAD(1, p); } else { c##r += (V)(start[r]); d##r += (V)(start[r]); } \
    VSTORE(c##r, 0, p); VSTORE(d##r, 1, p); }

/* Multiply a sliver of MR rows by a panel of NR columns. If `direct`, add the products to c, or to `start` if they are
   the first, and keep them in c; otherwise leave them in `tile`. */
inline void block(const __local T *pa, const __local T *pb, __local T *tile, const __local T *start, __global T *c,
                  const long stride, const int depth, const int more, const int direct)
{
    EACH(CLEAR)
    for (int k = 0; k < depth; k++) {
        const V b0 = *(const __local V *)pb, b1 = *(const __local V *)(pb + W);
        EACH(STEP)
        pa += MR;
        pb += NR;
    }
    if (direct) {
        EACH(KEEP)
    } else {
        EACH(HOLD)
    }
}
