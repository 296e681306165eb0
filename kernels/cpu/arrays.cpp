// The only file that sees NumPy's C interface.
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION  // NumPy 1.26 is the oldest that pyproject.toml allows
#include "arrays.h"

#include <numpy/arrayobject.h>

namespace nb = nanobind;

namespace spsample {
namespace {

constexpr int kMostDimensions = 2;

int type_number(ElementType type) {
    if (type.kind == 'b') return NPY_BOOL;
    if (type.kind == 'f') return type.bytes == 2 ? NPY_FLOAT16 : type.bytes == 4 ? NPY_FLOAT32 : NPY_FLOAT64;
    const bool is_signed = type.kind == 'i';
    if (type.bytes == 1) return is_signed ? NPY_INT8 : NPY_UINT8;
    if (type.bytes == 2) return is_signed ? NPY_INT16 : NPY_UINT16;
    if (type.bytes == 4) return is_signed ? NPY_INT32 : NPY_UINT32;
    return is_signed ? NPY_INT64 : NPY_UINT64;
}

PyArrayObject* as_array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

ElementType element_type(PyArrayObject* array) {
    return {PyArray_DESCR(array)->kind, static_cast<size_t>(PyArray_ITEMSIZE(array))};
}

bool is_in_order(PyArrayObject* array) {
    return PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISALIGNED(array) && PyArray_ISNOTSWAPPED(array);
}

void look_at(PyArrayObject* array, ArrayView& view) {
    view.data = PyArray_DATA(array);
    view.dimensions = PyArray_NDIM(array);
    view.size = static_cast<size_t>(PyArray_SIZE(array));
    view.rows = view.dimensions > 0 ? static_cast<size_t>(PyArray_DIM(array, 0)) : 1;
    view.type = element_type(array);
    view.writeable = PyArray_ISWRITEABLE(array);
}

// What numpy.ascontiguousarray(object, dtype) returns, or nothing where it raises. Takes over the reference to `dtype`; null is the
// object's own type, in native byte order.
nb::object converted(PyObject* object, PyArray_Descr* dtype) {
    constexpr int flags = NPY_ARRAY_IN_ARRAY | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST | NPY_ARRAY_ENSUREARRAY;
    PyObject* const array = PyArray_CheckFromAny(object, dtype, 1, 0, flags, nullptr);
    if (!array) PyErr_Clear();
    return nb::steal(array);
}

void* imported() {
    import_array1(nullptr);
    return PyArray_API;
}

}  // namespace

void import_numpy() {
    if (!imported()) throw nb::python_error();
}

bool view_array(PyObject* object, ElementType type, int dimensions, bool convert, ArrayView& view) noexcept {
    const bool fits = PyArray_Check(object) && element_type(as_array(object)) == type;
    if (fits && is_in_order(as_array(object))) {
        look_at(as_array(object), view);
    } else if (fits || convert) {
        view.copy = converted(object, fits ? nullptr : PyArray_DescrFromType(type_number(type)));
        if (!view.copy.is_valid()) return false;
        look_at(as_array(view.copy.ptr()), view);
    } else {
        return false;
    }
    return view.dimensions == dimensions;
}

bool view_any_array(PyObject* object, int dimensions, ArrayView& view) noexcept {
    return PyArray_Check(object) && view_array(object, element_type(as_array(object)), dimensions, false, view);
}

nb::object make_array(void* memory, ElementType type, std::initializer_list<int64_t> shape, nb::object owner) {
    npy_intp sizes[kMostDimensions] = {};
    int dimensions = 0;
    for (const int64_t size : shape) sizes[dimensions++] = static_cast<npy_intp>(size);
    PyObject* const array = PyArray_SimpleNewFromData(dimensions, sizes, type_number(type), memory);
    if (!array) throw nb::python_error();
    nb::object result = nb::steal(array);
    if (PyArray_SetBaseObject(as_array(array), owner.release().ptr()) < 0) throw nb::python_error();
    return result;
}

}  // namespace spsample
