// Registers on the host: as many as there are.
#pragma once

namespace tapestry {

template <int Count>
void leave_registers() {}
template <int Count>
void take_registers() {}
inline unsigned kept(unsigned value) { return value; }
inline unsigned first_halves(unsigned low, unsigned high) { return (low & 0xffffu) | high << 16; }
inline unsigned second_halves(unsigned low, unsigned high) { return low >> 16 | (high & 0xffff0000u); }

}  // namespace tapestry
