// Lines of text to edges: integers and weights in columns.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bindings.h"

namespace spsample {
namespace {

struct Token {
    const char* begin;
    const char* end;
};

// A character that separates columns. In white space any number of them does, and those at the ends of a line do not count.
class Columns {
public:
    explicit Columns(char delimiter) : delimiter_(delimiter) {}

    void split(const char* at, const char* end, std::vector<Token>& tokens) const {
        tokens.clear();
        if (delimiter_ == ' ') {
            while (true) {
                while (at < end && is_blank(*at)) ++at;
                if (at == end) return;
                const char* const begin = at;
                while (at < end && !is_blank(*at)) ++at;
                tokens.push_back({begin, at});
            }
        }
        while (true) {
            const char* stop = at;
            while (stop < end && *stop != delimiter_) ++stop;
            tokens.push_back(trimmed(at, stop));
            if (stop == end) return;
            at = stop + 1;
        }
    }

private:
    static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }
    static Token trimmed(const char* begin, const char* end) {
        while (begin < end && (is_blank(*begin) || *begin == '"')) ++begin;
        while (begin < end && (is_blank(end[-1]) || end[-1] == '"')) --end;
        return {begin, end};
    }
    char delimiter_;
};

bool parse_id(const Token& token, int64_t& value) {
    const char* begin = token.begin;
    if (begin < token.end && *begin == '+') ++begin;
    const auto result = std::from_chars(begin, token.end, value);
    return result.ec == std::errc() && result.ptr == token.end;
}

bool parse_weight(const Token& token, double& value) {
    const char* begin = token.begin;
    if (begin < token.end && *begin == '+') ++begin;
#if defined(__cpp_lib_to_chars)
    const auto result = std::from_chars(begin, token.end, value);
    return result.ec == std::errc() && result.ptr == token.end;
#else
    const std::string text(begin, token.end);
    char* end = nullptr;
    value = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0';
#endif
}

// (sources, targets, weights, lines, bad): the edges of whole lines, the last of which may lack its newline. Empty lines and those that
// start with # or % are passed over. `bad` is -1, or the number of the first line (from 0) that lacks a column or has something else than
// an integer (a number, in the column of weights) in one; edges before it are returned. weight_column -1: no weights (an empty
// array). O(bytes).
nb::tuple edge_parse(nb::bytes text, const char* delimiter, int64_t source_column, int64_t target_column, int64_t weight_column) {
    require(std::strlen(delimiter) == 1, "delimiter", "must be one character");
    require(source_column >= 0 && target_column >= 0 && weight_column >= -1, "source_column", "must not be negative");
    const size_t needed = static_cast<size_t>(std::max(std::max(source_column, target_column), weight_column)) + 1;
    const char* at = text.c_str();
    const char* const end = at + text.size();
    Buffer<int64_t> sources, targets;
    Buffer<double> weights;
    int64_t line = 0, bad = -1, count = 0;
    {
        const nb::gil_scoped_release release;
        int64_t most = end > at && end[-1] != '\n';
        for (const char* p = at; p < end; ++p) most += *p == '\n';
        sources = Buffer<int64_t>(most);
        targets = Buffer<int64_t>(most);
        weights = Buffer<double>(weight_column < 0 ? 0 : most);
        const Columns columns(delimiter[0]);
        std::vector<Token> tokens;
        for (; at < end; ++line) {
            const char* stop = static_cast<const char*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
            if (!stop) stop = end;
            const char* const begin = at;
            const char* first = at;
            const char* const last = stop;
            at = stop == end ? end : stop + 1;
            while (first < last && (*first == ' ' || *first == '\t' || *first == '\r')) ++first;
            if (first == last || *first == '#' || *first == '%') continue;
            columns.split(begin, last, tokens);  // blanks may be empty columns between tabs
            const bool good = tokens.size() >= needed && parse_id(tokens[static_cast<size_t>(source_column)], sources[count]) &&
                              parse_id(tokens[static_cast<size_t>(target_column)], targets[count]) &&
                              (weight_column < 0 || parse_weight(tokens[static_cast<size_t>(weight_column)], weights[count]));
            if (!good) {
                bad = line;
                break;
            }
            ++count;
        }
    }
    const auto cut = [count](nb::object array) { return array[nb::slice(nb::int_(0), nb::int_(count), nb::none())]; };
    return nb::make_tuple(cut(to_numpy(std::move(sources))), cut(to_numpy(std::move(targets))), cut(to_numpy(std::move(weights))), line, bad);
}

}  // namespace

void bind_edge_text(nb::module_& m) {
    m.def("edge_parse", &edge_parse, nb::arg("text"), nb::arg("delimiter"), nb::arg("source_column"), nb::arg("target_column"),
          nb::arg("weight_column"), "Sources, targets and weights of lines of text, the number of lines, and the first bad one or -1.");
}

}  // namespace spsample
