// NumPy arrays as arguments and results of bound functions, by NumPy's C interface.
//
// An argument costs some nanoseconds: type, layout and address are read off the array. (The buffer protocol and DLPack make and free
// objects for every array, which took a third of the time of a small call.) A result owns its memory by a capsule.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace spsample {

// What an element is (bool, uint8, 16, 32 or 64 bits), in the words of NumPy: 'b' bool, 'i' signed, 'u' unsigned, 'f' floating, and its bytes.
struct ElementType {
    char kind;
    size_t bytes;

    template <class T>
    static constexpr ElementType of() {
        if (std::is_same_v<T, bool>) return {'b', sizeof(T)};
        if (std::is_floating_point_v<T>) return {'f', sizeof(T)};
        return {std::is_signed_v<T> ? 'i' : 'u', sizeof(T)};
    }
    bool operator==(const ElementType& other) const { return kind == other.kind && bytes == other.bytes; }
};

// A contiguous, aligned array in native byte order, and what keeps it alive where it is a copy. Arguments are looked at, not owned: the caller
// of a bound function holds them.
struct ArrayView {
    void* data = nullptr;
    size_t size = 0;  // elements
    size_t rows = 0;  // of the first dimension
    int dimensions = 0;
    ElementType type{};
    bool writeable = false;
    nanobind::object copy;
};

// Views an array of `dimensions` dimensions and elements of `type`; whether it is one. An array that is only laid out otherwise is
// copied into order; with `convert` whatever NumPy makes such an array of is converted, too. Needs the GIL.
bool view_array(PyObject* object, ElementType type, int dimensions, bool convert, ArrayView& view) noexcept;

// The same of any element type, without conversion.
bool view_any_array(PyObject* object, int dimensions, ArrayView& view) noexcept;

// A new array over memory that `owner` keeps alive. Needs the GIL.
nanobind::object make_array(void* memory, ElementType type, std::initializer_list<int64_t> shape, nanobind::object owner);

// To be called once, when the module is imported: throws where this NumPy does not fit.
void import_numpy();

// One-dimensional, contiguous, read-only array of T. As an argument marked `noconvert` it must be an array of T, which is how overloads
// are told apart; any other is converted.
template <class T>
class In {
public:
    const T* data() const { return static_cast<const T*>(view_.data); }
    size_t size() const { return view_.size; }
    bool look_at(PyObject* object, bool convert) noexcept { return view_array(object, ElementType::of<T>(), 1, convert, view_); }

private:
    ArrayView view_;
};

// The same, to be written to: never a copy.
template <class T>
class InOut {
public:
    T* data() const { return static_cast<T*>(view_.data); }
    size_t size() const { return view_.size; }
    bool look_at(PyObject* object, bool) noexcept {
        return view_array(object, ElementType::of<T>(), 1, false, view_) && view_.writeable && !view_.copy.is_valid();
    }

private:
    ArrayView view_;
};

// A two-dimensional array of T in `Columns` columns.
template <class T, size_t Columns>
class InRows {
public:
    const T* data() const { return static_cast<const T*>(view_.data); }
    size_t rows() const { return view_.rows; }
    bool look_at(PyObject* object, bool convert) noexcept {
        return view_array(object, ElementType::of<T>(), 2, convert, view_) && view_.size == Columns * view_.rows;
    }

private:
    ArrayView view_;
};

// As In, of any element type, which is looked at at run time.
class AnyIn {
public:
    const void* data() const { return view_.data; }
    size_t size() const { return view_.size; }
    ElementType type() const { return view_.type; }
    template <class T>
    bool is() const {
        return view_.type == ElementType::of<T>();
    }
    bool look_at(PyObject* object, bool) noexcept { return view_any_array(object, 1, view_); }

private:
    ArrayView view_;
};

// The same, to be written to: never a copy.
class AnyInOut {
public:
    void* data() const { return view_.data; }
    size_t size() const { return view_.size; }
    ElementType type() const { return view_.type; }
    bool look_at(PyObject* object, bool) noexcept { return view_any_array(object, 1, view_) && view_.writeable && !view_.copy.is_valid(); }

private:
    ArrayView view_;
};

}  // namespace spsample

namespace nanobind::detail {

// Arguments that look at an array themselves.
template <class Array>
struct array_caster {
    NB_TYPE_CASTER(Array, const_name("numpy.ndarray"))
    bool from_python(handle object, uint8_t flags, cleanup_list*) noexcept {
        return value.look_at(object.ptr(), (flags & static_cast<uint8_t>(cast_flags::convert)) != 0);
    }
};

template <class T>
struct type_caster<spsample::In<T>> : array_caster<spsample::In<T>> {};
template <class T>
struct type_caster<spsample::InOut<T>> : array_caster<spsample::InOut<T>> {};
template <class T, size_t Columns>
struct type_caster<spsample::InRows<T, Columns>> : array_caster<spsample::InRows<T, Columns>> {};
template <>
struct type_caster<spsample::AnyInOut> : array_caster<spsample::AnyInOut> {};
template <>
struct type_caster<spsample::AnyIn> : array_caster<spsample::AnyIn> {};

}  // namespace nanobind::detail
