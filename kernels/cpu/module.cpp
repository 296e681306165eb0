// The extension module spsample._core: what it was built with, and the bindings of the other files of this folder.
#include "bindings.h"
#include "simd.h"

namespace {

const char* compiler_name() {
#if defined(__clang__)
    return "clang";
#elif defined(__GNUC__)
    return "gcc";
#else
    return "unknown";
#endif
}

const char* compiler_version() {
#if defined(__VERSION__)
    return __VERSION__;
#else
    return "unknown";
#endif
}

// No result depends on it.
void set_num_threads(int threads) {
    spsample::require(threads >= 1, "threads", "must be at least 1");
    spsample::set_thread_limit(threads);
}

// `with default_float_environment():`
class FloatEnvironmentContext {
public:
    void enter() { environment_.emplace(); }
    void leave(const nb::args&) { environment_.reset(); }

private:
    std::optional<spsample::DefaultFloatEnvironment> environment_;
};

nb::dict build_info() {
    nb::dict info;
    info["version"] = SPSAMPLE_VERSION;
    info["build_type"] = SPSAMPLE_BUILD_TYPE;
    info["compiler"] = compiler_name();
    info["compiler_version"] = compiler_version();
    info["cxx_standard"] = static_cast<long>(__cplusplus);
    info["max_threads"] = spsample::thread_limit();
    info["sanitizers"] = SPSAMPLE_SANITIZERS;
    return info;
}

}  // namespace

NB_MODULE(_core, m) {
    spsample::import_numpy();
    m.doc() = "Compiled kernels of spsample. Internal: use spsample.backends.";
    m.attr("__version__") = SPSAMPLE_VERSION;
    m.def("build_info", &build_info,
          "What this extension was built with: version, build_type, compiler, compiler_version, cxx_standard,\n"
          "max_threads (now), sanitizers.");
    m.def("set_num_threads", &set_num_threads, nb::arg("threads"),
          "Number of threads of later calls from the calling thread only: other threads go on with theirs\n"
          "(OMP_NUM_THREADS at first). Without effect in a forked process, which has one.");
    m.def("get_num_threads", &spsample::thread_limit,
          "Number of threads that a call from the calling thread would use; 1 in a forked process.");
    m.def("instruction_set", [] { return spsample::instruction_set().name; }, "Which vector code runs: avx512, avx2 or portable.");
    m.def("set_instruction_set", &spsample::set_instruction_set, nb::arg("name"),
          "Choose it, for tests; False where this machine lacks it. No result depends on it.");
    m.def("pool_bytes", &spsample::pool_bytes, "Bytes of freed result arrays that are kept for the next call.");
    m.def("pool_use", [] { const spsample::PoolUse use = spsample::pool_use(); return std::make_pair(use.now, use.peak); },
          "(bytes of large blocks in use or kept, the most there were since reset_pool_peak).");
    m.def("reset_pool_peak", &spsample::reset_pool_peak, "Measure the peak from now on.");
    m.def("clear_pool", &spsample::clear_pool, "Give them back to the system.");
    nb::class_<FloatEnvironmentContext>(
        m, "default_float_environment",
        "Context manager: in it the thread rounds to nearest and keeps subnormal numbers, whatever it was told before.")
        .def(nb::init<>())
        .def("__enter__", &FloatEnvironmentContext::enter)
        .def("__exit__", &FloatEnvironmentContext::leave);
    nb::exception<spsample::DrawLimitReached>(m, "DrawLimitReached", PyExc_OverflowError);
    spsample::instruction_set();  // chosen here and now, not inside a parallel loop
    spsample::watch_process();
    spsample::bind_random(m);
    spsample::bind_quantisation(m);
    spsample::bind_row_law(m);
    spsample::bind_row_law_weighted(m);
    spsample::bind_row_law_whole(m);
    spsample::bind_row_law_hops(m);
    spsample::bind_entry_law(m);
    spsample::bind_column_law(m);
    spsample::bind_column_law_added(m);
    spsample::bind_column_law_merged(m);
    spsample::bind_column_law_shared(m);
    spsample::bind_compaction(m);
    spsample::bind_extraction(m);
    spsample::bind_extraction_unbiased(m);
    spsample::bind_values(m);
    spsample::bind_values_expansion(m);
    spsample::bind_values_sources(m);
    spsample::bind_values_unbiased(m);
    spsample::bind_stacking(m);
    spsample::bind_seeds(m);
    spsample::bind_cooperative(m);
    spsample::bind_ascending(m);
    spsample::bind_edge_order(m);
    spsample::bind_routing(m);
    spsample::bind_routing_gather(m);
    spsample::bind_spgemm(m);
    spsample::bind_spgemm_select_rows(m);
    spsample::bind_features(m);
    spsample::bind_features_cached(m);
    spsample::bind_features_kept(m);
    spsample::bind_feature_places(m);
    spsample::bind_disk_rows(m);
    spsample::bind_lookahead(m);
    spsample::bind_feature_column_sums(m);
    spsample::bind_feature_symmetric(m);
    spsample::bind_edge_partition(m);
    spsample::bind_edge_bucket(m);
    spsample::bind_edge_text(m);
    spsample::bind_content_sum(m);
    spsample::bind_parts_pagraph(m);
    spsample::bind_parts_ldg(m);
    spsample::bind_aggregate(m);
    spsample::bind_attention(m);
    spsample::bind_dropout(m);
    spsample::bind_sparse_products(m);
    spsample::bind_keep_freed(m);
}
