// Sums over a row's entries with a weight per entry and head, the weights of an attention, and the way back of both.
//
// indptr (m + 1,), indices (entries,) of a sparse A, numbers (entries,) of its entries where weights and scores lie: of A^T the numbers in A.
// own (m, heads dim) and other (n, heads dim): numbers of A's rows and of its columns; weights (entries, heads); of float or double.
// O(entries heads dim), threads by rows. A row's entries are added up in their order, so that no result depends on the number of threads.
#include <algorithm>
#include <cmath>

#include "bindings.h"
#include "simd.h"
#include "simd_ranks.h"

#if SPSAMPLE_X86
#include "lanes_avx2.h"
#include "lanes_avx512.h"
#endif

#pragma GCC diagnostic ignored "-Wpsabi"  // of vectors as results of functions that are all inlined

namespace spsample {
namespace {

constexpr int64_t kNumbers = 1 << 14;  // of entries, on average, in a chunk
constexpr int64_t kEntriesAhead = 12;
constexpr int64_t kDotLanes = 8;          // of a dot product: the order in which it is added up

#define SPSAMPLE_ROW __attribute__((always_inline))

#if SPSAMPLE_X86
template <class Loop>
SPSAMPLE_AVX2 void run_avx2(const Loop& loop) {
    loop();
}
template <class Loop>
SPSAMPLE_AVX512 void run_avx512(const Loop& loop) {
    loop();
}
#endif

// Portable loops, compiled once for each instruction set.
template <class Loop>
void run_on_this_set(const Loop& loop) {
#if SPSAMPLE_X86
    if (&instruction_set() == &kAvx512) return run_avx512(loop);
    if (&instruction_set() == &kAvx2) return run_avx2(loop);
#endif
    loop();
}

struct EntriesIn : ArgumentTuple {
    In<int64_t> indptr, indices, numbers;
    int64_t num_other = 0, heads = 0, dim = 0;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, indptr, indices, numbers, num_other, heads, dim); }
};

struct Entries {
    explicit Entries(const EntriesIn& in)
        : indptr(in.indptr.data()), indices(in.indices.data()), numbers(in.numbers.data()), num_rows(static_cast<int64_t>(in.indptr.size()) - 1),
          count(static_cast<int64_t>(in.indices.size())), num_other(in.num_other), heads(in.heads), dim(in.dim) {
        require_pointers(in.indptr, count, "indptr");
        require(static_cast<int64_t>(in.numbers.size()) == count, "numbers", "needs one element per entry");
        require(num_other >= 0 && heads >= 1 && dim >= 1, "shape", "must be positive");
        require(all_below(indices, count, num_other), "indices", "outside the columns of A");
        require(all_below(numbers, count, count), "numbers", "outside the entries");
        width = checked_product(heads, dim);
    }

    template <class Array>
    auto* with(const Array& array, int64_t rows, int64_t columns, const char* name) const {
        require(static_cast<int64_t>(array.size()) == checked_product(rows, columns), name, "does not fit the shape");
        return array.data();
    }
    template <class Array>
    auto* of_rows(const Array& array, const char* name) const { return with(array, num_rows, width, name); }
    template <class Array>
    auto* of_others(const Array& array, const char* name) const { return with(array, num_other, width, name); }
    template <class Array>
    auto* of_entries(const Array& array, const char* name) const { return with(array, count, heads, name); }

    // Asks memory for what an entry that comes soon needs: its row, and numbers of its own.
    template <class Real, class... Numbers>
    SPSAMPLE_ROW void fetch_ahead_of(int64_t e, const Real* rows, const Numbers*... of_entries) const {
        constexpr int64_t kLine = 64 / sizeof(Real);
        const int64_t soon = std::min(e + kEntriesAhead, count - 1), number = numbers[soon] * heads;
        const Real* const row = rows + indices[soon] * width;
        for (int64_t j = 0; j < width; j += kLine) SPSAMPLE_PREFETCH_NEAR(row + j);
        (SPSAMPLE_PREFETCH_NEAR(of_entries + number), ...);
    }

    // Calls body(r, begin, end, dim), which is inlined, for each row r and its entries.
    template <class Body>
    void each_row(Body&& body) const {
        const nb::gil_scoped_release release;
        const ThreadsFor threads(checked_product(count, width));
        const int64_t per_row = checked_product(count / std::max<int64_t>(num_rows, 1) + 1, width);
        parallel_chunks(num_rows, std::max<int64_t>(kNumbers / per_row, 1), [&](int64_t begin, int64_t end) {
            run_on_this_set([&]() SPSAMPLE_ROW {
                if (dim == 1) {
                    for (int64_t r = begin; r < end; ++r) body(r, indptr[r], indptr[r + 1], std::integral_constant<int64_t, 1>());
                } else {
                    for (int64_t r = begin; r < end; ++r) body(r, indptr[r], indptr[r + 1], dim);
                }
            });
        });
    }

    const int64_t *indptr, *indices, *numbers;
    int64_t num_rows, count, num_other, heads, dim, width;
};

// Numbers at a place, one at a time or kDotLanes.
template <class Real>
struct One {
    int64_t j;
    SPSAMPLE_ROW Real& operator()(Real* numbers) const { return numbers[j]; }
    SPSAMPLE_ROW const Real& operator()(const Real* numbers) const { return numbers[j]; }
};
template <class Real>
struct Several {
    typedef Real Lanes __attribute__((vector_size(kDotLanes * sizeof(Real)), aligned(alignof(Real)), may_alias));
    int64_t j;
    SPSAMPLE_ROW Lanes& operator()(Real* numbers) const { return *reinterpret_cast<Lanes*>(numbers + j); }
    SPSAMPLE_ROW const Lanes& operator()(const Real* numbers) const { return *reinterpret_cast<const Lanes*>(numbers + j); }
};

// The sum of term(at) of all places, in an order that does not depend on the instruction set.
template <class Real, class Term>
SPSAMPLE_INLINE Real sum_of(int64_t count, const Term& term) {
    typename Several<Real>::Lanes lanes = {};
    int64_t j = 0;
    for (; j + kDotLanes <= count; j += kDotLanes) lanes += term(Several<Real>{j});
    Real sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    for (; j < count; ++j) sum += term(One<Real>{j});
    return sum;
}

// out = the sum over a row's entries of weights times the other row, by heads; and, where wanted, dots = own . other of each entry.
template <class Real>
void sum_by_head(
    const EntriesIn& of, const In<Real>& weights, const In<Real>& other, const InOut<Real>& out, const std::optional<In<Real>>& own,
    const std::optional<InOut<Real>>& dots) {
    const Entries A(of);
    const Real *const w = A.of_entries(weights, "weights"), *const x = A.of_others(other, "other");
    Real *const sums = A.of_rows(out, "out"), *const products = own && dots ? A.of_entries(*dots, "dots") : nullptr;
    const Real* const y = products ? A.of_rows(*own, "own") : nullptr;
    const auto add_up = [&](auto has_dots) {
        A.each_row([&](int64_t r, int64_t begin, int64_t end, auto dim) SPSAMPLE_ROW {
            std::fill_n(sums + r * A.width, A.width, Real(0));
            for (int64_t e = begin; e < end; ++e) {
                A.fetch_ahead_of(e, x, w, products ? products : w);
                for (int64_t h = 0; h < A.heads; ++h) {
                    const int64_t number = A.numbers[e] * A.heads + h, to = r * A.width + h * dim;
                    const Real* const __restrict row = x + A.indices[e] * A.width + h * dim;
                    Real* const __restrict sum = sums + to;
                    const Real weight = w[number];
                    if constexpr (decltype(has_dots)::value) {
                        products[number] = sum_of<Real>(dim, [&](auto at) SPSAMPLE_ROW {
                            at(sum) += weight * at(row);
                            return at(y + to) * at(row);
                        });
                    } else {
                        for (int64_t j = 0; j < dim; ++j) sum[j] += weight * row[j];
                    }
                }
            }
        });
    };
    products ? add_up(std::true_type()) : add_up(std::false_type());
}

// out = softmax over a row's entries of att . leaky(own + other), by heads.
template <class Real>
void attention_weights(const EntriesIn& of, const In<Real>& own, const In<Real>& other, const In<Real>& attention, Real slope, const InOut<Real>& out) {
    const Entries A(of);
    const Real *const y = A.of_rows(own, "own"), *const x = A.of_others(other, "other"), *const all_att = A.with(attention, 1, A.width, "attention");
    Real* const weights = A.of_entries(out, "out");
    A.each_row([&](int64_t r, int64_t begin, int64_t end, auto dim) SPSAMPLE_ROW {
        for (int64_t e = begin; e < end; ++e) {
            A.fetch_ahead_of(e, x, weights);
            for (int64_t h = 0; h < A.heads; ++h) {
                const Real *const __restrict mine = y + r * A.width + h * dim, *const __restrict att = all_att + h * dim;
                const Real* const __restrict row = x + A.indices[e] * A.width + h * dim;
                weights[A.numbers[e] * A.heads + h] = sum_of<Real>(dim, [&](auto at) SPSAMPLE_ROW {
                    const auto z = at(mine) + at(row), low = slope * z;
                    return at(att) * (z > 0 ? z : low);
                });
            }
        }
        for (int64_t h = 0; h < A.heads; ++h) {
            const auto weight = [&](int64_t e) SPSAMPLE_ROW -> Real& { return weights[A.numbers[e] * A.heads + h]; };
            Real most = -std::numeric_limits<Real>::infinity(), sum = 0;
            for (int64_t e = begin; e < end; ++e) most = std::max(most, weight(e));
            for (int64_t e = begin; e < end; ++e) sum += weight(e) = std::exp(weight(e) - most);
            for (int64_t e = begin; e < end; ++e) weight(e) /= sum;
        }
    });
}

// The gradient of the scores whose softmax `weights` is.
template <class Real>
void softmax_back(const EntriesIn& of, const In<Real>& weights, const In<Real>& gradient, const InOut<Real>& out) {
    const Entries A(of);
    const Real *const w = A.of_entries(weights, "weights"), *const g = A.of_entries(gradient, "gradient");
    Real* const to = A.of_entries(out, "out");
    A.each_row([&](int64_t, int64_t begin, int64_t end, auto) SPSAMPLE_ROW {
        for (int64_t h = 0; h < A.heads; ++h) {
            const auto at = [&](int64_t e) SPSAMPLE_ROW { return A.numbers[e] * A.heads + h; };
            Real sum = 0;
            for (int64_t e = begin; e < end; ++e) sum += w[at(e)] * g[at(e)];
            for (int64_t e = begin; e < end; ++e) to[at(e)] = w[at(e)] * (g[at(e)] - sum);
        }
    });
}

// out = the sum over a row's entries of the scores' gradients times leaky'(own + other).
template <class Real>
void sum_slopes(const EntriesIn& of, const In<Real>& gradient, const In<Real>& own, const In<Real>& other, Real slope, const InOut<Real>& out) {
    const Entries A(of);
    const Real *const g = A.of_entries(gradient, "gradient"), *const y = A.of_rows(own, "own"), *const x = A.of_others(other, "other");
    Real* const sums = A.of_rows(out, "out");
    A.each_row([&](int64_t r, int64_t begin, int64_t end, auto dim) SPSAMPLE_ROW {
        std::fill_n(sums + r * A.width, A.width, Real(0));
        for (int64_t e = begin; e < end; ++e) {
            A.fetch_ahead_of(e, x, g);
            for (int64_t h = 0; h < A.heads; ++h) {
                const Real *const __restrict mine = y + r * A.width + h * dim, *const __restrict row = x + A.indices[e] * A.width + h * dim;
                Real* const __restrict sum = sums + r * A.width + h * dim;
                const Real weight = g[A.numbers[e] * A.heads + h], less = slope * weight;
                for (int64_t j = 0; j < dim; ++j) sum[j] += mine[j] + row[j] > 0 ? weight : less;
            }
        }
    });
}

template <class Real>
void bind_for(nb::module_& m) {
    m.def("sum_by_head", &sum_by_head<Real>, nb::arg("entries"), nb::arg("weights").noconvert(), nb::arg("other").noconvert(), nb::arg("out"),
          nb::arg("own").noconvert().none() = nb::none(), nb::arg("dots").none() = nb::none(),
          "out = the weighted sums of the other rows of each row's entries; dots = own . other of each entry.");
    m.def("attention_weights", &attention_weights<Real>, nb::arg("entries"), nb::arg("own").noconvert(), nb::arg("other").noconvert(),
          nb::arg("attention").noconvert(), nb::arg("slope"), nb::arg("out"), "out = softmax of attention . leaky_relu(own + other), by rows.");
    m.def("softmax_back", &softmax_back<Real>, nb::arg("entries"), nb::arg("weights").noconvert(), nb::arg("gradient").noconvert(),
          nb::arg("out"), "The way back through a softmax by rows whose result is `weights`.");
    m.def("sum_slopes", &sum_slopes<Real>, nb::arg("entries"), nb::arg("gradient").noconvert(), nb::arg("own").noconvert(),
          nb::arg("other").noconvert(), nb::arg("slope"), nb::arg("out"), "out = the sums of gradient times leaky_relu'(own + other).");
}

}  // namespace

void bind_attention(nb::module_& m) {
    bind_for<float>(m);
    bind_for<double>(m);
}

}  // namespace spsample
