// A warpgroup's products on the host, warp by warp: the right operand is read where its description says it lies.
#pragma once

#include <tapestry/async.cuh>
#include <tapestry/mma.cuh>
#include <tapestry/operand.cuh>

namespace tapestry {

inline void begin_products() {}
inline void commit_products() {}
template <int Pending>
void wait_products() {}
template <int Count>
void pin(float (&)[Count]) {}

struct GroupProduct {
    float* d;
    const unsigned* a;
    unsigned long long b;
    bool fresh;
};

template <class Half, Lies lies, int Count>
void multiply_group(float (&d)[Count], const unsigned (&a)[4], unsigned long long b, bool fresh) {
    emulated::together<GroupProduct>("wgmma", GroupProduct{d, a, b, fresh}, [](const GroupProduct* const* lanes) {
        const unsigned long long b = lanes[0]->b;
        const unsigned start = (b & 0x3fff) << 4, leading = (b >> 16 & 0x3fff) << 4, stride = (b >> 32 & 0x3fff) << 4;
        const unsigned line = b >> 62 == 1 ? 128 : b >> 62 == 2 ? 64 : 32;
        constexpr int columns = 2 * Count;
        float left[16][16];
        for (int lane = 0; lane < 32; ++lane) {
            if (lanes[lane]->b != b) emulated::fail("the lanes of a warp multiply with different operands");
            for (int i = 0; i < 8; ++i) {
                const int reg = i / 2, column = lane % 4 * 2 + i % 2;
                left[lane / 4 + reg % 2 * 8][column + reg / 2 * 8] = element<Half>(lanes[lane]->a, i);
            }
        }
        for (int column = 0; column < columns; ++column) {
            float right[16];
            for (int k = 0; k < 16; ++k) {
                unsigned place;
                if (lies == Lies::plain)
                    place = start + k / 8 * leading + column / 8 * stride + column % 8 * 16 + k % 8 * 2;
                else
                    place = start + column * 2 / line * leading + k / 8 * stride + k % 8 * line + column * 2 % line;
                if (lies == Lies::turned) place ^= place >> 3 & (line - 16);
                unsigned short half;
                std::memcpy(&half, shared_pointer(place + emulated::rank() * rank_bit, 2), 2);
                right[k] = Half::widen(half);
            }
            for (int row = 0; row < 16; ++row) {
                const int lane = row % 8 * 4 + column % 8 / 2, i = column / 8 * 4 + row / 8 * 2 + column % 2;
                float sum = lanes[lane]->fresh ? 0.0f : lanes[lane]->d[i];
                for (int k = 0; k < 16; ++k) sum += left[row][k] * right[k];
                lanes[lane]->d[i] = sum;
            }
        }
    });
}

}  // namespace tapestry

#define TAPESTRY_PRODUCT(HALF, LIES, COUNT, ...)
