// Warp-wide matrix moves and products on the host, by the definitions of ldmatrix and mma.m16n8k16.
#pragma once

#include <tapestry/async.cuh>
#include <tapestry/numeric.cuh>

namespace tapestry {

struct Product {
    float* d;
    const unsigned *a, *b;
    bool fresh;
};

// Element `index` of a fragment: two halves a register.
template <class Half>
float element(const unsigned* registers, int index) {
    return Half::widen(static_cast<unsigned short>(registers[index / 2] >> 16 * (index % 2) & 0xffffu));
}

template <class Half>
void mma_k16(float (&d)[4], const unsigned (&a)[4], const unsigned* b, bool fresh) {
    emulated::together<Product>("mma", Product{d, a, b, fresh}, [](const Product* const* lanes) {
        float left[16][16], right[16][8];
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 8; ++i) {
                const int reg = i / 2, column = lane % 4 * 2 + i % 2;
                left[lane / 4 + reg % 2 * 8][column + reg / 2 * 8] = element<Half>(lanes[lane]->a, i);
                if (i < 4) right[column + reg * 8][lane / 4] = element<Half>(lanes[lane]->b, i);
            }
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 4; ++i) {
                const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
                float sum = lanes[lane]->fresh ? 0.0f : lanes[lane]->d[i];
                for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
                lanes[lane]->d[i] = sum;
            }
    });
}

struct Move {
    unsigned** into;
    unsigned address;
};

template <int matrices>
void move_transposed(unsigned* (&into)[matrices], unsigned address) {
    emulated::together<Move>("ldmatrix", Move{into, address}, [](const Move* const* lanes) {
        for (int matrix = 0; matrix < matrices; ++matrix)
            for (int lane = 0; lane < 32; ++lane) {
                unsigned both = 0;
                for (int i = 0; i < 2; ++i) {
                    const unsigned row = lanes[matrix * 8 + lane % 4 * 2 + i]->address;
                    unsigned short half;
                    std::memcpy(&half, shared_pointer(row, 16) + lane / 4 * 2, 2);
                    both |= unsigned(half) << 16 * i;
                }
                *lanes[lane]->into[matrix] = both;
            }
    });
}

inline void load_transposed(unsigned& m0, unsigned& m1, unsigned& m2, unsigned& m3, unsigned address) {
    unsigned* into[4] = {&m0, &m1, &m2, &m3};
    move_transposed<4>(into, address);
}

inline void load_transposed_where(bool wanted, unsigned& m0, unsigned& m1, unsigned& m2, unsigned& m3, unsigned address) {
    m0 = m1 = m2 = m3 = 0u;
    if (wanted) load_transposed(m0, m1, m2, m3, address);
}

inline void load_transposed(unsigned& m0, unsigned& m1, unsigned address) {
    unsigned* into[2] = {&m0, &m1};
    move_transposed<2>(into, address);
}

struct Turned {
    unsigned own, *into;
};

// Lane l holds elements (l / 4, 2 (l % 4)) and the next, and gets (2 (l % 4), l / 4) and the next below.
inline unsigned transposed(unsigned matrix) {
    unsigned turned = 0;
    emulated::together<Turned>("movmatrix", Turned{matrix, &turned}, [](const Turned* const* lanes) {
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 2; ++i) {
                const unsigned from = lanes[(lane % 4 * 2 + i) * 4 + lane / 8]->own;
                *lanes[lane]->into |= (from >> lane / 4 % 2 * 16 & 0xffffu) << 16 * i;
            }
    });
    return turned;
}

template <class Half>
void mma_k8(float (&d)[4], const unsigned* a, const unsigned* b, bool fresh) {
    const unsigned left[4] = {a[0], a[1], 0, 0}, right[2] = {b[0], 0};
    mma_k16<Half>(d, left, right, fresh);
}

struct Matrices {
    unsigned* registers;
    unsigned address;
};

// Row l % 8 of matrix l / 8 is named by lane l; lane l holds elements (l / 4, 2 (l % 4)) and the next.
template <int count, bool store>
void move(unsigned* registers, unsigned address) {
    emulated::together<Matrices>(store ? "stmatrix" : "ldmatrix", Matrices{registers, address}, [](const Matrices* const* lanes) {
        for (int matrix = 0; matrix < count; ++matrix)
            for (int lane = 0; lane < 32; ++lane) {
                unsigned char* at = shared_pointer(lanes[matrix * 8 + lane / 4]->address, 16) + lane % 4 * 4;
                unsigned* own = lanes[lane]->registers + matrix;
                if (store)
                    std::memcpy(at, own, 4);
                else
                    std::memcpy(own, at, 4);
            }
    });
}

inline void load_matrices(unsigned (&m)[4], unsigned address) { move<4, false>(m, address); }
inline void load_matrices(unsigned (&m)[2], unsigned address) { move<2, false>(m, address); }
inline void store_matrices(unsigned address, const unsigned (&m)[4]) { move<4, true>(const_cast<unsigned*>(m), address); }
inline void store_matrices(unsigned address, const unsigned (&m)[2]) { move<2, true>(const_cast<unsigned*>(m), address); }

}  // namespace tapestry
