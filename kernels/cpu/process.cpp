// Fork handlers and signals.
#include "process.h"

#include <pthread.h>

#include "bindings.h"

namespace spsample {
namespace {

std::atomic<unsigned long> main_thread{0};

void in_parent() { unlock_pool(); }

void in_child() {
    unlock_pool();
    in_forked_child = true;
    main_thread = PyThread_get_thread_ident();
}

}  // namespace

void watch_process() {
    main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
    if (pthread_atfork(lock_pool, in_parent, in_child) != 0) throw std::bad_alloc();
}

bool on_main_thread() noexcept { return PyThread_get_thread_ident() == main_thread; }

void check_signals() {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace spsample
