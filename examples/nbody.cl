// A work-item moves four bodies, in the four places of a vector. 0.0025 is the square of SOFT in nbody.py.
const long first = 4 * i;
double4 at[3], pull[3] = {0, 0, 0};
for (int axis = 0; axis < 3; axis++)
    for (int k = 0; k < 4; k++)
        ((double *)&at[axis])[k] = mine(min(first + k, mine_n0 - 1), axis);
for (long b = 0; b < stars_n0; b++) {
    const double4 dx = stars(b, 0) - at[0], dy = stars(b, 1) - at[1], dz = stars(b, 2) - at[2];
    const double4 square = dx * dx + dy * dy + dz * dz + 0.0025;
    const double4 weight = mass(b) / (square * sqrt(square));
    pull[0] += weight * dx;
    pull[1] += weight * dy;
    pull[2] += weight * dz;
}
for (int k = 0; k < 4 && first + k < mine_n0; k++)
    for (int axis = 0; axis < 3; axis++) {
        speed(first + k, axis) += dt * ((double *)&pull[axis])[k];
        out(first + k, axis) = mine(first + k, axis) + dt * speed(first + k, axis);
    }
