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
    if (type.kind == 'f') return type.bytes == 4 ? NPY_FLOAT32 : NPY_FLOAT64;
    const bool is_signed = type.kind == 'i';
    switch (type.bytes) {
        case 1: return is_signed ? NPY_INT8 : NPY_UINT8;
        case 4: return is_signed ? NPY_INT32 : NPY_UINT32;
        default: return is_signed ? NPY_INT64 : NPY_UINT64;
    }
}

void* imported() {
    import_array1(nullptr);
    return PyArray_API;
}

}  // namespace

void import_numpy() {
    if (!imported()) throw nb::python_error();
}

bool view_array(PyObject* object, int dimensions, ArrayView& view) noexcept {
    if (!PyArray_Check(object)) return false;
    PyArrayObject* const array = reinterpret_cast<PyArrayObject*>(object);
    if (PyArray_NDIM(array) != dimensions || !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISNOTSWAPPED(array)) return false;
    view.data = PyArray_DATA(array);
    view.size = static_cast<size_t>(PyArray_SIZE(array));
    view.rows = static_cast<size_t>(PyArray_DIM(array, 0));
    view.type = {PyArray_DESCR(array)->kind, static_cast<size_t>(PyArray_ITEMSIZE(array))};
    view.writeable = PyArray_ISWRITEABLE(array);
    return true;
}

nb::object make_array(void* memory, ElementType type, std::initializer_list<int64_t> shape, nb::object owner) {
    npy_intp sizes[kMostDimensions] = {};
    int dimensions = 0;
    for (const int64_t size : shape) sizes[dimensions++] = static_cast<npy_intp>(size);
    PyObject* const array = PyArray_SimpleNewFromData(dimensions, sizes, type_number(type), memory);
    if (!array) throw nb::python_error();
    nb::object result = nb::steal(array);
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner.release().ptr()) < 0) throw nb::python_error();
    return result;
}

}  // namespace spsample
