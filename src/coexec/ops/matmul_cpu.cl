/* out = a b for CPUs. One work-item computes a tile of ROWS x COLUMNS elements as GotoBLAS does: panels of b and slivers
   of a are packed into local memory, which is cache here, and MR x NR elements at a time are kept in registers.
   PARAMETERS, LOCATE, T, W and the sizes come from matmul.py. Strides are whatever they are: packing takes care. */
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
    if (more) { c##r += VLOAD(0, p); d##r += VLOAD(1, p); } \
    VSTORE(c##r, 0, p); VSTORE(d##r, 1, p); }

/* Add (or assign) the product of a sliver and a panel to MR x NR elements, or to the rows x columns of them that exist. */
inline void block(const __local T *pa, const __local T *pb, __local T *tile, __global T *c, const long stride,
                  const long step, const int depth, const int more, const int rows, const int columns)
{
    EACH(CLEAR)
    for (int k = 0; k < depth; k++) {
        const V b0 = *(const __local V *)pb, b1 = *(const __local V *)(pb + W);
        EACH(STEP)
        pa += MR;
        pb += NR;
    }
    if (rows == MR && columns == NR && step == 1) {
        EACH(KEEP)
        return;
    }
    EACH(HOLD)
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const T sum = tile[i * NR + j];
            __global T *const p = c + i * stride + j * step;
            *p = more ? *p + sum : sum;
        }
}

/* Pack depth x columns elements of b, NR columns side by side; what is missing of the last NR becomes zero. */
inline void pack_b(__local T *pb, const __global T *b, const long s0, const long s1, const int depth, const int columns)
{
    for (int j = 0; j < columns; j += NR) {
        const int width = min(NR, columns - j);
        __local T *p = pb + j * DEPTH;
        const __global T *from = b + j * s1;
        if (width == NR && s1 == 1)
            for (int k = 0; k < depth; k++, p += NR, from += s0) {
                *(__local V *)p = VLOAD(0, from);
                *(__local V *)(p + W) = VLOAD(1, from);
            }
        else
            for (int i = 0; i < NR; i++)
                for (int k = 0; k < depth; k++)
                    p[k * NR + i] = i < width ? from[k * s0 + i * s1] : (T)0;
    }
}

/* Pack rows x depth elements of a, MR rows side by side; missing rows repeat the first, their results are not kept. */
inline void pack_a(__local T *pa, const __global T *a, const long s0, const long s1, const int depth, const int rows)
{
    for (int r = 0; r < MR; r++) {
        const __global T *const from = a + (r < rows ? r : 0) * s0;
        if (s1 == 1)
            for (int k = 0; k < depth; k++)
                pa[k * MR + r] = from[k];
        else
            for (int k = 0; k < depth; k++)
                pa[k * MR + r] = from[k * s1];
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void matmul(PARAMETERS)
{
    __local T pb[DEPTH * COLUMNS] __attribute__((aligned(128)));
    __local T pa[DEPTH * MR] __attribute__((aligned(128)));
    __local T tile[MR * NR] __attribute__((aligned(128)));
    LOCATE
    const long i0 = (long)get_group_id(1) * ROWS, j0 = (long)get_group_id(0) * COLUMNS;
    const int rows = min((long)ROWS, OUT_N0 - i0), columns = min((long)COLUMNS, OUT_N1 - j0);
    long k0 = 0;
    do { /* once at least: an empty sum is zero */
        const int depth = min((long)DEPTH, INNER - k0);
        pack_b(pb, b_data + b_at + k0 * B_S0 + j0 * B_S1, B_S0, B_S1, depth, columns);
        for (int i = 0; i < rows; i += MR) {
            const int some = min(MR, rows - i);
            __global T *const c = out_data + out_at + (i0 + i) * OUT_S0 + j0 * OUT_S1;
            pack_a(pa, a_data + a_at + (i0 + i) * A_S0 + k0 * A_S1, A_S0, A_S1, depth, some);
            for (int j = 0; j < columns; j += NR)
                block(pa, pb + j * DEPTH, tile, c + j * OUT_S1, OUT_S0, OUT_S1, depth, k0 > 0, some,
                      min(NR, columns - j));
        }
        k0 += DEPTH;
    } while (k0 < INNER);
}
