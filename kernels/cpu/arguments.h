// The protocol's tuples (spsample/backends/protocol.py) as arguments of bound functions: their items are read in place, each as the
// array or number that it is. Vertices and pointers are converted where they are of another type; columns, and weights, never are, and
// tell overloads apart. Kernels of two or three arrays take these themselves.
#pragma once

#include <optional>
#include <type_traits>

#include "arrays.h"

namespace spsample {

// What all of the tuples are.
struct ArgumentTuple {};

// An item that is not converted.
template <class T>
struct Exact {
    T& value;
};

// An item that the core has no use for.
struct Unread {};

template <class T>
bool read_item(PyObject* item, bool convert, In<T>& array) noexcept {
    return array.look_at(item, convert);
}
inline bool read_item(PyObject* item, bool convert, AnyIn& array) noexcept { return array.look_at(item, convert); }
inline bool read_item(PyObject*, bool, Unread) noexcept { return true; }
inline bool read_item(PyObject* item, bool, bool& value) noexcept {
    const int truth = PyObject_IsTrue(item);
    if (truth < 0) PyErr_Clear();
    value = truth > 0;
    return truth >= 0;
}
template <class Number, class = std::enable_if_t<std::is_integral_v<Number>>>
bool read_item(PyObject* item, bool convert, Number& number) noexcept {
    nanobind::detail::make_caster<Number> caster;
    const auto flags = static_cast<uint8_t>(convert ? nanobind::detail::cast_flags::convert : nanobind::detail::cast_flags(0));
    if (!caster.from_python(item, flags, nullptr)) return false;
    number = caster.value;
    return true;
}
template <class T>
bool read_item(PyObject* item, bool convert, std::optional<T>& value) noexcept {
    return item == Py_None || read_item(item, convert, value.emplace());
}
template <class T>
bool read_item(PyObject* item, bool, Exact<T> exact) noexcept {
    return read_item(item, false, exact.value);
}

template <class Tuple, class = decltype(std::declval<Tuple&>().look_at(nullptr, false)), class = std::enable_if_t<std::is_base_of_v<ArgumentTuple, Tuple>>>
bool read_item(PyObject* item, bool convert, Tuple& tuple) noexcept {
    return tuple.look_at(item, convert);
}

// Whether the object is a tuple that begins with such items. Needs the GIL.
template <class... Items>
bool read_tuple(PyObject* object, bool convert, Items&&... items) noexcept {
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) < static_cast<Py_ssize_t>(sizeof...(Items))) return false;
    Py_ssize_t i = 0;
    return (read_item(PyTuple_GET_ITEM(object, i++), convert, items) && ...);
}

template <class Index>
struct MatrixIn : ArgumentTuple {
    In<int64_t> indptr;
    In<Index> indices;
    std::optional<AnyIn> data;
    bool row_normalized = false;
    std::optional<In<Index>> ids;
    std::optional<int64_t> num_columns;
    bool look_at(PyObject* object, bool convert) noexcept {
        return read_tuple(object, convert, indptr, Exact<In<Index>>{indices}, data, row_normalized, Exact<std::optional<In<Index>>>{ids}, num_columns);
    }
};

// A of stored weights, which tell overloads apart, too.
template <class Index, class Real>
struct WeightedMatrixIn : ArgumentTuple {
    In<int64_t> indptr;
    In<Index> indices;
    In<Real> data;
    std::optional<In<Index>> ids;
    bool look_at(PyObject* object, bool convert) noexcept {
        return read_tuple(object, convert, indptr, Exact<In<Index>>{indices}, Exact<In<Real>>{data}, Unread(), Exact<std::optional<In<Index>>>{ids});
    }
};

template <class Index>
struct SelectorIn : ArgumentTuple {
    In<int64_t> batch_ptr;
    In<Index> vertices;
    In<int64_t> batch_ids;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, batch_ptr, vertices, batch_ids); }
};

struct DrawIn : ArgumentTuple {
    struct Key {
        uint32_t first = 0, second = 0;
    };
    Key key;
    int64_t hop = 0, size = 0;
    bool replace = false;
    bool look_at(PyObject* object, bool convert) noexcept;
};
inline bool read_item(PyObject* item, bool convert, DrawIn::Key& key) noexcept {
    return read_tuple(item, convert, key.first, key.second);
}
inline bool DrawIn::look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, key, hop, size, replace); }

struct QuantisationRuleIn : ArgumentTuple {
    std::optional<In<int64_t>> shifts;
    int32_t power = 0, column_power = 0;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, shifts, power, column_power); }
};

template <class Index>
struct RowsIn : ArgumentTuple {
    In<int64_t> entry_ptr, indptr;
    In<Index> columns;
    std::optional<In<int64_t>> positions;
    bool look_at(PyObject* object, bool convert) noexcept {
        return read_tuple(object, convert, Unread(), entry_ptr, indptr, columns, positions);
    }
};

template <class Index>
struct ColumnMatrixIn : ArgumentTuple {
    In<int64_t> indptr;
    In<Index> columns;
    In<uint64_t> numerators;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, indptr, Exact<In<Index>>{columns}, numerators); }
};

// The pointers and columns of a ColumnSample.
template <class Index>
struct SampleColumnsIn : ArgumentTuple {
    In<int64_t> indptr;
    In<Index> columns;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, indptr, columns); }
};

// A ColumnSample but for its columns.
struct SampleIn : ArgumentTuple {
    In<int64_t> indptr, counts;
    In<uint64_t> totals;
    In<bool> whole;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, indptr, Unread(), counts, totals, whole); }
};

// A ColumnSample.
template <class Index>
struct WholeSampleIn : SampleIn {
    In<Index> columns;
    bool look_at(PyObject* object, bool convert) noexcept {
        return read_tuple(object, convert, indptr, columns, counts, totals, whole);
    }
};

// A Compaction but for src.
template <class Index>
struct CompactionIn : ArgumentTuple {
    In<int64_t> src_ptr;
    In<Index> local;
    bool look_at(PyObject* object, bool convert) noexcept {
        return read_tuple(object, convert, src_ptr, Unread(), Exact<In<Index>>{local});
    }
};

// An ExtractedLayer.
template <class Index>
struct ExtractedLayerIn : ArgumentTuple {
    MatrixIn<Index> A;
    SelectorIn<Index> Q;
    RowsIn<Index> rows;
    SampleIn sample;
    CompactionIn<Index> sources;
    bool include_targets = false;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, A, Q, rows, sample, sources, include_targets); }
};

// An UnbiasedExtraction.
struct UnbiasedExtractionIn : ArgumentTuple {
    int64_t size = 0;
    bool include_targets = false, positions = false, normalize = false;
    bool look_at(PyObject* object, bool convert) noexcept { return read_tuple(object, convert, size, include_targets, positions, normalize); }
};

// N of src columns: an array, or the rule by which they are read off an extraction.
struct NumeratorsIn : ArgumentTuple {
    std::optional<In<uint64_t>> array;
    std::optional<QuantisationRuleIn> rule;
    bool look_at(PyObject* object, bool convert) noexcept {
        if (PyTuple_Check(object)) return read_item(object, convert, rule);
        return read_item(object, false, array) && array;
    }
};

}  // namespace spsample

namespace nanobind::detail {

template <class T>
struct type_caster<T, enable_if_t<std::is_base_of_v<spsample::ArgumentTuple, T>>> {
    NB_TYPE_CASTER(T, const_name("tuple"))
    bool from_python(handle object, uint8_t flags, cleanup_list*) noexcept {
        return value.look_at(object.ptr(), (flags & static_cast<uint8_t>(cast_flags::convert)) != 0);
    }
};

}  // namespace nanobind::detail
