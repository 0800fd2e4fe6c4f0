// Dimensions as types: an index of dimension P is a `P`, and only a `P`.
//
//   using P = Dim<struct P_>;    using Q = Dim<struct Q_>;
//   P p(3);  p + p;  p + 1;  p < P(5);    // fine, of type P (or bool)
//   p + Q(1);  p < Q(5);  p < 5;          // do not compile
//
// An index is one int; there is nothing else in it, and every operation is inline and constexpr.
#pragma once

#include <tapestry/digits.cuh>

namespace tapestry {

template <class Tag>
class Dim {
   public:
    using tag = Tag;

    constexpr Dim() = default;

    template <class Integer>
    TAPESTRY_FN constexpr explicit Dim(Integer value) : value_(static_cast<int>(value)) {
        static_assert(is_integer<Integer>(), "tapestry: an index is made of an integer or of a part of its own dimension");
    }

    // Folds and unfolds, always in so many letters: K16(k), Module<K, 16>(k), K(k16).
    template <class Other>
    TAPESTRY_FN constexpr explicit Dim(Dim<Other> index) : value_(convert_digits<Tag, Other>(index.get())) {}

    TAPESTRY_FN constexpr int get() const { return value_; }

    friend TAPESTRY_FN constexpr Dim operator+(Dim a, Dim b) { return Dim(a.value_ + b.value_); }
    friend TAPESTRY_FN constexpr Dim operator-(Dim a, Dim b) { return Dim(a.value_ - b.value_); }
    friend TAPESTRY_FN constexpr Dim operator+(Dim a, int b) { return Dim(a.value_ + b); }
    friend TAPESTRY_FN constexpr Dim operator+(int a, Dim b) { return Dim(a + b.value_); }
    friend TAPESTRY_FN constexpr Dim operator-(Dim a, int b) { return Dim(a.value_ - b); }
    friend TAPESTRY_FN constexpr Dim operator*(Dim a, int b) { return Dim(a.value_ * b); }
    friend TAPESTRY_FN constexpr Dim operator*(int a, Dim b) { return Dim(a * b.value_); }
    friend TAPESTRY_FN constexpr Dim operator-(Dim a) { return Dim(-a.value_); }

    TAPESTRY_FN constexpr Dim& operator+=(Dim b) { return value_ += b.value_, *this; }
    TAPESTRY_FN constexpr Dim& operator-=(Dim b) { return value_ -= b.value_, *this; }
    TAPESTRY_FN constexpr Dim& operator+=(int b) { return value_ += b, *this; }
    TAPESTRY_FN constexpr Dim& operator-=(int b) { return value_ -= b, *this; }
    TAPESTRY_FN constexpr Dim& operator++() { return ++value_, *this; }
    TAPESTRY_FN constexpr Dim& operator--() { return --value_, *this; }

    friend TAPESTRY_FN constexpr Dim min(Dim a, Dim b) { return b.value_ < a.value_ ? b : a; }
    friend TAPESTRY_FN constexpr Dim max(Dim a, Dim b) { return a.value_ < b.value_ ? b : a; }

    friend TAPESTRY_FN constexpr bool operator==(Dim a, Dim b) { return a.value_ == b.value_; }
    friend TAPESTRY_FN constexpr bool operator!=(Dim a, Dim b) { return a.value_ != b.value_; }
    friend TAPESTRY_FN constexpr bool operator<(Dim a, Dim b) { return a.value_ < b.value_; }
    friend TAPESTRY_FN constexpr bool operator<=(Dim a, Dim b) { return a.value_ <= b.value_; }
    friend TAPESTRY_FN constexpr bool operator>(Dim a, Dim b) { return a.value_ > b.value_; }
    friend TAPESTRY_FN constexpr bool operator>=(Dim a, Dim b) { return a.value_ >= b.value_; }

   private:
    int value_ = 0;
};

// What is left over for operands of two dimensions, or for a bare number where an index is needed. Every one says what
// is wrong; the compiler adds the line and the two types.
#define TAPESTRY_REFUSE_MIXED(op)                                                                              \
    template <class A, class B>                                                                                \
    TAPESTRY_FN constexpr Dim<A> operator op(Dim<A> a, Dim<B>) {                                               \
        static_assert(same<A, B>(), "tapestry: only indices of one dimension are added or subtracted");          \
        return a;                                                                                              \
    }
#define TAPESTRY_REFUSE_COMPARISON(op)                                                                         \
    template <class A, class B>                                                                                \
    TAPESTRY_FN constexpr bool operator op(Dim<A>, Dim<B>) {                                                   \
        static_assert(same<A, B>(), "tapestry: only indices of one dimension are compared");                     \
        return false;                                                                                          \
    }                                                                                                          \
    template <class A>                                                                                         \
    TAPESTRY_FN constexpr bool operator op(Dim<A>, int) {                                                      \
        static_assert(never<A>(), "tapestry: an index is compared with an index: p < P(4), not p < 4");          \
        return false;                                                                                          \
    }
TAPESTRY_REFUSE_MIXED(+)
TAPESTRY_REFUSE_MIXED(-)
TAPESTRY_REFUSE_COMPARISON(==)
TAPESTRY_REFUSE_COMPARISON(!=)
TAPESTRY_REFUSE_COMPARISON(<)
TAPESTRY_REFUSE_COMPARISON(<=)
TAPESTRY_REFUSE_COMPARISON(>)
TAPESTRY_REFUSE_COMPARISON(>=)
#undef TAPESTRY_REFUSE_MIXED
#undef TAPESTRY_REFUSE_COMPARISON

template <class T>
struct IsDim {
    static TAPESTRY_FN constexpr bool holds() { return false; }
};
template <class Tag>
struct IsDim<Dim<Tag>> {
    static TAPESTRY_FN constexpr bool holds() { return true; }
};

// The one way from a dimension to another: cast<Y>(p) is the index of Y with the number of p. Easy to search for.
template <class To, class Tag>
TAPESTRY_FN constexpr To cast(Dim<Tag> index) {
    static_assert(IsDim<To>::holds(), "tapestry: cast<D>(index) makes an index of a dimension D");
    return To(index.get());
}

// An index known at compile time: a `D` in every expression, and `i.get()` is a constant (for template arguments, too).
template <class D, int Value>
struct Constant : D {
    TAPESTRY_FN constexpr Constant() : D(Value) {}
    static TAPESTRY_FN constexpr int get() { return Value; }
};

// for (P p : range(P(4))): the indices from the first up to and without the last; none if there are none.
template <class D>
class Range {
   public:
    class Iterator {
       public:
        TAPESTRY_FN constexpr explicit Iterator(D at) : at_(at) {}
        TAPESTRY_FN constexpr D operator*() const { return at_; }
        TAPESTRY_FN constexpr Iterator& operator++() { return ++at_, *this; }
        TAPESTRY_FN constexpr bool operator!=(Iterator last) const { return at_ < last.at_; }

       private:
        D at_;
    };

    TAPESTRY_FN constexpr Range(D first, D last) : first_(first), last_(last) {}
    TAPESTRY_FN constexpr Iterator begin() const { return Iterator(first_); }
    TAPESTRY_FN constexpr Iterator end() const { return Iterator(last_); }

   private:
    D first_, last_;
};

template <class Tag>
TAPESTRY_FN constexpr Range<Dim<Tag>> range(Dim<Tag> last) {
    return {Dim<Tag>(0), last};
}
template <class Tag>
TAPESTRY_FN constexpr Range<Dim<Tag>> range(Dim<Tag> first, Dim<Tag> last) {
    return {first, last};
}

// unrolled<R, 3>([&](auto r) { ... }): the body three times, r of the types Constant<R, 0>, Constant<R, 1>, Constant<R, 2>:
// for loops whose index must be a constant (register arrays, template arguments).
template <class D, int Count, int First = 0, class Body>
TAPESTRY_FN constexpr void unrolled(Body&& body) {
    if constexpr (First < Count) {
        body(Constant<D, First>());
        unrolled<D, Count, First + 1>(body);
    }
}

}  // namespace tapestry
